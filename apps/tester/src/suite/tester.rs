//! The generator around a device as a [`Tester`]: one trial at a time, counted exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_core::env::Clock;
use linerate_core::port::DropReason;

use super::stand::{Blueprint, Floor, Stand};
use crate::device::{Involved, StartReadings, Stolen};
use crate::method::{Connected, Load, Opened, Outcome, Recovered, Tester, together};
use crate::report::{ProfiledLcore, Trial};
use linerate_appliance::error::Error;
use linerate_pktgen::Snapshot;
use linerate_traffic::figures::{Latency, Tally};

/// Polling interval of a running trial.
const LOOK: Duration = Duration::from_millis(5);
/// The same for the check of its ports.
const LOOK_PORTS: Duration = Duration::from_millis(250);
/// The same while a device recovers.
const LOOK_RECOVERY: Duration = Duration::from_millis(1);
/// Frames that have not come after this long without any are lost. A forwarder whose CPU others
/// have, too, may wait its turn for a tenth of a second.
const QUIET: Duration = Duration::from_millis(400);
/// How long residual frames are waited for at most: the wait of RFC 2544 section 23.
const RESIDUAL: Duration = Duration::from_secs(2);
/// Warm-up before the first trial on a new stand, not counted: fills caches, tables and bridges.
const WARM: Duration = Duration::from_millis(100);
/// Timeout for a gateway's MAC address, and for each answer.
const ANSWER: Duration = Duration::from_secs(3);
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Frames that each port sends to make itself known to the device.
const LEARNING_FRAMES: u64 = 16;

/// A device that is built at its first use, and again when another one was built meanwhile.
pub(super) struct SessionTester {
    number: usize,
    blueprint: Blueprint,
    floor: Floor,
    stop: Arc<AtomicBool>,
}

impl SessionTester {
    /// The `number`-th on a `floor` that all share. `stop` is set when the user interrupts.
    pub(super) fn new(
        number: usize,
        blueprint: Blueprint,
        floor: &Floor,
        stop: &Arc<AtomicBool>,
    ) -> Self {
        Self {
            number,
            blueprint,
            floor: floor.clone(),
            stop: stop.clone(),
        }
    }

    /// Runs `work` with the stand, which is built if necessary.
    pub(super) fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Running<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut floor = self.floor.borrow_mut();
        let mut is_new = false;
        if floor.as_ref().is_none_or(|(who, _)| *who != self.number) {
            // The other stand is dropped before this one is built.
            *floor = None;
            *floor = Some((self.number, self.blueprint.build()?));
            is_new = true;
        }
        let (_, stand) = floor.as_mut().expect("it was built just now");
        stand.setup.enter(&self.blueprint.home)?;
        let mut running = Running {
            senders: self.blueprint.senders(stand.setup.sides.len()),
            stand,
            blueprint: &self.blueprint,
            stop: &self.stop,
        };
        if is_new {
            running.resolve()?;
            running.learn()?;
            let load = running.at_most_line(Load {
                frame_bytes: running.stand.least_bytes,
                pps: Some(100_000.0),
                duration: WARM,
                ..Load::default()
            });
            running.offer(&load)?;
        }
        work(&mut running)
    }
}

impl Tester for SessionTester {
    fn trial(&mut self, load: &Load) -> Result<Outcome, Error> {
        self.with(|running| {
            if !load.waits.learning.is_zero() {
                running.learn()?;
                running.pause(load.waits.learning)?;
            }
            let (outcome, _) = running.offer(load)?;
            running.pause(load.waits.settle)?;
            Ok(outcome)
        })
    }

    fn line_pps(&self, frame_bytes: usize) -> Option<f64> {
        let senders = match self.blueprint.asked.ports.len() {
            0 => self.blueprint.senders(2),
            named => self.blueprint.senders(named),
        };
        self.blueprint.line_pps(frame_bytes, senders.len())
    }

    fn recovery(&mut self, over: &Load, then: &Load) -> Result<Option<Recovered>, Error> {
        self.with(|running| running.recovery(over, then).map(Some))
    }

    fn profile(&mut self, load: &Load) -> Result<Option<(Vec<ProfiledLcore>, Trial)>, Error> {
        self.with(|running| running.profile(load))
    }

    fn connect(&mut self, opened: &Opened) -> Result<Option<Connected>, Error> {
        self.with(|running| running.connect(opened))
    }
}

/// A stand in use.
pub(super) struct Running<'a> {
    pub(super) stand: &'a mut Stand,
    blueprint: &'a Blueprint,
    senders: Vec<u16>,
    stop: &'a AtomicBool,
}

impl Running<'_> {
    fn clock(&self) -> Clock {
        self.blueprint.clock
    }

    /// Waits, unless the user interrupts.
    fn pause(&self, time: Duration) -> Result<(), Error> {
        let end = Instant::now() + time;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    /// Returns an error if the run cannot continue.
    fn look(&mut self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        self.stand.setup.under_test.check()
    }

    /// Checks that all ports work. A trial in which one fails is invalid, and ends the run.
    fn check_ports(&mut self) -> Result<(), Error> {
        match gone(&self.stand.session.snapshot()) {
            None => Ok(()),
            Some(port) => Err(Error::Usage {
                problem: port,
                fix: "bring the interface back and run it again; what was measured before is in \
                    the report"
                    .into(),
            }),
        }
    }

    /// Resolves the MAC address of each port's gateway, and sends the port's frames there (RFC 826,
    /// RFC 4861).
    fn resolve(&mut self) -> Result<(), Error> {
        for number in 0..self.stand.setup.sides.len() {
            let side = &self.stand.setup.sides[number];
            let gateway = side.named.as_ref().and_then(|named| named.gateway);
            let (None, Some(gateway)) = (side.dst_mac, gateway) else {
                continue;
            };
            let (port, spec) = (number as u16, side.spec.clone());
            let end = Instant::now() + ANSWER;
            let mac = loop {
                self.stand.session.arp(port, Some(gateway))?;
                let again = Instant::now() + ASK_AGAIN;
                let mut heard = None;
                while heard.is_none() && Instant::now() < again {
                    self.pause(LOOK)?;
                    heard = self.stand.session.neighbour(port, gateway);
                }
                if let Some(mac) = heard {
                    break mac;
                }
                if Instant::now() > end {
                    return Err(Error::Usage {
                        problem: format!("port {spec}: no host on its link answers for {gateway}"),
                        fix: "give the device that address there, and bring its interface up; or \
                              say where to send with --dst-mac"
                            .into(),
                    });
                }
            };
            let dst = mac.to_string();
            self.stand.session.set_stream(port, "dst_mac", &dst)?;
            let path = &mut self.stand.setup.path;
            path.push((
                format!("gateway of port {number}"),
                format!("{gateway} at {mac}"),
            ));
        }
        Ok(())
    }

    /// The load, limited to the line rate.
    pub(super) fn at_most_line(&self, load: Load) -> Load {
        let line = self
            .blueprint
            .line_pps(load.frame_bytes, self.senders.len());
        Load {
            pps: load.pps.map(|pps| line.map_or(pps, |line| pps.min(line))),
            ..load
        }
    }

    /// A few frames from every port, so that the device learns all addresses (RFC 2544 section 23).
    fn learn(&mut self) -> Result<(), Error> {
        let all: Vec<u16> = (0..self.stand.setup.sides.len() as u16).collect();
        let load = Load {
            frame_bytes: self.stand.least_bytes,
            pps: Some(10_000.0),
            duration: Duration::from_secs(1),
            count: Some(LEARNING_FRAMES * all.len() as u64),
            ..Load::default()
        };
        let senders = std::mem::replace(&mut self.senders, all);
        let load = self.at_most_line(load);
        let learnt = self.offer(&load);
        self.senders = senders;
        learnt.map(drop)
    }

    /// Gives each sender its part of the load.
    fn set(&mut self, load: &Load) -> Result<(), Error> {
        let directions = self.senders.len().max(1) as f64;
        let rate = match load.pps {
            Some(pps) => format!("{}pps", pps / directions),
            None => "max".into(),
        };
        let count = load
            .count
            .map_or(0, |count| count.div_ceil(directions as u64));
        self.stand.size(load.frame_bytes)?;
        for &port in &self.senders {
            let session = &mut self.stand.session;
            session.set_port(port, "rate", &rate)?;
            session.set_port(port, "count", &count.to_string())?;
        }
        Ok(())
    }

    /// One trial: begins at one tick everywhere, waits for the last frame, counts.
    pub(super) fn offer(&mut self, load: &Load) -> Result<(Outcome, Snapshot), Error> {
        self.look()?;
        self.check_ports()?;
        self.set(load)?;
        self.stand.session.clear();
        let watch = self.watch();
        let busy = self.stand.setup.under_test.busy_ticks();
        let senders = self.senders.clone();
        self.stand.session.start(&senders, Some(load.duration))?;
        self.wait(load)?;
        self.stand.session.stop(&senders);
        let last = self.drain(load)?;
        let busy = self
            .stand
            .setup
            .under_test
            .busy_ticks()
            .zip(busy)
            .map(|(now, before)| now - before);
        let stolen = self.stolen(&watch, &last, 0);
        let outcome = self.outcome(load, &last, stolen, busy);
        Ok((outcome, last))
    }

    /// One trial from that port alone.
    pub(super) fn offer_from(&mut self, port: u16, load: &Load) -> Result<Outcome, Error> {
        let senders = std::mem::replace(&mut self.senders, vec![port]);
        let offered = self.offer(load);
        self.senders = senders;
        offered.map(|(outcome, _)| outcome)
    }

    /// One trial while the device's stages are measured.
    fn profile(&mut self, load: &Load) -> Result<Option<(Vec<ProfiledLcore>, Trial)>, Error> {
        // Flows begin before.
        self.offer(&Load {
            duration: load.duration / 4,
            ..*load
        })?;
        self.stand.setup.under_test.measure()?;
        let before = self.stand.setup.under_test.measured()?;
        if before.is_empty() {
            return Ok(None);
        }
        let (outcome, _) = self.offer(load)?;
        let after = self.stand.setup.under_test.measured()?;
        let lcores = after.iter().zip(&before);
        let lcores = lcores.map(|(now, then)| now.since(then)).collect();
        Ok(Some((lcores, outcome.trial)))
    }

    /// Waits until all is sent, or a port fails. Bursts end by their count, other trials by their
    /// duration, even if lcores are late.
    fn wait(&mut self, load: &Load) -> Result<(), Error> {
        let began = Instant::now();
        let patience = began + load.duration + RESIDUAL;
        let sure = match load.count {
            Some(_) => began,
            None => began + load.duration.saturating_sub(LOOK),
        };
        loop {
            let left = sure.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.pause(left.min(LOOK_PORTS))?;
            if left > LOOK_PORTS && gone(&self.stand.session.snapshot()).is_some() {
                return Ok(());
            }
        }
        while self.stand.session.is_sending() && Instant::now() < patience {
            self.look()?;
            std::thread::sleep(LOOK.min(load.duration));
        }
        Ok(())
    }

    fn watch(&mut self) -> StartReadings {
        let snapshot = self.stand.session.snapshot();
        let setup = &self.stand.setup;
        let mut lcores = setup.under_test.lcores();
        lcores.extend(snapshot.lcores.into_iter().map(|lcore| lcore.name));
        let involved = Involved {
            lcores,
            others: self.stand.others.clone(),
        };
        // Lcores that share a CPU take it from each other in every round.
        let by_books = setup.is_in_kernel() || setup.cpus.shared();
        StartReadings::begin(involved, setup.under_test.gaps(), by_books)
    }

    /// CPU time that other threads took since the watch began; `own` are the generator's gaps
    /// before it.
    fn stolen(&self, watch: &StartReadings, last: &Snapshot, own: u64) -> Stolen {
        let sum = generator_gaps(last).saturating_sub(own);
        let longest = last.lcores.iter().map(|lcore| lcore.longest_gap_ns).max();
        let gaps = self.stand.setup.under_test.gaps();
        watch.end(&gaps, (sum, longest.unwrap_or(0)), self.clock())
    }

    /// Waits for residual frames: as long as asked, or as long as some still come.
    fn drain(&mut self, load: &Load) -> Result<Snapshot, Error> {
        if !load.waits.residual.is_zero() {
            self.pause(load.waits.residual)?;
            return Ok(self.stand.session.snapshot());
        }
        let end = Instant::now() + RESIDUAL;
        let (mut received, mut since) = (0, Instant::now());
        loop {
            let snapshot = self.stand.session.snapshot();
            let tally = sum(&snapshot);
            if tally.received != received {
                (received, since) = (tally.received, Instant::now());
            }
            let all = tally.received - tally.duplicates >= tally.sent;
            if all || since.elapsed() > QUIET || Instant::now() > end {
                return Ok(snapshot);
            }
            self.look()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn outcome(
        &self,
        load: &Load,
        last: &Snapshot,
        stolen: Stolen,
        device_busy_ticks: Option<u64>,
    ) -> Outcome {
        let tally = sum(last);
        let unsent: u64 = last.streams.iter().map(|stream| stream.unsent).sum();
        let intended = tally.sent + unsent;
        let lost = intended.saturating_sub(tally.received - tally.duplicates);
        let seconds = load.duration.as_secs_f64();
        let asked_pps = load.pps.unwrap_or(intended as f64 / seconds);
        let spoilt = self.stand.session.invalid().first().cloned();
        let invalid = match spoilt.or_else(|| gone(last)) {
            Some(reason) => Some(reason),
            None => stolen.explains(lost, asked_pps),
        };
        Outcome {
            trial: Trial {
                asked_pps,
                intended,
                sent: tally.sent,
                received: tally.received,
                lost,
                unsent,
                missed: missed(last),
                reordered: tally.reordered,
                duplicates: tally.duplicates,
                seconds,
                stolen_ns: stolen.sum_ns,
                longest_stolen_ns: stolen.longest_ns,
                invalid,
            },
            latency: last.ports.iter().fold(Latency::default(), |all, port| {
                together(&all, &port.latency)
            }),
            received_by_port: last.ports.iter().map(|port| port.tally.received).collect(),
            device_busy_ticks,
        }
    }

    /// Offers an overload, then less at once, and measures when the last frame was lost. The
    /// counters are polled; a new gap in the received sequence numbers means that frames were still
    /// lost. Refused frames leave no gap, and so show no recovery.
    fn recovery(&mut self, over: &Load, then: &Load) -> Result<Recovered, Error> {
        self.look()?;
        self.set(over)?;
        self.stand.session.clear();
        let senders = self.senders.clone();
        let whole = over.duration + then.duration;
        self.stand.session.start(&senders, Some(whole))?;
        self.pause(over.duration)?;
        let at_drop = self.stand.session.snapshot();
        // Other load does not matter during the overload, but does for the time of its end.
        let watch = self.watch();
        let own = generator_gaps(&at_drop);
        self.set(then)?;
        let dropped = Instant::now();
        let (mut lost, mut last_loss) = (sum(&at_drop).lost, Duration::ZERO);
        let (mut looked, mut resolution) = (dropped, Duration::ZERO);
        while dropped.elapsed() < then.duration {
            self.look()?;
            let now = sum(&self.stand.session.snapshot()).lost;
            resolution = resolution.max(looked.elapsed());
            looked = Instant::now();
            if now > lost {
                (lost, last_loss) = (now, dropped.elapsed());
            }
            std::thread::sleep(LOOK_RECOVERY);
        }
        self.stand.session.stop(&senders);
        let last = self.drain(then)?;
        let stolen = self.stolen(&watch, &last, own);
        let before = self.outcome(over, &at_drop, Stolen::default(), None).trial;
        let all = self.outcome(then, &last, stolen, None).trial;
        // Frames under way at the drop came after it; they count for the overload.
        let under_way = before
            .sent
            .saturating_sub(before.received + sum(&at_drop).lost);
        let over = Trial {
            received: before.received + under_way,
            lost: before.lost.saturating_sub(under_way),
            ..before
        };
        let mut then = Trial {
            intended: all.intended.saturating_sub(over.intended),
            sent: all.sent.saturating_sub(over.sent),
            received: all.received.saturating_sub(over.received),
            lost: all.lost.saturating_sub(over.lost),
            unsent: all.unsent.saturating_sub(over.unsent),
            missed: all.missed.saturating_sub(over.missed),
            reordered: all.reordered.saturating_sub(over.reordered),
            duplicates: all.duplicates.saturating_sub(over.duplicates),
            ..all
        };
        // Judged by its own losses, since those of the overload are larger than stolen time
        // explains.
        if then.invalid.is_none() {
            then.invalid = stolen.explains(then.lost, then.asked_pps);
        }
        Ok(Recovered {
            over,
            then,
            // A recovery shorter than the polling interval counts as that interval.
            recovery_ns: (sum(&at_drop).lost > 0)
                .then(|| last_loss.max(resolution).as_nanos() as f64),
            resolution_ns: resolution.as_nanos() as f64,
        })
    }
}

/// Nanoseconds that the generator's lcores did not have their CPUs.
fn generator_gaps(snapshot: &Snapshot) -> u64 {
    snapshot.lcores.iter().map(|lcore| lcore.gaps_ns).sum()
}

/// Frames that came to the generator's ports and were not received.
fn missed(snapshot: &Snapshot) -> u64 {
    let ours = [DropReason::Missed, DropReason::NoBuffer];
    let ours = ours.map(|reason| DropReason::ALL[reason as usize].1);
    let drops = snapshot.ports.iter().flat_map(|port| &port.rx_drops);
    drops
        .filter(|(reason, _)| ours.contains(&reason.as_str()))
        .map(|(_, count)| count)
        .sum()
}

/// The failed port and the reason, if there is one.
fn gone(snapshot: &Snapshot) -> Option<String> {
    let port = snapshot.ports.iter().find(|port| !port.link_up)?;
    Some(format!(
        "port {} of the generator is gone: {}",
        port.name, port.link_reason
    ))
}

/// The tally over all test frames.
fn sum(snapshot: &Snapshot) -> Tally {
    let mut sum = Tally::default();
    for tally in snapshot.streams.iter().map(|stream| &stream.tally) {
        sum.sent += tally.sent;
        sum.received += tally.received;
        sum.lost += tally.lost;
        sum.reordered += tally.reordered;
        sum.duplicates += tally.duplicates;
    }
    sum
}
