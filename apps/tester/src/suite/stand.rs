//! A device with the generator around it. Of several that are measured in turns, one exists at a
//! time, so that none takes another's CPUs; each is rebuilt for its turn.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use linerate_core::env::Clock;

use crate::device::{Asked, Cpus, Setup, Side, softirq_threads};
use linerate_appliance::error::Error;
use linerate_appliance::netns::Space;
use linerate_pktgen::session::{PortAsked, Session, SessionConfig};
use linerate_traffic::signature::SIGNATURE_BYTES;
use linerate_traffic::stream::StreamSpec;
use linerate_traffic::units::{LEAST_FRAME, line_rate_pps};

/// How late a frame may be sent. A generator whose CPU was taken catches up, which is harder for
/// the device than an even load; at the end of a trial nothing may be left.
const GIVE_UP: Duration = Duration::from_millis(100);

/// Ethernet, IPv6 and UDP, a signature and the FCS.
const LEAST_FRAME_V6: usize = 14 + 40 + 8 + SIGNATURE_BYTES + 4;

/// A device and the generator.
pub(super) struct Stand {
    pub(super) session: Session,
    frame_bytes: usize,
    /// Least frame size, FCS included.
    pub(super) least_bytes: usize,
    /// Processes and threads of the kernel that do the device's work.
    pub(super) others: Vec<u32>,
    // Dropped after the session, whose ports must end before the device.
    pub(super) setup: Setup,
}

impl Stand {
    /// Frames of this size from now on.
    pub(super) fn size(&mut self, frame_bytes: usize) -> Result<(), Error> {
        if self.frame_bytes != frame_bytes {
            for stream in 0..self.setup.sides.len() as u16 {
                self.session
                    .set_stream(stream, "size", &frame_bytes.to_string())?;
            }
            self.frame_bytes = frame_bytes;
        }
        Ok(())
    }
}

/// The parts that a stand is built from.
#[derive(Clone, Debug)]
pub(super) struct Blueprint {
    pub(super) asked: Asked,
    pub(super) cpus: Cpus,
    pub(super) clock: Clock,
    pub(super) directions: u32,
    pub(super) seed: u64,
    /// The name space that the process was started in.
    pub(super) home: Arc<Space>,
}

impl Blueprint {
    /// Ports that send: all, or the first of each pair.
    pub(super) fn senders(&self, ports: usize) -> Vec<u16> {
        let step = if self.directions == 1 { 2 } else { 1 };
        (0..ports as u16).step_by(step).collect()
    }

    /// Line rate of so many ports together; `None` without one.
    pub(super) fn line_pps(&self, frame_bytes: usize, senders: usize) -> Option<f64> {
        let link = self.asked.speed_bps?;
        Some(line_rate_pps(link, frame_bytes as f64) * senders as f64)
    }

    /// Builds it. The calling thread moves to where the generator's interfaces are.
    pub(super) fn build(&self) -> Result<Stand, Error> {
        self.home.enter()?;
        let mut setup = Setup::make(&self.asked, self.cpus.clone(), self.clock)?;
        setup.enter(&self.home)?;
        let least_bytes = match setup.sides.first().and_then(|side| side.addr(None)) {
            Some(addr) if addr.ip.is_ipv6() => LEAST_FRAME_V6,
            _ => LEAST_FRAME,
        };
        let session = self.open(&mut setup, least_bytes)?;
        setup.under_test.settle()?;
        let mut others = setup.under_test.processes();
        if setup.is_in_kernel() {
            let cpus = [&setup.cpus.generator[..], &setup.cpus.device[..]].concat();
            others.extend(softirq_threads(&cpus));
        }
        Ok(Stand {
            session,
            frame_bytes: least_bytes,
            least_bytes,
            others,
            setup,
        })
    }

    /// Opens the generator around a device: stream n is port n's.
    fn open(&self, setup: &mut Setup, frame_bytes: usize) -> Result<Session, Error> {
        let port = |side: &Side| {
            let named = side.named.as_ref().map(|named| named.asked.clone());
            let asked = named.unwrap_or_default();
            PortAsked {
                spec: side.spec.clone(),
                speed_bps: self.asked.speed_bps,
                give_up: asked.give_up.or(Some(GIVE_UP)),
                ..asked
            }
        };
        let streams: Result<Vec<StreamSpec>, Error> = (0..setup.sides.len())
            .map(|port| self.stream(setup, port, frame_bytes))
            .collect();
        let config = SessionConfig {
            profile: "bench".into(),
            ports: setup.sides.iter().map(port).collect(),
            streams: streams?,
            cpus: setup.cpus.generator.clone(),
            seed: self.seed,
            pool_slots: self
                .asked
                .wire
                .slots(self.directions)
                .filter(|_| self.asked.ports.is_empty()),
            ..SessionConfig::default()
        };
        Session::open(config, &mut setup.drivers, self.clock)
    }

    /// The stream of a port; rate and count are the port's.
    fn stream(&self, setup: &Setup, port: usize, frame_bytes: usize) -> Result<StreamSpec, Error> {
        // RFC 2544 C.2.2: the networks behind the ports of a pair.
        let (here, there) = match port % 2 {
            0 => (18, 19),
            _ => (19, 18),
        };
        let own = setup.sides[port].addr(None).map(|addr| addr.ip);
        // The other port answers ARP for its own address.
        let other = setup.sides.get(port ^ 1);
        let other = own
            .and_then(|own| other?.addr(Some(own)))
            .map(|addr| addr.ip);
        let dst = match (self.asked.nets, other) {
            (1, Some(other)) => other.to_string(),
            (1, None) => format!("198.{there}.0.1"),
            (nets, _) => format!("random:198.{there}.0.1-198.{there}.{}.254", nets - 1),
        };
        let src = own.map_or(format!("198.{here}.0.1"), |own| own.to_string());
        let mut keys = vec![
            ("port", port.to_string()),
            ("name", format!("port {port}")),
            ("size", frame_bytes.to_string()),
            ("src", src),
            ("dst", dst),
        ];
        if let Some(mac) = setup.sides[port].dst_mac {
            keys.push(("dst_mac", mac.to_string()));
        }
        let mut stream = StreamSpec::default();
        for (key, value) in keys {
            stream.set(key, &value).map_err(|error| Error::Usage {
                problem: error.problem,
                fix: error.fix,
            })?;
        }
        Ok(stream)
    }
}

/// The current stand, and the number of its tester.
pub(super) type Floor = Rc<RefCell<Option<(usize, Stand)>>>;
