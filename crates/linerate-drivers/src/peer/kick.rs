//! Notifications between us and a peer, each way through an eventfd that the peer has too.
//!
//! The peer can fill or empty the counter, and change the flags of the open file. So a worker
//! neither reads nor writes there: [`Wakeups`] waits for its edges through an epoll descriptor of
//! our own, and a [`Notifier`]'s thread writes, which a peer could hold up but not the worker.

use rustix::event::epoll::{CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Without waiting.
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Whether a descriptor that a peer sent is an eventfd.
///
/// # Errors
/// Where `/proc` cannot be asked.
pub(crate) fn is_eventfd(file: BorrowedFd<'_>) -> io::Result<bool> {
    // Links to files begin with `/`, and no other kind of descriptor is called so.
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(link.as_os_str() == "anon_inode:[eventfd]")
}

/// An eventfd of our own, to be sent to a peer or to wake a thread.
///
/// # Errors
/// The kernel's: too many open files.
pub(crate) fn new_eventfd() -> io::Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    Ok(eventfd(0, flags)?)
}

/// Adds one to the counter of an eventfd of ours.
pub(crate) fn ring(bell: &OwnedFd) {
    // It fails where the counter is full: then whoever waits is awake.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

/// Empties the counter of an eventfd of ours.
pub(crate) fn drain(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

/// What a receive queue sleeps on: one descriptor for life, whoever the peer is now.
#[derive(Debug)]
pub(crate) struct Wakeups {
    epoll: OwnedFd,
    /// The peer's eventfd.
    watched: Mutex<Option<OwnedFd>>,
}

impl Wakeups {
    /// # Errors
    /// The kernel's: too many open files.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            watched: Mutex::new(None),
        })
    }

    /// Waits for this eventfd from now on, and for no other.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn watch(&self, file: OwnedFd) -> io::Result<()> {
        self.unwatch();
        // Edges: what the peer's counter holds is never looked at.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&self.epoll, &file, EventData::new_u64(0), flags)?;
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }

    /// Waits for nothing.
    pub(crate) fn unwatch(&self) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = watched.take() {
            // To close it is not enough: the peer has the open file too.
            let _ = epoll::delete(&self.epoll, &file);
        }
    }

    /// Forgets edges that came: from now on only a new one makes the descriptor readable.
    pub(crate) fn clear(&self) {
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }];
        let _ = epoll::wait(&self.epoll, &mut events[..], Some(&NOW));
    }

    /// Readable when the peer has notified since [`clear`](Self::clear).
    pub(crate) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

/// Writes to the eventfds of a port's peer, in a thread of its own that is started when it is first
/// needed.
///
/// A peer can make such a write block, by filling the counter at the right moment. Then it has no
/// more notifications, nor has any later peer of the same start of the port; nothing else stops.
#[derive(Debug)]
pub(crate) struct Notifier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What workers have of a notifier.
#[derive(Clone, Debug)]
pub(crate) struct Notify(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bell: OwnedFd,
    stop: AtomicBool,
    targets: Vec<Target>,
    sent: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Target {
    asked: AtomicBool,
    file: Mutex<Option<Arc<OwnedFd>>>,
}

impl Notifier {
    /// For `count` queues, none of which has an eventfd yet. What peers are sent is added to `sent`
    /// as it is sent: it outlives us, as a port outlives its peers.
    ///
    /// # Errors
    /// The kernel's: too many open files.
    pub(crate) fn new(count: usize, sent: Arc<AtomicU64>) -> io::Result<Self> {
        let targets = (0..count).map(|_| Target::default()).collect();
        let shared = Shared {
            bell: new_eventfd()?,
            stop: AtomicBool::new(false),
            targets,
            sent,
        };
        Ok(Self {
            shared: Arc::new(shared),
            thread: None,
        })
    }

    /// For workers.
    pub(crate) fn handle(&self) -> Notify {
        Notify(self.shared.clone())
    }

    /// Gives a queue's eventfd, or takes it back. `name` is the thread's.
    ///
    /// # Errors
    /// The kernel's, where there can be no thread.
    pub(crate) fn set(
        &mut self,
        index: usize,
        file: Option<OwnedFd>,
        name: &str,
    ) -> io::Result<()> {
        if self.thread.is_none() && file.is_some() {
            let shared = self.shared.clone();
            let builder = std::thread::Builder::new().name(name.into());
            self.thread = Some(builder.spawn(move || shared.run())?);
        }
        if let Some(target) = self.shared.targets.get(index) {
            let mut held = target.file.lock().unwrap_or_else(PoisonError::into_inner);
            *held = file.map(Arc::new);
        }
        Ok(())
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        ring(&self.shared.bell);
        let Some(thread) = self.thread.take() else {
            return;
        };
        let start = Instant::now();
        while !thread.is_finished() {
            if start.elapsed() > Duration::from_millis(200) {
                return; // The peer holds it up; it ends when the peer lets go.
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
}

impl Notify {
    /// Asks for a notification. Never blocks. What was stored before is seen by whoever gets it.
    #[cold]
    pub(crate) fn notify(&self, index: usize) {
        let target = self.0.targets.get(index);
        if target.is_some_and(|target| !target.asked.swap(true, Ordering::Release)) {
            ring(&self.0.bell);
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut bell = [PollFd::new(&self.bell, PollFlags::IN)];
            match poll(&mut bell, None) {
                Ok(_) | Err(Errno::INTR) => drain(&self.bell),
                Err(_) => return,
            }
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            for target in &self.targets {
                if target.asked.swap(false, Ordering::Acquire) {
                    self.write(target);
                }
            }
        }
    }

    fn write(&self, target: &Target) {
        // Not under the lock: control must not wait for the peer.
        let file = target.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = file.clone();
        let Some(file) = file else {
            return;
        };
        let mut room = [PollFd::new(&file, PollFlags::OUT)];
        // Full: it has been notified more often than anybody can count.
        if poll(&mut room, Some(&NOW)) == Ok(1)
            && rustix::io::write(file.as_fd(), &1_u64.to_ne_bytes()).is_ok()
        {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn readable(descriptor: &Wakeups, wait: Duration) -> bool {
        let epoll = descriptor.epoll.as_fd();
        let wait = Timespec::try_from(wait).unwrap();
        poll(&mut [PollFd::new(&epoll, PollFlags::IN)], Some(&wait)) == Ok(1)
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn an_eventfd_is_told_from_all_else() {
        assert!(is_eventfd(new_eventfd().unwrap().as_fd()).unwrap());
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let memory =
            rustix::fs::memfd_create("anon_inode:[eventfd]", rustix::fs::MemfdFlags::CLOEXEC);
        for other in [pipe, epoll, memory.unwrap()] {
            assert!(!is_eventfd(other.as_fd()).unwrap());
        }
    }

    #[test]
    fn each_notification_wakes_once_and_what_a_peer_leaves_in_the_counter_does_not() {
        let wakeups = Wakeups::new().unwrap();
        let peers = new_eventfd().unwrap();
        wakeups.watch(peers.try_clone().unwrap()).unwrap();
        wakeups.clear();
        assert!(!readable(&wakeups, Duration::ZERO));
        for _ in 0..3 {
            ring(&peers);
            assert!(readable(&wakeups, PATIENCE), "a new edge");
            wakeups.clear();
            assert!(
                !readable(&wakeups, Duration::ZERO),
                "the counter is not emptied"
            );
        }
        wakeups.unwatch();
        ring(&peers);
        assert!(!readable(&wakeups, Duration::ZERO), "nobody's any more");
    }

    #[test]
    fn a_worker_notifies_through_the_thread() {
        let sent = Arc::new(AtomicU64::new(7));
        let mut notifier = Notifier::new(2, sent.clone()).unwrap();
        let worker = notifier.handle();
        worker.notify(1); // Nobody is there.
        let peers = new_eventfd().unwrap();
        notifier
            .set(1, Some(peers.try_clone().unwrap()), "notifier")
            .unwrap();
        worker.notify(1);
        worker.notify(7); // No such queue.
        let wait = Timespec::try_from(PATIENCE).unwrap();
        assert_eq!(
            poll(&mut [PollFd::new(&peers, PollFlags::IN)], Some(&wait)),
            Ok(1)
        );
        drop(notifier);
        assert!(
            sent.load(Ordering::Relaxed) > 7,
            "what there was counts, too"
        );
    }

    /// The peer's counter is full, and its file blocks.
    #[test]
    fn a_peer_that_does_not_read_does_not_delay_others() {
        let sent = Arc::new(AtomicU64::new(0));
        let mut notifier = Notifier::new(1, sent.clone()).unwrap();
        let peers = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&peers, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        notifier
            .set(0, Some(peers.try_clone().unwrap()), "notifier")
            .unwrap();
        let worker = notifier.handle();
        for _ in 0..100 {
            worker.notify(0);
        }
        drop(notifier);
        assert_eq!(sent.load(Ordering::Relaxed), 0);
    }
}
