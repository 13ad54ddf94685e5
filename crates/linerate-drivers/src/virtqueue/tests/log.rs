//! Each page that a device writes to is in the log of a migration, and no other.

use super::super::log::Log;
use super::super::recorded::{Marks, Recordable, Recorded};
use super::*;
use linerate_core::mem::{FileFrom, Untrusted};
use rustix::fs::MemfdFlags;
use std::os::fd::AsFd;

const PAGE: usize = 4096;
const LOG_BYTES: usize = 4096;

/// A log, and its memory as the front end has it.
fn log() -> (Log, Untrusted) {
    let file = rustix::fs::memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, LOG_BYTES as u64).unwrap();
    let map = || Untrusted::map("log", file.as_fd(), 0, LOG_BYTES, FileFrom::Peer).unwrap();
    (Log::new(map()), map())
}

/// The pages that are marked, and no longer are.
fn marked(log: &Untrusted) -> Vec<usize> {
    let bytes = log.u8s(0, LOG_BYTES).unwrap().iter().enumerate();
    let bits = bytes.flat_map(|(at, byte)| {
        let byte = byte.swap(0, Ordering::Relaxed);
        (0..8).filter_map(move |bit| (byte >> bit & 1 == 1).then_some(8 * at + bit))
    });
    bits.collect()
}

/// The pages, by guest address, that are not what they were.
fn changed(memory: &Memory, before: &mut Vec<u8>) -> Vec<usize> {
    let region = &memory.regions()[0];
    let mut now = vec![0; region.mapped.len()];
    region.mapped.window(0, now.len()).unwrap().read(&mut now);
    let first = GUEST as usize / PAGE;
    let pages = now.chunks(PAGE).zip(before.chunks(PAGE)).enumerate();
    let found = pages.filter(|(_, (now, before))| now != before);
    let found = found.map(|(page, _)| first + page).collect();
    *before = now;
    found
}

fn recorded<D: Recordable + 'static>(device: D, marks: Marks) -> Box<dyn Ring> {
    Box::new(Recorded::new(device, Some(marks), None))
}

#[test]
fn exactly_the_pages_that_a_device_writes_are_marked() {
    let pools = pools();
    for mut queue in all_queues() {
        queue.size = 1024;
        queue.buffer = 1536;
        let (log, bits) = log();
        let marks = Marks {
            log,
            buffers: true,
            ring: Some(GUEST + PARTS[2] as u64),
        };
        let mut both = Both::new(&queue, &pools);
        let device = match queue.kind {
            Kind::Split => {
                let at = queue.split(&both.memory);
                let device = split::Device::new(queue.size, at, queue.agreed, queue.filled, 0);
                recorded(device, marks)
            }
            Kind::Packed => {
                let (at, start) = (queue.packed(&both.memory), [packed::Position::START; 2]);
                let device = packed::Device::new(queue.size, at, queue.agreed, queue.filled, start);
                recorded(device, marks)
            }
        };
        let by_device = queue.filled == Filled::ByDevice;
        let all = match by_device {
            true => &mut both.from,
            false => &mut both.to,
        };
        *all = device;
        let mut before = Vec::new();
        changed(&both.memory, &mut before);
        let mut number = 0;
        // Less than a lap: later the same would be written again, which no comparison shows.
        for round in 0..40_u64 {
            let lens: Vec<usize> = match round % 5 {
                0 => vec![9000],
                1 => vec![1500; 7],
                _ => vec![60; 32],
            };
            if !by_device {
                both.send(number, &lens).unwrap();
                changed(&both.memory, &mut before);
                both.receive(64).unwrap();
            } else {
                both.send(number, &lens).unwrap();
            }
            assert_eq!(
                marked(&bits),
                changed(&both.memory, &mut before),
                "{queue:?}"
            );
            if by_device {
                while !both.receive(64).unwrap().is_empty() {}
                changed(&both.memory, &mut before);
            }
            number += lens.len() as u64;
        }
        let ring = match by_device {
            true => &mut both.from,
            false => &mut both.to,
        };
        for notify in [true, false] {
            ring.want(&both.memory, notify);
            let (marked, changed) = (marked(&bits), changed(&both.memory, &mut before));
            assert!(
                changed.iter().all(|page| marked.contains(page)),
                "{queue:?}: {changed:?}"
            );
        }
    }
}

/// Buffers alone, the ring alone.
#[test]
fn each_part_is_marked_where_that_was_asked_for() {
    let pools = pools();
    let queue = Queue::new(Kind::Split, Filled::ByDevice);
    for (buffers, ring) in [(true, false), (false, true)] {
        let (log, bits) = log();
        // The log has the ring elsewhere.
        let ring = ring.then_some(7 * PAGE as u64 - 2);
        let marks = Marks { log, buffers, ring };
        let mut both = Both::new(&queue, &pools);
        let at = queue.split(&both.memory);
        let device = split::Device::new(queue.size, at, queue.agreed, queue.filled, 0);
        both.from = recorded(device, marks);
        both.send(0, &[60]).unwrap();
        let expected = match buffers {
            true => vec![(GUEST as usize + BUFFERS) / PAGE],
            false => vec![7],
        };
        assert_eq!(marked(&bits), expected);
    }
}
