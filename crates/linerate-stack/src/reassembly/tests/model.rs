//! Comparison with a plain model: a map of bytes for each datagram.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The received part of one datagram.
#[derive(Default)]
struct Plain {
    bytes: BTreeMap<usize, u8>,
    total: Option<usize>,
}

impl Plain {
    fn push(&mut self, start: usize, more: bool, payload: &[u8]) -> Result<bool, Refusal> {
        let end = start + payload.len();
        let last = self.bytes.last_key_value().map_or(0, |(&at, _)| at + 1);
        let is_past_end = match (self.total, more) {
            (None, true) => false,
            (None, false) => last > end,
            (Some(total), true) => end >= total,
            (Some(total), false) => end != total,
        };
        let there = self.bytes.range(start..end).count();
        let fitting = (start..end).zip(payload);
        let is_same = fitting
            .clone()
            .all(|(at, byte)| self.bytes.get(&at) == Some(byte));
        match () {
            () if is_past_end => return Err(Refusal::Overlap),
            () if is_same => return Err(Refusal::Duplicate),
            () if there > 0 => return Err(Refusal::Overlap),
            () => {}
        }
        self.bytes.extend(fitting.map(|(at, &byte)| (at, byte)));
        if !more {
            self.total = Some(end);
        }
        Ok(self.total == Some(self.bytes.len()))
    }

    fn payload(&self) -> Vec<u8> {
        self.bytes.values().copied().collect()
    }
}

/// A fragment of one of four datagrams, in units of 8 bytes.
#[derive(Clone, Debug)]
struct Step {
    datagram: u8,
    start: usize,
    units: usize,
    more: bool,
    /// Bytes that the last fragment lacks to a whole unit.
    short: usize,
    /// A byte that is not what it is elsewhere.
    is_forged: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let parts = (
        0..4_u8,
        0..12_usize,
        1..6_usize,
        0..4_u8,
        0..8_usize,
        0..8_u8,
    );
    parts.prop_map(|(datagram, start, units, more, short, forged)| Step {
        datagram,
        start,
        units,
        more: more != 0,
        short,
        is_forged: forged == 0,
    })
}

impl Step {
    fn payload(&self) -> Vec<u8> {
        let len = self.units * 8 - if self.more { 0 } else { self.short };
        let at = |index: usize| (self.start * 8 + index) as u8 ^ self.datagram << 6;
        let mut payload: Vec<u8> = (0..len).map(at).collect();
        if self.is_forged {
            payload[len / 2] ^= 0xff;
        }
        payload
    }
}

proptest! {
    #[test]
    fn any_fragments_are_what_the_model_makes_of_them(steps in prop::collection::vec(step(),
        1..80)) {
        let mut fixture = Fixture::few();
        let mut model: BTreeMap<u8, Plain> = BTreeMap::new();
        for step in &steps {
            let (payload, start) = (step.payload(), step.start * 8);
            if start == 0 && !step.more {
                // A single piece is not a fragment (RFC 791 3.2), or an atomic one (RFC 6946).
                continue;
            }
            let is_v6 = step.datagram % 2 == 1;
            let id = u16::from(step.datagram);
            let plain = model.entry(step.datagram).or_default();
            let expected = plain.push(start, step.more, &payload);
            let frame = match is_v6 {
                false => V4::new(id).frame(start, step.more, &payload),
                true => V6::new(id.into()).frame(start, step.more, &payload),
            };
            let whole = |payload: &[u8]| match is_v6 {
                false => V4::new(id).whole(payload),
                true => V6::new(id.into()).whole(payload),
            };
            let seen = fixture.push(&frame);
            match expected {
                Ok(false) => prop_assert_eq!(seen, Seen::Held),
                Ok(true) => {
                    prop_assert_eq!(seen, Seen::Whole(whole(&plain.payload())));
                    model.remove(&step.datagram);
                }
                Err(refusal) => {
                    prop_assert_eq!(seen, Seen::Dropped(refusal));
                    if refusal == Refusal::Overlap {
                        model.remove(&step.datagram);
                    }
                }
            }
            fixture.check();
        }
    }

    #[test]
    fn any_cut_in_any_order_with_duplicates_is_put_together(
        (len, cuts, order) in (400..65_000_usize).prop_flat_map(|len| {
            let cuts = prop::collection::btree_set(2..len / 8, 1..30);
            (Just(len), cuts, prop::collection::vec(any::<prop::sample::Index>(), 100))
        }),
        is_v6: bool,
    ) {
        let payload = payload(len);
        let edges: Vec<usize> = [0].into_iter().chain(cuts.iter().map(|cut| cut * 8)).collect();
        let parts = edges.iter().enumerate().map(|(index, &start)| {
            let end = edges.get(index + 1).copied().unwrap_or(len);
            let (more, part) = (end != len, &payload[start..end]);
            match is_v6 {
                false => V4::new(9).frame(start, more, part),
                true => V6::new(9).frame(start, more, part),
            }
        });
        let frames: Vec<_> = parts.collect();
        let whole = match is_v6 {
            false => V4::new(9).whole(&payload),
            true => V6::new(9).whole(&payload),
        };
        let mut fixture = Fixture::few();
        let mut come = vec![false; frames.len()];
        let drawn = order.iter().map(|index| index.index(frames.len()));
        // Pieces that were not drawn come at the end.
        for index in drawn.chain(0..frames.len()) {
            let expected = match come[index] {
                true => Seen::Dropped(Refusal::Duplicate),
                false => Seen::Held,
            };
            come[index] = true;
            let seen = fixture.push(&frames[index]);
            if come.iter().all(|&come| come) {
                prop_assert_eq!(seen, Seen::Whole(whole));
                break;
            }
            prop_assert_eq!(seen, expected);
        }
        prop_assert_eq!(fixture.reassembler.held().datagrams, 0);
    }

    #[test]
    fn any_bytes_are_taken_without_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        is_v6: bool,
        first: [u8; 4],
    ) {
        if let Some(head) = bytes.get_mut(L3..L3 + 4) {
            head.copy_from_slice(&first);
            head[0] = if is_v6 { 0x60 } else { 0x40 | head[0] & 7 };
        }
        let len = (bytes.len().saturating_sub(L3)) as u16;
        if is_v6 && let Some(v6) = bytes.get_mut(L3 + 4..L3 + 7) {
            v6[..2].copy_from_slice(&len.saturating_sub(40).to_be_bytes());
            v6[2] = [44, 0, 60, 43][usize::from(v6[2] % 4)];
        } else if let Some(v4) = bytes.get_mut(L3 + 2..L3 + 4) {
            v4.copy_from_slice(&len.to_be_bytes());
        }
        let mut fixture = Fixture::few();
        fixture.push(&bytes);
        fixture.push(&bytes);
    }
}
