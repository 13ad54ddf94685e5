//! smoltcp doing what the rows `tcp.*` of `linerate bench micro` do: two interfaces in one thread,
//! joined by queues of frames in memory, that work in turns.
//!
//! `peer-smoltcp ROW SECONDS` prints one line of JSON, as `linerate bench micro ROW --json` does.
//! Questions and answers have time stamps, as ours have: the same segments go either way. Bulk has
//! none, for with them 0.13.1 makes full segments 12 bytes too long for the MTU, and drops them.
//! All else is smoltcp's own setting, so that there is no congestion control. Frames that have been
//! received are used again, so that nothing is allocated for each.

mod wire;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, IpEndpoint};
use wire::Wire;

/// Bytes of a question and of an answer.
const MESSAGE: usize = 64;
/// Questions that are under way at once, where there are connections enough.
const AT_ONCE: usize = 32;
/// The client's first port, how many there are, and the server's first.
const PORTS: (u32, u32) = (1024, 60_000);
const SERVER_PORT: u16 = 8000;
/// Payload bytes of a full segment.
const SEGMENT: f64 = 1448.0;

type Failure = Box<dyn std::error::Error>;

/// One interface with its sockets.
struct Station {
    interface: Interface,
    sockets: SocketSet<'static>,
    wire: Wire,
}

impl Station {
    fn new(number: u8, mut wire: Wire) -> Self {
        let mac = EthernetAddress([2, 0, 0, 0, 0, number]);
        let mut interface = Interface::new(Config::new(mac.into()), &mut wire, now());
        interface.update_ip_addrs(|addresses| {
            // There is room for more than one.
            let _ = addresses.push(IpCidr::new(address(number), 24));
        });
        let sockets = SocketSet::new(Vec::new());
        Self {
            interface,
            sockets,
            wire,
        }
    }

    fn add(&mut self, buffer: usize) -> SocketHandle {
        let room = || SocketBuffer::new(vec![0; buffer]);
        self.sockets.add(Socket::new(room(), room()))
    }

    /// The same with time stamps.
    fn add_stamped(&mut self, buffer: usize) -> SocketHandle {
        let handle = self.add(buffer);
        self.socket(handle).set_tsval_generator(Some(milliseconds));
        handle
    }

    fn socket(&mut self, handle: SocketHandle) -> &mut Socket<'static> {
        self.sockets.get_mut(handle)
    }

    fn connect(&mut self, handle: SocketHandle, number: u32) -> Result<(), Failure> {
        let (local, remote) = ends(number);
        let socket = self.sockets.get_mut::<Socket>(handle);
        Ok(socket.connect(self.interface.context(), remote, local)?)
    }

    /// Takes what has come, fires timers, and sends what there is.
    fn poll(&mut self) {
        let Self {
            interface,
            sockets,
            wire,
        } = self;
        interface.poll(now(), wire, sockets);
    }
}

fn now() -> smoltcp::time::Instant {
    smoltcp::time::Instant::now()
}

/// A tick of time stamps a millisecond (RFC 7323 5.4), as ours have.
fn milliseconds() -> u32 {
    now().total_millis() as u32
}

fn address(number: u8) -> IpAddress {
    IpAddress::v4(192, 0, 2, number)
}

/// Ends of connection `number`: the client's, the server's.
fn ends(number: u32) -> (u16, IpEndpoint) {
    let (first, count) = PORTS;
    let to = SERVER_PORT + (number / count) as u16;
    let from = (first + number % count) as u16;
    (from, (address(2), to).into())
}

fn pair() -> (Station, Station) {
    let (client, server) = wire::pair();
    (Station::new(1, client), Station::new(2, server))
}

/// Nanoseconds per element; `turn` says how many it has passed.
fn time_for(duration: Duration, turn: &mut impl FnMut() -> u64) -> f64 {
    let began = Instant::now();
    let (mut elements, mut turns) = (0, 0_u32);
    loop {
        elements += turn();
        turns += 1;
        // The clock is read once per many short turns; long ones are not waited for.
        if turns % 16 != 0 {
            continue;
        }
        let elapsed = began.elapsed();
        if elapsed >= duration {
            return elapsed.as_nanos() as f64 / elements.max(1) as f64;
        }
    }
}

fn time(duration: Duration, mut turn: impl FnMut() -> u64) -> f64 {
    time_for(duration / 10, &mut turn);
    time_for(duration, &mut turn)
}

/// Questions and answers on so many connections.
fn ask(connections: u32, duration: Duration) -> Result<f64, Failure> {
    let (mut client, mut server) = pair();
    let (mut asking, mut answering) = (Vec::new(), Vec::new());
    for number in 0..connections {
        let handle = server.add_stamped(2 * MESSAGE);
        server.socket(handle).listen(ends(number).1.port)?;
        answering.push(handle);
        let handle = client.add_stamped(2 * MESSAGE);
        client.connect(handle, number)?;
        asking.push(handle);
        if number % 64 == 63 || number + 1 == connections {
            settle(&mut client, &mut server);
        }
    }
    // Those under way, in the order in which they were asked: answers come in the same.
    let mut waiting = VecDeque::new();
    let mut next = 0;
    for _ in 0..AT_ONCE.min(asking.len()) {
        question(&mut client, &asking, &mut next, &mut waiting)?;
    }
    client.poll();
    let mut failure = None;
    let ns = time(duration, || {
        server.poll();
        // smoltcp does not say which are ready. This asks those alone that must be, which an
        // application cannot know.
        for &number in &waiting {
            let socket = server.socket(answering[number]);
            let mut bytes = [0; MESSAGE];
            if socket.can_recv() && socket.recv_slice(&mut bytes) == Ok(MESSAGE) {
                let _ = socket.send_slice(&bytes);
            }
        }
        server.poll();
        client.poll();
        let mut answers = 0;
        for _ in 0..waiting.len() {
            let Some(number) = waiting.pop_front() else {
                break;
            };
            let socket = client.socket(asking[number]);
            let mut bytes = [0; MESSAGE];
            if socket.can_recv() && socket.recv_slice(&mut bytes) == Ok(MESSAGE) {
                answers += 1;
                if let Err(error) = question(&mut client, &asking, &mut next, &mut waiting) {
                    failure = Some(error);
                }
            } else {
                waiting.push_back(number);
            }
        }
        client.poll();
        answers
    });
    failure.map_or(Ok(ns), Err)
}

fn question(
    client: &mut Station,
    asking: &[SocketHandle],
    next: &mut usize,
    waiting: &mut VecDeque<usize>,
) -> Result<(), Failure> {
    client.socket(asking[*next]).send_slice(&[b'?'; MESSAGE])?;
    waiting.push_back(*next);
    *next = (*next + 1) % asking.len();
    Ok(())
}

/// Until nothing is under way.
fn settle(client: &mut Station, server: &mut Station) {
    loop {
        client.poll();
        server.poll();
        if client.wire.is_quiet() && server.wire.is_quiet() {
            return;
        }
    }
}

/// What came of a connection that carries as much as it can.
struct Carried {
    /// Nanoseconds for a segment.
    ns: f64,
    /// Frames for one, acknowledgments counted.
    packets: f64,
}

/// One connection that carries as much as it can, with so much room.
fn carry(buffer: usize, duration: Duration) -> Result<Carried, Failure> {
    let (mut client, mut server) = pair();
    let from = server.add(buffer);
    server.socket(from).listen(SERVER_PORT)?;
    let to = client.add(buffer);
    client.connect(to, 0)?;
    settle(&mut client, &mut server);
    let (mut carried, before) = (0, client.wire.sent());
    let ns = time(duration, || {
        let socket = client.socket(to);
        while socket.can_send() {
            if !matches!(socket.send(|room| (room.len(), room.len())), Ok(1..)) {
                break;
            }
        }
        client.poll();
        server.poll();
        let socket = server.socket(from);
        let mut bytes = 0;
        while socket.can_recv() {
            match socket.recv(|data| (data.len(), data.len())) {
                Ok(count @ 1..) => bytes += count as u64,
                _ => break,
            }
        }
        server.poll();
        carried += bytes;
        bytes
    });
    let sent = client.wire.sent() - before;
    Ok(Carried {
        ns: ns * SEGMENT,
        packets: sent as f64 * SEGMENT / carried as f64,
    })
}

fn bulk(duration: Duration) -> Result<(Carried, usize), Failure> {
    // Whichever suits it best.
    let mut best = (f64::INFINITY, 0);
    for buffer in [1 << 16, 1 << 17, 1 << 18] {
        let ns = carry(buffer, duration / 10)?.ns;
        if ns < best.0 {
            best = (ns, buffer);
        }
    }
    Ok((carry(best.1, duration)?, best.1))
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let (Some(row), Some(seconds)) = (args.next(), args.next()) else {
        return Err("usage: peer-smoltcp ROW SECONDS".into());
    };
    let duration = Duration::from_secs_f64(seconds.parse()?);
    let (ns, detail) = match row.as_str() {
        "tcp.rr.1" => (ask(1, duration)?, String::new()),
        "tcp.rr.10k" => (ask(10_000, duration)?, String::new()),
        "tcp.bulk.1448" => {
            let (Carried { ns, packets }, buffer) = bulk(duration)?;
            let detail = format!("\"buffer_bytes\":{buffer},\"packets_per_segment\":{packets:.2}");
            (ns, detail)
        }
        _ => return Err(format!("no row {row}").into()),
    };
    println!(
        "{{\"row\":\"{row}\",\"value\":{ns:.3},\"unit\":\"ns\",\"pages\":\"4 KiB pages\",\
         \"peer_name\":\"smoltcp\",\"detail\":{{{detail}}}}}"
    );
    Ok(())
}
