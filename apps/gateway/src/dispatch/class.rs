//! By which of its ends a packet is dispatched.
//!
//! | packet | bucket | why |
//! |---|---|---|
//! | to a pool's address | of its destination port | the port says who made the mapping |
//! | to a service's address | of its source | the remote end is in both directions |
//! | from a server of a service, to the outside | of its destination | the same end |
//! | from inside, to the outside | of its source address | all flows of a host meet |
//! | any other | of the flow, both directions alike | nothing is translated |
//!
//! What an address is stands in two small routing tables: the longest prefix counts, so a server
//! with an address inside is a server. ICMP errors are dispatched by the packet that they quote,
//! reversed: it has to be parsed, so the caller puts its flow into the burst's keys.

use linerate_core::packet::Burst;
use linerate_tables::TableError;
use linerate_tables::lpm::{Lpm4, Lpm4Config, Lpm6, Lpm6Config, Prefix4, Prefix6};
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::{FlowKey4, FlowKey6};

use super::bucket::{Bucket, Hash, of_port};

/// What an address is to dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Marks {
    /// A host whose source address is translated on the way out.
    Inside = 1,
    /// An address of a pool, whose ports say their bucket.
    Pool = 2,
    /// An address of a service: destinations are translated.
    Service = 3,
    /// A server behind a service.
    Server = 4,
}

/// What is known of a network's place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// An IPv4 network.
    V4(Prefix4, Marks),
    /// An IPv6 network.
    V6(Prefix6, Marks),
}

/// Says the bucket of each packet of a burst.
pub struct Classes {
    hash: Hash,
    /// Absent where nothing is translated: then all packets go by their flow.
    tables: Option<Box<(Lpm4, Lpm6)>>,
}

const INSIDE: u32 = Marks::Inside as u32;
const POOL: u32 = Marks::Pool as u32;
const SERVICE: u32 = Marks::Service as u32;
const SERVER: u32 = Marks::Server as u32;

impl Classes {
    /// Dispatch for these networks; no VRFs: addresses mean the same in all.
    ///
    /// # Errors
    /// There is no memory for the tables.
    pub fn new(hash: Hash, marked: &[Marked]) -> Result<Self, TableError> {
        if marked.is_empty() {
            return Ok(Self { hash, tables: None });
        }
        let mut tables = Box::new((
            Lpm4::new(&Lpm4Config::default())?,
            Lpm6::new(&Lpm6Config::default())?,
        ));
        for one in marked {
            match *one {
                Marked::V4(prefix, mark) => tables.0.insert(0, prefix, mark as u32)?,
                Marked::V6(prefix, mark) => tables.1.insert(0, prefix, mark as u32)?,
            };
        }
        let tables = Some(tables);
        Ok(Self { hash, tables })
    }

    /// Writes the bucket of each packet at the positions of `v4` and `v6` of a parsed burst.
    #[inline]
    pub fn buckets(&self, parsed: &Parsed, buckets: &mut [Bucket; Burst::CAPACITY]) {
        let class = &parsed.class;
        if class.v4 != 0 {
            self.buckets4(parsed, class.v4, buckets);
        }
        if class.v6 != 0 {
            self.buckets6(parsed, class.v6, buckets);
        }
    }

    #[inline(always)]
    fn buckets4(&self, parsed: &Parsed, v4: Mask, buckets: &mut [Bucket; Burst::CAPACITY]) {
        let count = (Mask::BITS - v4.leading_zeros()) as usize;
        let keys = &parsed.keys4[..count];
        let Some((table, _)) = self.tables.as_deref() else {
            for (index, key) in keys.iter().enumerate() {
                // Those that are not IPv4 get a number that IPv6 writes over.
                buckets[index] = self.hash.flow4(key);
            }
            return;
        };
        let (mut from, mut to) = ([0; Burst::CAPACITY], [0; Burst::CAPACITY]);
        let fib = table.fib();
        fib.lookup_bulk(0, &parsed.src4[..count], &mut from[..count]);
        fib.lookup_bulk(0, &parsed.dst4[..count], &mut to[..count]);
        for (index, key) in keys.iter().enumerate() {
            buckets[index] = self.of4(from[index], to[index], key);
        }
    }

    #[cold]
    fn buckets6(&self, parsed: &Parsed, mut v6: Mask, buckets: &mut [Bucket; Burst::CAPACITY]) {
        while v6 != 0 {
            let index = v6.trailing_zeros() as usize;
            v6 &= v6 - 1;
            buckets[index] = self.one6(&parsed.keys6[index]);
        }
    }

    /// The bucket of one IPv4 packet.
    pub fn one4(&self, key: &FlowKey4) -> Bucket {
        let Some((table, _)) = self.tables.as_deref() else {
            return self.hash.flow4(key);
        };
        let mark = |address: std::net::Ipv4Addr| {
            let mark = table.fib().lookup(0, address.to_bits());
            mark.unwrap_or(0)
        };
        self.of4(mark(key.src()), mark(key.dst()), key)
    }

    /// The bucket of one IPv6 packet.
    pub fn one6(&self, key: &FlowKey6) -> Bucket {
        let Some((_, table)) = self.tables.as_deref() else {
            return self.hash.flow6(key);
        };
        let (src, dst) = (key.src().octets(), key.dst().octets());
        let mark = |address| table.fib().lookup(0, address).unwrap_or(0);
        match (mark(src), mark(dst)) {
            (_, POOL) => of_port(key.dst_port()),
            (_, SERVICE) => self.hash.end6(&src, key.src_port()),
            (SERVER, INSIDE | SERVER) => self.hash.flow6(key),
            (SERVER, _) => self.hash.end6(&dst, key.dst_port()),
            (INSIDE, INSIDE | SERVER) => self.hash.flow6(key),
            (INSIDE, _) => self.hash.host6(&src),
            _ => self.hash.flow6(key),
        }
    }

    #[inline(always)]
    fn of4(&self, from: u32, to: u32, key: &FlowKey4) -> Bucket {
        let hash = &self.hash;
        match (from, to) {
            (_, POOL) => of_port(key.dst_port()),
            (_, SERVICE) => hash.end4(key.src().to_bits(), key.src_port()),
            // Among themselves nothing is translated.
            (SERVER, INSIDE | SERVER) => hash.flow4(key),
            (SERVER, _) => hash.end4(key.dst().to_bits(), key.dst_port()),
            (INSIDE, INSIDE | SERVER) => hash.flow4(key),
            (INSIDE, _) => hash.host4(key.src().to_bits()),
            _ => hash.flow4(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_testkit::Random;

    fn marked() -> Vec<Marked> {
        let v4 = |text: &str, mark| Marked::V4(text.parse().unwrap(), mark);
        let v6 = |text: &str, mark| Marked::V6(text.parse().unwrap(), mark);
        vec![
            v4("10.0.0.0/8", Marks::Inside),
            v4("10.9.0.0/24", Marks::Server),
            v4("192.0.2.1/32", Marks::Pool),
            v4("192.0.2.80/32", Marks::Service),
            v6("2001:db8:1::/48", Marks::Inside),
            v6("2001:db8:1:9::/64", Marks::Server),
            v6("2001:db8:2::1/128", Marks::Pool),
            v6("2001:db8:2::80/128", Marks::Service),
        ]
    }

    fn key(src: &str, dst: &str) -> FlowKey4 {
        let end = |text: &str| {
            let end: std::net::SocketAddrV4 = text.parse().unwrap();
            (end.ip().octets(), end.port())
        };
        let (src, dst) = (end(src), end(dst));
        FlowKey4::new(src.0, dst.0, src.1, dst.1, 6)
    }

    fn key6(src: &str, dst: &str) -> FlowKey6 {
        let end = |text: &str| {
            let end: std::net::SocketAddrV6 = text.parse().unwrap();
            (end.ip().octets(), end.port())
        };
        let (src, dst) = (end(src), end(dst));
        FlowKey6::new(src.0, dst.0, src.1, dst.1, 6)
    }

    /// Source translation takes a port of the bucket that the host's address says; the answer goes
    /// by that port.
    #[test]
    fn a_host_and_the_answers_to_its_ports_meet() {
        let classes = Classes::new(Hash::new(9), &marked()).unwrap();
        let of_host = classes.one4(&key("10.1.2.3:4000", "198.51.100.7:443"));
        assert_eq!(of_host, classes.one4(&key("10.1.2.3:99", "203.0.113.1:53")));
        let port = 1024 + 2 * u16::from(of_host);
        let answer = format!("192.0.2.1:{port}");
        assert_eq!(of_host, classes.one4(&key("198.51.100.7:443", &answer)));

        let of_host = classes.one6(&key6("[2001:db8:1:2::3]:4000", "[2001:db8:f::7]:443"));
        let temporary = key6("[2001:db8:1:2::beef]:5", "[2001:db8:e::1]:53");
        assert_eq!(of_host, classes.one6(&temporary));
    }

    #[test]
    fn a_services_client_and_the_servers_answer_meet() {
        let classes = Classes::new(Hash::new(9), &marked()).unwrap();
        for port in 1..1000 {
            let client = format!("198.51.100.7:{port}");
            let asks = classes.one4(&key(&client, "192.0.2.80:443"));
            assert_eq!(asks, classes.one4(&key("10.9.0.5:8443", &client)));
            let client = format!("[2001:db8:f::7]:{port}");
            let asks = classes.one6(&key6(&client, "[2001:db8:2::80]:443"));
            assert_eq!(asks, classes.one6(&key6("[2001:db8:1:9::5]:8443", &client)));
        }
    }

    /// Between two hosts inside, a host and a server, and two hosts outside.
    #[test]
    fn what_is_not_translated_meets_in_both_directions() {
        let classes = Classes::new(Hash::new(9), &marked()).unwrap();
        let plain = Classes::new(Hash::new(9), &[]).unwrap();
        let mut random = Random::new(2);
        for _ in 0..10_000 {
            let host = |random: &mut Random| match random.below(3) {
                0 => [10, 1, random.below(256) as u8, 1],
                1 => [10, 9, 0, random.below(256) as u8],
                _ => [198, 51, 100, random.below(256) as u8],
            };
            let (src, dst) = (host(&mut random), host(&mut random));
            let (src_port, dst_port) = (random.below(65_536) as u16, random.below(65_536) as u16);
            let key = FlowKey4::new(src, dst, src_port, dst_port, 17);
            assert_eq!(plain.one4(&key), plain.one4(&key.reversed()));
            if (src[0] == 10) == (dst[0] == 10) {
                assert_eq!(classes.one4(&key), classes.one4(&key.reversed()));
            }
        }
    }

    #[test]
    fn a_burst_gets_what_its_packets_get_one_by_one() {
        let mut random = Random::new(4);
        for marked in [vec![], marked()] {
            let classes = Classes::new(Hash::new(11), &marked).unwrap();
            let mut parsed = Parsed::new();
            let mut buckets = [0; Burst::CAPACITY];
            for round in 0..1000 {
                parsed.class.v4 = random.bits();
                parsed.class.v6 = !parsed.class.v4 & random.bits();
                for index in 0..Burst::CAPACITY {
                    let any = [
                        [10, 1, 2, 3],
                        [10, 9, 0, 1],
                        [192, 0, 2, 1],
                        [192, 0, 2, 80],
                        [8; 4],
                    ];
                    let (src, dst) = (random.of(&any), random.of(&any));
                    let ports = (random.below(65_536) as u16, round);
                    parsed.keys4[index] = FlowKey4::new(src, dst, ports.0, ports.1, 6);
                    parsed.src4[index] = u32::from_be_bytes(src);
                    parsed.dst4[index] = u32::from_be_bytes(dst);
                    let any = [
                        "2001:db8:1::5",
                        "2001:db8:1:9::5",
                        "2001:db8:2::1",
                        "2001:db8:2::80",
                    ];
                    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
                    let (src, dst) = (address(random.of(&any)), address(random.of(&any)));
                    parsed.keys6[index] = FlowKey6::new(src, dst, ports.0, ports.1, 6);
                }
                classes.buckets(&parsed, &mut buckets);
                for (index, &bucket) in buckets.iter().enumerate() {
                    if parsed.class.v4 >> index & 1 != 0 {
                        assert_eq!(bucket, classes.one4(&parsed.keys4[index]));
                    } else if parsed.class.v6 >> index & 1 != 0 {
                        assert_eq!(bucket, classes.one6(&parsed.keys6[index]));
                    }
                }
            }
        }
    }
}
