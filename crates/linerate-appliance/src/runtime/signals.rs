//! Signals: Ctrl-C and SIGTERM end a run, SIGHUP may have another meaning.

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{self, Handle};
use signal_hook::low_level::emulate_default_handler;

/// Catches signals while it lives.
pub struct Signals(Handle);

impl Signals {
    /// Begins to catch them, and passes each to `heard` on a thread called `name`. Signals that
    /// come meanwhile are passed afterwards, one of each kind.
    ///
    /// # Errors
    /// No handler or no thread can be made.
    pub fn catch(
        name: &str,
        signals: &[i32],
        mut heard: impl FnMut(i32) + Send + 'static,
    ) -> io::Result<Self> {
        let mut caught = iterator::Signals::new(signals)?;
        let handle = caught.handle();
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || caught.forever().for_each(&mut heard))?;
        Ok(Self(handle))
    }

    /// Catches SIGINT and SIGTERM. The first asks the run to `end`; a second one ends the process
    /// at once, as without a handler.
    ///
    /// # Errors
    /// No handler or no thread can be made.
    pub fn to_end(end: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let (mut end, mut before) = (end, false);
        let heard = move |signal| {
            if before {
                // It cannot fail for these two, and no error could be reported.
                let _ = emulate_default_handler(signal);
            }
            before = true;
            end();
        };
        Self::catch("signals", &[SIGINT, SIGTERM], heard)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // The thread ends by itself: what it may be waiting for may end only after this.
        self.0.close();
    }
}

/// Catches SIGINT and SIGTERM while it lives, and waits for them.
pub struct Interrupts {
    caught: Receiver<()>,
    _signals: Signals,
}

impl Interrupts {
    /// Begins to catch them.
    ///
    /// # Errors
    /// No handler or no thread can be made.
    pub fn catch() -> io::Result<Self> {
        let (sender, caught) = mpsc::channel();
        Ok(Self {
            caught,
            // The receiver is gone once it is dropped.
            _signals: Signals::to_end(move || _ = sender.send(()))?,
        })
    }

    /// Waits until `deadline`; true as soon as a signal has come.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        self.wait(deadline.saturating_duration_since(Instant::now()))
    }

    /// Waits; true as soon as a signal has come.
    pub fn wait(&self, time: Duration) -> bool {
        self.caught.recv_timeout(time).is_ok()
    }
}
