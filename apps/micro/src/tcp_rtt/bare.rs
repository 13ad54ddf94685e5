//! The control: frames of a question's length, sent back as they come, by the same threads over
//! the same kind of rings. Nothing of TCP is in it, so what it shows is rings, CPUs, and the meter.

use std::collections::VecDeque;

use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig, Queues, RxQueue};
use linerate_core::run::{Egress, TxPath};
use linerate_drivers::ring;

use super::client::{Asker, UNDER_WAY};
use crate::tcp::MESSAGE;
use linerate_appliance::error::Error;

/// Headers of Ethernet, IPv4, and TCP with time stamps, which a question over TCP has.
const FRAME: usize = 14 + 20 + 32 + MESSAGE;

/// Its end of a wire.
pub(super) struct Bare {
    rx: Box<dyn RxQueue>,
    out: Egress,
    burst: Burst,
    /// When the questions under way were to be asked: their answers come in the same order.
    asked_ns: VecDeque<u64>,
}

impl Bare {
    /// The client's and the server's.
    pub(super) fn pair() -> Result<(Self, Self), Error> {
        // Questions are their own answers.
        let slots = 2 * UNDER_WAY as u32;
        let pools = Pools::new(vec![Pool::new(&PoolConfig::new("bare", slots))?]);
        let (client, server) = ring::pair("bare", 1, UNDER_WAY);
        let start = |mut port: ring::RingPort| {
            let queues = port.start(&PortConfig::default(), &pools)?;
            Ok::<_, Error>(Self::new(queues, pools.primary()))
        };
        Ok((start(client)?, start(server)?))
    }

    fn new(mut queues: Queues, pool: &Pool) -> Self {
        let mut out = Egress::new(PoolCache::new(std::slice::from_ref(pool)));
        out.set_outlet(0, queues.tx.pop().map(TxPath::Queue));
        Self {
            rx: queues.rx.pop().expect("a ring port has a queue each way"),
            out,
            burst: Burst::new(),
            asked_ns: VecDeque::with_capacity(UNDER_WAY),
        }
    }

    /// A turn of the server. How many frames came.
    pub(super) fn answer(&mut self) -> usize {
        let mut packets = 0;
        loop {
            let count = self.rx.rx_burst(&mut self.burst, &mut self.out.cache);
            packets += count;
            self.out.send(0, &mut self.burst);
            if count < Burst::CAPACITY {
                break;
            }
        }
        self.out.flush();
        packets
    }
}

impl Asker for Bare {
    fn take(&mut self, _: u64, mut answered: impl FnMut(u64)) -> usize {
        let mut packets = 0;
        loop {
            let count = self.rx.rx_burst(&mut self.burst, &mut self.out.cache);
            packets += count;
            self.asked_ns.drain(..count).for_each(&mut answered);
            self.out.cache.free(&mut self.burst);
            if count < Burst::CAPACITY {
                break;
            }
        }
        packets
    }

    fn ask(&mut self, at_ns: u64, _: u64) -> bool {
        let Some(frame) = self.out.cache.copy_of(&[b'?'; FRAME]) else {
            return false;
        };
        self.out.send_one(0, frame);
        self.asked_ns.push_back(at_ns);
        true
    }

    fn flush(&mut self) {
        self.out.flush();
    }
}
