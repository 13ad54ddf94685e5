//! The applications of `linerate steer` with the Linux kernel as their peer, over a TAP and a veth
//! pair in a network namespace. Skipped, with the reason, where the test may not make one.
#![allow(missing_docs, clippy::unwrap_used)]

mod lcore;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_core::env::Clock;
use linerate_core::port::Port;
use linerate_core::run::{Egress, NEVER};
use linerate_drivers::Drivers;
use linerate_stack::socket::{Event, Io, Listen, SocketId, Source, Stack, StackConfig};
use linerate_steer::app::{App, Apps, Error, StackStage, listen};
use linerate_steer::echo::Echo;
use linerate_steer::http::server::{Limits, Server};
use linerate_steer::http::site::Site;
use linerate_steer::pattern;
use linerate_steer::proxy::Proxy;
use linerate_steer::stream::{Amount, Peer, Stream};
use linerate_testkit::netns::Unnamed;
use linerate_testkit::skip;
use linerate_wire::MacAddr;

use lcore::interface;

/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);
const OURS: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const KERNELS: [&str; 2] = ["192.0.2.2", "2001:db8::2"];
const SPECS: [&str; 2] = ["tap:t0", "af_packet:v0"];
/// Bytes that are sent each way.
const MANY: usize = 8 << 20;

type Lcore = lcore::Lcore<StackStage<Apps>>;

/// Reads nothing until it may, then to the end.
struct Sloth {
    may_read: Arc<AtomicBool>,
    token: u64,
    waiting: Vec<(SocketId, u64)>,
    bytes: u64,
    wrong: u64,
    ended: u64,
}

impl App for Sloth {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        let token = self.token;
        listen(
            io,
            Listen {
                token,
                ..Listen::on(5)
            },
        )
        .map(|_| ())
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            if let Source::Listener(listener) = event.source {
                while let Some((id, _)) = io.accept(listener) {
                    self.waiting.push((id, 0));
                }
            }
        }
    }

    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        if !self.may_read.load(Ordering::Acquire) {
            return NEVER;
        }
        let mut buffer = [0; 16 << 10];
        self.waiting.retain_mut(|(id, at)| {
            loop {
                match io.read(*id, &mut buffer) {
                    Ok(0) => {
                        self.ended += 1;
                        io.close(*id);
                        return false;
                    }
                    Ok(count) => {
                        self.wrong += u64::from(!pattern::is(*at, &buffer[..count]));
                        *at += count as u64;
                        self.bytes += count as u64;
                    }
                    Err(_) => return true,
                }
            }
        });
        // It is asked for no events.
        io.now_ns() + 100_000
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let (bytes, wrong, ended) = (self.bytes, self.wrong, self.ended);
        vec![("bytes", bytes), ("wrong", wrong), ("ended", ended)]
    }
}

/// The stack and the applications of these tests.
fn stage(port: &dyn Port, clock: Clock, out: &mut Egress) -> StackStage<Apps> {
    let now_ns = clock.ns(clock.now());
    let config = StackConfig {
        connections: 1024,
        ..StackConfig::default()
    };
    let mut stack = Stack::new(&config, now_ns, out).unwrap();
    let addresses = [
        (OURS[0].parse().unwrap(), 24),
        (OURS[1].parse().unwrap(), 64),
    ];
    let lan = interface(port, MacAddr::local(7), &addresses);
    stack.host().add_interface(lan, now_ns, out).unwrap();
    let mut apps = Apps::default();
    let many = Amount::Bytes(MANY as u64);
    apps.add("echo".into(), |tokens| {
        Box::new(Echo::new(Listen::on(7), tokens))
    });
    apps.add("source".into(), |tokens| {
        Box::new(Stream::source(Peer::Listen(Listen::on(19)), many, tokens))
    });
    apps.add("sink".into(), |tokens| {
        Box::new(Stream::sink(Peer::Listen(Listen::on(9)), tokens))
    });
    let mut site = Site::default();
    site.add_pattern("/many", MANY as u64);
    site.add_pattern("/few", 100);
    let limits = Limits {
        connections: 1024,
        head: Duration::from_millis(300),
        ..Limits::default()
    };
    apps.add("http".into(), |tokens| {
        Box::new(Server::new(Listen::on(80), Arc::new(site), limits, tokens).unwrap())
    });
    for (at, kernels) in (81..).zip(KERNELS) {
        let to = SocketAddr::new(kernels.parse().unwrap(), 8000);
        apps.add(format!("proxy{at}"), |tokens| {
            Box::new(Proxy::new(Listen::on(at), to, tokens))
        });
    }
    StackStage::new(stack, apps, clock)
}

/// Applications listen.
fn start(lcore: &mut Lcore) {
    let now_ns = lcore.stage.now_ns();
    let StackStage { stack, app, .. } = &mut lcore.stage;
    app.start_all(&mut stack.io(now_ns, &mut lcore.out))
        .unwrap();
}

/// Runs `work` in a namespace beside an lcore whose port is `spec`.
fn beside(spec: &str, work: impl FnOnce() + Send) {
    beside_with(spec, |_| (), work);
}

/// The same with an lcore that something is added to; what has become of it, where it could run.
fn beside_with(
    spec: &str,
    add: impl FnOnce(&mut Lcore),
    work: impl FnOnce() + Send,
) -> Option<Lcore> {
    let namespace = match Unnamed::new() {
        Ok(namespace) => namespace,
        Err(reason) => {
            skip(&reason);
            return None;
        }
    };
    namespace.ip("link set lo up");
    if spec.starts_with("af_packet:v0") {
        namespace.ip("link add v0 type veth peer name t0");
        namespace.quiet("v0");
        namespace.ip("link set v0 up");
    }
    let inside = namespace.enter();
    let mut lcore = Lcore::new(spec, stage);
    add(&mut lcore);
    start(&mut lcore);
    namespace.ip(&format!("addr add {}/24 dev t0", KERNELS[0]));
    namespace.ip(&format!("addr add {}/64 dev t0 nodad", KERNELS[1]));
    namespace.ip("link set t0 up");
    let done = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            work();
            done.store(true, Ordering::Release);
        });
        let start = Instant::now();
        while !(done.load(Ordering::Acquire) || worker.is_finished()) {
            assert!(
                start.elapsed() < 4 * PATIENCE,
                "{:?}",
                lcore.stage.app.counts_by_app()
            );
            lcore.round();
        }
        worker.join()
    });
    drop(inside);
    let counts = lcore.stage.app.counts_by_app();
    result.unwrap_or_else(|_| panic!("{spec}: {counts:?} {:?}", lcore.stage.stack.tcp_stats()));
    Some(lcore)
}

fn connect(ours: &str, port: u16) -> TcpStream {
    let to = SocketAddr::new(ours.parse().unwrap(), port);
    let stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Writes bytes and the end on a thread of its own, reads to the end.
fn exchange(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        got
    })
}

fn many() -> Vec<u8> {
    let mut bytes = vec![0; MANY];
    pattern::fill(0, &mut bytes);
    bytes
}

/// What a server says to text that comes in pieces.
fn say(stream: &mut TcpStream, pieces: &[&str]) -> String {
    for piece in pieces {
        stream.write_all(piece.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    String::from_utf8_lossy(&got).into_owned()
}

#[test]
fn echo_sends_back_every_byte() {
    for spec in SPECS {
        beside(spec, || {
            for ours in OURS {
                assert!(
                    exchange(connect(ours, 7), &many()) == many(),
                    "{spec} {ours}"
                );
                assert_eq!(exchange(connect(ours, 7), b"x"), b"x");
                assert_eq!(exchange(connect(ours, 7), b""), b"");
            }
        });
    }
}

#[test]
fn source_and_sink_send_and_take_every_byte() {
    for spec in SPECS {
        beside(spec, || {
            for ours in OURS {
                assert!(exchange(connect(ours, 19), b"") == many(), "{spec} {ours}");
                assert_eq!(exchange(connect(ours, 9), &many()), b"");
            }
        });
    }
}

#[test]
fn every_byte_arrives_over_a_bad_wire() {
    let spec = "af_packet:v0,faulty=rx.loss:0.01+tx.loss:0.01+seed:1";
    if Drivers::new().open("ring:probe,faulty=loss:0.01").is_err() {
        return skip("the faulty= of this build is written otherwise");
    }
    beside(spec, || {
        assert!(exchange(connect(OURS[0], 7), &many()) == many());
    });
}

#[test]
fn http_has_bodies_and_says_what_is_wrong() {
    for spec in SPECS {
        beside(spec, || {
            for ours in OURS {
                let get = "GET /many HTTP/1.0\r\n\r\n";
                let got = exchange(connect(ours, 80), get.as_bytes());
                let at = got.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
                assert!(got[at..] == many(), "{spec} {ours}");
            }
            let says = |pieces: &[&str]| say(&mut connect(OURS[0], 80), pieces);
            let two = "GET /few HTTP/1.1\r\nHost: a\r\n\r\nHEAD /few HTTP/1.1\r\nHost: a\r\n\r\n";
            assert_eq!(says(&[two]).matches("200 OK").count(), 2);
            // Byte by byte.
            let (front, back) = two.split_at(12);
            assert_eq!(says(&[front, back]).matches("200 OK").count(), 2);
            let chunked = "POST /few HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                3\r\nabc\r\n0\r\n\r\nGET /few HTTP/1.1\r\nHost: a\r\n\r\n";
            let said = says(&[chunked]);
            assert!(
                said.contains("405 Method") && said.contains("200 OK"),
                "{said}"
            );
            for (text, status) in [
                ("GET /nope HTTP/1.1\r\nHost: a\r\n\r\n", "404 "),
                ("GET /few HTTP/1.1\r\n\r\n", "400 "),
                ("hello\r\n\r\n", "400 "),
                ("GET /few HTTP/2.0\r\nHost: a\r\n\r\n", "505 "),
            ] {
                let said = says(&[text]);
                assert!(
                    said.starts_with(&format!("HTTP/1.1 {status}")),
                    "{text}: {said}"
                );
            }
            let long = format!(
                "GET /few HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n",
                "b".repeat(9000)
            );
            let said = says(&[&long]);
            assert!(said.starts_with("HTTP/1.1 431 "), "{said}");
            // Slowloris: the head of a request may take 300 ms.
            let mut slow = connect(OURS[0], 80);
            slow.write_all(b"GET / HTTP/1.1\r\n").unwrap();
            let mut said = String::new();
            slow.read_to_string(&mut said).unwrap();
            assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
        });
    }
}

#[test]
fn the_proxy_passes_bytes_and_half_closes_both_ways() {
    for spec in SPECS {
        beside(spec, || {
            for (port, kernels) in (81..).zip(KERNELS) {
                let at = SocketAddr::new(kernels.parse().unwrap(), 8000);
                let listener = TcpListener::bind(at).unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let (mut stream, _) = listener.accept().unwrap();
                        let mut got = Vec::new();
                        stream.read_to_end(&mut got).unwrap();
                        // The other direction goes on.
                        stream.write_all(&got).unwrap();
                    });
                    let got = exchange(connect(OURS[0], port), &many());
                    assert!(got == many(), "{spec} {kernels}");
                });
                drop(listener);
                // Nobody listens: the client is told, perhaps before it knows that it is connected.
                let to = SocketAddr::new(OURS[0].parse().unwrap(), port);
                if let Ok(mut refused) = TcpStream::connect_timeout(&to, PATIENCE) {
                    refused.set_read_timeout(Some(PATIENCE)).unwrap();
                    let error = refused.read(&mut [0]).unwrap_err();
                    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                }
            }
        });
    }
}

/// What 48 connections have sent that nobody reads leaves large slots for the frames of others: no
/// frame is dropped for want of one, another connection goes on, and at last each byte is read.
#[test]
fn slow_readers_leave_large_slots_to_others() {
    const SLOW: usize = 48;
    const EACH: usize = 1 << 20;
    let may_read = Arc::new(AtomicBool::new(false));
    let reads = may_read.clone();
    let add = |lcore: &mut Lcore| {
        lcore.stage.app.add("sloth".into(), |tokens| {
            Box::new(Sloth {
                may_read: reads,
                token: tokens.token(0),
                waiting: Vec::new(),
                bytes: 0,
                wrong: 0,
                ended: 0,
            })
        });
    };
    let lcore = beside_with("tap:t0", add, || {
        let all = many();
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..SLOW)
                .map(|_| {
                    let mut stream = connect(OURS[0], 5);
                    let mut writer = stream.try_clone().unwrap();
                    // As much as goes without being read.
                    writer.set_nonblocking(true).unwrap();
                    let mut sent = 0;
                    while sent < EACH {
                        match writer.write(&all[sent..EACH]) {
                            Ok(count) => sent += count,
                            Err(_) => break,
                        }
                    }
                    writer.set_nonblocking(false).unwrap();
                    let rest = &all[sent..EACH];
                    scope.spawn(move || {
                        writer.write_all(rest).unwrap();
                        writer.shutdown(Shutdown::Write).unwrap();
                        // Until the other end has read it all.
                        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
                    })
                })
                .collect();
            assert!(exchange(connect(OURS[0], 7), &all) == all);
            may_read.store(true, Ordering::Release);
            writers.into_iter().for_each(|one| one.join().unwrap());
        });
    });
    let Some(lcore) = lcore else { return };
    let counts = lcore.stage.app.counts_by_app();
    let (_, sloth) = counts.last().unwrap();
    let expected = [
        ("bytes", (SLOW * EACH) as u64),
        ("wrong", 0),
        ("ended", SLOW as u64),
    ];
    assert_eq!(sloth[..], expected);
    let drops = lcore.port.stats().rx_drops;
    let oversize = drops.iter().find(|(reason, _)| *reason == "oversize");
    assert_eq!(oversize.map_or(0, |(_, count)| *count), 0, "{drops:?}");
}
