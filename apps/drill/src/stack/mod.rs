//! Linerate's own stack under test, in virtual time.
//!
//! The stack has one interface. Frames go to it and come from it through memory; the wire's other
//! station, which scripts play, is the router of all routes and known from the start, so that
//! neither ARP nor Neighbor Discovery comes between a script's packets. `calls` makes system
//! calls with the stack's sockets, `events` says which are ready, `options` has their options,
//! `settings` what a `sysctl` means to the stack, `info` its `TCP_INFO`.

mod calls;
mod errors;
mod events;
mod info;
mod ip;
mod options;
mod settings;

use crate::call::{Call, Handle, Reply};
use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::run::{Config, Outcome};
use crate::script::Script;
use crate::settings::DEFAULTS;
use calls::Socket;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, SlotClass};
use linerate_core::port::TxQueue;
use linerate_core::run::{Egress, NEVER, TxPath};
use linerate_stack::host::{InterfaceConfig, Route};
use linerate_stack::socket::{Stack, StackConfig};
use linerate_stack::tcp::secret::Secret;
use linerate_wire::{MacAddr, protocol};
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

const MAC: MacAddr = MacAddr::local(1);
const PEER_MAC: MacAddr = MacAddr::local(2);
const ETHERNET_BYTES: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// The routers of all routes, on the interface's networks.
const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(192, 168, 255, 254);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfe);

/// Runs a script against linerate's stack. It takes no privileges, nothing sleeps, and the outcome
/// is the same every time.
pub fn run(script: &Script, config: &Config) -> Outcome {
    match OwnStack::new(config) {
        Ok(mut stack) => crate::run_virtual(script, config, &mut stack),
        Err(error) => Outcome {
            fault: Some(Fault::setup(
                format!("there is no stack: {error}"),
                "see to addresses, MTU and memory",
            )),
            ..Outcome::default()
        },
    }
}

/// Words of scripts whose values are the stack's own: the cookie of Fast Open that it gives to the
/// usual address.
pub const DEFINES: [(&str, &str); 1] = [("TFO_COOKIE", "90c723e441ab4439")];

/// Frames that were sent.
type Wire = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// The interface's way out: it keeps what is sent.
struct Recorder(Wire);

impl TxQueue for Recorder {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let count = burst.len();
        let mut wire = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wire.extend(burst.iter().map(|packet| packet.data().to_vec()));
        cache.free(burst);
        count
    }
}

/// A [`Stack`] as an [`Endpoint`].
pub struct OwnStack {
    stack: Stack,
    out: Egress,
    wire: Wire,
    addresses: [IpAddr; 2],
    sockets: HashMap<Handle, Socket>,
    next_handle: Handle,
    deadline_ns: u64,
    /// Whether SYNs are answered by cookies alone (`tcp_syncookies = 2`).
    only_cookies: bool,
    /// Whether listeners have Fast Open without asking for it (`tcp_fastopen`, 0x400).
    is_fast_open_for_all: bool,
}

impl OwnStack {
    /// A stack with the addresses and MTU of a run, and the settings that every script starts with.
    ///
    /// # Errors
    /// No memory; an address or an MTU that no interface can have.
    pub fn new(config: &Config) -> Result<Self, Box<dyn Error>> {
        let large = PoolConfig {
            class: SlotClass::Large,
            ..PoolConfig::new("large", 16)
        };
        let pools = [Pool::new(&PoolConfig::new("rx", 4096))?, Pool::new(&large)?];
        let mut out = Egress::new(PoolCache::new(&pools));
        let wire = Wire::default();
        out.set_outlet(0, Some(TxPath::Queue(Box::new(Recorder(wire.clone())))));
        let sizes = StackConfig {
            connections: 64,
            sent_frames: 8192,
            send_chunks: 4096,
            received_pkts: 4096,
            received_bytes: 32 << 20,
            secret: Secret::new(7), // known, so that all runs are alike
            ..StackConfig::default()
        };
        let mut stack = Stack::new(&sizes, 0, &mut out)?;
        let (v4, v6) = (config.local(false), config.local(true));
        let mut interface = InterfaceConfig {
            port: 0,
            mac: MAC,
            addresses: vec![(v4, 16)],
            mtu: config.mtu,
            ..InterfaceConfig::default()
        };
        if config.is_v6() {
            interface.addresses.push((v6, 64));
        }
        let host = stack.host();
        let lan = host.add_interface(interface, 0, &mut out)?;
        // A remote host on the interface's own network is a neighbour itself.
        host.add_neighbour(lan, config.remote(), PEER_MAC, &mut out);
        host.add_neighbour(lan, ROUTER_V4.into(), PEER_MAC, &mut out);
        let all = (Ipv4Addr::UNSPECIFIED.into(), 0);
        host.add_route(Route::by(all, ROUTER_V4.into(), lan))?;
        if config.is_v6() {
            host.add_neighbour(lan, ROUTER_V6.into(), PEER_MAC, &mut out);
            let all = (Ipv6Addr::UNSPECIFIED.into(), 0);
            host.add_route(Route::by(all, ROUTER_V6.into(), lan))?;
        }
        let mut new = Self {
            stack,
            out,
            wire,
            addresses: [v4, v6],
            sockets: HashMap::new(),
            next_handle: 3,
            deadline_ns: NEVER,
            only_cookies: false,
            is_fast_open_for_all: false,
        };
        for (name, value) in DEFAULTS {
            new.configure(name, value)?;
        }
        Ok(new)
    }

    /// What is due is done, and what was sent is on the wire.
    fn settle(&mut self, now_ns: u64) {
        self.deadline_ns = self.stack.turn(now_ns, &mut self.out);
        self.out.flush();
    }
}

impl Endpoint for OwnStack {
    fn address(&self, is_v6: bool) -> IpAddr {
        self.addresses[usize::from(is_v6)]
    }

    fn configure(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.set(name, value)
    }

    fn inject(&mut self, now_ns: u64, packet: &[u8]) {
        let is_v6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
        let mut frame = Vec::with_capacity(ETHERNET_BYTES + packet.len());
        frame.extend(MAC.0);
        frame.extend(PEER_MAC.0);
        frame.extend(if is_v6 { IPV6 } else { IPV4 });
        frame.extend(packet);
        // Slots run out where what a script sends is never read: then a packet is lost, as it is
        // on a port.
        if let Some(packet) = self.out.cache.copy_of(&frame) {
            let mut burst = Burst::new();
            let is_in = burst.push(packet).is_ok();
            debug_assert!(is_in, "an empty burst has room");
            self.stack.receive(&mut burst, now_ns, &mut self.out);
        }
        self.settle(now_ns);
    }

    fn poll_output(&mut self, _: u64) -> Option<Vec<u8>> {
        let mut wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let frame = wire.pop_front()?;
            if is_of_scripts(&frame) {
                return frame.get(ETHERNET_BYTES..).map(<[u8]>::to_vec);
            }
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        (self.deadline_ns != NEVER).then_some(self.deadline_ns)
    }

    fn advance(&mut self, now_ns: u64) {
        self.settle(now_ns);
    }

    fn call(&mut self, now_ns: u64, call: &Call) -> Reply {
        let answer = self.answer(now_ns, call);
        self.settle(now_ns);
        answer.unwrap_or_else(Reply::error)
    }
}

/// Whether a frame is what scripts speak of: IP, and neither Neighbor Discovery (RFC 4861 4) nor
/// reports of groups (RFC 3810 5.2), which a kernel with `arp off` sends none of.
fn is_of_scripts(frame: &[u8]) -> bool {
    let packet = frame.get(ETHERNET_BYTES..).unwrap_or_default();
    match frame.get(12..ETHERNET_BYTES) {
        Some(kind) if kind == IPV4 => true,
        Some(kind) if kind == IPV6 => {
            let is_icmp = packet.get(6) == Some(&protocol::ICMPV6);
            !(is_icmp
                && packet
                    .get(40)
                    .is_some_and(|kind| (130..=143).contains(kind)))
        }
        _ => false,
    }
}
