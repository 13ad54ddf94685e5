//! vhost and virtio_user: the pair over one socket, either way round, of all kinds of ring.

use crate::suite::{Pair, Wire};
use linerate_drivers::Drivers;
use linerate_testkit::Scratch;

/// `driver` and `device`: options of the virtio_user and the vhost port.
fn wire(name: &'static str, driver: &'static str, device: &'static str) -> Wire {
    let pair = move || {
        let folder = Scratch::new();
        let socket = folder.path().join("s");
        let mut drivers = Drivers::new();
        let mut open = |kind, options| {
            let spec = format!("{kind}:{},{options}", socket.display());
            drivers.open(&spec).unwrap()
        };
        let (a, b) = (open("virtio_user", driver), open("vhost", device));
        Ok(Pair {
            a,
            b,
            guard: Box::new(folder),
        })
    };
    Wire::new(name, pair)
}

/// The same with the device as the first end, which is the one that sends.
fn swapped(wire: Wire) -> Wire {
    let Wire { open, .. } = wire;
    let pair = move || {
        let Pair { a, b, guard } = open()?;
        Ok(Pair { a: b, b: a, guard })
    };
    Wire {
        open: Box::new(pair),
        ..wire
    }
}

#[test]
fn packed_rings_conform_both_ways() {
    wire("virtio_user to vhost, packed", "", "").conforms();
    swapped(wire("vhost to virtio_user, packed", "", "")).conforms();
}

#[test]
fn split_rings_conform_both_ways() {
    wire("virtio_user to vhost, split", "packed=off", "").conforms();
    swapped(wire(
        "vhost to virtio_user, split",
        "packed=off,in_order=off",
        "",
    ))
    .conforms();
}

#[test]
fn a_driver_that_listens_conforms() {
    let wire = wire("virtio_user as server", "role=server", "role=client");
    Wire {
        notices_peer: true,
        ..swapped(wire)
    }
    .conforms();
}

#[test]
fn two_queues_conform() {
    Wire {
        queues: 2,
        ..wire("two queues, packed", "queues=2", "queues=2")
    }
    .conforms();
    Wire {
        queues: 2,
        ..swapped(wire("two queues, split", "queues=2,packed=off", "queues=2"))
    }
    .conforms();
}

/// Frames lie where they are sent from, and come to where they stay.
#[test]
fn drivers_that_lend_their_slots_conform_both_ways() {
    for (name, driver) in [
        ("packed, slots lent", "trust=full"),
        ("packed in any order, slots lent", "trust=full,in_order=off"),
        ("split, slots lent", "trust=full,packed=off"),
        (
            "split in any order, slots lent",
            "trust=full,packed=off,in_order=off",
        ),
    ] {
        wire(name, driver, "").conforms();
        swapped(wire(name, driver, "")).conforms();
    }
    let two = || Wire {
        queues: 2,
        ..wire("two queues, slots lent", "queues=2,trust=full", "queues=2")
    };
    two().conforms();
    swapped(two()).conforms();
}
