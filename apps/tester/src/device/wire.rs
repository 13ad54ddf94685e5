//! Wires between the generator and a device: rings of this process, or veth pairs whose far ends
//! are in a name space of the device's.
//!
//! Pair *n* is `g<n>`, the generator's end, and `d<n>`, the device's.

use linerate_wire::ethernet::MacAddr;

use super::{Asked, Cpus, Setup, Side};
use linerate_appliance::error::Error;
use linerate_appliance::netns::{self, Space};

/// Frames that a ring to the device holds: at 10 Mpps 1.6 ms, so that short losses of a CPU lose no
/// frame.
const RING: usize = 16_384;

/// A kind of port without its target: `ring`, `af_packet`, `af_xdp`, with options that all ports of
/// the wire's generator side get: `af_xdp,ring=4096`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    kind: String,
    options: String,
}

impl std::str::FromStr for Wire {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, options) = match text.split_once(',') {
            Some((kind, options)) => (kind, format!(",{options}")),
            None => (text, String::new()),
        };
        if !["ring", "af_packet", "af_xdp"].contains(&kind) {
            return Err(format!(
                "`{kind}` is no kind of port that can be made for a device; write ring, af_packet \
                 or af_xdp, with options after commas; ports that are there already are named by \
                 --port"
            ));
        }
        Ok(Self {
            kind: kind.into(),
            options,
        })
    }
}

impl Wire {
    /// A kind without options.
    pub(crate) fn of(kind: &str) -> Self {
        Self {
            kind: kind.into(),
            options: String::new(),
        }
    }

    /// One like the wire of a port that is there: its kind and its options; none where such ports
    /// cannot be made.
    pub(crate) fn like(spec: &str) -> Option<Self> {
        let (kind, rest) = spec.split_once(':')?;
        let options = rest.split_once(',').map_or("", |(_, options)| options);
        let text = match options {
            "" => kind.to_string(),
            options => format!("{kind},{options}"),
        };
        (kind != "ring").then(|| text.parse().ok()).flatten()
    }

    /// Whether it is memory of this process.
    pub(crate) fn is_ring(&self) -> bool {
        self.kind == "ring"
    }

    /// The kind of port.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// The value of a key that belongs to the wire, not to its ports.
    fn own<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        let mut options = self.options.split(',');
        options.find_map(|option| option.strip_prefix(key)?.parse().ok())
    }

    /// Frames that a ring to the device holds, unless the options say otherwise.
    fn ring(&self) -> usize {
        self.own("size=").unwrap_or(RING)
    }

    /// The generator's port on `target`, its ring as large as `inner` says if the device opens it
    /// first.
    pub(crate) fn outer(&self, target: &str) -> String {
        let mut spec = format!("{}:{target}", self.kind);
        for option in self.options.split(',').filter(|option| !option.is_empty()) {
            let is_own = option.starts_with("size=") || option.starts_with("slots=");
            if !(self.is_ring() && is_own) {
                spec += &format!(",{option}");
            }
        }
        spec
    }

    /// The device's port on `target`. Its ring to the generator is larger than the one to it: all
    /// frames that waited while the device had no CPU come out at once, and must not be lost as the
    /// device's loss.
    fn inner(&self, target: &str) -> String {
        match (self.is_ring(), self.ring()) {
            (true, size) => format!("ring:{target},size={},back={size}", size * 2),
            (false, _) => format!("{}:{target}", self.kind),
        }
    }

    /// Slots that the generator needs for frames under way, unless the options say how many it has.
    /// With no more slots than the device's input ring holds, that ring cannot overflow: a
    /// generator at full speed waits instead.
    pub(crate) fn slots(&self, directions: u32) -> Option<u32> {
        let enough = || 3 * self.ring() as u32 * directions.max(1) + 8192;
        self.is_ring()
            .then(|| self.own("slots=").unwrap_or_else(enough))
    }
}

/// The address of the generator's end of a pair.
pub(super) fn outer_mac(pair: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 2, pair as u8])
}

/// The address of the device's end.
pub(super) fn inner_mac(pair: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, pair as u8])
}

/// Two wires, as the generator and the device open them.
pub(super) struct Wires {
    /// The generator's ports; they send to the device's address.
    pub(super) sides: Vec<Side>,
    /// The device's ports.
    pub(super) inner: Vec<String>,
    /// The generator's name space, and the device's.
    pub(super) spaces: Option<(Space, Space)>,
}

impl Wires {
    /// Makes two wires.
    pub(super) fn make(wire: &Wire) -> Result<Self, Error> {
        let spaces = match wire.is_ring() {
            true => None,
            false => {
                let (outer, inner) = (Space::new()?, Space::new()?);
                let lines: String = (0..2).map(|pair| pair_lines(pair, &inner)).collect();
                outer.within(|| netns::ip(&lines))?;
                inner.within(|| {
                    netns::ip("link set lo up\nlink set d0 up\nlink set d1 up\n")?;
                    Ok(())
                })?;
                Some((outer, inner))
            }
        };
        let side = |pair: usize| {
            let spec = wire.outer(&format!("g{pair}"));
            Side::new(spec, Some(inner_mac(pair)))
        };
        // The other end of a ring has its name.
        let target = |pair: usize| match wire.is_ring() {
            true => format!("g{pair}"),
            false => format!("d{pair}"),
        };
        Ok(Self {
            sides: (0..2).map(side).collect(),
            inner: (0..2).map(|pair| wire.inner(&target(pair))).collect(),
            spaces,
        })
    }
}

fn pair_lines(pair: usize, inner: &Space) -> String {
    format!(
        "link add g{pair} address {} type veth peer name d{pair} address {} netns {}\nlink set \
         g{pair} up\n",
        outer_mac(pair),
        inner_mac(pair),
        inner.path()
    )
}

/// Facts about all wires of a kind, for the report.
pub(super) fn describe(setup: &mut Setup, asked: &Asked) {
    match asked.wire.is_ring() {
        true => setup.fact("backend", "rings in memory, both ends in this process"),
        false => setup.fact(
            "backend",
            format!("veth pairs, the generator on {}", asked.wire.kind()),
        ),
    }
    for (number, side) in setup.sides.clone().iter().enumerate() {
        setup.fact(&format!("generator port {number}"), &side.spec);
    }
}

/// The generator's ports joined to each other by one wire of the same kind: its maximum.
pub(super) fn loopback(asked: &Asked, cpus: Cpus) -> Result<Setup, Error> {
    let name = "no device: the generator's ports joined to each other";
    let spec = |pair: usize| match asked.wire.is_ring() {
        true => format!("{},size={}", asked.wire.outer("x"), asked.wire.ring()),
        false => asked.wire.outer(&format!("g{pair}")),
    };
    let sides = (0..2).map(|pair| Side::new(spec(pair), Some(outer_mac(1 - pair))));
    let mut setup = Setup::new(asked, cpus, name.into(), sides.collect());
    setup.device.cores = 0;
    if !asked.wire.is_ring() {
        let space = Space::new()?;
        let lines = format!(
            "link add g0 address {} type veth peer name g1 address {}\nlink set g0 up\nlink set g1 \
             up\n",
            outer_mac(0),
            outer_mac(1)
        );
        space.within(|| netns::ip(&lines))?;
        setup.space = Some(space);
    }
    describe(&mut setup, asked);
    Ok(setup)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn options_go_to_the_generators_side_and_unknown_kinds_are_named() {
        let wire: Wire = "ring,faulty=loss:0.01".parse().unwrap();
        assert_eq!(wire.outer("g0"), "ring:g0,faulty=loss:0.01");
        assert_eq!(wire.inner("g0"), "ring:g0,size=32768,back=16384");
        let wire: Wire = "ring,size=64".parse().unwrap();
        assert_eq!(wire.outer("g1"), "ring:g1");
        assert_eq!(wire.inner("g1"), "ring:g1,size=128,back=64");
        assert_eq!(wire.slots(1), Some(3 * 64 + 8192));
        let wire: Wire = "ring,slots=128,size=64".parse().unwrap();
        assert_eq!(
            (wire.outer("g0"), wire.slots(2)),
            ("ring:g0".into(), Some(128))
        );
        let wire: Wire = "af_xdp,ring=512".parse().unwrap();
        assert_eq!(wire.outer("g0"), "af_xdp:g0,ring=512");
        assert_eq!(wire.inner("d0"), "af_xdp:d0");
        let like = |spec| Wire::like(spec).map(|wire| wire.outer("g0"));
        let spec = "af_xdp:eth0,ring=512,mode=copy";
        assert_eq!(like(spec).as_deref(), Some("af_xdp:g0,ring=512,mode=copy"));
        assert_eq!(like("af_packet:eth0").as_deref(), Some("af_packet:g0"));
        assert_eq!((like("pci:0000:01:00.0"), like("ring:a")), (None, None));
        assert!("pci".parse::<Wire>().unwrap_err().contains("--port"));
    }
}
