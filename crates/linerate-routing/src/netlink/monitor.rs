//! A thread that reports the kernel's state: first a dump, and then changes.
//!
//! The thread subscribes to events before the dump, so that a change meanwhile comes twice rather
//! than never. Where events were lost, because control was too slow for the socket's buffer, the
//! thread reports it and dumps again.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use linerate_wire::MacAddr;
use linerate_wire::rtnetlink::build::{Builder, DUMP, REQUEST};
use linerate_wire::rtnetlink::{Body, Message, family, kind};
use rustix::event::{PollFd, PollFlags, poll};

use crate::feed::Said;
use crate::model::Cidr;
use linerate_appliance::error::Error;
use linerate_appliance::netlink::host_interface::Link;
use linerate_appliance::netlink::socket::{self, Events, Socket};
use linerate_appliance::privilege::Privileged;

/// Batches on the way to control.
const UNDER_WAY: usize = 64;
/// What a batch has at most.
const BATCH: usize = 1024;
/// How often a dump is begun again because something changed meanwhile; after that the events tell.
const DUMPS: usize = 5;

/// `EOPNOTSUPP`.
const NOT_SUPPORTED: i32 = 95;

/// What a thread reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    All,
    Links,
}

/// One message of the kernel.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fact {
    /// A dump begins: what it does not repeat before its end no longer exists.
    Begin,
    /// The dump ends; `asked`: [`Monitor::again`] had requested it.
    End {
        asked: bool,
    },
    /// Events were lost; a dump follows.
    Overrun,
    Link(Link),
    NoLink(u32),
    Address(u32, Cidr),
    NoAddress(u32, Cidr),
    /// A permanent neighbour.
    Pinned(u32, IpAddr, MacAddr),
    /// A neighbour that is not permanent, or was removed.
    NotPinned(u32, IpAddr),
    Said(Said),
    /// The thread has ended.
    Lost(String),
}

impl Fact {
    fn of(body: &Body<'_>) -> Option<Self> {
        let cidr = |address: &linerate_wire::rtnetlink::Address| Cidr {
            address: address.address,
            len: address.len,
        };
        Some(match body {
            Body::NewLink(link) => Self::Link(Link::of(link)),
            Body::DelLink(link) => Self::NoLink(link.index),
            Body::NewAddress(address) if address.tentative() => return None,
            Body::NewAddress(address) => Self::Address(address.index, cidr(address)),
            Body::DelAddress(address) => Self::NoAddress(address.index, cidr(address)),
            Body::NewNeighbour(of) => match of.mac.filter(|_| of.permanent()) {
                Some(mac) => Self::Pinned(of.index, of.address, mac),
                None => Self::NotPinned(of.index, of.address),
            },
            Body::DelNeighbour(of) => Self::NotPinned(of.index, of.address),
            body => Self::Said(Said::of(body)?),
        })
    }
}

/// The control thread's handle of the thread, which ends when this is dropped.
pub(super) struct Monitor {
    facts: Receiver<Vec<Fact>>,
    /// A byte makes the thread dump again; end of file makes it stop.
    orders: Option<io::PipeWriter>,
    /// Whether new routes of FRR are left out, since FRR sends them itself.
    told_by_frr: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Watches a name space, with room for so many bytes of events. `wake` is called for each batch
    /// that is sent.
    pub(super) fn start(
        privileged: &dyn Privileged,
        space: Option<&str>,
        room: usize,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, Error> {
        let sockets = (
            privileged.netlink(space, Some(room))?,
            privileged.netlink(space, None)?,
        );
        Self::on(sockets, Subject::All, wake)
    }

    /// The same on two sockets of a name space, for events and for requests, of a part of it.
    pub(super) fn on(
        (events, requests): (OwnedFd, OwnedFd),
        subject: Subject,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, Error> {
        let groups = match subject {
            Subject::All => socket::ALL,
            Subject::Links => socket::LINKS,
        };
        let events = Socket::of_events(events, groups)?;
        let requests = Socket::new(requests);
        let (heard, orders) = io::pipe()?;
        let (sender, facts) = sync_channel(UNDER_WAY);
        let told_by_frr = Arc::new(AtomicBool::new(false));
        let mut watch = MonitorThread {
            events,
            requests,
            subject,
            orders: heard,
            told_by_frr: told_by_frr.clone(),
            facts: sender,
            wake: Box::new(wake),
        };
        let thread = std::thread::Builder::new()
            .name("netlink".into())
            .spawn(move || watch.run())?;
        Ok(Self {
            facts,
            orders: Some(orders),
            told_by_frr,
            thread: Some(thread),
        })
    }

    /// Sets whether FRR's routes are left out of changes; dumps have them.
    pub(super) fn leave_out_frr(&self, told_by_frr: bool) {
        self.told_by_frr.store(told_by_frr, Ordering::Relaxed);
    }

    /// Makes the thread dump again; `false` where it has ended, and reported why.
    pub(super) fn again(&mut self) -> bool {
        let orders = self.orders.as_mut();
        orders.is_some_and(|orders| orders.write(&[0]).is_ok())
    }

    /// The next batch of messages, in order.
    pub(super) fn next(&self) -> Option<Vec<Fact>> {
        self.facts.try_recv().ok()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // Without the receiver the thread does not wait for room, and without the pipe not for
        // events.
        let (_, gone) = sync_channel(0);
        self.facts = gone;
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked, there is nothing left to end.
            let _ = thread.join();
        }
    }
}

/// Why the thread ends.
enum Ended {
    /// The handle was dropped.
    Unheard,
    Failed(io::Error),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

struct MonitorThread {
    events: Socket,
    requests: Socket,
    subject: Subject,
    orders: io::PipeReader,
    told_by_frr: Arc<AtomicBool>,
    facts: SyncSender<Vec<Fact>>,
    wake: Box<dyn Fn() + Send>,
}

impl MonitorThread {
    fn run(&mut self) {
        let mut outcome = self.dump(false);
        while outcome.is_ok() {
            outcome = self.turn();
        }
        if let Err(Ended::Failed(error)) = outcome {
            // If the handle was dropped, the report is not needed.
            let _ = self.send(vec![Fact::Lost(error.to_string())]);
        }
    }

    fn send(&self, facts: Vec<Fact>) -> Result<(), Ended> {
        self.facts.send(facts).map_err(|_| Ended::Unheard)?;
        (self.wake)();
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Ended> {
        let mut fds = [
            PollFd::new(&self.orders, PollFlags::IN),
            PollFd::new(&self.events, PollFlags::IN),
        ];
        if poll(&mut fds, None).is_err() {
            return Ok(()); // by a signal
        }
        let [ordered, events] = fds.map(|fd| !fd.revents().is_empty());
        if ordered {
            return match self.orders.read(&mut [0]) {
                Ok(1..) => self.dump(true),
                _ => Err(Ended::Unheard),
            };
        }
        if events { self.take_events() } else { Ok(()) }
    }

    /// Reports changes, all that have come as one batch: the kernel sends one message for each
    /// change.
    fn take_events(&mut self) -> Result<(), Ended> {
        let mut facts = Vec::new();
        let told_by_frr = self.told_by_frr.load(Ordering::Relaxed);
        let read = |message: Message<'_>| match message.read() {
            Ok(Body::NewRoute(route)) if told_by_frr && route.by_zebra() => None,
            Ok(body) => Fact::of(&body),
            // A message that cannot be read is newer than this program; the others count.
            Err(_) => None,
        };
        let mut lost = false;
        for _ in 0..BATCH {
            match self.events.events()? {
                Events::Some(messages) => {
                    facts.extend(messages.map_while(Result::ok).filter_map(read));
                }
                Events::None => break,
                Events::Lost => {
                    lost = true;
                    break;
                }
            }
        }
        if lost {
            // The dump has everything, and a loss from now on is reported again.
            self.send(vec![Fact::Overrun])?;
            self.events.forget_events()?;
            return self.dump(false);
        }
        match facts.is_empty() {
            true => Ok(()),
            false => self.send(facts),
        }
    }

    /// Dumps everything.
    fn dump(&mut self, asked: bool) -> Result<(), Ended> {
        for _ in 0..DUMPS {
            self.send(vec![Fact::Begin])?;
            if self.dump_all()? {
                break;
            }
        }
        self.send(vec![Fact::End { asked }])
    }

    /// Links first, then what refers to them; next hops before routes. Returns whether nothing
    /// changed meanwhile.
    fn dump_all(&mut self) -> Result<bool, Ended> {
        // The kind of request and the size of what follows its header; the family is the first
        // byte.
        let requests: [(u16, usize, u8); 6] = [
            (kind::GET_LINK, 16, family::UNSPEC),
            (kind::GET_ADDRESS, 8, family::UNSPEC),
            (kind::GET_NEIGHBOUR, 12, family::UNSPEC),
            (kind::GET_NEXTHOP, 8, family::UNSPEC),
            (kind::GET_ROUTE, 12, family::INET),
            (kind::GET_ROUTE, 12, family::INET6),
        ];
        let asked = match self.subject {
            Subject::All => &requests[..],
            Subject::Links => &requests[..1],
        };
        let mut whole = true;
        for &(kind, len, family) in asked {
            let mut fixed = [0; 16];
            fixed[0] = family;
            let request = Builder::new(kind, REQUEST | DUMP).fixed(&fixed[..len]);
            let (facts, wake) = (&self.facts, &self.wake);
            let mut batch = Vec::new();
            let mut heard = true;
            let outcome = self.requests.dump(request, |body| {
                batch.extend(Fact::of(&body));
                if batch.len() >= BATCH {
                    heard &= facts.send(std::mem::take(&mut batch)).is_ok();
                    wake();
                }
            });
            match outcome {
                Ok(all) => whole &= all,
                // Linux before 5.3 has no next-hop objects; one without IPv6 has no IPv6 routes.
                Err(error) if error.raw_os_error() == Some(NOT_SUPPORTED) => {}
                Err(error) => return Err(error.into()),
            }
            if !heard {
                return Err(Ended::Unheard);
            }
            if !batch.is_empty() {
                self.send(batch)?;
            }
        }
        Ok(whole)
    }
}
