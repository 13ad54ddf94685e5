//! Generator and sink at the far ends of a router's two rings, in turns on one thread. Every frame
//! has a number, and the sink knows of each number whether it came.

use linerate_core::arch::pause;
use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig, RxQueue, TxQueue};
use linerate_drivers::Drivers;

use linerate_appliance::error::Error;
use linerate_micro::l3fwd::Frame;

/// Position of the number: behind the headers of Ethernet, IPv4 and UDP.
const NUMBER: std::ops::Range<usize> = 42..50;
/// How long the last frames may take, in ns.
const DRAIN_NS: u64 = 2_000_000_000;
/// Receive bursts for each one that is sent: frames that waited in the rings come faster than they
/// were sent.
const TAKES: usize = 4;

/// When frames are due.
pub(super) struct Pace {
    began: u64,
    per_tick: f64,
    /// Limit of frames due at once; further ones are left out.
    most: u64,
    taken: u64,
    /// Frames that were due while the generator could not send.
    pub(super) left_out: u64,
}

impl Pace {
    pub(super) fn new(began: u64, per_tick: f64, most: u64) -> Self {
        Self {
            began,
            per_tick,
            most,
            taken: 0,
            left_out: 0,
        }
    }

    /// How many are to be sent now: a burst at most.
    fn take(&mut self, now: u64) -> usize {
        let due = (now.saturating_sub(self.began) as f64 * self.per_tick) as u64;
        let waiting = due.saturating_sub(self.taken);
        let late = waiting.saturating_sub(self.most);
        let count = (waiting - late).min(Burst::CAPACITY as u64);
        self.left_out += late;
        self.taken += late + count;
        count as usize
    }
}

/// Which numbers have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The number expected next.
    next: u64,
    missing: u64,
    pub(super) came: u64,
    /// Those that came behind a higher one.
    pub(super) out_of_order: u64,
}

impl Numbers {
    fn took(&mut self, number: u64) {
        self.came += 1;
        if number >= self.next {
            self.missing += number - self.next;
            self.next = number + 1;
        } else {
            self.out_of_order += 1;
            self.missing = self.missing.saturating_sub(1);
        }
    }

    /// How many of the numbers below `sent` did not come.
    pub(super) fn lost(&self, sent: u64) -> u64 {
        self.missing + sent.saturating_sub(self.next)
    }
}

/// Generator and sink.
pub(super) struct Line {
    to_router: Box<dyn TxQueue>,
    from_router: Box<dyn RxQueue>,
    /// Frames of the router to the generator's side.
    back: Box<dyn RxQueue>,
    cache: PoolCache,
    pool: Pool,
    clock: Clock,
    frames: Vec<Frame>,
    /// The number of the next frame: frames that were due so far.
    pub(super) sent: u64,
    /// One more than the last number that the ring to the router accepted.
    taken: u64,
    /// Due frames that did not fit into the ring to the router.
    pub(super) no_room: u64,
    pub(super) numbers: Numbers,
    /// Received frames that the generator has not sent.
    pub(super) strays: u64,
    /// Whether the router may be waiting for this CPU.
    shares_cpu: bool,
    // Dropped after their queues.
    _ports: [Box<dyn Port>; 2],
}

impl Line {
    /// Opens the far ends of `ring:wan` and `ring:lan`. The ring to the router holds `room` frames,
    /// the one from it twice that: all frames that waited while the router had no CPU come out at
    /// once.
    pub(super) fn open(
        drivers: &mut Drivers,
        frames: Vec<Frame>,
        room: usize,
        shares_cpu: bool,
        clock: Clock,
    ) -> Result<Self, Error> {
        let pool = Pool::new(&PoolConfig::new("generator", 3 * room as u32 + 4096))?;
        let pools = Pools::new(vec![pool.clone()]);
        let config = PortConfig::default();
        let mut wan = drivers.open(&format!("ring:wan,size={room},back=1024"))?;
        let mut lan = drivers.open(&format!("ring:lan,size=64,back={}", 2 * room))?;
        let (mut near, mut far) = (wan.start(&config, &pools)?, lan.start(&config, &pools)?);
        Ok(Self {
            to_router: near.tx.remove(0),
            back: near.rx.remove(0),
            from_router: far.rx.remove(0),
            cache: PoolCache::new(pools.as_slice()),
            pool,
            clock,
            frames,
            sent: 0,
            taken: 0,
            no_room: 0,
            numbers: Numbers::default(),
            strays: 0,
            shares_cpu,
            _ports: [wan, lan],
        })
    }

    /// Sends as fast as the router takes it, never more than `room` ahead of what has come, until
    /// `is_over`, which is asked after each turn.
    pub(super) fn fill(&mut self, room: usize, mut is_over: impl FnMut(u64) -> bool) {
        while !is_over(self.clock.now()) {
            let is_room = self.under_way() + (Burst::CAPACITY as u64) < room as u64;
            self.turn(if is_room { Burst::CAPACITY } else { 0 });
        }
    }

    /// Sends at a pace until `is_over`, which is asked after each turn.
    pub(super) fn offer(&mut self, pace: &mut Pace, mut is_over: impl FnMut(&Self, u64) -> bool) {
        loop {
            let now = self.clock.now();
            let count = pace.take(now);
            self.turn(count);
            if is_over(self, now) {
                return;
            }
        }
    }

    /// Receives frames under way, until all have come or the timeout is over.
    pub(super) fn drain(&mut self) {
        let end = self.clock.now() + self.clock.ticks(DRAIN_NS);
        while self.under_way() > 0 && self.clock.now() < end {
            self.turn(0);
        }
    }

    /// Lost frames of all that were due; valid when none is under way.
    pub(super) fn lost(&self) -> u64 {
        self.numbers.lost(self.sent)
    }

    /// Frames sent after the last one received: one worker keeps their order.
    fn under_way(&self) -> u64 {
        self.taken.saturating_sub(self.numbers.next)
    }

    /// Sends `count` frames, and takes some of what has come.
    fn turn(&mut self, count: usize) {
        if count > 0 {
            self.send(count);
        }
        let mut came = 0;
        for _ in 0..TAKES {
            let taken = self.take();
            came += taken;
            if taken < Burst::CAPACITY {
                break;
            }
        }
        if count == 0 && came == 0 {
            self.rest();
        }
    }

    fn send(&mut self, count: usize) {
        let mut burst = Burst::new();
        self.cache.fill(&self.pool, &mut burst, count);
        // Without a free slot a frame counts as one without room.
        let went = self.sent;
        self.sent += count as u64;
        for (number, packet) in (went..).zip(burst.iter_mut()) {
            let frame = &self.frames[number as usize % self.frames.len()];
            assert!(packet.set_data(frame), "a slot takes the shortest frame");
            packet.data_mut()[NUMBER].copy_from_slice(&number.to_le_bytes());
        }
        let taken = self.to_router.tx_burst(&mut burst, &mut self.cache);
        self.to_router.flush(&mut self.cache);
        if taken > 0 {
            self.taken = went + taken as u64;
        }
        self.no_room += (count - taken) as u64;
        self.cache.free(&mut burst);
    }

    fn take(&mut self) -> usize {
        let mut burst = Burst::new();
        let count = self.from_router.rx_burst(&mut burst, &mut self.cache);
        for packet in burst.iter() {
            match number(packet.data()) {
                Some(number) => self.numbers.took(number),
                None => self.strays += 1,
            }
        }
        self.cache.free(&mut burst);
        self.strays += self.back.rx_burst(&mut burst, &mut self.cache) as u64;
        self.cache.free(&mut burst);
        count
    }

    fn rest(&mut self) {
        match self.shares_cpu {
            // Spinning is no use if the other thread waits for this CPU.
            true => std::thread::yield_now(),
            false => pause(),
        }
    }
}

/// The number of a test frame: IPv4 and UDP of the right length; `None` for the router's own
/// messages.
fn number(frame: &[u8]) -> Option<u64> {
    let is_ours =
        frame.len() == size_of::<Frame>() && frame[12..15] == [8, 0, 0x45] && frame[23] == 17;
    let bytes = is_ours.then(|| frame[NUMBER].first_chunk())??;
    Some(u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_gives_what_is_due_and_leaves_out_what_nobody_could_send() {
        let mut pace = Pace::new(1000, 0.5, 1024);
        assert_eq!(pace.take(900), 0, "before it begins");
        assert_eq!(pace.take(1020), 10);
        assert_eq!(pace.take(1021), 0);
        assert_eq!(pace.take(1220), 64, "a burst at most");
        assert_eq!(pace.take(1220), 36);
        // 10,000 frames later: 1024 of them may still go.
        let mut went = 0;
        while let count @ 1.. = pace.take(21_220) {
            went += count;
        }
        assert_eq!((went, pace.left_out), (1024, 10_000 - 1024));
    }

    #[test]
    fn numbers_that_do_not_come_are_lost_and_late_ones_are_not() {
        let mut numbers = Numbers::default();
        [0, 1, 4, 3]
            .into_iter()
            .for_each(|number| numbers.took(number));
        let expected = Numbers {
            next: 5,
            missing: 1,
            came: 4,
            out_of_order: 1,
        };
        assert_eq!(numbers, expected);
        assert_eq!(numbers.lost(5), 1, "2");
        assert_eq!(numbers.lost(8), 4, "and the last three");
    }

    #[test]
    fn only_frames_with_a_number_have_one() {
        let mut frame: Frame = [0; 60];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = 17;
        frame[NUMBER].copy_from_slice(&77_u64.to_le_bytes());
        assert_eq!(number(&frame), Some(77));
        frame[23] = 1;
        assert_eq!(number(&frame), None, "ICMP is the router's own");
        assert_eq!(number(&frame[..42]), None);
    }
}
