//! MPLS (RFC 3032): a stack of labels, and what is likely behind it.

use core::fmt;

use crate::{
    EtherType, Layer, Malformed,
    bytes::{array, be32, put32},
};

/// Length in bytes of a label stack entry.
pub const ENTRY_LEN: usize = 4;

/// Entries walked before a packet is refused.
pub const MAX_LABELS: usize = 16;

/// RFC 3032 2.1: labels that stand for what is behind them.
const IPV4_EXPLICIT_NULL: u32 = 0;
const IPV6_EXPLICIT_NULL: u32 = 2;

/// A label stack entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub [u8; ENTRY_LEN]);

impl Entry {
    /// An entry; the low 20 bits of `label` and 3 of `class` count.
    #[inline]
    pub const fn new(label: u32, class: u8, is_bottom: bool, ttl: u8) -> Self {
        let word = label << 12 | (class as u32 & 7) << 9 | (is_bottom as u32) << 8 | ttl as u32;
        Entry(word.to_be_bytes())
    }

    #[inline]
    const fn word(self) -> u32 {
        u32::from_be_bytes(self.0)
    }

    /// The label, 20 bits.
    #[inline]
    pub const fn label(self) -> u32 {
        self.word() >> 12
    }

    /// Traffic class, 3 bits (RFC 5462).
    #[inline]
    pub const fn class(self) -> u8 {
        (self.word() >> 9 & 7) as u8
    }

    /// Whether it is the last of its stack.
    #[inline]
    pub const fn is_bottom(self) -> bool {
        self.word() & 0x100 != 0
    }

    /// Time to live.
    #[inline]
    pub const fn ttl(self) -> u8 {
        self.word() as u8
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (label, class, ttl) = (self.label(), self.class(), self.ttl());
        write!(f, "label {label} class {class} ttl {ttl}")
    }
}

/// A label stack whose bottom lies within the bytes present, and what is behind it.
#[derive(Clone, Copy, Debug)]
pub struct LabelStack<T> {
    bytes: T,
    depth: usize,
}

impl<T: AsRef<[u8]>> LabelStack<T> {
    /// Takes `bytes` if a stack of at most [`MAX_LABELS`] begins them.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let (entries, _) = bytes.as_ref().as_chunks::<ENTRY_LEN>();
        let mut stack = entries.iter().take(MAX_LABELS);
        match stack.position(|entry| Entry(*entry).is_bottom()) {
            Some(bottom) => Ok(LabelStack {
                bytes,
                depth: bottom + 1,
            }),
            None if entries.len() < MAX_LABELS => Err(Malformed::Truncated(Layer::Mpls)),
            None => Err(Malformed::TooDeep(Layer::Mpls)),
        }
    }

    /// Number of entries, 1 to [`MAX_LABELS`].
    #[inline]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Length in bytes of the stack.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.depth * ENTRY_LEN
    }

    /// The entries from the top, the outermost, to the bottom.
    #[inline]
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let (entries, _) = self.bytes.as_ref()[..self.header_len()].as_chunks();
        entries.iter().map(|entry| Entry(*entry))
    }

    /// The entry that routers switch on.
    #[inline]
    pub fn top(&self) -> Entry {
        Entry(array(self.bytes.as_ref(), 0))
    }

    /// The last entry: the one that decides what is behind it.
    #[inline]
    pub fn bottom(&self) -> Entry {
        Entry(array(self.bytes.as_ref(), self.header_len() - ENTRY_LEN))
    }

    /// What follows the stack.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[self.header_len()..]
    }

    /// What the payload most likely is. Only an explicit null label says it; else the first
    /// nibble tells, as it does for the switches that spread load by it (RFC 4928): pseudo-wires
    /// start with 0 or 1, or may be taken for IP by their MAC addresses. `None` for the unknown.
    #[inline]
    pub fn payload_type(&self) -> Option<EtherType> {
        match self.bottom().label() {
            IPV4_EXPLICIT_NULL => Some(EtherType::IPV4),
            IPV6_EXPLICIT_NULL => Some(EtherType::IPV6),
            _ => ip_version(self.payload()),
        }
    }
}

/// IPv4 or IPv6 by the first nibble, where nothing else tells.
#[inline]
pub(crate) fn ip_version(packet: &[u8]) -> Option<EtherType> {
    match packet.first()? >> 4 {
        4 => Some(EtherType::IPV4),
        6 => Some(EtherType::IPV6),
        _ => None,
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> LabelStack<T> {
    /// Swaps the top label, the low 20 bits of `label`; class and TTL stay.
    #[inline]
    pub fn set_top_label(&mut self, label: u32) {
        let bytes = self.bytes.as_mut();
        put32(bytes, 0, label << 12 | be32(bytes, 0) & 0xfff);
    }

    /// Takes one off the top entry's TTL; false and unchanged where it is 0 or 1 (RFC 3032 2.4.1).
    #[inline]
    #[must_use = "false means that the packet must not be forwarded"]
    pub fn decrement_ttl(&mut self) -> bool {
        let ttl = &mut self.bytes.as_mut()[3];
        if *ttl <= 1 {
            return false;
        }
        *ttl -= 1;
        true
    }
}

impl<T: AsRef<[u8]>> fmt::Display for LabelStack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MPLS")?;
        for entry in self.entries() {
            write!(f, " {entry}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{string::ToString, vec::Vec};

    /// Labels 16 and 17, and the beginning of an IPv4 header.
    const BYTES: [u8; 10] = [0x00, 0x01, 0x0a, 0xff, 0x00, 0x01, 0x11, 0x01, 0x45, 0x00];

    #[test]
    fn reads_a_stack() {
        let stack = LabelStack::new_checked(&BYTES[..]).unwrap();
        assert_eq!(
            stack.to_string(),
            "MPLS label 16 class 5 ttl 255 label 17 class 0 ttl 1"
        );
        assert_eq!((stack.depth(), stack.payload()), (2, &[0x45, 0x00][..]));
        assert_eq!(stack.top(), Entry::new(16, 5, false, 255));
        assert_eq!(stack.bottom(), Entry::new(17, 0, true, 1));
        assert_eq!(stack.payload_type(), Some(EtherType::IPV4));
    }

    #[test]
    fn an_mpls_stack_without_bottom_is_malformed() {
        assert_eq!(
            LabelStack::new_checked(&BYTES[..7]).unwrap_err(),
            Malformed::Truncated(Layer::Mpls)
        );
        assert_eq!(
            LabelStack::new_checked([0; 100]).unwrap_err(),
            Malformed::TooDeep(Layer::Mpls)
        );
        let mut deepest = [0; MAX_LABELS * ENTRY_LEN];
        deepest[MAX_LABELS * ENTRY_LEN - 2] = 1;
        let stack = LabelStack::new_checked(deepest).unwrap();
        assert_eq!((stack.depth(), stack.payload().len()), (MAX_LABELS, 0));
    }

    #[test]
    fn the_payload_is_guessed_unless_a_label_tells() {
        let guess = |label: u32, first: u8| {
            let bytes = [&Entry::new(label, 0, true, 64).0[..], &[first]].concat();
            LabelStack::new_checked(bytes).unwrap().payload_type()
        };
        assert_eq!(guess(99, 0x45), Some(EtherType::IPV4));
        assert_eq!(guess(99, 0x60), Some(EtherType::IPV6));
        assert_eq!(guess(99, 0x00), None); // a control word (RFC 4385)
        assert_eq!(guess(0, 0x60), Some(EtherType::IPV4));
        assert_eq!(guess(2, 0x45), Some(EtherType::IPV6));
    }

    #[test]
    fn swaps_the_top_and_stops_at_one() {
        let mut bytes = BYTES;
        let mut stack = LabelStack::new_checked(&mut bytes[..]).unwrap();
        stack.set_top_label(0xfff_0007);
        assert!(stack.decrement_ttl());
        assert_eq!(stack.top(), Entry::new(0xf_0007, 5, false, 254));
        let mut rest = LabelStack::new_checked(&mut bytes[4..]).unwrap();
        assert!(!rest.decrement_ttl());
        assert_eq!(rest.top().ttl(), 1);
    }

    proptest! {
        #[test]
        fn entries_round_trip(label in 0u32..1 << 20, class in 0u8..8, is_bottom: bool, ttl: u8) {
            let entry = Entry::new(label, class, is_bottom, ttl);
            prop_assert_eq!((entry.label(), entry.class()), (label, class));
            prop_assert_eq!((entry.is_bottom(), entry.ttl()), (is_bottom, ttl));
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            if let Ok(stack) = LabelStack::new_checked(&bytes) {
                let _ = (stack.payload_type(), stack.to_string());
                prop_assert_eq!(stack.entries().count(), stack.depth());
                prop_assert_eq!(stack.header_len() + stack.payload().len(), bytes.len());
            }
        }
    }
}
