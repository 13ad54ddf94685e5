//! Maglev tables and heavy-hitter sketches.

use std::hint::black_box;

use linerate_tables::exact::Seed;
use linerate_tables::maglev::{Backend, DEFAULT_ENTRIES, Maglev};
use linerate_tables::sketch::{HeavyHitters, SketchConfig};

use super::random::mixed;
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "maglev.lookup",
        about: "the backends of 32 random hashes, 65537 entries",
        run: lookup,
    },
    Row {
        name: "maglev.build",
        about: "fill a table of 65537 entries for 100 backends, per entry",
        run: build,
    },
    Row {
        name: "sketch.add",
        about: "count packets by 32 of Zipf's law over 100 K keys, width 4096, 100 listed",
        run: count,
    },
];

const BULK: usize = 32;

fn table() -> Result<Maglev, Error> {
    let backend = |number| Backend {
        name: format!("10.0.0.{number}:80"),
        weight: 1 + number % 3_u32,
    };
    Ok(Maglev::new(
        (0..100).map(backend).collect(),
        DEFAULT_ENTRIES,
        0,
    )?)
}

fn lookup(row: &'static str, run: Run) -> Result<Sample, Error> {
    let table = table()?;
    let hashes: Vec<u32> = (0..1 << 16).map(|number| mixed(number) as u32).collect();
    let bytes = table.bytes();
    let ns = run.pinned(move |run| {
        let mut bursts = hashes.chunks_exact(BULK).cycle();
        let mut backends = [0; BULK];
        run.time(|| {
            let burst = bursts.next().unwrap_or_default();
            table.lookup_bulk(black_box(burst), &mut backends);
            black_box(&backends);
            BULK as u64
        })
    })?;
    Ok(Sample::new(row, ns, "ns", "4 KiB pages").with("bytes", bytes))
}

fn build(row: &'static str, run: Run) -> Result<Sample, Error> {
    let ns = run.pinned(|run| {
        let began = std::time::Instant::now();
        let mut entries = 0;
        while began.elapsed() < run.duration {
            entries += black_box(table()?).len();
        }
        Ok::<_, Error>(began.elapsed().as_nanos() as f64 / entries as f64)
    })??;
    Ok(Sample::new(row, ns, "ns", "4 KiB pages"))
}

fn count(row: &'static str, run: Run) -> Result<Sample, Error> {
    let config = SketchConfig {
        name: "bench".into(),
        width: 4096,
        listed: 100,
        window: u64::MAX,
        seed: Seed::random(),
    };
    let mut sketch = HeavyHitters::<16>::new(&config, 0)?;
    let bytes = sketch.bytes();
    // Zipf's law with exponent 1: the rank at an even place of the harmonic sum, which is the
    // logarithm.
    let packet = |number: u64| {
        let place = (mixed(number) >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = 100_000_f64.powf(place) as u64;
        let mut key = [0; 16];
        key[..8].copy_from_slice(&mixed(rank).to_le_bytes());
        key
    };
    let keys: Vec<[u8; 16]> = (0..1 << 18).map(packet).collect();
    let ns = run.pinned(move |run| {
        let mut bursts = keys.chunks_exact(BULK).cycle();
        let ns = run.time(|| {
            let burst = bursts.next().unwrap_or_default();
            sketch.add_bulk(black_box(burst), &[1; BULK]);
            BULK as u64
        });
        black_box(sketch.total());
        ns
    })?;
    Ok(Sample::new(row, ns, "ns", "4 KiB pages").with("bytes", bytes))
}
