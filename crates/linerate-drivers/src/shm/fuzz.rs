//! Any bytes as a header, and as what a peer writes over a file while we use its rings.

use super::layout::{HEADER_BYTES, Memory, Receiver, Sender, Shape};
use std::cell::RefCell;

/// Memory whose every access is checked.
pub(super) struct Plain(pub(super) RefCell<Vec<u8>>);

impl Plain {
    pub(super) fn of(shape: &Shape) -> Self {
        Self(RefCell::new(vec![0; shape.file_bytes() as usize]))
    }
}

impl Memory for Plain {
    fn load(&self, at: usize) -> u32 {
        let bytes = self.0.borrow();
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    fn store(&self, at: usize, value: u32) {
        self.0.borrow_mut()[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn read(&self, at: usize, to: &mut [u8]) {
        to.copy_from_slice(&self.0.borrow()[at..at + to.len()]);
    }

    fn write(&self, at: usize, from: &[u8]) {
        self.0.borrow_mut()[at..at + from.len()].copy_from_slice(from);
    }
}

/// Steps of both ends of a ring, and of somebody who writes anywhere in between.
///
/// # Panics
/// Where an end leaves the file, gets more than its slots, or does not recover: by the sender's own
/// checks, and when both start anew.
pub(crate) fn check(input: &[u8]) {
    if let Some(header) = input.first_chunk::<HEADER_BYTES>()
        && let Ok(shape) = Shape::decode(header)
    {
        assert_eq!(shape.encode(), *header);
        assert!(shape.file_bytes() > u64::from(shape.slots()));
    }
    let mut bytes = input.iter().copied();
    let mut next = || bytes.next().unwrap_or(0);
    let shape = Shape::new(1, 1 << (next() % 4), 60);
    let (memory, ring) = (Plain::of(&shape), shape.ring(0, true));
    let mut sender = Sender::take_up(&memory, ring);
    let mut receiver = Receiver::take_up(&memory, ring);
    for _ in 0..input.len().min(1000) {
        let (step, argument) = (next(), next());
        match step % 6 {
            0 => {
                let frame = [argument; 60];
                if let Ok(room) = sender.room(&memory, u32::from(argument % 16)) {
                    assert!(room <= shape.slots());
                    sender.send(&memory, room.min(u32::from(argument % 16)), |number| {
                        &frame[..(number as usize * 7 + 1) % 60 + 1]
                    });
                }
            }
            1 => drop(receive(&mut receiver, &memory)),
            2 => sender = Sender::take_up(&memory, ring),
            3 => receiver = Receiver::take_up(&memory, ring),
            _ => {
                let at = usize::from(step >> 3) * 251 + usize::from(argument) * 16;
                let at = at % (shape.file_bytes() as usize - 4);
                memory.write(at, &[next(), next(), next(), next()]);
            }
        }
    }
    // Nobody writes in between any more: the ends find back to each other as they are. What looks
    // like frames is received with one that was sent, and seen by the sender.
    for _ in 0..shape.slots() + 3 {
        receive(&mut receiver, &memory);
        if sender.check(&memory).is_err() {
            sender = Sender::take_up(&memory, ring);
        }
        assert_eq!(sender.room(&memory, 1), Ok(shape.slots()));
        sender.send(&memory, 1, |_| &[8; 60]);
    }
    assert_eq!(receive(&mut receiver, &memory), [[8; 60]]);
    receiver = Receiver::take_up(&memory, ring);
    receive(&mut receiver, &memory);
    sender = Sender::take_up(&memory, ring);
    receive(&mut receiver, &memory);
    assert_eq!(sender.room(&memory, 1), Ok(shape.slots()));
    sender.send(&memory, 1, |_| &[7; 60]);
    assert_eq!(receive(&mut receiver, &memory), [[7; 60]]);
}

fn receive(receiver: &mut Receiver, memory: &Plain) -> Vec<Vec<u8>> {
    let mut lengths = [0; 16];
    let count = receiver.frames().waiting(memory, &mut lengths).count;
    assert!(count <= receiver.ring().slots() as usize, "a frame twice");
    let longest = receiver.ring().frame_bytes();
    let frames = (0..count).map(|number| {
        let mut frame = vec![0; usize::from(lengths[number]).min(longest)];
        receiver.frames().read(memory, number as u32, &mut frame);
        frame
    });
    let frames = frames.collect();
    receiver.release(memory, count as u32);
    frames
}
