//! Hosts against hand-made frames, and against each other over a wire in memory.

mod clauses;
mod divert;
mod fuzz;
mod pair;
mod plain;
mod sockets;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use linerate_core::packet::{Burst, Offload, Pool, PoolCache, PoolConfig, SlotClass};
use linerate_core::port::TxQueue;
use linerate_core::run::{Egress, TxPath};
use linerate_wire::{EtherType, MacAddr, checksum, ethernet, ipv4, ipv6, protocol};

use super::ping::{Ping, PingConfig};
use super::udp::{Bind, Udp, UdpConfig, UdpId};
use super::*;

pub(super) const SECOND: u64 = 1_000_000_000;
/// Of the station that hand-made frames come from.
pub(super) const PEER: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x99]);
pub(super) const OWN: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x01]);

/// A frame on the wire, with what the kernel would be told of it.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) offload: Offload,
    pub(super) csum: (u16, u8),
    pub(super) gso_size: u16,
}

impl Frame {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            offload: Offload::NONE,
            csum: (0, 0),
            gso_size: 0,
        }
    }
}

type Wire = Arc<Mutex<VecDeque<Frame>>>;

/// A port that keeps what is sent.
struct Recorder(Wire);

impl TxQueue for Recorder {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let count = burst.len();
        let mut wire = self.0.lock().unwrap();
        for packet in burst.iter() {
            let meta = packet.meta();
            wire.push_back(Frame {
                bytes: packet.data().to_vec(),
                offload: meta.offload,
                csum: (meta.csum_start, meta.csum_offset),
                gso_size: meta.gso_size,
            });
        }
        cache.free(burst);
        count
    }
}

/// A host with sockets and a recording port.
pub(super) struct Station {
    pub(super) host: Host,
    pub(super) udp: Udp,
    pub(super) ping: Ping,
    pub(super) out: Egress,
    pub(super) inbound: Box<Inbound>,
    pub(super) id: InterfaceId,
    pub(super) now_ns: u64,
    wire: Wire,
    pools: Vec<Pool>,
}

pub(super) fn at(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

impl Station {
    /// With these addresses on port 0.
    pub(super) fn new(mac: MacAddr, addresses: &[&str]) -> Self {
        Self::with(mac, addresses, |_, _| {})
    }

    pub(super) fn with(
        mac: MacAddr,
        addresses: &[&str],
        change: impl FnOnce(&mut HostConfig, &mut InterfaceConfig),
    ) -> Self {
        let pools = vec![
            Pool::new(&PoolConfig::new("rx", 2048)).unwrap(),
            Pool::new(&PoolConfig {
                class: SlotClass::Large,
                ..PoolConfig::new("large", 32)
            })
            .unwrap(),
        ];
        let mut out = Egress::new(PoolCache::new(&pools));
        let wire = Wire::default();
        out.set_outlet(0, Some(TxPath::Queue(Box::new(Recorder(wire.clone())))));
        let network = |text: &&str| {
            let (address, len) = text.split_once('/').unwrap();
            (at(address), len.parse().unwrap())
        };
        let mut interface = InterfaceConfig {
            mac,
            addresses: addresses.iter().map(network).collect(),
            ..InterfaceConfig::default()
        };
        let mut config = HostConfig::default();
        config.neighbours.max_entries = 64;
        change(&mut config, &mut interface);
        let mut host = Host::new(&config, 0, &mut out).unwrap();
        let id = host.add_interface(interface, 0, &mut out).unwrap();
        Self {
            host,
            udp: Udp::new(&UdpConfig {
                sockets: 64,
                ..UdpConfig::default()
            })
            .unwrap(),
            ping: Ping::new(&PingConfig::default()),
            out,
            inbound: Box::default(),
            id,
            now_ns: 0,
            wire,
            pools,
        }
    }

    /// The peer of hand-made frames is a known neighbour.
    pub(super) fn knows(mut self, addresses: &[&str]) -> Self {
        for address in addresses {
            let Self { host, out, id, .. } = &mut self;
            assert!(host.add_neighbour(*id, at(address), PEER, out));
        }
        self.sent();
        self
    }

    /// What was sent since the last call.
    pub(super) fn sent(&mut self) -> Vec<Frame> {
        self.out.flush();
        self.wire.lock().unwrap().drain(..).collect()
    }

    /// Frames come in; what is for no socket stays in the burst that is returned.
    pub(super) fn take_frames(&mut self, frames: &[Frame]) -> Burst {
        let mut burst = Burst::new();
        for frame in frames {
            let mut packet = self.out.cache.copy_of(&frame.bytes).unwrap();
            packet.set_port(0);
            let meta = packet.meta_mut();
            (meta.offload, meta.gso_size) = (frame.offload, frame.gso_size);
            (meta.csum_start, meta.csum_offset) = frame.csum;
            burst.push(packet).unwrap();
        }
        self.receive(&mut burst);
        burst
    }

    /// One round of a worker.
    pub(super) fn receive(&mut self, burst: &mut Burst) {
        let Self {
            host,
            udp,
            ping,
            out,
            inbound,
            now_ns,
            ..
        } = self;
        host.receive(burst, *now_ns, inbound, out);
        udp.deliver(host, burst, inbound, *now_ns, out);
        ping.deliver(host, burst, inbound, *now_ns, out);
        assert_eq!(inbound.len(), burst.len());
        host.turn(*now_ns, out);
    }

    /// One frame comes in, and nothing of it is left for a user.
    pub(super) fn take(&mut self, bytes: Vec<u8>) {
        let mut left = self.take_frames(&[Frame::new(bytes)]);
        assert!(left.is_empty(), "{left:?}");
        self.out.cache.free(&mut left);
    }

    /// One frame comes in, and what comes back.
    pub(super) fn answers(&mut self, bytes: Vec<u8>) -> Vec<Frame> {
        self.take(bytes);
        self.sent()
    }

    /// Time passes, with a turn every 50 ms.
    pub(super) fn pass_time(&mut self, ns: u64) {
        let until = self.now_ns + ns;
        while self.now_ns < until {
            self.now_ns = (self.now_ns + SECOND / 20).min(until);
            let mut burst = Burst::new();
            self.receive(&mut burst);
            assert!(burst.is_empty());
        }
    }

    pub(super) fn bind(&mut self, bind: Bind) -> UdpId {
        self.udp.bind(&mut self.host, bind).unwrap()
    }

    pub(super) fn bind_port(&mut self, port: u16) -> UdpId {
        self.bind(Bind {
            port,
            ..Bind::default()
        })
    }

    pub(super) fn send(
        &mut self,
        id: UdpId,
        payload: &[u8],
        to: &str,
    ) -> Result<(), udp::UdpError> {
        let to = (!to.is_empty()).then(|| socket(to));
        let Self { host, udp, out, .. } = self;
        udp.send_to(host, id, payload, to, self.now_ns, out)
    }

    /// The next datagram of a socket: its sender and payload.
    pub(super) fn recv(&mut self, id: UdpId) -> Option<(String, Vec<u8>)> {
        let datagram = self.udp.recv(id).unwrap()?;
        let got = (datagram.about.from.to_string(), datagram.payload().to_vec());
        self.out.consume_one(datagram.packet);
        Some(got)
    }

    /// How often packets were dropped for a reason.
    pub(super) fn drops(&self, reason: &str) -> u64 {
        let counts = self.out.drop_counts();
        let counts = counts.lock().unwrap();
        let found = counts.iter().find(|(name, _)| name == reason);
        found
            .unwrap_or_else(|| panic!("no reason {reason}"))
            .1
            .read()
    }

    /// Every drop reason that has struck.
    pub(super) fn all_drops(&self) -> Vec<(String, u64)> {
        let counts = self.out.drop_counts();
        let counts = counts.lock().unwrap();
        let struck = counts
            .iter()
            .map(|(name, count)| (name.clone(), count.read()));
        struck.filter(|(_, count)| *count > 0).collect()
    }

    /// All slots but those that are said to be held are free.
    pub(super) fn check_slots(&mut self) {
        self.out.flush();
        let mut away = 0;
        for pool in &self.pools {
            let stats = pool.stats();
            let cached = self.out.cache.held(pool) as u64;
            away += u64::from(pool.slots()) - stats.free_shared as u64 - cached;
        }
        let held = self.host.held() + self.udp.held() + self.ping.held();
        assert_eq!(away, held, "slots away, and held");
    }
}

/// Frames go to and fro until both are silent.
pub(super) fn exchange(a: &mut Station, b: &mut Station) -> Vec<Frame> {
    let mut all = Vec::new();
    for _ in 0..100 {
        let (from_a, from_b) = (a.sent(), b.sent());
        let is_quiet = from_a.is_empty() && from_b.is_empty();
        if is_quiet && !a.host.has_waiting() && !b.host.has_waiting() {
            return all;
        }
        for (frames, to) in [(&from_a, &mut *b), (&from_b, &mut *a)] {
            for frames in frames.chunks(32) {
                let mut left = to.take_frames(frames);
                assert!(left.is_empty(), "nobody speaks TCP");
                to.out.cache.free(&mut left);
            }
            if to.host.has_waiting() {
                to.receive(&mut Burst::new());
            }
        }
        all.extend(from_a.into_iter().chain(from_b));
    }
    panic!("they do not stop");
}

/// A frame of the peer's to `dst_mac`, of an IP packet.
pub(super) fn framed(dst_mac: MacAddr, ip: &[u8]) -> Vec<u8> {
    let ethertype = match ip[0] >> 4 {
        4 => EtherType::IPV4,
        _ => EtherType::IPV6,
    };
    let mut frame = ethernet::header(dst_mac, PEER, ethertype).to_vec();
    frame.extend(ip);
    frame
}

/// An IP packet; the layer-4 checksum at `field` of `l4` is filled, if there is one.
pub(super) fn packet(src: &str, dst: &str, upper: u8, l4: &[u8], field: Option<usize>) -> Vec<u8> {
    let ends = Ends::new(at(src), at(dst)).unwrap();
    let mut l4 = l4.to_vec();
    if let Some(field) = field {
        let pseudo = match upper {
            protocol::ICMP => 0,
            _ => ends.pseudo_sum(upper, l4.len()),
        };
        l4[field..field + 2].fill(0);
        let sum = checksum::nonzero(!checksum::add(pseudo, checksum::sum(&l4)));
        l4[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let len = l4.len() as u16;
    let header = match ends {
        Ends::V4 { src, dst } => ipv4::header(0, 64, upper, src, dst, len).to_vec(),
        Ends::V6 { src, dst } => ipv6::header(upper, 64, src, dst, len).to_vec(),
    };
    [header, l4].concat()
}

pub(super) fn udp_packet(src: &str, dst: &str, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut l4 = Vec::new();
    l4.extend(ports.0.to_be_bytes());
    l4.extend(ports.1.to_be_bytes());
    l4.extend((8 + payload.len() as u16).to_be_bytes());
    l4.extend([0, 0]);
    l4.extend(payload);
    packet(src, dst, protocol::UDP, &l4, Some(6))
}

pub(super) fn tcp_packet(src: &str, dst: &str, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut l4 = vec![0; 20];
    l4[..2].copy_from_slice(&ports.0.to_be_bytes());
    l4[2..4].copy_from_slice(&ports.1.to_be_bytes());
    l4[12] = 0x50;
    l4.extend(payload);
    packet(src, dst, protocol::TCP, &l4, Some(16))
}

pub(super) fn echo_request(src: &str, dst: &str, payload: &[u8]) -> Vec<u8> {
    let is_v4 = at(src).is_ipv4();
    let (kind, upper) = if is_v4 {
        (8, protocol::ICMP)
    } else {
        (128, protocol::ICMPV6)
    };
    let mut l4 = vec![kind, 0, 0, 0, 0x12, 0x34, 0, 1];
    l4.extend(payload);
    packet(src, dst, upper, &l4, Some(2))
}

/// Every checksum of a frame is right, but for one that the port has to finish.
pub(super) fn check_sums(frame: &Frame) {
    let headers = linerate_wire::parse(&frame.bytes).unwrap();
    assert_ne!(headers.is_ipv4_right(&frame.bytes), Some(false));
    if !frame.offload.intersects(Offload::CSUM_PARTIAL) {
        assert_ne!(headers.is_l4_right(&frame.bytes), Some(false), "{frame:?}");
    }
}
