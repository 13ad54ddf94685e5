//! Whoever looks at a port's counters holds no worker of it up.

use super::*;
use std::sync::atomic::AtomicBool;

/// So long that the control threads turn several times, too.
const LASTING: Duration = Duration::from_millis(500);
const FRAMES: usize = 32;

/// Frames go there and back between rings that are empty before each burst, while others look all
/// the time.
fn bursts_go(server: End, client: End) {
    let mut ends = [server, client];
    ends.iter_mut().for_each(End::wait_up);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let [server, client] = &mut ends;
        for port in [&mut server.port, &mut client.port] {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let rings = port.stats().rings;
                    assert!(rings.iter().all(|ring| ring.waiting <= ring.size));
                }
            });
        }
        let mut sides = [
            (&mut server.queues, &mut server.cache),
            (&mut client.queues, &mut client.cache),
        ];
        let (start, mut sent, mut empty) = (Instant::now(), 0, 0);
        let mut burst = Burst::new();
        while start.elapsed() < LASTING {
            let (queues, cache) = &mut sides[0];
            for _ in 0..FRAMES {
                burst.push(cache.copy_of(&[7; 60]).unwrap()).unwrap();
                sent += 1;
            }
            while !burst.is_empty() {
                let taken = queues.tx[0].tx_burst(&mut burst, cache);
                empty += u64::from(taken == 0);
            }
            queues.tx[0].flush(cache);
            sides.reverse();
            let (queues, cache) = &mut sides[0];
            let mut came = 0;
            while came < FRAMES {
                let count = queues.rx[0].rx_burst(&mut burst, cache);
                empty += u64::from(count == 0);
                came += count;
                cache.free(&mut burst);
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(sent > 0);
        assert_eq!(empty, 0, "bursts, of {sent} frames");
    });
    ends.into_iter().for_each(End::stop);
}

#[test]
fn bursts_go_while_others_look() {
    let (_folder, server, client) = pair("", "");
    bursts_go(server, client);
}

#[test]
fn bursts_go_while_others_look_where_slots_are_lent() {
    let pools = exposed::exposed(4096);
    let (_folder, server, client) = exposed::pair_of(&pools, "");
    bursts_go(server, client);
}
