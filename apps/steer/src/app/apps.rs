//! Applications that share a stack, and how they come and go while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::NEVER;
use linerate_epc::tunnels::Handed;
use linerate_stack::socket::{Event, Io, SocketId};

use super::{App, Error, PARCEL, Tokens, done_with};
use crate::core::User;
use crate::steering::plan::Member;

/// Applications at most, those included that have retired.
const MOST: usize = 1 << u8::BITS;

/// The numbers of applications, the same on all lcores: a connection that moves has its
/// application's in its token. A number is free again when no lcore has it any more.
#[derive(Debug)]
pub struct Numbers([AtomicUsize; MOST]);

impl Default for Numbers {
    fn default() -> Self {
        Self([const { AtomicUsize::new(0) }; MOST])
    }
}

impl Numbers {
    /// Takes a free one for an application of so many lcores; `None` if there is none.
    pub fn take(&self, lcores: usize) -> Option<u8> {
        let is_free = |count: &AtomicUsize| count.load(Ordering::Acquire) == 0;
        let number = self.0.iter().position(is_free)?;
        self.0[number].store(lcores, Ordering::Relaxed);
        u8::try_from(number).ok()
    }

    /// A number that was taken has not been used.
    pub fn give_back(&self, number: u8) {
        self.0[usize::from(number)].store(0, Ordering::Relaxed);
    }

    /// An lcore has the application of this number no more.
    fn ended(&self, number: usize) {
        let count = &self.0[number];
        // Behind all that this lcore has done for it.
        let _ = count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| {
            Some(count.saturating_sub(1))
        });
    }
}

/// An application that is to begin: number, name, and itself, made for the tokens of this number.
pub type New = (u8, String, Box<dyn App>);

/// What is to become of the applications of an lcore.
#[derive(Default)]
pub struct Change {
    /// Numbers of those that retire, and of those that come in their place.
    pub ends: Vec<(u8, Option<u8>)>,
    /// Those that begin.
    pub begins: Vec<New>,
    /// For how long those that retire may go on with the connections that they have; without, until
    /// these end by themselves.
    pub drain: Option<Duration>,
}

/// Whether an application goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Goes,
    /// It has retired; connections that it releases are this one's. What it has left then is
    /// aborted.
    Retired {
        successor: Option<u8>,
        until_ns: u64,
    },
}

struct Slot {
    name: String,
    app: Box<dyn App>,
    life: Life,
}

/// Applications that share a stack. The tokens of each are those of its number here.
#[derive(Default)]
pub struct Apps {
    /// By number.
    all: Vec<Option<Slot>>,
    /// Those that are gateways.
    gateways: Vec<usize>,
    /// How many have retired and not ended.
    retired: usize,
    /// Connections that were aborted since those that had them had retired for too long.
    aborted: u64,
    /// Who has to know which numbers are in use.
    numbers: Option<Arc<Numbers>>,
}

impl Apps {
    /// From now on others hear of the numbers of those that have ended.
    pub fn set_numbers(&mut self, numbers: Arc<Numbers>) {
        self.numbers = Some(numbers);
    }

    /// Adds one, which `make` makes for its tokens.
    ///
    /// # Panics
    /// If there are 256 already.
    pub fn add(&mut self, name: String, make: impl FnOnce(Tokens) -> Box<dyn App>) {
        let number = u8::try_from(self.all.len()).expect("fewer than 256 applications");
        let app = make(Tokens::of(number));
        self.put(number, name, app);
    }

    fn put(&mut self, number: u8, name: String, app: Box<dyn App>) {
        let index = usize::from(number);
        if app.is_gateway() {
            self.gateways.push(index);
        }
        if self.all.len() <= index {
            self.all.resize_with(index + 1, || None);
        }
        self.all[index] = Some(Slot {
            name,
            app,
            life: Life::Goes,
        });
    }

    fn at(&mut self, number: usize) -> Option<&mut Box<dyn App>> {
        let slot = self.all.get_mut(number)?.as_mut()?;
        Some(&mut slot.app)
    }

    fn of_token(&mut self, token: u64) -> Option<&mut Box<dyn App>> {
        self.at(Tokens::number(token))
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.all.iter().flatten()
    }

    /// The name of each, and what it counts. Behind the name of one that has retired is its number,
    /// since another one may have its name: `web~3`.
    pub fn counts_by_app(&self) -> Vec<(String, Vec<(&'static str, u64)>)> {
        self.slots()
            .map(|slot| (slot.name.clone(), slot.app.counts()))
            .collect()
    }

    /// Starts all.
    ///
    /// # Errors
    /// The name of the first that cannot, and why.
    pub fn start_all(&mut self, io: &mut Io<'_>) -> Result<(), (String, Error)> {
        for Slot { name, app, .. } in self.all.iter_mut().flatten() {
            app.start(io).map_err(|error| (name.clone(), error))?;
        }
        Ok(())
    }

    /// Has some retire and others begin. A successor at the same address and port has the listener
    /// of the one before, with all that waits there; other listeners close first, so that ports can
    /// be exchanged.
    ///
    /// Returns the names of those that cannot begin, and why.
    pub fn change(&mut self, change: Change, io: &mut Io<'_>) -> Vec<(String, Error)> {
        let begins: Vec<u8> = change.begins.iter().map(|(number, ..)| *number).collect();
        for (number, name, app) in change.begins {
            self.put(number, name, app);
        }
        let drain_ns = change
            .drain
            .map_or(u64::MAX, |drain| drain.as_nanos() as u64);
        let until_ns = io.now_ns().saturating_add(drain_ns);
        for &(number, successor) in &change.ends {
            self.retire(number, (successor, until_ns), io);
        }
        let mut failed = Vec::new();
        for number in begins {
            if let Some(Slot { name, app, .. }) = &mut self.all[usize::from(number)]
                && let Err(error) = app.start(io)
            {
                failed.push((name.clone(), error));
            }
        }
        self.end(io);
        failed
    }

    fn retire(&mut self, number: u8, (successor, until_ns): (Option<u8>, u64), io: &mut Io<'_>) {
        let index = usize::from(number);
        let Some(mut slot) = self.all.get_mut(index).and_then(Option::take) else {
            return;
        };
        if let Some(listening) = slot.app.listening() {
            let next = successor.and_then(|next| self.at(next.into())?.listening());
            if let Some(next) = next {
                next.succeed(listening, io);
            }
            if let Some(id) = listening.id.take() {
                // What has been told that it is connected is served.
                while let Some((waiting, _)) = io.accept(id) {
                    slot.app.met(io, waiting);
                }
                io.close_listener(id);
            }
        }
        slot.app.retire(io, successor.is_some());
        slot.life = Life::Retired {
            successor,
            until_ns,
        };
        slot.name = format!("{}~{number}", slot.name);
        self.retired += 1;
        self.all[index] = Some(slot);
    }

    /// Passes on what those that have retired release; those without connections end, and those
    /// whose time is over. Returns when the next one's is.
    #[cold]
    fn end(&mut self, io: &mut Io<'_>) -> u64 {
        let mut next_ns = NEVER;
        for number in 0..self.all.len() {
            let Some(slot) = &mut self.all[number] else {
                continue;
            };
            let Life::Retired {
                successor,
                until_ns,
            } = slot.life
            else {
                continue;
            };
            let released: Vec<SocketId> = std::iter::from_fn(|| slot.app.released()).collect();
            let is_empty = slot.app.open() == 0;
            let is_over = until_ns <= io.now_ns();
            for id in released {
                match successor.and_then(|next| self.at(next.into())) {
                    Some(next) => next.accepted(io, id),
                    None => io.close(id),
                }
            }
            if !is_empty && !is_over {
                next_ns = next_ns.min(until_ns);
                continue;
            }
            let ended = self.all[number].take();
            self.retired -= 1;
            if let Some(Slot { name, .. }) = ended.filter(|_| !is_empty) {
                self.abort(number, &name, io);
            }
            if let Some(numbers) = &self.numbers {
                numbers.ended(number);
            }
        }
        next_ns
    }

    /// Aborts what an application has left that is there no more.
    fn abort(&mut self, number: usize, name: &str, io: &mut Io<'_>) {
        let aborted = io.abort_users(|token| Tokens::number(token) == number);
        if aborted > 0 {
            self.aborted += aborted as u64;
            // Who waits for such an application to end would look for them.
            eprintln!("warning: [[app]] {name}: {aborted} connections aborted, its time is over");
        }
    }

    /// Connections that were aborted since those that had them had retired for too long.
    pub fn aborted(&self) -> u64 {
        self.aborted
    }
}

impl App for Apps {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        self.start_all(io).map_err(|(_, error)| error)
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        let is_same = |a: &Event, b: &Event| Tokens::number(a.token) == Tokens::number(b.token);
        for events in events.chunk_by(is_same) {
            if let Some(app) = self.of_token(events[0].token) {
                app.ready(io, events);
            }
        }
    }

    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        let over_ns = match self.retired {
            0 => NEVER,
            _ => self.end(io),
        };
        let slots = self.all.iter_mut().flatten();
        let next_ns = slots.map(|slot| slot.app.turn(io)).min();
        next_ns.unwrap_or(NEVER).min(over_ns)
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.slots().flat_map(|slot| slot.app.counts()).collect()
    }

    fn is_gateway(&self) -> bool {
        !self.gateways.is_empty()
    }

    fn burst(&mut self, io: &mut Io<'_>, burst: &mut Burst, handed: &mut Handed) {
        for index in 0..self.gateways.len() {
            if let Some(app) = self.at(self.gateways[index]) {
                app.burst(io, burst, handed);
            }
        }
        self.handed(io, handed);
    }

    fn handed(&mut self, io: &mut Io<'_>, handed: &mut Handed) {
        // What one has handed on may be the next one's again: a packet goes by each once.
        for _ in 0..self.gateways.len() {
            for index in 0..self.gateways.len() {
                if handed.is_empty() {
                    return;
                }
                if let Some(app) = self.at(self.gateways[index]) {
                    app.handed(io, handed);
                }
            }
        }
    }

    fn claims(&self, packet: &Packet) -> bool {
        self.gateway_of(packet).is_some()
    }

    fn packet(&mut self, io: &mut Io<'_>, packet: Packet) {
        let number = self.gateway_of(&packet);
        match number.and_then(|number| self.at(number)) {
            Some(app) => app.packet(io, packet),
            None => done_with(io, packet),
        }
    }
}

impl Apps {
    /// The gateway that takes a packet.
    fn gateway_of(&self, packet: &Packet) -> Option<usize> {
        let takes = |&&number: &&usize| {
            let slot = self.all[number].as_ref();
            slot.is_some_and(|slot| slot.app.claims(packet))
        };
        self.gateways.iter().find(takes).copied()
    }
}

impl User for Apps {
    fn arrived(&mut self, io: &mut Io<'_>, id: SocketId, token: u64) -> bool {
        match self.of_token(token) {
            Some(app) => {
                app.accepted(io, id);
                true
            }
            None => false,
        }
    }

    fn stayed(&mut self, io: &mut Io<'_>, id: SocketId) {
        let token = io.token(id);
        if let Some(app) = token.and_then(|token| self.of_token(token)) {
            app.accepted(io, id);
        }
    }

    fn next_parcel(&mut self) -> Option<(Member, u16, Packet)> {
        let mut numbered = (PARCEL..).zip(&mut self.all);
        numbered.find_map(|(kind, slot)| {
            let (to, packet) = slot.as_mut()?.app.leaving()?;
            Some((to, kind, packet))
        })
    }

    fn parcel_of(&mut self, io: &mut Io<'_>, kind: u16, packet: Packet) {
        let number = kind.checked_sub(PARCEL).map(usize::from);
        match number.and_then(|number| self.at(number)) {
            Some(app) => app.parcel(io, packet),
            None => done_with(io, packet),
        }
    }
}
