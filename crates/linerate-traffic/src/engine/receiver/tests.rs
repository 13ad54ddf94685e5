use std::collections::VecDeque;

use linerate_core::packet::{Pool, PoolConfig};
use linerate_wire::ethernet::MacAddr;

use super::*;
use crate::engine::help::Replies;
use crate::engine::lcore::Waker;
use crate::engine::track::ANYWHERE;
use crate::engine::{PortAddr, Responder, echo_request};
use crate::signature::SIGNATURE_BYTES;

/// Bursts of frames as they are to come.
struct Script {
    pool: Pool,
    bursts: VecDeque<Vec<Vec<u8>>>,
}

impl RxQueue for Script {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let frames = self.bursts.pop_front().unwrap_or_default();
        let count = cache.fill(&self.pool, burst, frames.len());
        for (packet, frame) in burst.iter_mut().zip(frames) {
            assert!(packet.set_data(&frame));
        }
        count
    }

    fn held(&self) -> i64 {
        0
    }
}

/// A receiver after it has received `bursts`.
fn received(streams: usize, checks: Checks, bursts: Vec<Vec<Vec<u8>>>) -> Receiver {
    let pool = Pool::new(&PoolConfig::new("test", 1024)).unwrap();
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let turns = bursts.len();
    let script = Script {
        pool,
        bursts: bursts.into(),
    };
    let books = Books::with_checks(Boundaries::new(streams).into(), checks);
    let mut receiver = Receiver::new(Box::new(script), books, Clock::monotonic("a test"));
    (0..=turns).for_each(|_| {
        receiver.turn(&mut cache);
    });
    receiver
}

/// An IPv4/UDP test frame of `size` bytes with its check sequence, checksums right or absent.
fn test_frame(size: usize, stream: u16, sequence: u64) -> Vec<u8> {
    let mut frame = vec![0; size - FCS_BYTES];
    let ip_len = (frame.len() - 14) as u16;
    (frame[0], frame[6]) = (2, 2);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&ip_len.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 19, 0, 1]);
    let sum = linerate_wire::checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
    let label = Label {
        session: 0,
        stream,
        sequence,
        stamp: 0,
    };
    let tail: &mut [u8; SIGNATURE_BYTES] = frame.last_chunk_mut().unwrap();
    label.write(tail);
    frame
}

/// A foreign frame.
fn foreign(size: usize, ethertype: u16) -> Vec<u8> {
    let mut frame = vec![0; size - FCS_BYTES];
    (frame[0], frame[6]) = (2, 2);
    frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
    frame
}

fn tagged(frame: &[u8], tags: usize) -> Vec<u8> {
    let tags = [0x81, 0x00, 0x00, 0x05].repeat(tags);
    [&frame[..12], &tags, &frame[12..]].concat()
}

#[test]
fn sizes_fall_into_the_classes_of_rfc_2819_and_sum_to_the_packets() {
    let sizes = [
        (18, 0),
        (63, 0),
        (64, 0),
        (65, 1),
        (127, 1),
        (128, 2),
        (255, 2),
        (256, 3),
        (511, 3),
        (512, 4),
        (1023, 4),
        (1024, 5),
        (1518, 5),
        (1519, 6),
        (1522, 6),
        (2000, 6),
    ];
    let mut expected = [0; 7];
    let mut bytes = 0;
    for (size, class) in sizes {
        expected[class] += 1;
        bytes += size as u64;
    }
    let frames = sizes.map(|(size, _)| foreign(size, 0x88b5)).to_vec();
    let stats = received(1, Checks::default(), vec![frames]).books.stats;
    assert_eq!(stats.sizes.each_ref().map(Counter::read), expected);
    assert_eq!(stats.packets.read(), sizes.len() as u64);
    assert_eq!(stats.bytes.read(), bytes);
    assert_eq!(
        (stats.runts.read(), stats.foreign.read()),
        (2, sizes.len() as u64)
    );
}

#[test]
fn kinds_are_seen_through_tags_and_whatever_the_frame_is_it_counts_once() {
    let mut broadcast = foreign(64, 0x0806);
    broadcast[..6].fill(0xff);
    let mut multicast = foreign(64, 0x86dd);
    multicast[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    multicast[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 6, 58, 255]);
    let mut echo = foreign(64, 0x0800);
    echo[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 1]);
    // A test frame that is an echo counts as both.
    let mut test_echo = test_frame(64, 1, 0);
    test_echo[23] = 1;
    let frames = vec![
        tagged(&broadcast, 1),
        broadcast,
        multicast,
        tagged(&echo, 2),
        echo,
        test_echo,
        tagged(&test_frame(64, 1, 1), 2),
        test_frame(1518, 1, 2),
        // A stream that the session does not have, and a label that is damaged.
        test_frame(64, 2, 0),
        {
            let mut damaged = test_frame(64, 1, 3);
            damaged[50] ^= 4;
            damaged
        },
        Vec::new(),
        vec![0xff; 9],
    ];
    let count = frames.len() as u64;
    let stats = received(2, Checks::default(), vec![frames]).books.stats;
    assert_eq!(stats.packets.read(), count);
    assert_eq!(stats.sizes.iter().map(Counter::read).sum::<u64>(), count);
    assert_eq!((stats.broadcast.read(), stats.multicast.read()), (3, 1));
    assert_eq!((stats.arp.read(), stats.icmp.read()), (2, 4));
    assert_eq!(
        (stats.stream(1).received(), stats.foreign.read()),
        (3, count - 3)
    );
    assert_eq!(stats.latency().total, 3);
    assert_eq!(stats.stream_latency(1).total, 3);
}

#[test]
fn full_bursts_of_many_streams_are_checked_to_the_frame() {
    // Both code paths, by the number of streams.
    for streams in [3, 1000u16] {
        let number = |n: u64| (n % u64::from(streams)) as u16;
        let mut frames = Vec::new();
        for n in 0..6400u64 {
            // One in 50 is lost, one in 64 comes twice.
            if n % 50 != 7 {
                frames.push(test_frame(64, number(n), n / u64::from(streams)));
                if n % 64 == 5 {
                    frames.push(frames.last().unwrap().clone());
                }
            }
        }
        let all = frames.len() as u64;
        let bursts = frames.chunks(64).map(<[_]>::to_vec).collect();
        let stats = received(usize::from(streams), Checks::default(), bursts)
            .books
            .stats;
        let mut sum = StreamReceived::default();
        let mut lost = 0;
        for id in 0..streams {
            let told = stats.stream(id);
            let sent = (6400 - u64::from(id)).div_ceil(u64::from(streams));
            lost += told.tally(Some(sent), true).lost;
            sum.merge(&told);
        }
        assert_eq!((lost, sum.unique), (128, 6400 - 128));
        assert_eq!((sum.received(), sum.duplicates), (all, all - sum.unique));
        assert_eq!((stats.packets.read(), stats.foreign.read()), (all, 0));
        assert_eq!(stats.latency().total, all);
    }
}

#[test]
fn a_clear_starts_all_counts_anew_and_sets_apart_what_is_under_way() {
    let frames = |range: std::ops::Range<u64>| vec![range.map(|n| test_frame(64, 0, n)).collect()];
    let mut receiver = received(1, Checks::default(), frames(0..10));
    let boundaries = receiver.books.boundaries.clone();
    let fresh = Books::new(boundaries.clone());
    let stats = fresh.stats.clone();
    let old = receiver.install(fresh);
    assert_eq!(old.stats.stream(0).received(), 10);
    assert_eq!((stats.packets.read(), stats.stream(0).received()), (0, 0));
    // The sender is at 14: four are under way, of which one is lost, and 14 to 19 follow.
    boundaries.begin(0, 14);
    let mut script = frames(10..20);
    script[0].remove(2);
    let pool = Pool::new(&PoolConfig::new("test", 256)).unwrap();
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    receiver.rx = Box::new(Script {
        pool,
        bursts: script.into(),
    });
    receiver.turn(&mut cache);
    let told = stats.stream(0);
    let tally = told.tally(Some(6), true);
    assert_eq!((tally.received, tally.lost, tally.duplicates), (6, 0, 0));
    assert_eq!((told.earlier, stats.earlier()), (3, 3));
    assert_eq!(
        stats.packets.read(),
        6 + stats.earlier() + stats.foreign.read()
    );

    // More streams: the new ones begin with 0, or with the first number that comes.
    let grown = Arc::new(boundaries.grown(3));
    grown.begin(2, ANYWHERE);
    let fresh = Books::new(grown);
    let stats = fresh.stats.clone();
    receiver.install(fresh);
    let pool = Pool::new(&PoolConfig::new("test", 256)).unwrap();
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let frames = [(0, 20), (1, 0), (1, 1), (2, 1 << 40), (2, (1 << 40) + 2)];
    receiver.rx = Box::new(Script {
        pool,
        bursts: [frames.map(|(stream, n)| test_frame(64, stream, n)).to_vec()].into(),
    });
    receiver.turn(&mut cache);
    let told = [0, 1, 2].map(|id| stats.stream(id).tally(None, true));
    assert_eq!(
        told.map(|tally| (tally.received, tally.lost)),
        [(1, 0), (2, 0), (2, 1)]
    );
}

#[test]
fn checksums_and_flows_are_looked_at_where_it_is_asked_for() {
    let checks = Checks {
        checksums: true,
        flows: true,
    };
    let mut frames: Vec<Vec<u8>> = (0..20).map(|n| test_frame(64, 0, n)).collect();
    frames[3][30] = 197; // an address: the header's sum is wrong, and it is a flow of its own
    let stats = received(1, checks, vec![frames.clone()]).books.stats;
    assert_eq!(
        (stats.found.corrupt.read(), Found::flows([&stats.found])),
        (1, Some(2))
    );
    assert_eq!(stats.stream(0).received(), 20);
    let stats = received(1, Checks::default(), vec![frames]).books.stats;
    assert_eq!(
        (stats.found.corrupt.read(), Found::flows([&stats.found])),
        (0, None)
    );
}

#[test]
fn replies_leave_by_the_sender_and_nothing_leaks() {
    let own = MacAddr::local(1);
    let clock = Clock::monotonic("a test");
    let addrs = |text: &str| vec![text.parse().unwrap()];
    let responder = |mac, addr| Responder::new(mac, addrs(addr), &clock).unwrap();
    let (mut helper, replies, events) = Helper::new(responder(own, "192.0.2.1/24"), Waker::idle());
    let stats = helper.stats();
    let mut peer = responder(MacAddr::local(2), "192.0.2.2/24");
    let question = peer.who_has("192.0.2.1".parse().unwrap()).unwrap();
    let asked = helper.who_has("192.0.2.2".parse().unwrap()).unwrap();
    let answer_to_us = peer.handle(clock.now(), &asked).unwrap().to_vec();
    let pool = Pool::new(&PoolConfig::new("test", 1024)).unwrap();
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let burst = vec![
        question.clone(),
        test_frame(64, 0, 0),
        answer_to_us,
        question.clone(),
    ];
    let mut bursts = VecDeque::from([burst]);
    // More than the ring to the sender holds, without a sender.
    let theirs: [PortAddr; 1] = ["192.0.2.2/24".parse().unwrap()];
    let (from, to) = (
        (MacAddr::local(2), &theirs[..]),
        (own, "192.0.2.1".parse().unwrap()),
    );
    let ping = echo_request(from, to, (1, 1), 0, 16).unwrap();
    bursts.extend((0..5).map(|_| vec![ping.clone(); 64]));
    let script = Script {
        pool: pool.clone(),
        bursts,
    };
    let books = Books::new(Boundaries::new(1).into());
    let mut receiver = Receiver::new(Box::new(script), books, clock);
    receiver.helper = Some(helper);
    (0..6).for_each(|_| {
        receiver.turn(&mut cache);
    });
    assert_eq!(events.try_iter().count(), 1);
    assert_eq!(receiver.books.stats.stream(0).received(), 1);
    let mut sent = Sent(Vec::new());
    let Replies { .. } = &replies;
    let mut replies = replies;
    while replies.send(&mut sent, &mut cache, |_| {}) > 0 {}
    assert_eq!(sent.0.len() as u64, 322 - stats.dropped.read());
    assert!(stats.dropped.read() > 0, "the ring is bounded");
    assert!(sent.0.iter().all(|reply| reply[6..12] == own.0));
    // ARP's operation, and then ICMP's type.
    assert!(sent.0[..2].iter().all(|reply| reply[21] == 2));
    assert!(sent.0[2..].iter().all(|reply| reply[34] == 0));
    drop((receiver, replies));
    assert_eq!(
        cache.from_shared(),
        cache.held(&pool) as i64,
        "every slot is back"
    );
}

struct Sent(Vec<Vec<u8>>);

impl linerate_core::port::TxQueue for Sent {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        self.0
            .extend(burst.iter().map(|packet| packet.data().to_vec()));
        let count = burst.len();
        cache.free(burst);
        count
    }

    fn held(&self) -> i64 {
        0
    }
}
