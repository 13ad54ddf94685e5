//! pcap: replays a capture, and writes one.
//!
//! # Synopsis
//! ```text
//! pcap:[rx=FILE][,tx=FILE][,loop=on][,preload=N][,timing=fast|original|xN][,snaplen=N][,queues=N]
//! ```
//!
//! # Description
//! Receives the frames of a pcap (µs or ns, either byte order) or pcapng file, with the capture's
//! time in nanoseconds as their timestamp, and writes what is sent to a pcapng file. Either may be
//! left out: then nothing is received, or what is sent is freed and counted.
//!
//! A file is streamed, however long it is. With `loop=on` its frames are loaded at the start, if
//! they take at most `preload` MiB, and copied into fresh slots for ever; longer files are streamed
//! again and again.
//!
//! At the end of the file the link goes down with the number of frames. Where the file is damaged
//! the same happens with the number of the damaged record, which is counted as `malformed`, and
//! stopping the port is an error. A frame shorter than an Ethernet header is `malformed` too, one
//! longer than any slot `oversize`. When the disk is full, frames are counted as `write_failed` and
//! the link is down until they can be written again; stopping the port is an error then too.
//!
//! Frames wait in a buffer of 64 KiB for at most about 0.1 s before they are written. A port that
//! is stopped and started again adds to its file.
//!
//! # Options
//! ```text
//! rx       file to read; only Ethernet captures
//! tx       file to write, always pcapng; overwritten
//! loop     on: start again at the end
//! preload  MiB of frames to load for loop=on; default 64, at most 4096
//! timing   fast (default): as fast as it is polled; original: as captured, counted from the
//!          first poll; xN: N times as fast, such as x2 or x0.5
//! snaplen  bytes kept of each written frame; 0 (default) for all
//! queues   queues each way; default 1. Each receive queue plays the whole file; all transmit
//!          queues write to the one.
//! ```
//!
//! # See also
//! DPDK's `net_pcap` with `infinite_rx`. [`Reader`] reads captures without a port.

mod frames;
mod pace;
mod reader;
mod receive;
mod transmit;

pub use reader::{Frame, ReadError, Reader};

use crate::null::{MAX_FRAME_BYTES, Nothing, Sink};
use crate::{Counters, Opener, PortKind};
use frames::Frames;
use linerate_core::packet::Pools;
use linerate_core::port::{
    Link, OptionHelp, Port, PortConfig, PortError, PortInfo, PortStats, Queues, RxQueue, Spec,
};
use pace::Timing;
use receive::{Play, Replay, Stream};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use transmit::{Output, Write};

/// The row in the drivers' table.
pub const KIND: PortKind = PortKind {
    name: "pcap",
    summary: "replays a capture file and writes one",
    example: "pcap:rx=in.pcap,tx=out.pcapng",
    options: &[
        OptionHelp {
            key: "rx",
            value: "FILE",
            help: "pcap or pcapng file to read",
        },
        OptionHelp {
            key: "tx",
            value: "FILE",
            help: "pcapng file to write",
        },
        OptionHelp {
            key: "loop",
            value: "on|off",
            help: "start again at the end; default off",
        },
        OptionHelp {
            key: "preload",
            value: "N",
            help: "MiB of frames to load for loop=on; default 64",
        },
        OptionHelp {
            key: "timing",
            value: "fast|original|xN",
            help: "pace of replay; default fast",
        },
        OptionHelp {
            key: "snaplen",
            value: "N",
            help: "bytes kept of a written frame; default 0: all",
        },
        OptionHelp {
            key: "queues",
            value: "N",
            help: "queues each way; default 1",
        },
    ],
    open: |spec, drivers| Ok(Box::new(PcapPort::open(spec, &drivers.opener)?)),
};

/// Why the link is down, by direction; written by queues, read by the port.
#[derive(Debug, Default)]
struct Status(Mutex<Reasons>);

#[derive(Debug, Default)]
struct Reasons {
    down: [Option<String>; 2],
    /// The first error by which frames were lost, by direction: the result of stopping the port.
    faults: [Option<io::Error>; 2],
}

impl Status {
    const RX: usize = 0;
    const TX: usize = 1;

    fn set(&self, way: usize, reason: Option<String>) {
        self.lock().down[way] = reason;
    }

    /// The link is down for this reason, and frames are lost.
    fn fail(&self, way: usize, reason: String, fault: io::Error) {
        let mut reasons = self.lock();
        reasons.down[way] = Some(reason);
        reasons.faults[way].get_or_insert(fault);
    }

    fn lock(&self) -> MutexGuard<'_, Reasons> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that can be read from its start as often as needed.
#[derive(Clone, Debug)]
struct Input {
    port: String,
    path: PathBuf,
    opener: Arc<dyn Opener>,
}

impl Input {
    fn read(&self) -> Result<Reader, PortError> {
        let error = |source| file_error(&self.port, "read", &self.path, source);
        let file = self.opener.read_file(&self.path).map_err(error)?;
        Reader::new(file).map_err(|reason| error(reason.into()))
    }
}

fn file_error(port: &str, action: &'static str, path: &Path, source: io::Error) -> PortError {
    PortError::File {
        port: port.into(),
        action,
        path: path.display().to_string(),
        source,
    }
}

/// A capture to replay, one to write, or both.
pub struct PcapPort {
    name: String,
    input: Option<Input>,
    output: Option<PathBuf>,
    opener: Arc<dyn Opener>,
    loops: bool,
    preload_bytes: usize,
    timing: Timing,
    snap_bytes: u32,
    queues: u16,
    status: Arc<Status>,
    /// While started.
    writer: Option<Arc<Mutex<Output>>>,
    /// Whether the file was begun: a second start adds to it.
    begun: bool,
    /// How frames are received, once started.
    mode: Option<String>,
    counters: Counters,
}

impl PcapPort {
    /// Reads the options and the header of the file to replay. Files are opened by `opener`.
    ///
    /// # Errors
    /// [`PortError::BadValue`], [`PortError::File`].
    pub fn open(spec: &Spec, opener: &Arc<dyn Opener>) -> Result<Self, PortError> {
        let file = |key| {
            spec.text(key)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
        };
        let (input, output) = (file("rx"), file("tx"));
        if !spec.target().is_empty() || (input.is_none() && output.is_none()) {
            return Err(spec.bad(
                "target",
                "left out; write `pcap:rx=FILE`, `pcap:tx=FILE`, or both",
            ));
        }
        let paths: Vec<_> = [&input, &output]
            .into_iter()
            .flatten()
            .map(|path| path.display().to_string())
            .collect();
        let name = format!("pcap:{}", paths.join(","));
        let input = input.map(|path| Input {
            port: name.clone(),
            path,
            opener: opener.clone(),
        });
        if let Some(input) = &input {
            input.read()?;
        }
        Ok(Self {
            input,
            output,
            opener: opener.clone(),
            loops: spec.switch("loop", false)?,
            preload_bytes: spec.number("preload", 64, 0..=4096)? << 20,
            timing: spec
                .parsed("timing", "`fast`, `original` or `xN` such as x2 or x0.5")?
                .unwrap_or_default(),
            snap_bytes: spec.number("snaplen", 0, 0..=u32::MAX)?,
            queues: spec.number("queues", 1, 1..=u16::MAX)?,
            status: Arc::default(),
            writer: None,
            begun: false,
            mode: None,
            counters: Counters::default(),
            name,
        })
    }

    /// Loads the frames, if they are to be played again and again and fit.
    fn load(&self, pools: &Pools) -> Result<Option<Arc<Frames>>, PortError> {
        let Some(input) = self.input.as_ref().filter(|_| self.loops) else {
            return Ok(None);
        };
        let largest = pools
            .iter()
            .map(|pool| pool.room_bytes())
            .max()
            .unwrap_or(0);
        Ok(Frames::load(input.read()?, self.preload_bytes, largest)?.map(Arc::new))
    }
}

impl Port for PcapPort {
    fn info(&self) -> PortInfo {
        let mut facts: Vec<_> = self
            .mode
            .iter()
            .map(|mode| ("replay", mode.clone()))
            .collect();
        facts.push(("timing", self.timing.to_string()));
        PortInfo {
            name: self.name.clone(),
            kind: KIND.name,
            mac: None,
            max_frame_bytes: MAX_FRAME_BYTES,
            max_rx_queues: self.queues,
            max_tx_queues: self.queues,
            numa_node: None,
            tx_offloads: true, // written as they are, as every capture shows them
            aligned_pool: false,
            exposed_pool: false,
            facts,
        }
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        self.counters.check_start(&self.info(), config)?;
        let frames = self.load(pools)?;
        self.mode = self.input.as_ref().map(|_| match &frames {
            Some(frames) => format!(
                "{} frames loaded, {} KiB",
                frames.len(),
                frames.bytes() >> 10
            ),
            None => "streamed".into(),
        });
        let mut queues = Queues::default();
        for index in 0..config.rx_queues.into() {
            let stats = self.counters.rx(index);
            let queue: Box<dyn RxQueue> = match (&self.input, &frames) {
                (None, _) => Box::new(Nothing),
                (_, Some(frames)) => Box::new(Replay::new(
                    frames.clone(),
                    self.timing,
                    config.index,
                    pools,
                    stats,
                )),
                (Some(input), None) => {
                    let status = self.status.clone();
                    let play = Play {
                        again: self.loops,
                        timing: self.timing,
                        port: config.index,
                    };
                    Box::new(Stream::new(input, play, pools, stats, status)?)
                }
            };
            queues.rx.push(queue);
        }
        self.writer = match &self.output {
            Some(path) => Some(Arc::new(Mutex::new(Output::open(
                &self.name,
                path,
                self.opener.write_file(path, self.begun),
                self.snap_bytes,
            )?))),
            None => None,
        };
        self.begun = self.begun || self.writer.is_some();
        for index in 0..config.tx_queues.into() {
            let stats = self.counters.tx(index);
            queues.tx.push(match &self.writer {
                Some(writer) => Box::new(Write::new(writer.clone(), self.status.clone(), stats)),
                None => Box::new(Sink::new(stats)),
            });
        }
        *self.status.lock() = Reasons::default();
        Ok(queues)
    }

    fn link(&self) -> Link {
        let reasons: Vec<String> = self.status.lock().down.iter().flatten().cloned().collect();
        if reasons.is_empty() {
            Link::Up
        } else {
            Link::Down(reasons.join("; "))
        }
    }

    fn stats(&self) -> PortStats {
        self.counters.sum()
    }

    /// Writes the rest of the file. An error too where frames were lost since the start: the file
    /// read is damaged, or the one written lacks some (`write_failed`).
    fn stop(&mut self) -> Result<(), PortError> {
        self.counters.check_stop(&self.name)?;
        let finished = self.finish();
        let [damage, unwritten] = std::mem::take(&mut self.status.lock().faults);
        let fault = |action, path: Option<&Path>, source| {
            file_error(&self.name, action, path.unwrap_or(Path::new("")), source)
        };
        if let Some(source) = unwritten.or(finished.err()) {
            return Err(fault("write all frames to", self.output.as_deref(), source));
        }
        let input = self.input.as_ref().map(|input| input.path.as_path());
        damage.map_or(Ok(()), |source| Err(fault("read all of", input, source)))
    }
}

impl PcapPort {
    /// Writes the rest of the file, and how many frames there were.
    fn finish(&mut self) -> io::Result<()> {
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        let stats = self.counters.sum();
        let dropped = stats.tx_drops.iter().map(|(_, count)| count).sum();
        let mut output = writer.lock().unwrap_or_else(PoisonError::into_inner);
        output.finish(stats.tx_packets + dropped, dropped)
    }
}
