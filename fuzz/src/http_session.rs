//! The web server before a client that says whatever it likes, and the client before such a server,
//! over stacks in virtual time: neither panics, each comes to an end, every request is accounted
//! for, and in the end every slot is home.

use std::sync::Arc;
use std::time::Duration;

use linerate_core::env::Clock;
use linerate_core::mem::{PageKind, PagePolicy};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig, RxQueue};
use linerate_core::run::{Egress, NEVER, TxPath};
use linerate_drivers::ring;
use linerate_stack::host::InterfaceConfig;
use linerate_stack::socket::{Event, Io, Listen, SocketId, Source, Stack, StackConfig, interest};
use linerate_steer::app::{App, Error, StackStage, Tokens, listen};
use linerate_steer::http::client::meter::Meter;
use linerate_steer::http::client::{Client, Job};
use linerate_steer::http::server::{Limits, Server};
use linerate_steer::http::site::Site;
use linerate_wire::MacAddr;

const SLOTS: u32 = 1024;
/// No message of an input is longer: more would take long, and say nothing new.
const MOST: usize = 8192;

thread_local! {
    /// Made once: mapping pools for each input would take nearly all the time.
    static POOLS: Pools = Pools::new(vec![Pool::new(&PoolConfig {
        pages: PagePolicy::Only(PageKind::Base4K),
        ..PoolConfig::new("http", SLOTS)
    }).expect("memory for some slots")]);
}

pub(crate) fn check(input: &[u8]) {
    let Some((&how, input)) = input.split_first() else {
        return;
    };
    let input = &input[..input.len().min(MOST)];
    POOLS.with(|pools| {
        server(pools, how, input);
        client(pools, how, input);
        let stats = pools.primary().stats();
        assert_eq!(stats.free_shared, stats.slots, "slots are missing");
    });
}

/// One end of the wire.
struct End<A> {
    stage: StackStage<A>,
    out: Egress,
    rx: Box<dyn RxQueue>,
}

impl<A: App> End<A> {
    fn new(number: u8, mut port: impl Port, pools: &Pools, app: A) -> Self {
        let queues = port.start(&PortConfig::default(), pools);
        let mut queues = queues.expect("a ring starts");
        let mut out = Egress::new(PoolCache::new(pools.as_slice()));
        out.set_outlet(0, queues.tx.pop().map(TxPath::Queue));
        let mut config = StackConfig {
            connections: 16,
            sent_frames: 256,
            send_chunks: 256,
            received_pkts: 256,
            ..StackConfig::default()
        };
        config.time_wait.limit = 16;
        config.udp.sockets = 1;
        config.host.neighbours.max_entries = 16;
        let mut stack = Stack::new(&config, 0, &mut out).expect("memory for a small stack");
        let address = |number: u8| std::net::IpAddr::from([192, 0, 2, number]);
        let interface = InterfaceConfig {
            mac: MacAddr::local(number),
            addresses: vec![(address(number), 24)],
            ..InterfaceConfig::default()
        };
        let host = stack.host();
        let lan = host.add_interface(interface, 0, &mut out);
        let (lan, other) = (lan.expect("it is the first"), 3 - number);
        host.add_neighbour(lan, address(other), MacAddr::local(other), &mut out);
        let mut stage = StackStage::new(stack, app, Clock::monotonic("virtual"));
        let started = stage.app.start(&mut stage.stack.io(0, &mut out));
        started.expect("nobody else listens");
        Self {
            stage,
            out,
            rx: queues.rx.pop().expect("a ring has a queue each way"),
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

/// Lets time pass until something holds, at first slowly; false if it never does.
fn pass<A: App, B: App>(
    one: &mut End<A>,
    two: &mut End<B>,
    is_over: impl Fn(&A, &B) -> bool,
) -> bool {
    let mut now_ns = 0;
    for round in 0..2000 {
        now_ns += if round < 200 { 1_000_000 } else { 100_000_000 };
        one.turn(now_ns);
        two.turn(now_ns);
        if round > 20 && is_over(&one.stage.app, &two.stage.app) {
            return true;
        }
    }
    false
}

/// What is left in rings goes home with the ends.
fn done<A: App, B: App>(mut one: End<A>, mut two: End<B>) {
    let mut burst = Burst::new();
    while one.rx.rx_burst(&mut burst, &mut one.out.cache) > 0 {
        one.out.cache.free(&mut burst);
    }
    while two.rx.rx_burst(&mut burst, &mut two.out.cache) > 0 {
        two.out.cache.free(&mut burst);
    }
}

fn count(counts: &[(&str, u64)], name: &str) -> u64 {
    let found = counts.iter().find(|(known, _)| *known == name);
    found.expect("it is counted").1
}

/// A client that says its bytes piece by piece, and keeps what it hears.
struct Speaker {
    text: Vec<u8>,
    at: usize,
    piece: usize,
    /// Whether it says that it has no more to say.
    ends: bool,
    heard: Vec<u8>,
    id: Option<SocketId>,
    is_closed: bool,
}

impl App for Speaker {
    fn start(&mut self, _: &mut Io<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            let Source::Connection(id) = event.source else {
                continue;
            };
            let heard = &mut self.heard;
            let take = |bytes: &[u8]| {
                heard.extend_from_slice(bytes);
                bytes.len()
            };
            match io.consume(id, take) {
                Ok(1..) | Err(linerate_stack::tcp::connection::Error::WouldBlock) => {}
                Ok(0) | Err(_) => {
                    io.close(id);
                    self.is_closed = true;
                }
            }
        }
    }

    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        if self.is_closed {
            return NEVER;
        }
        let to = "192.0.2.2:80".parse().expect("an address");
        let id = *self.id.get_or_insert_with(|| {
            let id = io.connect(None, to).expect("there is a port");
            let _ = io.register(id, interest::READ, 0);
            id
        });
        if self.at < self.text.len() {
            let end = self.text.len().min(self.at + self.piece);
            self.at += io.write(id, &self.text[self.at..end]).unwrap_or(0);
            if self.at == self.text.len() && self.ends {
                let _ = io.shutdown(id);
            }
        }
        NEVER
    }
}

fn server(pools: &Pools, how: u8, input: &[u8]) {
    let mut site = Site::default();
    site.add_pattern("/", 64);
    site.add_pattern("/64", 64);
    site.add_pattern("/many", 20_000);
    let limits = Limits {
        connections: 16,
        head_bytes: 1024,
        body_bytes: 4096,
        idle: Duration::from_secs(5),
        head: Duration::from_secs(2),
        stall: Duration::from_secs(2),
    };
    let server = Server::new(Listen::on(80), Arc::new(site), limits, Tokens::of(0));
    let speaker = Speaker {
        text: input.to_vec(),
        at: 0,
        piece: usize::from(how >> 1) * 8 + 1,
        ends: how & 1 == 1,
        heard: Vec::new(),
        id: None,
        is_closed: false,
    };
    let (one, two) = ring::pair("http", 1, 256);
    let mut speaker = End::new(1, one, pools, speaker);
    let mut server = End::new(2, two, pools, server.expect("memory for timers"));
    let is_over = |speaker: &Speaker, server: &Server| {
        let open = count(&server.counts(), "open");
        open == 0 && (speaker.is_closed || speaker.at == speaker.text.len())
    };
    assert!(
        pass(&mut speaker, &mut server, is_over),
        "the server keeps a connection"
    );
    let (heard, counts) = (&speaker.stage.app.heard, server.stage.app.counts());
    assert!(
        heard.is_empty() || heard.starts_with(b"HTTP/1.1 "),
        "{heard:?}"
    );
    let statuses = counts.iter().filter(|(name, _)| name.len() == 3);
    let said: u64 = statuses.map(|(_, count)| count).sum();
    let mark = b"\r\nServer: linerate\r\n";
    let found = heard.windows(mark.len()).filter(|window| window == mark);
    let answers = found.count() as u64;
    // What a reset has taken away, or what a peer that has gone did not hear.
    assert!(answers <= said, "{answers} answers of {said}");
    done(speaker, server);
}

/// A server that answers each request with the next piece of its bytes, and then ends.
struct Liar {
    pieces: Vec<Vec<u8>>,
    next: usize,
    to_end: Vec<SocketId>,
}

impl App for Liar {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        listen(io, Listen::on(80)).map(|_| ())
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            match event.source {
                Source::Listener(listener) => {
                    while let Some((id, _)) = io.accept(listener) {
                        let _ = io.register(id, interest::READ, 0);
                    }
                }
                Source::Connection(id) => match io.consume(id, <[u8]>::len) {
                    Ok(1..) => {
                        let piece = self.pieces.get(self.next).map_or(&[][..], Vec::as_slice);
                        self.next += 1;
                        let _ = io.write(id, piece);
                        if self.next >= self.pieces.len() {
                            self.to_end.push(id);
                        }
                    }
                    Err(linerate_stack::tcp::connection::Error::WouldBlock) => {}
                    _ => io.close(id),
                },
            }
        }
    }

    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        self.to_end.drain(..).for_each(|id| io.close(id));
        NEVER
    }
}

/// Requests of the client.
const REQUESTS: u64 = 4;

fn client(pools: &Pools, how: u8, input: &[u8]) {
    let job = Job {
        connections: 1 + u32::from(how & 1),
        keeps: how & 2 == 0,
        requests: Some(REQUESTS),
        timeout: Duration::from_secs(1),
        ..Job::to("192.0.2.2:80".parse().expect("an address"))
    };
    let meter = Arc::new(Meter::default());
    let client = Client::new(job, 16, 1, meter.clone(), Tokens::of(0));
    let piece = usize::from(how >> 2) * 16 + 1;
    let liar = Liar {
        pieces: input.chunks(piece).map(<[u8]>::to_vec).collect(),
        next: 0,
        to_end: Vec::new(),
    };
    let (one, two) = ring::pair("http", 1, 256);
    let mut client = End::new(1, one, pools, client.expect("memory for timers"));
    let mut liar = End::new(2, two, pools, liar);
    let is_over = |client: &Client, _: &Liar| client.is_done();
    assert!(
        pass(&mut client, &mut liar, is_over),
        "the client never ends: {meter:?}"
    );
    let counts = meter.counts();
    let ends = ["answers", "failed", "timed_out"].map(|name| count(&counts, name));
    assert_eq!(ends.iter().sum::<u64>(), REQUESTS, "{meter:?}");
    assert_eq!(
        (count(&counts, "requests"), count(&counts, "open")),
        (REQUESTS, 0)
    );
    done(client, liar);
}
