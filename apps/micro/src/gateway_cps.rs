//! TCP connections through the gateway's fast worker on one core, each from its SYN to the last
//! acknowledgment: source NAT, 1000 routes, 1000 rules of which the last permits.
//!
//! The worker is between rings. Both ends of 64 connections are here: a segment that has left
//! becomes the answer to it, in its own slot, and goes back. Only the worker's time counts. A
//! connection that is over waits [`TIME_WAIT_S`], and then its flow ends in the worker's turn, so
//! that as many flows are known as connections begin in that time.

use std::net::Ipv4Addr;

use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig};
use linerate_core::ring::{Pop, Push, spsc};
use linerate_core::run::{Egress, Inlet, Stage, TxPath, Worker};
use linerate_gateway::path::GatewayPath;
use linerate_gateway::track::State;
use linerate_routing::plane::Fast;
use linerate_tables::lpm::Prefix4;
use linerate_tables::lpm::synth::{Pattern, destinations};
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::tcp::{
    self,
    flag::{ACK, FIN, SYN},
};
use linerate_wire::{FlowKey4, protocol};

use super::gateway::{INSIDE, RULES, firewall, gateway, routes, tables, translates};
use super::l3fwd::{Frame, frame};
use super::random::mixed;
use super::router::two_links;
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[Row {
    name: "gateway.cps",
    about: "TCP connections from SYN to the last ACK: 6 segments, NAT, 1000 rules",
    run: connections,
}];

/// Seconds for which the flow of a connection that is over stays.
const TIME_WAIT_S: u32 = 1;
/// Hosts inside.
const HOSTS: u64 = 50_000;
/// Remote addresses.
const REMOTE: usize = 1 << 16;
/// The addresses that sources are translated to.
const OUTSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 0), Ipv4Addr::new(198, 18, 0, 63)];
/// The first sequence numbers of client and server.
const FIRST: [u32; 2] = [1000, 9000];

/// The segments of a connection: from which port, flags, and how many sequence numbers client and
/// server have used before.
const SEGMENTS: [(u16, u8, [u32; 2]); 6] = [
    (0, SYN, [0, 0]),
    (1, SYN | ACK, [1, 0]),
    (0, ACK, [1, 1]),
    (0, FIN | ACK, [1, 1]),
    (1, FIN | ACK, [2, 1]),
    (0, ACK, [2, 2]),
];

/// The frame of a segment between these ends.
fn segment(key: &FlowKey4, (from, flags, used): (u16, u8, [u32; 2])) -> Frame {
    let numbers = [0, 1].map(|end| FIRST[end] + used[end]);
    let (seq, ack) = match from {
        0 => (numbers[0], numbers[1]),
        _ => (numbers[1], numbers[0]),
    };
    let ack = if flags & ACK == 0 { 0 } else { ack };
    let mut frame = frame(key);
    let mut header = tcp::header(key.src_port(), key.dst_port(), seq, ack, flags);
    header[14..16].copy_from_slice(&64_000_u16.to_be_bytes());
    frame[HEADER_LEN + 2..HEADER_LEN + 4].copy_from_slice(&40_u16.to_be_bytes());
    frame[HEADER_LEN + 9] = protocol::TCP;
    if let Ok(mut ip) = linerate_wire::ipv4::Ipv4::new_checked(&mut frame[HEADER_LEN..]) {
        ip.fill_checksum();
    }
    frame[HEADER_LEN + 20..HEADER_LEN + 40].copy_from_slice(&header);
    frame
}

/// The ends of connection `number`, as the client knows them.
fn client(number: u64, remote: &[u32]) -> FlowKey4 {
    let host = INSIDE | (number % HOSTS) as u32;
    let port = 1024 + (number / HOSTS % 60_000) as u16;
    let remote = remote[(mixed(number) % remote.len() as u64) as usize];
    let (host, remote) = (host.to_be_bytes(), remote.to_be_bytes());
    FlowKey4::new(host, remote, port, 443, protocol::TCP)
}

/// The ends of who has this segment before him, as he sends.
fn answering(frame: &[u8]) -> Option<FlowKey4> {
    let headers = linerate_wire::parse(frame).ok()?;
    match headers.flow_key(frame)? {
        linerate_wire::FlowKey::V4(key) => Some(key.reversed()),
        linerate_wire::FlowKey::V6(_) => None,
    }
}

/// A worker between rings, by port.
struct Between {
    worker: Worker<Fast>,
    into: [spsc::Producer<Packet>; 2],
    out: [spsc::Consumer<Packet>; 2],
    clock: Clock,
    /// Ticks in which it has worked.
    ticks: u64,
}

impl Between {
    /// Sends packets in by a port; how many have left by the other, which are in `burst` then.
    fn passes(&mut self, port: u16, burst: &mut Burst) -> usize {
        self.into[usize::from(port)].push_burst(burst);
        let began = self.clock.now();
        let worker = &mut self.worker;
        worker.round();
        let now = self.clock.now();
        worker.stage.turn(now, &mut (), &mut worker.egress);
        self.ticks += self.clock.now().wrapping_sub(began);
        self.out[usize::from(1 - port)].pop_burst(burst, Burst::CAPACITY)
    }

    /// Opens and closes the connections from `number` on, one for each packet of the burst.
    /// Returns how many packets have not come through.
    fn connect(&mut self, number: u64, remote: &[u32], burst: &mut Burst) -> usize {
        let all = burst.len();
        let (mut lost, mut last) = (0, 0);
        for (nth, segment_of) in SEGMENTS.into_iter().enumerate() {
            let from = segment_of.0;
            for (number, packet) in (number..).zip(burst.iter_mut()) {
                let key = match nth {
                    0 => Some(client(number, remote)),
                    // Who answers has the segment before him; who goes on is its client.
                    _ if from != last => answering(packet.data()),
                    _ => Some(client(number, remote)),
                };
                let frame = key.map(|key| segment(&key, segment_of));
                let fits = packet.set_data(&frame.unwrap_or([0; 60]));
                assert!(fits, "a slot takes the shortest frame");
            }
            last = from;
            let left = self.passes(from, burst);
            lost += all - left;
        }
        lost
    }
}

fn connections(row: &'static str, run: Run) -> Result<Sample, Error> {
    let flows = if run.quick { 100_000 } else { 3 << 19 };
    let remote = routes();
    let addresses = destinations(&remote, Pattern::Zipf, REMOTE, 2);
    let written = tables(remote)?;
    let pool = Pool::new(&PoolConfig::new("bench", 4096))?;
    let pages = pool.page_kind();
    let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
    let clock = Clock::calibrate();
    let mut stanzas = firewall(flows, "tcp")?;
    stanzas.flows.timeouts.set(State::TimeWait, TIME_WAIT_S);
    let nat = &mut stanzas.nat;
    translates(nat, Prefix4::new(INSIDE, 8)?, (OUTSIDE[0], OUTSIDE[1]));
    nat.limits.mappings = nat.limits.mappings.max(flows as usize);
    let stage = gateway(written.setup(two_links(), clock), &stanzas, &mut egress)?;
    let made = Worker::new("bench", stage, egress, clock);
    let (mut worker, handle) = made.map_err(Error::from)?;
    let [(into_a, from_a), (into_b, from_b)] = [0, 1].map(|_| spsc::ring(256));
    let [(put_a, out_a), (put_b, out_b)] = [0, 1].map(|_| spsc::ring(256));
    for (port, inlet, outlet) in [(0, from_a, put_a), (1, from_b, put_b)] {
        worker.add_inlet(Inlet::ring(port, 0, inlet));
        let bell = handle.doorbell().clone();
        worker.set_outlet(port, Some(TxPath::Ring(outlet, bell)));
    }
    let mut between = Between {
        worker,
        into: [into_a, into_b],
        out: [out_a, out_b],
        clock,
        ticks: 0,
    };
    let (done, lost, ticks, known) = run.pinned(move |run| {
        let mut burst = Burst::new();
        let cache = &mut between.worker.egress.cache;
        cache.fill(&pool, &mut burst, Burst::CAPACITY);
        let (mut number, mut lost) = (0, 0);
        // As long as flows stay, so that as many end as begin; then the time that counts.
        let mut opens = |between: &mut Between, ns: u64| {
            let until = between.clock.now() + between.clock.ticks(ns);
            let before = number;
            while between.clock.now() < until && burst.len() == Burst::CAPACITY {
                lost += between.connect(number, &addresses, &mut burst);
                number += Burst::CAPACITY as u64;
            }
            number - before
        };
        let waits = 1_100_000_000 * u64::from(TIME_WAIT_S);
        opens(&mut between, if run.quick { 0 } else { waits });
        between.ticks = 0;
        let done = opens(&mut between, run.duration.as_nanos() as u64);
        let path = between.worker.stage.path::<GatewayPath>();
        let known = path.map_or(0, |path| path.flows().v4().len());
        (done, lost, between.ticks, known)
    })?;
    if done == 0 || lost > 0 {
        let text = format!("{lost} segments have not come through, of {done} connections");
        return Err(std::io::Error::other(text).into());
    }
    let cycles = ticks as f64 / done as f64;
    Ok(Sample::new(row, clock.hz() / 1e3 / cycles, "K/s", pages)
        .with("cycles", cycles)
        .with("flows", known)
        .with("rules", RULES))
}
