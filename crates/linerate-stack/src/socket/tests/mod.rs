//! Two stacks over a wire in memory.
#![allow(clippy::unwrap_used)]

mod black_hole;
mod calls;
mod change;
mod clauses;
mod fast_open;
mod floods;
mod forge;
mod hostile;
mod ip;
mod many;
mod moving;
mod offloads;
mod parked;
mod reports;
mod scarce;
mod urgent;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use linerate_core::packet::{Burst, Offload, Packet, Pool, PoolCache, PoolConfig, SlotClass};
use linerate_core::port::TxQueue;
use linerate_core::run::{Egress, TxPath};
use linerate_wire::MacAddr;

use super::*;
use crate::host::InterfaceConfig;
use crate::tcp::connection::{Error, State};

pub(super) const S: u64 = 1_000_000_000;
pub(super) const MS: u64 = 1_000_000;

type Line = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A port that keeps what is sent.
struct Recorder(Line);

impl TxQueue for Recorder {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let count = burst.len();
        let mut line = self.0.lock().unwrap();
        line.extend(burst.iter().map(finished));
        cache.free(burst);
        count
    }
}

/// A frame as it leaves a port that adds checksums (virtio 1.2 5.1.6.2).
fn finished(packet: &Packet) -> Vec<u8> {
    let (mut frame, meta) = (packet.data().to_vec(), packet.meta());
    if meta.offload.intersects(Offload::CSUM_PARTIAL) {
        let start = usize::from(meta.csum_start);
        let place = start + usize::from(meta.csum_offset);
        let sum = !linerate_wire::checksum::sum(&frame[start..]);
        frame[place..place + 2].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

pub(super) struct Station {
    pub(super) stack: Stack,
    pub(super) out: Egress,
    pub(super) line: Line,
    pools: Vec<Pool>,
}

pub(super) fn small() -> StackConfig {
    StackConfig {
        connections: 4096,
        sent_frames: 8192,
        send_chunks: 2048,
        received_pkts: 4096,
        received_bytes: 32 << 20,
        secret: Secret::new(7),
        ..StackConfig::default()
    }
}

impl Station {
    pub(super) fn new(number: u8, config: &StackConfig) -> Self {
        Self::with_port(number, config, 16, false)
    }

    /// One with so many large slots, whose port takes unsegmented frames or not.
    pub(super) fn with_port(
        number: u8,
        config: &StackConfig,
        large: u32,
        tx_offloads: bool,
    ) -> Self {
        let mut pools = vec![Pool::new(&PoolConfig::new("rx", 8192)).unwrap()];
        if large > 0 {
            let large = PoolConfig {
                class: SlotClass::Large,
                ..PoolConfig::new("large", large)
            };
            pools.push(Pool::new(&large).unwrap());
        }
        let mut out = Egress::new(PoolCache::new(&pools));
        let line = Line::default();
        out.set_outlet(0, Some(TxPath::Queue(Box::new(Recorder(line.clone())))));
        let mut stack = Stack::new(config, 0, &mut out).unwrap();
        let v4: IpAddr = [192, 0, 2, number].into();
        let v6: IpAddr = [0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()].into();
        let interface = InterfaceConfig {
            port: 0,
            mac: MacAddr::local(number),
            addresses: vec![(v4, 24), (v6, 64)],
            tx_offloads,
            ..InterfaceConfig::default()
        };
        stack.host().add_interface(interface, 0, &mut out).unwrap();
        Self {
            stack,
            out,
            line,
            pools,
        }
    }

    pub(super) fn receive(&mut self, frames: &[Vec<u8>], now_ns: u64) {
        for frames in frames.chunks(Burst::CAPACITY) {
            let mut burst = Burst::new();
            for frame in frames {
                let packet = self.out.cache.copy_of(frame).expect("there are slots");
                burst.push(packet).unwrap();
            }
            self.stack.receive(&mut burst, now_ns, &mut self.out);
            assert!(burst.is_empty());
            self.out.flush();
        }
    }

    pub(super) fn io(&mut self, now_ns: u64) -> Io<'_> {
        self.stack.io(now_ns, &mut self.out)
    }

    /// Slots that nobody should have.
    pub(super) fn check_slots(&mut self) {
        self.out.flush();
        let held = self.out.cache.held_total() as u64 + self.stack.held();
        let out = |pool: &Pool| u64::from(pool.stats().slots - pool.stats().free_shared);
        let out: u64 = self.pools.iter().map(out).sum();
        assert_eq!(out, held);
    }
}

type Loses = Box<dyn FnMut(&[u8]) -> bool>;

pub(super) struct Pair {
    pub(super) ends: [Station; 2],
    pub(super) now_ns: u64,
    pub(super) delay_ns: u64,
    /// Which frames are lost.
    pub(super) loses: Loses,
}

impl Pair {
    pub(super) fn new() -> Self {
        Self::with(&small(), &small())
    }

    /// Over ports that take long frames, with a round trip far below a millisecond.
    pub(super) fn offloaded() -> Self {
        let config = small();
        Self {
            ends: [1, 2].map(|number| Station::with_port(number, &config, 16, true)),
            delay_ns: MS / 10,
            ..Self::new()
        }
    }

    pub(super) fn with(a: &StackConfig, b: &StackConfig) -> Self {
        Self {
            ends: [Station::new(1, a), Station::new(2, b)],
            now_ns: S,
            delay_ns: MS,
            loses: Box::new(|_| false),
        }
    }

    /// The address of an end.
    pub(super) fn at(end: usize, v6: bool, port: u16) -> SocketAddr {
        let number = end as u8 + 1;
        let ip: IpAddr = match v6 {
            true => [0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()].into(),
            false => [192, 0, 2, number].into(),
        };
        (ip, port).into()
    }

    /// One way of the wire: what was sent arrives a delay later. Whether there was anything.
    pub(super) fn round(&mut self) -> bool {
        self.ends.iter_mut().for_each(|end| end.out.flush());
        let sent = self
            .ends
            .each_ref()
            .map(|end| std::mem::take(&mut *end.line.lock().unwrap()));
        self.now_ns += self.delay_ns;
        let mut any = false;
        for (from, mut frames) in sent.into_iter().enumerate() {
            any |= !frames.is_empty();
            frames.retain(|frame| !(self.loses)(frame));
            self.ends[1 - from].receive(frames.make_contiguous(), self.now_ns);
        }
        for end in &mut self.ends {
            end.stack.turn(self.now_ns, &mut end.out);
        }
        any
    }

    /// Until nothing is sent any more.
    pub(super) fn calm(&mut self) {
        for _ in 0..100_000 {
            if !self.round() {
                return;
            }
        }
        panic!("it does not end");
    }

    pub(super) fn pass(&mut self, ns: u64) {
        let until = self.now_ns + ns;
        while self.now_ns < until {
            self.round();
            let next = self
                .ends
                .iter_mut()
                .map(|end| end.stack.turn(self.now_ns, &mut end.out));
            let next = next.min().unwrap().max(self.now_ns);
            let is_quiet = self.ends.iter_mut().all(|end| {
                end.out.flush();
                end.line.lock().unwrap().is_empty()
            });
            if is_quiet {
                self.now_ns = next
                    .saturating_sub(self.delay_ns)
                    .min(until)
                    .max(self.now_ns);
            }
        }
    }

    /// Opens a connection from the first end to a listener of the second.
    pub(super) fn open(
        &mut self,
        listener: ListenerId,
        v6: bool,
        port: u16,
    ) -> (SocketId, SocketId) {
        let now_ns = self.now_ns;
        let mut io = self.ends[0].io(now_ns);
        let client = io.connect(None, Self::at(1, v6, port)).unwrap();
        self.calm();
        let now_ns = self.now_ns;
        let (server, _) = self.ends[1].io(now_ns).accept(listener).expect("it waits");
        (client, server)
    }
}
