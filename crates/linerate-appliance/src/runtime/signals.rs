//! What ends a run: Ctrl-C or SIGTERM, the time being over, or no packet coming any more.

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

/// Catches SIGINT and SIGTERM while it lives. The first asks the run to end; a second one ends
/// the process at once, as if nobody had caught it.
pub struct Interrupts {
    caught: Receiver<()>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Interrupts {
    /// Begins to catch them.
    ///
    /// # Errors
    /// There can be no handler or no thread.
    pub fn catch() -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let (sender, caught) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let mut before = false;
                for signal in signals.forever() {
                    if before {
                        // It cannot fail for these two, and there is nobody left to tell.
                        let _ = emulate_default_handler(signal);
                    }
                    before = true;
                    let _ = sender.send(());
                }
            })?;
        Ok(Self {
            caught,
            handle,
            thread: Some(thread),
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

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // A panic there was printed already.
            let _ = thread.join();
        }
    }
}
