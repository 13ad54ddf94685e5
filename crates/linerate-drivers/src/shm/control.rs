//! The port's control thread: our heartbeat, the peer's signs of life, and the file itself, which
//! may be removed, made anew or cut short at any time.
//!
//! Queues have the mapping by a counted reference and look at one number a burst: whatever has
//! changed is theirs when that one differs. What they still have of a file that is gone stays
//! mapped until they have looked.

use super::file::{Attached, Opened, Refusal, Wanted};
use super::signs::{Peer, Watch};
use crate::Opener;
use crate::peer::violations::{Violation, Violations};
use linerate_core::arch::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks while the peer is there.
const BEAT: Duration = Duration::from_millis(100);
/// Between two looks while it is not.
const BEAT_ALONE: Duration = Duration::from_millis(20);

/// What the control thread, the queues and the port share.
#[derive(Debug)]
pub(super) struct Shared {
    changes: CachePadded<Changes>,
    now: Mutex<Now>,
    pub(super) violations: Violations,
}

/// What workers look at once a burst.
#[derive(Debug, Default)]
struct Changes {
    /// One more whenever queues have to look at `now`.
    epoch: AtomicU64,
    /// One more with each look at the peer: queues check their rings as often.
    beat: AtomicU64,
}

/// How things are.
#[derive(Clone, Debug)]
pub(super) struct Now {
    pub(super) attached: Option<Arc<Attached>>,
    /// The peer, or why packets cannot come and go.
    pub(super) peer: Result<Peer, String>,
    /// A queue was cut off, and is to look again.
    cut: bool,
}

impl Shared {
    pub(super) fn new() -> Self {
        let now = Now {
            attached: None,
            peer: Err("it is not started".into()),
            cut: false,
        };
        Self {
            changes: CachePadded::default(),
            now: Mutex::new(now),
            violations: Violations::default(),
        }
    }

    #[inline(always)]
    pub(super) fn epoch(&self) -> u64 {
        self.changes.epoch.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn beat(&self) -> u64 {
        self.changes.beat.load(Ordering::Relaxed)
    }

    /// How things are, and the epoch since when.
    pub(super) fn now(&self) -> (u64, Now) {
        let now = self.lock();
        (self.epoch(), now.clone())
    }

    /// Counts a violation. The queue that saw it is to do nothing until the epoch changes.
    #[cold]
    pub(super) fn cut(&self, memory: &Attached, violation: Violation, detail: &str) {
        // Of a file that shrank we read zeros, which are no lies.
        if !memory.memory.is_lost() {
            self.violations.count(violation, detail);
        }
        self.lock().cut = true;
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, attached: Option<Arc<Attached>>, peer: Result<Peer, String>) {
        let mut now = self.lock();
        let same = match (&now.attached, &attached) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (old, new) => old.is_none() && new.is_none(),
        };
        if same && now.peer == peer && !now.cut {
            return;
        }
        *now = Now {
            attached,
            peer,
            cut: false,
        };
        let epoch = self.epoch().wrapping_add(1);
        self.changes.epoch.store(epoch, Ordering::Relaxed);
    }
}

/// A started port's file and thread. Dropping it ends both.
pub(super) struct Control {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Opens the file, as far as it is there, and goes on with it in a thread.
    pub(super) fn start(
        wanted: Wanted,
        opener: Arc<dyn Opener>,
        shared: Arc<Shared>,
    ) -> Result<Self, Refusal> {
        let mut side = Side {
            wanted,
            opener,
            shared,
            opened: None,
            attached: None,
            watch: Watch::new(),
            beats: std::process::id(), // as good as any
        };
        if let Err(Refusal::Never(reason)) = side.attach() {
            return Err(Refusal::Never(reason));
        }
        side.beat();
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("shm".into())
            .spawn(move || side.run(&stopped))
            .map_err(|error| Refusal::Never(format!("cannot start a thread: {error}")))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has told its panic itself
        }
    }
}

/// Our side of the file.
struct Side {
    wanted: Wanted,
    opener: Arc<dyn Opener>,
    shared: Arc<Shared>,
    opened: Option<Opened>,
    attached: Option<Arc<Attached>>,
    watch: Watch,
    beats: u32,
}

impl Side {
    fn run(mut self, stopped: &mpsc::Receiver<()>) {
        let mut pause = BEAT_ALONE;
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            pause = if self.beat() { BEAT } else { BEAT_ALONE };
        }
        if let Some(attached) = &self.attached {
            attached.leave();
        }
        self.shared.set(None, Err("it is not started".into()));
    }

    /// One look at everything; whether the peer is there.
    fn beat(&mut self) -> bool {
        self.look_at_file();
        let peer = match (self.attach(), &self.opened, &self.attached) {
            (Ok(()), Some(opened), Some(attached)) => {
                attached.beat(self.beats);
                let peer = self.watch.look(opened, attached, Instant::now());
                peer.map_err(str::to_string)
            }
            (Err(refusal), ..) => Err(refusal.into_reason()),
            (Ok(()), ..) => Err("it has no file".into()),
        };
        self.beats = self.beats.wrapping_add(1);
        self.shared.changes.beat.fetch_add(1, Ordering::Relaxed);
        let up = peer.is_ok();
        self.shared.set(self.attached.clone(), peer);
        up
    }

    /// Lets go of a file that is no more what it was.
    fn look_at_file(&mut self) {
        let lost = |attached: &Arc<Attached>| attached.memory.is_lost();
        if self.attached.as_ref().is_some_and(lost) {
            let path = self.wanted.path.display().to_string();
            self.shared.violations.count(Violation::MemoryLost, &path);
            self.attached = None;
        }
        let is_here = |opened: &Opened| opened.is_at(&self.wanted);
        if !self.opened.as_ref().is_none_or(is_here) {
            (self.opened, self.attached) = (None, None);
        }
    }

    /// Opens and maps what is not yet.
    fn attach(&mut self) -> Result<(), Refusal> {
        let opened = match &mut self.opened {
            Some(opened) => opened,
            none => none.insert(Opened::open(&self.wanted, &*self.opener)?),
        };
        if self.attached.is_none() {
            self.attached = Some(Arc::new(opened.attach(&self.wanted)?));
            self.watch = Watch::new();
        }
        Ok(())
    }
}
