//! Unfinished frames through a [`Finisher`], into a port that takes a few frames at a time.

use super::*;
use linerate_core::packet::{Pool, PoolConfig, SlotClass};
use linerate_wire::{ipv4::Ipv4, parse, tcp::Tcp};

/// What a test has to hand.
struct Bench {
    pools: Pools,
    cache: PoolCache,
    finisher: Finisher,
    stats: QueueStats,
    sent: Vec<Vec<u8>>,
}

impl Bench {
    fn new(small_slots: u32) -> Self {
        let small = PoolConfig::new("small", small_slots);
        let large = PoolConfig {
            class: SlotClass::Large,
            ..PoolConfig::new("large", 8)
        };
        let pools = Pools::new(vec![Pool::new(&small).unwrap(), Pool::new(&large).unwrap()]);
        let cache = PoolCache::new(pools.as_slice());
        let finisher = Finisher::new(&pools);
        Self {
            pools,
            cache,
            finisher,
            stats: QueueStats::default(),
            sent: Vec::new(),
        }
    }

    /// Adds a TCP frame with an unfinished checksum; `gso_size` 0 for one that is not to be cut.
    fn add(
        &mut self,
        burst: &mut Burst,
        number: u16,
        payload: usize,
        gso_size: u16,
        tag: Option<u16>,
    ) {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([
            0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame.extend([
            0, 7, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
        ]);
        frame[16..18].copy_from_slice(&(40 + payload as u16).to_be_bytes());
        frame[34..36].copy_from_slice(&number.to_be_bytes());
        frame.extend((0..payload).map(|at| (at / 7) as u8));
        Ipv4::new_checked(&mut frame[14..]).unwrap().fill_checksum();
        let sum = Ipv4::new_checked(&frame[14..]).unwrap().pseudo_sum();
        frame[50..52].copy_from_slice(&sum.to_be_bytes());

        let mut packet = self
            .cache
            .get(self.pools.for_frame(frame.len()).unwrap())
            .unwrap();
        assert!(packet.set_data(&frame));
        let meta = packet.meta_mut();
        meta.offload.insert(Offload::CSUM_PARTIAL);
        (meta.csum_start, meta.csum_offset, meta.gso_size) = (34, 16, gso_size);
        if gso_size > 0 {
            meta.offload.insert(Offload::GSO_TCP4);
        }
        if let Some(tci) = tag {
            meta.offload.insert(Offload::VLAN);
            meta.vlan_tci = tci;
        }
        burst.push(packet).unwrap();
    }

    /// Offers a burst to a port that takes at most `most` frames in a call.
    fn tx(&mut self, burst: &mut Burst, most: usize) -> usize {
        let Self {
            cache,
            finisher,
            stats,
            sent,
            ..
        } = self;
        finisher.tx(burst, cache, stats, |burst, cache| {
            let count = burst.len().min(most);
            sent.extend(
                burst
                    .iter()
                    .take(count)
                    .map(|packet| packet.data().to_vec()),
            );
            cache.free_front(burst, count);
            count
        })
    }

    fn all_home(self) -> bool {
        let Self {
            pools,
            cache,
            finisher,
            ..
        } = self;
        drop((cache, finisher));
        pools
            .iter()
            .all(|pool| pool.stats().free_shared == pool.slots())
    }
}

/// Source port (the frame's number) and sequence number of a frame whose checksum is right.
fn verified(frame: &[u8]) -> (u16, u32) {
    let headers = parse(frame).unwrap();
    let ip = Ipv4::new_checked(&frame[headers.l3..headers.end]).unwrap();
    let tcp = Tcp::new_checked(&frame[headers.l4.unwrap()..headers.end]).unwrap();
    assert!(ip.verify() && tcp.verify(ip.pseudo_sum()));
    (tcp.src_port(), tcp.seq())
}

#[test]
fn order_is_kept_however_little_the_port_takes() {
    for most in [1, 3, 64] {
        let mut bench = Bench::new(512);
        let mut burst = Burst::new();
        bench.add(&mut burst, 0, 100, 0, None);
        bench.add(&mut burst, 1, 60_000, 1000, Some(5)); // 60 segments
        bench.add(&mut burst, 2, 100, 0, Some(6));
        bench.add(&mut burst, 3, 30_000, 1000, None); // 30 segments
        bench.add(&mut burst, 4, 0, 0, None);
        for _ in 0..200 {
            bench.tx(&mut burst, most);
        }
        assert!(burst.is_empty() && bench.finisher.held() == 0);
        let found: Vec<_> = bench.sent.iter().map(|frame| verified(frame)).collect();
        let segments = |number, count| (0..count).map(move |at| (number, at * 1000));
        let expected = [(0, 0)]
            .into_iter()
            .chain(segments(1, 60))
            .chain([(2, 0)])
            .chain(segments(3, 30))
            .chain([(4, 0)]);
        assert!(found.into_iter().eq(expected), "{most} at a time");
        let tags: Vec<_> = bench
            .sent
            .iter()
            .map(|frame| parse(frame).unwrap().outer_tci)
            .collect();
        assert_eq!(
            (tags[0], tags[1], tags[60], tags[61], tags[62]),
            (None, Some(5), Some(5), Some(6), None)
        );
        assert_eq!(
            (
                bench.stats.segmented.read(),
                bench.stats.checksums_completed.read()
            ),
            (2, 3)
        );
        assert!(bench.all_home());
    }
}

#[test]
fn a_port_that_takes_nothing_leaves_the_burst() {
    let mut bench = Bench::new(512);
    let mut burst = Burst::new();
    (0..50).for_each(|number| bench.add(&mut burst, number, 1500, 1000, None));
    let first = bench.tx(&mut burst, 0);
    assert!(first < 50 && burst.len() == 50 - first);
    assert_eq!(bench.tx(&mut burst, 0), 0, "no more than a burst waits");
    let waits = bench.finisher.held();
    assert_eq!(waits, 64);
    drop(burst);
    assert!(bench.all_home());
}

#[test]
fn without_slots_a_frame_is_dropped_whole() {
    let mut bench = Bench::new(20);
    let mut burst = Burst::new();
    bench.add(&mut burst, 0, 30_000, 1000, None);
    assert_eq!(bench.tx(&mut burst, 64), 1);
    assert_eq!(
        (bench.sent.len(), bench.stats.drops(DropReason::NoBuffer)),
        (0, 1)
    );
    assert!(bench.all_home());
}

#[test]
fn what_cannot_be_cut_is_dropped() {
    let mut bench = Bench::new(64);
    let mut burst = Burst::new();
    bench.add(&mut burst, 0, 3000, 1000, None);
    bench.add(&mut burst, 1, 100, 0, None);
    bench.add(&mut burst, 2, 100, 0, None);
    burst.as_packets_mut()[0].data_mut()[23] = 1; // ICMP
    burst.as_packets_mut()[1].meta_mut().csum_start = 5000;
    assert_eq!(bench.tx(&mut burst, 64), 3);
    assert_eq!(
        (bench.sent.len(), bench.stats.drops(DropReason::Malformed)),
        (1, 2)
    );
    assert!(bench.all_home());
}
