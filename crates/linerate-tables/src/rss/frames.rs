//! The hash of a NIC over whole frames: what a port that plays one asks.

use super::{Fields, Model, PortHash, Profile, Reta};
use crate::TableError;
use crate::parse::{Mask, Parsed, Parser};
use linerate_core::env::Isa;
use linerate_core::packet::Burst;
use linerate_core::port::RssHash;
use linerate_wire::protocol::SCTP;
use std::fmt;

/// A NIC's hash of frames, a burst at a time. It hashes what [`Model::hash`] predicts: IP packets
/// whose lengths are right, fragments by addresses. Not hashed is what depends on more than the
/// 4-tuple, such as SCTP of i40e. Memory: 4.5 KiB, and the model's.
///
/// ```
/// use linerate_core::port::RssHash;
/// use linerate_tables::rss::FrameHash;
/// let nic = FrameHash::make("ixgbe", None)?;
/// assert_eq!((nic.profile(), nic.key()[0], nic.reta_entries()), ("ixgbe", 0x6d, 128));
/// assert!(FrameHash::make("e100", None).unwrap_err().contains("ixgbe"));
/// # Ok::<(), String>(())
/// ```
pub struct FrameHash {
    model: Model,
    /// The key as it was given: some devices turn it round.
    key: Box<[u8]>,
    parser: Parser,
    parsed: Box<Parsed>,
}

impl FrameHash {
    /// The hash of this NIC; its table does not matter here.
    pub fn new(model: Model) -> Self {
        let mut key: Box<[u8]> = model.toeplitz().key().into();
        if model.profile().reversed_key {
            key.reverse();
        }
        Self {
            model,
            key,
            parser: Parser::new(Isa::detect()),
            parsed: Box::default(),
        }
    }

    /// That of a NIC family, for drivers: a
    /// [`MakeRssHash`](linerate_core::port::MakeRssHash).
    ///
    /// # Errors
    /// Where the family is unknown, or the key not of its length; the text says what would be
    /// right.
    pub fn make(profile: &str, key: Option<&[u8]>) -> Result<Box<dyn RssHash>, String> {
        let model = || {
            let profile = Profile::find(profile)?;
            Model::new(profile, key, Reta::round_robin(profile.reta_entries, 1)?)
        };
        let model = model().map_err(|error: TableError| error.to_string())?;
        Ok(Box::new(Self::new(model)))
    }

    /// Which packets the NIC hashes by addresses and ports, and which by addresses alone.
    fn classes(&self) -> (Mask, Mask) {
        let (class, profile) = (&self.parsed.class, self.model.profile());
        let ip = class.v4 | class.v6;
        let (tcp, udp) = (class.tcp, class.udp);
        let sctp = self.sctp(ip & !tcp & !udp & !class.icmp);
        let of = |how: PortHash| {
            let each = [(profile.tcp, tcp), (profile.udp, udp), (profile.sctp, sctp)];
            each.iter()
                .filter(|(its, _)| *its == how)
                .fold(0, |all, (_, mask)| all | mask)
        };
        let unknown = of(PortHash::Unpredictable) & !class.fragment;
        let ports = of(PortHash::Hashed) & !class.fragment & ip;
        (ports, ip & !ports & !unknown)
    }

    /// Those that are SCTP, of packets of other protocols.
    fn sctp(&self, others: Mask) -> Mask {
        let mut found = 0;
        let mut rest = others;
        while rest != 0 {
            let index = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let protocol = match self.parsed.class.v4 >> index & 1 {
                1 => self.parsed.keys4[index].protocol(),
                _ => self.parsed.keys6[index].protocol(),
            };
            found |= Mask::from(protocol == SCTP) << index;
        }
        found
    }
}

impl RssHash for FrameHash {
    fn hash(&mut self, burst: &mut Burst, hashes: &mut [u32; Burst::CAPACITY]) -> u64 {
        let count = burst.len();
        self.parser.parse(burst, &mut self.parsed);
        let (ports, addresses) = self.classes();
        let (v4, v6) = (self.parsed.class.v4, self.parsed.class.v6);
        let (keys4, keys6) = (&self.parsed.keys4[..count], &self.parsed.keys6[..count]);
        let toeplitz = self.model.toeplitz();
        let mut some = [0; Burst::CAPACITY];
        for (fields, wanted) in [
            (Fields::AddressesAndPorts, ports),
            (Fields::Addresses, addresses),
        ] {
            // Keys are hashed where they lie, at all positions: most bursts are of one kind.
            if wanted & v4 != 0 {
                toeplitz.flows4(fields, keys4, &mut some[..count]);
                pick(wanted & v4, &some, hashes);
            }
            if wanted & v6 != 0 {
                toeplitz.flows6(fields, keys6, &mut some[..count]);
                pick(wanted & v6, &some, hashes);
            }
        }
        ports | addresses
    }

    fn another(&self) -> Box<dyn RssHash> {
        Box::new(Self::new(self.model.clone()))
    }

    fn profile(&self) -> &str {
        self.model.profile().name
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn reta_entries(&self) -> usize {
        self.model.reta().slots().len()
    }
}

/// Moves the hashes at these positions.
fn pick(wanted: Mask, from: &[u32; Burst::CAPACITY], to: &mut [u32; Burst::CAPACITY]) {
    let mut rest = wanted;
    while rest != 0 {
        let index = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        to[index] = from[index];
    }
}

impl fmt::Debug for FrameHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrameHash").field(&self.profile()).finish()
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;
    use crate::parse::tests::frame;
    use crate::rss::{Flow, PROFILES};
    use linerate_core::packet::{Pool, PoolCache, PoolConfig};
    use linerate_testkit::Random;
    use linerate_wire::flow::FlowKey;

    /// What the model says of a frame that the wire parser takes apart.
    fn expected(model: &Model, frame: &[u8]) -> Option<u32> {
        let headers = linerate_wire::parse(frame).ok()?;
        let flow = match headers.flow_key(frame)? {
            FlowKey::V4(key) => Flow::V4(key),
            FlowKey::V6(key) => Flow::V6(key),
        };
        model.hash(&flow, headers.is_fragment)
    }

    /// 200 bursts of frames of all kinds, whole, damaged and cut, by every profile.
    #[test]
    fn bursts_are_hashed_as_the_model_says_of_each_frame() {
        let pool = Pool::new(&PoolConfig::new("rss", 256)).unwrap();
        let mut cache = PoolCache::new(&[pool]);
        for (seed, profile) in (1..).zip(PROFILES) {
            let key: Vec<u8> = (0..profile.key_bytes as u8).map(|at| at ^ 0x5a).collect();
            let reta = Reta::round_robin(profile.reta_entries, 1).unwrap();
            let model = Model::new(profile, Some(&key), reta).unwrap();
            let mut nic = FrameHash::make(profile.name, Some(&key)).unwrap();
            assert_eq!(nic.key(), key);
            let mut random = Random::new(seed);
            let mut hashed = 0;
            for _ in 0..200 {
                let mut burst = Burst::new();
                for _ in 0..random.below(Burst::CAPACITY + 1) {
                    let packet = cache.copy_of(&frame(&mut random).0).unwrap();
                    burst.push(packet).unwrap();
                }
                let mut hashes = [0; Burst::CAPACITY];
                let is_hashed = nic.hash(&mut burst, &mut hashes);
                for (at, packet) in burst.iter().enumerate() {
                    let found = (is_hashed >> at & 1 != 0).then_some(hashes[at]);
                    let expected = expected(&model, packet.data());
                    assert_eq!(found, expected, "{}, seed {seed}", profile.name);
                }
                assert_eq!(is_hashed & !burst.mask(), 0);
                hashed += is_hashed.count_ones();
                cache.free(&mut burst);
            }
            assert!(hashed > 3000, "{} hashes next to nothing", profile.name);
        }
    }
}
