//! TCP Fast Open's option and the server's cookies (RFC 7413).
//!
//! A cookie shows that its client gets packets at the address that it sends from: an 8-byte MAC of
//! the pair of addresses, which needs no state. There are two keys at a time, so that cookies of
//! the old one go on working while clients get those of the new one (RFC 7413 4.1.2). What a client
//! keeps of servers is not here, and neither is how many requests a listener lets wait (5.1).
//!
//! ```
//! use linerate_stack::tcp::{fast_open::{FastOpen, Keys, Verdict}, secret::Secret};
//! use linerate_wire::{flow::FlowKey4, tcp};
//! let keys = Keys::new(Secret::random());
//! let key = FlowKey4::new([198, 51, 100, 7], [192, 0, 2, 1], 40_000, 80, 6);
//! // A client asks for a cookie, and uses it for its next connection.
//! let asked = [34, 2];
//! let request = FastOpen::find(tcp::options(&asked)).expect("an empty cookie");
//! assert_eq!(request.cookie(), None);
//! let answer = request.answer(keys.cookie(&key));
//! let mut option = [0; 18];
//! let len = answer.write(&mut option).expect("there is room");
//! let used = FastOpen::find(tcp::options(&option[..len])).expect("a cookie");
//! assert_eq!(keys.verdict(&key.with_local_port(443), &used), Verdict::Valid);
//! # use linerate_stack::tcp::tuple::Tuple;
//! ```

use linerate_wire::tcp::TcpOption;

use super::secret::Secret;
use super::tuple::Tuple;

/// The option's kind (RFC 7413 4.1.1).
pub const KIND: u8 = 34;
/// The kind of experiments (RFC 6994), and the identifier that Fast Open had as one.
const EXPERIMENT: u8 = 254;
const EXPERIMENT_ID: [u8; 2] = [0xf9, 0x89];

/// Bytes of a cookie that [`Keys`] makes.
const OURS: usize = 8;
/// Bytes of the longest cookie (RFC 7413 4.1.1).
pub const COOKIE_MAX: usize = 16;
/// Bytes of the longest option: the experimental one with the longest cookie.
pub const OPTION_MAX: usize = 4 + COOKIE_MAX;

/// A cookie as the client sees it: 4 to 16 bytes, an even number of them (RFC 7413 4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    len: u8,
    bytes: [u8; COOKIE_MAX],
}

impl Cookie {
    /// A cookie of these bytes, if it can be one.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let is_sound = (4..=COOKIE_MAX).contains(&bytes.len()) && bytes.len().is_multiple_of(2);
        is_sound.then(|| {
            let mut whole = [0; COOKIE_MAX];
            whole[..bytes.len()].copy_from_slice(bytes);
            Self {
                len: bytes.len() as u8,
                bytes: whole,
            }
        })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The option of a SYN or SYN-ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpen {
    cookie: Option<Cookie>,
    is_experimental: bool,
}

impl FastOpen {
    /// The option by which a client asks for a cookie.
    pub const REQUEST: Self = Self {
        cookie: None,
        is_experimental: false,
    };

    /// The option with a cookie: a client's to a server that gave it.
    pub fn with(cookie: Cookie) -> Self {
        Self {
            cookie: Some(cookie),
            is_experimental: false,
        }
    }

    /// The first such option of a list; one with a length that no cookie has is as if it were not
    /// there (RFC 7413 4.1.1).
    pub fn find<'a>(mut options: impl Iterator<Item = TcpOption<'a>>) -> Option<Self> {
        options.find_map(|option| match option {
            TcpOption::Other(KIND, value) => Self::read(value, false),
            TcpOption::Other(EXPERIMENT, value) => {
                Self::read(value.strip_prefix(&EXPERIMENT_ID)?, true)
            }
            _ => None,
        })
    }

    fn read(value: &[u8], is_experimental: bool) -> Option<Self> {
        let cookie = match value {
            [] => None,
            bytes => Some(Cookie::new(bytes)?),
        };
        Some(Self {
            cookie,
            is_experimental,
        })
    }

    /// The cookie; `None` where one is asked for.
    pub fn cookie(&self) -> Option<&Cookie> {
        self.cookie.as_ref()
    }

    /// The server's option that gives `cookie` to who sent this one, of the kind that it knows.
    #[must_use]
    pub fn answer(&self, cookie: Cookie) -> Self {
        Self {
            cookie: Some(cookie),
            ..*self
        }
    }

    /// Its length in bytes, without padding.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        let id = if self.is_experimental { 2 } else { 0 };
        2 + id
            + self
                .cookie
                .as_ref()
                .map_or(0, |cookie| cookie.bytes().len())
    }

    /// Writes the option, without padding; returns its length in bytes, `None` if it does not fit.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let cookie = self.cookie.as_ref().map_or(&[][..], Cookie::bytes);
        let (kind, id) = match self.is_experimental {
            true => (EXPERIMENT, &EXPERIMENT_ID[..]),
            false => (KIND, &[][..]),
        };
        let len = 2 + id.len() + cookie.len();
        let out = out.get_mut(..len)?;
        out[..2].copy_from_slice(&[kind, len as u8]);
        out[2..2 + id.len()].copy_from_slice(id);
        out[2 + id.len()..].copy_from_slice(cookie);
        Some(len)
    }
}

/// What a server makes of an option in a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The cookie is of the current key: the SYN's data may be taken.
    Valid,
    /// The cookie is of the previous key: the data may be taken, and the SYN-ACK gives a new
    /// cookie.
    Old,
    /// It asks for a cookie, or has a wrong one: the SYN-ACK gives one, and acknowledges the SYN
    /// alone (RFC 7413 4.2.2).
    Give,
}

/// A server's keys.
#[derive(Clone, Debug)]
pub struct Keys {
    current: Secret,
    previous: Option<Secret>,
}

impl Keys {
    /// One key. All servers that clients reach by one address need the same (RFC 7413 4.1.2).
    pub fn new(key: Secret) -> Self {
        Self {
            current: key,
            previous: None,
        }
    }

    /// A new key; cookies of the present one are valid until the next change.
    pub fn rotate(&mut self, key: Secret) {
        self.previous = Some(std::mem::replace(&mut self.current, key));
    }

    /// The cookie for a client: the same for all its ports and ours.
    pub fn cookie<const K: usize, T: Tuple<K>>(&self, tuple: &T) -> Cookie {
        let mut bytes = [0; COOKIE_MAX];
        bytes[..OURS].copy_from_slice(&mac(&self.current, tuple));
        Cookie {
            len: OURS as u8,
            bytes,
        }
    }

    /// Whether the client has shown that it is where it says.
    pub fn verdict<const K: usize, T: Tuple<K>>(&self, tuple: &T, option: &FastOpen) -> Verdict {
        let Some(cookie) = option.cookie() else {
            return Verdict::Give;
        };
        let is_of = |key: &Secret| cookie.bytes() == mac(key, tuple);
        match (is_of(&self.current), &self.previous) {
            (true, _) => Verdict::Valid,
            (false, Some(key)) if is_of(key) => Verdict::Old,
            (false, _) => Verdict::Give,
        }
    }
}

/// Of both addresses, as in Linux: a cookie for one of our addresses is none for another.
fn mac<const K: usize, T: Tuple<K>>(key: &Secret, tuple: &T) -> [u8; OURS] {
    let hosts = tuple.without_ports();
    key.hash(hosts.bytes(), &[]).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_wire::flow::{FlowKey4, FlowKey6};
    use linerate_wire::tcp::options;
    use proptest::prelude::*;

    fn key(host: u8, port: u16) -> FlowKey4 {
        FlowKey4::new([198, 51, 100, host], [192, 0, 2, 1], port, 80, 6)
    }

    fn find(bytes: &[u8]) -> Option<FastOpen> {
        FastOpen::find(options(bytes))
    }

    #[test]
    fn rfc_7413_4_1_1_the_option_has_kind_34_and_4_to_16_bytes() {
        let mut bytes = vec![2, 4, 5, 180, 34, 2, 4, 2];
        assert_eq!(find(&bytes), Some(FastOpen::REQUEST));
        for len in 1..=30_u8 {
            bytes = vec![1, 34, 2 + len];
            bytes.extend(1..=len);
            let is_sound = [4, 6, 8, 10, 12, 14, 16].contains(&len);
            let cookie = Cookie::new(&bytes[3..]);
            assert_eq!(cookie.is_some(), is_sound, "{len}");
            assert_eq!(find(&bytes), cookie.map(FastOpen::with), "{len}");
        }
        assert_eq!(find(&[2, 4, 5, 180]), None);
        assert_eq!(find(&[34, 10, 1, 2]), None); // it ends beyond the header
    }

    /// RFC 7413's appendix and RFC 6994: who asks as an experiment is answered as one.
    #[test]
    fn an_experiment_is_answered_as_one() {
        let request = find(&[254, 4, 0xf9, 0x89]).unwrap();
        assert_eq!(request.cookie(), None);
        let mut out = [0; OPTION_MAX];
        let cookie = Cookie::new(&[7; 4]).unwrap();
        assert_eq!(request.answer(cookie).write(&mut out), Some(8));
        assert_eq!(out[..8], [254, 8, 0xf9, 0x89, 7, 7, 7, 7]);
        assert_eq!(find(&out[..8]).unwrap().cookie(), Some(&cookie));
        // Experiments of others.
        assert_eq!(find(&[254, 4, 0xf9, 0x88]), None);
        assert_eq!(find(&[254, 3, 0xf9]), None);
        assert_eq!(find(&[254, 4, 1, 2, 34, 2]), Some(FastOpen::REQUEST));
    }

    #[test]
    fn options_are_written_where_they_fit() {
        let mut out = [0; 18];
        assert_eq!(FastOpen::REQUEST.write(&mut out[..2]), Some(2));
        assert_eq!(out[..2], [34, 2]);
        assert_eq!(FastOpen::REQUEST.write(&mut out[..1]), None);
        let longest = FastOpen::with(Cookie::new(&[9; 16]).unwrap());
        assert_eq!(longest.write(&mut out[..17]), None);
        assert_eq!(longest.write(&mut out), Some(18));
        assert_eq!(find(&out), Some(longest));
    }

    #[test]
    fn rfc_7413_4_1_2_a_cookie_is_an_addresss() {
        let keys = Keys::new(Secret::new(1));
        let option = FastOpen::with(keys.cookie(&key(7, 40_000)));
        assert_eq!(option.cookie().unwrap().bytes().len(), 8);
        assert_eq!(keys.verdict(&key(7, 1), &option), Verdict::Valid);
        for host in (0..=255).filter(|&host| host != 7) {
            assert_eq!(keys.verdict(&key(host, 40_000), &option), Verdict::Give);
        }
        let v6 = |host| FlowKey6::new([host; 16], [2; 16], 40_000, 80, 6);
        let option = FastOpen::with(keys.cookie(&v6(7)));
        assert_eq!(keys.verdict(&v6(7), &option), Verdict::Valid);
        assert_eq!(keys.verdict(&v6(8), &option), Verdict::Give);
    }

    #[test]
    fn rfc_7413_4_1_2_keys_rotate() {
        let mut keys = Keys::new(Secret::new(1));
        let first = FastOpen::with(keys.cookie(&key(7, 1)));
        keys.rotate(Secret::new(2));
        assert_eq!(keys.verdict(&key(7, 1), &first), Verdict::Old);
        let second = first.answer(keys.cookie(&key(7, 1)));
        assert_eq!(keys.verdict(&key(7, 1), &second), Verdict::Valid);
        keys.rotate(Secret::new(3));
        assert_eq!(keys.verdict(&key(7, 1), &first), Verdict::Give);
        assert_eq!(keys.verdict(&key(7, 1), &second), Verdict::Old);
    }

    #[test]
    fn rfc_7413_4_2_2_a_wrong_cookie_is_as_good_as_none() {
        let keys = Keys::new(Secret::new(1));
        let cookie = keys.cookie(&key(7, 1));
        let verdict = |bytes: &[u8]| {
            let option = FastOpen::with(Cookie::new(bytes).unwrap());
            keys.verdict(&key(7, 1), &option)
        };
        assert_eq!(keys.verdict(&key(7, 1), &FastOpen::REQUEST), Verdict::Give);
        assert_eq!(verdict(&cookie.bytes()[..4]), Verdict::Give);
        assert_eq!(verdict(&[cookie.bytes(), &[0; 8]].concat()), Verdict::Give);
        for bit in 0..64 {
            let mut bytes = cookie.bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verdict(&bytes), Verdict::Give);
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes: Vec<u8>, room in 0..24_usize) {
            if let Some(option) = find(&bytes) {
                let mut out = vec![0; room];
                if let Some(len) = option.write(&mut out) {
                    prop_assert_eq!(find(&out[..len]), Some(option));
                }
            }
        }
    }
}
