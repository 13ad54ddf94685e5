//! af_packet against veth pairs.

use crate::{End, frame, is_ours, namespace, pools, tagged, wait};
use linerate_core::packet::{Burst, Offload};
use linerate_core::port::{Link, QueueStats, SleepOn};
use linerate_drivers::offload::Finisher;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::offload::Segments;

#[test]
fn stripped_tags_come_back_byte_for_byte() {
    ["", ",handover=frame"]
        .iter()
        .for_each(|options| tags_come_back(options));
}

fn tags_come_back(options: &str) {
    let Some(namespace) = namespace() else { return };
    namespace.veth("g0", "d0");
    let _inside = namespace.enter();
    let pools = pools(false);
    let (mut g0, mut d0) = (
        End::new("af_packet:g0", 1, &pools),
        End::new(&format!("af_packet:d0{options}"), 1, &pools),
    );
    let stacks: [&[(u16, u16)]; 5] = [
        &[],
        &[(0x8100, 0x6064)],
        &[(0x88a8, 5)],
        &[(0x8100, 0)],
        &[(0x88a8, 0xfff), (0x8100, 7)],
    ];
    for (number, tags) in (0..).zip(stacks) {
        let sent = tagged(tags, number, 100);
        assert_eq!(g0.send(&sent), 1);
        assert_eq!(d0.expect(), sent, "tags {tags:x?}");
    }
    // The longest frame may have a tag on top.
    let longest = tagged(&[(0x8100, 9)], 9, 1514);
    assert_eq!(g0.send(&longest), 1);
    assert_eq!(d0.expect(), longest);
}

#[test]
fn what_is_sent_does_not_come_back() {
    let Some(namespace) = namespace() else { return };
    namespace.veth("g0", "d0");
    let _inside = namespace.enter();
    let pools = pools(false);
    let (mut g0, mut d0) = (
        End::new("af_packet:g0", 1, &pools),
        End::new("af_packet:d0", 1, &pools),
    );
    assert_eq!(g0.send(&frame(1, 60)), 1);
    assert_eq!(d0.expect(), frame(1, 60));
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(g0.receive().iter().all(|(_, data)| !is_ours(data)));
}

#[test]
fn several_queues_share_the_flows() {
    let Some(namespace) = namespace() else { return };
    namespace.veth("g0", "d0");
    let _inside = namespace.enter();
    let pools = pools(false);
    let mut g0 = End::new("af_packet:g0", 1, &pools);
    for fanout in ["hash", "lb", "rnd", "cpu", "qm"] {
        let mut d0 = End::new(&format!("af_packet:d0,queues=3,fanout={fanout}"), 3, &pools);
        let (mut numbers, mut queues) = (Vec::new(), [0; 3]);
        for number in 0..300 {
            assert_eq!(g0.send(&frame(number, 60)), 1);
        }
        wait(fanout, || {
            for (queue, data) in d0.receive().into_iter().filter(|(_, data)| is_ours(data)) {
                numbers.push(u64::from_be_bytes(data[14..22].try_into().unwrap()));
                queues[queue] += 1;
            }
            numbers.len() == 300
        });
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..300), "each once");
        if fanout == "lb" {
            assert!(
                queues.iter().all(|&count| count > 90),
                "in turns: {queues:?}"
            );
        }
    }
}

#[test]
fn a_full_ring_counts_what_it_missed() {
    let Some(namespace) = namespace() else { return };
    namespace.veth("g0", "d0");
    let _inside = namespace.enter();
    let pools = pools(false);
    let mut g0 = End::new("af_packet:g0", 1, &pools);
    let mut d0 = End::new("af_packet:d0,block_kib=4,blocks=2", 1, &pools);
    for number in 0..100 {
        assert_eq!(g0.send(&frame(number, 1000)), 1);
    }
    let mut got = 0;
    wait("received and missed to make sent", || {
        got += d0
            .receive()
            .iter()
            .filter(|(_, data)| is_ours(data))
            .count() as u64;
        got + d0.drops("missed") == 100
    });
    assert!(got > 0 && got < 100);
}

#[test]
fn a_deleted_interface_is_reported_and_taken_up_again() {
    let Some(namespace) = namespace() else { return };
    namespace.veth("g0", "d0");
    namespace.veth("other0", "other1");
    let _inside = namespace.enter();
    let pools = pools(false);
    for queues in [1, 2] {
        let mut d0 = End::new(&format!("af_packet:d0,queues={queues}"), queues, &pools);
        let mut rest = End::new("af_packet:other0", 1, &pools);
        namespace.ip("link del d0");
        assert_eq!(
            d0.port.link(),
            Link::Down("interface `d0` was deleted".into())
        );
        assert_eq!(d0.send(&frame(0, 60)), 1, "taken, dropped, counted");
        assert_eq!(d0.drops("link_down"), 1);
        wait("the queues to notice", || {
            d0.receive();
            d0.queues
                .rx
                .iter_mut()
                .all(|queue| matches!(queue.sleep_on(), SleepOn::Nothing))
        });
        assert_eq!(rest.send(&frame(0, 60)), 1);
        assert_eq!(rest.port.link(), Link::Up, "the rest goes on");

        namespace.veth("g0", "d0");
        wait("the link", || d0.port.link() == Link::Up);
        let mut g0 = End::new("af_packet:g0", 1, &pools);
        wait("frames both ways", || {
            g0.send(&frame(1, 60));
            d0.send(&frame(2, 60));
            let came = |end: &mut End| end.receive().iter().any(|(_, data)| is_ours(data));
            came(&mut d0) && came(&mut g0)
        });
    }
}

#[test]
fn an_interface_may_go_down_and_up() {
    let Some(namespace) = namespace() else { return };
    namespace.veth("g0", "d0");
    let _inside = namespace.enter();
    let pools = pools(false);
    let (mut g0, mut d0) = (
        End::new("af_packet:g0", 1, &pools),
        End::new("af_packet:d0", 1, &pools),
    );
    namespace.ip("link set d0 down");
    assert!(matches!(d0.port.link(), Link::Down(why) if why.contains("ip link set d0 up")));
    assert_eq!(d0.send(&frame(0, 60)), 1);
    assert_eq!((d0.drops("link_down"), d0.receive().len()), (1, 0));
    namespace.ip("link set d0 up");
    wait("frames both ways", || {
        g0.send(&frame(1, 60));
        d0.send(&frame(2, 60));
        let came = |end: &mut End| end.receive().iter().any(|(_, data)| is_ours(data));
        came(&mut d0) && came(&mut g0)
    });
}

/// An unsegmented TCP frame of 4000 bytes of payload, its checksum unfinished, as metadata says.
fn unsegmented(tags: &[(u16, u16)]) -> (Vec<u8>, u16) {
    let mut plain = frame(0, 14 + 40 + 4000);
    plain[12..14].copy_from_slice(&[8, 0]);
    plain[14..34].copy_from_slice(&[
        0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    plain[16..18].copy_from_slice(&4040_u16.to_be_bytes());
    Ipv4::new_checked(&mut plain[14..]).unwrap().fill_checksum();
    plain[34..54].copy_from_slice(&[
        0, 7, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
    ]);
    let sum = Ipv4::new_checked(&plain[14..]).unwrap().pseudo_sum();
    plain[50..52].copy_from_slice(&sum.to_be_bytes());
    let tags = tags
        .iter()
        .flat_map(|(tpid, tci)| [tpid.to_be_bytes(), tci.to_be_bytes()].concat());
    let frame: Vec<u8> = plain[..12]
        .iter()
        .copied()
        .chain(tags)
        .chain(plain[12..].iter().copied())
        .collect();
    let csum_start = (frame.len() - 4020) as u16;
    (frame, csum_start)
}

#[test]
fn unsegmented_frames_pass_whole_also_with_tags() {
    ["", ",handover=frame"]
        .iter()
        .for_each(|options| unsegmented_frames_pass(options));
}

fn unsegmented_frames_pass(options: &str) {
    let Some(namespace) = namespace() else { return };
    namespace.veth("g0", "d0");
    let _inside = namespace.enter();
    let pools = pools(true);
    let (mut g0, mut d0) = (
        End::new("af_packet:g0", 1, &pools),
        End::new(&format!("af_packet:d0{options}"), 1, &pools),
    );
    for tags in [&[][..], &[(0x8100, 5)], &[(0x88a8, 5)]] {
        let (sent, csum_start) = unsegmented(tags);
        let mut burst = Burst::new();
        g0.cache
            .fill(pools.for_frame(sent.len()).unwrap(), &mut burst, 1);
        for packet in burst.iter_mut() {
            assert!(packet.set_data(&sent));
            let meta = packet.meta_mut();
            meta.offload = Offload::CSUM_PARTIAL | Offload::GSO_TCP4;
            (meta.csum_start, meta.csum_offset, meta.gso_size) = (csum_start, 16, 1000);
        }
        assert_eq!(g0.queues.tx[0].tx_burst(&mut burst, &mut g0.cache), 1);
        wait("the frame", || {
            d0.queues.rx[0].rx_burst(&mut burst, &mut d0.cache);
            burst.iter().any(|packet| packet.len() == sent.len())
        });
        let packet = burst
            .iter()
            .find(|packet| packet.len() == sent.len())
            .unwrap();
        assert_eq!(packet.data(), sent, "tags {tags:x?}");
        let meta = packet.meta();
        assert!(
            meta.offload
                .contains(Offload::CSUM_PARTIAL | Offload::GSO_TCP4)
        );
        assert_eq!(
            (meta.csum_start, meta.csum_offset, meta.gso_size),
            (csum_start, 16, 1000)
        );

        // For a port that takes no such frame it is cut.
        let (stats, mut segments) = (QueueStats::default(), Vec::new());
        Finisher::new(&pools).tx(&mut burst, &mut d0.cache, &stats, |burst, cache| {
            segments.extend(
                burst
                    .iter()
                    .map(|packet| packet.data().to_vec())
                    .filter(|data| data.len() > 1000),
            );
            let count = burst.len();
            cache.free(burst);
            count
        });
        assert_eq!((segments.len(), stats.segmented.read()), (4, 1));
        segments
            .iter()
            .for_each(|segment| crate::tcp::check(segment));
    }
}

/// With `gro=on` segments arrive as one frame where the device cuts, and where the kernel does for
/// it as those that were sent.
#[test]
fn joined_segments_arrive_whole_or_as_segments() {
    let Some(namespace) = namespace() else { return };
    namespace.veth("g0", "d0");
    let _inside = namespace.enter();
    let pools = pools(true);
    let mut g0 = End::new("af_packet:g0,gro=on", 1, &pools);
    let mut d0 = End::new("af_packet:d0", 1, &pools);
    for device_cuts in [true, false] {
        if !device_cuts {
            for feature in ["tso", "gso", "tx"] {
                namespace.run("ethtool", &format!("-K g0 {feature} off"));
            }
        }
        for tags in [&[][..], &[(0x8100, 5)]] {
            let (whole, _) = unsegmented(tags);
            let mut segments = Segments::new(&whole, 1000).unwrap();
            let (mut sent, mut buffer) = (Vec::new(), [0; 2048]);
            while let Some(len) = segments.write_next(&mut buffer) {
                sent.push(buffer[..len].to_vec());
            }
            let mut burst = Burst::new();
            g0.cache.fill(pools.primary(), &mut burst, sent.len());
            for (packet, segment) in burst.iter_mut().zip(&sent) {
                assert!(packet.set_data(segment));
            }
            assert_eq!(g0.queues.tx[0].tx_burst(&mut burst, &mut g0.cache), 4);
            let expected = match device_cuts {
                true => vec![whole.clone()],
                false => sent,
            };
            let mut came = Vec::new();
            wait("the frames", || {
                d0.queues.rx[0].rx_burst(&mut burst, &mut d0.cache);
                let ours = burst.iter().map(|packet| packet.data().to_vec());
                came.extend(ours.filter(|frame| frame[..12] == whole[..12]));
                d0.cache.free(&mut burst);
                came.len() >= expected.len()
            });
            assert_eq!(came, expected, "{device_cuts} {tags:x?}");
        }
    }
    let stats = g0.port.stats();
    assert_eq!((stats.tx_packets, stats.joined), (16, 16));
}

#[test]
fn unsegmented_frames_without_large_slots_are_counted() {
    ["", ",handover=frame"]
        .iter()
        .for_each(|options| unsegmented_frames_are_counted(options));
}

fn unsegmented_frames_are_counted(options: &str) {
    let Some(namespace) = namespace() else { return };
    namespace.veth("g0", "d0");
    let _inside = namespace.enter();
    let (small, both) = (pools(false), pools(true));
    let (mut g0, mut d0) = (
        End::new("af_packet:g0", 1, &both),
        End::new(&format!("af_packet:d0{options}"), 1, &small),
    );
    let (sent, csum_start) = unsegmented(&[]);
    let mut burst = Burst::new();
    g0.cache
        .fill(both.for_frame(sent.len()).unwrap(), &mut burst, 1);
    for packet in burst.iter_mut() {
        assert!(packet.set_data(&sent));
        let meta = packet.meta_mut();
        meta.offload = Offload::CSUM_PARTIAL | Offload::GSO_TCP4;
        (meta.csum_start, meta.csum_offset, meta.gso_size) = (csum_start, 16, 1000);
    }
    assert_eq!(g0.queues.tx[0].tx_burst(&mut burst, &mut g0.cache), 1);
    // An oversized frame that is not to be cut stays with the sender's counters.
    assert_eq!((g0.send(&frame(0, 1515)), g0.drops("oversize")), (1, 1));
    wait("the count", || {
        d0.receive();
        d0.drops("oversize") == 1
    });
}
