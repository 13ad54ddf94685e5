//! Layer-3 forwarding on one core, between two looping captures of 64-byte frames, each copied.
//!
//! Both ports play the same frames, the second from the middle on, so that neither finds the
//! other's entries in the cache. Both sides read three files: rules in the syntax of DPDK's l3fwd,
//! whose last fields are next hops here (the port is the lowest bit), and a capture for each port.

use std::io::Write;
use std::path::{Path, PathBuf};

use linerate_core::env::PrivateFolder;
use linerate_core::packet::{Pool, PoolCache, PoolConfig};
use linerate_core::run::Egress;
use linerate_tables::lpm::Prefix4;
use linerate_tables::lpm::synth::{Pattern, Spec, destinations, routes4};
use linerate_tables::rewrite::Macs;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::{FlowKey4, MacAddr};

use super::forward::between;
use super::random::{below, mixed};
use super::{Input, Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_l3fwd::lookup::{ExactMatch, Longest, Lookup};
use linerate_l3fwd::stage::{NextHop, path};

const LPM_1K: &str = "l3fwd.lpm.1k";
const LPM_1M: &str = "l3fwd.lpm.1m";
const EM_1K: &str = "l3fwd.em.1k";
const EM_4M: &str = "l3fwd.em.4m";

pub const ROWS: &[Row] = &[
    Row {
        name: LPM_1K,
        about: "forward by the longest match among 1000 routes, between two looping captures",
        run: |row, run| longest(row, run, &SMALL),
    },
    Row {
        name: LPM_1M,
        about: "the same by a million routes to 1000 next hops, destinations by Zipf's law",
        run: |row, run| longest(row, run, &FULL),
    },
    Row {
        name: EM_1K,
        about: "the same by the exact match among 1000 flows",
        run: |row, run| exact(row, run, &FEW),
    },
    Row {
        name: EM_4M,
        about: "the same by the exact match among 4 million flows",
        run: |row, run| exact(row, run, &MANY),
    },
];

/// Inputs for DPDK's side.
pub const INPUTS: &[Input] = &[
    Input {
        row: LPM_1K,
        write: |path| SMALL.write(path),
    },
    Input {
        row: LPM_1M,
        write: |path| FULL.write(path),
    },
    Input {
        row: EM_1K,
        write: |path| FEW.write(path),
    },
    Input {
        row: EM_4M,
        write: |path| MANY.write(path),
    },
];

const SMALL: Routes = Routes {
    routes: 1000,
    next_hops: 2,
    pattern: Pattern::Prefixes,
    frames: 1024,
};
/// The full table, for the router's row too.
pub const FULL: Routes = Routes {
    routes: 1_000_000,
    next_hops: 1000,
    pattern: Pattern::Zipf,
    frames: 1 << 20,
};
const FEW: Flows = Flows {
    flows: 1000,
    frames: 1024,
    has_rules: true,
};
/// Its rules are made by number on both sides: reading them from a file would take half a minute.
const MANY: Flows = Flows {
    flows: 4_000_000,
    frames: 1 << 20,
    has_rules: false,
};

/// A routing table, and the destinations that are looked up.
pub struct Routes {
    pub(super) routes: usize,
    pub(super) next_hops: u32,
    pub(super) pattern: Pattern,
    pub(super) frames: usize,
}

impl Routes {
    pub fn table(&self) -> Vec<(Prefix4, u32)> {
        routes4(&Spec {
            next_hops: self.next_hops,
            ..Spec::new(self.routes, 1)
        })
    }

    fn frames(&self, routes: &[(Prefix4, u32)]) -> impl Iterator<Item = Frame> + use<> {
        let addresses = destinations(routes, self.pattern, self.frames, 2);
        (0..).zip(addresses).map(|(number, dst): (u64, u32)| {
            let (src, ports) = (mixed(number) as u32, mixed(!number));
            frame(&FlowKey4::new(
                src.to_be_bytes(),
                dst.to_be_bytes(),
                ports as u16,
                (ports >> 16) as u16,
                17,
            ))
        })
    }

    fn write(&self, path: &Path) -> Result<(), Error> {
        let routes = self.table();
        write(path, |file| {
            for (prefix, hop) in &routes {
                writeln!(file, "R{prefix} {hop}")?;
            }
            Ok(())
        })?;
        write(&beside(path, "v6"), |file| {
            writeln!(file, "R2001:200::/64 0")
        })?;
        Captures::write(path, self.frames(&routes)).map(drop)
    }
}

/// A table of flows, and how many frames ask for them.
struct Flows {
    flows: u64,
    frames: usize,
    has_rules: bool,
}

impl Flows {
    /// The `number`-th flow, UDP: the peer's `make_flow`.
    fn key(number: u64) -> FlowKey4 {
        let (low, high) = (mixed(number), mixed(!number));
        let (src, dst) = (
            (low as u32).to_be_bytes(),
            ((low >> 32) as u32).to_be_bytes(),
        );
        FlowKey4::new(src, dst, high as u16, (high >> 16) as u16, 17)
    }

    fn table(&self) -> Vec<(FlowKey4, u32)> {
        (0..self.flows)
            .map(|number| (Self::key(number), number as u32 & 1))
            .collect()
    }

    fn frames(&self) -> impl Iterator<Item = Frame> + use<> {
        let flows = self.flows;
        (0..self.frames as u64).map(move |number| frame(&Self::key(below(number << 1, flows))))
    }

    fn write(&self, path: &Path) -> Result<(), Error> {
        let table = if self.has_rules {
            self.table()
        } else {
            Vec::new()
        };
        write(path, |file| {
            for (key, hop) in &table {
                let (dst, src) = (key.dst(), key.src());
                let (dst_port, src_port) = (key.dst_port(), key.src_port());
                writeln!(file, "R{dst} {src} {dst_port} {src_port} 0x11 {hop}")?;
            }
            Ok(())
        })?;
        write(&beside(path, "v6"), |file| {
            writeln!(file, "R2001:200:: 2001:200::1 9 9 0x11 0")
        })?;
        Captures::write(path, self.frames()).map(drop)
    }
}

/// 60 bytes, 64 with the check sequence.
pub type Frame = [u8; 60];

/// A UDP frame of this flow, whose IPv4 header is sound; UDP has no checksum.
pub fn frame(key: &FlowKey4) -> Frame {
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame[26..38].copy_from_slice(&key.0[..12]);
    frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
    if let Ok(mut ip) = Ipv4::new_checked(&mut frame[14..]) {
        ip.fill_checksum();
    }
    frame
}

/// A file's name with this behind it.
fn beside(path: &Path, name: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{name}"));
    beside.into()
}

fn write(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), Error> {
    let write = || {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        content(&mut file)?;
        file.flush()
    };
    write().map_err(|source| Error::File {
        path: path.into(),
        source,
    })
}

/// The captures of both ports, deleted with this value.
pub struct Captures {
    files: [PathBuf; 2],
    _folder: PrivateFolder,
}

impl Captures {
    /// Writes them next to `path`, and keeps them.
    fn write(path: &Path, frames: impl Iterator<Item = Frame>) -> Result<[PathBuf; 2], Error> {
        let frames: Vec<Frame> = frames.collect();
        let (first, second) = frames.split_at(frames.len() / 2);
        let turned: Vec<Frame> = second.iter().chain(first).copied().collect();
        Self::write_each(path, [&frames, &turned])
    }

    /// A capture of its own for each port.
    pub fn write_each(path: &Path, frames: [&[Frame]; 2]) -> Result<[PathBuf; 2], Error> {
        let files = [0, 1].map(|port| beside(path, &format!("{port}.pcap")));
        for (path, frames) in files.iter().zip(frames) {
            write(path, |file| {
                // pcap-savefile(5): magic, version 2.4, zone, sigfigs, snap length, Ethernet.
                for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
                    file.write_all(&word.to_le_bytes())?;
                }
                for frame in frames {
                    let length = frame.len() as u32;
                    for word in [0, 0, length, length] {
                        file.write_all(&word.to_le_bytes())?;
                    }
                    file.write_all(frame)?;
                }
                Ok(())
            })?;
        }
        Ok(files)
    }

    /// Each port's own frames.
    pub fn of_each(frames: [&[Frame]; 2]) -> Result<Self, Error> {
        let folder = PrivateFolder::new("bench")?;
        Ok(Self {
            files: Self::write_each(&folder.join("each"), frames)?,
            _folder: folder,
        })
    }

    pub fn temporary(frames: impl Iterator<Item = Frame>) -> Result<Self, Error> {
        let folder = PrivateFolder::new("bench")?;
        Ok(Self {
            files: Self::write(&folder.join("l3fwd"), frames)?,
            _folder: folder,
        })
    }

    /// Ports that play them over and over.
    pub fn specs(&self) -> [String; 2] {
        self.files
            .each_ref()
            .map(|path| format!("pcap:rx={},loop=on,preload=256", path.display()))
    }
}

fn longest(row: &'static str, run: Run, what: &Routes) -> Result<Sample, Error> {
    let routes = what.table();
    let captures = Captures::temporary(what.frames(&routes))?;
    let sample = measure(
        row,
        run,
        what.next_hops,
        captures,
        Longest::new(&routes, &[])?,
    )?;
    Ok(sample
        .with("routes", routes.len())
        .with("next_hops", what.next_hops))
}

fn exact(row: &'static str, run: Run, what: &Flows) -> Result<Sample, Error> {
    let captures = Captures::temporary(what.frames())?;
    let lookup = ExactMatch::new(&what.table(), &[])?;
    Ok(measure(row, run, 2, captures, lookup)?.with("flows", what.flows))
}

/// Mpps between two ports, with a next hop for each way.
fn measure(
    row: &'static str,
    run: Run,
    hops: u32,
    captures: Captures,
    lookup: impl Lookup,
) -> Result<Sample, Error> {
    let pool = Pool::new(&PoolConfig::new("bench", 8192))?;
    let pages = pool.page_kind();
    let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
    let made = |hop: u32| {
        let [.., a, b] = hop.to_be_bytes();
        let port = hop as u16 & 1;
        let macs = Macs::new(
            MacAddr([2, 0, 0, 1, a, b]),
            MacAddr([2, 0, 0, 0, 1, port as u8]),
        );
        NextHop::out(port, macs)
    };
    let hops: Vec<NextHop> = (0..hops).map(made).collect();
    let stage = path(Box::new(lookup), &hops, &mut egress);
    let drops = egress.drop_counts();
    let specs = captures.specs();
    let mpps = run.pinned(move |run| between(run, &specs, pool, stage, egress))??;
    drop(captures);
    let drops = drops
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let dropped: u64 = drops.iter().map(|(_, count)| count.read()).sum();
    Ok(Sample::new(row, mpps, "Mpps", pages).with("dropped", dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_ask_for_flows_that_are_there_and_have_sound_headers() {
        let table: std::collections::HashMap<_, _> = FEW.table().into_iter().collect();
        assert_eq!(table.len(), 1000);
        for frame in FEW.frames() {
            let headers = linerate_wire::parse(&frame).expect("sound");
            let Some(linerate_wire::FlowKey::V4(key)) = headers.flow_key(&frame) else {
                panic!("no IPv4: {frame:02x?}");
            };
            assert!(table.contains_key(&key), "{key}");
            assert!(Ipv4::new_checked(&frame[14..]).expect("sound").verify());
        }
    }

    #[test]
    fn frames_ask_for_routed_addresses() {
        let routes = SMALL.table();
        for frame in SMALL.frames(&routes) {
            let dst = Ipv4::new_checked(&frame[14..])
                .expect("sound")
                .dst()
                .to_bits();
            assert!(routes.iter().any(|(prefix, _)| prefix.contains(dst)));
        }
    }
}
