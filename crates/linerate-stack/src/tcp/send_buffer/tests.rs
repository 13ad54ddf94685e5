//! Against a plain vector; arenas used up; and what each step costs.
#![allow(clippy::unwrap_used)]

mod speed;

use std::io::IoSlice;

use linerate_wire::checksum;
use proptest::prelude::*;

use super::*;

const LIMIT: u32 = 1 << 20;

fn pattern(from: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at as u32).wrapping_mul(0x9e37_79b9) >> 24;
    (from..from + len).map(|at| byte(at) as u8).collect()
}

/// Checks the chain, the sums and the cursors.
fn check(buffer: &SendBuffer, chunks: &Chunks) {
    let (mut cursor, mut held, mut known) = (
        Cursor {
            chunk: buffer.head,
            at: -(buffer.skip as i32),
        },
        0,
        Vec::new(),
    );
    let mut tail = NIL;
    while cursor.chunk != NIL {
        known.push((cursor.chunk, cursor.at));
        tail = cursor.chunk;
        held += 1;
        cursor = chunks.step(cursor);
    }
    assert_eq!((buffer.tail, buffer.len as i32), (tail, cursor.at));
    assert_eq!(chunks.in_use(), held);
    for cursor in [buffer.fresh, buffer.again] {
        let is_known = known.contains(&(cursor.chunk, cursor.at));
        assert!(cursor.chunk == NIL || is_known, "{cursor:?}");
    }
}

#[test]
fn an_idle_connection_holds_no_chunk() {
    let mut chunks = Chunks::new(4).unwrap();
    let mut buffer = SendBuffer::new();
    for _ in 0..10 {
        assert_eq!(buffer.write(&mut chunks, &[7; 64], LIMIT), 64);
        let mut out = [0; 64];
        buffer.copy_out(&chunks, 0, &mut out).unwrap();
        assert_eq!(buffer.discard(&mut chunks, 63), 63);
        assert_eq!(chunks.in_use(), 1);
        assert_eq!(buffer.discard(&mut chunks, 63), 1);
        assert_eq!(chunks.in_use(), 0);
    }
    // Nor does one that reserved and had nothing to say.
    assert!(buffer.reserve(&mut chunks, 10, LIMIT).is_some());
    assert_eq!((buffer.commit(&mut chunks, 0), chunks.in_use()), (0, 0));
    assert_eq!(buffer.commit(&mut chunks, 5), 0);
    assert!(buffer.reserve(&mut chunks, 0, LIMIT).is_some());
    assert_eq!(chunks.in_use(), 0);
}

#[test]
fn writes_stop_at_the_limit_and_at_the_end_of_the_arena() {
    let mut chunks = Chunks::new(2).unwrap();
    let mut buffer = SendBuffer::new();
    assert_eq!(buffer.write(&mut chunks, &pattern(0, 500), 100), 100);
    assert_eq!(buffer.write(&mut chunks, &pattern(100, 1), 100), 0);
    let rest = 2 * CHUNK_BYTES - 100;
    assert_eq!(buffer.write(&mut chunks, &pattern(100, 9999), LIMIT), rest);
    assert_eq!(buffer.write(&mut chunks, &[1], LIMIT), 0);
    assert!(buffer.reserve(&mut chunks, 1, LIMIT).is_none());
    let mut other = SendBuffer::new();
    assert_eq!(other.write(&mut chunks, &[1], LIMIT), 0);
    let mut out = vec![0; 2 * CHUNK_BYTES];
    buffer.copy_out(&chunks, 0, &mut out).unwrap();
    assert_eq!(out, pattern(0, 2 * CHUNK_BYTES));
    // A chunk that was acknowledged serves the other.
    buffer.discard(&mut chunks, CHUNK_BYTES as u32);
    assert_eq!(other.write(&mut chunks, &[1], LIMIT), 1);
    other.clear(&mut chunks);
    check(&buffer, &chunks);
}

#[test]
fn slices_are_written_one_after_the_other() {
    let mut chunks = Chunks::new(2).unwrap();
    let mut buffer = SendBuffer::new();
    let (a, b) = (pattern(0, 3000), pattern(3000, 3000));
    let slices = [IoSlice::new(&a), IoSlice::new(&[]), IoSlice::new(&b)];
    assert_eq!(
        buffer.write_vectored(&mut chunks, &slices, LIMIT),
        2 * CHUNK_BYTES
    );
    let mut out = vec![0; 2 * CHUNK_BYTES];
    buffer.copy_out(&chunks, 0, &mut out).unwrap();
    assert_eq!(out, pattern(0, 2 * CHUNK_BYTES));
}

#[test]
fn reserved_room_is_contiguous_and_its_gap_is_not_sent() {
    let mut chunks = Chunks::new(8).unwrap();
    let mut buffer = SendBuffer::new();
    buffer.write(&mut chunks, &pattern(0, 2000), LIMIT);
    assert!(
        buffer
            .reserve(&mut chunks, CHUNK_BYTES + 1, LIMIT)
            .is_none()
    );
    assert!(buffer.reserve(&mut chunks, 200, 2100).is_none());
    let room = buffer.reserve(&mut chunks, 200, LIMIT).unwrap();
    room.copy_from_slice(&pattern(2000, 200));
    assert_eq!((buffer.commit(&mut chunks, 150), buffer.len()), (150, 2150));
    buffer.write(&mut chunks, &pattern(2150, 5000), LIMIT);
    assert_eq!(chunks.in_use(), 4);
    let mut out = vec![0; 7150];
    let sum = buffer.copy_out(&chunks, 0, &mut out);
    assert_eq!((sum, &out), (Some(checksum::sum(&out)), &pattern(0, 7150)));
    check(&buffer, &chunks);
}

#[test]
fn what_is_not_there_is_not_copied() {
    let mut chunks = Chunks::new(8).unwrap();
    let mut buffer = SendBuffer::new();
    assert_eq!(buffer.copy_out(&chunks, 0, &mut []), Some(0));
    assert_eq!(buffer.copy_out(&chunks, 0, &mut [0]), None);
    buffer.write(&mut chunks, &[1; 10], LIMIT);
    for (offset, len) in [(0, 11), (10, 1), (11, 0), (u32::MAX, 1), (u32::MAX, 0)] {
        assert_eq!(buffer.copy_out(&chunks, offset, &mut vec![0; len]), None);
    }
    assert_eq!(buffer.copy_out(&chunks, 10, &mut []), Some(0));
}

#[test]
fn a_sender_that_repeats_here_and_there_still_finds_the_next_byte_at_once() {
    let mut chunks = Chunks::new(100).unwrap();
    let mut buffer = SendBuffer::new();
    buffer.write(&mut chunks, &pattern(0, 90 * CHUNK_BYTES), LIMIT);
    let mut out = [0; 1448];
    for segment in 0..120 {
        buffer.copy_out(&chunks, segment * 1448, &mut out).unwrap();
    }
    let (fresh, next) = (buffer.fresh.at, 120 * 1448);
    assert!(next - fresh <= 2 * CHUNK_BYTES as i32);
    // Retransmissions go up with a cursor of their own.
    for segment in [3, 10, 40, 80] {
        buffer.copy_out(&chunks, segment * 1448, &mut out).unwrap();
        assert_eq!(out, *pattern(segment as usize * 1448, 1448));
        let behind = segment as i32 * 1448 - buffer.again.at;
        assert!(behind.abs() <= CHUNK_BYTES as i32, "{buffer:?}");
        assert_eq!(buffer.fresh.at, fresh);
    }
    // Both stay where they are when bytes before them are acknowledged.
    buffer.discard(&mut chunks, 50 * 1448);
    check(&buffer, &chunks);
    assert_eq!(buffer.fresh.at, fresh - 50 * 1448);
    buffer.copy_out(&chunks, 70 * 1448, &mut out).unwrap();
    assert_eq!(out, *pattern(120 * 1448, 1448));
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Reserve(usize, usize),
    Discard(u32),
    /// The next bytes that were not read yet.
    Send(usize),
    /// Any bytes.
    Again(prop::sample::Index, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..7000_usize).prop_map(Step::Write),
        2 => (0..2500_usize, 0..2500_usize).prop_map(|(a, b)| Step::Reserve(a, b)),
        3 => (0..6000_u32).prop_map(Step::Discard),
        6 => (0..5000_usize).prop_map(Step::Send),
        3 => (any::<prop::sample::Index>(), 0..5000_usize)
            .prop_map(|(at, len)| Step::Again(at, len)),
    ]
}

proptest! {
    #[test]
    fn any_steps_read_what_a_vector_has(
        steps in prop::collection::vec(step(), 1..100),
        count in 1..12_u32,
        limit in 1..40_000_u32,
    ) {
        let mut chunks = Chunks::new(count).unwrap();
        let (mut buffer, mut model) = (SendBuffer::new(), Vec::<u8>::new());
        let (mut total, mut sent) = (0, 0);
        for step in steps {
            match step {
                Step::Write(len) => {
                    let bytes = pattern(total, len);
                    let done = buffer.write(&mut chunks, &bytes, limit);
                    prop_assert!(model.len() + done <= limit as usize);
                    let is_full = chunks.in_use() == count;
                    prop_assert!(done == len.min(limit as usize - model.len()) || is_full);
                    model.extend(&bytes[..done]);
                    total += done;
                }
                Step::Reserve(len, used) => {
                    let bytes = pattern(total, len.min(used));
                    if let Some(room) = buffer.reserve(&mut chunks, len, limit) {
                        prop_assert_eq!(room.len(), len);
                        room[..bytes.len()].copy_from_slice(&bytes);
                        let done = buffer.commit(&mut chunks, bytes.len());
                        prop_assert_eq!(done, bytes.len());
                        model.extend(&bytes);
                        total += done;
                    }
                }
                Step::Discard(len) => {
                    let done = buffer.discard(&mut chunks, len) as usize;
                    prop_assert_eq!(done, model.len().min(len as usize));
                    model.drain(..done);
                    sent = usize::saturating_sub(sent, done);
                }
                Step::Send(len) => {
                    let mut out = vec![0; len.min(model.len() - sent)];
                    let sum = buffer.copy_out(&chunks, sent as u32, &mut out);
                    prop_assert_eq!(&out, &model[sent..sent + out.len()]);
                    prop_assert_eq!(sum, Some(checksum::sum(&out)));
                    sent += out.len();
                }
                Step::Again(at, len) => {
                    let at = at.index(model.len() + 1);
                    let mut out = vec![0; len.min(model.len() - at)];
                    let sum = buffer.copy_out(&chunks, at as u32, &mut out);
                    prop_assert_eq!(&out, &model[at..at + out.len()]);
                    prop_assert_eq!(sum, Some(checksum::sum(&out)));
                    let mut again = vec![0; out.len()];
                    prop_assert!(buffer.copy_out_unsummed(&chunks, at as u32, &mut again));
                    prop_assert_eq!(again, out);
                }
            }
            check(&buffer, &chunks);
            prop_assert_eq!(buffer.len() as usize, model.len());
            prop_assert!(!model.is_empty() || chunks.in_use() == 0);
        }
        buffer.clear(&mut chunks);
        prop_assert_eq!(chunks.in_use(), 0);
    }
}
