//! null has no wire, so it is checked alone.

use crate::suite;
use linerate_drivers::Drivers;

#[test]
fn null_conforms() {
    for spec in [
        "null:",
        "null:,copy=on,size=1514",
        "null:,rx=off",
        "null:,size=9000",
    ] {
        suite::alone(&|| Drivers::new().open(spec).unwrap());
    }
}

#[test]
fn frames_have_the_size_asked_for() {
    let pools = suite::pools(false);
    let mut end = suite::End::new(Drivers::new().open("null:,size=100").unwrap(), &pools);
    end.start(3, 2, &pools);
    end.receive();
    let stats = end.port.stats();
    assert_eq!(
        (stats.rx_packets, stats.rx_bytes),
        (64, 6400),
        "two queues, 32 each"
    );
    end.check_stats();
}
