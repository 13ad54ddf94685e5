//! Meters: bursts of 32 packets of random lengths on random meters, at about twice the committed
//! rate, so that every colour comes.

use std::hint::black_box;

use linerate_tables::TableError;
use linerate_tables::meter::{
    Color, Meters, Profile, SrTcm, SrTcmConfig, TrTcm, TrTcm4115, TrTcm4115Config, TrTcmConfig,
};

use super::random::{below, mixed};
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "meter.srtcm.4k",
        about: "colour packets by 32, srTCM (RFC 2697), 4096 meters",
        run: |row, run| timed(row, run, 4096, SrTcm::new(&SRTCM)),
    },
    Row {
        name: "meter.trtcm.4k",
        about: "colour packets by 32, trTCM (RFC 2698), 4096 meters",
        run: |row, run| timed(row, run, 4096, TrTcm::new(&TRTCM)),
    },
    Row {
        name: "meter.rfc4115.4k",
        about: "colour packets by 32, RFC 4115, 4096 meters",
        run: |row, run| timed(row, run, 4096, TrTcm4115::new(&RFC4115)),
    },
    Row {
        name: "meter.srtcm.1m",
        about: "colour packets by 32, srTCM (RFC 2697), 1 M meters",
        run: |row, run| timed(row, run, 1 << 20, SrTcm::new(&SRTCM)),
    },
];

const HZ: u64 = 1_000_000_000;
/// Bytes a second and bytes: xtask/peer/meter.c has the same.
const CIR: u64 = 1_000_000;
const PIR: u64 = 1_500_000;
const EIR: u64 = 500_000;
const BURST: u64 = 4000;
const SRTCM: SrTcmConfig = SrTcmConfig {
    cir: CIR,
    cbs: BURST,
    ebs: BURST,
    hz: HZ,
};
const TRTCM: TrTcmConfig = TrTcmConfig {
    cir: CIR,
    cbs: BURST,
    pir: PIR,
    pbs: BURST,
    hz: HZ,
};
const RFC4115: TrTcm4115Config = TrTcm4115Config {
    cir: CIR,
    cbs: BURST,
    eir: EIR,
    ebs: BURST,
    hz: HZ,
};
/// Packets drawn beforehand, and packets of a burst.
const DRAWN: u64 = 1 << 20;
const BULK: usize = 32;

/// Nanoseconds between bursts: 32 packets of 800 bytes at twice the committed rate.
fn apart(meters: usize) -> u64 {
    BULK as u64 * 800 * HZ / (2 * CIR * meters as u64)
}

fn timed<P: Profile + Send + 'static>(
    row: &'static str,
    run: Run,
    meters: usize,
    profile: Result<P, TableError>,
) -> Result<Sample, Error> {
    let mut array = Meters::new("bench", meters, profile?, 0)?;
    let (bytes_each, pages) = (array.bytes() as f64 / meters as f64, array.pages());
    let numbers: Vec<u32> = (0..DRAWN)
        .map(|number| below(number, meters as u64) as u32)
        .collect();
    let lengths: Vec<u32> = (0..DRAWN)
        .map(|number| 64 + (mixed(!number) % 1473) as u32)
        .collect();
    let apart = apart(meters);
    let (ns, seen) = run.pinned(move |run| {
        let bursts = numbers.chunks_exact(BULK).zip(lengths.chunks_exact(BULK));
        let mut bursts = bursts.cycle();
        let (mut now, mut seen) = (0, [0_u64; 3]);
        let mut colors = [Color::Green; BULK];
        let ns = run.time(|| {
            let (numbers, lengths) = bursts.next().unwrap_or_default();
            now += apart;
            colors.fill(Color::Green);
            array.mark(now, black_box(numbers), black_box(lengths), &mut colors);
            seen[black_box(colors[0]) as usize] += 1;
            BULK as u64
        });
        (ns, seen)
    })?;
    let of_all = seen.iter().sum::<u64>() as f64 / 100.0;
    Ok(Sample::new(row, ns, "ns", pages)
        .with("bytes_each", bytes_each)
        .with("green_percent", seen[0] as f64 / of_all)
        .with("yellow_percent", seen[1] as f64 / of_all)
        .with("red_percent", seen[2] as f64 / of_all))
}
