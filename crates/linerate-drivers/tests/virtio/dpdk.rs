//! `dpdk-testpmd` at the other end, forwarding each frame to where it came from.

use crate::{End, testpmd};
use linerate_testkit::process::Running;
use linerate_testkit::{Scratch, skip};
use rustix::process::Signal;

/// testpmd with this device, `queues` both ways, or a line that says why there is none.
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

/// So many frames through each of the first queues and back, and then `kill -9` of the peer.
fn echo_and_kill(end: &mut End, mut peer: Running, queues: u16, frames: u64) {
    end.wait_up();
    for queue in 0..usize::from(queues) {
        end.echo(queue, frames, 160, 1514);
    }
    peer.signal(Signal::KILL);
    peer.end();
}

/// A port of ours that is a server, with DPDK's virtio-user at it.
fn with_virtio_user(options: &str, queues: u16, returns: bool) {
    let _turn = testpmd::turn();
    let folder = Scratch::new();
    let socket = folder.path().join("s");
    let mut end = End::new(
        &format!("vhost:{},queues={queues}", socket.display()),
        queues,
    );
    let device = format!(
        "net_virtio_user0,path={},queues={queues},queue_size=256,{options}",
        socket.display()
    );
    let Some(peer) = forwarding(&device, queues) else {
        return;
    };
    echo_and_kill(&mut end, peer, queues, 4_000);
    let reason = end.wait_down();
    assert!(reason.contains("closed"), "{reason}");
    if returns {
        let peer = forwarding(&device, queues).unwrap();
        echo_and_kill(&mut end, peer, 1, 1_000);
    }
    assert_eq!(end.port.stats().violations, []);
    end.finish();
}

#[test]
fn dpdk_drives_a_split_ring() {
    with_virtio_user("mrg_rxbuf=1,in_order=0,packed_vq=0", 1, false);
}

#[test]
fn dpdk_drives_a_split_ring_in_order_without_mergeable_buffers() {
    with_virtio_user("mrg_rxbuf=0,in_order=1,packed_vq=0", 2, true);
}

#[test]
fn dpdk_drives_a_packed_ring() {
    with_virtio_user("mrg_rxbuf=1,in_order=0,packed_vq=1", 2, true);
}

#[test]
fn dpdk_drives_a_packed_ring_in_order_by_vectors() {
    with_virtio_user("mrg_rxbuf=0,in_order=1,packed_vq=1,vectorized=1", 1, false);
}

/// A port of ours with DPDK's vhost library at it, which listens.
fn with_vhost(options: &str, queues: u16, returns: bool) {
    let _turn = testpmd::turn();
    let folder = Scratch::new();
    let socket = folder.path().join("s");
    let device = format!("net_vhost0,iface={},queues={queues}", socket.display());
    let Some(peer) = forwarding(&device, queues) else {
        return;
    };
    let spec = format!("virtio_user:{},queues={queues},{options}", socket.display());
    let mut end = End::new(&spec, queues);
    echo_and_kill(&mut end, peer, queues, 4_000);
    end.wait_down();
    std::fs::remove_file(&socket).unwrap(); // DPDK does not take it over from the dead
    if returns {
        let peer = forwarding(&device, queues).unwrap();
        echo_and_kill(&mut end, peer, 1, 1_000);
    }
    assert_eq!(end.port.stats().violations, []);
    end.finish();
}

#[test]
fn dpdk_is_the_device_of_a_split_ring() {
    with_vhost("packed=off,in_order=off", 1, false);
}

#[test]
fn dpdk_is_the_device_of_a_split_ring_in_order_without_mergeable_buffers() {
    with_vhost("packed=off,in_order=on,mergeable=off", 2, true);
}

#[test]
fn dpdk_is_the_device_of_a_packed_ring() {
    with_vhost("packed=on,in_order=off", 2, true);
}

#[test]
fn dpdk_is_the_device_of_a_packed_ring_in_order() {
    with_vhost("packed=on,in_order=on,mergeable=off", 1, false);
}
