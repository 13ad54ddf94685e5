//! What ADR 1 decides, measured: handles of 32 bits, metadata apart from the data, an odd number of
//! cache lines between slots, no further padding for memory channels.
//!
//! Each table puts alternatives in turns, slice by slice of a few milliseconds and in the same
//! memory, so that a busy machine disturbs all alike; a round counts the slice at
//! the lower quarter. Shown are the median time of the rounds and the ratio to the first row, which
//! is what the kit does (above 1: slower than it), with the smallest and the largest round. Run it
//! with `cargo bench -p linerate-core --bench packet_layout`; `-- metadata` and the like runs one
//! part. Two-core rows mean something only while both CPUs are free.

use linerate_core::mem::{PageKind, PagePolicy, Region, RegionConfig};
use linerate_core::ring::{Pop, Push, spsc};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: usize = 7;
const SLICES: usize = 13;
const LINE: usize = 64;
/// Bytes before the data of a packet, in every alternative.
const HEADROOM: usize = 256;

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

/// One alternative: its name, and what does a number of steps, each of so many packets.
struct Case<'a> {
    name: String,
    packets_per_step: usize,
    /// Before each slice, untimed.
    prepare: Box<dyn FnMut() + 'a>,
    run: Box<dyn FnMut(usize) + 'a>,
}

impl<'a> Case<'a> {
    fn new(name: impl Into<String>, packets: usize, run: impl FnMut(usize) + 'a) -> Self {
        Self {
            name: name.into(),
            packets_per_step: packets,
            prepare: Box::new(|| ()),
            run: Box::new(run),
        }
    }

    fn prepared(mut self, prepare: impl FnMut() + 'a) -> Self {
        self.prepare = Box::new(prepare);
        self
    }

    fn time(&mut self, steps: usize) -> Duration {
        (self.prepare)();
        let began = Instant::now();
        (self.run)(steps);
        began.elapsed()
    }

    /// Steps that take about as long as a slice should. The best of three, or a case that was
    /// disturbed here would measure nothing but cold caches ever after.
    fn steps_of(&mut self, slice: Duration) -> usize {
        let mut steps = 1;
        while (0..3).any(|_| self.time(steps) < slice) {
            steps *= 2;
        }
        steps
    }
}

/// The value below which one part in `parts` of the values lie.
fn quantile(values: &mut [f64], parts: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / parts]
}

/// Runs the cases in turns and prints a line for each.
fn compare(title: &str, slice: Duration, mut cases: Vec<Case<'_>>) {
    let steps: Vec<usize> = cases.iter_mut().map(|case| case.steps_of(slice)).collect();
    let mut rounds = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        let mut slices = vec![Vec::new(); cases.len()];
        for turn in 0..SLICES * cases.len() {
            // Whoever begins changes from turn to turn.
            let index = (turn + turn / cases.len()) % cases.len();
            let case = &mut cases[index];
            let packets = (steps[index] * case.packets_per_step) as f64;
            slices[index].push(case.time(steps[index]).as_nanos() as f64 / packets);
        }
        for (round, slices) in rounds.iter_mut().zip(&mut slices) {
            round.push(quantile(slices, 4));
        }
    }
    println!("\n{title}");
    let first = rounds[0].clone();
    for (case, round) in cases.iter().zip(&mut rounds) {
        let mut ratios: Vec<f64> = round.iter().zip(&first).map(|(a, b)| a / b).collect();
        let ratio = quantile(&mut ratios, 2);
        let (low, high) = (ratios[0], ratios[ROUNDS - 1]);
        let ns = quantile(round, 2);
        println!(
            "  {:<34} {ns:>8.2} ns   {ratio:>5.2}   [{low:.2}, {high:.2}]",
            case.name
        );
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

/// A stack of free slots from which 32 are taken and to which they are given back.
fn stack_case<T: Copy + Default + 'static>(name: &str) -> Case<'static> {
    let mut stack = vec![T::default(); 576];
    let mut burst = [T::default(); 32];
    Case::new(name, 32, move |steps| {
        for _ in 0..steps {
            // Lengths that the compiler does not know, as in a cache.
            let (len, count) = black_box((512_usize, 32_usize));
            burst[..count].copy_from_slice(&stack[len - count..len]);
            black_box(&mut burst);
            stack[len - count..len].copy_from_slice(&burst[..count]);
            black_box(&mut stack);
        }
    })
}

fn ring_case<T: Copy + Default + 'static>(name: &str) -> Case<'static> {
    let (mut producer, mut consumer) = spsc::ring::<T>(1024);
    let mut burst = [T::default(); 32];
    // Half full, so that the elements lie where a ring in use has them.
    (0..16).for_each(|_| assert!(producer.push_slice_bulk(&burst)));
    Case::new(name, 32, move |steps| {
        for _ in 0..steps {
            producer.push_slice(black_box(&burst));
            consumer.pop_slice(black_box(&mut burst));
        }
    })
}

fn two_core_case<T: Copy + Default + Send + 'static>(name: &str) -> Case<'static> {
    let (mut producer, mut consumer) = spsc::ring::<T>(1024);
    Case::new(name, 32, move |steps| {
        let producer = &mut producer;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let burst = [T::default(); 32];
                for _ in 0..steps {
                    while !producer.push_slice_bulk(black_box(&burst)) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut burst = [T::default(); 32];
            for _ in 0..steps {
                while !consumer.pop_slice_bulk(black_box(&mut burst)) {
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
        let varied = Layout {
            skew: |index| index / 2 % 4 * LINE,
            ..even
        };
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

// The pools.

/// As the kit's metadata line, in what the loop touches.
#[repr(C, align(64))]
struct Meta {
    slot: *mut u8,
    pool: *const u8,
    len: u32,
    start: u16,
    rest: [u8; 10],
    more: [u64; 4],
}

/// Where metadata and data of a pool's slots lie. Several share one memory, in turns.
#[derive(Clone, Copy)]
struct Layout {
    base: *mut u8,
    slots: usize,
    meta_stride: usize,
    data_offset: usize,
    stride: usize,
    /// What to add to the start of a slot.
    skew: fn(usize) -> usize,
}

/// Enough for metadata and slots of so many lines, in 2 MiB pages if the kernel has them.
fn memory(slots: u32, lines: usize) -> Region {
    Region::map(&RegionConfig {
        name: "benchmark".into(),
        bytes: slots as usize * lines * LINE + 4096,
        pages: PagePolicy::Only(PageKind::Transparent),
        ..RegionConfig::default()
    })
    .expect("the benchmark needs some 200 MB of memory")
}

impl Layout {
    /// Metadata in an array before the slots.
    fn apart(memory: &Region, slots: u32, lines: usize) -> Self {
        Self {
            base: memory.as_ptr(),
            slots: slots as usize,
            meta_stride: LINE,
            data_offset: slots as usize * LINE,
            stride: lines * LINE,
            skew: |_| 0,
        }
    }

    /// Metadata at the head of each slot.
    fn inside(memory: &Region, slots: u32, lines: usize) -> Self {
        Self {
            meta_stride: lines * LINE,
            data_offset: 0,
            ..Self::apart(memory, slots, lines)
        }
    }

    /// Makes the memory this layout's.
    fn write(&self) {
        for index in 0..self.slots {
            let skew = (self.skew)(index);
            let slot = self.data().wrapping_add(index * self.stride + skew);
            let meta = Meta {
                slot,
                pool: slot,
                len: 60,
                start: HEADROOM as u16,
                rest: [0; 10],
                more: [0; 4],
            };
            // SAFETY: a line of the benchmark's memory, which it does not use otherwise.
            unsafe { self.meta(index as u32).write(meta) };
        }
    }

    fn data(&self) -> *mut u8 {
        self.base.wrapping_add(self.data_offset)
    }

    #[inline(always)]
    fn meta(&self, index: u32) -> *mut Meta {
        let at = index as usize * self.meta_stride;
        self.base.wrapping_add(at).cast()
    }
}

/// How slots follow each other in bursts, and the order itself.
type Order = (&'static str, fn(u32) -> Vec<u32>);

/// Each size of pool in each order.
fn pools() -> impl Iterator<Item = (Order, u32)> {
    let orders: [Order; 2] = [
        ("in order", |slots| (0..slots).collect()),
        ("shuffled", shuffled),
    ];
    let sizes = [512, 2048, 8192, 16384];
    orders
        .into_iter()
        .flat_map(move |order| sizes.map(|slots| (order, slots)))
}

/// All slots once, in an order that no prefetcher guesses; the same in each run.
fn shuffled(slots: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..slots).collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..order.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(last, (seed >> 33) as usize % (last + 1));
    }
    order
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
