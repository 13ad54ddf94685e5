//! The runner: goes through a script's events against a [`World`].
//!
//! It knows no clock and no stack: a world has both. [`flow`] translates between a script's
//! numbers and those on the wire, [`packets`] injects and expects, [`calls`] makes system calls,
//! [`answers`] checks what they return.

mod answers;
mod arguments;
mod calls;
mod config;
mod flow;
mod packets;
mod values;
mod written;

pub use config::{Config, IpVersion};

use crate::call::{Call, Handle, Reply, SocketKind};
use crate::code::Variables;
use crate::fault::{At, Fault, Kind};
use crate::script::{Action, Event, Script, When};
use answers::Expected;
use flow::Flows;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use written::Written;

/// A packet that the stack under test sent.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// When, in microseconds of the world's clock.
    pub(crate) at_us: i64,
    /// From the IP header on.
    pub(crate) packet: Vec<u8>,
    /// The layer-4 checksum is partial.
    pub(crate) partial: bool,
}

/// A stack under test and its time.
pub(crate) trait World {
    /// The stack's own address.
    fn address(&self, is_v6: bool) -> IpAddr;
    /// Now, in microseconds; any origin.
    fn now_us(&self) -> i64;
    /// Lets time pass.
    fn sleep_until(&mut self, at_us: i64);
    /// Gives the stack a packet.
    fn inject(&mut self, packet: &[u8]) -> Result<(), String>;
    /// The next packet that the stack sends, if it does until then.
    fn next_packet(&mut self, until_us: i64) -> Option<Arrival>;
    /// A system call that must return at once.
    fn call(&mut self, call: Call) -> Result<Reply, String>;
    /// Starts a system call that may block.
    fn begin(&mut self, call: Call) -> Result<(), String>;
    /// The answer of the call that was started, and when it came, if it does until then.
    fn finished(&mut self, until_us: i64) -> Option<(i64, Reply)>;
    /// Runs a shell command.
    fn command(&mut self, command: &str) -> Result<(), (Kind, String)>;
}

/// How a script went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Events that happened as the script says.
    pub events: usize,
    /// What code printed.
    pub printed: Vec<String>,
    /// Packets both ways with the script's time, if [`Config::trace`] says so.
    pub trace: Vec<String>,
    /// What went wrong, or why the script was skipped.
    pub fault: Option<Fault>,
}

/// How much longer than allowed to wait for a packet, so as to say when it came.
const GRACE_US: i64 = 500_000;
/// How long a packet may take that can come at any time.
const ANY_TIME_US: i64 = 120_000_000;

/// A system call that blocks.
struct Pending {
    at: At,
    expected: Expected,
    from_us: i64,
    end_us: i64,
}

pub(crate) struct Runner<'a, W> {
    world: &'a mut W,
    config: &'a Config,
    flows: Flows,
    /// Packets that the script asks for later.
    aside: VecDeque<(packets::Whose, packets::Sent)>,
    /// The script's descriptors.
    handles: HashMap<i64, Handle>,
    /// Descriptors with `O_NONBLOCK`.
    nonblocking: HashMap<Handle, bool>,
    /// What sockets are.
    kinds: HashMap<Handle, SocketKind>,
    /// Whose `TCP_INFO` code reads.
    subject: Option<Handle>,
    /// What the stack was given to send.
    written: Written,
    pending: Option<Pending>,
    variables: Variables,
    trace: Vec<String>,
    /// The world's time of the script's first event, and that event's time in the script.
    start_us: i64,
    first_us: i64,
    /// When the last event happened.
    last_us: i64,
    /// How late the runner itself was, at most, where that was more than the tolerance.
    late_us: i64,
}

impl<'a, W: World> Runner<'a, W> {
    pub(crate) fn new(world: &'a mut W, config: &'a Config) -> Self {
        let now = world.now_us();
        Self {
            flows: Flows::new(config, world.address(config.is_v6())),
            world,
            config,
            aside: VecDeque::new(),
            handles: HashMap::new(),
            nonblocking: HashMap::new(),
            kinds: HashMap::new(),
            subject: None,
            written: Written::default(),
            pending: None,
            variables: Variables::default(),
            trace: Vec::new(),
            start_us: now,
            first_us: 0,
            last_us: now,
            late_us: 0,
        }
    }

    /// Runs a script to its end, or to its first fault.
    pub(crate) fn run(mut self, script: &Script) -> Outcome {
        let mut outcome = Outcome::default();
        let result = self.events(script, &mut outcome.events);
        if let Some((command, at)) = &script.cleanup {
            // Whatever came before, what the script changed is put back.
            let cleaned = self.command(*at, command);
            outcome.fault = result.and(cleaned).err();
        } else {
            outcome.fault = result.err();
        }
        if let Some(fault) = &mut outcome.fault
            && fault.kind == Kind::Mismatch
            && self.late_us > 0
        {
            fault.fix = format!(
                "try again on a machine with less load: the runner was {:.1} ms late",
                self.late_us as f64 / 1e3
            );
        }
        outcome.printed = self.variables.printed;
        outcome.trace = self.trace;
        outcome
    }

    fn events(&mut self, script: &Script, done: &mut usize) -> Result<(), Fault> {
        if let Some((command, at)) = &script.init {
            self.command(*at, command)?;
        }
        self.start_us = self.world.now_us();
        self.last_us = self.start_us;
        self.first_us = match script.events.first().map(|event| event.when) {
            Some(When::Absolute(at) | When::AbsoluteRange(at, _)) => at,
            _ => 0,
        };
        for event in &script.events {
            self.event(event)?;
            *done += 1;
        }
        self.finish_pending()?;
        match script.events.last() {
            Some(last) if self.config.strict_end => self.nothing_left(last.at),
            _ => Ok(()),
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), Fault> {
        let (from, to) = self.times(event.when);
        match &event.action {
            Action::Packet(packet) if packet.inbound => {
                self.wait(from);
                self.last_us = self.world.now_us();
                self.inbound(event.at, packet)
            }
            Action::Packet(packet) => self.outbound(event, packet, from, to),
            Action::Call(call) => {
                // A call that is to have returned by now may be what gave this one its descriptor;
                // one that still blocks goes on beside this one, if this one does not block.
                let due = |pending: &Pending| call.end_us.is_some() || pending.end_us <= from;
                if self.pending.as_ref().is_some_and(due) {
                    self.finish_pending()?;
                }
                self.wait(from);
                let base = self.last_us;
                self.last_us = self.world.now_us();
                let end = call.end_us.map(|end| match event.when {
                    When::Absolute(_) => self.start_us + end - self.first_us,
                    _ => base + end,
                });
                self.system_call(event.at, call, end)
            }
            Action::Command(command) => {
                self.wait(from);
                self.command(event.at, command)?;
                self.last_us = self.world.now_us();
                Ok(())
            }
            Action::Code(code) => {
                // What it asks about may be what a call has made that is to have returned.
                if (self.pending.as_ref()).is_some_and(|pending| pending.end_us <= from) {
                    self.finish_pending()?;
                }
                self.wait(from);
                self.last_us = self.world.now_us();
                let info = self.info(event.at)?;
                code.run(&info, &mut self.variables)
            }
        }
    }

    fn command(&mut self, at: At, command: &str) -> Result<(), Fault> {
        self.world
            .command(command)
            .map_err(|(kind, problem)| Fault {
                kind,
                at,
                problem,
                fix: String::new(),
            })
    }

    /// From when to when an event may happen, without tolerance.
    fn times(&self, when: When) -> (i64, i64) {
        let absolute = |time: i64| self.start_us + time - self.first_us;
        match when {
            When::Absolute(at) => (absolute(at), absolute(at)),
            When::AbsoluteRange(from, to) => (absolute(from), absolute(to)),
            When::Relative(after) => (self.last_us + after, self.last_us + after),
            When::RelativeRange(from, to) => (self.last_us + from, self.last_us + to),
            When::Any => (self.last_us, self.last_us + ANY_TIME_US),
        }
    }

    /// How far from its time an event may be, if it follows the one before at `from`.
    fn tolerance_us(&self, from: i64) -> i64 {
        let share = (from - self.last_us) as f64 * self.config.tolerance_percent / 100.0;
        self.config.tolerance_us.max(share as i64)
    }

    /// Waits until it is time for what the script does itself. On a busy machine that may come
    /// late, which is no fault: relative times go on from when it came. It is a hint if one
    /// follows.
    fn wait(&mut self, until: i64) {
        self.world.sleep_until(until);
        let late = self.world.now_us() - until;
        if late > self.tolerance_us(until) {
            self.late_us = self.late_us.max(late);
        }
    }

    /// Seconds of the script's clock, for messages.
    fn script_seconds(&self, at_us: i64) -> f64 {
        (at_us - self.start_us + self.first_us) as f64 / 1e6
    }

    /// Checks when something happened, from its first packet to its last.
    fn check_time(
        &self,
        event: &Event,
        from: i64,
        to: i64,
        (first_us, last_us): (i64, i64),
    ) -> Result<(), Fault> {
        let slack = self.tolerance_us(from);
        let is_early = first_us < from - slack;
        if event.when == When::Any || !is_early && last_us <= to + slack {
            return Ok(());
        }
        let at_us = if is_early { first_us } else { last_us };
        let expected = if from == to {
            format!("at {:.6} s", self.script_seconds(from))
        } else {
            let (from, to) = (self.script_seconds(from), self.script_seconds(to));
            format!("between {from:.6} and {to:.6} s")
        };
        let problem = format!(
            "the packet came at {:.6} s ({:+.6}), not {expected} (tolerance {:.1} ms)",
            self.script_seconds(at_us),
            (at_us - self.last_us) as f64 / 1e6,
            slack as f64 / 1e3
        );
        Err(Fault::mismatch(event.at, problem))
    }
}
