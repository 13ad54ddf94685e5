//! The configuration space of a network device (virtio 1.2, 5.1.4), as `GET_CONFIG` reads it and
//! `SET_CONFIG` writes it.

use super::MAX_FRAME_BYTES;
use linerate_wire::ethernet;

/// Bytes that have a meaning: mac, status, max_virtqueue_pairs, mtu, speed, duplex, and three of
/// RSS.
const BYTES: usize = 24;
/// `VHOST_USER_MAX_CONFIG_SIZE`: what is behind the meaning reads as zeros.
const MOST_BYTES: u32 = 256;
const STATUS: usize = 6;
const PAIRS: usize = 8;
pub(crate) const MTU: usize = 10;
const SPEED: usize = 12;
/// In the status: the link is up (VIRTIO_NET_S_LINK_UP).
const LINK_UP: u16 = 1;
/// Offset, size and flags, before the bytes themselves.
pub(crate) const HEAD: usize = 12;
/// In the flags: the values are those of a guest that migrates here
/// (VHOST_SET_CONFIG_TYPE_MIGRATION).
const MIGRATION: u32 = 1;

/// The space, as one front end sees it.
#[derive(Clone, Debug)]
pub(crate) struct Config([u8; BYTES]);

impl Default for Config {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Config {
    pub(crate) fn new(pairs: usize) -> Self {
        let mut config = Self([0; BYTES]);
        config.put(STATUS, LINK_UP);
        config.put(PAIRS, pairs as u16);
        config.put(MTU, (MAX_FRAME_BYTES - ethernet::HEADER_LEN) as u16);
        // Unknown speed and duplex (5.1.4).
        config.0[SPEED..SPEED + 5].fill(0xff);
        config
    }

    fn put(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    /// The MTU that a guest may have (5.1.4.1: 68 at least), if it is one.
    pub(crate) fn set_mtu(&mut self, mtu: u64) -> bool {
        let most = (MAX_FRAME_BYTES - ethernet::HEADER_LEN) as u64;
        let is_one = (68..=most).contains(&mtu);
        if is_one {
            self.put(MTU, mtu as u16);
        }
        is_one
    }

    /// Where a request begins, how many bytes it is about, and its flags; `None` where it is none.
    fn request(payload: &[u8]) -> Option<[u32; 3]> {
        let word = |at: usize| Some(u32::from_le_bytes(*payload.get(at..)?.first_chunk()?));
        let fields @ [offset, size, _] = [word(0)?, word(4)?, word(8)?];
        let whole = offset.checked_add(size)? <= MOST_BYTES && size > 0;
        (whole && payload.len() == HEAD + size as usize).then_some(fields)
    }

    /// The answer to `GET_CONFIG`: an empty payload says that it was no good.
    pub(crate) fn read(&self, payload: &[u8]) -> Vec<u8> {
        let Some([offset, size, _]) = Self::request(payload) else {
            return Vec::new();
        };
        let bytes = (offset..offset + size).map(|at| self.0.get(at as usize).copied());
        let mut answer = payload[..HEAD].to_vec();
        answer.extend(bytes.map(Option::unwrap_or_default));
        answer
    }

    /// `SET_CONFIG`: a driver writes nothing there (5.1.4.2), a migration anything. Whether it was
    /// done.
    pub(crate) fn write(&mut self, payload: &[u8]) -> bool {
        let Some([offset, _, MIGRATION]) = Self::request(payload) else {
            return false;
        };
        let to = self.0.iter_mut().skip(offset as usize);
        to.zip(&payload[HEAD..]).for_each(|(to, from)| *to = *from);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(offset: u32, size: u32, flags: u32, bytes: &[u8]) -> Vec<u8> {
        let mut payload = [offset, size, flags].map(u32::to_le_bytes).concat();
        payload.extend(bytes);
        payload
    }

    #[test]
    fn the_space_is_read_in_parts_and_behind_its_end() {
        let config = Config::new(3);
        let read = |offset, size| config.read(&payload(offset, size, 0, &vec![0; size as usize]));
        let all = read(0, 24);
        assert_eq!(all[..12], payload(0, 24, 0, &[]));
        assert_eq!(
            all[12 + 6..][..6],
            [1, 0, 3, 0, 0x28, 0x23],
            "status, pairs, MTU 9000"
        );
        assert_eq!(read(8, 2)[12..], [3, 0]);
        assert_eq!(read(20, 60)[12..], [0; 60]);
        for (offset, size) in [(0, 0), (200, 57), (u32::MAX, 2)] {
            assert!(config.read(&payload(offset, size, 0, &[0; 2])).is_empty());
        }
        assert!(
            config.read(&payload(0, 24, 0, &[0; 23])).is_empty(),
            "not as long as it says"
        );
        assert!(config.read(&[0; 11]).is_empty());
    }

    #[test]
    fn a_driver_writes_nothing_and_a_migration_anything() {
        let mut config = Config::new(1);
        assert!(!config.write(&payload(10, 2, 0, &[0xdc, 5])));
        assert!(config.write(&payload(10, 2, MIGRATION, &[0xdc, 5])));
        assert!(config.write(&payload(22, 8, MIGRATION, &[7; 8])));
        let read = config.read(&payload(0, 24, 0, &[0; 24]));
        assert_eq!((&read[22..24], &read[34..]), (&[0xdc, 5][..], &[7, 7][..]));
        assert!(!config.write(&payload(10, 3, MIGRATION, &[0; 2])));
    }

    #[test]
    fn an_mtu_is_at_least_68_and_at_most_what_is_sent() {
        let mut config = Config::new(1);
        for (mtu, is_one) in [
            (67, false),
            (68, true),
            (9000, true),
            (9001, false),
            (u64::MAX, false),
        ] {
            assert_eq!(config.set_mtu(mtu), is_one, "{mtu}");
        }
    }
}
