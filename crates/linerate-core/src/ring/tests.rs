//! Tests of the rings that need no model checker.

use super::{Pop, Push, mpmc, spsc};

/// A burst takes what fits and leaves the rest; bulk takes all or nothing; order is kept.
fn burst_and_bulk(mut tx: impl Push<u32>, mut rx: impl Pop<u32>) {
    for lap in 0..40u32 {
        let mut batch: Vec<u32> = (lap..lap + 21).collect();
        assert_eq!(tx.push_burst(&mut batch), 16);
        assert_eq!(batch, (lap + 16..lap + 21).collect::<Vec<_>>());
        assert!(!tx.push_bulk(&mut batch));
        assert_eq!(tx.push(7), Err(7));
        let mut out = vec![99];
        assert!(!rx.pop_bulk(&mut out, 17));
        assert!(rx.pop_bulk(&mut out, 3));
        assert_eq!(out, [99, lap, lap + 1, lap + 2]);
        assert!(!tx.push_bulk(&mut batch));
        batch.truncate(3);
        assert!(tx.push_bulk(&mut batch));
        assert!(batch.is_empty());
        out.clear();
        assert_eq!(rx.pop_burst(&mut out, 100), 16);
        assert_eq!(out, (lap + 3..lap + 19).collect::<Vec<_>>());
        assert_eq!(rx.pop(), None);
        // Shift the laps against the storage.
        assert_eq!(tx.push(1), Ok(()));
        assert_eq!(rx.pop(), Some(1));
    }
    let stats = rx.meter().read();
    assert_eq!((stats.capacity, stats.occupancy), (16, 0));
    assert_eq!((stats.enqueued, stats.dequeued), (800, 800));
    assert_eq!(stats.refused, 40 * (5 + 5 + 1 + 5));
    assert_eq!(stats.short, 40 * 3);
}

#[test]
fn spsc_bursts_and_bulks() {
    let (tx, rx) = spsc::ring(16);
    burst_and_bulk(tx, rx);
}

#[test]
fn mpmc_bursts_and_bulks() {
    let (tx, rx) = mpmc::ring(16);
    burst_and_bulk(tx, rx);
}
