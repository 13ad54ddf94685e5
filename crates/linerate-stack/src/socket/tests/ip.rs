//! RFC 9293 3.9.2: what TCP tells IP of its segments: Diffserv field and time to live.

use super::*;
use crate::tcp::config::EcnMode;

/// Of each TCP frame: which end has sent it, its flags, type of service and time to live.
type Fields = Arc<Mutex<Vec<(u8, u8, u8, u8)>>>;

/// All that go over the wire of a pair from now on. `loses` says which of them are lost, by their
/// number.
fn tap(pair: &mut Pair, loses: impl Fn(usize) -> bool + 'static) -> Fields {
    let all = Fields::default();
    let into = all.clone();
    pair.loses = Box::new(move |frame| {
        let (protocol, tos, ttl, l4) = match frame[12..14] {
            [8, 0] => (frame[23], frame[15], frame[22], 34),
            [0x86, 0xdd] => {
                let class = frame[14] << 4 | frame[15] >> 4;
                (frame[20], class, frame[21], 54)
            }
            _ => return false,
        };
        if protocol != 6 {
            return false;
        }
        let mut all = into.lock().unwrap();
        // The last byte of the source's MAC address is the end's number.
        all.push((frame[11] - 1, frame[l4 + 13], tos, ttl));
        loses(all.len() - 1)
    });
    all
}

const SYN: u8 = 2;
const ACK: u8 = 16;
/// DSCP of expedited forwarding (RFC 3246 2.7), and of class selector 1.
const EF: u8 = 46;
const CS1: u8 = 8;

fn options(dscp: u8, ttl: u8) -> IpOptions {
    IpOptions {
        dscp: Some(dscp),
        ttl: Some(ttl),
    }
}

/// A connection whose ends said what they want before it was opened.
fn opened(pair: &mut Pair, v6: bool) -> (SocketId, SocketId) {
    let now_ns = pair.now_ns;
    let listen = Listen {
        ip: options(CS1, 255),
        ..Listen::on(80)
    };
    let listener = pair.ends[1].io(now_ns).listen(listen).unwrap();
    let how = Connect {
        ip: options(EF, 7),
        ..Connect::to(Pair::at(1, v6, 80))
    };
    let (client, _) = pair.ends[0].io(now_ns).open(&how).unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    let (server, _) = pair.ends[1].io(now_ns).accept(listener).unwrap();
    (client, server)
}

#[test]
fn must_48_and_49_every_segment_has_what_its_user_has_set() {
    for v6 in [false, true] {
        let mut pair = Pair::new();
        // Data are lost once, and go again.
        let all = tap(&mut pair, |number| number == 4);
        let (client, server) = opened(&mut pair, v6);
        let now_ns = pair.now_ns;
        pair.ends[0].io(now_ns).write(client, &[1; 5000]).unwrap();
        pair.pass(2 * S);
        let now_ns = pair.now_ns;
        pair.ends[1].io(now_ns).write(server, &[1; 5000]).unwrap();
        pair.pass(2 * S);
        let now_ns = pair.now_ns;
        pair.ends[0].io(now_ns).shutdown(client).unwrap();
        pair.calm();
        // What it ends with: data that nobody reads (RFC 2525 2.17).
        let now_ns = pair.now_ns;
        pair.ends[1].io(now_ns).abort(server);
        pair.calm();
        let all = all.lock().unwrap();
        // SYN, its answer, data, data again, ACKs, a FIN, a reset.
        assert!(all.len() > 12, "{all:?}");
        let flags = all.iter().fold(0, |flags, one| flags | one.1);
        assert_eq!(flags & 0b1_0111, 0b1_0111);
        for &(from, _, tos, ttl) in &*all {
            let expected = [(EF << 2, 7), (CS1 << 2, 255)][usize::from(from)];
            assert_eq!((tos, ttl), expected, "{all:?}");
        }
        let retransmitted = pair.ends[0].stack.tcp_stats().retransmitted;
        assert!(retransmitted > 0);
    }
}

#[test]
fn shld_21_and_22_they_change_while_the_connection_lives_and_go_to_ip_as_they_are() {
    for v6 in [false, true] {
        let mut pair = Pair::new();
        let (client, _) = opened(&mut pair, v6);
        let all = tap(&mut pair, |_| false);
        for (dscp, ttl) in [(0, 64), (1, 1), (63, 128), (32, 255)] {
            let now_ns = pair.now_ns;
            let mut io = pair.ends[0].io(now_ns);
            io.set_dscp(client, dscp).unwrap();
            io.set_ttl(client, ttl).unwrap();
            assert_eq!(io.ip_options(client), Ok(options(dscp, ttl)));
            io.write(client, b"hello").unwrap();
            pair.pass(S);
            let all = std::mem::take(&mut *all.lock().unwrap());
            let own: Vec<_> = all.iter().filter(|one| one.0 == 0).collect();
            assert!(!own.is_empty());
            assert!(own.iter().all(|one| (one.2, one.3) == (dscp << 2, ttl)));
        }
        // A life of nothing is none (RFC 1122 3.2.1.7).
        let now_ns = pair.now_ns;
        let mut io = pair.ends[0].io(now_ns);
        io.set_ttl(client, 0).unwrap();
        assert_eq!(io.ip_options(client), Ok(options(32, 1)));
    }
}

/// RFC 3168 5: the lower two bits are those of ECN, and are the connection's, not the user's.
#[test]
fn must_48_the_bits_of_ecn_are_not_the_users() {
    let config = |ecn| {
        let mut config = small();
        config.tcp.ecn = ecn;
        config
    };
    let mut pair = Pair::with(&config(EcnMode::Request), &config(EcnMode::Accept));
    let all = tap(&mut pair, |_| false);
    let (client, _) = opened(&mut pair, false);
    let now_ns = pair.now_ns;
    // 0xff has both bits of ECN, were it an octet of IP.
    pair.ends[0].io(now_ns).set_dscp(client, 0xff).unwrap();
    pair.ends[0].io(now_ns).write(client, &[1; 5000]).unwrap();
    pair.pass(S);
    let all = all.lock().unwrap();
    let octets: Vec<u8> = all
        .iter()
        .filter(|one| one.0 == 0)
        .map(|one| one.2)
        .collect();
    // The SYN and bare ACKs are not ECT (RFC 3168 6.1.1, 6.1.4); data are.
    assert_eq!(octets[..2], [EF << 2, EF << 2]);
    assert!(octets[2..].contains(&(63 << 2 | 0b10)), "{octets:?}");
    assert!(octets.iter().all(|octet| octet & 1 == 0), "{octets:?}");
}

/// A cookie's answer, and the connection that comes of it, have what the listener says.
#[test]
fn must_48_and_49_also_without_a_record() {
    for v6 in [false, true] {
        let mut pair = Pair::new();
        let all = tap(&mut pair, |_| false);
        let now_ns = pair.now_ns;
        let listen = Listen {
            ip: options(CS1, 9),
            half_open: 0,
            ..Listen::on(80)
        };
        let listener = pair.ends[1].io(now_ns).listen(listen).unwrap();
        let (_, server) = pair.open(listener, v6, 80);
        assert_eq!(pair.ends[1].stack.stats().cookies_good, 1);
        let now_ns = pair.now_ns;
        let mut io = pair.ends[1].io(now_ns);
        assert_eq!(io.ip_options(server), Ok(options(CS1, 9)));
        io.write(server, b"hello").unwrap();
        pair.pass(S);
        let all = all.lock().unwrap();
        let answers: Vec<_> = all.iter().filter(|one| one.0 == 1).collect();
        assert!(answers.iter().any(|one| one.1 == SYN | ACK));
        assert!(answers.len() > 1);
        assert!(answers.iter().all(|one| (one.2, one.3) == (CS1 << 2, 9)));
    }
}

/// The stack's settings are of all that say nothing else: also of resets of no connection.
#[test]
fn must_48_and_49_the_stack_says_what_nobody_else_does() {
    for v6 in [false, true] {
        let mut config = small();
        (config.tcp.dscp, config.tcp.ttl) = (10, 33);
        let mut pair = Pair::with(&config, &config);
        let all = tap(&mut pair, |_| false);
        let now_ns = pair.now_ns;
        let refused = pair.ends[0].io(now_ns).connect(None, Pair::at(1, v6, 81));
        let refused = refused.unwrap();
        pair.calm();
        let now_ns = pair.now_ns;
        assert_eq!(pair.ends[0].io(now_ns).error(refused), Some(Error::Refused));
        let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
        let (client, server) = pair.open(listener, v6, 80);
        let now_ns = pair.now_ns;
        pair.ends[0].io(now_ns).close(client);
        pair.calm();
        let now_ns = pair.now_ns;
        // The client lingers: its last ACK is of a record.
        pair.ends[1].io(now_ns).close(server);
        pair.calm();
        let all = all.lock().unwrap();
        assert!(all.len() > 8);
        assert!(
            all.iter().all(|one| (one.2, one.3) == (10 << 2, 33)),
            "{all:?}"
        );
        drop(all);
        // What changes counts for connections to come.
        pair.ends[0].stack.settings().ttl = 5;
        let now_ns = pair.now_ns;
        let mut io = pair.ends[0].io(now_ns);
        let next = io.connect(None, Pair::at(1, v6, 80)).unwrap();
        assert_eq!(io.ip_options(next), Ok(options(10, 5)));
    }
}

#[test]
fn they_go_along_with_a_connection_that_moves_and_cost_nothing() {
    let mut pair = Pair::new();
    let (_, server) = opened(&mut pair, true);
    let now_ns = pair.now_ns;
    let detached = pair.ends[1].io(now_ns).detach(server).unwrap();
    let mut other = Station::new(2, &small());
    let server = other.io(now_ns).attach(detached).unwrap();
    assert_eq!(other.io(now_ns).ip_options(server), Ok(options(CS1, 255)));
    // An idle one has a slot of so many bytes, whatever it has set.
    assert_eq!(std::mem::size_of::<crate::socket::slots::Slot>(), 104);
}
