//! Lcores: named threads, each bound to a CPU, owned and joined by a value.

use std::any::Any;
use std::thread::{self, JoinHandle};

use super::{CpuList, EnvError, affinity};
use crate::inbox;

/// Starts lcores. There is no registry: the owner of the [`LcoreHandle`] owns the thread.
///
/// ```
/// use linerate_core::env::Lcore;
/// let worker = Lcore::spawn("eu0", None, || 6 * 7)?;
/// assert_eq!(worker.join()?, 42);
/// # Ok::<(), linerate_core::env::EnvError>(())
/// ```
pub struct Lcore(());

/// A running lcore. Dropping it waits for the thread: stop its code first.
#[derive(Debug)]
pub struct LcoreHandle<T> {
    name: String,
    cpu: Option<u32>,
    thread: Option<JoinHandle<()>>,
    result: Option<inbox::Answer<T>>,
}

/// The longest name that Linux keeps for a thread, in bytes.
const NAME_BYTES: usize = 15;

impl Lcore {
    /// Runs `work` on a new thread called `name`, bound to `cpu` if one is given. Returns once the
    /// thread is bound; if that fails, `work` is dropped without having run. Without `cpu` the
    /// thread runs where the calling one may: spawn such threads from an unbound thread.
    pub fn spawn<T, F>(name: &str, cpu: Option<u32>, work: F) -> Result<LcoreHandle<T>, EnvError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (reply, result) = inbox::answer();
        let thread = start(name, cpu, Box::new(move || reply.give(work())))?;
        Ok(LcoreHandle {
            name: name.into(),
            cpu,
            thread: Some(thread),
            result: Some(result),
        })
    }
}

/// What does not depend on the work, once for all.
fn start(
    name: &str,
    cpu: Option<u32>,
    work: Box<dyn FnOnce() + Send>,
) -> Result<JoinHandle<()>, EnvError> {
    let bad_name = |reason| EnvError::BadName {
        name: name.into(),
        reason,
    };
    if name.is_empty() || name.len() > NAME_BYTES {
        return Err(bad_name("Linux keeps 1 to 15 bytes of a thread's name"));
    }
    if name.contains('\0') {
        return Err(bad_name("it holds a NUL"));
    }
    let (report, bound) = inbox::answer();
    let thread = thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            let outcome = cpu.map_or(Ok(()), affinity::pin);
            let failed = outcome.is_err();
            report.give(outcome);
            if !failed {
                work();
            }
        })
        .map_err(|source| EnvError::Spawn {
            name: name.into(),
            source,
        })?;
    match (bound.wait(), cpu) {
        (Some(Err(source)), Some(cpu)) => Err(EnvError::Pin {
            name: name.into(),
            cpu,
            allowed: affinity::allowed().unwrap_or_else(|_| CpuList::default()),
            source,
        }),
        _ => Ok(thread),
    }
}

impl<T> LcoreHandle<T> {
    /// The name it was started under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The CPU it is bound to.
    pub fn cpu(&self) -> Option<u32> {
        self.cpu
    }

    /// Whether the code has returned or panicked.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the code to return; returns its result, or its panic message as an error.
    pub fn join(mut self) -> Result<T, EnvError>
    where
        T: Send + 'static,
    {
        let panicked = |message: String| EnvError::Panicked {
            name: self.name.clone(),
            message,
        };
        if let Some(Err(payload)) = self.thread.take().map(JoinHandle::join) {
            return Err(panicked(panic_message(payload.as_ref())));
        }
        let result = self.result.take().and_then(inbox::Answer::wait);
        // Always there: `spawn` hands out no handle whose work did not run, and this is the end of
        // the handle.
        result.ok_or_else(|| panicked("it never ran".into()))
    }
}

impl<T> Drop for LcoreHandle<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The panic hook has already printed what went wrong, if anything did.
            let _ = thread.join();
        }
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn runs_named_and_on_its_cpu() {
        let cpu = *affinity::allowed().unwrap().as_slice().last().unwrap();
        let lcore = Lcore::spawn("io0", Some(cpu), || {
            let name = thread::current().name().map(String::from);
            (name, rustix::thread::sched_getcpu())
        });
        let lcore = lcore.unwrap();
        assert_eq!((lcore.name(), lcore.cpu()), ("io0", Some(cpu)));
        assert_eq!(lcore.join().unwrap(), (Some("io0".into()), cpu as usize));
    }

    #[test]
    fn a_cpu_outside_the_set_is_named_and_the_work_does_not_run() {
        let ran = Arc::new(AtomicBool::new(false));
        let flag = ran.clone();
        let error = Lcore::spawn("eu7", Some(8000), move || {
            flag.store(true, Ordering::Relaxed)
        })
        .unwrap_err();
        let allowed = affinity::allowed().unwrap().to_string();
        let message = error.to_string();
        assert!(
            message.contains("eu7") && message.contains("CPU 8000") && message.contains(&allowed),
            "{message}"
        );
        assert!(!ran.load(Ordering::Relaxed));
        assert!(Lcore::spawn("eu7", Some(u32::MAX), || ()).is_err());
    }

    #[test]
    fn dropping_the_handle_waits_for_the_thread() {
        let done = Arc::new(AtomicBool::new(false));
        let flag = done.clone();
        drop(Lcore::spawn("bg0", None, move || {
            thread::sleep(std::time::Duration::from_millis(20));
            flag.store(true, Ordering::Release);
        }));
        assert!(done.load(Ordering::Acquire));
    }

    #[test]
    fn a_panic_comes_back_as_an_error_with_its_message() {
        let error = Lcore::spawn("eu0", None, || panic!("table {} is torn", 3))
            .unwrap()
            .join()
            .unwrap_err();
        assert_eq!(error.to_string(), "lcore eu0 panicked: table 3 is torn");
    }

    #[test]
    fn names_that_linux_would_cut_are_refused() {
        for name in ["", "sixteen-bytes-xx", "a\0b"] {
            assert!(
                matches!(
                    Lcore::spawn(name, None, || ()),
                    Err(EnvError::BadName { .. })
                ),
                "{name:?}"
            );
        }
    }
}
