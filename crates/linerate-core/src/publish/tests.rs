//! What readers may see: whole publications, in order, and never a copy that is being written.

use super::*;

/// Two numbers that are equal outside of `apply`.
#[derive(Debug)]
struct Pair {
    left: u64,
    right: u64,
}

/// The order of changes matters, and every change leaves a trace.
fn next(value: u64, op: u64) -> u64 {
    value.wrapping_mul(3).wrapping_add(op)
}

impl Apply<u64> for Pair {
    fn apply(&mut self, op: &u64) {
        self.left = next(self.left, *op);
        #[cfg(not(loom))]
        std::thread::yield_now();
        self.right = next(self.right, *op);
    }

    fn copy(&self) -> Result<Self, MemError> {
        Ok(Self { ..*self })
    }
}

fn publisher() -> Publisher<Pair, u64> {
    Publisher::new(Pair { left: 1, right: 1 }).unwrap()
}

#[cfg(not(loom))]
mod plain {
    use super::*;

    #[test]
    fn both_copies_get_every_change_in_order() {
        let mut publisher = publisher();
        let mut reader = publisher.reader();
        let mut expected = 1;
        for op in 1..100 {
            for op in [op, 7] {
                publisher.push(op);
                expected = next(expected, op);
            }
            assert!(publisher.publish());
            let table = reader.read();
            assert_eq!((table.left, table.right), (expected, expected));
        }
    }

    #[test]
    fn changes_wait_for_a_reader_that_has_not_looked() {
        let mut publisher = publisher();
        let mut reader = publisher.reader();
        publisher.push(1);
        assert!(publisher.publish(), "the second copy was free");
        publisher.push(2);
        assert!(!publisher.publish(), "the reader holds the first copy");
        assert_eq!((publisher.pending(), publisher.newest().left), (1, 4));
        assert_eq!(reader.read().left, 4);
        assert!(publisher.publish());
        assert_eq!(reader.read().left, 14);
    }

    #[test]
    fn a_third_copy_is_published_while_a_reader_sleeps() {
        let mut publisher = publisher();
        let mut asleep = publisher.reader();
        for op in 0..5 {
            publisher.push(op);
            publisher.publish_on_copy().unwrap();
        }
        assert_eq!(publisher.reader().read().left, publisher.newest().left);
        assert_eq!(asleep.table.left, 1);
        assert_eq!(asleep.read().left, publisher.newest().left);
    }

    #[test]
    fn readers_on_other_threads_see_whole_tables_in_order() {
        let mut publisher = publisher();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let mut reader = publisher.reader();
                scope.spawn(move || {
                    let mut last = 0;
                    while last < 3_u64.pow(30) {
                        let table = reader.read();
                        assert_eq!(table.left, table.right);
                        assert!(table.left >= last);
                        last = table.left;
                        std::thread::yield_now();
                    }
                });
            }
            for _ in 0..30 {
                publisher.push(0);
                while !publisher.publish() {
                    std::thread::yield_now();
                }
            }
        });
    }
}

#[cfg(loom)]
mod loom_models {
    use super::*;

    /// Every interleaving of two publications with a reader's two looks: tables are whole, their
    /// order is kept, and a look after both is at the last. Writing a copy that a reader holds is
    /// impossible by type; that `Arc::get_mut` says so in time is loom's to check.
    #[test]
    fn loom_a_reader_sees_whole_tables_in_order() {
        loom::model(|| {
            let mut publisher = publisher();
            let mut reader = publisher.reader();
            let looking = loom::thread::spawn(move || {
                let mut last = 1;
                for _ in 0..2 {
                    let table = reader.read();
                    assert_eq!(table.left, table.right);
                    assert!(table.left >= last);
                    last = table.left;
                }
                reader
            });
            let mut published = 0;
            for op in [1, 2] {
                publisher.push(op);
                published += usize::from(publisher.publish());
            }
            let mut reader = looking.join().unwrap();
            assert!(published >= 1, "the second copy was free at first");
            reader.read();
            assert!(publisher.publish(), "the reader has moved on");
            assert_eq!(reader.read().left, 14);
        });
    }
}
