//! A session: opened ports, lcores at work, control of both, and snapshots.

use std::sync::Arc;
use std::time::Duration;

use linerate_core::env::{Clock, Lcore, LcoreHandle};
use linerate_core::packet::{Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Link, Port, PortConfig};
use linerate_drivers::Drivers;
use linerate_wire::ethernet::MacAddr;

use super::engine::{
    Books, Boundaries, Engine, EngineHandle, Lane, Receiver, ReceiverStats, Sender, SenderStats,
    StreamSent,
};
use super::snapshot::{LcoreView, PortView, Snapshot, StreamView, Tally, VERSION};
use super::stream::StreamSpec;
use crate::error::Error;

/// A port as the user asks for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortAsked {
    pub(crate) name: Option<String>,
    pub(crate) spec: String,
    /// What percentages are of, in bit/s.
    pub(crate) speed_bps: Option<f64>,
}

/// What a session is opened with.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionConfig {
    pub(crate) profile: String,
    pub(crate) ports: Vec<PortAsked>,
    pub(crate) streams: Vec<StreamSpec>,
    /// Pktgen's `-m`; where absent, lcores are mapped automatically.
    pub(crate) map: Option<String>,
    /// CPUs for lcores; where empty, those of the plan.
    pub(crate) cpus: Vec<u32>,
    pub(crate) seed: u64,
}

struct OpenPort {
    name: String,
    port: Box<dyn Port>,
    received: Vec<Arc<ReceiverStats>>,
    sent: Vec<Arc<SenderStats>>,
}

struct OpenStream {
    spec: StreamSpec,
    port: u16,
    sent: Arc<StreamSent>,
}

/// Opened ports and lcores at work. Dropping it ends both.
pub(crate) struct Session {
    clock: Clock,
    config: SessionConfig,
    ports: Vec<OpenPort>,
    streams: Vec<OpenStream>,
    lcores: Vec<(EngineHandle, Option<LcoreHandle<Engine>>)>,
    began: u64,
}

impl Session {
    /// Opens and starts ports through `drivers` (so that a device under test in this process can own the
    /// other ends of rings) and starts lcores. Nothing is sent yet.
    pub(crate) fn open(
        config: SessionConfig,
        drivers: &mut Drivers,
        clock: Clock,
    ) -> Result<Self, Error> {
        let pool = Pool::new(&PoolConfig::new("pktgen", 16384))?;
        let pools = Pools::new(vec![pool.clone()]);
        let (mut engine, handle) = Engine::new(PoolCache::new(pools.as_slice()), clock);
        let mut ports = Vec::new();
        let mut streams = Vec::new();
        let boundaries = Arc::new(Boundaries::new(config.streams.len()));
        for (index, asked) in (0u16..).zip(&config.ports) {
            let mut port = drivers.open(&asked.spec)?;
            let mut queues = port.start(
                &PortConfig {
                    index,
                    ..PortConfig::default()
                },
                &pools,
            )?;
            let receiver = Receiver::new(
                queues.rx.remove(0),
                Books::new(boundaries.clone(), Default::default()),
                clock,
            );
            let mut sender = Sender::new(queues.tx.remove(0), pool.clone(), clock.hz());
            let mac = port.info().mac.unwrap_or(MacAddr::local(index as u8));
            for (id, spec) in (0u16..).zip(&config.streams) {
                let on: u16 = spec
                    .port
                    .as_deref()
                    .and_then(|port| port.parse().ok())
                    .unwrap_or(0);
                if on != index {
                    continue;
                }
                let wrong = |error: super::stream::StreamError| Error::Usage {
                    problem: error.problem,
                    fix: error.fix,
                };
                let stream = spec
                    .compile(id, mac, MacAddr::local(0xff), config.seed)
                    .map_err(wrong)?;
                let pps = spec
                    .rate
                    .map(|rate| rate.pps(stream.mean_frame_bytes(), asked.speed_bps));
                let pps = pps.transpose().map_err(|problem| Error::Usage {
                    problem,
                    fix: "".into(),
                })?;
                let sent = Arc::<StreamSent>::default();
                let count = spec.count.filter(|&count| count > 0);
                sender
                    .lanes
                    .push(Lane::new(stream, pps.flatten(), count, sent.clone()));
                streams.push(OpenStream {
                    spec: spec.clone(),
                    port: index,
                    sent,
                });
            }
            ports.push(OpenPort {
                name: asked.name.clone().unwrap_or_else(|| asked.spec.clone()),
                port,
                received: vec![receiver.books.stats.clone()],
                sent: vec![sender.stats.clone()],
            });
            engine.senders.push(sender);
            engine.receivers.push(receiver);
        }
        let cpu = config.cpus.first().copied();
        let lcore = Lcore::spawn("pktgen", cpu, move || engine.run())?;
        let began = clock.now();
        Ok(Self {
            clock,
            config,
            ports,
            streams,
            lcores: vec![(handle, Some(lcore))],
            began,
        })
    }

    /// Begins to send on `ports`, all at the same tick; for `duration`, or until stopped.
    pub(crate) fn start(&mut self, ports: &[u16], duration: Option<Duration>) -> Result<(), Error> {
        let _ = ports;
        let at = self.clock.now() + self.clock.ticks(1_000_000);
        let until = duration.map_or(u64::MAX, |time| {
            at + self.clock.ticks(time.as_nanos() as u64)
        });
        for (handle, _) in &self.lcores {
            handle.call(move |engine| {
                engine
                    .senders
                    .iter_mut()
                    .for_each(|sender| sender.start(at, until))
            });
        }
        Ok(())
    }

    /// Ends sending on `ports`.
    pub(crate) fn stop(&mut self, ports: &[u16]) {
        let _ = ports;
        for (handle, _) in &self.lcores {
            handle.call(|engine| engine.senders.iter_mut().for_each(Sender::stop));
        }
    }

    /// Whether any port still has something to send.
    pub(crate) fn is_sending(&self) -> bool {
        self.ports
            .iter()
            .flat_map(|port| &port.sent)
            .any(|sent| sent.done.read() == 0)
    }

    /// All counts, at one moment.
    pub(crate) fn snapshot(&mut self) -> Snapshot {
        let ports = (0..).zip(&self.ports).map(|(number, open)| PortView {
            number,
            name: open.name.clone(),
            kind: open.port.info().kind.into(),
            link_up: open.port.link() == Link::Up,
            rx: super::snapshot::Traffic {
                packets: open.received.iter().map(|stats| stats.packets.read()).sum(),
                ..Default::default()
            },
            ..PortView::default()
        });
        let streams = (0..).zip(&self.streams).map(|(id, open)| StreamView {
            id,
            port: open.port,
            line: open.spec.to_string(),
            tally: Tally {
                sent: open.sent.packets.read(),
                ..Tally::default()
            },
            ..StreamView::default()
        });
        Snapshot {
            version: VERSION,
            profile: self.config.profile.clone(),
            since_clear_ns: self.clock.ns(self.clock.now() - self.began),
            clock: self.clock.source().to_string(),
            ports: ports.collect(),
            streams: streams.collect(),
            lcores: self.lcores.iter().map(|_| LcoreView::default()).collect(),
            ..Snapshot::default()
        }
    }

    /// Ends sending, drains, joins the lcores and stops the ports. Returns the last counts, and what went wrong.
    pub(crate) fn close(mut self) -> (Snapshot, Vec<Error>) {
        let all: Vec<u16> = (0..self.ports.len() as u16).collect();
        self.stop(&all);
        std::thread::sleep(Duration::from_millis(50));
        let last = self.snapshot();
        (last, self.end())
    }

    fn end(&mut self) -> Vec<Error> {
        let mut errors = Vec::new();
        for (handle, lcore) in &mut self.lcores {
            handle.call(Engine::stop);
            errors.extend(
                lcore
                    .take()
                    .and_then(|lcore| lcore.join().err())
                    .map(Error::from),
            );
        }
        for open in &mut self.ports {
            errors.extend(open.port.stop().err().map(Error::from));
        }
        self.ports.clear();
        errors
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
