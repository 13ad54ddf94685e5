//! Steering as the stage of an lcore, around the host that has the connections.

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{Egress, NEVER, Stage};
use linerate_wire::FlowKey;

use super::plan::Member;
use super::{Setup, Steering};

/// Who has the connections of an lcore: its TCP stack and sockets. Keys are as packets from the
/// network have them.
pub trait Host: Send {
    /// Takes packets of its connections, all of them; they leave by [`Steering::send`]. The port of
    /// one that another lcore has received is in the packet; of the others it is the burst's.
    fn receive(&mut self, burst: &mut Burst, steering: &mut Steering, out: &mut Egress);

    /// Whether a connection is here, which an entry was made for long ago: by which port its
    /// packets come, and how often it has moved.
    fn has(&mut self, key: &FlowKey) -> Option<(u16, u16)>;

    /// The home of a connection has no room for its entry, or another one with its 4-tuple: one
    /// that begins cannot; packets of one that has moved come by its former owner.
    fn refused(&mut self, key: &FlowKey, out: &mut Egress);

    /// Takes what the host of another lcore has sent by [`Steering::send_parcel`].
    fn parcel(
        &mut self,
        from: Member,
        kind: u16,
        packet: Packet,
        steering: &mut Steering,
        out: &mut Egress,
    );

    /// Comes before each burst from a ring: what other hosts have sent by ways of their own, and
    /// what packets in the burst may be about.
    #[inline]
    fn arrivals(&mut self, now_ns: u64, steering: &mut Steering, out: &mut Egress) {
        let _ = (now_ns, steering, out);
    }

    /// Handles timers at `now_ns`; returns when to come again, in nanoseconds, [`u64::MAX`] if
    /// packets alone give it work.
    fn turn(&mut self, now_ns: u64, steering: &mut Steering, out: &mut Egress) -> u64 {
        let _ = (now_ns, steering, out);
        u64::MAX
    }

    /// Slots that it keeps between two bursts.
    fn held(&self) -> u64 {
        0
    }

    /// The packets that came in them and are not done with.
    fn held_packets(&self) -> u64 {
        self.held()
    }
}

/// The host of an lcore that has no connections: a distributor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Host for Nobody {
    fn receive(&mut self, burst: &mut Burst, steering: &mut Steering, out: &mut Egress) {
        out.drop_burst(steering.no_owner, burst);
    }

    fn has(&mut self, _: &FlowKey) -> Option<(u16, u16)> {
        None
    }

    fn refused(&mut self, _: &FlowKey, _: &mut Egress) {}

    fn parcel(
        &mut self,
        _: Member,
        _: u16,
        packet: Packet,
        steering: &mut Steering,
        out: &mut Egress,
    ) {
        out.drop_one(steering.no_owner, packet);
    }
}

/// An lcore: steering, and its host.
pub struct Steered<H> {
    steering: Steering,
    host: H,
    /// Bursts whose port is below this are from ports, the others from rings.
    ports: u16,
}

impl<H: Host> Steered<H> {
    /// The stage of the lcore that `setup` names, whose ports have numbers below `ports`.
    ///
    /// # Errors
    /// As [`Steering::new`].
    pub fn new(
        setup: &Setup,
        ports: u16,
        host: H,
        egress: &mut Egress,
    ) -> Result<Self, super::Error> {
        Ok(Self {
            steering: Steering::new(setup, egress)?,
            host,
            ports,
        })
    }

    /// Its steering.
    pub fn steering(&mut self) -> &mut Steering {
        &mut self.steering
    }

    /// Its host.
    pub fn host(&mut self) -> &mut H {
        &mut self.host
    }

    /// Both, for a host that does something on its own.
    pub fn both(&mut self) -> (&mut Steering, &mut H) {
        (&mut self.steering, &mut self.host)
    }
}

impl<H: Host> Stage for Steered<H> {
    fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
        let Self {
            steering,
            host,
            ports,
        } = self;
        if burst.port < *ports {
            steering.receive(burst, out);
            steering.follow(burst, out);
        } else {
            host.arrivals(steering.clock.ns(burst.now), steering, out);
            steering.take(burst, host, out);
        }
        if !burst.is_empty() {
            host.receive(burst, steering, out);
        }
    }

    fn turn(&mut self, now: u64, (): &mut (), out: &mut Egress) -> u64 {
        let clock = self.steering.clock;
        let now_ns = clock.ns(now);
        let next = self.steering.turn(now_ns, &mut self.host, out);
        let next = next.min(self.host.turn(now_ns, &mut self.steering, out));
        if self.steering.has_refused() {
            return now;
        }
        match next {
            u64::MAX => NEVER,
            // Rounded up: a turn before its time would be one for nothing.
            next => clock.ticks(next).saturating_add(1),
        }
    }

    fn held(&self) -> u64 {
        self.steering.held() + self.host.held()
    }

    fn held_packets(&self) -> u64 {
        self.steering.held() + self.host.held_packets()
    }
}
