//! Very many connections: opened, used, ended in every way there is, and then nothing is left.

use std::collections::HashMap;

use super::hostile::is_home;
use super::scarce::acquaint;
use super::*;

/// The server's first port; there are as many as the connections need.
const FIRST: u16 = 1000;
/// Local ports of the client.
const PORTS: std::ops::RangeInclusive<u16> = 1024..=61_023;
/// Connections that are at work at once.
const AT_ONCE: usize = 2000;

/// Whether a frame is of a connection of the server's first port: no client has that port.
fn is_of_first(frame: &[u8]) -> bool {
    let is_tcp = frame[12..14] == [8, 0] && frame[23] == linerate_wire::protocol::TCP;
    is_tcp
        && [34, 36]
            .iter()
            .any(|&at| frame[at..at + 2] == FIRST.to_be_bytes())
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

struct Crowd {
    pair: Pair,
    /// Ids at the client and at the server.
    all: Vec<(SocketId, SocketId)>,
}

impl Crowd {
    fn open(count: usize) -> Self {
        let mut config = StackConfig {
            connections: count as u32 + 1,
            ports: PORTS,
            // For what is at work at once, acknowledged or not.
            sent_frames: 16 * AT_ONCE,
            send_chunks: 8 * AT_ONCE as u32,
            ..small()
        };
        config.time_wait.limit = count;
        // Those whose peer is gone need not be tried for a quarter of an hour.
        (config.tcp.retries, config.tcp.orphan_retries) = (3, 3);
        let mut pair = Pair::with(&config, &config);
        acquaint(&mut pair);
        let mut all = Vec::with_capacity(count);
        let per_port = PORTS.len();
        for (number, first) in (0..count).step_by(per_port).enumerate() {
            let now_ns = pair.now_ns;
            let port = Self::port(number);
            let listen = Listen {
                half_open: u32::MAX,
                ..Listen::on(port)
            };
            let listener = pair.ends[1].io(now_ns).listen(listen).unwrap();
            let mut left = per_port.min(count - first);
            while left > 0 {
                let some = left.min(AT_ONCE);
                let now_ns = pair.now_ns;
                let mut io = pair.ends[0].io(now_ns);
                let opened = (0..some).map(|_| io.connect(None, Pair::at(1, false, port)).unwrap());
                let clients: Vec<_> = opened.collect();
                pair.calm();
                let now_ns = pair.now_ns;
                let local = |pair: &mut Pair, client| {
                    let addresses = pair.ends[0].io(now_ns).addresses(client);
                    addresses.unwrap().0
                };
                let mut servers = HashMap::new();
                let mut io = pair.ends[1].io(now_ns);
                while let Some((server, remote)) = io.accept(listener) {
                    servers.insert(remote, server);
                }
                for client in clients {
                    let server = servers.remove(&local(&mut pair, client));
                    all.push((client, server.expect("it was accepted")));
                }
                left -= some;
            }
        }
        Self { pair, all }
    }

    /// Outside of the client's ports.
    fn port(number: usize) -> u16 {
        match number {
            0 => FIRST,
            _ => PORTS.end() + number as u16,
        }
    }

    /// A question and its answer on each of some connections.
    fn ask(&mut self, range: std::ops::Range<usize>) {
        for at in range.clone().step_by(AT_ONCE) {
            let some = at..range.end.min(at + AT_ONCE);
            for from in [0, 1] {
                let now_ns = self.pair.now_ns;
                for number in some.clone() {
                    let ids = [self.all[number].0, self.all[number].1];
                    let text = (number as u64).to_be_bytes();
                    let written = self.pair.ends[from].io(now_ns).write(ids[from], &text);
                    assert_eq!(written, Ok(8));
                }
                self.pair.calm();
                let now_ns = self.pair.now_ns;
                for number in some.clone() {
                    let ids = [self.all[number].0, self.all[number].1];
                    let mut room = [0; 16];
                    let read = self.pair.ends[1 - from]
                        .io(now_ns)
                        .read(ids[1 - from], &mut room);
                    assert_eq!(
                        (read, &room[..8]),
                        (Ok(8), &(number as u64).to_be_bytes()[..])
                    );
                }
            }
        }
    }

    fn close(&mut self, range: std::ops::Range<usize>) {
        for at in range.clone().step_by(AT_ONCE) {
            for end in [0, 1] {
                let now_ns = self.pair.now_ns;
                for &(client, server) in &self.all[at..range.end.min(at + AT_ONCE)] {
                    let id = [client, server][end];
                    self.pair.ends[end].io(now_ns).close(id);
                }
                self.pair.calm();
            }
        }
    }

    fn connections(&self) -> [u32; 2] {
        self.pair.ends.each_ref().map(|end| end.stack.connections())
    }
}

fn live_and_die(count: usize) {
    let before = resident_bytes();
    let begin = std::time::Instant::now();
    let mut crowd = Crowd::open(count);
    assert_eq!(crowd.connections(), [count as u32; 2]);
    crowd.ask(0..count);
    let bytes = resident_bytes().saturating_sub(before);
    println!(
        "{count} connections opened and used in {:.1} s, {} bytes resident for each, of two ends",
        begin.elapsed().as_secs_f64(),
        bytes / count as u64
    );
    // Of the second half one half is closed as it should be, the other reset.
    let (half, three) = (count / 2, count * 3 / 4);
    crowd.close(half..three);
    for number in three..count {
        let now_ns = crowd.pair.now_ns;
        let client = crowd.all[number].0;
        crowd.pair.ends[0].io(now_ns).abort(client);
        if number % AT_ONCE == 0 {
            crowd.pair.calm();
        }
    }
    crowd.pair.calm();
    for number in three..count {
        let now_ns = crowd.pair.now_ns;
        let server = crowd.all[number].1;
        let mut io = crowd.pair.ends[1].io(now_ns);
        assert_eq!(io.error(server), Some(Error::Reset));
        io.close(server);
    }
    assert_eq!(crowd.connections(), [half as u32; 2]);
    // A peer is killed: nothing of the first port arrives any more. Whoever has written to it gives
    // up, and nobody else notices.
    let killed = half.min(PORTS.len()) / 2;
    let others = crowd.all[killed..half].len();
    for number in 0..killed {
        let now_ns = crowd.pair.now_ns;
        let (client, server) = crowd.all[number];
        // A thousand at a time have something under way: there are only so many records.
        if number % 1000 == 0 && number > 0 {
            crowd.pair.pass(60 * S);
        }
        if number == 0 {
            crowd.pair.loses = Box::new(is_of_first);
        }
        for (end, id) in [(0, client), (1, server)] {
            let written = crowd.pair.ends[end].io(now_ns).write(id, b"hello?");
            assert_eq!(written, Ok(6), "{number}");
        }
    }
    crowd.pair.pass(60 * S);
    for number in 0..killed {
        let now_ns = crowd.pair.now_ns;
        let (client, server) = crowd.all[number];
        for (end, id) in [(0, client), (1, server)] {
            let mut io = crowd.pair.ends[end].io(now_ns);
            assert_eq!(io.error(id), Some(Error::TimedOut), "{number}");
            io.close(id);
        }
    }
    assert_eq!(crowd.connections(), [others as u32; 2]);
    crowd.pair.loses = Box::new(|_| false);
    crowd.ask(killed..half);
    // The port of the server is deleted with what is left; both ends close into nothing.
    let Station { stack, out, .. } = &mut crowd.pair.ends[1];
    let interface = stack.host().interface_of(0).unwrap();
    assert!(stack.host().remove_interface(interface, out));
    for at in (killed..half).step_by(AT_ONCE) {
        for number in at..half.min(at + AT_ONCE) {
            let now_ns = crowd.pair.now_ns;
            let (client, server) = crowd.all[number];
            crowd.pair.ends[0].io(now_ns).close(client);
            crowd.pair.ends[1].io(now_ns).close(server);
        }
        crowd.pair.pass(60 * S);
    }
    crowd.pair.pass(200 * S);
    assert_eq!(crowd.connections(), [0; 2]);
    for end in &mut crowd.pair.ends {
        assert_eq!(end.stack.lingering(), 0);
        is_home(end);
    }
    println!(
        "all of them ended after {:.1} s",
        begin.elapsed().as_secs_f64()
    );
}

#[test]
fn connections_that_end_in_every_way_leave_nothing() {
    live_and_die(4000);
}

/// `LINERATE_CONNECTIONS` is how many; ten million take 10 GiB.
#[test]
#[ignore = "long: a minute or more, and 1 GiB"]
fn a_million_connections_that_end_in_every_way_leave_nothing() {
    let count = std::env::var("LINERATE_CONNECTIONS");
    let count = count.ok().and_then(|count| count.parse().ok());
    live_and_die(count.unwrap_or(1_000_000));
}
