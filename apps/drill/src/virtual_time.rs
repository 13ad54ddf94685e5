//! Virtual time: the world whose clock goes from event to event of an [`Endpoint`].
//!
//! Nothing sleeps. A blocking call is a call that is made again after each packet and timer until
//! the stack does not answer `EAGAIN`.

use crate::call::{Call, Handle, OptionForm, OptionValue, Out, Reply};
use crate::endpoint::Endpoint;
use crate::fault::Kind;
use crate::run::{Arrival, World};
use crate::settings::{self, Line};
use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;

/// How often a stack may ask to be called at one and the same time.
const MAX_TURNS: u32 = 10_000;

pub(crate) struct VirtualTime<'a> {
    stack: &'a mut dyn Endpoint,
    now_ns: u64,
    sent: VecDeque<Arrival>,
    nonblocking: HashSet<Handle>,
    blocked: Option<Blocked>,
    finished: Option<(i64, Reply)>,
}

/// A call that waits.
struct Blocked {
    call: Call,
    /// Bytes that a write has passed on already.
    done: usize,
    /// A `connect` is under way.
    connecting: bool,
    /// When `poll` gives up.
    until_ns: Option<u64>,
}

impl<'a> VirtualTime<'a> {
    pub(crate) fn new(stack: &'a mut dyn Endpoint) -> Self {
        Self {
            stack,
            now_ns: 1_000_000_000, // 0 is a time that a stack may mean nothing by
            sent: VecDeque::new(),
            nonblocking: HashSet::new(),
            blocked: None,
            finished: None,
        }
    }

    /// Takes what the stack sends now, and asks again for what blocks.
    fn settle(&mut self) {
        loop {
            while let Some(packet) = self.stack.poll_output(self.now_ns) {
                self.sent.push_back(Arrival {
                    at_us: (self.now_ns / 1000).cast_signed(),
                    packet,
                    partial: false,
                });
            }
            let Some(mut blocked) = self.blocked.take() else {
                return;
            };
            match self.attempt(&mut blocked) {
                Some(reply) => {
                    self.finished = Some(((self.now_ns / 1000).cast_signed(), reply));
                }
                None => {
                    self.blocked = Some(blocked);
                    return;
                }
            }
        }
    }

    /// Goes to the next time before `until_ns` at which something is to do. Whether there was one.
    fn step(&mut self, until_ns: u64) -> bool {
        let timer = self.stack.next_deadline_ns();
        let timeout = self.blocked.as_ref().and_then(|blocked| blocked.until_ns);
        let next = [timer, timeout].into_iter().flatten().min();
        let Some(next) = next
            // Scripts count microseconds: a timer within one would make its packet's time inexact.
            .map(|next| next.max(self.now_ns).next_multiple_of(1000))
            .filter(|next| *next <= until_ns)
        else {
            return false;
        };
        self.now_ns = next;
        self.stack.advance(next);
        self.settle();
        true
    }

    /// Steps until `done`, or until that time.
    fn run_until(&mut self, until_us: i64, done: fn(&Self) -> bool) {
        let until_ns = until_us.max(0).cast_unsigned().saturating_mul(1000);
        let (mut last, mut turns) = (self.now_ns, 0);
        while !done(self) {
            if !self.step(until_ns) {
                self.now_ns = self.now_ns.max(until_ns);
                self.stack.advance(self.now_ns);
                self.settle();
                return;
            }
            turns = if self.now_ns == last { turns + 1 } else { 0 };
            last = self.now_ns;
            assert!(
                turns < MAX_TURNS,
                "the stack under test asks for the same time for ever: {last} ns"
            );
        }
    }

    fn blocks(&self, call: &Call) -> bool {
        match call {
            Call::Accept(handle) | Call::Connect(handle, Some(_)) => {
                !self.nonblocking.contains(handle)
            }
            Call::Read(handle, _, flags) | Call::Write(handle, _, flags, _) => {
                flags & libc::MSG_DONTWAIT == 0 && !self.nonblocking.contains(handle)
            }
            Call::Poll(_, timeout) | Call::EpollWait(_, _, timeout) => *timeout != 0,
            _ => false,
        }
    }

    /// Makes the call, or goes on with it; `None`: it blocks.
    fn attempt(&mut self, blocked: &mut Blocked) -> Option<Reply> {
        if blocked.connecting {
            return self.connected(blocked);
        }
        let reply = match &blocked.call {
            Call::Write(handle, data, flags, to) if blocked.done > 0 => {
                let rest = data[blocked.done..].to_vec();
                let call = Call::Write(*handle, rest, *flags, *to);
                self.stack.call(self.now_ns, &call)
            }
            call => self.stack.call(self.now_ns, call),
        };
        match (&blocked.call, &reply.result) {
            (Call::Write(_, data, _, _), Ok(written)) => {
                blocked.done += usize::try_from(*written).unwrap_or(0);
                (blocked.done >= data.len()).then(|| Reply::ok(blocked.done as i64))
            }
            // What was written before an error counts (POSIX write).
            (Call::Write(..), Err(error)) if *error != libc::EAGAIN && blocked.done > 0 => {
                Some(Reply::ok(blocked.done as i64))
            }
            (Call::Connect(..) | Call::Write(..), Err(libc::EINPROGRESS)) => {
                blocked.connecting = true;
                self.connected(blocked)
            }
            (Call::Poll(..) | Call::EpollWait(..), Ok(0)) => {
                let timed_out = blocked.until_ns.is_some_and(|until| until <= self.now_ns);
                timed_out.then_some(reply)
            }
            (_, Err(libc::EAGAIN)) => None,
            _ => Some(reply),
        }
    }

    /// Whether a connection under way is there, or has failed.
    fn connected(&mut self, blocked: &mut Blocked) -> Option<Reply> {
        let (Call::Connect(handle, _) | Call::Write(handle, ..)) = blocked.call else {
            return None;
        };
        let events = (libc::POLLOUT | libc::POLLERR | libc::POLLHUP) as u32;
        let poll = Call::Poll(vec![(handle, events)], 0);
        if self.stack.call(self.now_ns, &poll).result == Ok(0) {
            return None;
        }
        blocked.connecting = false;
        let error = Call::GetOption(handle, libc::SOL_SOCKET, libc::SO_ERROR, OptionForm::Int);
        match self.stack.call(self.now_ns, &error).out {
            Out::Value(OptionValue::Int(error)) if error != 0 => Some(Reply::error(error)),
            _ if matches!(blocked.call, Call::Connect(..)) => Some(Reply::ok(0)),
            _ => self.attempt(blocked),
        }
    }

    fn make(&mut self, call: Call) -> (Blocked, Option<Reply>) {
        if let Call::SetNonblocking(handle, on) = call {
            match on {
                true => self.nonblocking.insert(handle),
                false => self.nonblocking.remove(&handle),
            };
        }
        let timeout_ms = match call {
            Call::Poll(_, timeout) | Call::EpollWait(_, _, timeout) => u64::try_from(timeout).ok(),
            _ => None,
        };
        let blocks = self.blocks(&call);
        let mut blocked = Blocked {
            call,
            done: 0,
            connecting: false,
            until_ns: timeout_ms.map(|ms| self.now_ns + ms * 1_000_000),
        };
        let reply = match blocks {
            true => self.attempt(&mut blocked),
            false => Some(self.stack.call(self.now_ns, &blocked.call)),
        };
        (blocked, reply)
    }
}

impl World for VirtualTime<'_> {
    fn address(&self, is_v6: bool) -> IpAddr {
        self.stack.address(is_v6)
    }

    fn now_us(&self) -> i64 {
        (self.now_ns / 1000).cast_signed()
    }

    fn sleep_until(&mut self, at_us: i64) {
        if at_us > self.now_us() {
            self.run_until(at_us, |_| false);
        }
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        self.stack.inject(self.now_ns, packet);
        self.settle();
        Ok(())
    }

    fn next_packet(&mut self, until_us: i64) -> Option<Arrival> {
        self.run_until(until_us, |world| !world.sent.is_empty());
        self.sent.pop_front()
    }

    fn call(&mut self, call: Call) -> Result<Reply, String> {
        let (_, reply) = self.make(call);
        self.settle();
        reply.ok_or_else(|| "it blocks; write ... and the time when it returns".into())
    }

    fn begin(&mut self, call: Call) -> Result<(), String> {
        let (blocked, reply) = self.make(call);
        match reply {
            Some(reply) => self.finished = Some((self.now_us(), reply)),
            None => self.blocked = Some(blocked),
        }
        self.settle();
        Ok(())
    }

    fn finished(&mut self, until_us: i64) -> Option<(i64, Reply)> {
        self.run_until(until_us, |world| world.finished.is_some());
        self.finished.take()
    }

    fn command(&mut self, command: &str) -> Result<(), (Kind, String)> {
        let lines = settings::of_command(command).map_err(|why| (Kind::Unsupported, why))?;
        for line in lines {
            let Line::Set(settings) = line else {
                continue;
            };
            for (name, value) in settings {
                let refused = |why| (Kind::Unsupported, format!("{name} = {value}: {why}"));
                self.stack.configure(&name, &value).map_err(refused)?;
            }
        }
        self.settle();
        Ok(())
    }
}
