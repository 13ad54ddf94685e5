//! Which ring names are open: how the second opening of a name finds the first.

use super::{Lines, RingPort, nic};
use linerate_core::port::{MakeRssHash, PortError, RssHash, Spec};
use linerate_core::ring::MAX_CAPACITY;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

/// The wires by name. An end whose port was dropped can be opened again.
#[derive(Default)]
pub(crate) struct Registry(HashMap<String, Wire>);

/// What both ends of a wire agree on.
#[derive(Clone, PartialEq, Eq)]
struct Shape {
    size: usize,
    /// Of the second end's queues.
    back: usize,
    queues: u16,
    is_loop: bool,
    /// The NIC that the ends play, and its key, as written.
    rss: Option<String>,
    key: Option<String>,
}

struct Wire {
    shape: Shape,
    /// From the first end, and from the second; none of a loop, which nobody else opens.
    lines: Option<[Lines; 2]>,
    taken: [Weak<()>; 2],
}

impl Registry {
    /// Opens an end of the ring that the spec names; `make` knows the NICs that it may play.
    pub(crate) fn open(
        &mut self,
        spec: &Spec,
        make: Option<MakeRssHash>,
    ) -> Result<RingPort, PortError> {
        let name = spec.required_target("a name: `ring:NAME`")?;
        self.0
            .retain(|_, wire| wire.taken.iter().any(|end| end.strong_count() > 0));
        let known = self.0.get_mut(name);
        let shape = Shape::read(spec, known.as_ref().map(|wire| &wire.shape))?;
        if let Some(wire) = known {
            return wire.open_second(spec, name, &shape);
        }
        let hash = shape.hash(spec, make)?;
        let lines = |size| Lines::new(shape.queues, size, true, hash.as_deref());
        let (port, lines) = match shape.is_loop {
            true => {
                let port = RingPort::looped(name, shape.queues, shape.size, hash.as_deref());
                (port, None)
            }
            false => {
                let [there, back] = [lines(shape.size), lines(shape.back)];
                (RingPort::new(name, &there, &back), Some([there, back]))
            }
        };
        let first = Arc::downgrade(&port._taken);
        let second = match shape.is_loop {
            true => first.clone(),
            false => Weak::new(),
        };
        let taken = [first, second];
        self.0.insert(
            name.into(),
            Wire {
                shape,
                lines,
                taken,
            },
        );
        Ok(port)
    }
}

impl Wire {
    fn open_second(
        &mut self,
        spec: &Spec,
        name: &str,
        shape: &Shape,
    ) -> Result<RingPort, PortError> {
        if self.shape != *shape {
            return Err(self.shape.differs_from(shape, spec));
        }
        let free = self.taken.iter().position(|end| end.strong_count() == 0);
        let (Some(end), Some(lines)) = (free, &self.lines) else {
            let both = match shape.is_loop {
                true => "a loop is open under that name",
                false => "both ends are open",
            };
            return Err(spec.bad("target", format!("another name: {both}")));
        };
        let port = RingPort::new(name, &lines[end], &lines[1 - end]);
        self.taken[end] = Arc::downgrade(&port._taken);
        Ok(port)
    }
}

impl Shape {
    /// Reads the options; what is left out is as at the other end, if there is one.
    fn read(spec: &Spec, other: Option<&Self>) -> Result<Self, PortError> {
        let is_loop = spec.switch("loop", false)?;
        let or = |key, other: Option<&Option<String>>| {
            let text = spec.text(key).map(String::from);
            text.or(other.cloned().flatten())
        };
        let rss = or("rss", other.map(|shape| &shape.rss));
        let key = or("key", other.map(|shape| &shape.key));
        if key.is_some() && rss.is_none() {
            return Err(spec.bad("key", "together with rss=NIC"));
        }
        let most = match rss {
            Some(_) => nic::MAX_QUEUES,
            None => u16::MAX,
        };
        let size = other.map_or(1024, |shape| shape.size);
        let size = spec.number("size", size, 1..=MAX_CAPACITY)?;
        let back = other.map_or(size, |shape| shape.back);
        Ok(Self {
            size,
            back: spec.number("back", back, 1..=MAX_CAPACITY)?,
            queues: spec.number("queues", other.map_or(1, |shape| shape.queues), 1..=most)?,
            is_loop,
            rss,
            key,
        })
    }

    /// The hash of the NIC to play, if any.
    fn hash(
        &self,
        spec: &Spec,
        make: Option<MakeRssHash>,
    ) -> Result<Option<Box<dyn RssHash>>, PortError> {
        let Some(profile) = &self.rss else {
            return Ok(None);
        };
        let make = make.ok_or_else(|| spec.bad("rss", "left out: this program knows no NICs"))?;
        let key = self.key.as_deref().map(|text| {
            let bytes = hex(text);
            bytes.ok_or_else(|| spec.bad("key", "hex digits, two for each byte"))
        });
        let hash = make(profile, key.transpose()?.as_deref());
        let hash = hash.map_err(|reason| spec.bad("rss", format!("different: {reason}")))?;
        Ok(Some(hash))
    }

    /// An error about the first option that the other end has otherwise.
    fn differs_from(&self, other: &Self, spec: &Spec) -> PortError {
        let differing = [
            ("size", self.size != other.size),
            ("back", self.back != other.back),
            ("rss", self.rss != other.rss),
            ("key", self.key != other.key),
        ];
        let found = differing.iter().find(|(_, differs)| *differs);
        let key = found.map_or("queues", |(key, _)| key);
        let mut agree = format!(
            "as at the other end: size={}, back={}, queues={}",
            self.size, self.back, self.queues
        );
        for (key, value) in [("rss", &self.rss), ("key", &self.key)] {
            if let Some(value) = value {
                agree += &format!(", {key}={value}");
            }
        }
        spec.bad(key, agree)
    }
}

/// Bytes of hex digits, colons between them ignored; `None` where there are others, or half a byte.
fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().filter(|&digit| digit != ':');
    let digits: Option<Vec<u8>> = digits
        .map(|digit| digit.to_digit(16).map(|value| value as u8))
        .collect();
    let digits = digits?;
    let (pairs, half) = digits.as_chunks::<2>();
    let bytes = pairs.iter().map(|&[high, low]| high << 4 | low).collect();
    half.is_empty().then_some(bytes)
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
