//! Bursts of several connections through a [`Merger`]: whatever it joins is cut into what went in.

use super::*;
use linerate_core::packet::{Pool, PoolCache, PoolConfig};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::offload::Segments;
use linerate_wire::tcp::{Tcp, flag};

/// A segment of 10.0.0.1:`flow` with right checksums: `number` counts its connection's segments of
/// `len` bytes.
fn segment(flow: u16, number: u16, len: usize, flags: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([
        0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame.extend([
        0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0x50, flags, 1, 0, 0, 0, 0, 0,
    ]);
    frame[16..18].copy_from_slice(&(40 + len as u16).to_be_bytes());
    frame[18..20].copy_from_slice(&number.to_be_bytes());
    frame[34..36].copy_from_slice(&flow.to_be_bytes());
    frame[38..42].copy_from_slice(&(u32::from(number) * len as u32).to_be_bytes());
    frame.extend((0..len).map(|at| (at as u16 ^ number ^ flow) as u8));
    finish(&mut frame);
    frame
}

fn finish(frame: &mut [u8]) {
    let mut ip = Ipv4::new_checked(&mut frame[14..]).unwrap();
    ip.fill_checksum();
    let pseudo = ip.pseudo_sum();
    let mut tcp = Tcp::new_checked(&mut frame[34..]).unwrap();
    tcp.fill_checksum(pseudo);
}

/// A datagram, whose payload is its number.
fn datagram(number: u8) -> Vec<u8> {
    let mut frame = segment(0, 0, 30, 0);
    frame[23] = 17;
    frame[38..40].copy_from_slice(&50_u16.to_be_bytes());
    frame[42] = number;
    Ipv4::new_checked(&mut frame[14..]).unwrap().fill_checksum();
    frame
}

struct Stand {
    pool: Pool,
    cache: PoolCache,
    merger: Merger,
}

impl Stand {
    fn new() -> Self {
        let pool = Pool::new(&PoolConfig::new("merge", 256)).unwrap();
        Self {
            cache: PoolCache::new(std::slice::from_ref(&pool)),
            pool,
            merger: Merger::default(),
        }
    }

    fn burst(&mut self, frames: &[Vec<u8>]) -> Burst {
        let mut burst = Burst::new();
        for frame in frames {
            let mut packet = self.cache.get(&self.pool).unwrap();
            assert!(packet.set_data(frame));
            burst.push(packet).unwrap();
        }
        burst
    }

    /// What leaves: the frames of each run, cut if they were joined, as the header before them
    /// says.
    fn leaves(&self, burst: &Burst) -> Vec<Vec<Vec<u8>>> {
        let mut packets = burst.iter();
        let mut runs = Vec::new();
        for run in self.merger.runs() {
            let of_run: Vec<&Packet> = packets.by_ref().take(run.packets).collect();
            let Some(joined) = run.joined else {
                runs.push(vec![of_run[0].data().to_vec()]);
                continue;
            };
            let (header, head) = self.merger.head(joined).split_at(vnet::LEN);
            let mut frame = head.to_vec();
            for packet in of_run {
                frame.extend(&packet.data()[joined.payload..]);
            }
            let mut taken = self.pool_packet();
            assert!(vnet::read(header.try_into().unwrap(), taken.meta_mut(), 0));
            let meta = taken.meta();
            assert!(
                meta.offload
                    .contains(Offload::GSO_TCP4 | Offload::CSUM_PARTIAL)
            );
            assert_eq!((meta.csum_start, meta.csum_offset), (34, 16));
            let mut segments = Segments::new(&frame, meta.gso_size).unwrap();
            let mut buffer = [0; 2048];
            let mut cut = Vec::new();
            while let Some(len) = segments.write_next(&mut buffer) {
                cut.push(buffer[..len].to_vec());
            }
            assert_eq!(cut.len(), run.packets);
            runs.push(cut);
        }
        assert!(packets.next().is_none());
        runs
    }

    fn pool_packet(&self) -> Packet {
        PoolCache::new(&[]).get(&self.pool).unwrap()
    }

    fn plan(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
        let mut burst = self.burst(frames);
        self.merger.plan(&mut burst, 1514);
        self.leaves(&burst)
    }
}

#[test]
fn connections_that_take_turns_are_joined_each() {
    let mut stand = Stand::new();
    let turns = |number: u16| [1, 2, 3].map(|flow| segment(flow, number, 100, flag::ACK));
    let mut frames: Vec<_> = (0..20).flat_map(turns).collect();
    frames.insert(7, datagram(1));
    frames.insert(30, datagram(2));
    let runs = stand.plan(&frames);
    let lens: Vec<_> = runs.iter().map(Vec::len).collect();
    assert_eq!(lens, [20, 20, 20, 1, 1]);
    let of = |flow| (0..20).map(move |number| segment(flow, number, 100, flag::ACK));
    assert!(runs[1].iter().cloned().eq(of(2)));
    assert_eq!(runs[3..], [[datagram(1)], [datagram(2)]]);
}

#[test]
fn a_connection_is_not_joined_across_what_goes_alone() {
    let mut stand = Stand::new();
    let data = |number| segment(1, number, 100, flag::ACK);
    let lens = |stand: &mut Stand, between: Vec<u8>| {
        let frames = [data(0), data(1), between, data(2), data(3)];
        let runs = stand.plan(&frames);
        assert_eq!(runs.concat(), frames, "nothing overtakes");
        runs.iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(lens(&mut stand, segment(1, 2, 0, flag::ACK)), [2, 1, 2]);
    assert_eq!(lens(&mut stand, segment(1, 2, 100, flag::RST)), [2, 1, 2]);
    let mut fragment = segment(9, 2, 100, flag::ACK);
    fragment[20] = 0x20;
    assert_eq!(lens(&mut stand, fragment), [2, 1, 2], "it may be of any");
    let mut wrong = segment(1, 2, 100, flag::ACK);
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(lens(&mut stand, wrong), [2, 1, 2], "it must stay wrong");
    let mut wrong = segment(1, 2, 100, flag::ACK);
    wrong[24] ^= 1;
    assert_eq!(
        lens(&mut stand, wrong),
        [2, 1, 2],
        "so must the header's sum"
    );
    // A segment of another connection does not interfere.
    let frames = [data(0), segment(2, 0, 0, flag::ACK), data(1)];
    let lens: Vec<_> = stand.plan(&frames).iter().map(Vec::len).collect();
    assert_eq!(lens, [2, 1]);
}

#[test]
fn a_first_segment_that_is_wrong_stays_alone() {
    let mut stand = Stand::new();
    let mut frames: Vec<_> = (0..4).map(|at| segment(1, at, 100, flag::ACK)).collect();
    frames[0][60] ^= 1;
    let runs = stand.plan(&frames);
    assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(runs.concat(), frames);
}

#[test]
fn what_a_device_has_to_finish_or_refuse_is_seen() {
    let mut stand = Stand::new();
    let frames: Vec<_> = (0..3).map(|at| segment(1, at, 1460, flag::ACK)).collect();
    let lens = |stand: &mut Stand, most, mark: &dyn Fn(&mut Packet)| {
        let mut burst = stand.burst(&frames);
        mark(&mut burst.as_packets_mut()[1]);
        stand.merger.plan(&mut burst, most);
        let runs = stand.merger.runs();
        runs.iter().map(|run| run.packets).collect::<Vec<_>>()
    };
    assert_eq!(lens(&mut stand, 1514, &|_| {}), [3]);
    assert_eq!(
        lens(&mut stand, 1513, &|_| {}),
        [1, 1, 1],
        "longer than the MTU"
    );
    // An unfinished checksum is as good as a right one, where it is TCP's.
    let partial = |start, offset| {
        move |packet: &mut Packet| {
            packet.data_mut()[50] ^= 1;
            let meta = packet.meta_mut();
            meta.offload.insert(Offload::CSUM_PARTIAL);
            (meta.csum_start, meta.csum_offset) = (start, offset);
        }
    };
    assert_eq!(lens(&mut stand, 1514, &partial(34, 16)), [3]);
    assert_eq!(lens(&mut stand, 1514, &partial(34, 6)), [1, 1, 1]);
    assert_eq!(lens(&mut stand, 1514, &partial(14, 10)), [1, 1, 1]);
    let unsegmented = |packet: &mut Packet| {
        packet.meta_mut().offload.insert(Offload::GSO_TCP4);
        packet.meta_mut().gso_size = 500;
    };
    assert_eq!(lens(&mut stand, 1514, &unsegmented), [1, 1, 1]);
}

#[test]
fn a_plan_can_be_undone() {
    let mut stand = Stand::new();
    let flows = |number: u16| [1, 2].map(|flow| segment(flow, number, 100, flag::ACK));
    let frames: Vec<_> = (0..5).flat_map(flows).collect();
    let mut burst = stand.burst(&frames);
    stand.merger.plan(&mut burst, 1514);
    stand.merger.undo(0);
    let lens: Vec<_> = stand.leaves(&burst).iter().map(Vec::len).collect();
    assert_eq!(lens, [1, 1, 1, 1, 1, 5]);
}

/// Random mixtures: nothing is lost, added or changed, and each connection keeps its order.
#[test]
fn each_connection_keeps_its_order() {
    let mut stand = Stand::new();
    for seed in 0..300_u64 {
        let mut state = seed * 2 + 1;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            (state >> 33) % below
        };
        let flows = 1 + random(12) as u16;
        let mut numbers = [0_u16; 13];
        let frames: Vec<_> = (0..64)
            .map(|_| {
                let flow = 1 + random(u64::from(flows)) as u16;
                let number = &mut numbers[usize::from(flow)];
                *number += 1 + u16::from(random(20) == 0);
                let flags = match random(12) {
                    0 => flag::ACK | flag::PSH,
                    1 => flag::ACK | flag::CWR,
                    2 => flag::SYN,
                    _ => flag::ACK,
                };
                let mut frame = segment(flow, *number, 64, flags);
                match random(25) {
                    0 => frame[20] = 0x20,
                    1 => frame[80] ^= 0x10,
                    _ => {}
                }
                frame
            })
            .collect();
        let left = stand.plan(&frames).concat();
        for flow in 1..=flows {
            let of = |frames: &[Vec<u8>]| -> Vec<Vec<u8>> {
                let is = |frame: &&Vec<u8>| frame[34..36] == flow.to_be_bytes();
                frames.iter().filter(is).cloned().collect()
            };
            assert_eq!(of(&left), of(&frames), "seed {seed}, connection {flow}");
        }
        assert_eq!(left.len(), frames.len());
    }
}
