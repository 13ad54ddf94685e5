//! What is agreed on with Open vSwitch besides a ring: several queues, and frames that are not
//! segmented yet.

use super::*;
use linerate_core::packet::Offload;
use linerate_core::port::QueueStats;
use linerate_drivers::offload::Finisher;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::tcp::Tcp;

const QUEUES: usize = 2;
/// Frames under way of each queue.
const EACH: u64 = WINDOW / QUEUES as u64;
/// Numbers of the frames that only ask whether the switch forwards already.
const PROBES: u64 = 1 << 40;

/// Frames that went out of one queue, at one end of their way.
struct Seen {
    /// By the queue that they came from: the last one that each queue here has had.
    last: [[Option<u64>; QUEUES]; QUEUES],
    /// By number, which goes up by [`QUEUES`] in each queue that sends.
    came: Vec<bool>,
    count: u64,
}

impl Seen {
    fn new(frames: u64) -> Self {
        Self {
            last: Default::default(),
            came: vec![false; frames as usize],
            count: 0,
        }
    }

    /// The frame came on this queue; once, and in the order of those that went its way.
    fn frame(&mut self, number: u64, queue: usize) {
        let last = self.last[number as usize % QUEUES][queue].replace(number);
        assert!(
            last < Some(number),
            "{number} came on {queue} after {last:?}"
        );
        let came = std::mem::replace(&mut self.came[number as usize], true);
        assert!(!came, "{number} came twice");
        self.count += 1;
    }
}

/// Sends so many frames over the queues of `from` to `to`, and back over the queue on which each
/// has come. A core of the switch chooses a queue; which, is its own affair.
fn exchange_over_queues(from: &mut Booked, to: &mut Booked, frames: u64) -> [Seen; 2] {
    let (mut there, mut back) = (Seen::new(frames), Seen::new(frames));
    let (mut sent, mut under_way) = ([0, 1_u64], [0; QUEUES]);
    let mut turned = [0; QUEUES].map(|_| Burst::with_room(32));
    let (mut burst, mut moved) = (Burst::with_room(32), Instant::now());
    let mut rest = Rest::default();
    while back.count < frames {
        let before = (sent, there.count, back.count);
        for queue in 0..QUEUES {
            if under_way[queue] < EACH && sent[queue] < frames {
                // One by one, for their numbers are not in a row.
                let taken = from.send_new_on(queue, sent[queue], 1);
                sent[queue] += taken * QUEUES as u64;
                under_way[queue] += taken;
            }
            if turned[queue].is_empty() {
                for number in to.receive_on(queue, &mut turned[queue]) {
                    there.frame(number, queue);
                }
            }
            to.send_on(queue, &mut turned[queue]);
            for number in from.receive_on(queue, &mut burst) {
                back.frame(number, queue);
                under_way[number as usize % QUEUES] -= 1;
                moved = Instant::now();
            }
            from.end.cache.free(&mut burst);
        }
        rest.after((sent, there.count, back.count) != before);
        assert!(
            moved.elapsed() < linerate_testkit::PATIENCE,
            "{sent:?} sent, {} and {} arrived: {:?} {:?}",
            there.count,
            back.count,
            from.end.port.stats(),
            to.end.port.stats()
        );
    }
    [there, back]
}

/// Until frames of each queue come to the other side, and the last of them have come.
fn wait_for_queues(from: &mut Booked, to: &mut Booked) {
    let mut burst = Burst::with_room(32);
    let mut came = [false; QUEUES];
    wait("frames of each queue", || {
        for queue in 0..QUEUES {
            if !came[queue] {
                from.send_new_on(queue, PROBES + queue as u64, 1);
            }
            for number in to.receive_on(queue, &mut burst) {
                came[(number - PROBES) as usize] = true;
            }
            to.end.cache.free(&mut burst);
        }
        came == [true; QUEUES]
    });
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(500) {
        for queue in 0..QUEUES {
            if !to.receive_on(queue, &mut burst).is_empty() {
                last = Instant::now();
            }
            to.end.cache.free(&mut burst);
        }
    }
}

#[test]
#[ignore = "long: Open vSwitch with two cores and two queues each way"]
fn open_vswitch_joins_ports_of_several_queues() {
    let _turn = turn();
    if std::thread::available_parallelism().map_or(1, usize::from) < QUEUES {
        return skip("needs a CPU for each queue");
    }
    // Each core takes one queue of each port.
    let settings = [
        "other_config:pmd-cpu-mask=0x3",
        "other_config:pmd-rxq-assign=roundrobin",
    ];
    let Some(mut switch) = Switch::with(&[Side::Client; 2], &settings) else {
        return;
    };
    for [from, to] in [
        ["packed=on", "packed=off"],
        ["packed=off,in_order=off", "packed=on,in_order=off"],
    ] {
        let [mut from, mut to] = [(1, from), (2, to)].map(|(number, options)| {
            let spec = switch.spec(number, &format!("queues={QUEUES},{options}"));
            Booked::with_queues(&spec, QUEUES as u16)
        });
        for kill in [false, true] {
            if kill {
                switch.kill();
                from.end.wait_down();
                to.end.wait_down();
                switch.start();
            }
            from.end.wait_up();
            to.end.wait_up();
            for end in [&from, &to] {
                let facts = end.end.port.info().facts;
                assert!(
                    facts.contains(&("queue pairs", QUEUES.to_string())),
                    "{facts:?}"
                );
            }
            wait_for_queues(&mut from, &mut to);
            wait_for_queues(&mut to, &mut from);
            let seen = exchange_over_queues(&mut from, &mut to, 500_000);
            for (way, seen) in ["there", "back"].iter().zip(seen) {
                let used = |queue: usize| seen.last.iter().any(|from| from[queue].is_some());
                assert!((0..QUEUES).all(used), "{way}: one queue was never used");
            }
        }
        from.finish();
        to.finish();
    }
}

const HEADERS: usize = 14 + 20 + 20;

/// A TCP frame over IPv4 that is yet to be cut, its checksum unfinished.
fn unsegmented(number: u32, payload: usize) -> Vec<u8> {
    let mut frame = crate::frame(0, HEADERS + payload);
    frame[12..14].copy_from_slice(&[8, 0]);
    let length = (20 + 20 + payload) as u16;
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    Ipv4::new_checked(&mut frame[14..]).unwrap().fill_checksum();
    frame[34..54].copy_from_slice(&[
        0, 7, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
    ]);
    frame[38..42].copy_from_slice(&number.to_be_bytes());
    let sum = Ipv4::new_checked(&frame[14..]).unwrap().pseudo_sum();
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    for (at, byte) in frame[HEADERS..].iter_mut().enumerate() {
        *byte = (at + number as usize) as u8;
    }
    frame
}

/// The payloads of a frame's segments, each of which fits the wire and has right checksums.
fn cut(end: &mut End, burst: &mut Burst) -> Vec<u8> {
    let (stats, mut payload) = (QueueStats::default(), Vec::new());
    Finisher::new(&end.pools).tx(burst, &mut end.cache, &stats, |burst, cache| {
        for packet in burst.iter() {
            let data = packet.data();
            assert!(data.len() <= 1514, "{} bytes", data.len());
            let ip = Ipv4::new_checked(&data[14..]).unwrap();
            let tcp = Tcp::new_checked(&data[34..]).unwrap();
            assert!(ip.verify() && tcp.verify(ip.pseudo_sum()), "a bad checksum");
            payload.extend(&data[HEADERS..]);
        }
        let count = burst.len();
        cache.free(burst);
        count
    });
    payload
}

#[test]
#[ignore = "long: Open vSwitch with segmentation offload"]
fn open_vswitch_passes_unsegmented_frames_on() {
    let _turn = turn();
    let settings = ["other_config:userspace-tso-enable=true"];
    let Some(switch) = Switch::with(&[Side::Client; 2], &settings) else {
        return;
    };
    for options in [["packed=on", "packed=off"], ["packed=off", "packed=on"]] {
        let mut stream = stream(&switch, [1, 2], options);
        // Others pass as ever beside them.
        for (number, payload) in
            (0..2000).zip([100, 1460, 1461, 8000, 20_000, 60_000].iter().cycle())
        {
            stream.exchange(10);
            let sent = unsegmented(number, *payload);
            let (from, to) = (&mut stream.from, &mut stream.to);
            let mut burst = Burst::new();
            let pool = from.end.pools.for_frame(sent.len()).unwrap();
            assert_eq!(from.end.cache.fill(pool, &mut burst, 1), 1);
            for packet in burst.iter_mut() {
                assert!(packet.set_data(&sent));
                let meta = packet.meta_mut();
                meta.offload = Offload::CSUM_PARTIAL;
                (meta.csum_start, meta.csum_offset) = (34, 16);
                if *payload > 1460 {
                    meta.offload.insert(Offload::GSO_TCP4);
                    meta.gso_size = 1460;
                }
            }
            from.send(&mut burst);
            assert!(burst.is_empty(), "frame {number} stays");
            wait("the unsegmented frame", || {
                let End { queues, cache, .. } = &mut to.end;
                to.received += queues.rx[0].rx_burst(&mut burst, cache) as u64;
                !burst.is_empty()
            });
            assert_eq!(burst.len(), 1, "frame {number}");
            let came = &burst.as_packets()[0];
            assert_eq!(came.len(), sent.len(), "frame {number}, in one piece");
            let offload = came.meta().offload;
            assert_eq!(
                offload.contains(Offload::GSO_TCP4),
                *payload > 1460,
                "{offload:?}"
            );
            assert!(
                cut(&mut to.end, &mut burst) == sent[HEADERS..],
                "frame {number} damaged"
            );
        }
        stream.finish();
    }
}
