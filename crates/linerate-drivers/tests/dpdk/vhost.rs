//! vhost and virtio_user: with DPDK's `net_virtio_user` and `net_vhost` at the other end, and with
//! our own ports there.

use crate::bench::{BURST, Bench};
use crate::child::with_ours;
use crate::testpmd;
use linerate_testkit::process::Running;
use linerate_testkit::{Scratch, skip};

/// Frames under way in rings of 256 entries.
const WINDOW: u64 = 160;

/// testpmd with this device, once it forwards.
fn forwarding(device: &str, queues: u16) -> Option<Running> {
    if !rustix::process::geteuid().is_root() {
        skip("dpdk-testpmd wants to be root");
        return None;
    }
    let mut peer = testpmd::echo(device, queues)?;
    // It sets the device up when it probes it, and resets it for its configuration: what is sent
    // between is lost.
    peer.wait("testpmd to forward", |stdout, _| {
        stdout.text().contains("packet forwarding - ports")
    });
    Some(peer)
}

/// A port of ours that is a server, with DPDK's virtio-user at it.
fn with_virtio_user(options: &str, queues: u16) -> Bench {
    let folder = Scratch::new();
    let socket = folder.file("s");
    let spec = format!("vhost:{socket},queues={queues}");
    let device = format!("net_virtio_user0,path={socket},queues={queues},queue_size=256,{options}");
    Bench::new(&spec, queues, WINDOW, move || {
        let _kept = &folder;
        forwarding(&device, queues)
    })
}

/// A port of ours with DPDK's vhost library at it, which listens.
fn with_vhost(options: &str, queues: u16) -> Bench {
    let folder = Scratch::new();
    let socket = folder.file("s");
    let spec = format!("virtio_user:{socket},queues={queues},{options}");
    let device = format!("net_vhost0,iface={socket},queues={queues}");
    Bench::new(&spec, queues, WINDOW, move || {
        // DPDK does not take it over from the dead.
        let _ = std::fs::remove_file(folder.file("s"));
        forwarding(&device, queues)
    })
}

/// Frames there and back; with `returns` also after a kill.
fn echoes(mut bench: Bench, frames: u64, returns: bool) {
    let _turn = testpmd::turn();
    for frames in [frames, frames / 4]
        .into_iter()
        .take(1 + usize::from(returns))
    {
        let Some(peer) = bench.peer() else { return };
        bench.exchange(frames, 60, &peer);
        bench.exchange(frames / 10, 1514, &peer);
        peer.signal(rustix::process::Signal::KILL);
        bench.wait_link(false, &peer);
    }
    bench.finish();
}

fn survives_kills(mut bench: Bench, kills: usize) {
    let _turn = testpmd::turn();
    if bench.survives_kills(kills) {
        bench.finish();
    }
}

const SPLIT: &str = "mrg_rxbuf=1,in_order=0,packed_vq=0";
const PACKED: &str = "mrg_rxbuf=1,in_order=0,packed_vq=1";

#[test]
fn dpdk_drives_a_split_ring() {
    echoes(with_virtio_user(SPLIT, 1), 4000, false);
}

#[test]
fn dpdk_drives_a_split_ring_in_order_without_mergeable_buffers() {
    echoes(
        with_virtio_user("mrg_rxbuf=0,in_order=1,packed_vq=0", 2),
        4000,
        true,
    );
}

#[test]
fn dpdk_drives_a_packed_ring() {
    echoes(with_virtio_user(PACKED, 2), 4000, true);
}

#[test]
fn dpdk_drives_a_packed_ring_in_order_by_vectors() {
    let options = "mrg_rxbuf=0,in_order=1,packed_vq=1,vectorized=1";
    echoes(with_virtio_user(options, 1), 4000, false);
}

#[test]
fn dpdk_is_the_device_of_a_split_ring() {
    echoes(with_vhost("packed=off,in_order=off", 1), 4000, false);
}

#[test]
fn dpdk_is_the_device_of_a_split_ring_in_order_without_mergeable_buffers() {
    echoes(
        with_vhost("packed=off,in_order=on,mergeable=off", 2),
        4000,
        true,
    );
}

#[test]
fn dpdk_is_the_device_of_a_packed_ring() {
    echoes(with_vhost("packed=on,in_order=off", 2), 4000, true);
}

#[test]
fn dpdk_is_the_device_of_a_packed_ring_in_order() {
    echoes(
        with_vhost("packed=on,in_order=on,mergeable=off", 1),
        4000,
        false,
    );
}

/// DPDK copies into and out of slots of ours.
#[test]
fn dpdk_is_the_device_of_rings_of_slots() {
    for options in ["packed=on", "packed=on,in_order=off", "packed=off"] {
        echoes(with_vhost(&format!("trust=full,{options}"), 1), 4000, true);
    }
    echoes(
        with_vhost("trust=full,packed=on,mergeable=off", 2),
        4000,
        false,
    );
}

#[test]
fn slots_come_home_when_a_device_is_killed() {
    let ours = "virtio_user:PATH,role=server,trust=full";
    survives_kills(with_ours(ours, "vhost:PATH,role=client", WINDOW), 3);
    survives_kills(with_vhost("trust=full,packed=off,in_order=off", 1), 2);
}

/// What a back end leaves in the rings the next one gets.
fn loses_only_what_was_taken(options: &str, kills: u64) {
    loses_at_most(BURST, &format!("inflight=on,{options}"), kills);
}

fn loses_at_most(each: u64, options: &str, kills: u64) {
    let _turn = testpmd::turn();
    let ours = format!("virtio_user:PATH,{options}");
    let mut bench = with_ours(&ours, "vhost:PATH", WINDOW);
    bench.loses_at_most(each, kills);
    bench.finish();
}

const KINDS: [&str; 4] = [
    "packed=off,in_order=off",
    "packed=off,in_order=on",
    "packed=on,in_order=off",
    "packed=on,in_order=on",
];

#[test]
fn what_is_in_a_split_ring_outlives_its_back_end() {
    loses_only_what_was_taken("packed=off,in_order=off", 3);
}

#[test]
fn what_is_in_a_packed_ring_outlives_its_back_end() {
    loses_only_what_was_taken("packed=on,in_order=off", 3);
}

/// Both rings of 256 entries, too, and nothing of them comes twice.
#[test]
fn what_is_in_the_rings_is_gone_where_nobody_keeps_it() {
    loses_at_most(2 * 256 + BURST, "inflight=off", 3);
}

#[test]
fn a_driver_of_ours_is_killed_and_comes_again() {
    survives_kills(with_ours("vhost:PATH", "virtio_user:PATH", WINDOW), 2);
}

#[test]
#[ignore = "long: ten million frames in each kind of ring, to and from DPDK"]
fn vhost_with_dpdk_moves_ten_million_frames() {
    echoes(with_virtio_user(SPLIT, 1), 10_000_000, false);
    echoes(with_virtio_user(PACKED, 1), 10_000_000, false);
    echoes(with_vhost("packed=off,in_order=off", 1), 10_000_000, false);
    echoes(with_vhost("packed=on,in_order=off", 1), 10_000_000, false);
    echoes(with_vhost("trust=full", 1), 10_000_000, false);
}

#[test]
#[ignore = "long: ten million frames in each kind of ring"]
fn vhost_and_virtio_user_move_ten_million_frames() {
    // Long rings: where both have no CPU at a time, a turn takes more of them.
    for options in KINDS {
        eprintln!("{options}");
        let ours = format!("virtio_user:PATH,size=32768,{options}");
        echoes(with_ours(&ours, "vhost:PATH", 30_000), 10_000_000, false);
    }
    let theirs = "virtio_user:PATH,role=server,size=32768";
    let bench = with_ours("vhost:PATH,role=client", theirs, 30_000);
    echoes(bench, 10_000_000, false);
}

#[test]
#[ignore = "long: a hundred kills of DPDK"]
fn vhost_survives_a_hundred_kills_of_dpdk() {
    survives_kills(with_virtio_user(SPLIT, 1), 25);
    survives_kills(with_virtio_user(PACKED, 1), 25);
    survives_kills(with_vhost("packed=off,in_order=off", 1), 25);
    survives_kills(with_vhost("packed=on,in_order=off", 1), 25);
    survives_kills(with_vhost("trust=full", 1), 25);
}

#[test]
#[ignore = "long: a hundred kills"]
fn vhost_and_virtio_user_survive_a_hundred_kills() {
    for options in KINDS {
        loses_only_what_was_taken(options, 25);
    }
    survives_kills(
        with_ours("vhost:PATH", "virtio_user:PATH,packed=off", WINDOW),
        50,
    );
    survives_kills(
        with_ours("vhost:PATH", "virtio_user:PATH,packed=on", WINDOW),
        50,
    );
}
