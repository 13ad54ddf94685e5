//! Parsing bursts and checking checksums, over more frames than the first-level cache holds.

use std::hint::black_box;

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
use linerate_tables::parse::{Checksums, Crc32c, Parsed, Parser};

use super::random::mixed;
use super::{Growth, Point};
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "parse.burst64",
        about: "offsets, types, keys and both checksums of bursts of 64 UDP and TCP frames of 64 \
            bytes",
        run: |row, run| parse(row, run, true, shortest),
    },
    Row {
        name: "parse.keys64",
        about: "the same without the checksums",
        run: |row, run| parse(row, run, false, shortest),
    },
    Row {
        name: "parse.imix",
        about: "the same with checksums: 64, 594 and 1518 bytes (7:4:1), IPv4 and IPv6, some \
            tagged",
        run: |row, run| parse(row, run, true, imix),
    },
    Row {
        name: "parse.checksum.1500",
        about: "the Internet checksum of 1500 bytes",
        run: |row, run| {
            let checksums = Checksums::new(Isa::detect());
            over_slices(row, run, move |data| checksums.sum(data).into())
        },
    },
    Row {
        name: "parse.crc32c.1500",
        about: "the CRC32C of 1500 bytes",
        run: |row, run| {
            let crc = Crc32c::new(Isa::detect());
            over_slices(row, run, move |data| crc.of(data))
        },
    },
];

pub(super) const GROWTH: &[Growth] = &[
    Growth {
        name: "parse.checksum",
        of: "bytes",
        sizes: &[10, 100, 1_000, 10_000, 100_000, 1_000_000],
        run: |bytes, run| {
            let checksums = Checksums::new(Isa::detect());
            grown(bytes, run, move |data| checksums.sum(data).into())
        },
    },
    Growth {
        name: "parse.crc32c",
        of: "bytes",
        sizes: &[10, 100, 1_000, 10_000, 100_000, 1_000_000],
        run: |bytes, run| {
            let crc = Crc32c::new(Isa::detect());
            grown(bytes, run, move |data| crc.of(data))
        },
    },
];

/// Bursts in the pool: 4096 frames, as on DPDK's side.
const BURSTS: usize = 64;

fn random(state: &mut u64) -> u64 {
    *state += 1;
    mixed(*state)
}

/// A frame of 60 bytes (64 with its check sequence): IPv4 and UDP, or TCP, by halves.
fn shortest(state: &mut u64) -> Vec<u8> {
    frame(60, false, false, state)
}

fn imix(state: &mut u64) -> Vec<u8> {
    let (v6, tagged) = (random(state) & 1 != 0, random(state) & 3 == 0);
    let bytes = match random(state) % 12 {
        0..7 if v6 => 78,
        0..7 => 60,
        7..11 => 590,
        _ => 1514,
    };
    frame(bytes, v6, tagged, state)
}

/// Random but for what makes it a sound UDP or TCP frame; checksums are filled later.
fn frame(bytes: usize, v6: bool, tagged: bool, state: &mut u64) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..bytes).map(|_| random(state) as u8).collect();
    let protocol = if random(state) & 1 != 0 { 17 } else { 6 };
    let l3 = if tagged { 18 } else { 14 };
    if tagged {
        frame[12..14].copy_from_slice(&[0x81, 0x00]);
    }
    let length = (bytes - l3) as u16;
    let (l4, l4_length) = if v6 {
        frame[l3 - 2..=l3].copy_from_slice(&[0x86, 0xdd, 0x60]);
        frame[l3 + 4..l3 + 6].copy_from_slice(&(length - 40).to_be_bytes());
        frame[l3 + 6] = protocol;
        (l3 + 40, length - 40)
    } else {
        frame[l3 - 2..=l3].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[l3 + 2..l3 + 4].copy_from_slice(&length.to_be_bytes());
        frame[l3 + 6..l3 + 8].copy_from_slice(&[0x40, 0]);
        frame[l3 + 9] = protocol;
        (l3 + 20, length - 20)
    };
    match protocol {
        17 => frame[l4 + 4..l4 + 6].copy_from_slice(&l4_length.to_be_bytes()),
        _ => frame[l4 + 12] = 5 << 4,
    }
    frame
}

fn parse(
    row: &'static str,
    run: Run,
    check: bool,
    frame: fn(&mut u64) -> Vec<u8>,
) -> Result<Sample, Error> {
    let pool = Pool::new(&PoolConfig::new("bench", 8192))?;
    let pages = pool.page_kind();
    let isa = Isa::detect();
    let (ns, is_right) = run.pinned(move |run| {
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let mut state = 0;
        let mut fill = || {
            let mut burst = Burst::new();
            cache.fill(&pool, &mut burst, Burst::CAPACITY);
            for packet in burst.iter_mut() {
                packet.set_data(&frame(&mut state));
            }
            Checksums::new(isa).fill(&mut burst);
            burst
        };
        let mut bursts: Vec<Burst> = (0..BURSTS).map(|_| fill()).collect();
        let (parser, mut parsed) = (Parser::new(isa), Parsed::new());
        let (mut next, mut wrong) = (0, 0);
        let ns = run.time(|| {
            let burst = &mut bursts[next];
            next = (next + 1) % BURSTS;
            let right = if check {
                parser.parse_checked(burst, &mut parsed);
                parsed.checks.l4_good & !parsed.checks.ip_bad
            } else {
                parser.parse(burst, &mut parsed);
                parsed.class.tcp | parsed.class.udp
            };
            wrong |= !right;
            black_box(&parsed);
            burst.len() as u64
        });
        (ns, wrong == 0)
    })?;
    let sample = Sample::new(row, ns, "ns", pages);
    Ok(sample
        .with("isa", isa.to_string())
        .with("all_checksums_right", is_right))
}

fn over_slices(
    row: &'static str,
    run: Run,
    of: impl Fn(&[u8]) -> u32 + Send + 'static,
) -> Result<Sample, Error> {
    let ns = time_slices(1500, 256, run, of)?;
    let sample = Sample::new(row, ns, "ns", "heap");
    Ok(sample.with("isa", Isa::detect().to_string()))
}

fn grown(bytes: u64, run: Run, of: impl Fn(&[u8]) -> u32 + Send + 'static) -> Result<Point, Error> {
    let bytes = bytes as usize;
    let ns = time_slices(bytes, (100_000 / bytes).max(1), run, of)?;
    // Only sums are kept.
    let bytes_each = 1.0;
    Ok(Point { ns, bytes_each })
}

/// Nanoseconds for each of `count` slices of `bytes`, side by side in memory.
fn time_slices(
    bytes: usize,
    count: usize,
    run: Run,
    of: impl Fn(&[u8]) -> u32 + Send + 'static,
) -> Result<f64, Error> {
    run.pinned(move |run| {
        let mut state = 0;
        let data: Vec<u8> = (0..bytes * count)
            .map(|_| random(&mut state) as u8)
            .collect();
        let mut slices = data.chunks_exact(bytes).cycle();
        run.time(|| {
            let slice = slices.next().unwrap_or(&[]);
            black_box(of(black_box(slice)));
            1
        })
    })
}
