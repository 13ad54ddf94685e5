//! Flow tables: packets of known flows, and flows that come and go.

use std::hint::black_box;

use linerate_core::mem::PageKind;
use linerate_tables::exact::Seed;
use linerate_tables::flow::{First, FlowConfig, FlowTable4, states};
use linerate_wire::flow::FlowKey4;

use super::growth::{Growth, Point};
use super::random::{below, mixed};
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
];

const SIZES: &[u64] = &[10, 100, 1_000, 10_000, 100_000, 1_000_000];

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

fn first() -> First<u64> {
    First {
        state: states::UDP,
        owner: 0,
        user: 0,
        bytes: 64,
    }
}

/// A full table: the `number`-th flow begins at tick `number`.
fn filled(flows: u64, timeout: u64) -> Result<(FlowTable4<u64>, f64), Error> {
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
