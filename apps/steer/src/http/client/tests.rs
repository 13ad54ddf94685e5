//! The client against our own server, and against a peer that says what a test wants, over ring
//! ports in virtual time: latencies come out to the nanosecond.

use std::sync::Arc;
use std::time::Duration;

use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig, RxQueue};
use linerate_core::run::{Egress, TxPath};
use linerate_drivers::ring;
use linerate_stack::host::InterfaceConfig;
use linerate_stack::socket::{Event, Io, Listen, SocketId, Source, Stack, StackConfig, interest};
use linerate_wire::MacAddr;

use super::load::Arrivals;
use super::*;
use crate::app::{Apps, Change, StackStage, listen};
use crate::http::server::{Limits, Server};
use crate::http::site::Site;
use crate::stream::{Peer, Stream};

/// One end of the wire.
struct End<A> {
    stage: StackStage<A>,
    out: Egress,
    rx: Box<dyn RxQueue>,
}

impl<A: App> End<A> {
    fn new(number: u8, port: &mut Box<dyn Port>, pools: &Pools, app: A) -> Self {
        let mut queues = port.start(&PortConfig::default(), pools).unwrap();
        let mut out = Egress::new(PoolCache::new(pools.as_slice()));
        out.set_outlet(0, queues.tx.pop().map(TxPath::Queue));
        let config = StackConfig {
            connections: 256,
            ..StackConfig::default()
        };
        let mut stack = Stack::new(&config, 0, &mut out).unwrap();
        let address = |number: u8| std::net::IpAddr::from([192, 0, 2, number]);
        let interface = InterfaceConfig {
            mac: MacAddr::local(number),
            addresses: vec![(address(number), 24)],
            ..InterfaceConfig::default()
        };
        let lan = stack.host().add_interface(interface, 0, &mut out).unwrap();
        let other = 3 - number;
        stack
            .host()
            .add_neighbour(lan, address(other), MacAddr::local(other), &mut out);
        let mut stage = StackStage::new(stack, app, Clock::monotonic("a test"));
        stage.app.start(&mut stage.stack.io(0, &mut out)).unwrap();
        Self {
            stage,
            out,
            rx: queues.rx.pop().unwrap(),
        }
    }

    fn turn(&mut self, now_ns: u64) {
        let mut burst = Burst::new();
        while self.rx.rx_burst(&mut burst, &mut self.out.cache) > 0 {
            self.stage.receive(&mut burst, now_ns, &mut self.out);
        }
        self.stage.work(now_ns, &mut self.out);
        self.out.flush();
    }
}

/// A client at one end, something at the other.
struct Net<A> {
    client: End<Client>,
    server: End<A>,
    meter: Arc<Meter>,
    now_ns: u64,
    _ports: [Box<dyn Port>; 2],
}

/// Between two turns.
const STEP_NS: u64 = 10_000;

impl<A: App> Net<A> {
    fn new(job: Job, server: A) -> Self {
        let pools = Pools::new(vec![Pool::new(&PoolConfig::new("http", 4096)).unwrap()]);
        let (one, two) = ring::pair("http", 1, 1024);
        let mut ports: [Box<dyn Port>; 2] = [Box::new(one), Box::new(two)];
        let meter = Arc::new(Meter::default());
        let client = Client::new(job, 256, 1, meter.clone(), Tokens::of(0)).unwrap();
        let client = End::new(1, &mut ports[0], &pools, client);
        let server = End::new(2, &mut ports[1], &pools, server);
        Self {
            client,
            server,
            meter,
            now_ns: 0,
            _ports: ports,
        }
    }

    /// Lets so much time pass; the server works only where `serves`.
    fn pass(&mut self, ns: u64, serves: bool) {
        let end = self.now_ns + ns;
        while self.now_ns < end {
            self.now_ns += STEP_NS;
            self.client.turn(self.now_ns);
            if serves {
                self.server.turn(self.now_ns);
            }
        }
    }

    fn until_done(&mut self) {
        for _ in 0..10_000 {
            if self.client.stage.app.is_done() {
                return;
            }
            self.pass(1_000_000, true);
        }
        panic!("{:?}", self.meter);
    }

    fn count(&self, name: &str) -> u64 {
        let counts = self.meter.counts();
        counts.iter().find(|(known, _)| *known == name).unwrap().1
    }
}

fn job() -> Job {
    Job::to("192.0.2.2:80".parse().unwrap())
}

/// Our own server with bodies that are made up.
fn own() -> Server {
    let mut site = Site::default();
    site.add_pattern("/few", 64);
    site.add_pattern("/many", 1_000_000);
    let on = Listen::on(80);
    Server::new(on, Arc::new(site), Limits::default(), Tokens::of(0)).unwrap()
}

const OPEN: Load = Load::Open {
    per_s: 1000.0,
    arrivals: Arrivals::Even,
};

#[test]
fn every_request_is_answered_on_kept_connections_and_on_new_ones() {
    for (keeps, path, bytes) in [
        (true, "/few", 64),
        (false, "/few", 64),
        (true, "/many", 1_000_000),
        (false, "/many", 1_000_000),
    ] {
        let mut net = Net::new(
            Job {
                paths: vec![path.into()],
                connections: 8,
                keeps,
                requests: Some(100),
                expects: Some(Content::Pattern(bytes)),
                ..job()
            },
            own(),
        );
        net.until_done();
        assert_eq!(
            (net.count("2xx"), net.count("wrong")),
            (100, 0),
            "{path} {keeps}"
        );
        assert_eq!(net.count("bytes"), 100 * bytes);
        assert_eq!(net.count("opened"), if keeps { 8 } else { 100 });
        // The ends of connections take their time at the server.
        net.pass(3_000_000_000, true);
        let open = |counts: Vec<(&str, u64)>| counts[0].1;
        assert_eq!(open(net.server.stage.app.counts()), 0, "{path} {keeps}");
        assert_eq!(net.client.stage.stack.connections(), 0);
        assert_eq!(net.server.stage.stack.connections(), 0);
    }
}

#[test]
fn another_body_than_expected_is_counted() {
    for expects in [Content::Pattern(63), Content::Bytes(vec![0; 64].into())] {
        let mut net = Net::new(
            Job {
                paths: vec!["/few".into()],
                requests: Some(10),
                expects: Some(expects),
                ..job()
            },
            own(),
        );
        net.until_done();
        assert_eq!((net.count("2xx"), net.count("wrong")), (10, 10));
    }
}

#[test]
fn a_stall_shows_in_every_request_that_was_due_meanwhile() {
    let mut net = Net::new(
        Job {
            paths: vec!["/few".into()],
            connections: 4,
            load: OPEN,
            ..job()
        },
        own(),
    );
    net.pass(100_000_000, true);
    let before = net.meter.latency();
    assert!((98..=100).contains(&before.total), "{}", before.total);
    // A turn or two each way; a connection is opened first.
    assert!(
        before.percentile(100.0) <= 6 * STEP_NS,
        "{}",
        before.percentile(100.0)
    );
    net.pass(50_000_000, false);
    // Only as many as there are connections have left; one had its answer on the way.
    assert!(net.meter.latency().total <= before.total + 1);
    let waiting = net.count("waiting");
    assert!((44..=47).contains(&waiting), "{waiting}");
    net.pass(50_000_000, true);
    let since = net.meter.latency().since(&before);
    assert!((99..=101).contains(&since.total), "{}", since.total);
    // Of 100 that were due, 50 waited for up to 50 ms, one a millisecond.
    let half = since.percentile(75.0);
    assert!((23_000_000..28_000_000).contains(&half), "{half}");
    let most = since.percentile(100.0);
    assert!((49_000_000..51_000_000).contains(&most), "{most}");
    assert_eq!(net.count("waiting"), 0);
}

#[test]
fn what_is_not_answered_in_time_is_left() {
    let mut net = Net::new(
        Job {
            timeout: Duration::from_millis(200),
            connections: 3,
            load: OPEN,
            ..job()
        },
        own(),
    );
    net.pass(1_000_000_000, false);
    let timed_out = net.count("timed_out");
    // Three at a time, a fifth of a second each, and a tick of the timers.
    assert!((9..=15).contains(&timed_out), "{timed_out}");
    assert_eq!((net.count("answers"), net.count("failed")), (0, 0));
}

/// A peer that answers the first bytes of each connection with `texts` in turns, and ends it after
/// those that are to end it.
struct Script {
    texts: Vec<(&'static [u8], bool)>,
    next: usize,
    accepted: u64,
    to_end: Vec<SocketId>,
}

impl Script {
    fn new(texts: &[(&'static [u8], bool)]) -> Self {
        Self {
            texts: texts.to_vec(),
            next: 0,
            accepted: 0,
            to_end: Vec::new(),
        }
    }
}

impl App for Script {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        listen(io, Listen::on(80)).map(|_| ())
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            match event.source {
                Source::Listener(listener) => {
                    while let Some((id, _)) = io.accept(listener) {
                        self.accepted += 1;
                        io.register(id, interest::READ, 0).unwrap();
                    }
                }
                Source::Connection(id) => {
                    if !matches!(io.consume(id, <[u8]>::len), Ok(1..)) {
                        io.close(id);
                        continue;
                    }
                    let (text, ends) = self.texts[self.next % self.texts.len()];
                    self.next += 1;
                    io.write(id, text).unwrap();
                    if ends {
                        self.to_end.push(id);
                    }
                }
            }
        }
    }

    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        for id in self.to_end.drain(..) {
            io.close(id);
        }
        linerate_core::run::NEVER
    }
}

/// What a client makes of answers, of so many requests on one connection at a time.
fn scripted(requests: u64, texts: &[(&'static [u8], bool)]) -> Net<Script> {
    let job = Job {
        requests: Some(requests),
        ..job()
    };
    let mut net = Net::new(job, Script::new(texts));
    net.until_done();
    let done = net.count("answers") + net.count("failed") + net.count("timed_out");
    assert_eq!((done, net.count("open")), (requests, 0), "{:?}", net.meter);
    net
}

#[test]
fn rfc9112_6_3_answers_end_by_length_by_chunks_and_with_the_connection() {
    let net = scripted(
        30,
        &[
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                  2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n",
                false,
            ),
            (b"HTTP/1.1 200 OK\r\n\r\nabc", true),
        ],
    );
    assert_eq!((net.count("2xx"), net.count("bytes")), (30, 90));
    assert_eq!(net.count("opened"), 10);
}

#[test]
fn rfc9110_15_2_interim_answers_are_passed_over() {
    let text =
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n";
    let net = scripted(5, &[(text, false)]);
    assert_eq!((net.count("2xx"), net.count("opened")), (5, 1));
}

#[test]
fn rfc9112_9_5_a_request_that_met_the_end_of_a_kept_connection_is_asked_again() {
    // The second request of each connection finds it ended.
    let good = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let net = scripted(10, &[(good, false), (b"", true)]);
    assert_eq!((net.count("2xx"), net.count("failed")), (10, 0));
    assert_eq!((net.count("again"), net.count("opened")), (9, 10));
}

#[test]
fn what_is_no_answer_ends_its_connection() {
    let good = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for bad in [
        &b"hello\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx",
    ] {
        let net = scripted(10, &[(bad, false), (good, false)]);
        assert_eq!((net.count("2xx"), net.count("failed")), (5, 5), "{bad:?}");
    }
    // It ends before its time: its head, its body.
    for bad in [
        &b"HTTP/1.1 200 OK\r\nConten"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na",
    ] {
        let net = scripted(10, &[(bad, true), (good, true)]);
        assert_eq!((net.count("2xx"), net.count("failed")), (5, 5), "{bad:?}");
    }
    // More than was asked for.
    let twice =
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n";
    let job = Job {
        load: OPEN,
        requests: Some(10),
        ..job()
    };
    let mut net = Net::new(job, Script::new(&[(twice, false)]));
    net.until_done();
    // After the last one the connection is closed at once.
    assert_eq!((net.count("2xx"), net.count("unasked")), (10, 9));
}

#[test]
fn a_head_of_any_length_is_bounded() {
    let long: &'static [u8] = Box::leak(
        [b"HTTP/1.1 200 OK\r\nA: ".to_vec(), vec![b'a'; 20_000]]
            .concat()
            .into_boxed_slice(),
    );
    let net = scripted(3, &[(long, false)]);
    assert_eq!(net.count("failed"), 3);
}

#[test]
fn nobody_there_is_asked_again_after_a_while() {
    // It listens to another port.
    struct Nobody;
    impl App for Nobody {
        fn start(&mut self, _: &mut Io<'_>) -> Result<(), Error> {
            Ok(())
        }
        fn ready(&mut self, _: &mut Io<'_>, _: &[Event]) {}
    }
    let mut net = Net::new(job(), Nobody);
    net.pass(1_000_000_000, true);
    let failed = net.count("failed");
    assert!((8..=11).contains(&failed), "{failed} in a second");
}

/// What a drain leaves when its time is over is aborted; without a limit it goes on.
#[test]
fn a_drain_ends_when_its_time_is_over() {
    const SECOND: u64 = 1_000_000_000;
    for limit in [Some(Duration::from_secs(1)), None] {
        let job = Job {
            timeout: Duration::from_secs(100),
            requests: Some(1),
            ..job()
        };
        // It takes requests and does not answer.
        let mut apps = Apps::default();
        let mute = |tokens| {
            let sink = Stream::sink(Peer::Listen(Listen::on(80)), tokens);
            Box::new(sink) as Box<dyn App>
        };
        apps.add("mute".into(), mute);
        let mut net = Net::new(job, apps);
        net.pass(SECOND / 10, true);
        assert_eq!((net.count("open"), net.count("failed")), (1, 0));
        let change = Change {
            ends: vec![(0, None)],
            drain: limit,
            ..Change::default()
        };
        let began_ns = net.now_ns;
        let End { stage, out, .. } = &mut net.server;
        let failed = stage.app.change(change, &mut stage.stack.io(began_ns, out));
        assert!(failed.is_empty());
        // It comes again by itself when the time is over.
        let next_ns = net.server.stage.work(began_ns, &mut net.server.out);
        assert!(limit.is_none() || next_ns <= began_ns + SECOND);
        net.pass(SECOND * 9 / 10, true);
        assert_eq!((net.count("open"), net.count("failed")), (1, 0));
        assert_eq!(net.server.stage.app.aborted(), 0);
        net.pass(SECOND, true);
        let aborted = u64::from(limit.is_some());
        assert_eq!(net.server.stage.app.aborted(), aborted);
        // The client has got a reset.
        assert_eq!(
            (net.count("open"), net.count("failed")),
            (1 - aborted, aborted)
        );
        let left = net.server.stage.stack.connections();
        assert_eq!(u64::from(left), 1 - aborted);
        let apps = net.server.stage.app.counts_by_app();
        assert_eq!(apps.len() as u64, 1 - aborted, "{apps:?}");
    }
}
