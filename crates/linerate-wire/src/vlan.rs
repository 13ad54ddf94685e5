//! 802.1Q and 802.1ad tags: reading, walking, inserting, removing.
//!
//! A tag sits between the addresses and the EtherType. [`Vlan`] views it from its tag control
//! information (TCI) on: two bytes TCI, two bytes EtherType of what follows.

use core::fmt;

use crate::{
    EtherType, Layer, Malformed,
    bytes::{be16, put16},
    ethernet,
};

/// Length in bytes of a tag.
pub const TAG_LEN: usize = 4;

/// Tags walked before a frame is refused; two is what 802.1ad needs.
pub const MAX_TAGS: usize = 4;

/// Offset of the tag protocol identifier in a frame: where a tag is inserted.
const TPID: usize = 12;

mod field {
    pub(super) const TCI: usize = 0;
    pub(super) const ETHERTYPE: usize = 2;
}

/// A tag from its TCI on: what an Ethernet header with a VLAN EtherType is followed by.
#[derive(Clone, Copy, Debug)]
pub struct Vlan<T>(T);

impl<T: AsRef<[u8]>> Vlan<T> {
    /// Takes `bytes` unless they are shorter than a tag.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        match bytes.as_ref().len() {
            TAG_LEN.. => Ok(Vlan(bytes)),
            _ => Err(Malformed::Truncated(Layer::Vlan)),
        }
    }

    /// Priority (3 bits), drop eligible (1 bit) and VLAN id (12 bits).
    #[inline]
    pub fn tci(&self) -> u16 {
        be16(self.0.as_ref(), field::TCI)
    }

    /// VLAN id, 0 to 4095; 0 means priority only.
    #[inline]
    pub fn id(&self) -> u16 {
        self.tci() & 0x0fff
    }

    /// Priority code point, 0 to 7.
    #[inline]
    pub fn priority(&self) -> u8 {
        (self.tci() >> 13) as u8
    }

    /// EtherType of what follows: another tag, or the packet.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(be16(self.0.as_ref(), field::ETHERTYPE))
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Vlan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "vlan {} priority {} {}",
            self.id(),
            self.priority(),
            self.ethertype()
        )
    }
}

/// What lies beyond a frame's tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// EtherType of the packet.
    pub ethertype: EtherType,
    /// Offset of the packet in the frame.
    pub offset: usize,
    /// TCI of the outermost tag, where there is one.
    pub outer_tci: Option<u16>,
}

/// Walks a frame's tags, at most [`MAX_TAGS`].
#[inline]
pub fn untagged(frame: &[u8]) -> Result<Untagged, Malformed> {
    let mut ethertype = ethernet::Ethernet::new_checked(frame)?.ethertype();
    let mut offset = ethernet::HEADER_LEN;
    let mut outer_tci = None;
    while ethertype.is_vlan() {
        if offset == ethernet::HEADER_LEN + MAX_TAGS * TAG_LEN {
            return Err(Malformed::TooDeep(Layer::Vlan));
        }
        let tag = Vlan::new_checked(&frame[offset..])?;
        outer_tci = outer_tci.or(Some(tag.tci()));
        ethertype = tag.ethertype();
        offset += TAG_LEN;
    }
    Ok(Untagged {
        ethertype,
        offset,
        outer_tci,
    })
}

/// Tags a frame in place: `buffer` is [`TAG_LEN`] bytes of headroom and then the frame, and is
/// afterwards the tagged frame. False (and nothing written) where there is no whole header.
///
/// `tpid` is [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`]; `tci` as in [`Vlan::tci`].
#[inline]
#[must_use = "false means that the frame was too short and is unchanged"]
pub fn insert(buffer: &mut [u8], tpid: EtherType, tci: u16) -> bool {
    if buffer.len() < TAG_LEN + ethernet::HEADER_LEN {
        return false;
    }
    buffer.copy_within(TAG_LEN..TAG_LEN + TPID, 0);
    put16(buffer, TPID, tpid.0);
    put16(buffer, TPID + 2, tci);
    true
}

/// Removes the outermost tag in place and gives its TCI: the untagged frame is then
/// `frame[TAG_LEN..]`. `None` (and nothing written) where the frame has no tag.
#[inline]
pub fn remove(frame: &mut [u8]) -> Option<u16> {
    let header = ethernet::Ethernet::new_checked(&*frame).ok()?;
    if !header.ethertype().is_vlan() {
        return None;
    }
    let tci = Vlan::new_checked(header.payload()).ok()?.tci();
    frame.copy_within(..TPID, TAG_LEN);
    Some(tci)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{string::ToString, vec::Vec};

    const TAGGED: [u8; 24] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xa8, 0x60, 0x64, 0x81, 0x00, 0x00, 0x05, 0x08,
        0x00, 0x45, 0x00,
    ];

    #[test]
    fn walks_two_tags() {
        let expected = Untagged {
            ethertype: EtherType::IPV4,
            offset: 22,
            outer_tci: Some(0x6064),
        };
        assert_eq!(untagged(&TAGGED), Ok(expected));
        let tag = Vlan::new_checked(&TAGGED[14..]).unwrap();
        assert_eq!(tag.to_string(), "vlan 100 priority 3 802.1Q");
    }

    #[test]
    fn refuses_cut_and_endless_tags() {
        assert_eq!(
            untagged(&TAGGED[..17]),
            Err(Malformed::Truncated(Layer::Vlan))
        );
        let endless = [0x81, 0x00].repeat(40);
        assert_eq!(untagged(&endless), Err(Malformed::TooDeep(Layer::Vlan)));
    }

    #[test]
    fn removes_only_what_is_a_tag() {
        let mut frame = TAGGED;
        assert_eq!(remove(&mut frame), Some(0x6064));
        assert_eq!(frame[4..], [&TAGGED[..12], &TAGGED[16..]].concat());
        assert_eq!(remove(&mut frame[4..]), Some(5));
        assert_eq!(remove(&mut frame[8..]), None);
        assert!(!insert(&mut [0; 17], EtherType::VLAN, 1));
    }

    proptest! {
        #[test]
        fn insert_then_remove_is_identity(frame in prop::collection::vec(any::<u8>(), 14..80),
            tci: u16) {
            let mut buffer: Vec<u8> = [&[0; TAG_LEN][..], &frame].concat();
            prop_assert!(insert(&mut buffer, EtherType::VLAN, tci));
            prop_assert_eq!(Vlan::new_checked(&buffer[14..]).unwrap().tci(), tci);
            prop_assert_eq!(remove(&mut buffer), Some(tci));
            prop_assert_eq!(&buffer[TAG_LEN..], &frame[..]);
        }

        #[test]
        fn never_panics(mut bytes: Vec<u8>) {
            let _ = untagged(&bytes);
            let _ = remove(&mut bytes);
        }
    }
}
