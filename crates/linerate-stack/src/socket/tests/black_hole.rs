//! Paths that drop long frames in silence, over both families, and what later connections know of
//! them (RFC 4821, RFC 9040).

use super::*;

/// Sends `total` bytes, which the other end reads.
fn send(pair: &mut Pair, (client, server): (SocketId, SocketId), total: usize) {
    let (mut written, mut got) = (0, 0);
    let bytes = vec![7; 1 << 16];
    let mut buffer = vec![0; 1 << 16];
    while got < total {
        assert!(pair.now_ns < 500 * S, "{written} {got}");
        let now_ns = pair.now_ns;
        if written < total {
            let more = (total - written).min(bytes.len());
            let mut io = pair.ends[0].io(now_ns);
            written += io.write(client, &bytes[..more]).unwrap_or(0);
        }
        pair.pass(2 * MS);
        let now_ns = pair.now_ns;
        got += pair.ends[1]
            .io(now_ns)
            .read(server, &mut buffer)
            .unwrap_or(0);
    }
}

fn mss(pair: &mut Pair, id: SocketId) -> u16 {
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).info(id).unwrap().mss
}

#[test]
fn rfc_4821_a_path_that_drops_long_frames_carries_data_over_both_families() {
    // Ethernet, IP, TCP and its time stamps in front of what a segment carries.
    for (v6, headers) in [(false, 14 + 20 + 32), (true, 14 + 40 + 32)] {
        let mut pair = Pair::new();
        let now_ns = pair.now_ns;
        let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
        let ids = pair.open(listener, v6, 80);
        assert_eq!(mss(&mut pair, ids.0), 1514 - headers);
        let most = 1300_u16;
        pair.loses = Box::new(move |frame| frame.len() > usize::from(most));
        // A connection that comes before the search has got far begins where that is.
        send(&mut pair, ids, 1_000_000);
        let begun = mss(&mut pair, ids.0);
        let early = pair.open(listener, v6, 80);
        assert_eq!(mss(&mut pair, early.0), begun);
        // Probes that fail are some time apart (RFC 4821 4).
        for _ in 0..8 {
            send(&mut pair, ids, 200_000);
            pair.pass(20 * S);
        }
        let found = mss(&mut pair, ids.0);
        let carries = most - headers;
        assert!(
            (carries - 7..=carries).contains(&found),
            "{found} of {carries}"
        );
        assert!(pair.ends[0].stack.shared.stats.mtu_black_holes > 0);
        // The neighbour was asked whether it is there, and is.
        assert_eq!(pair.ends[0].stack.shared.stats.unanswered, 1);
        // The next one to the same host begins with what was found.
        let next = pair.open(listener, v6, 80);
        assert_eq!(mss(&mut pair, next.0), found);
        send(&mut pair, next, 200_000);
        assert_eq!(
            pair.ends[0].stack.shared.stats.unanswered, 1,
            "no second time"
        );
    }
}

/// RFC 9293 3.8.3 (SHLD-9): who asks is told, and the neighbour is asked (RFC 1122 2.3.2.1 (3)).
#[test]
fn shld_9_an_unanswered_connection_is_told_and_its_neighbour_asked() {
    for v6 in [false, true] {
        let mut pair = Pair::new();
        let now_ns = pair.now_ns;
        let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
        let (client, _) = pair.open(listener, v6, 80);
        let now_ns = pair.now_ns;
        let mut io = pair.ends[0].io(now_ns);
        io.register(client, interest::REPORT, 5).unwrap();
        io.write(client, b"anybody?").unwrap();
        let asked = Arc::new(Mutex::new(0));
        let counts = asked.clone();
        pair.loses = Box::new(move |frame| {
            // A request for the second end's address, by ARP or ND, of the first.
            let is_arp = frame[12..14] == [8, 6] && (frame[31], frame[41]) == (1, 2);
            let is_nd = frame[12..14] == [0x86, 0xdd] && frame[20] == 58 && frame[54] == 135;
            if is_arp || is_nd && (frame[37], frame[77]) == (1, 2) {
                *counts.lock().unwrap() += 1;
            }
            true
        });
        let mut events = [Event::EMPTY; 2];
        pair.pass(S);
        let now_ns = pair.now_ns;
        assert_eq!(pair.ends[0].io(now_ns).poll(&mut events), 0);
        assert_eq!(*asked.lock().unwrap(), 0);
        // RTO 200 ms or so, its doubles: the fourth after 3 s.
        pair.pass(3 * S);
        let now_ns = pair.now_ns;
        assert_eq!(pair.ends[0].io(now_ns).poll(&mut events), 1);
        assert_eq!((events[0].ready, events[0].token), (interest::REPORT, 5));
        assert!(*asked.lock().unwrap() > 0);
    }
}
