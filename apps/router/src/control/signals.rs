//! SIGINT and SIGTERM end the router, SIGHUP has it reload.

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals as Caught};
use signal_hook::low_level::emulate_default_handler;

use super::handle::ControlHandle;
use super::{Event, reload};

/// Catches the three signals while it lives. A second one to end, before the first had its effect,
/// ends the process at once.
pub(super) struct Signals {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Signals {
    pub(super) fn catch(control: ControlHandle) -> io::Result<Self> {
        let mut caught = Caught::new([SIGINT, SIGTERM, SIGHUP])?;
        let handle = caught.handle();
        // One that waits reads the file as it is then: it does for all that are asked for
        // meanwhile.
        let (ask, asked) = mpsc::sync_channel(1);
        let reloads = control.clone();
        thread::Builder::new()
            .name("reload".into())
            .spawn(move || asked.iter().for_each(|()| reload::tell(reloads.reload())))?;
        let thread = thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let mut ending = false;
                for signal in caught.forever() {
                    if signal == SIGHUP {
                        let _ = ask.try_send(());
                        continue;
                    }
                    if ending {
                        // It cannot fail for these, and there is nobody left to tell.
                        let _ = emulate_default_handler(signal);
                    }
                    ending = true;
                    control.tell(Event::Stop);
                }
            })?;
        Ok(Self {
            handle,
            thread: Some(thread),
        })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // A panic there was printed already.
            let _ = thread.join();
        }
    }
}
