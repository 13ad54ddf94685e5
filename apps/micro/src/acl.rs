//! Access lists: ClassBench-like rules, packets of which nine in ten hit one.

use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::path::Path;

use linerate_tables::TableError;
use linerate_tables::acl::generate::{Family, packets};
use linerate_tables::acl::{
    Acl, Acl4, AclConfig, AclWriter, Bits, Match4, PacketKey, PacketKey4, Prefix, Rule4,
};

use super::{Growth, Point};
use super::{Input, Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "acl.classify.100",
        about: "classify bursts of 64 by 100 rules of an access list",
        run: classify,
    },
    Row {
        name: "acl.classify.1k",
        about: "the same by 1 000 rules",
        run: classify,
    },
    Row {
        name: "acl.classify.10k",
        about: "the same by 10 000 rules",
        run: classify,
    },
    Row {
        name: "acl.classify.1k.fw",
        about: "1 000 rules of a firewall: wildcards and ranges",
        run: classify,
    },
    Row {
        name: "acl.classify.10k.fw",
        about: "10 000 rules of a firewall",
        run: classify,
    },
    Row {
        name: "acl.update.10k",
        about: "add one rule to 10 000 and publish it",
        run: update,
    },
];

/// Inputs for DPDK's side.
pub(super) const INPUTS: &[Input] = &[
    Input {
        row: "acl.classify.100",
        write: |file| write(file, "acl.classify.100"),
    },
    Input {
        row: "acl.classify.1k",
        write: |file| write(file, "acl.classify.1k"),
    },
    Input {
        row: "acl.classify.10k",
        write: |file| write(file, "acl.classify.10k"),
    },
    Input {
        row: "acl.classify.1k.fw",
        write: |file| write(file, "acl.classify.1k.fw"),
    },
    Input {
        row: "acl.classify.10k.fw",
        write: |file| write(file, "acl.classify.10k.fw"),
    },
    Input {
        row: "acl.update.10k",
        write: |file| write(file, "acl.update.10k"),
    },
];

pub(super) const GROWTH: &[Growth] = &[
    Growth {
        name: "acl4.acl",
        of: "rules",
        sizes: SIZES,
        run: |size, run| growth::<1>(Family::Acl, size, run),
    },
    Growth {
        name: "acl4.fw",
        of: "rules",
        sizes: SIZES,
        run: |size, run| growth::<1>(Family::Fw, size, run),
    },
    Growth {
        name: "acl4.ipc",
        of: "rules",
        sizes: SIZES,
        run: |size, run| growth::<1>(Family::Ipc, size, run),
    },
    Growth {
        name: "acl6.acl",
        of: "rules",
        sizes: SIZES,
        run: |size, run| growth::<4>(Family::Acl, size, run),
    },
];

const SIZES: &[u64] = &[10, 100, 1_000, 10_000, 100_000];
const BURST: usize = 64;
const PACKETS: usize = 1 << 16;
const SEED: u64 = 1;

/// Rules and packets of a row, by its name.
fn workload(row: &str) -> (Vec<Rule4>, Vec<PacketKey4>) {
    let family = match row.ends_with(".fw") {
        true => Family::Fw,
        false => Family::Acl,
    };
    let rules = match row.trim_end_matches(".fw") {
        "acl.classify.100" => 100,
        "acl.classify.1k" => 1_000,
        _ => 10_000,
    };
    let rules = family.rules(rules, SEED);
    let packets = packets(&rules, PACKETS, SEED);
    (rules, packets)
}

/// The file that DPDK's side reads, little endian: u32 rules, u32 packets; per rule u32 src, dst,
/// u16 src port low and high, dst port low and high, u8 src bits, dst bits, protocol, protocol
/// mask, u32 priority (the largest wins), u32 value; per packet u32 src, dst, u16 src port, dst
/// port, u8 protocol, 3 bytes of 0.
fn write(file: &Path, row: &str) -> Result<(), Error> {
    let (rules, packets) = workload(row);
    let save = || -> std::io::Result<()> {
        let mut out = BufWriter::new(std::fs::File::create(file)?);
        for count in [rules.len() as u32, packets.len() as u32] {
            out.write_all(&count.to_le_bytes())?;
        }
        for Rule4 {
            matching: rule,
            priority,
            value,
            ..
        } in &rules
        {
            for prefix in [rule.src, rule.dst] {
                out.write_all(&prefix.words()[0].to_le_bytes())?;
            }
            for range in [rule.src_ports, rule.dst_ports] {
                out.write_all(&range.low().to_le_bytes())?;
                out.write_all(&range.high().to_le_bytes())?;
            }
            let protocol = [rule.protocol.value() as u8, rule.protocol.mask() as u8];
            out.write_all(&[rule.src.bits(), rule.dst.bits(), protocol[0], protocol[1]])?;
            out.write_all(&((1 << 28) - priority).to_le_bytes())?;
            out.write_all(&value.to_le_bytes())?;
        }
        for packet in &packets {
            let (src_port, dst_port) = packet.ports().unwrap_or_default();
            let ports = u32::from(src_port) | u32::from(dst_port) << 16;
            for word in [packet.src[0], packet.dst[0], ports] {
                out.write_all(&word.to_le_bytes())?;
            }
            out.write_all(&[packet.protocol() as u8, 0, 0, 0])?;
        }
        out.flush()
    };
    save().map_err(Error::Output)
}

/// Times lookups of all the packets, burst by burst.
fn time<const W: usize>(run: &Run, acl: &Acl<W>, packets: &[PacketKey<W>]) -> f64 {
    let mut values = [0; BURST];
    let mut bursts = packets.chunks_exact(BURST).cycle();
    run.time(|| {
        if let Some(burst) = bursts.next() {
            acl.classify(black_box(burst), &mut values);
            black_box(&values);
        }
        BURST as u64
    })
}

/// A table of these rules.
fn table<const W: usize>(rules: &[linerate_tables::acl::Rule<W>]) -> Result<Acl<W>, Error> {
    let mut acl = Acl::new(AclConfig::default())?;
    acl.insert_all(rules)?;
    Ok(acl)
}

fn classify(row: &'static str, run: Run) -> Result<Sample, Error> {
    let (rules, packets) = workload(row);
    let acl: Acl4 = table(&rules)?;
    let mut sum = 0;
    let mut values = [0; BURST];
    for burst in packets.chunks_exact(BURST) {
        acl.classify(burst, &mut values);
        sum += values.iter().map(|value| u64::from(*value)).sum::<u64>();
    }
    let bytes = acl.bytes();
    let ns = run.pinned(move |run| time(run, &acl, &packets))?;
    let sample = Sample::new(row, ns, "ns", "heap");
    // DPDK's side prints the same sum if both gave the same answers.
    Ok(sample
        .with("rules", rules.len())
        .with("sum", sum)
        .with("bytes", bytes))
}

/// Adds a rule and publishes it; what it takes to remove it again is not counted.
fn update(row: &'static str, run: Run) -> Result<Sample, Error> {
    let (rules, _) = workload(row);
    let mut acl = Acl4::new(AclConfig {
        rebuild: false,
        ..AclConfig::default()
    })?;
    acl.insert_all(&rules)?;
    let mut writer = AclWriter::new(acl)?;
    let mut reader = writer.reader();
    let timed = run.pinned(move |run| -> Result<_, TableError> {
        let (mut spent, mut worst, mut rounds) = (0, 0, 0);
        let began = std::time::Instant::now();
        while began.elapsed() < run.duration || rounds < 100 {
            let host = rounds as u32 & 0xff;
            let matching = Match4 {
                src: prefix(0xcb00_7100, 24),
                dst: prefix(0xc633_6400 + host, 32),
                protocol: Bits::byte(6),
                ..Match4::ANY
            };
            let start = std::time::Instant::now();
            writer.insert(&Rule4::new(1, matching, 77))?;
            let published = writer.publish();
            let ns = start.elapsed().as_nanos() as u64;
            debug_assert!(published, "the only reader has looked");
            black_box(reader.read());
            spent += ns;
            worst = worst.max(ns);
            rounds += 1;
            writer.remove(&matching, 1)?;
            writer.publish();
            black_box(reader.read());
        }
        Ok((spent as f64 / f64::from(rounds), worst))
    })?;
    let (ns, worst) = timed?;
    let sample = Sample::new(row, ns, "ns", "heap");
    Ok(sample.with("rules", rules.len()).with("worst_ns", worst))
}

fn prefix(word: u32, len: u8) -> Prefix<1> {
    Prefix::new([word], len).expect("no bits behind its length")
}

fn growth<const W: usize>(family: Family, rules: u64, run: Run) -> Result<Point, Error> {
    let rules = family.rules::<W>(rules as usize, SEED);
    let packets = packets(&rules, PACKETS, SEED);
    let acl = table(&rules)?;
    let bytes_each = acl.bytes() as f64 / rules.len() as f64;
    let ns = run.pinned(move |run| time(run, &acl, &packets))?;
    Ok(Point { ns, bytes_each })
}
