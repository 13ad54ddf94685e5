//! null: a port without a wire.
//!
//! # Synopsis
//! ```text
//! null:[,size=N][,copy=on|off][,rx=on|off]
//! ```
//!
//! # Description
//! Receives as many frames as it is asked for, and swallows whatever it is given: the price of
//! everything but the wire. Received frames hold whatever their slots held before. Any number
//! of queues. Nothing is ever dropped, but a receive comes short when the pool is empty.
//!
//! # Options
//! ```text
//! size   bytes of a received frame *without* frame check sequence; default 60, which is the
//!        shortest Ethernet frame, 64 bytes on the wire
//! copy   on: write each received frame and read each sent one, as a copying device would
//! rx     off: never receive; a mere sink
//! ```
//!
//! # See also
//! DPDK's `net_null`, whose `size` is 64 by default and counts the same bytes.

use crate::{Counters, Drivers, PortKind};
use linerate_core::packet::{Burst, Offload, Pool, PoolCache, Pools, RxTemplate};
use linerate_core::port::{
    Link, OptionHelp, Port, PortConfig, PortError, PortInfo, PortStats, QueueStats, Queues,
    RxQueue, SleepOn, Spec, TxQueue,
};
use std::sync::Arc;

/// Largest frame of any port that needs no wire: what a slot of the large class takes.
pub(crate) const MAX_FRAME_BYTES: usize = 65_553;
/// Shortest and default frame: 64 bytes on the wire with its check sequence.
const MIN_FRAME_BYTES: u32 = 60;

/// The row in the drivers' table.
pub const KIND: PortKind = PortKind {
    name: "null",
    summary: "receives frames from nowhere and swallows what it is given",
    example: "null:,size=60",
    options: &[
        OptionHelp {
            key: "size",
            value: "N",
            help: "bytes of a received frame without its check sequence; default 60",
        },
        OptionHelp {
            key: "copy",
            value: "on|off",
            help: "write received frames and read sent ones; default off",
        },
        OptionHelp {
            key: "rx",
            value: "on|off",
            help: "whether anything is received; default on",
        },
    ],
    open: |spec, _: &mut Drivers| Ok(Box::new(NullPort::open(spec)?)),
};

/// A port without a wire.
pub struct NullPort {
    name: String,
    frame_bytes: u32,
    copies: bool,
    receives: bool,
    counters: Counters,
}

impl NullPort {
    /// Reads the options.
    ///
    /// # Errors
    /// [`PortError::BadValue`].
    pub fn open(spec: &Spec) -> Result<Self, PortError> {
        Ok(Self {
            name: spec.name(),
            frame_bytes: spec.number("size", MIN_FRAME_BYTES, 14..=MAX_FRAME_BYTES as u32)?,
            copies: spec.switch("copy", false)?,
            receives: spec.switch("rx", true)?,
            counters: Counters::default(),
        })
    }
}

impl Port for NullPort {
    fn info(&self) -> PortInfo {
        PortInfo {
            name: self.name.clone(),
            kind: KIND.name,
            mac: None,
            max_frame_bytes: MAX_FRAME_BYTES,
            max_rx_queues: u16::MAX,
            max_tx_queues: u16::MAX,
            numa_node: None,
            tx_offloads: true,
            aligned_pool: false,
            exposed_pool: false,
            facts: vec![
                ("frame bytes", self.frame_bytes.to_string()),
                ("copies", self.copies.to_string()),
            ],
        }
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        self.counters.check_start(&self.info(), config)?;
        let Some(pool) = pools.for_frame(self.frame_bytes as usize) else {
            let reason = format!(
                "no pool takes frames of {} bytes; add a pool of large slots",
                self.frame_bytes
            );
            return Err(PortError::Unsupported {
                port: self.name.clone(),
                reason,
            });
        };
        let scratch = vec![0; if self.copies { MAX_FRAME_BYTES } else { 0 }];
        let mut queues = Queues::default();
        for index in 0..usize::from(config.rx_queues) {
            let source: Box<dyn RxQueue> = match self.receives {
                true => Box::new(Source {
                    template: RxTemplate {
                        len: self.frame_bytes,
                        port: config.index,
                        offload: Offload::NONE,
                    },
                    pool: pool.clone(),
                    frame: scratch
                        .get(..self.frame_bytes as usize)
                        .unwrap_or(&[])
                        .to_vec(),
                    stats: self.counters.rx(index),
                }),
                false => Box::new(Nothing),
            };
            queues.rx.push(source);
        }
        for index in 0..usize::from(config.tx_queues) {
            queues.tx.push(Box::new(Sink {
                scratch: scratch.clone(),
                stats: self.counters.tx(index),
            }));
        }
        Ok(queues)
    }

    fn link(&self) -> Link {
        Link::Up
    }

    fn stats(&self) -> PortStats {
        self.counters.sum()
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.counters.check_stop(&self.name)
    }
}

/// Fills every burst.
struct Source {
    template: RxTemplate,
    pool: Pool,
    /// What to copy into each frame; empty to leave frames as they are.
    frame: Vec<u8>,
    stats: Arc<QueueStats>,
}

impl RxQueue for Source {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let before = burst.len();
        let count = cache.fill_with(&self.pool, burst, burst.room(), self.template);
        if !self.frame.is_empty() {
            for packet in &mut burst.as_packets_mut()[before..] {
                packet.data_mut().copy_from_slice(&self.frame);
            }
        }
        self.stats
            .passed(count as u64, count as u64 * u64::from(self.template.len));
        count
    }
}

/// `rx=off`.
pub(crate) struct Nothing;

impl RxQueue for Nothing {
    fn rx_burst(&mut self, _: &mut Burst, _: &mut PoolCache) -> usize {
        0
    }

    fn sleep_on(&mut self) -> SleepOn {
        SleepOn::Ended
    }
}

/// Frees every burst.
pub(crate) struct Sink {
    /// Where frames are copied to; empty to leave them alone.
    scratch: Vec<u8>,
    stats: Arc<QueueStats>,
}

impl Sink {
    /// One that does not look at what it frees.
    pub(crate) fn new(stats: Arc<QueueStats>) -> Self {
        Self {
            scratch: Vec::new(),
            stats,
        }
    }
}

impl TxQueue for Sink {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let count = burst.len();
        self.stats.passed(count as u64, burst.bytes());
        if !self.scratch.is_empty() {
            for packet in burst.iter() {
                let data = packet.data();
                let bytes = data.len().min(MAX_FRAME_BYTES);
                self.scratch[..bytes].copy_from_slice(&data[..bytes]);
            }
            std::hint::black_box(&mut self.scratch);
        }
        cache.free(burst);
        count
    }
}
