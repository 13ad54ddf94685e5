//! One lcore's loop: senders, receivers, and messages between turns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::yield_now;

use linerate_core::arch::pause;
use linerate_core::env::Clock;
use linerate_core::packet::PoolCache;
use linerate_core::port::Counter;
use linerate_core::run::Histogram;

use super::{Receiver, Sender};

/// Counters of a lcore.
#[derive(Debug, Default)]
pub(crate) struct EngineStats {
    pub(crate) busy_ticks: Counter,
    pub(crate) idle_ticks: Counter,
    /// Ticks of rounds longer than 20 us: the CPU was taken away.
    pub(crate) gaps: Histogram,
}

type Message = Box<dyn FnOnce(&mut Engine) + Send>;

/// One lcore's work.
pub(crate) struct Engine {
    pub(crate) senders: Vec<Sender>,
    pub(crate) receivers: Vec<Receiver>,
    cache: PoolCache,
    clock: Clock,
    stats: Arc<EngineStats>,
    mail: mpsc::Receiver<Message>,
    flagged: Arc<AtomicBool>,
    stopping: bool,
}

/// Reaches an engine on its lcore.
pub(crate) struct EngineHandle {
    mail: mpsc::Sender<Message>,
    flagged: Arc<AtomicBool>,
    pub(crate) stats: Arc<EngineStats>,
}

impl Engine {
    pub(crate) fn new(cache: PoolCache, clock: Clock) -> (Self, EngineHandle) {
        let (sender, mail) = mpsc::channel();
        let flagged = Arc::new(AtomicBool::new(false));
        let stats = Arc::<EngineStats>::default();
        let handle = EngineHandle {
            mail: sender,
            flagged: flagged.clone(),
            stats: stats.clone(),
        };
        let engine = Self {
            senders: Vec::new(),
            receivers: Vec::new(),
            cache,
            clock,
            stats,
            mail,
            flagged,
            stopping: false,
        };
        (engine, handle)
    }

    /// Ends the loop after this round.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Until a message stops it. Returns itself, with its queues.
    pub(crate) fn run(mut self) -> Self {
        let limit = self.clock.ticks(20_000);
        let mut last = self.clock.now();
        let mut empty = 0u32;
        while !self.stopping {
            let mut moved = 0;
            for sender in &mut self.senders {
                moved += sender.turn(self.clock.now(), &mut self.cache);
            }
            for receiver in &mut self.receivers {
                moved += receiver.turn(&mut self.cache);
            }
            let now = self.clock.now();
            let ticks = now.wrapping_sub(last);
            last = now;
            if ticks > limit {
                self.stats.gaps.record(ticks, 1);
            }
            if moved > 0 {
                self.stats.busy_ticks.add(ticks);
                empty = 0;
            } else {
                self.stats.idle_ticks.add(ticks);
                pause();
                empty = empty.wrapping_add(1);
                if empty % 64 == 0 {
                    yield_now();
                }
            }
            if self.flagged.swap(false, Ordering::SeqCst) {
                while let Ok(message) = self.mail.try_recv() {
                    message(&mut self);
                }
            }
        }
        self
    }
}

impl EngineHandle {
    /// Runs `work` on the lcore, between two turns, and returns what it returns; `None` where the lcore
    /// has ended.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, answered) = mpsc::sync_channel(1);
        let message = move |engine: &mut Engine| {
            let _ = answer.send(work(engine));
        };
        self.mail.send(Box::new(message)).ok()?;
        self.flagged.store(true, Ordering::SeqCst);
        answered.recv().ok()
    }
}
