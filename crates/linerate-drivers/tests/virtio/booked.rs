//! A port in the hands of a test that counts what goes through, and knows each frame by its number.

use crate::End;
use linerate_core::packet::Burst;
use std::time::Duration;

/// Sleeps where nothing has moved for a while: who only polled would take the CPU of the other
/// side, where they share one.
#[derive(Default)]
pub(crate) struct Rest(u32);

impl Rest {
    pub(crate) fn after(&mut self, moved: bool) {
        self.0 = if moved { 0 } else { self.0 + 1 };
        if self.0 > 100 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// A port of ours with its books.
pub(crate) struct Booked {
    pub(crate) end: End,
    /// Packets that `tx_burst` took, and that `rx_burst` gave.
    pub(crate) taken: u64,
    pub(crate) received: u64,
    /// Of those received, frames of others: a guest's announcements.
    pub(crate) others: u64,
    /// What each length is filled with, by the frame's number.
    patterns: Vec<Vec<u8>>,
}

const LONGEST: usize = 1514;

impl Booked {
    pub(crate) fn new(spec: &str) -> Self {
        Self::with_queues(spec, 1)
    }

    pub(crate) fn with_queues(spec: &str, queues: u16) -> Self {
        Self {
            end: End::new(spec, queues),
            taken: 0,
            received: 0,
            others: 0,
            patterns: (0..=255).map(|byte| vec![byte; LONGEST]).collect(),
        }
    }

    pub(crate) fn bytes(number: u64) -> usize {
        match number % 16 {
            0 => LONGEST,
            _ => 60 + (number % 13) as usize,
        }
    }

    pub(crate) fn send(&mut self, burst: &mut Burst) {
        self.send_on(0, burst);
    }

    pub(crate) fn send_on(&mut self, queue: usize, burst: &mut Burst) {
        let End { queues, cache, .. } = &mut self.end;
        self.taken += queues.tx[queue].tx_burst(burst, cache) as u64;
        queues.tx[queue].flush(cache);
    }

    /// Offers so many frames from number `first` on; how many were taken.
    pub(crate) fn send_new(&mut self, first: u64, count: usize) -> u64 {
        self.send_new_on(0, first, count)
    }

    pub(crate) fn send_new_on(&mut self, queue: usize, first: u64, count: usize) -> u64 {
        let mut burst = Burst::new();
        let End { cache, pools, .. } = &mut self.end;
        let count = cache.fill(pools.primary(), &mut burst, count);
        for (number, packet) in (first..).zip(burst.iter_mut()) {
            let bytes = Self::bytes(number);
            assert!(packet.set_len(bytes));
            let data = packet.data_mut();
            data.copy_from_slice(&self.patterns[number as usize % 256][..bytes]);
            data[..14].copy_from_slice(&crate::frame(number, 14)[..14]);
            data[14..22].copy_from_slice(&number.to_be_bytes());
        }
        self.send_on(queue, &mut burst);
        let taken = count - burst.len();
        self.end.cache.free(&mut burst);
        taken as u64
    }

    /// Receives into `burst`, and says the numbers of its frames, each of which is whole.
    pub(crate) fn receive(&mut self, burst: &mut Burst) -> Vec<u64> {
        self.receive_on(0, burst)
    }

    pub(crate) fn receive_on(&mut self, queue: usize, burst: &mut Burst) -> Vec<u64> {
        let End { queues, cache, .. } = &mut self.end;
        self.received += queues.rx[queue].rx_burst(burst, cache) as u64;
        let mut others = 0;
        let number = |data: &[u8]| {
            if data[12..14] != [0x88, 0xb5] {
                others += 1;
                return None;
            }
            let number = u64::from_be_bytes(data[14..22].try_into().unwrap());
            let pattern = &self.patterns[number as usize % 256];
            let bytes = Self::bytes(number);
            assert_eq!(data.len(), bytes, "frame {number}");
            assert!(data[22..] == pattern[22..bytes], "frame {number} damaged");
            Some(number)
        };
        let numbers = burst.iter().map(|packet| packet.data());
        let numbers = numbers.filter_map(number).collect();
        self.others += others;
        numbers
    }

    /// Counters agree, and every slot is home.
    pub(crate) fn finish(self) {
        let stats = self.end.port.stats();
        let dropped: u64 = stats.tx_drops.iter().map(|(_, count)| count).sum();
        assert_eq!(stats.tx_packets + dropped, self.taken, "{stats:?}");
        assert_eq!(stats.rx_packets, self.received, "{stats:?}");
        assert_eq!(self.others, 0, "frames that nobody sent");
        // A switch that has had no CPU for some seconds breaks no rule.
        let mut broken = stats.violations.clone();
        broken.retain(|(reason, _)| *reason != "too_slow");
        assert_eq!(broken, []);
        self.end.finish();
    }
}
