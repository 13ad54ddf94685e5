//! Receive side scaling: the hash and its inverse.
//!
//! Both sides hash 2048 random tuples in bursts of 32 by Microsoft's key; DPDK's bulk form is given
//! its array of pointers ready made. The inverse asks for 1000 ports of one of 8 queues behind a
//! RETA of 128 entries, for another tuple each time.

use super::{Growth, Point};
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_tables::rss::{Inverse, MICROSOFT_KEY, PortField, Reta, Toeplitz};
use std::hint::black_box;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "rss.toeplitz.12",
        about: "Toeplitz hash of 32 IPv4 tuples of addresses and ports",
        run: hash12,
    },
    Row {
        name: "rss.toeplitz.36",
        about: "Toeplitz hash of 32 IPv6 tuples of addresses and ports",
        run: hash36,
    },
    Row {
        name: "rss.softrss.12",
        about: "the same as rss.toeplitz.12, for the peer's scalar form",
        run: hash12,
    },
    Row {
        name: "rss.softrss.36",
        about: "the same as rss.toeplitz.36, for the peer's scalar form",
        run: hash36,
    },
    Row {
        name: "rss.inverse",
        about: "1000 ports that land on a queue, per port",
        run: inverse,
    },
];

pub(super) const GROWTH: &[Growth] = &[Growth {
    name: "rss.inverse",
    of: "entries",
    sizes: &[1, 16, 128, 512, 2048, 65_536],
    run: inverse_growth,
}];

const TUPLES: usize = 2048;
const BURST: usize = 32;
const QUEUES: u16 = 8;
const PORTS: usize = 1000;

fn tuples<const N: usize>() -> Vec<[u8; N]> {
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = |_| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        (word >> 32) as u8
    };
    (0..TUPLES)
        .map(|_| std::array::from_fn(&mut byte))
        .collect()
}

fn hash12(row: &'static str, run: Run) -> Result<Sample, Error> {
    hash::<12>(row, run, Toeplitz::tuples12)
}

fn hash36(row: &'static str, run: Run) -> Result<Sample, Error> {
    hash::<36>(row, run, Toeplitz::tuples36)
}

fn hash<const N: usize>(
    row: &'static str,
    run: Run,
    bulk: fn(&Toeplitz, &[[u8; N]], &mut [u32]),
) -> Result<Sample, Error> {
    let rss = Toeplitz::new(&MICROSOFT_KEY)?;
    let kernel = rss.kernel();
    let ns = run.pinned(move |run| {
        let tuples = tuples::<N>();
        let (bursts, _) = tuples.as_chunks::<BURST>();
        let mut hashes = [0; BURST];
        run.time(|| {
            for burst in bursts {
                bulk(&rss, black_box(burst), &mut hashes);
                black_box(&hashes);
            }
            TUPLES as u64
        })
    })?;
    Ok(Sample::new(row, ns, "ns", "4 KiB")
        .with("kernel", kernel)
        .with("burst", BURST))
}

fn inverse(row: &'static str, run: Run) -> Result<Sample, Error> {
    let (inverse, ports) = (on_reta(128)?, PORTS);
    let tuple = &tuples::<12>()[0];
    let all: usize = (0..QUEUES)
        .map(|queue| Ok(inverse.ports(tuple, queue)?.count()))
        .sum::<Result<usize, Error>>()?;
    let wrong = wrong_queue(&inverse)?;
    let ns = run.pinned(move |run| invert(run, &inverse, ports))?;
    Ok(Sample::new(row, ns, "ns", "4 KiB")
        .with("ports", PORTS)
        .with("ports_of_all_queues", all)
        .with("wrong_queue", wrong)
        .with("key", "as it is"))
}

/// Ports listed for a queue that do not land on it, over 64 tuples.
fn wrong_queue(inverse: &Inverse) -> Result<usize, Error> {
    let mut wrong = 0;
    for (index, tuple) in tuples::<12>()[..64].iter_mut().enumerate() {
        let queue = index as u16 % QUEUES;
        for port in inverse.ports(&tuple.clone(), queue)?.iter() {
            tuple[10..].copy_from_slice(&port.to_be_bytes());
            wrong += usize::from(inverse.queue(tuple) != queue);
        }
    }
    Ok(wrong)
}

fn on_reta(entries: usize) -> Result<Inverse, Error> {
    let rss = Toeplitz::new(&MICROSOFT_KEY)?;
    let reta = Reta::round_robin(entries, entries.min(QUEUES.into()) as u16)?;
    Ok(Inverse::new(rss.affine(), PortField::V4_DST, &reta)?)
}

/// Nanoseconds per port.
fn invert(run: &Run, inverse: &Inverse, ports: usize) -> f64 {
    let tuples = tuples::<12>();
    let queues = inverse.reta().queue_count();
    let mut found = vec![0; ports];
    let mut asked = 0;
    run.time(|| {
        asked += 1;
        let (tuple, queue) = (&tuples[asked % TUPLES], (asked % queues) as u16);
        let count = match inverse.ports(black_box(tuple), queue) {
            Ok(ports) => ports.write(&mut found),
            Err(_) => 0,
        };
        black_box(&found);
        count as u64
    })
}

fn inverse_growth(entries: u64, run: Run) -> Result<Point, Error> {
    let inverse = on_reta(entries as usize)?;
    let bytes = inverse.bytes();
    let ns = run.pinned(move |run| invert(run, &inverse, PORTS))?;
    Ok(Point {
        ns,
        bytes_each: bytes as f64 / entries as f64,
    })
}
