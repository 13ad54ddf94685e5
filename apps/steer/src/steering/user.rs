//! The lcore of a user: all of a user's connections meet there, whatever their 4-tuples.
//!
//! An application names an [`Extractor`], which finds the user in the first bytes of a connection.
//! `core(key) = owners[hash(key)]`, the same on all lcores. Where a connection carries messages of
//! many users, it stays, and the messages go to their cores:
//! [`Steering::send_parcel`](super::Steering::send_parcel).

use linerate_dispatch::{Hash, Owners};

use super::plan::Member;

/// Whom state is about: an IMSI, a session's number, or a hash of what is longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u64);

/// Finds the user in the first bytes of a connection; `None` while there are too few, or if they
/// name none.
pub type Extractor = fn(&[u8]) -> Option<Key>;

/// Which lcore each user is at.
#[derive(Clone, Debug)]
pub struct Cores {
    hash: Hash,
    owners: Owners,
}

impl Cores {
    /// By a hash that `seed` keys, which is the same on all lcores and known to nobody outside.
    pub fn new(seed: u64, owners: Owners) -> Self {
        let hash = Hash::new(seed);
        Self { hash, owners }
    }

    /// The lcore of a user.
    #[inline]
    pub fn core(&self, key: Key) -> Member {
        self.owners.of(self.hash.number(key.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user in decimal digits, as an IMSI, up to a space.
    fn imsi(bytes: &[u8]) -> Option<Key> {
        let end = bytes.iter().position(|&byte| byte == b' ')?;
        let digits = std::str::from_utf8(&bytes[..end]).ok()?;
        digits.parse().ok().map(Key)
    }

    #[test]
    fn users_are_spread_and_their_connections_meet() {
        let extract: Extractor = imsi;
        assert_eq!(extract(b"26201"), None, "more is to come");
        let cores = Cores::new(7, Owners::dealt(4));
        let mut counts = [0; 4];
        for user in 0..10_000_u64 {
            let message = format!("{} attach", 262_010_000_000_000 + user);
            let key = extract(message.as_bytes()).unwrap();
            assert_eq!(cores.core(key), cores.clone().core(key));
            counts[usize::from(cores.core(key))] += 1;
        }
        assert!(
            counts.iter().all(|count| (2300..2700).contains(count)),
            "{counts:?}"
        );
    }
}
