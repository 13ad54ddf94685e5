//! The thread that makes system calls, so that one may block while packets come and go.

use super::Shared;
use super::calls::Sockets;
use crate::call::{Call, Reply};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long to wait for a call to block or return.
const SETTLE: Duration = Duration::from_millis(50);

pub(super) struct Worker {
    calls: Option<Sender<Call>>,
    answers: Receiver<(Instant, Reply)>,
    /// Readable when there is an answer.
    bell: Arc<OwnedFd>,
    /// The thread's number, for `/proc`.
    thread: rustix::thread::Pid,
    sockets: Arc<Sockets>,
    /// A call is under way.
    busy: bool,
    /// An answer that was waited for too early.
    early: Option<(Instant, Reply)>,
}

impl Worker {
    /// Starts it in the name space of the calling thread, for calls on these sockets.
    pub(super) fn start(sockets: &Arc<Sockets>) -> io::Result<Self> {
        let (calls, to_make) = channel::<Call>();
        let (made, answers) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let sockets = sockets.clone();
        let (of_thread, theirs) = (sockets.clone(), bell.clone());
        let (say, told) = channel();
        // It ends with the channel; where a call hangs for ever, with the process.
        std::thread::Builder::new()
            .name("drill-calls".into())
            .spawn(move || {
                let _ = say.send(rustix::thread::gettid());
                for call in to_make {
                    let reply = of_thread.make(&call);
                    if made.send((Instant::now(), reply)).is_err() {
                        return;
                    }
                    let _ = rustix::io::write(&theirs, &1_u64.to_ne_bytes());
                }
            })?;
        let thread = told.recv().map_err(io::Error::other)?;
        Ok(Self {
            calls: Some(calls),
            answers,
            bell,
            thread,
            sockets,
            busy: false,
            early: None,
        })
    }

    pub(super) fn begin(&mut self, call: Call) -> Result<(), String> {
        if self.busy {
            return Err("a call before it still blocks".into());
        }
        self.busy = true;
        let sent = self
            .calls
            .as_ref()
            .is_some_and(|calls| calls.send(call).is_ok());
        if sent {
            Ok(())
        } else {
            Err("the thread of system calls has ended".into())
        }
    }

    /// The answer, and when it came, if it comes within that time.
    pub(super) fn answer(&mut self, timeout: Duration) -> Option<(Instant, Reply)> {
        let answer = match self.early.take() {
            Some(answer) => Some(answer),
            None if timeout.is_zero() => self.answers.try_recv().ok(),
            None => self.answers.recv_timeout(timeout).ok(),
        };
        self.busy &= answer.is_none();
        answer
    }

    /// Waits until the call has returned or sleeps in the kernel, so that what the script does next
    /// comes after its start.
    pub(super) fn await_block(&mut self) {
        let stat = format!("/proc/self/task/{}/wchan", self.thread.as_raw_nonzero());
        let start = Instant::now();
        while start.elapsed() < SETTLE {
            if let Ok(answer) = self.answers.try_recv() {
                self.early = Some(answer);
                return;
            }
            // The channel's own wait is a futex.
            let sleeps = std::fs::read_to_string(&stat)
                .is_ok_and(|place| place != "0" && !place.contains("futex"));
            if sleeps {
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    pub(super) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Readable when there is an answer.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Stops the bell.
    pub(super) fn quiet(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
    }

    /// Ends calls that block, and closes all sockets.
    pub(super) fn end(&mut self) {
        self.calls = None;
        let sockets: Vec<Shared> = self.sockets.take_all();
        for socket in sockets {
            // A call that waits for it returns. What is no socket does not mind.
            let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
        }
    }
}
