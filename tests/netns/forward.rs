//! Two hosts joined only by `linerate l2fwd`, with each kind of port: ping, TCP, a file, VLANs, and
//! the MAC update.

use linerate_testkit::Scratch;
use linerate_testkit::capture::{self, Tcpdump};
use linerate_testkit::cli::L2fwd;
use linerate_testkit::netns::{Stand, backlog_drops};
use linerate_testkit::{harness::Test, tests};
use linerate_testkit::{has, traffic};
use rustix::process::Signal;
use std::time::Instant;

pub(crate) const TESTS: &[Test] = tests![
    af_packet_joins_two_hosts,
    af_packet_joins_two_hosts_without_offloads,
    af_xdp_joins_two_hosts,
    af_xdp_joins_two_hosts_without_offloads,
    af_xdp_and_af_packet_join_two_hosts,
    af_packet_and_af_xdp_join_two_hosts,
    taps_join_two_hosts,
    #[ignore = "long: 10 s of TCP each way, and 100 MB"]
    tcp_through_af_packet,
    #[ignore = "long: 10 s of TCP each way, and 100 MB"]
    tcp_through_af_packet_without_offloads,
    #[ignore = "long: 10 s of TCP each way, and 100 MB"]
    tcp_through_af_xdp,
    #[ignore = "long: 10 s of TCP each way, and 100 MB"]
    tcp_through_af_xdp_without_offloads,
    #[ignore = "long: 10 s of TCP each way, and 100 MB"]
    tcp_through_af_xdp_and_af_packet,
    #[ignore = "long: 10 s of TCP each way, and 100 MB"]
    tcp_through_taps,
    vlan_tags_cross_af_packet,
    vlan_tags_cross_af_xdp,
    vlan_tags_cross_from_af_xdp_to_af_packet,
    vlan_tags_cross_taps,
    macs_are_updated_over_af_packet,
    macs_are_updated_over_af_xdp,
];

/// A stand on which linerate forwards between these two ports, `None` where it cannot be made.
fn joined(ports: &str, options: &str, programs: &[&str], plain: bool) -> Option<(Stand, L2fwd)> {
    if !has(&["ping", "setpriv"]) || !has(programs) {
        return None;
    }
    let stand = Stand::new()?;
    let stand = if plain { stand.plain() } else { stand };
    let l2fwd = L2fwd::start(&stand.mid, &format!("{ports} {options}"));
    if ports.contains("tap:") {
        stand.bridge_taps();
    }
    Some((stand, l2fwd))
}

/// 100 pings of three sizes, none lost; a small file; totals without a drop.
fn short(ports: &str, plain: bool) {
    let Some((stand, l2fwd)) = joined(ports, "--no-mac-update", &["ethtool", "sha256sum"], plain)
    else {
        return;
    };
    let scratch = Scratch::new();
    for bytes in [18, 56, 1472] {
        traffic::ping_sized(&stand, 100, bytes);
    }
    traffic::file(&stand, 2, &scratch);
    let totals = l2fwd.stop(Signal::INT);
    assert!(
        totals.count(0, "rx_packets") > 300 && totals.count(1, "tx_packets") > 300,
        "{totals}"
    );
    let drops = totals.drops();
    assert!(drops.is_empty(), "{drops:?} in {totals}");
}

/// 10 s of TCP each way and 100 MB in a file.
fn long(ports: &str, plain: bool) {
    let programs = ["iperf3", "ethtool", "sha256sum"];
    let Some((stand, l2fwd)) = joined(ports, "--no-mac-update", &programs, plain) else {
        return;
    };
    let scratch = Scratch::new();
    traffic::ping(&stand, 100);
    traffic::iperf3(&stand, 10, "");
    traffic::iperf3(&stand, 10, "--reverse");
    traffic::file(&stand, 100, &scratch);
    traffic::ping(&stand, 100);
    l2fwd.stop(Signal::INT);
}

fn af_packet_joins_two_hosts() {
    short("af_packet:vethA af_packet:vethB", false);
}

fn af_packet_joins_two_hosts_without_offloads() {
    short("af_packet:vethA af_packet:vethB", true);
}

fn af_xdp_joins_two_hosts() {
    short("af_xdp:vethA af_xdp:vethB", false);
}

fn af_xdp_joins_two_hosts_without_offloads() {
    short("af_xdp:vethA af_xdp:vethB", true);
}

fn af_xdp_and_af_packet_join_two_hosts() {
    short("af_xdp:vethA af_packet:vethB", false);
}

fn af_packet_and_af_xdp_join_two_hosts() {
    short("af_packet:vethA af_xdp:vethB", false);
}

fn taps_join_two_hosts() {
    short("tap:tap0 tap:tap1", false);
}

fn tcp_through_af_packet() {
    long("af_packet:vethA af_packet:vethB", false);
}

fn tcp_through_af_packet_without_offloads() {
    long("af_packet:vethA af_packet:vethB", true);
}

fn tcp_through_af_xdp() {
    long("af_xdp:vethA af_xdp:vethB", false);
}

fn tcp_through_af_xdp_without_offloads() {
    long("af_xdp:vethA af_xdp:vethB", true);
}

fn tcp_through_af_xdp_and_af_packet() {
    long("af_xdp:vethA af_packet:vethB", false);
}

fn tcp_through_taps() {
    long("tap:tap0 tap:tap1", false);
}

/// Frames of the ethertype for local experiments (IEEE 802) behind tags.
fn experiments(tags: &[(u16, u16)]) -> Vec<Vec<u8>> {
    let frame = |(number, len): (u8, usize)| {
        let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa];
        frame.extend(
            tags.iter()
                .flat_map(|(tpid, tci)| [tpid.to_be_bytes(), tci.to_be_bytes()].concat()),
        );
        frame.extend([0x88, 0xb5, number]);
        frame.resize(len, number);
        frame
    };
    (0..)
        .zip([60, 61, 64, 128, 1000, 1400, 1514])
        .map(frame)
        .collect()
}

/// Sends from left; the frames must arrive as they were sent, or as `expected` makes them. Repeats
/// if some do not and the kernel counted losses.
fn sent_arrive(stand: &Stand, frames: &[Vec<u8>], expected: impl Fn(&[u8]) -> Vec<u8>) {
    let scratch = Scratch::new();
    let expected: Vec<Vec<u8>> = frames.iter().map(|frame| expected(frame)).collect();
    for _ in 0..traffic::ROUNDS {
        let before = backlog_drops();
        let onlooker = Tcpdump::start(&stand.right, "veth1", "in", &scratch);
        capture::inject(&stand.left, "veth0", frames, &scratch);
        let sent = Instant::now();
        let excused = || backlog_drops() > before && sent.elapsed().as_secs() >= 5;
        let arrived = onlooker.expect(|| if excused() { 0 } else { frames.len() as u64 });
        if arrived.len() >= frames.len() {
            assert!(
                arrived == expected,
                "arrived {arrived:02x?}\nexpected {expected:02x?}"
            );
            return;
        }
    }
    panic!(
        "the kernel lost frames in each of {} rounds",
        traffic::ROUNDS
    );
}

fn vlans_cross(ports: &str) {
    let Some((stand, l2fwd)) = joined(ports, "--no-mac-update", &["tcpdump"], false) else {
        return;
    };
    for tags in [
        &[][..],
        &[(0x8100, 0x6005)],
        &[(0x88a8, 7), (0x8100, 0x0fff)],
        &[(0x8100, 0)],
    ] {
        sent_arrive(&stand, &experiments(tags), <[u8]>::to_vec);
    }
    l2fwd.stop(Signal::INT);
}

fn vlan_tags_cross_af_packet() {
    vlans_cross("af_packet:vethA af_packet:vethB");
}

fn vlan_tags_cross_af_xdp() {
    vlans_cross("af_xdp:vethA af_xdp:vethB");
}

fn vlan_tags_cross_from_af_xdp_to_af_packet() {
    vlans_cross("af_xdp:vethA af_packet:vethB");
}

fn vlan_tags_cross_taps() {
    vlans_cross("tap:tap0 tap:tap1");
}

/// As DPDK's l2fwd: source the transmitting port's own address, destination 02:00:00:00:00:NN with
/// its number.
fn macs_are_updated(ports: &str) {
    let Some((stand, l2fwd)) = joined(ports, "", &["tcpdump"], false) else {
        return;
    };
    let own = stand.mid.mac("vethB");
    sent_arrive(&stand, &experiments(&[]), |frame| {
        [&[2, 0, 0, 0, 0, 1][..], &own, &frame[12..]].concat()
    });
    l2fwd.stop(Signal::INT);
}

fn macs_are_updated_over_af_packet() {
    macs_are_updated("af_packet:vethA af_packet:vethB");
}

fn macs_are_updated_over_af_xdp() {
    macs_are_updated("af_xdp:vethA af_xdp:vethB");
}
