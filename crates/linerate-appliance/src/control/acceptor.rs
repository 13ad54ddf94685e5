//! The loop that takes clients, and the threads that serve them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a listener looks whether all ends, in milliseconds.
pub const LOOK_MS: u32 = 100;

/// How many clients there may be, and what their threads are called.
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    /// Name of the thread that listens.
    pub listener: &'static str,
    /// Name of each client's thread.
    pub client: &'static str,
    /// At once.
    pub most: usize,
}

/// Clients of several listeners, counted together.
#[derive(Clone, Debug, Default)]
pub struct Places {
    taken: Arc<AtomicUsize>,
}

/// Counts a client while it is here.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Places {
    /// Gives a client a thread, where fewer than `clients.most` have one; else `refuse` says so to
    /// it.
    ///
    /// # Errors
    /// There can be no other thread.
    pub fn admit<C: Send + 'static>(
        &self,
        clients: Clients,
        client: C,
        serve: impl FnOnce(C) + Send + 'static,
        refuse: impl FnOnce(C),
    ) -> io::Result<()> {
        let place = Place(self.taken.clone());
        if self.taken.fetch_add(1, Ordering::SeqCst) >= clients.most {
            refuse(client);
            return Ok(());
        }
        let work = move || {
            let _place = place;
            serve(client);
        };
        std::thread::Builder::new()
            .name(clients.client.into())
            .spawn(work)
            .map(drop)
    }
}

/// A thread that takes clients. Dropping it ends the thread; who is being served learns that all
/// ends by `closing`.
#[derive(Debug)]
pub struct Acceptor {
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Takes clients by `accept`, which waits at most so many milliseconds for the next one, and
    /// gives each to `admit`.
    ///
    /// # Errors
    /// There can be no other thread.
    pub fn start<C>(
        name: &str,
        closing: Arc<AtomicBool>,
        accept: impl Fn(u32) -> io::Result<Option<C>> + Send + 'static,
        admit: impl Fn(C) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let ends = closing.clone();
        let take = move || {
            while !ends.load(Ordering::SeqCst) {
                match accept(LOOK_MS) {
                    Ok(Some(client)) => {
                        // A client that cannot have its thread is gone; others may still come.
                        let _ = admit(client);
                    }
                    Ok(None) => {}
                    // Too many open files, mostly: it may get better.
                    Err(_) => std::thread::sleep(Duration::from_millis(LOOK_MS.into())),
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(take)?;
        Ok(Self {
            closing,
            thread: Some(thread),
        })
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const CLIENTS: Clients = Clients {
        listener: "listener",
        client: "client",
        most: 2,
    };

    #[test]
    fn one_too_many_is_refused_until_another_has_gone() {
        let (places, (gone, waits)) = (Places::default(), mpsc::channel::<()>());
        let waits = Arc::new(std::sync::Mutex::new(waits));
        let (said, says) = mpsc::channel();
        let come = |number: u32| {
            let (waits, served, refused) = (waits.clone(), said.clone(), said.clone());
            let serve = move |number| {
                served.send((number, true)).unwrap();
                let _ = waits.lock().unwrap().recv();
                served.send((number, false)).unwrap();
            };
            let refuse = move |number: u32| refused.send((number + 100, false)).unwrap();
            places.admit(CLIENTS, number, serve, refuse).unwrap();
            says.recv().unwrap()
        };
        assert_eq!(
            (come(1), come(2), come(3)),
            ((1, true), (2, true), (103, false))
        );
        gone.send(()).unwrap();
        assert!(!says.recv().unwrap().1);
        while places.taken.load(Ordering::SeqCst) > 1 {
            std::thread::yield_now();
        }
        assert_eq!(come(4), (4, true));
        drop(gone);
    }

    #[test]
    fn clients_come_until_it_is_dropped() {
        let (come, comes) = mpsc::channel::<u32>();
        let (said, says) = mpsc::channel();
        let comes = std::sync::Mutex::new(comes);
        let accept = move |ms: u32| match comes
            .lock()
            .unwrap()
            .recv_timeout(Duration::from_millis(ms.into()))
        {
            Ok(0) => Err(io::Error::other("too many open files")),
            Ok(number) => Ok(Some(number)),
            Err(_) => Ok(None),
        };
        let admit = move |number| {
            said.send(number).unwrap();
            Ok(())
        };
        let closing = Arc::<AtomicBool>::default();
        let acceptor = Acceptor::start("listener", closing.clone(), accept, admit).unwrap();
        for number in [1, 0, 2] {
            come.send(number).unwrap();
        }
        assert_eq!((says.recv().unwrap(), says.recv().unwrap()), (1, 2));
        drop(acceptor);
        assert!(closing.load(Ordering::SeqCst) && says.recv().is_err());
    }
}
