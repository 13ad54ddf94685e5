//! Comparison with a plain model: a map from sequence numbers to the byte that came first.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What happens in a case.
#[derive(Clone, Debug)]
enum Step {
    /// A segment from `at`, relative to the first number, with bytes of its own.
    Insert {
        at: i32,
        len: usize,
        mark: u8,
        is_large: bool,
    },
    Read(usize),
    Take,
    Discard(u32),
    Collapse,
}

fn step(reach: i32, longest: usize) -> impl Strategy<Value = Step> {
    let insert = (-200..reach, 1..longest, any::<u8>(), 0..16_u8);
    let insert = insert.prop_map(|(at, len, mark, large)| Step::Insert {
        at,
        len,
        mark,
        is_large: large == 0,
    });
    prop_oneof![
        16 => insert,
        2 => (0..4000_usize).prop_map(Step::Read),
        1 => Just(Step::Take),
        1 => (0..2000_u32).prop_map(Step::Discard),
        1 => Just(Step::Collapse),
    ]
}

/// The bytes by their number behind the first, and how many were read.
struct Model {
    bytes: BTreeMap<i32, u8>,
    next: i32,
    read: i32,
}

impl Model {
    fn advance(&mut self) {
        while self.bytes.contains_key(&self.next) {
            self.next += 1;
        }
    }

    fn readable(&mut self, count: usize) -> Vec<u8> {
        let until = self.next.min(self.read.saturating_add(count as i32));
        let bytes = (self.read..until).map(|at| self.bytes[&at]).collect();
        self.read = until;
        bytes
    }

    fn runs(&self) -> Vec<(i32, i32)> {
        let mut runs: Vec<(i32, i32)> = Vec::new();
        for (&at, _) in self.bytes.range(self.next..) {
            match runs.last_mut() {
                Some((_, end)) if *end == at => *end += 1,
                _ => runs.push((at, at + 1)),
            }
        }
        runs
    }
}

/// The payload, whose bytes differ from segment to segment.
fn payload(at: i32, len: usize, mark: u8) -> Vec<u8> {
    (0..len)
        .map(|index| (at as usize).wrapping_add(index) as u8 ^ mark)
        .collect()
}

fn run(first: u32, steps: &[Step]) {
    let mut fixture = Fixture::new(first);
    let mut model = Model {
        bytes: BTreeMap::new(),
        next: 0,
        read: 0,
    };
    let number = |at: i32| first.wrapping_add(at as u32);
    for step in steps {
        match *step {
            Step::Insert {
                at,
                len,
                mark,
                is_large,
            } => {
                // Before the first number is the peer's SYN, and what it had before.
                let bytes = payload(at, len, mark);
                let inserted = match is_large {
                    true => fixture.insert_large(number(at), &bytes),
                    false => fixture.insert(number(at), &bytes),
                };
                insert(&mut model, &fixture, at, &bytes, &inserted, number);
            }
            Step::Read(count) => assert_eq!(fixture.read(count), model.readable(count)),
            Step::Take => {
                if let Some((packet, span)) = fixture.queue.take(&mut fixture.pieces) {
                    let bytes = &packet.data()[span.start as usize..][..span.len as usize];
                    assert_eq!(bytes, model.readable(bytes.len()));
                    fixture.cache.free_one(packet);
                }
            }
            Step::Discard(count) => {
                let done = fixture
                    .queue
                    .discard(&mut fixture.pieces, &mut fixture.cache, count);
                assert_eq!(model.readable(count as usize).len(), done as usize);
            }
            Step::Collapse => {
                fixture
                    .queue
                    .collapse(&mut fixture.pieces, &mut fixture.cache);
            }
        }
        fixture.check();
        assert_eq!(fixture.queue.next(), number(model.next));
        assert_eq!(fixture.queue.readable(), (model.next - model.read) as u32);
        let behind = model.bytes.range(model.next..);
        let behind: Vec<(u32, u8)> = behind.map(|(&at, &byte)| (number(at), byte)).collect();
        assert_eq!(fixture.out_of_order(), behind);
    }
}

/// Puts into the model what the queue says to have kept, and checks what it said.
fn insert(
    model: &mut Model,
    fixture: &Fixture,
    at: i32,
    bytes: &[u8],
    inserted: &Inserted,
    number: impl Fn(i32) -> u32,
) {
    assert_eq!(inserted.refused, None);
    let (end, next) = (at + bytes.len() as i32, model.next);
    let is_known = |model: &Model, at: i32| at < model.next || model.bytes.contains_key(&at);
    let known: Vec<bool> = (at..end).map(|at| is_known(model, at)).collect();
    let duplicate = known.iter().position(|&known| known).map(|from| {
        let len = known[from..].iter().take_while(|&&known| known).count();
        (at + from as i32, at + (from + len) as i32)
    });
    let duplicate = duplicate.map(|(from, to)| (number(from), number(to)));
    assert_eq!(inserted.duplicate, duplicate);
    let had_runs = !model.runs().is_empty();
    for (at, &byte) in (at..end).zip(bytes) {
        if !is_known(model, at) {
            model.bytes.insert(at, byte);
        }
    }
    model.advance();
    assert_eq!(inserted.advanced_bytes, (model.next - next) as u32);
    assert_eq!(inserted.filled_hole, had_runs && model.next > next);
    let is_kept = known.iter().any(|&known| !known);
    assert_eq!(inserted.is_out_of_order, is_kept && model.next == next);
    // RFC 2018 4: the blocks are runs, the first of which has this segment.
    let mut queue = [(0, 0); 5];
    let mut copy = ReceiveQueue {
        duplicate: (0, 0),
        ..ReceiveQueue::new(0)
    };
    copy.recent = fixture.queue.recent;
    (copy.first_run, copy.runs) = (fixture.queue.first_run, fixture.queue.runs);
    let count = copy.sack_blocks(&fixture.pieces, &mut queue);
    let runs = model.runs();
    let blocks: Vec<(u32, u32)> = runs.iter().map(|&(a, b)| (number(a), number(b))).collect();
    assert_eq!(count, blocks.len().min(5));
    let mut seen = queue[..count].to_vec();
    assert!(seen.iter().all(|block| blocks.contains(block)));
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count, "a block twice");
    if let Some(&(from, to)) = runs.iter().find(|run| (run.0..run.1).contains(&(end - 1)))
        && at >= model.next
    {
        assert_eq!(queue[0], (number(from), number(to)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn any_segments_give_each_byte_once_in_order_as_it_came_first(
        first: u32,
        steps in prop::collection::vec(step(6000, 2000), 1..60),
    ) {
        run(first, &steps);
    }

    #[test]
    fn any_small_segments_do_too(
        first in u32::MAX - 400..,
        steps in prop::collection::vec(step(800, 60), 1..120),
    ) {
        run(first, &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever the limits, bytes come in order and unchanged, and a sender that repeats what was
    /// not acknowledged gets all through.
    #[test]
    fn a_sender_that_repeats_gets_through_under_any_limits(
        first: u32,
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..150),
        sizes in prop::collection::vec(1..3000_u32, 1..40),
        reads in prop::collection::vec(0..3000_usize, 1..40),
        (bytes, most, runs) in (2000..40_000_u32, 1..20_u16, 0..8_u16),
        max_bytes in 5000..60_000_u64,
    ) {
        let limits = Limits { window_end: 0, bytes, pieces: most, runs };
        let mut fixture = Fixture::with(first, limits, 16, max_bytes);
        let total: u32 = sizes.iter().sum();
        let starts: Vec<u32> = sizes
            .iter()
            .scan(0, |end, size| Some(std::mem::replace(end, *end + size)))
            .collect();
        let mut got = Vec::new();
        let drawn: Vec<usize> = order.iter().map(|index| index.index(sizes.len())).collect();
        let mut reads = reads.iter().cycle();
        // At last the sender repeats what is due, and the application reads all.
        let ends = (0..sizes.len()).map(|index| (index, true));
        for (index, is_due) in drawn.into_iter().map(|index| (index, false)).chain(ends) {
            let seq = first.wrapping_add(starts[index]);
            fixture.limits.window_end = fixture.queue.next().wrapping_add(30_000);
            let mut left = sizes[index];
            let mut at = seq;
            while left > 0 {
                let len = left.min(1448);
                let inserted = fixture.insert(at, &stream(at, len as usize));
                fixture.check();
                prop_assert!(!is_due || inserted.refused.is_none());
                (at, left) = (at.wrapping_add(len), left - len);
                let count = if is_due { usize::MAX >> 40 } else { *reads.next().unwrap() };
                got.extend(fixture.read(count));
            }
            let over = u32::from(fixture.queue.pieces()) > u32::from(most).max(1);
            prop_assert!(!over, "more pieces than allowed");
            prop_assert!(fixture.pieces.charged_bytes() <= max_bytes);
        }
        got.extend(fixture.read(1 << 20));
        prop_assert_eq!(got, stream(first, total as usize));
    }
}
