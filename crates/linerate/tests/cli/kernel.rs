//! The stack's neighbours and ICMP against the Linux kernel, which is the host at the other end of
//! a TAP: both accept each other's messages. Each test has a network name space of its own, and is
//! skipped where it may not make one. It stands here since `stack` and `drivers` know nothing of
//! each other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{PortConfig, Queues};
use linerate_drivers::Drivers;
use linerate_stack::icmp::{Error4, Error6, echo4, echo6, error4, error6, redirect6};
use linerate_stack::neighbour::{Advertise, Config, Event, InterfaceConfig, Out, State, Table};
use linerate_testkit::netns::Unnamed;
use linerate_wire::{EtherType, MacAddr, parse, protocol, set_macs};

/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(30);
const US: MacAddr = MacAddr::local(1);
const KERNEL: MacAddr = MacAddr::local(0x77);

/// What the router answers packets with that are not for neighbours.
#[derive(Clone, Copy)]
enum Answer {
    /// Ping with its reply, all else not at all.
    Echo,
    /// All that is longer with the MTU.
    TooBig(u16),
    /// All of IPv6 with a redirect to fe80::9 at 02:00:00:00:00:09.
    Redirect,
}

/// The router at one end of a TAP: a table, and a loop that the test turns.
struct Router<'a> {
    namespace: &'a Unnamed,
    table: Table,
    out: Out,
    start: Instant,
    queues: Queues,
    cache: PoolCache,
    pool: Pool,
    answer: Answer,
    events: Vec<Event>,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn lan() -> InterfaceConfig {
    InterfaceConfig {
        mac: US,
        addresses: vec![
            (ip("192.0.2.1"), 24),
            (ip("2001:db8::1"), 64),
            (ip("fe80::1"), 64),
        ],
        ..InterfaceConfig::default()
    }
}

/// A fresh name space, or a line that says why the test is skipped.
fn namespace() -> Option<Unnamed> {
    if !linerate_testkit::has(&["ip", "ping", "sysctl"]) {
        return None;
    }
    let made = Unnamed::new();
    made.map_err(|reason| linerate_testkit::skip(&reason)).ok()
}

impl<'a> Router<'a> {
    /// With the kernel as 192.0.2.7 and 2001:db8::7 at [`KERNEL`], on interface t0.
    fn new(namespace: &'a Unnamed, interface: InterfaceConfig) -> Self {
        let pool = Pool::new(&PoolConfig::new("tap", 1024)).unwrap();
        let pools = Pools::new(vec![pool.clone()]);
        let queues = {
            let _inside = namespace.enter();
            let mut port = Drivers::new()
                .open("tap:t0,mac=02:00:00:00:00:77,up=off")
                .unwrap();
            port.start(&PortConfig::default(), &pools).unwrap()
        };
        for setting in [
            "ipv6.conf.t0.disable_ipv6=0",
            "ipv6.conf.t0.accept_ra=2",
            "ipv6.conf.t0.accept_redirects=1",
            "ipv4.conf.t0.arp_notify=1",
        ] {
            namespace.run("sysctl", &format!("-qw net.{setting}"));
        }
        namespace.ip("link set t0 up");
        namespace.ip("addr add 192.0.2.7/24 dev t0");
        namespace.ip("addr add 2001:db8::7/64 dev t0 nodad");
        let mut router = Self {
            namespace,
            table: Table::new(Config::default(), 0).unwrap(),
            out: Out::new(),
            start: Instant::now(),
            queues,
            cache: PoolCache::new(pools.as_slice()),
            pool,
            answer: Answer::Echo,
            events: Vec::new(),
        };
        router.table.set_interface(0, interface, 0, &mut router.out);
        router
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn send(&mut self, frame: &[u8]) {
        let mut burst = Burst::new();
        let mut packet = self.cache.get(&self.pool).expect("there are enough");
        assert!(packet.set_data(frame));
        burst.push(packet).unwrap();
        self.queues.tx[0].tx_burst(&mut burst, &mut self.cache);
        self.queues.tx[0].flush(&mut self.cache);
        self.cache.free(&mut burst);
    }

    /// Once round: what came in, what is due, what is to be sent.
    fn turn(&mut self) {
        let mut burst = Burst::new();
        self.queues.rx[0].rx_burst(&mut burst, &mut self.cache);
        let now_ns = self.now_ns();
        for packet in burst.iter() {
            let frame = packet.data();
            let Ok(headers) = parse(frame) else { continue };
            let kind = headers.icmp_type_code(frame).map(|(kind, _)| kind);
            let is_nd = headers.protocol == Some(protocol::ICMPV6)
                && kind.is_some_and(|kind| (133..=137).contains(&kind));
            // Why a frame was ignored does not matter: the kernel says much that is not for us.
            if headers.ethertype == EtherType::ARP {
                let _ = self.table.arp(0, frame, &|_| false, now_ns, &mut self.out);
            } else if is_nd {
                let _ = self.table.ndp(0, frame, &|_| false, now_ns, &mut self.out);
            } else if let Some(answer) = answered(frame, self.answer) {
                self.send(&answer);
            }
        }
        self.cache.free(&mut burst);
        self.table.tick(now_ns, &mut self.out);
        let mut out = std::mem::take(&mut self.out);
        out.frames().for_each(|(_, frame)| self.send(frame));
        self.events.append(&mut out.events);
        out.clear();
        self.out = out;
    }

    /// Turns until something holds.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < PATIENCE, "waited for {what} in vain");
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets the kernel's side run a program while the router turns; what it printed.
    fn run(&mut self, program: &str, words: &str) -> String {
        let mut child: Child = {
            let _inside = self.namespace.enter();
            let mut command = Command::new(program);
            command.args(words.split_whitespace());
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        self.until(program, |_| child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Turns until `ip` prints something with that in it.
    fn until_ip(&mut self, words: &str, wanted: &str) {
        let what = format!("`{wanted}` in `ip {words}`");
        self.until(&what, |router| router.ip(words).contains(wanted));
    }

    fn ip(&self, words: &str) -> String {
        String::from_utf8_lossy(&self.namespace.run("ip", words).stdout).into_owned()
    }

    fn state(&self, address: &str) -> Option<State> {
        let mut all = self.table.neighbours();
        let entry = all.find(|entry| entry.address == ip(address));
        entry.map(|entry| entry.state)
    }
}

/// The router's answer to an IP packet.
fn answered(frame: &[u8], answer: Answer) -> Option<Vec<u8>> {
    let mut reply = frame.to_vec();
    let (dst, src) = (MacAddr(frame[6..12].try_into().ok()?), US);
    let headers = parse(frame).ok()?;
    let packet = &frame[headers.l3..headers.end];
    let is_v4 = headers.ethertype == EtherType::IPV4;
    let mut error = [0; 1280];
    let router4 = Ipv4Addr::new(192, 0, 2, 1);
    let router6: Ipv6Addr = "fe80::1".parse().ok()?;
    let written = match answer {
        Answer::TooBig(mtu) if packet.len() > mtu.into() && is_v4 => {
            let needed = Error4::FragmentationNeeded { mtu };
            error4(packet, needed, router4, &mut error)
        }
        Answer::TooBig(mtu) if packet.len() > mtu.into() => {
            let too_big = Error6::PacketTooBig { mtu: mtu.into() };
            error6(packet, too_big, router6, &mut error)
        }
        Answer::Redirect if !is_v4 => {
            let better = "fe80::9".parse().ok()?;
            redirect6(packet, better, Some(MacAddr::local(9)), router6, &mut error)
        }
        _ => None,
    };
    if let Some(len) = written {
        reply.truncate(headers.l3);
        reply.extend(&error[..len]);
    } else if !(echo4(&mut reply[headers.l3..]) || echo6(&mut reply[headers.l3..])) {
        return None;
    }
    set_macs(&mut reply, dst, src).then_some(reply)
}

#[test]
fn the_kernel_resolves_us_and_we_resolve_it() {
    let Some(namespace) = namespace() else { return };
    let mut router = Router::new(&namespace, lan());
    for (ours, theirs) in [("192.0.2.1", "192.0.2.7"), ("2001:db8::1", "2001:db8::7")] {
        let ping = router.run("ping", &format!("-c2 -i0.2 -W5 {ours}"));
        assert!(ping.contains(" 0% packet loss"), "{ping}");
        let known = router.ip(&format!("neigh show {ours}"));
        assert!(known.contains("02:00:00:00:00:01"), "{known}");
        assert_eq!(
            router.table.mac(0, ip(theirs)),
            Some(KERNEL),
            "it asked for us"
        );
        // Forgotten, it has to be asked for.
        router.table.remove(0, ip(theirs), &mut router.out);
        let now_ns = router.now_ns();
        router
            .table
            .resolve(0, ip(theirs), None, now_ns, &mut router.out);
        assert_eq!(router.state(theirs), Some(State::Incomplete));
        let reachable = |router: &mut Router<'_>| router.state(theirs) == Some(State::Reachable);
        router.until("an answer", reachable);
    }
    let told = router.events.len(); // by the packets, not by who asked for us
    assert_eq!(told, 2, "{:?}", router.events);
}

#[test]
fn the_kernel_detects_a_duplicate_of_the_routers_address() {
    let Some(namespace) = namespace() else { return };
    let mut router = Router::new(&namespace, lan());
    namespace.ip("addr add 2001:db8::1/64 dev t0");
    router.until_ip("-6 addr show dev t0", "dadfailed");
}

#[test]
fn the_router_detects_duplicates_of_the_kernels_addresses() {
    let Some(namespace) = namespace() else { return };
    let mut interface = lan();
    interface.addresses.push((ip("192.0.2.7"), 24));
    interface.addresses.push((ip("2001:db8::7"), 64));
    (interface.detect4, interface.detect6) = (true, true);
    let mut router = Router::new(&namespace, interface);
    for taken in ["192.0.2.7", "2001:db8::7"] {
        let duplicate = Event::Duplicate {
            interface: 0,
            address: ip(taken),
            mac: KERNEL,
        };
        router.until("a duplicate", |router| router.events.contains(&duplicate));
        assert!(!router.table.is_usable(0, ip(taken)));
    }
}

#[test]
fn hosts_configure_themselves_by_our_advertisements() {
    let Some(namespace) = namespace() else { return };
    let said = Advertise {
        mtu: Some(1400),
        ..Advertise::default()
    };
    let interface = InterfaceConfig {
        advertise: Some(said),
        ..lan()
    };
    let mut router = Router::new(&namespace, interface);
    router.until_ip("-6 route", "default via fe80::1");
    router.until_ip("-6 addr show dev t0", "scope global dynamic");
    router.until_ip("-6 route show default", "hoplimit 64");
    let mtu = namespace.run("sysctl", "-n net.ipv6.conf.t0.mtu").stdout;
    assert_eq!(mtu, b"1400\n");
    let mut out = Out::new();
    router.table.shutdown(&mut out);
    out.frames().for_each(|(_, frame)| router.send(frame));
    router.until("the route to go", |router| {
        !router.ip("-6 route").contains("default")
    });
}

#[test]
fn the_kernel_accepts_the_routers_errors_and_redirects() {
    let Some(namespace) = namespace() else { return };
    let mut router = Router::new(&namespace, lan());
    namespace.ip("route add 203.0.113.0/24 via 192.0.2.1");
    namespace.ip("-6 route add 2001:db8:9::/64 via fe80::1 dev t0");
    router.answer = Answer::TooBig(1300);
    for (to, family) in [("203.0.113.9", "-4"), ("2001:db8:9::9", "-6")] {
        router.run("ping", &format!("-c1 -W0.3 -M do -s 1380 {to}"));
        router.until_ip(&format!("{family} route get {to}"), "mtu 1300");
    }
    router.answer = Answer::Redirect;
    router.run("ping", "-c1 -W0.3 2001:db8:9::77");
    router.until_ip("-6 route get 2001:db8:9::77", "via fe80::9");
    let neighbour = router.ip("-6 neigh show fe80::9 dev t0");
    assert!(neighbour.contains("02:00:00:00:00:09"), "{neighbour}");
}

#[test]
fn a_host_that_gets_another_mac_address_is_followed() {
    let Some(namespace) = namespace() else { return };
    let mut router = Router::new(&namespace, lan());
    let now_ns = router.now_ns();
    router
        .table
        .resolve(0, ip("192.0.2.7"), None, now_ns, &mut router.out);
    let known = |mac| Event::Neighbour {
        interface: 0,
        address: ip("192.0.2.7"),
        mac: Some(mac),
    };
    router.until("an answer", |router| router.events.contains(&known(KERNEL)));
    // Not within the second in which the first answer counts.
    let start = Instant::now();
    router.until("a second to pass", |_| {
        start.elapsed() > Duration::from_millis(1100)
    });
    let other = MacAddr::local(0x78);
    namespace.ip(&format!("link set t0 address {other}"));
    router.until("another MAC address", |router| {
        router.events.contains(&known(other))
    });
}
