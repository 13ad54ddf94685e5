//! What ADR 1 decides, measured: handles of 32 bits, metadata apart from the data, an odd number of
//! cache lines between slots, no further padding for memory channels.
//!
//! Each table puts alternatives in turns, slice by slice of a few milliseconds and in the same
//! memory, so that a busy machine disturbs all alike; a round counts the slice at the lower
//! quarter. Shown are the median time of the rounds and the ratio to the first row, which
//! is what the kit does (above 1: slower than it), with the smallest and the largest round. Run it
//! with `cargo bench -p linerate-core --bench packet_layout`; `-- metadata` and the like runs one
//! part. Two-core rows mean something only while both CPUs are free.
#![allow(unsafe_code)]

mod layout;
mod turns;

use layout::{HEADROOM, LINE, Layout, Meta, memory, pools, shuffled};
use linerate_core::ring::{Pop, Push, spsc};
use std::hint::black_box;
use std::time::Duration;
use turns::{Case, compare};

const PARTS: [(&str, fn()); 4] = [
    ("handles", handles),
    ("metadata", metadata),
    ("strides", strides),
    ("channels", channels),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` only asks whether it starts.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return println!("run it with `cargo bench`");
    }
    let named = |name: &str| arguments.iter().any(|argument| argument == name);
    let all = !PARTS.iter().any(|(name, _)| named(name));
    for (name, part) in PARTS {
        if all || named(name) {
            part();
        }
    }
}

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_millis(8);

// (a) The width of a handle.

fn handles() {
    let cases = vec![
        stack_case::<u32>("32-bit handles"),
        stack_case::<u64>("64-bit pointers"),
    ];
    compare("get and put 32 through a cache's stack", SHORT, cases);
    let cases = vec![
        ring_case::<u32>("32-bit handles"),
        ring_case::<u64>("64-bit pointers"),
    ];
    compare("32 through an SPSC ring of 1024, one core", SHORT, cases);
    let cases = vec![
        two_core_case::<u32>("32-bit handles"),
        two_core_case::<u64>("64-bit pointers"),
    ];
    compare("32 through an SPSC ring of 1024, two cores", LONG, cases);
    reach();
}

/// Where a burst begins matters as much as its width: on a cache line, as in the kit.
#[repr(align(64))]
struct Slots<T>([T; 32]);

impl<T: Copy + Default> Slots<T> {
    fn new() -> Self {
        Self([T::default(); 32])
    }
}

/// A stack of free slots from which 32 are taken and to which they are given back.
fn stack_case<T: Copy + Default + 'static>(name: &str) -> Case<'static> {
    let mut stack: Vec<Slots<T>> = (0..18).map(|_| Slots::new()).collect();
    let mut burst = Slots::<T>::new();
    Case::new(name, 32, move |steps| {
        for _ in 0..steps {
            // A top that the compiler does not know, as in a cache.
            let top = black_box(16);
            burst.0.copy_from_slice(&stack[top].0);
            black_box(&mut burst.0);
            stack[top].0.copy_from_slice(&burst.0);
            black_box(&mut stack);
        }
    })
}

fn ring_case<T: Copy + Default + 'static>(name: &str) -> Case<'static> {
    let (mut producer, mut consumer) = spsc::ring::<T>(1024);
    let mut burst = Slots::<T>::new();
    // Half full, so that the elements lie where a ring in use has them.
    (0..16).for_each(|_| assert!(producer.push_slice_bulk(&burst.0)));
    Case::new(name, 32, move |steps| {
        for _ in 0..steps {
            producer.push_slice(black_box(&burst.0));
            consumer.pop_slice(black_box(&mut burst.0));
        }
    })
}

fn two_core_case<T: Copy + Default + Send + 'static>(name: &str) -> Case<'static> {
    let (mut producer, mut consumer) = spsc::ring::<T>(1024);
    Case::new(name, 32, move |steps| {
        let producer = &mut producer;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let burst = Slots::<T>::new();
                for _ in 0..steps {
                    while !producer.push_slice_bulk(black_box(&burst.0)) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut burst = Slots::<T>::new();
            for _ in 0..steps {
                while !consumer.pop_slice_bulk(black_box(&mut burst.0)) {
                    std::thread::yield_now();
                }
            }
        });
    })
}

/// What a handle costs: the address is computed where a pointer is one.
fn reach() {
    let memory = memory(512, 37);
    let pool = Layout::apart(&memory, 512, 37);
    pool.write();
    let base = pool.base;
    let numbers: Vec<u32> = (0..64).map(|index| shuffled(512)[index]).collect();
    let pointers: Vec<*mut Meta> = numbers.iter().map(|&index| pool.meta(index)).collect();
    let by_handle = |steps| {
        for _ in 0..steps {
            let (base, mut sum) = (black_box(base), 0);
            for &handle in black_box(&numbers) {
                let meta = base.wrapping_add(handle as usize * LINE).cast::<Meta>();
                // SAFETY: the metadata of an apart pool lie at the start of its memory.
                sum += unsafe { (*meta).len };
            }
            black_box(sum);
        }
    };
    let by_pointer = |steps| {
        for _ in 0..steps {
            let mut sum = 0;
            for &meta in black_box(&pointers) {
                // SAFETY: a pool's metadata line, made above.
                sum += unsafe { (*meta).len };
            }
            black_box(sum);
        }
    };
    let cases = vec![
        Case::new("32-bit handles", 64, by_handle),
        Case::new("64-bit pointers", 64, by_pointer),
    ];
    compare("read the lengths of a burst of 64", SHORT, cases);
}

// (b) Metadata apart or in the slot, (c) the distance of slots.

fn metadata() {
    for (order, slots) in pools() {
        let (memory, order_of) = (memory(slots, 38), order.1(slots));
        let layouts = [
            (
                "apart, slots of 37 lines",
                Layout::apart(&memory, slots, 37),
            ),
            ("in the slot, 37 lines", Layout::inside(&memory, slots, 37)),
            (
                "apart, slots of 32 lines",
                Layout::apart(&memory, slots, 32),
            ),
            ("in the slot, 32 lines", Layout::inside(&memory, slots, 32)),
        ];
        for burst in [32, 64] {
            let case = |(name, layout)| forward_case(name, layout, &order_of, burst);
            let order = order.0;
            compare(
                &format!("metadata: {slots} slots, bursts of {burst}, {order}"),
                SHORT,
                layouts.map(case).into(),
            );
        }
    }
}

fn strides() {
    for (order, slots) in pools() {
        let (memory, order_of) = (memory(slots, 38), order.1(slots));
        let even = Layout::apart(&memory, slots, 32);
        // Four starts, one for each pair of slots: neighbours lie half of the sets apart anyway.
        let varied = even.skewed(|index| index / 2 % 4 * LINE);
        let layouts = [
            ("37 lines", Layout::apart(&memory, slots, 37)),
            ("32 lines", even),
            ("32 lines, start varied by 0-3", varied),
        ];
        let case = |(name, layout)| forward_case(name, layout, &order_of, 32);
        let order = order.0;
        compare(
            &format!("distance of slots: {slots} slots, bursts of 32, {order}"),
            SHORT,
            layouts.map(case).into(),
        );
    }
}

/// A forwarder: receive writes 16 bytes of metadata, the application reads them and rewrites the
/// MAC addresses, transmit reads the length. The code is the same for every layout.
fn forward_case<'a>(name: &str, layout: Layout, order: &'a [u32], burst: usize) -> Case<'a> {
    let mut at = 0;
    let run = move |steps| {
        let mut sum = 0;
        for _ in 0..steps {
            let packets = &order[at..at + burst];
            at = (at + burst) % order.len();
            let fresh = black_box(60 | (HEADROOM as u128) << 32);
            for &index in packets {
                let word = layout.meta(index).wrapping_byte_add(16).cast::<u128>();
                // SAFETY: the second 16 bytes of a metadata line of the layout.
                unsafe { word.write(fresh) };
            }
            for &index in packets {
                // SAFETY: a metadata line of the layout.
                let line = unsafe { &*layout.meta(index) };
                let data = line.slot.wrapping_add(usize::from(line.start));
                // SAFETY: the first bytes of the slot's data.
                unsafe { data.cast::<u64>().write(0x0202_0202_0202) };
                // SAFETY: as above.
                unsafe { data.wrapping_add(8).cast::<u32>().write(index) };
            }
            for &index in packets {
                // SAFETY: a metadata line of the layout.
                sum += unsafe { (*layout.meta(index)).len };
            }
        }
        black_box(sum);
    };
    Case::new(name, burst, run).prepared(move || layout.write())
}

// (d) Memory channels.

/// Touches slots all over a pool far beyond the caches.
fn channels() {
    const SLOTS: u32 = 65_536;
    let (memory, order) = (memory(SLOTS, 42), shuffled(SLOTS));
    let touch = |lines_touched: usize| {
        let case = |lines: usize| {
            let data = Layout::apart(&memory, SLOTS, lines).data();
            let (order, mut at) = (&order, 0);
            Case::new(format!("{lines} lines"), 32, move |steps| {
                for _ in 0..steps {
                    for &index in &order[at..at + 32] {
                        let slot = data.wrapping_add(index as usize * lines * LINE);
                        for line in 0..lines_touched {
                            let word = slot.wrapping_add(line * LINE).cast::<u64>();
                            // SAFETY: one of the first lines of a slot, in the benchmark's memory.
                            let value = unsafe { word.read_volatile() };
                            // SAFETY: as above.
                            unsafe { word.write_volatile(value + 1) };
                        }
                    }
                    at = (at + 32) % order.len();
                }
            })
        };
        let title = format!("{SLOTS} slots one after the other, {lines_touched} line(s) of each");
        compare(&title, LONG, [37, 32, 33, 36, 40, 41].map(case).into());
    };
    touch(1);
    touch(24);
}
