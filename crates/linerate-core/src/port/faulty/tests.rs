//! The wire in virtual time: every test turns the clock itself.
#![allow(clippy::unwrap_used)]

use super::line::{FaultCounts, Line};
use super::*;
use crate::mem::{PageKind, PagePolicy};
use crate::packet::{Packet, Pool, PoolConfig};
use crate::random::Random;
use linerate_wire::ethernet::{self, MacAddr};
use linerate_wire::ipv4::{self, Ipv4};
use linerate_wire::ipv6::{self, Ipv6};
use linerate_wire::{EtherType, protocol, vlan};
use std::net::{Ipv4Addr, Ipv6Addr};

const MS: u64 = 1_000_000;

fn pools(slots: u32) -> Pools {
    let pages = PagePolicy::Only(PageKind::Base4K);
    let config = PoolConfig {
        pages,
        ..PoolConfig::new("wire", slots)
    };
    Pools::new(vec![Pool::new(&config).unwrap()])
}

/// A line, and what it takes to use it.
struct Rig {
    line: Line,
    counts: Arc<FaultCounts>,
    stats: Arc<QueueStats>,
    cache: PoolCache,
    pools: Pools,
}

impl Rig {
    fn new(faults: &str) -> Self {
        let faults: Faults = faults.parse().unwrap();
        let pools = pools(65_536);
        let (stats, counts) = (QueueStats::new(), Arc::<FaultCounts>::default());
        let stream = (faults.seed, 0);
        Self {
            line: Line::new(&faults.tx, stream, &pools, stats.clone(), counts.clone()),
            counts,
            stats,
            cache: PoolCache::new(pools.as_slice()),
            pools,
        }
    }

    /// A packet of these bytes comes in.
    fn enter_frame(&mut self, frame: &[u8], now_ns: u64) {
        let mut packet = self.cache.get(self.pools.primary()).unwrap();
        assert!(packet.set_data(frame));
        self.line.enter(packet, now_ns, &mut self.cache);
    }

    /// A packet of so many bytes that carries a number.
    fn enter(&mut self, number: u64, bytes: usize, now_ns: u64) {
        let mut frame = vec![0; bytes];
        frame[20..28].copy_from_slice(&number.to_be_bytes());
        self.enter_frame(&frame, now_ns);
    }

    /// All that leaves from now on, with the time at which it does.
    fn drain(&mut self) -> Vec<(u64, Packet)> {
        let mut left = Vec::new();
        while let Some(due_ns) = self.line.next_due_ns() {
            self.line.stop_waiting(due_ns);
            left.extend(self.line.leave(due_ns).map(|packet| (due_ns, packet)));
        }
        left
    }

    /// The same, by number.
    fn numbers(&mut self) -> Vec<(u64, u64)> {
        let left = self.drain().into_iter();
        left.map(|(at, packet)| {
            let number = packet.data()[20..28].try_into().unwrap();
            (at, u64::from_be_bytes(number))
        })
        .collect()
    }

    fn count(&self, kind: &str) -> u64 {
        let all = FaultCounts::sum(std::slice::from_ref(&self.counts));
        all.iter()
            .find(|(name, _)| *name == kind)
            .map_or(0, |(_, count)| *count)
    }

    fn dropped(&self) -> u64 {
        self.stats.drops(crate::port::DropReason::Injected)
    }
}

#[test]
fn a_link_sends_one_packet_after_the_other() {
    // 1250 bytes are 100 us at 100 Mb/s.
    let mut rig = Rig::new("rate:100M+delay:20ms");
    for number in 0..500 {
        rig.enter(number, 1250, 7);
    }
    let expected: Vec<(u64, u64)> = (0..500)
        .map(|number| (7 + (number + 1) * 100_000 + 20 * MS, number))
        .collect();
    assert_eq!(rig.numbers(), expected);
    // An idle link begins at once.
    rig.enter(500, 1250, 900 * MS);
    assert_eq!(rig.numbers(), [(920 * MS + 100_000, 500)]);
}

#[test]
fn no_rate_is_rounded() {
    // 61 bytes at 7 Mb/s take 69,714.2857... ns; 70,000 of them exactly 4.88 s.
    let mut rig = Rig::new("rate:7M+queue:100000");
    let mut last = 0;
    for number in 0..70_000_u64 {
        rig.enter(number, 61, number * 69_714);
        let left = rig.line.next_due_ns().unwrap();
        if let Some(packet) = rig.line.leave(left) {
            rig.cache.free_one(packet);
        }
        last = left;
    }
    assert_eq!(last, 4_880 * MS);
}

#[test]
fn what_finds_no_room_before_the_link_is_dropped_and_counted() {
    for (queue, sent) in [
        ("10", 11),
        ("10p", 11),
        ("12500B", 11),
        ("13kB", 11),
        ("1p", 2),
    ] {
        let mut rig = Rig::new(&format!("rate:100M+queue:{queue}"));
        for number in 0..30 {
            rig.enter(number, 1250, 0);
        }
        // The one that is being sent does not wait.
        assert_eq!(rig.count("queue"), 30 - sent, "{queue}");
        assert_eq!(rig.dropped(), 30 - sent);
        assert_eq!(rig.numbers().len() as u64, sent);
        // When the link is free again there is room again.
        rig.enter(99, 1250, 10 * MS);
        assert_eq!(rig.numbers(), [(10 * MS + 100_000, 99)]);
    }
}

#[test]
fn a_line_holds_its_bandwidth_delay_product_in_shortest_frames() {
    let mut rig = Rig::new("rate:100M+delay:20ms+queue:500kB");
    let (mut now, mut came, mut left) = (0, 0, 0);
    // Three times the rate for 200 ms: the queue overflows, and the line never says it is full.
    while now < 200 * MS {
        for _ in 0..3 {
            assert!(rig.line.room() >= Burst::CAPACITY);
            rig.enter(came, 60, now);
            came += 1;
        }
        while let Some(packet) = rig.line.leave(now) {
            left += 1;
            rig.cache.free_one(packet);
        }
        now += 4_800;
    }
    let rest = rig.drain().len() as u64;
    assert_eq!(left + rest + rig.count("queue"), came);
    // What is on the wire and in the queue: 4,167 and 8,333 frames.
    assert!((12_400..12_600).contains(&rest), "{rest}");
}

#[test]
fn memory_follows_the_configuration_and_the_pool() {
    let kept = |text: &str| text.parse::<Faults>().unwrap().tx.most_kept();
    assert_eq!(kept("loss:0.1"), 4096);
    assert_eq!(kept("delay:5"), 4096 + 5);
    assert_eq!(kept("rate:100M+delay:20ms+queue:0"), 4096 + 4166);
    assert_eq!(kept("rate:100M+queue:300"), 4096 + 300);
    assert_eq!(kept("delay:1s+keep:70000"), 70_000);
    // Nothing overflows.
    assert!(kept("rate:1000G+delay:3600s+jitter:3600s+queue:9007199254740991") > 1 << 40);
    let faults: Faults = "rate:10G+delay:1s".parse().unwrap();
    assert_eq!(line::most_kept(&faults.tx, &pools(4096)), 2048);
}

/// Gilbert 1960: the share of packets in bad states, and the mean length of such a state.
#[test]
fn bursts_of_loss_have_the_length_and_share_of_the_chain() {
    let mut rig = Rig::new("burst:0.01/0.2+seed:3");
    let count = 200_000;
    let mut came = vec![];
    for number in 0..count {
        rig.enter(number, 60, 0);
        came.extend(rig.numbers().into_iter().map(|(_, number)| number));
    }
    let lost = count - came.len() as u64;
    let gaps = came.windows(2).filter(|pair| pair[1] > pair[0] + 1).count() as f64;
    let (share, length) = (lost as f64 / count as f64, lost as f64 / gaps);
    assert!(
        (0.045..0.050).contains(&share),
        "{share}: 0.01 / 0.21 expected"
    );
    assert!((4.7..5.3).contains(&length), "{length}: 1 / 0.2 expected");
    assert_eq!(rig.count("loss"), lost);

    let mut rig = Rig::new("burst:1/0.5/0.25+seed:3");
    (0..90_000).for_each(|_| {
        rig.enter(0, 60, 0);
        rig.drain();
    });
    // Two of three in a bad state, of which a quarter is lost.
    let lost = rig.count("loss");
    assert!((14_600..15_400).contains(&lost), "{lost}");
}

#[test]
fn jitter_stays_within_its_bounds_and_lets_packets_overtake() {
    let mut rig = Rig::new("delay:10ms+jitter:2ms");
    for number in 0..2000 {
        rig.enter(number, 60, number * 10_000);
    }
    let left = rig.numbers();
    let delays: Vec<u64> = left
        .iter()
        .map(|&(at, number)| at - number * 10_000)
        .collect();
    assert!(
        delays
            .iter()
            .all(|delay| (8 * MS..=12 * MS).contains(delay))
    );
    let mean = delays.iter().sum::<u64>() / 2000;
    assert!((9_900_000..10_100_000).contains(&mean), "{mean}");
    assert!(
        delays.iter().min().unwrap() < &8_010_000 && delays.iter().max().unwrap() > &11_990_000
    );
    assert!(left.is_sorted(), "by time");
    let mut highest = 0;
    let late = left.iter().filter(|&&(_, number)| {
        highest = highest.max(number);
        number < highest
    });
    assert_eq!(late.count() as u64, rig.count("reorder"));
    assert!(rig.count("reorder") > 1000);
}

#[test]
fn normal_jitter_is_normal() {
    let mut rig = Rig::new("delay:100ms+jitter:normal@5ms");
    for number in 0..20_000 {
        rig.enter(number, 60, 0);
    }
    let delays = rig.numbers();
    let off: Vec<f64> = delays
        .iter()
        .map(|&(at, _)| at as f64 / MS as f64 - 100.0)
        .collect();
    let mean = off.iter().sum::<f64>() / off.len() as f64;
    let variance = off.iter().map(|off| off * off).sum::<f64>() / off.len() as f64;
    assert!(
        mean.abs() < 0.15 && (24.0..26.0).contains(&variance),
        "{mean} {variance}"
    );
    // 68.3 and 95.4 percent within one and two deviations.
    let within = |ms: f64| off.iter().filter(|off| off.abs() < ms).count();
    assert!((13_400..13_900).contains(&within(5.0)), "{}", within(5.0));
    assert!((19_000..19_200).contains(&within(10.0)), "{}", within(10.0));
}

#[test]
fn with_order_kept_nothing_overtakes() {
    let mut rig = Rig::new("delay:10ms+jitter:9ms+order:keep");
    for number in 0..2000 {
        rig.enter(number, 60, number * 1000);
    }
    let numbers: Vec<u64> = rig
        .numbers()
        .into_iter()
        .map(|(_, number)| number)
        .collect();
    assert!(numbers.is_sorted() && rig.count("reorder") == 0);
}

#[test]
fn reordered_packets_swap_or_come_later_by_a_time() {
    let mut rig = Rig::new("rate:100M+reorder:0.03@5ms+queue:100000");
    for number in 0..10_000 {
        rig.enter(number, 1250, 0);
    }
    let left = rig.numbers();
    let late: Vec<_> = left
        .iter()
        .filter(|&&(at, number)| at == (number + 1) * 100_000 + 5 * MS)
        .collect();
    let others = left
        .iter()
        .filter(|&&(at, number)| at == (number + 1) * 100_000);
    assert_eq!(others.count() + late.len(), 10_000);
    assert!((250..350).contains(&late.len()), "{}", late.len());
    // All but those behind which nothing came.
    assert!(late.len() as u64 - rig.count("reorder") < 10);

    // A packet waits for the next one to change places with, but not longer than its delay.
    let mut rig = Rig::new("delay:1ms+reorder:1");
    rig.enter(0, 60, 0);
    rig.line.stop_waiting(MS - 1);
    rig.enter(1, 60, MS - 1);
    assert_eq!(rig.numbers(), [(2 * MS - 1, 1), (2 * MS - 1, 0)]);
    rig.enter(2, 60, 5 * MS);
    assert_eq!(rig.line.next_due_ns(), Some(6 * MS));
    assert_eq!(rig.numbers(), [(6 * MS, 2)]);
    assert_eq!(rig.count("reorder"), 1);
}

/// The last three stay behind, and no time brings them out.
#[test]
fn packets_that_are_delayed_by_number_are_never_due() {
    let mut rig = Rig::new("delay:3");
    (0..3).for_each(|number| rig.enter(number, 60, 0));
    assert_eq!(rig.line.next_due_ns(), None);
    rig.enter(3, 60, 0);
    assert_eq!(rig.numbers(), [(0, 0)]);
    assert_eq!(rig.line.held(), 3);
}

fn ip4(tos: u8, tags: usize) -> Vec<u8> {
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let header = ipv4::header(tos, 64, protocol::UDP, src, dst, 20);
    framed(EtherType::IPV4, &[&header[..], &[0; 20]].concat(), tags)
}

fn ip6(class: u8) -> Vec<u8> {
    let mut header = ipv6::header(
        protocol::UDP,
        64,
        Ipv6Addr::LOCALHOST,
        Ipv6Addr::LOCALHOST,
        20,
    );
    header[0] |= class >> 4;
    header[1] = class << 4 | 0x0a;
    framed(EtherType::IPV6, &[&header[..], &[0; 20]].concat(), 0)
}

fn framed(ethertype: EtherType, packet: &[u8], tags: usize) -> Vec<u8> {
    let mut frame = ethernet::header(MacAddr::local(1), MacAddr::local(2), ethertype).to_vec();
    frame.extend(packet);
    for _ in 0..tags {
        frame = [&[0; vlan::TAG_LEN][..], &frame].concat();
        assert!(vlan::insert(&mut frame, EtherType::VLAN, 7));
    }
    frame
}

/// RFC 3168 5: only packets whose transport is capable of ECN are marked.
#[test]
fn rfc_3168_5_only_capable_packets_are_marked() {
    let mut rig = Rig::new("ce:1");
    let mut marked = 0;
    for tags in [0, 1, 2] {
        for tos in 0..=255 {
            rig.enter_frame(&ip4(tos, tags), 0);
            let (_, packet) = rig.drain().remove(0);
            let ip = Ipv4::new_checked(&packet.data()[14 + 4 * tags..]).unwrap();
            let is_capable = matches!(tos & 3, 1 | 2);
            let expected = if is_capable { tos | 3 } else { tos };
            assert_eq!(ip.tos(), expected);
            assert!(ip.verify(), "the header checksum of {tos}");
            marked += u64::from(is_capable);
            assert_eq!(rig.count("ce"), marked);
        }
    }
    for class in 0..=255 {
        rig.enter_frame(&ip6(class), 0);
        let (_, packet) = rig.drain().remove(0);
        let expected = if matches!(class & 3, 1 | 2) {
            class | 3
        } else {
            class
        };
        let ip = Ipv6::new_checked(&packet.data()[14..]).unwrap();
        assert_eq!((ip.traffic_class(), ip.flow_label()), (expected, 0x0a_0000));
    }
}

#[test]
fn marks_come_by_chance_or_when_the_queue_is_long() {
    let mut rig = Rig::new("ce:0.25");
    (0..4000).for_each(|_| rig.enter_frame(&ip4(2, 0), 0));
    let marked = rig.count("ce");
    assert!((900..1100).contains(&marked), "{marked}");
    // 54 bytes each: the first is sent at once, and the eighth finds six that wait.
    for above in ["5", "300B"] {
        let mut rig = Rig::new(&format!("rate:1M+ce:queue@{above}"));
        (0..20).for_each(|_| rig.enter_frame(&ip4(1, 0), 0));
        let marks: Vec<bool> = rig
            .drain()
            .iter()
            .map(|(_, packet)| packet.data()[15] & 3 == 3)
            .collect();
        let expected: Vec<bool> = (0..20).map(|number| number >= 7).collect();
        assert_eq!(marks, expected, "above {above}");
    }
}

#[test]
fn marking_survives_any_bytes() {
    let seed = 11;
    let mut random = Random::new(seed);
    let mut rig = Rig::new("ce:1");
    for _ in 0..20_000 {
        let mut frame = [ip4(2, 1), ip6(2)][random.below(2) as usize].clone();
        for _ in 0..random.below(4) {
            let at = random.below(frame.len() as u64) as usize;
            frame[at] = random.bits() as u8;
        }
        frame.truncate(random.below(frame.len() as u64 + 1) as usize);
        rig.enter_frame(&frame, 0);
        assert_eq!(rig.drain().len(), 1, "seed {seed}");
    }
}

#[test]
fn a_seed_does_the_same_again_and_other_faults_do_not_change_its_losses() {
    let run = |faults: &str| {
        let mut rig = Rig::new(faults);
        for number in 0..3000 {
            rig.enter(number, 100, number * 9000);
        }
        rig.numbers()
    };
    let all = "loss:0.1+burst:0.1/0.3+dup:0.1+rate:100M+jitter:normal@1ms+ce:0.5+delay:5ms+seed:9";
    assert_eq!(run(all), run(all));
    assert_ne!(run(all), run(&all.replace("seed:9", "seed:10")));
    let numbers = |faults: &str| {
        let mut numbers: Vec<u64> = run(faults).into_iter().map(|(_, number)| number).collect();
        numbers.sort_unstable();
        numbers
    };
    let plain = numbers("loss:0.1+dup:0.1+seed:9");
    assert_eq!(
        plain,
        numbers("loss:0.1+dup:0.1+jitter:1ms+delay:2ms+seed:9")
    );
}

#[test]
fn faults_are_written_as_they_are_read() {
    let seed = 5;
    let mut random = Random::new(seed);
    let values: &[&[&str]] = &[
        &["loss:0.25", "loss:0"],
        &["burst:0.1/0.5", "burst:0.1/0.5/0.9"],
        &["dup:0.5"],
        &["reorder:0.1", "reorder:0.1@3ms"],
        &["flip:0.125"],
        &["rate:64k", "rate:100M", "rate:2.5G", "rate:77"],
        &["queue:17", "queue:17p", "queue:1.5kB", "queue:3MB"],
        &["delay:7"],
        &["delay:20ms", "delay_ns:77", "delay:1.5us", "delay:2s"],
        &["jitter:3us", "jitter:normal@3us", "jitter:uniform@70ns"],
        &["order:keep"],
        &["keep:9000"],
        &["on:rx", "on:tx", "on:both"],
        &["seed:99"],
    ];
    for _ in 0..2000 {
        let mut parts = Vec::new();
        for choices in values {
            let own = ["on", "seed"].contains(&choices[0].split(':').next().unwrap());
            for way in ["", "rx.", "tx."].iter().take(if own { 1 } else { 3 }) {
                if random.below(3) == 0 {
                    let at = random.below(choices.len() as u64) as usize;
                    parts.push(format!("{way}{}", choices[at]));
                }
            }
        }
        let text = parts.join("+");
        let faults: Faults = text.parse().unwrap();
        let again: Faults = faults.to_string().parse().unwrap();
        assert_eq!(faults, again, "seed {seed}: {text} became {faults}");
    }
    let faults: Faults = "rate:1G+rx.loss:0.5+tx.ce:queue@20+on:both"
        .parse()
        .unwrap();
    assert_eq!(
        faults.to_string(),
        "rate:1000000000+rx.loss:0.5+tx.ce:queue@20+seed:1"
    );
}

#[test]
fn what_is_wrong_is_named_with_what_would_be_right() {
    for (text, part) in [
        ("loss:2", "probability from 0 to 1"),
        ("loss:NaN", "probability from 0 to 1"),
        ("lots:1", "`lots` is none of loss, burst"),
        ("rx.lots:1", "`rx.lots` is none of"),
        ("up.loss:1", "`up.loss` is none of"),
        ("rate:fast", "bits a second such as 64k"),
        ("rate:0", "bits a second"),
        ("rate:-1M", "bits a second"),
        ("queue:1kb", "packets or bytes"),
        ("queue:xB", "bytes such as 64kB"),
        ("delay:20m", "a time such as 20ms"),
        ("delay:20m", "a whole number of packets"),
        ("delay:2000000s", "an hour at most"),
        ("delay_ns:36000000000001", "an hour at most"),
        ("jitter:gauss@1ms", "uniform@ or normal@"),
        ("burst:0.1", "ENTER/LEAVE"),
        ("burst:0.1/0", "never ends"),
        ("ce:queue@20", "needs a rate"),
        ("ce:2", "or queue@N"),
        ("order:lose", "order takes keep"),
        ("keep:0", "at least one packet"),
        ("on:up", "rx, tx or both"),
        ("seed:x", "whole number"),
    ] {
        let error = text.parse::<Faults>().unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
