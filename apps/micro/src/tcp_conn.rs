//! TCP connections from beginning to end, what one costs that does nothing, and what a forged SYN
//! does.

use std::net::Ipv4Addr;

use linerate_core::env::Clock;
use linerate_core::packet::Burst;
use linerate_stack::host::Route;
use linerate_stack::socket::{Io, SocketId, Source, interest};
use linerate_stack::tcp::connection::Error as Failure;
use linerate_stack::tcp::segment::{Header, SynOptions};
use linerate_wire::tcp::{Tcp, flag};
use linerate_wire::{EtherType, MacAddr, checksum, ethernet, ipv4, protocol};

use super::random::mixed;
use super::shared::{Done, Work};
use super::tcp::{AT_ONCE, MESSAGE, Pair, address, ends, lost, timed};
use super::tcp_rr::Asking;
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "tcp.conn",
        about: "a TCP connection with a question and an answer of 64 bytes, which the server then \
            closes: the server's work",
        run: connections,
    },
    Row {
        name: "tcp.idle.bytes",
        about: "memory of an idle IPv4 connection with index, timer and socket",
        run: idle,
    },
    Row {
        name: "tcp.flood.syn",
        about: "a forged SYN, answered by a cookie",
        run: flood,
    },
];

/// What an application does between two turns of the wire: open, ask, answer, close.
pub(super) struct Opening {
    pub(super) pair: Pair,
    /// Connections begun and ended.
    begun: u32,
    pub(super) ended: u64,
    under_way: usize,
    /// Four-tuples that are used in turns.
    kinds: u32,
}

impl Opening {
    /// `quick`: over few four-tuples.
    pub(super) fn new(quick: bool) -> Result<Self, Error> {
        let kinds = if quick { 1000 } else { KINDS };
        Ok(Self {
            pair: Pair::new(kinds, |config| config.connections = 4096, |_| {})?,
            begun: 0,
            ended: 0,
            under_way: 0,
            kinds,
        })
    }

    pub(super) fn client_turn(&mut self) {
        let Self {
            pair,
            begun,
            ended,
            under_way,
            kinds,
        } = self;
        pair.client(|client, now_ns| {
            client.serve(now_ns, |io, event| {
                let Source::Connection(id) = event.source else {
                    return;
                };
                let mut answer = [0; MESSAGE];
                match io.read(id, &mut answer) {
                    Ok(count) => {
                        // The end comes with the answer.
                        *ended += u64::from(count == MESSAGE && io.read(id, &mut answer) == Ok(0));
                        io.close(id);
                        *under_way -= 1;
                    }
                    Err(Failure::WouldBlock) if event.ready & interest::WRITE != 0 => {
                        let _ = io.write(id, &[b'?'; MESSAGE]);
                        let _ = io.register(id, interest::READ | interest::EDGE, 0);
                    }
                    Err(Failure::WouldBlock) => {}
                    Err(_) => {
                        io.close(id);
                        *under_way -= 1;
                    }
                }
            });
            let mut io = client.io(now_ns);
            while *under_way < AT_ONCE {
                let (local, remote) = ends(*begun % *kinds);
                *begun += 1;
                let Ok(id) = io.connect(Some(local), remote) else {
                    break;
                };
                let wanted = interest::WRITE | interest::READ | interest::EDGE;
                let _ = io.register(id, wanted, 0);
                *under_way += 1;
            }
        });
    }

    pub(super) fn server_turn(&mut self) {
        self.pair.server(|server, now_ns| {
            server.serve(now_ns, |io, event| match event.source {
                Source::Listener(listener) => {
                    while let Some((id, _)) = io.accept(listener) {
                        let _ = io.register(id, interest::READ | interest::EDGE, 0);
                    }
                }
                Source::Connection(id) => answer_and_close(io, id),
            });
        });
    }
}

/// The answer goes with the FIN.
fn answer_and_close(io: &mut Io<'_>, id: SocketId) {
    let mut question = [0; MESSAGE];
    if io.read(id, &mut question) == Ok(MESSAGE) {
        let _ = io.set_cork(id, true);
        let _ = io.write(id, &question);
        io.close(id);
    }
}

/// Four-tuples that are used in turns: each comes again while the server's end of it lingers.
const KINDS: u32 = 240_000;

fn connections(row: &'static str, run: Run) -> Result<Sample, Error> {
    let opening = Opening::new(run.quick)?;
    let pages = opening.pair.pages;
    let turn = |opening: &mut Opening| {
        let before = opening.ended;
        opening.client_turn();
        opening.server_turn();
        opening.ended - before
    };
    let (opening, work, ns) =
        run.pinned(move |run| timed(opening, run, |all| (&mut all.pair, &mut all.ended), turn))?;
    let (alone, left_out) = work.judge();
    if alone.count == 0 {
        return Err(lost("no connection came to its end"));
    }
    let ended = opening.ended as f64;
    Ok(Sample::new(row, alone.each(), "TSC cycles", pages)
        .with("of_all", opening.pair.server_ticks as f64 / ended)
        .with("left_out", left_out)
        .with("both_ns", ns)
        .with("client_cycles", opening.pair.client_ticks as f64 / ended)
        .with("lingering", opening.pair.server.stack.lingering()))
}

fn idle(row: &'static str, run: Run) -> Result<Sample, Error> {
    let connections = if run.quick { 100 } else { 100_000 };
    let asking = Asking::new(connections)?;
    let server = &asking.pair.server.stack;
    let bytes = server.bytes_per_connection() as f64;
    Ok(Sample::new(row, bytes, "bytes", asking.pair.pages)
        .with("connections", server.connections())
        .with("slots_held", server.held()))
}

/// Frames of SYNs from hosts that do not exist.
pub(super) fn syn(number: u64) -> Vec<u8> {
    let random = mixed(number);
    // 10.0.0.0/8, of which nobody is a neighbour.
    let source = Ipv4Addr::from_bits(0x0a00_0000 | (random as u32 & 0x00ff_ffff));
    let header = Header {
        seq: (random >> 24) as u32,
        flags: flag::SYN,
        window: 64_240,
        timestamps: Some((random as u32, 0)),
        syn: Some(SynOptions {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            fast_open: None,
        }),
        ..Header::default()
    };
    let target = Ipv4Addr::new(192, 0, 2, 2);
    let mut segment = vec![0; header.len()];
    header.write((random >> 48) as u16 | 1024, 8000, &mut segment);
    let len = segment.len() as u16;
    let pseudo = checksum::pseudo_v4(source.octets(), target.octets(), protocol::TCP, len);
    if let Ok(mut tcp) = Tcp::new_checked(&mut segment[..]) {
        tcp.fill_checksum(pseudo);
    }
    let mut frame =
        ethernet::header(MacAddr::local(2), MacAddr::local(1), EtherType::IPV4).to_vec();
    frame.extend(ipv4::header(0, 64, protocol::TCP, source, target, len));
    frame.extend(segment);
    frame
}

fn flood(row: &'static str, run: Run) -> Result<Sample, Error> {
    // None may be half-open: as when so many are that there is no more room.
    let mut pair = Pair::new(1, |_| {}, |listen| listen.half_open = 0)?;
    let lan = pair.server.stack.host().interface_of(0);
    let lan = lan.expect("the pair has an interface");
    let by = Route::by((Ipv4Addr::UNSPECIFIED.into(), 0), address(1), lan);
    let added = pair.server.stack.host().add_route(by);
    added.map_err(std::io::Error::other)?;
    let pages = pair.pages;
    let clock = pair.clock;
    let frames: Vec<Vec<u8>> = (0..1 << 14).map(syn).collect();
    let (pair, work, answered) = run.pinned(move |run| {
        let mut next = 0;
        let mut burst = Burst::new();
        // Writes a burst, has it answered, takes the answers away. Only the middle is timed.
        let mut turn = |pair: &mut Pair| {
            let cache = &mut pair.server.out.cache;
            for _ in 0..Burst::CAPACITY {
                if let Some(packet) = cache.copy_of(&frames[next % frames.len()]) {
                    let _ = burst.push(packet);
                }
                next += 1;
            }
            let began = clock.now();
            let server = &mut pair.server;
            let now_ns = clock.ns(began);
            server.stack.receive(&mut burst, now_ns, &mut server.out);
            server.out.flush();
            pair.server_ticks += clock.now() - began;
            pair.client.discard() as u64
        };
        run.time_for(run.duration / 10, &mut || turn(&mut pair));
        let mut work = Work::new(clock);
        pair.reset();
        let mut answered = 0;
        run.time_for(run.duration, &mut || {
            let of_turn = turn(&mut pair);
            answered += of_turn;
            work.turned(Done {
                ticks: pair.server_ticks,
                count: answered,
            });
            of_turn
        });
        (pair, work, answered)
    })?;
    let (alone, left_out) = work.judge();
    if alone.count == 0 || pair.server.stack.connections() > 0 {
        return Err(lost("SYNs were not answered by cookies"));
    }
    let cycles = alone.each();
    Ok(Sample::new(row, cycles, "TSC cycles", pages)
        .with("of_all", pair.server_ticks as f64 / answered as f64)
        .with("left_out", left_out)
        .with("cookies", pair.server.stack.stats().cookies_sent)
        .with("ns", cycles / Clock::hz(&clock) * 1e9))
}
