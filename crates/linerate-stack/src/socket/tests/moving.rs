//! Connections go from stack to stack while data flows, and lose nothing.

use super::*;

/// A server end of two stacks that take turns in having the connection.
struct Moving {
    pair: Pair,
    other: Station,
}

impl Moving {
    /// The connection goes to the other stack, and what arrives does from now on.
    fn go(&mut self, id: SocketId) -> SocketId {
        let now_ns = self.pair.now_ns;
        let detached = self.pair.ends[1].io(now_ns).detach(id).unwrap();
        assert_eq!(
            self.pair.ends[1].io(now_ns).read(id, &mut [0]),
            Err(Error::NotConnected)
        );
        self.pair.ends[1].out.flush();
        std::mem::swap(&mut self.pair.ends[1], &mut self.other);
        // What the first has sent is on the wire still.
        let sent = std::mem::take(&mut *self.other.line.lock().unwrap());
        self.pair.ends[1].line.lock().unwrap().extend(sent);
        self.pair.ends[1].io(now_ns).attach(detached).unwrap()
    }
}

#[test]
fn a_connection_moves_after_every_few_frames_with_losses() {
    let mut pair = Pair::new();
    let mut count = 0;
    pair.loses = Box::new(move |frame| {
        count += 1;
        frame.len() > 100 && count % 29 == 0
    });
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let (client, mut server) = pair.open(listener, false, 80);
    let mut moving = Moving {
        pair,
        other: Station::new(2, &small()),
    };
    const TOTAL: usize = 300_000;
    let byte = |at: usize| (at % 249) as u8;
    let (mut sent, mut got) = ([0_usize; 2], [0_usize; 2]);
    let mut moves = 0;
    while got != [TOTAL; 2] {
        assert!(moving.pair.now_ns < 2000 * S, "{sent:?} {got:?}");
        let ids = [client, server];
        for end in 0..2 {
            let now_ns = moving.pair.now_ns;
            let mut io = moving.pair.ends[end].io(now_ns);
            let more = (TOTAL - sent[end]).min(9000);
            let bytes: Vec<u8> = (sent[end]..sent[end] + more).map(byte).collect();
            if let Ok(count) = io.write(ids[end], &bytes) {
                sent[end] += count;
            }
            // Not all is read, so that something goes along.
            if moves % 3 == 0 || sent == [TOTAL; 2] {
                let mut buffer = [0; 5000];
                while let Ok(count @ 1..) = io.read(ids[end], &mut buffer) {
                    for &found in &buffer[..count] {
                        assert_eq!(found, byte(got[end]));
                        got[end] += 1;
                    }
                }
            }
        }
        moving.pair.round();
        server = moving.go(server);
        moves += 1;
        if sent == [TOTAL; 2] {
            moving.pair.pass(5 * MS);
        }
    }
    assert!(moves > 100, "{moves}");
    let now_ns = moving.pair.now_ns;
    moving.pair.ends[0].io(now_ns).close(client);
    moving.pair.calm();
    let now_ns = moving.pair.now_ns;
    moving.pair.ends[1].io(now_ns).close(server);
    moving.pair.pass(100 * S);
    // Slots went from one pool to the other stack, so all three are counted together.
    let held = |station: &Station| {
        let out = |pool: &Pool| u64::from(pool.stats().slots - pool.stats().free_shared);
        let out: u64 = station.pools.iter().map(out).sum();
        (
            out,
            station.out.cache.held_total() as u64 + station.stack.held(),
        )
    };
    let all = [&moving.pair.ends[0], &moving.pair.ends[1], &moving.other].map(held);
    let sum = all
        .iter()
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!(sum.0, sum.1);
    for station in [&moving.pair.ends[1], &moving.other] {
        assert_eq!(station.stack.connections(), 0);
        assert_eq!(station.stack.shared.records.used(), 0);
        assert_eq!(station.stack.shared.chunks.in_use(), 0);
    }
}

#[test]
fn a_stack_without_room_gives_it_back() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let (client, server) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    pair.ends[1].io(now_ns).write(server, &[5; 30_000]).unwrap();
    let detached = pair.ends[1].io(now_ns).detach(server).unwrap();
    let config = StackConfig {
        send_chunks: 2,
        ..small()
    };
    let mut narrow = Station::new(2, &config);
    let refused = narrow.io(now_ns).attach(detached).unwrap_err();
    let server = pair.ends[1].io(now_ns).attach(*refused.0).unwrap();
    pair.calm();
    pair.pass(S);
    let now_ns = pair.now_ns;
    assert_eq!(pair.ends[0].io(now_ns).readable(client), 30_000);
    assert!(pair.ends[1].io(now_ns).info(server).is_ok());
}

/// What has come in large slots may be divided into small ones where it goes: a stack that has room
/// for the former and not for the latter gives it back, and nothing that was acknowledged is lost.
#[test]
fn what_came_in_large_slots_is_whole_or_goes_back() {
    for (room, is_taken) in [(24, false), (400, true)] {
        let mut pair = Pair::offloaded();
        let now_ns = pair.now_ns;
        let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
        let (client, server) = pair.open(listener, false, 80);
        let bytes: Vec<u8> = (0..120_000_u32).map(|at| (at % 251) as u8).collect();
        let mut sent = 0;
        while sent < bytes.len() {
            let now_ns = pair.now_ns;
            sent += pair.ends[0]
                .io(now_ns)
                .write(client, &bytes[sent..])
                .unwrap_or(0);
            pair.pass(5 * MS);
        }
        pair.pass(S);
        let now_ns = pair.now_ns;
        assert_eq!(pair.ends[1].io(now_ns).readable(server), bytes.len());
        let pieces = &pair.ends[1].stack.shared.pieces;
        assert!(pieces.large_slots() > 0 && pieces.charged_slots() < 24);
        let detached = pair.ends[1].io(now_ns).detach(server).unwrap();
        let config = StackConfig {
            received_pkts: room,
            received_large: 0,
            ..small()
        };
        let mut other = Station::new(2, &config);
        let attached = other.io(now_ns).attach(detached);
        assert_eq!(attached.is_ok(), is_taken);
        let (station, server) = match attached {
            Ok(server) => (&mut other, server),
            Err(refused) => {
                let server = pair.ends[1].io(now_ns).attach(*refused.0).unwrap();
                (&mut pair.ends[1], server)
            }
        };
        let mut found = vec![0; bytes.len() + 1];
        assert_eq!(station.io(now_ns).read(server, &mut found), Ok(bytes.len()));
        assert_eq!(found[..bytes.len()], bytes);
    }
}

/// A report about what the former stack has sent finds a connection that has sent nothing here.
#[test]
fn a_path_that_takes_less_is_found_out_after_a_move() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let (client, server) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).write(client, &[7; 10_000]).unwrap();
    pair.ends[0].out.flush();
    let frames = std::mem::take(&mut *pair.ends[0].line.lock().unwrap());
    let long = frames.iter().find(|frame| frame.len() > 1014).unwrap();
    let detached = pair.ends[0].io(now_ns).detach(client).unwrap();
    pair.ends[0] = Station::new(1, &small());
    let client = pair.ends[0].io(now_ns).attach(detached).unwrap();
    pair.ends[0].receive(&[super::calls::too_big(long, 1000)], now_ns);
    pair.loses = Box::new(|frame| frame.len() > 1014);
    pair.calm();
    pair.pass(3 * S);
    let now_ns = pair.now_ns;
    assert_eq!(pair.ends[0].io(now_ns).info(client).unwrap().mss, 948);
    assert_eq!(pair.ends[1].io(now_ns).readable(server), 10_000);
}
