//! Flow tables: packets of known flows, and flows that come and go.

use std::hint::black_box;
use std::time::{Duration, Instant};

use linerate_core::mem::PageKind;
use linerate_tables::exact::Seed;
use linerate_tables::flow::{First, FlowConfig, FlowKey, FlowTable, FlowTable4, states};
use linerate_wire::flow::{FlowKey4, FlowKey6};

use super::random::{below, mixed};
use super::{Growth, Point};
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "flow.touch.1k",
        about: "find and count packets by 32, both directions, 1 K IPv4 flows",
        run: |row, run| sample(row, touch(1_000, run)?),
    },
    Row {
        name: "flow.touch.1m",
        about: "find and count packets by 32, both directions, 1 M IPv4 flows",
        run: |row, run| sample(row, touch(1_000_000, run)?),
    },
    Row {
        name: "flow.churn.1m",
        about: "begin a flow and end another by its timeout, 1 M IPv4 flows",
        run: |row, run| sample(row, churn(1_000_000, run)?),
    },
    Row {
        name: "flow.touch.pair.1k",
        about: "the same with two keys a flow; the other key read, 64 bytes of the user's written",
        run: |row, run| sample(row, touch_pair(1_000, run)?),
    },
    Row {
        name: "flow.touch.pair.1m",
        about: "the same, 1 M IPv4 flows",
        run: |row, run| sample(row, touch_pair(1_000_000, run)?),
    },
    Row {
        name: "flow.insert_pair",
        about: "begin a flow with two keys, up to 1 M IPv4 flows",
        run: |row, run| sample(row, begin_and_end(1_000_000, run)?.0),
    },
    Row {
        name: "flow.end",
        about: "end a flow with two keys by its timeout, of 1 M IPv4 flows",
        run: |row, run| {
            let (_, (point, pages)) = begin_and_end(1_000_000, run)?;
            let each_second = 1e9 / point.ns;
            Ok(sample(row, (point, pages))?.with("flows_each_second", each_second))
        },
    },
    Row {
        name: "flow.move",
        about: "take a flow with two keys out by its bucket, put it in elsewhere, 1 M IPv4 flows",
        run: |row, run| sample(row, moved(1_000_000, run)?),
    },
    Row {
        name: "gateway.flow.bytes",
        about: "memory a flow at set-up, 64 bytes of the user's in it, 1 M IPv4 flows",
        run: |row, run| {
            let flows = if run.quick { 1_000 } else { 1_000_000 };
            let (value, pages) = bytes_each::<FlowKey4, 16>(flows, false)?;
            Ok(Sample::new(row, value, "bytes", pages)
                .with("ipv4_nat", bytes_each::<FlowKey4, 16>(flows, true)?.0)
                .with("ipv6", bytes_each::<FlowKey6, 40>(flows, false)?.0)
                .with("ipv6_nat", bytes_each::<FlowKey6, 40>(flows, true)?.0))
        },
    },
];

const SIZES: &[u64] = &[10, 100, 1_000, 10_000, 100_000, 1_000_000];
/// As many as a gateway may be asked to have.
const MANY: &[u64] = &[1_000, 10_000, 100_000, 1_000_000, 10_000_000];

pub(super) const GROWTH: &[Growth] = &[
    Growth {
        name: "flow.touch",
        of: "flows",
        sizes: SIZES,
        run: |flows, run| Ok(touch(flows, run)?.0),
    },
    Growth {
        name: "flow.churn",
        of: "flows",
        sizes: SIZES,
        run: |flows, run| Ok(churn(flows, run)?.0),
    },
    Growth {
        name: "flow.touch.pair",
        of: "flows",
        sizes: MANY,
        run: |flows, run| Ok(touch_pair(flows, run)?.0),
    },
    Growth {
        name: "flow.move",
        of: "flows",
        sizes: SIZES,
        run: |flows, run| Ok(moved(flows, run)?.0),
    },
];

const BULK: usize = 32;
/// Packets that are drawn beforehand.
const DRAWN: u64 = 1 << 18;

fn sample(row: &'static str, (point, pages): (Point, PageKind)) -> Result<Sample, Error> {
    Ok(Sample::new(row, point.ns, "ns", pages).with("bytes_each", point.bytes_each))
}

fn key(number: u64) -> FlowKey4 {
    let (ends, ports) = (mixed(number), mixed(!number));
    let (src, dst) = ((ends >> 32) as u32, ends as u32);
    let (src_port, dst_port) = ((ports >> 16) as u16, ports as u16);
    FlowKey4::new(src.to_be_bytes(), dst.to_be_bytes(), src_port, dst_port, 17)
}

fn first<S: Default>() -> First<S> {
    First {
        state: states::UDP,
        owner: 0,
        zone: 0,
        user: S::default(),
        bytes: 64,
    }
}

/// A full table: the `number`-th flow begins at tick `number`.
fn filled(flows: u64, timeout: u64) -> Result<(FlowTable4<()>, f64), Error> {
    let mut config = FlowConfig::stateful("bench", flows as usize, 1000, Seed::random());
    config.states[usize::from(states::UDP)].timeout = timeout;
    let mut table = FlowTable4::new(&config, 0)?;
    for number in 0..flows {
        let _ = table.insert(number, key(number), first());
    }
    let bytes_each = table.memory_bytes() as f64 / flows as f64;
    Ok((table, bytes_each))
}

fn touch(flows: u64, run: Run) -> Result<(Point, PageKind), Error> {
    let (mut table, bytes_each) = filled(flows, 300_000)?;
    let pages = table.pages();
    let packet = |number| {
        let key = key(below(number, flows));
        match mixed(!number) % 2 {
            0 => key,
            _ => key.reversed(),
        }
    };
    let packets: Vec<FlowKey4> = (0..DRAWN).map(packet).collect();
    let ns = run.pinned(move |run| {
        let mut bursts = packets.chunks_exact(BULK).cycle();
        let (mut now, mut found) = (flows, [None; BULK]);
        run.time(|| {
            now += 1;
            let burst = bursts.next().unwrap_or_default();
            table.touch_bulk(now, black_box(burst), &[64; BULK], &mut found);
            black_box(&found);
            BULK as u64
        })
    })?;
    Ok((Point { ns, bytes_each }, pages))
}

/// One flow a tick, each of which lives as many ticks as the table has room for.
fn churn(flows: u64, run: Run) -> Result<(Point, PageKind), Error> {
    let (mut table, bytes_each) = filled(flows, flows)?;
    let pages = table.pages();
    let ns = run.pinned(move |run| {
        let mut now = flows;
        run.time(|| {
            for _ in 0..BULK {
                let _ = black_box(table.insert(now, key(now), first()));
                now += 1;
            }
            table.poll(now + BULK as u64, 64 * BULK, |ended| {
                black_box(ended);
            });
            BULK as u64
        })
    })?;
    Ok((Point { ns, bytes_each }, pages))
}

/// What a gateway keeps with a flow.
type User = [u64; 8];

/// A flow's key and its answers', who see one of 256 addresses instead of the source.
fn pair(number: u64) -> (FlowKey4, FlowKey4) {
    let key = key(number);
    let outside = [192, 0, 2, number as u8];
    let port = (number >> 8) as u16;
    let (dst, dst_port) = (key.dst().octets(), key.dst_port());
    (key, FlowKey4::new(dst, outside, dst_port, port, 17))
}

fn of_pairs(flows: u64) -> Result<FlowTable4<User>, Error> {
    let mut config = FlowConfig::stateful("bench", flows as usize, 1000, Seed::random());
    config.translated = flows as usize;
    Ok(FlowTable4::new(&config, 0)?)
}

fn fill(table: &mut FlowTable4<User>, pairs: &[(FlowKey4, FlowKey4)], now: u64) {
    for (number, &(key, reverse)) in pairs.iter().enumerate() {
        let _ = black_box(table.insert_pair(now, key, reverse, number as u8, first()));
    }
}

fn bytes_each<F: FlowKey<K>, const K: usize>(
    flows: usize,
    translated: bool,
) -> Result<(f64, PageKind), Error> {
    let mut config = FlowConfig::stateful("bench", flows, 1000, Seed::random());
    config.translated = if translated { flows } else { 0 };
    let table = FlowTable::<F, User, K>::new(&config, 0)?;
    Ok((table.memory_bytes() as f64 / flows as f64, table.pages()))
}

fn touch_pair(flows: u64, run: Run) -> Result<(Point, PageKind), Error> {
    let mut table = of_pairs(flows)?;
    let pairs: Vec<_> = (0..flows).map(pair).collect();
    fill(&mut table, &pairs, 0);
    let (pages, bytes_each) = (table.pages(), table.memory_bytes() as f64 / flows as f64);
    let packet = |number| {
        let (key, reverse) = pairs[below(number, flows) as usize];
        match mixed(!number) % 2 {
            0 => key,
            _ => reverse,
        }
    };
    let packets: Vec<FlowKey4> = (0..DRAWN).map(packet).collect();
    let ns = run.pinned(move |run| {
        let mut bursts = packets.chunks_exact(BULK).cycle();
        let mut found = [None; BULK];
        run.time(|| {
            let burst = bursts.next().unwrap_or_default();
            table.touch_bulk(1, black_box(burst), &[64; BULK], &mut found);
            for (key, hit) in burst.iter().zip(&found) {
                if let Some(flow) = hit.and_then(|hit| table.flow_mut(&hit, *key)) {
                    flow.user[0] += 1;
                    flow.user[7] += u64::from(black_box(flow.other).dst_port());
                }
            }
            BULK as u64
        })
    })?;
    Ok((Point { ns, bytes_each }, pages))
}

type Both = ((Point, PageKind), (Point, PageKind));

/// A table is filled and emptied, again and again.
fn begin_and_end(flows: u64, run: Run) -> Result<Both, Error> {
    let flows = if run.quick { 1_000 } else { flows };
    let mut table = of_pairs(flows)?;
    let pairs: Vec<_> = (0..flows).map(pair).collect();
    let (pages, bytes_each) = (table.pages(), table.memory_bytes() as f64 / flows as f64);
    let spent = run.pinned(move |run| {
        let mut now = 0;
        phases(run.duration, || {
            let began = Instant::now();
            fill(&mut table, &pairs, now);
            let filled = began.elapsed();
            now += 300_000;
            // As the turns of a stage do it.
            while !table.is_empty() {
                table.poll(now, 256, |ended| {
                    black_box(ended);
                });
            }
            [filled, began.elapsed() - filled]
        })
    })?;
    let [begin, end] = spent.map(|spent| {
        let ns = spent / flows as f64;
        (Point { ns, bytes_each }, pages)
    });
    Ok((begin, end))
}

/// All buckets move from one table to another and back, 32 flows at a time.
fn moved(flows: u64, run: Run) -> Result<(Point, PageKind), Error> {
    let flows = if run.quick { 1_000 } else { flows };
    let (mut from, mut to) = (of_pairs(flows)?, of_pairs(flows)?);
    let pairs: Vec<_> = (0..flows).map(pair).collect();
    fill(&mut from, &pairs, 0);
    let (pages, bytes_each) = (from.pages(), from.memory_bytes() as f64 / flows as f64);
    let [spent] = run.pinned(move |run| {
        phases(run.duration, || {
            let began = Instant::now();
            for bucket in 0..=255 {
                while !from.take_bucket(bucket, BULK, |flow| {
                    let _ = black_box(to.put(flow));
                }) {}
            }
            std::mem::swap(&mut from, &mut to);
            [began.elapsed()]
        })
    })?;
    let ns = spent / flows as f64;
    Ok((Point { ns, bytes_each }, pages))
}

/// Runs something for so long, after once to warm up: nanoseconds of each of its phases.
fn phases<const N: usize>(duration: Duration, mut once: impl FnMut() -> [Duration; N]) -> [f64; N] {
    once();
    let (began, mut times, mut spent) = (Instant::now(), 0.0, [0.0; N]);
    while times == 0.0 || began.elapsed() < duration {
        for (sum, time) in spent.iter_mut().zip(once()) {
            *sum += time.as_nanos() as f64;
        }
        times += 1.0;
    }
    spent.map(|sum| sum / times)
}
