//! Commands of a session: start, stop, clear, wait; change streams and ports while they run.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use linerate_core::env::Clock;
use linerate_core::port::Link;

use super::sample::Sample;
use super::{Activity, Member, Session};
use crate::engine::{Books, Boundaries, Engine};
use linerate_appliance::error::Error;
use linerate_appliance::nearest::offer;

/// Time from a start to the first frame, in which all lcores get the message.
const LEAD_NS: u64 = 2_000_000;
/// Polling interval of waits.
const LOOK: Duration = Duration::from_millis(2);

/// The start of the measurement of the achieved rate, and its last value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) packets: u64,
    pub(super) error_ppm: Option<f64>,
}

impl Session {
    /// Begins to send on `ports` (empty: all that have streams), all at the same tick; for
    /// `duration`, or until stopped.
    ///
    /// # Errors
    /// A port that does not exist or has nothing to send.
    pub fn start(&mut self, ports: &[u16], duration: Option<Duration>) -> Result<(), Error> {
        let has_streams = |port: u16| {
            let mut streams = self.streams.iter();
            streams.any(|stream| stream.port == port && stream.is_enabled())
        };
        let ports: Vec<u16> = match ports {
            [] => (0..self.port_count())
                .filter(|&port| has_streams(port))
                .collect(),
            named => named.to_vec(),
        };
        for &port in &ports {
            self.check_port(port)?;
            if !has_streams(port) {
                return Err(nothing_to_send(&format!(
                    "port {port} has no enabled stream"
                )));
            }
        }
        if ports.is_empty() {
            return Err(nothing_to_send("no port has an enabled stream"));
        }
        self.watch_links();
        // Wakes the lcores, so that they read messages, before the start time is set.
        self.ask_all(|_| |_: &mut Engine| ());
        let at = self.clock.now() + self.clock.ticks(LEAD_NS);
        let until = duration.map_or(u64::MAX, |time| {
            at.saturating_add(
                self.clock
                    .ticks(time.as_nanos().min(u64::MAX.into()) as u64),
            )
        });
        let places = self.senders_of(&ports);
        let sent_before: Vec<u64> = ports.iter().map(|&port| self.sent_by(port)).collect();
        let started = self.ask_all(|lcore| {
            let mine = places[lcore].clone();
            move |engine: &mut Engine| {
                let mut senders = mine.iter();
                senders.try_for_each(|&sender| engine.senders[sender].start(at, duration))
            }
        });
        if let Some(error) = started.into_iter().flatten().find_map(Result::err) {
            self.stop(&ports);
            return Err(error);
        }
        for (&port, packets) in ports.iter().zip(sent_before) {
            let state = &mut self.ports[usize::from(port)];
            state.activity = Activity::Sending { at, until };
            state.pace = Some(Pace {
                from: at,
                until,
                packets,
                error_ppm: None,
            });
        }
        let time = duration.map_or("until stopped".into(), |time| format!("for {time:?}"));
        self.log
            .add(format!("started ports {} {time}", list(&ports)));
        Ok(())
    }

    /// Ends sending on `ports` (empty: all).
    pub fn stop(&mut self, ports: &[u16]) {
        let all: Vec<u16> = (0..self.port_count()).collect();
        let ports = if ports.is_empty() { &all } else { ports };
        let places = self.senders_of(ports);
        let clock = self.clock;
        self.ask_all(|lcore| {
            let mine = places[lcore].clone();
            move |engine: &mut Engine| {
                let now = clock.now();
                mine.iter()
                    .for_each(|&sender| engine.senders[sender].stop(now));
            }
        });
        self.read_lcores();
        self.measure_paces();
        let mut stopped = Vec::new();
        for &port in ports {
            if let Some(state) = self.ports.get_mut(usize::from(port))
                && matches!(state.activity, Activity::Sending { .. })
            {
                state.activity = Activity::Idle;
                stopped.push(port);
            }
        }
        if !stopped.is_empty() {
            self.log.add(format!("stopped ports {}", list(&stopped)));
        }
    }

    /// Begins a new epoch: later snapshots count from here. A frame that is under way counts
    /// neither as sent nor as received.
    pub fn clear(&mut self) {
        self.install_books(self.boundaries.clone(), false);
        // Each sender reports, between two frames, the next sequence numbers of its streams and its
        // counters at the same moment.
        let boundaries = self.boundaries.clone();
        let clock = self.clock;
        let books: Vec<_> = self
            .lcores
            .iter()
            .map(|member| member.books.clone())
            .collect();
        let samples = self.ask_all(|lcore| {
            let (books, boundaries) = (books[lcore].clone(), boundaries.clone());
            move |engine: &mut Engine| {
                for (wire, sent) in &books.sent {
                    boundaries.begin(*wire, sent.packets.read());
                }
                engine.load = Default::default();
                books.read(engine, clock)
            }
        });
        self.epoch += 1;
        self.cleared_at = self.clock.now();
        self.meter = super::Meter::new(self.clock.hz(), self.cleared_at);
        self.invalid.clear();
        for (member, sample) in self.lcores.iter_mut().zip(samples) {
            member.take(sample, clock);
            member.base = member.last.clone();
            let departures = member.books.senders.iter();
            member.departures = departures
                .map(|stats| stats.departure_error.snapshot())
                .collect();
        }
        for (state, open) in self.ports.iter_mut().zip(&self.opened.ports) {
            state.base = open.port.stats();
            state.help.clear();
            if let Some(pace) = &mut state.pace {
                let base = |&(lcore, sender): &(usize, usize)| {
                    self.lcores[lcore]
                        .base
                        .senders
                        .get(sender)
                        .map_or(0, |sent| sent.packets)
                };
                pace.packets = state.senders.iter().map(base).sum();
                pace.from = pace.from.max(self.cleared_at);
            }
        }
    }

    /// Gives all receivers new counters; the counts of the old ones are kept where `keeps` is set.
    pub(super) fn install_books(&mut self, boundaries: Arc<Boundaries>, keeps: bool) {
        let mut fresh: Vec<Vec<Books>> = Vec::new();
        for (member, share) in self.lcores.iter_mut().zip(&self.map.lcores) {
            let books = Arc::make_mut(&mut member.books);
            let mut made = Vec::new();
            for (stats, (port, _)) in books.receivers.iter_mut().zip(&share.rx) {
                let checks = self.ports[usize::from(*port)].asked.checks();
                let new = Books::with_checks(boundaries.clone(), checks);
                if !keeps {
                    stats.clear();
                }
                stats.push(new.stats.clone());
                made.push(new);
            }
            fresh.push(made);
        }
        let old = self.ask_all(|lcore| {
            let fresh = std::mem::take(&mut fresh[lcore]);
            move |engine: &mut Engine| -> Vec<Books> {
                let both = engine.receivers.iter_mut().zip(fresh);
                both.map(|(receiver, books)| receiver.install(books))
                    .collect()
            }
        });
        // Freed here, not on the lcores.
        drop(old);
        self.boundaries = boundaries;
    }

    /// Whether any port still has something to send.
    pub fn is_sending(&mut self) -> bool {
        self.watch_links();
        self.hear();
        self.read_done();
        self.ports
            .iter()
            .any(|port| matches!(port.activity, Activity::Sending { .. }))
    }

    /// Whether any port still has something to send, or waits for frames that it has sent.
    pub fn is_under_way(&mut self) -> bool {
        if self.is_sending() {
            return true;
        }
        self.read_lcores();
        !self.is_settled()
    }

    /// Waits for frames that are under way: until as many test frames have come as were sent, or
    /// none came for `quiet`; at most `longest`. False if frames still came after `longest`.
    pub fn drain(&mut self, quiet: Duration, longest: Duration) -> bool {
        let deadline = Instant::now() + longest;
        let (mut received, mut since) = (0, Instant::now());
        loop {
            self.read_lcores();
            let (sent, came, unique) = self.test_frames();
            if unique >= sent {
                return true;
            }
            let now = Instant::now();
            if came != received {
                (received, since) = (came, now);
            } else if now - since >= quiet {
                return true;
            }
            if now >= deadline {
                return false;
            }
            sleep(LOOK);
        }
    }

    /// The port of that number or name.
    ///
    /// # Errors
    /// There is none; the fix has near names.
    pub fn port_by_name(&self, text: &str) -> Result<u16, Error> {
        if let Ok(number) = text.parse::<u16>() {
            return self.check_port(number).map(|()| number);
        }
        let named = self.opened.ports.iter().position(|open| open.name == text);
        if let Some(number) = named {
            return Ok(number as u16);
        }
        let names = self.opened.ports.iter().map(|open| open.name.as_str());
        Err(Error::Usage {
            problem: format!("there is no port `{text}`"),
            fix: format!(
                "{}; or a number, 0-{}",
                offer(text, names),
                self.port_count() - 1
            ),
        })
    }

    pub(super) fn check_port(&self, port: u16) -> Result<(), Error> {
        if port < self.port_count() {
            return Ok(());
        }
        Err(Error::Usage {
            problem: format!("there is no port {port}"),
            fix: format!("ports are 0-{}", self.port_count() - 1),
        })
    }

    /// By lcore, its senders of these ports.
    fn senders_of(&self, ports: &[u16]) -> Vec<Vec<usize>> {
        let mut places = vec![Vec::new(); self.lcores.len()];
        for &port in ports {
            let senders = self.ports.get(usize::from(port)).map(|port| &port.senders);
            for &(lcore, sender) in senders.into_iter().flatten() {
                places[lcore].push(sender);
            }
        }
        places
    }

    /// Makes each lcore run what `work` returns for it, all at about the same time, and waits for
    /// the answers. An lcore that has died makes the run invalid.
    fn ask_all<R, W>(&mut self, mut work: impl FnMut(usize) -> W) -> Vec<Option<R>>
    where
        R: Send + 'static,
        W: FnOnce(&mut Engine) -> R + Send + 'static,
    {
        let asked: Vec<_> = (0..)
            .zip(&self.lcores)
            .map(|(lcore, member)| member.handle.ask(work(lcore)))
            .collect();
        let answers: Vec<_> = asked.into_iter().map(|answer| answer.wait()).collect();
        for (lcore, _) in answers
            .iter()
            .enumerate()
            .filter(|(_, answer)| answer.is_none())
        {
            let name = &self.map.lcores[lcore].name;
            self.spoil(format!(
                "lcore {name} has died: its queues are not polled any more"
            ));
        }
        answers
    }

    /// Reads all lcores' counters, each between two of its turns: first what was received on all of
    /// them, then what was sent, so that nothing has come that was not sent.
    pub(super) fn read_lcores(&mut self) {
        let clock = self.clock;
        let books: Vec<_> = self
            .lcores
            .iter()
            .map(|member| member.books.clone())
            .collect();
        let received = self.ask_all(|lcore| {
            let books = books[lcore].clone();
            move |engine: &mut Engine| books.read_received(engine)
        });
        let sent = self.ask_all(|lcore| {
            let books = books[lcore].clone();
            move |engine: &mut Engine| books.read_sent(engine, clock)
        });
        let samples = sent.into_iter().zip(received).map(|both| match both {
            (Some(sent), Some(receivers)) => Some(Sample { receivers, ..sent }),
            _ => None,
        });
        for (member, sample) in self.lcores.iter_mut().zip(samples.collect::<Vec<_>>()) {
            member.take(sample, clock);
        }
    }

    /// Records which ports have sent everything.
    pub(super) fn read_done(&mut self) {
        let mut done = Vec::new();
        for (number, port) in (0u16..).zip(&mut self.ports) {
            if !matches!(port.activity, Activity::Sending { .. }) {
                continue;
            }
            let finished = |&(lcore, sender): &(usize, usize)| {
                self.lcores[lcore].books.senders[sender].done.read() == 1
            };
            if port.senders.iter().all(finished) {
                port.activity = Activity::Done;
                done.push(number);
            }
        }
        if !done.is_empty() {
            self.log.add(format!("ports {} have sent all", list(&done)));
        }
    }

    /// Records links that went down or came up; a link that goes down while its port sends makes
    /// the run invalid.
    pub(super) fn watch_links(&mut self) {
        let mut events = Vec::new();
        for (number, (state, open)) in self.ports.iter_mut().zip(&self.opened.ports).enumerate() {
            let down = match open.port.link() {
                Link::Up => None,
                Link::Down(reason) => Some(reason),
            };
            if down == state.down {
                continue;
            }
            let sending = matches!(state.activity, Activity::Sending { .. });
            let text = match &down {
                None => format!("port {number} ({}): link is up", open.name),
                Some(reason) => format!("port {number} ({}): link is down: {reason}", open.name),
            };
            events.push((text, sending));
            state.down = down;
        }
        for (text, sending) in events {
            match sending {
                true => self.spoil(text),
                false => self.log.add(text),
            }
        }
    }

    /// Marks the run as invalid, with the reason.
    fn spoil(&mut self, reason: String) {
        if !self.invalid.contains(&reason) {
            self.log.add(format!("run invalid: {reason}"));
            self.invalid.push(reason);
        }
    }

    /// Why the counts since `clear` are invalid; empty if they are valid.
    pub fn invalid(&self) -> &[String] {
        &self.invalid
    }

    /// Starts measuring the rate that a port achieves, from now or from its start if that is later.
    pub(super) fn start_pace(&mut self, port: u16) {
        let (packets, now) = (self.sent_by(port), self.clock.now());
        let state = &mut self.ports[usize::from(port)];
        if let Activity::Sending { at, until } = state.activity {
            state.pace = Some(Pace {
                from: at.max(now),
                until,
                packets,
                error_ppm: None,
            });
        }
    }

    fn sent_by(&self, port: u16) -> u64 {
        let senders = &self.ports[usize::from(port)].senders;
        let sent = |&(lcore, sender): &(usize, usize)| {
            self.lcores[lcore].books.senders[sender].packets.read()
        };
        senders.iter().map(sent).sum()
    }
}

impl Member {
    /// A new sample; of a dead lcore, what can still be read.
    fn take(&mut self, sample: Option<Sample>, clock: Clock) {
        if let Some(sample) = sample {
            self.last = sample;
        } else {
            self.last.at = clock.now();
        }
    }
}

fn list(ports: &[u16]) -> String {
    let list: linerate_core::env::CpuList = ports.iter().map(|&port| port.into()).collect();
    list.to_string()
}

fn nothing_to_send(problem: &str) -> Error {
    Error::Usage {
        problem: problem.into(),
        fix: "add a stream: `--stream \"port=0 size=64 rate=1Mpps\"`".into(),
    }
}
