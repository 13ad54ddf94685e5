//! What changes while connections live.

use super::*;
use crate::tcp::config::Config;
use crate::tcp::congestion::Algorithm;
use crate::tcp::receive::Window;

fn listening() -> (Pair, ListenerId) {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    (pair, listener)
}

#[test]
fn other_settings_are_those_of_connections_to_come() {
    let (mut pair, listener) = listening();
    let (old, old_server) = pair.open(listener, false, 80);
    let mut config = small().tcp;
    (config.timestamps, config.sack) = (false, false);
    config.algorithm = Algorithm::from_name("reno").unwrap();
    let stack = &mut pair.ends[0].stack;
    stack.set_tcp(config);
    stack.set_ports(7..=8);
    let (new, _) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    let mut io = pair.ends[0].io(now_ns);
    let (old_info, info) = (io.info(old).unwrap(), io.info(new).unwrap());
    assert_eq!((info.timestamps, info.sack), (false, false));
    assert_eq!((old_info.timestamps, old_info.sack), (true, true));
    assert_eq!((old_info.algorithm, info.algorithm), ("cubic", "reno"));
    let (local, _) = io.addresses(new).unwrap();
    assert!((7..=8).contains(&local.port()));
    // The old one goes on as its peer knows it.
    io.write(old, &[1; 50_000]).unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    assert_eq!(pair.ends[1].io(now_ns).readable(old_server), 50_000);
    // The other port, and no third.
    pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    let third = pair.ends[0]
        .io(now_ns)
        .connect(None, Pair::at(1, false, 80));
    assert!(third.is_err());
}

#[test]
fn other_challenges_count_from_the_next_second_on() {
    let (mut pair, _) = listening();
    let stack = &mut pair.ends[1].stack;
    assert!(stack.shared.challenges.allow(S));
    stack.set_challenges(0);
    assert!(!stack.shared.challenges.allow(2 * S));
    stack.set_challenges(10);
    assert!(!stack.shared.challenges.allow(2 * S));
    assert!(stack.shared.challenges.allow(3 * S));
}

#[test]
fn connections_of_an_address_that_goes_end_with_a_reset() {
    let (mut pair, listener) = listening();
    let (gone, gone_server) = pair.open(listener, false, 80);
    let (stays, stays_server) = pair.open(listener, true, 80);
    // One of them waits to be accepted, one is half-open, one has closed here already.
    let now_ns = pair.now_ns;
    let mut io = pair.ends[0].io(now_ns);
    io.connect(None, Pair::at(1, false, 80)).unwrap();
    pair.calm();
    let (_, closed_server) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    pair.ends[1].io(now_ns).close(closed_server);
    pair.calm();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    io.register(gone_server, interest::READ, 5).unwrap();
    let address = Pair::at(1, false, 0).ip();
    assert_eq!(io.abort_local(address), 3);
    assert_eq!(io.error(gone_server), Some(Error::Aborted));
    let mut events = [Event::EMPTY; 4];
    let count = io.poll(&mut events);
    let told = events[..count].iter().find(|event| event.token == 5);
    assert!(told.is_some_and(|event| event.ready & interest::ERROR != 0));
    assert_eq!(io.error(stays_server), None);
    io.close(gone_server);
    assert_eq!(io.abort_local(address), 0);
    pair.calm();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[0].io(now_ns);
    assert_eq!(io.read(gone, &mut [0]), Err(Error::Reset));
    assert_eq!(io.read(stays, &mut [0]), Err(Error::WouldBlock));
    pair.ends.iter_mut().for_each(Station::check_slots);
}

#[test]
fn connections_of_a_user_that_has_gone_end_with_a_reset() {
    let (mut pair, listener) = listening();
    let mut all = Vec::new();
    for token in 0..6 {
        let (client, server) = pair.open(listener, token % 2 == 0, 80);
        let now_ns = pair.now_ns;
        let mut io = pair.ends[1].io(now_ns);
        io.register(server, interest::READ, token).unwrap();
        all.push((client, server, token < 3));
    }
    // One that waits to be accepted is nobody's, whatever its token.
    let now_ns = pair.now_ns;
    let mut io = pair.ends[0].io(now_ns);
    let waiting = io.connect(None, Pair::at(1, false, 80)).unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    assert_eq!(io.abort_users(|token| token < 3), 3);
    assert_eq!(io.abort_users(|token| token < 3), 0);
    for &(_, server, is_gone) in &all {
        assert_eq!(io.info(server).is_err(), is_gone);
    }
    pair.calm();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[0].io(now_ns);
    for (client, _, is_gone) in all {
        let expected = if is_gone {
            Error::Reset
        } else {
            Error::WouldBlock
        };
        assert_eq!(io.read(client, &mut [0]), Err(expected));
    }
    assert_eq!(io.read(waiting, &mut [0]), Err(Error::WouldBlock));
    assert!(pair.ends[1].io(now_ns).accept(listener).is_some());
    pair.ends.iter_mut().for_each(Station::check_slots);
}

/// RFC 7323 2.2: the scale is what was told in a SYN or its answer, also where a reload has made
/// `receive_bytes_max` another before the handshake was over: with a record, by a cookie, and of
/// who connects.
#[test]
fn rfc_7323_2_2_a_reload_changes_no_scale_that_was_told() {
    for (half_open, v6, most) in [
        (8, false, 64 << 10),
        (0, false, 64 << 10),
        (0, true, 1 << 28),
        (0, false, 1 << 28),
    ] {
        let mut pair = Pair::new();
        let listen = Listen {
            half_open,
            ..Listen::on(80)
        };
        let now_ns = pair.now_ns;
        let listener = pair.ends[1].io(now_ns).listen(listen).unwrap();
        let mut io = pair.ends[0].io(now_ns);
        let client = io.connect(None, Pair::at(1, v6, 80)).unwrap();
        let mut changed = 0;
        for _ in 0..20 {
            pair.round();
            let now_ns = pair.now_ns;
            let is_sent = pair.ends[0].io(now_ns).info(client).unwrap().state == State::SynSent;
            // The answer is on its way: both have told theirs, and neither has the other's ACK.
            let is_told = pair.ends[1].stack.stats.cookies_sent > 0
                || pair.ends[1].stack.shared.stats.opened_passive > 0;
            if is_sent && is_told && changed == 0 {
                for end in &mut pair.ends {
                    end.stack.settings().receive_bytes_max = most;
                }
                changed += 1;
            }
        }
        assert_eq!(changed, 1);
        let now_ns = pair.now_ns;
        let (server, _) = pair.ends[1].io(now_ns).accept(listener).expect("it waits");
        let client = pair.ends[0].io(now_ns).info(client).unwrap().scales;
        let server = pair.ends[1].io(now_ns).info(server).unwrap().scales;
        let usual = Window::scale_for(Config::default().receive_bytes_max);
        assert_eq!((client, server), ((usual, usual), (usual, usual)));
        assert_ne!(usual, Window::scale_for(most));
    }
}
