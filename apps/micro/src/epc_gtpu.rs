//! Users' packets through the gateways of an EPC as `linerate steer` has them: a worker with a
//! stack, an SGW and a PGW, each with a million sessions that GTP-C has made. Each packet is of a
//! user drawn from all, to one of 64 K hosts behind a router.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::Instant;

use linerate_appliance::error::Error;
use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig};
use linerate_core::ring::{Pop, Push, spsc};
use linerate_core::run::{Egress, Inlet, TxPath, Worker};
use linerate_epc::gtp::endpoint::EndpointConfig;
use linerate_epc::gtp::{Contents, put, put_f_teid};
use linerate_epc::pgw::{Pgw, PgwConfig};
use linerate_epc::sgw::{BufferConfig, Sgw, SgwConfig};
use linerate_epc::{Cores, Link, Node, Notice, Sink};
use linerate_stack::host::{InterfaceConfig, Route};
use linerate_stack::socket::{Stack, StackConfig};
use linerate_steer::app::{Apps, StackStage};
use linerate_steer::epc::{Epc, Sockets};
use linerate_wire::gtpc::ie::{self, BearerQos, FTeid, Imsi, cause, interface};
use linerate_wire::gtpc::{Gtpc, Writer, message};
use linerate_wire::{MacAddr, gtpc, gtpu, ipv4, protocol};

use super::random::{below, mixed};
use super::shared::Rounds;
use super::{Row, Run, Sample};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "epc.gtpu",
        about: "a user's packet of 64 bytes from S1-U to SGi, through SGW and PGW on one lcore, \
            1 M tunnels",
        run: |row, run| forward(row, run, Way::Up),
    },
    Row {
        name: "epc.gtpu.pgw",
        about: "the same from S5-U to SGi, through the PGW alone",
        run: |row, run| forward(row, run, Way::PgwUp),
    },
    Row {
        name: "epc.gtpu.down",
        about: "one the other way, from SGi to S1-U, through both",
        run: |row, run| forward(row, run, Way::Down),
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    PgwUp,
    Down,
}

const USERS: usize = 1_000_000;
/// Hosts that users talk to.
const HOSTS: u64 = 1 << 16;
const BURST: usize = Burst::CAPACITY;
/// Bytes of a user's packet, its header included.
const INNER: usize = 64;
const MME: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SGW: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PGW: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const STATION: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const SGI: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// RFC 2544: addresses for benchmarks.
const BEYOND: u32 = 0xc612_0000;
/// Ports, and what they are outlets of.
const ACCESS: u16 = 0;
const NETWORK: u16 = 1;
const NOW_NS: u64 = 1_000_000_000;

/// A user: both gateways' ends of the tunnels up, and the address.
#[derive(Clone, Copy)]
struct User {
    sgw: u32,
    pgw: u32,
    address: [u8; 4],
}

/// The last message that a node sent.
#[derive(Default)]
struct Last(Vec<u8>);

impl Sink for Last {
    fn send(&mut self, _: Link, message: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(message);
    }

    fn tell(&mut self, _: Notice) {}
}

fn broken(what: &str) -> Error {
    Error::Output(std::io::Error::other(what.to_owned()))
}

fn at(address: Ipv4Addr) -> Link {
    Link::Gtpc(SocketAddrV4::new(address, gtpc::PORT))
}

/// The sender's end for control, the ends of the bearer, and the user's address.
type Said = (Option<FTeid>, [Option<FTeid>; 4], Option<[u8; 4]>);

/// What an accepted request is answered with.
fn contents(message: &[u8]) -> Result<Said, Error> {
    let gtpc = Gtpc::new_checked(message).map_err(|_| broken("a message of no gateway"))?;
    let found = Contents::read(&gtpc).map_err(|_| broken("an answer that is broken"))?;
    let said = found
        .cause
        .ok_or_else(|| broken("an answer without a cause"))?;
    if !cause::is_accepted(said.value) {
        return Err(broken(&format!(
            "a session was refused: cause {}",
            said.value
        )));
    }
    let ends = found.bearer.map(|bearer| bearer.f_teids);
    let address = found.paa.and_then(|paa| paa.v4);
    Ok((found.sender, ends.unwrap_or_default(), address))
}

/// The part of an MME: has both gateways make a user's session.
fn attach(sgw: &mut Sgw, pgw: &mut Pgw, number: u32) -> Result<User, Error> {
    let unknown = || broken("a number that is no user's");
    let imsi = Imsi::new(1_010_000_000_001 + u64::from(number), 15).ok_or_else(unknown)?;
    let (mut room, mut out) = ([0; 512], Last::default());
    let sequence = (number * 2) & 0x00ff_ffff;
    let mut to = Writer::new(
        &mut room,
        message::CREATE_SESSION_REQUEST,
        Some(0),
        sequence,
    );
    to.ie(ie::IMSI, 0, &imsi.bytes());
    // E-UTRAN (TS 29.274 8.17).
    to.ie(ie::RAT_TYPE, 0, &[6]);
    let own = FTeid::v4(interface::S11_MME, number + 1, MME.octets());
    put_f_teid(&mut to, 0, &own);
    put_f_teid(&mut to, 1, &FTeid::v4(interface::S5C_PGW, 0, PGW.octets()));
    put(&mut to, ie::APN, 0, |bytes| {
        ie::write_apn("internet", bytes).unwrap_or_default()
    });
    to.group(ie::BEARER_CONTEXT, 0, |bearer| {
        bearer.ie(ie::EBI, 0, &[5]);
        put(bearer, ie::BEARER_QOS, 0, |bytes| {
            BearerQos::default().write(bytes)
        });
    });
    let mut request = to.finish().ok_or_else(unknown)?.to_vec();
    sgw.receive(NOW_NS, at(MME), &mut request, &mut out);
    let mut asked = std::mem::take(&mut out.0);
    pgw.receive(NOW_NS, at(SGW), &mut asked, &mut out);
    let mut answered = std::mem::take(&mut out.0);
    let (_, of_pgw, address) = contents(&answered)?;
    sgw.receive(NOW_NS, at(PGW), &mut answered, &mut out);
    let (control, of_sgw, _) = contents(&out.0)?;
    let (control, s1u) = (control.ok_or_else(unknown)?, of_sgw[0].ok_or_else(unknown)?);
    let mut room = [0; 512];
    let kind = message::MODIFY_BEARER_REQUEST;
    let mut to = Writer::new(&mut room, kind, Some(control.teid), sequence + 1);
    to.group(ie::BEARER_CONTEXT, 0, |bearer| {
        bearer.ie(ie::EBI, 0, &[5]);
        let station = FTeid::v4(interface::S1U_ENODEB, number + 1, STATION.octets());
        put_f_teid(bearer, 0, &station);
    });
    let mut request = to.finish().ok_or_else(unknown)?.to_vec();
    sgw.receive(NOW_NS, at(MME), &mut request, &mut out);
    contents(&out.0)?;
    Ok(User {
        sgw: s1u.teid,
        pgw: of_pgw[2].ok_or_else(unknown)?.teid,
        address: address.ok_or_else(unknown)?,
    })
}

struct Bench {
    worker: Worker<StackStage<Apps>>,
    clock: Clock,
    pool: Pool,
    cache: PoolCache,
    /// By port: its receive queue, and what was sent.
    queues: [spsc::Producer<Packet>; 2],
    sent: [spsc::Consumer<Packet>; 2],
    users: Vec<User>,
}

impl Bench {
    fn new(count: usize) -> Result<Self, Error> {
        let wrong = |error: linerate_epc::EpcError| broken(&error.to_string());
        let cores = Cores::new(1).map_err(wrong)?;
        let control = |address| EndpointConfig::new(SocketAddrV4::new(address, gtpc::PORT));
        let sgw = SgwConfig {
            control: control(SGW),
            user: SGW,
            sessions: count,
            buffers: BufferConfig::default(),
            secret: 1,
        };
        let pgw = PgwConfig {
            control: control(PGW),
            user: PGW,
            sessions: count,
            addresses: (Ipv4Addr::new(100, 64, 0, 0), 10),
            apn: "internet".into(),
            secret: 2,
        };
        let mut sgw = Sgw::new(&sgw, cores, 0, NOW_NS).map_err(wrong)?;
        let mut pgw = Pgw::new(&pgw, cores, 0, NOW_NS).map_err(wrong)?;
        let users = (0..count as u32).map(|number| attach(&mut sgw, &mut pgw, number));
        let users = users.collect::<Result<Vec<User>, Error>>()?;

        let pool = Pool::new(&PoolConfig::new("bench", 4096))?;
        let clock = Clock::calibrate();
        let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
        let now_ns = clock.ns(clock.now());
        let config = StackConfig {
            connections: 64,
            ..StackConfig::default()
        };
        let mut stack = Stack::new(&config, now_ns, &mut egress).map_err(std::io::Error::other)?;
        let ports = [
            (ACCESS, vec![(SGW, 16), (PGW, 16)], STATION),
            (NETWORK, vec![(SGI, 24)], ROUTER),
        ];
        for (port, addresses, neighbour) in ports {
            let addresses = addresses.into_iter().map(|(own, len)| (own.into(), len));
            let config = InterfaceConfig {
                port,
                mac: mac(port),
                addresses: addresses.collect(),
                ..InterfaceConfig::default()
            };
            let host = stack.host();
            let id = host.add_interface(config, now_ns, &mut egress);
            let id = id.map_err(std::io::Error::other)?;
            host.add_neighbour(id, neighbour.into(), MacAddr::local(9), &mut egress);
            if neighbour == ROUTER {
                let all = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
                let route = Route::by(all, ROUTER.into(), id);
                host.add_route(route).map_err(std::io::Error::other)?;
            }
        }
        let mut apps = Apps::default();
        let at = |address: Ipv4Addr| Sockets {
            control: Some(address),
            user: vec![address],
            carriers: [None, None],
        };
        apps.add("sgw".into(), |tokens| {
            Box::new(Epc::new(sgw, at(SGW), cores, 0, tokens))
        });
        apps.add("pgw".into(), |tokens| {
            Box::new(Epc::new(pgw, at(PGW), cores, 0, tokens))
        });
        let started = apps.start_all(&mut stack.io(now_ns, &mut egress));
        started.map_err(|(name, error)| broken(&format!("{name}: {error}")))?;
        let stage = StackStage::new(stack, apps, clock);
        let (mut worker, handle) = Worker::new("epc", stage, egress, clock)?;
        let mut ends = Vec::new();
        for port in [ACCESS, NETWORK] {
            let (queue, taker) = spsc::ring(2 * BURST);
            worker.add_inlet(Inlet::ring(port, 0, taker));
            let (putter, sent) = spsc::ring(1024);
            let bell = handle.doorbell().clone();
            worker.set_outlet(port, Some(TxPath::Ring(putter, bell)));
            ends.push((queue, sent));
        }
        let ends: [_; 2] = ends
            .try_into()
            .map_err(|_| broken("two ports have two ends"))?;
        let [(access, to_access), (network, to_network)] = ends;
        Ok(Self {
            worker,
            clock,
            cache: PoolCache::new(std::slice::from_ref(&pool)),
            pool,
            queues: [access, network],
            sent: [to_access, to_network],
            users,
        })
    }

    /// Ticks of a round with a burst of packets, and how many came out where they should.
    fn round(&mut self, way: Way, drawn: &mut u64) -> Result<(u64, usize), Error> {
        let mut burst = Burst::new();
        self.cache.fill(&self.pool, &mut burst, BURST);
        for packet in burst.iter_mut() {
            *drawn += 1;
            let user = self.users[below(*drawn, self.users.len() as u64) as usize];
            let host = BEYOND | (mixed(!*drawn) % HOSTS) as u32;
            packet.set_data(&frame(way, &user, host.into()));
            packet.set_port(port_of(way));
        }
        self.queues[usize::from(port_of(way))].push_burst(&mut burst);
        let began = self.clock.now();
        black_box(self.worker.round());
        let ticks = self.clock.now() - began;
        let mut passed = 0;
        for (port, sent) in (ACCESS..).zip(&mut self.sent) {
            while sent.pop_burst(&mut burst, BURST) > 0 {
                let wanted = if way == Way::Down { ACCESS } else { NETWORK };
                let len = if way == Way::Down { 36 } else { 0 } + 14 + INNER;
                let good = burst.iter().filter(|packet| packet.len() == len).count();
                passed += if port == wanted { good } else { 0 };
                self.cache.free(&mut burst);
            }
        }
        Ok((ticks, passed))
    }
}

fn mac(port: u16) -> MacAddr {
    MacAddr::local(1 + port as u8)
}

fn port_of(way: Way) -> u16 {
    match way {
        Way::Up | Way::PgwUp => ACCESS,
        Way::Down => NETWORK,
    }
}

/// A user's packet as it comes to the gateways.
fn frame(way: Way, user: &User, host: Ipv4Addr) -> Vec<u8> {
    let address = Ipv4Addr::from(user.address);
    let ethernet = [&mac(port_of(way)).0[..], &MacAddr::local(9).0, &[8, 0]].concat();
    // RFC 3692: 253 is for experiments.
    let inner = |from, to| ipv4::header(0, 64, 253, from, to, (INNER - ipv4::HEADER_LEN) as u16);
    let payload = [0; INNER - ipv4::HEADER_LEN];
    let (from, to, teid) = match way {
        Way::Down => return [&ethernet[..], &inner(host, address), &payload].concat(),
        Way::Up => (STATION, SGW, user.sgw),
        Way::PgwUp => (STATION, PGW, user.pgw),
    };
    let len = (16 + INNER) as u16;
    let ip = ipv4::header(0, 64, protocol::UDP, from, to, len);
    let ports = gtpu::PORT.to_be_bytes();
    let udp = [&ports[..], &ports, &len.to_be_bytes(), &[0, 0]].concat();
    let gtpu = gtpu::header(teid, INNER as u16);
    [
        &ethernet[..],
        &ip,
        &udp,
        &gtpu,
        &inner(address, host),
        &payload,
    ]
    .concat()
}

/// TSC cycles of a packet: the median of rounds in which the core was this thread's.
fn forward(row: &'static str, run: Run, way: Way) -> Result<Sample, Error> {
    let users = if run.quick { 1000 } else { USERS };
    let hz = Clock::calibrate().hz();
    let judged = run.pinned(move |run| {
        let mut bench = Bench::new(users)?;
        let (began, mut drawn) = (Instant::now(), 0);
        let mut rounds = Rounds::new(bench.clock, 1 << 20);
        while !rounds.has_window() || began.elapsed() < run.duration && !rounds.is_full() {
            let (ticks, passed) = bench.round(way, &mut drawn)?;
            if passed != BURST {
                return Err(broken(&format!("{passed} of {BURST} packets passed")));
            }
            rounds.push(ticks);
        }
        Ok::<_, Error>(rounds.judge())
    })??;
    let cycles = |ticks: u64| ticks as f64 / BURST as f64;
    Ok(
        Sample::new(row, cycles(judged.median), "cycles", "as the machine gives")
            .with("of_all", cycles(judged.of_all))
            .with("left_out", judged.left_out)
            .with("tunnels", users)
            .with("burst", BURST)
            .with("clock_mhz", hz / 1e6),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_passes_each_way() {
        for row in ROWS {
            // A packet that does not come out where it should is an error.
            (row.run)(row.name, Run::quick()).unwrap();
        }
    }
}
