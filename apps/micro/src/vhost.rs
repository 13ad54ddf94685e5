//! vhost: from a virtio_user port, the driver, to a vhost port, the device; as `memif`'s rows.

use super::Row;
use super::memif::{Specs, echo, in_turns, one_way};

const PACKED: Specs = [
    |socket| format!("virtio_user:{socket}"),
    |socket| format!("vhost:{socket}"),
];
const SPLIT: Specs = [
    |socket| format!("virtio_user:{socket},packed=off"),
    |socket| format!("vhost:{socket}"),
];

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "vhost.1core.64",
        about: "vhost, 60 bytes from driver to device and freed, packed ring, one core in turns",
        run: |row, run| in_turns(row, run, PACKED, 60),
    },
    Row {
        name: "vhost.1core.1518",
        about: "the same with 1514 bytes",
        run: |row, run| in_turns(row, run, PACKED, 1514),
    },
    Row {
        name: "vhost.1core.split.64",
        about: "vhost, 60 bytes from driver to device and freed, split ring, one core in turns",
        run: |row, run| in_turns(row, run, SPLIT, 60),
    },
    Row {
        name: "vhost.1core.split.1518",
        about: "the same with 1514 bytes",
        run: |row, run| in_turns(row, run, SPLIT, 1514),
    },
    Row {
        name: "vhost.oneway.64",
        about: "vhost, 60 bytes from a driver on one core to a device on another, packed, Mpps",
        run: |row, run| one_way(row, run, PACKED, 60),
    },
    Row {
        name: "vhost.oneway.1518",
        about: "the same with 1514 bytes",
        run: |row, run| one_way(row, run, PACKED, 1514),
    },
    Row {
        name: "vhost.oneway.split.64",
        about: "vhost, 60 bytes from a driver on one core to a device on another, split, Mpps",
        run: |row, run| one_way(row, run, SPLIT, 60),
    },
    Row {
        name: "vhost.oneway.split.1518",
        about: "the same with 1514 bytes",
        run: |row, run| one_way(row, run, SPLIT, 1514),
    },
    Row {
        name: "vhost.echo.64",
        about: "vhost, 64 bytes to another core and back, packed, Mpps",
        run: |row, run| echo(row, run, PACKED),
    },
];
