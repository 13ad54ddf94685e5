//! One guest with a device for each kind of ring.

use super::{Host, Nic, devices, ends_well, ping, up};
use linerate_testkit::guest::Guest;

/// Forwarded by one worker.
const NICS: [Nic; 6] = [
    Nic::new("split", "", ""),
    Nic::new("packed", "", ",packed=on"),
    Nic::new("single", "", ",mrg_rxbuf=off"),
    Nic::new("plain", ",offloads=off", ""),
    Nic::new("direct", "", ",indirect_desc=off,event_idx=off"),
    Nic::new("packedplain", ",offloads=off", ",packed=on,mrg_rxbuf=off"),
];
/// Forwarded by two.
const PAIRS: Nic = Nic::new("pairs", ",queues=2", ",mq=on");
const NETS: usize = NICS.len();

/// Pings of several sizes, bytes over TCP there and back, frames of 9000 bytes.
pub(super) fn every_kind_of_ring_carries_a_guests_traffic() {
    let Some(host) = Host::new() else { return };
    let l2fwd = host.l2fwd(0, &NICS, "");
    let two = "--queues 2 --bg 0 --io 1-2 --cpus 0,0,1";
    let with_pairs = host.l2fwd(NETS, &[PAIRS], two);
    let all = [&NICS[..], &[PAIRS]].concat();
    let Some(mut guest) = Guest::start(&devices(&host.scratch, &all, 2)) else {
        return;
    };
    up(&mut guest, all.len(), 2);
    for (net, nic) in all.iter().enumerate() {
        let at = format!("10.8.{net}.1");
        for bytes in [18, 56, 1472] {
            ping(&mut guest, &at, bytes);
        }
        host.there_and_back(&mut guest, net);
        // A driver without mergeable buffers or segments has buffers of 1514 bytes.
        if nic.name != "packedplain" {
            guest.run(&format!("ip link set dev eth{net} mtu 9000"));
            ping(&mut guest, &at, 8972);
            host.there_and_back(&mut guest, net);
        }
        let asked = format!("ethtool -k eth{net} | grep -w tcp-segmentation-offload:");
        let says_on = guest.run(&asked).contains(": on");
        assert_eq!(says_on, !nic.port.contains("offloads=off"));
    }
    both_pairs_carry_traffic(&host, &mut guest);

    let totals = ends_well(l2fwd);
    for (net, nic) in NICS.iter().enumerate() {
        let count = |counter: &str| totals.count(2 * net, counter);
        // What a guest does not take is finished here, and only that.
        let finished = [count("checksums_completed"), count("segmented")];
        let has_finished = finished.map(|count| count > 0);
        let is_plain = nic.port.contains("offloads=off");
        assert_eq!(has_finished, [is_plain; 2], "{}: {totals}", nic.name);
        let mean_bytes = count("rx_bytes") / count("rx_packets");
        assert!(is_plain || mean_bytes > 1514, "{}: {totals}", nic.name);
    }
    ends_well(with_pairs);
}

/// With two pairs of queues both carry traffic, both ways; with one, all goes through that.
#[track_caller]
fn both_pairs_carry_traffic(host: &Host, guest: &mut Guest) {
    let _server = host.iperf3(NETS);
    // A queue has the processor's number that sends.
    let load = format!(
        "set -e
        for cpu in 0 1; do for way in '' --reverse; do
            taskset -c $cpu iperf3 --client 10.8.{NETS}.1 --time 1 --parallel 8 $way > /dev/null
        done; done"
    );
    for pairs in [2, 1, 2] {
        guest.run(&format!("ethtool -L eth{NETS} combined {pairs}"));
        let before = counts(guest);
        guest.run(&load);
        let after = counts(guest);
        for queue in 0..pairs {
            let moved = [0, 1].map(|way| after[way][queue] - before[way][queue]);
            assert!(
                moved.iter().all(|frames| *frames > 100),
                "{before:?} {after:?}"
            );
        }
    }
}

/// Frames of each queue that is on, by the guest's driver: those received, and those sent.
#[track_caller]
fn counts(guest: &mut Guest) -> [Vec<u64>; 2] {
    let said = guest.run(&format!("ethtool -S eth{NETS}"));
    ["rx", "tx"].map(|way| {
        let counters = said.lines().filter_map(|line| line.trim().split_once(": "));
        let of_way = counters.filter(|(name, _)| {
            name.starts_with(&format!("{way}_queue_"))
                && name.ends_with("_packets")
                && !name.contains("xdp")
        });
        of_way.map(|(_, count)| count.parse().unwrap()).collect()
    })
}
