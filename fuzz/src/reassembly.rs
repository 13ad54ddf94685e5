//! IP packets, each behind two bytes of length: put together, and what comes out cut again.

use std::cell::RefCell;

use linerate_core::mem::{PageKind, PagePolicy};
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_stack::fragment::Cut;
use linerate_stack::reassembly::{Config, Held, Outcome, Reassembler};
use linerate_tables::exact::Seed;
use linerate_wire::{ipv4::Ipv4, ipv6::Ipv6};

thread_local! {
    /// Made once: mapping pools for each input would take nearly all the time.
    static FIXTURE: RefCell<Fixture> = RefCell::new(Fixture::new());
}

pub(crate) fn check(input: &[u8]) {
    FIXTURE.with_borrow_mut(|fixture| fixture.check(input));
}

struct Fixture {
    pools: Pools,
    cache: PoolCache,
    reassembler: Reassembler,
}

impl Fixture {
    fn new() -> Self {
        let pages = PagePolicy::Only(PageKind::Base4K);
        let small = PoolConfig {
            pages,
            ..PoolConfig::new("small", 64)
        };
        let large = PoolConfig {
            pages,
            class: SlotClass::Large,
            ..PoolConfig::new("large", 8)
        };
        let pool = |config: &PoolConfig| Pool::new(config).expect("memory for a few slots");
        let pools = Pools::new(vec![pool(&small), pool(&large)]);
        let config = Config {
            max_datagrams: 16,
            max_per_source: 4,
            max_bytes: 1 << 18,
            seed: Seed(1),
            ..Config::default()
        };
        Self {
            cache: PoolCache::new(pools.as_slice()),
            pools,
            reassembler: Reassembler::new(&config).expect("memory for 16 datagrams"),
        }
    }

    fn check(&mut self, mut input: &[u8]) {
        let mut now_ns = 0;
        while let Some((len, rest)) = input.split_first_chunk() {
            let len = usize::from(u16::from_be_bytes(*len))
                .min(rest.len())
                .min(2000);
            let (bytes, rest) = rest.split_at(len);
            input = rest;
            now_ns += 5_000_000_000;
            let mut packet = self.packet();
            assert!(packet.set_data(bytes));
            match self.reassembler.push(packet, 0, 0, now_ns, &mut self.cache) {
                Outcome::Held => {}
                Outcome::Dropped(_, packet) => self.cache.free_one(packet),
                Outcome::Whole(packet) => {
                    assert_ne!(is_fragment(packet.data()), Some(true));
                    self.cut(&packet);
                    self.cache.free_one(packet);
                }
            }
            self.expire(now_ns);
            self.books();
        }
        self.reassembler.clear(&mut self.cache);
        assert_eq!(self.reassembler.held(), Held::default());
        self.books();
    }

    fn packet(&mut self) -> Packet {
        let packet = self.cache.get(self.pools.primary());
        packet.expect("16 datagrams leave some of 64 slots")
    }

    fn expire(&mut self, now_ns: u64) {
        let mut first = Burst::new();
        self.reassembler
            .expire(now_ns, 16, &mut self.cache, &mut first);
        for packet in first.iter() {
            assert_ne!(is_fragment(packet.data()), Some(false), "as it came");
        }
        self.cache.free(&mut first);
    }

    /// Fragments of a packet are no longer than the MTU, and carry all of it.
    fn cut(&mut self, packet: &Packet) {
        let (mtu, mut bytes) = (300, 0);
        let cut = match packet.data().first().map(|first| first >> 4) {
            Some(4) => Cut::ipv4(packet, 0, mtu),
            _ => Cut::ipv6(packet, 0, mtu, 1),
        };
        let Ok(mut cut) = cut else {
            return;
        };
        while !cut.is_done() {
            let mut burst = Burst::with_room(8);
            assert!(cut.fill(&mut self.cache, &mut burst));
            assert!(burst.iter().all(|fragment| fragment.len() <= mtu));
            bytes += burst.bytes();
            self.cache.free(&mut burst);
        }
        assert!(bytes >= total_len(packet.data()) as u64);
    }

    /// Every slot and every fragment is somewhere.
    fn books(&self) {
        let (held, stats) = (self.reassembler.held(), self.reassembler.stats());
        let away = |pool: &Pool| {
            let free = pool.stats().free_shared as usize + self.cache.held(pool);
            pool.slots() as usize - free
        };
        assert_eq!(held.datagrams, self.pools.iter().map(away).sum::<usize>());
        assert!(held.datagrams <= 16 && held.bytes <= 1 << 18);
        let dropped: u64 = stats.dropped.iter().sum();
        assert_eq!(
            stats.fragments,
            stats.reassembled + dropped + held.fragments
        );
    }
}

/// `None` where there are more headers than anybody walks.
fn is_fragment(packet: &[u8]) -> Option<bool> {
    match Ipv4::new_checked(packet) {
        Ok(ip) => Some(ip.is_fragment()),
        Err(_) => {
            let ip = Ipv6::new_checked(packet).expect("IPv4 or IPv6");
            ip.upper_layer().ok().map(|upper| upper.is_fragment)
        }
    }
}

fn total_len(packet: &[u8]) -> usize {
    match Ipv4::new_checked(packet) {
        Ok(ip) => ip.total_len(),
        Err(_) => Ipv6::new_checked(packet).expect("IPv4 or IPv6").total_len(),
    }
}
