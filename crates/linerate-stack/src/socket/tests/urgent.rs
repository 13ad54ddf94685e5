//! Urgent data between two stacks (RFC 9293 3.8.5, RFC 6093).

use super::*;

fn pair() -> (Pair, SocketId, SocketId) {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let (client, server) = pair.open(listener, false, 80);
    (pair, client, server)
}

fn left(pair: &mut Pair, id: SocketId) -> Option<u32> {
    let now_ns = pair.now_ns;
    pair.ends[1].io(now_ns).urgent(id).unwrap()
}

fn read(pair: &mut Pair, id: SocketId, len: usize) -> Vec<u8> {
    let (mut bytes, now_ns) = (vec![0; len], pair.now_ns);
    let len = pair.ends[1].io(now_ns).read(id, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

fn at_mark(pair: &mut Pair, id: SocketId) -> bool {
    let now_ns = pair.now_ns;
    pair.ends[1].io(now_ns).is_at_mark(id).unwrap()
}

fn apart(pair: &mut Pair, id: SocketId) -> Result<Option<u8>, Error> {
    let now_ns = pair.now_ns;
    pair.ends[1].io(now_ns).read_urgent(id)
}

fn polled(pair: &mut Pair) -> u8 {
    let (mut events, now_ns) = ([Event::EMPTY; 2], pair.now_ns);
    match pair.ends[1].io(now_ns).poll(&mut events) {
        0 => 0,
        _ => events[0].ready,
    }
}

#[test]
fn rfc_9293_3_8_5_must_32_and_33_the_user_is_told_and_sees_the_end() {
    let (mut pair, client, server) = pair();
    let now_ns = pair.now_ns;
    pair.ends[1]
        .io(now_ns)
        .register(server, interest::URGENT, 1)
        .unwrap();
    pair.ends[0].io(now_ns).write(client, b"before").unwrap();
    pair.calm();
    assert_eq!((polled(&mut pair), left(&mut pair, server)), (0, None));
    let now_ns = pair.now_ns;
    let mut io = pair.ends[0].io(now_ns);
    io.write_urgent(client, b"now!").unwrap();
    io.write(client, b"behind").unwrap();
    pair.calm();
    assert_eq!(polled(&mut pair), interest::URGENT);
    assert_eq!(left(&mut pair, server), Some(10));
    // In line (RFC 6093 6): nothing is taken out of the stream, and a read ends at the mark.
    assert_eq!(read(&mut pair, server, 7), b"beforen");
    assert_eq!(
        (left(&mut pair, server), at_mark(&mut pair, server)),
        (Some(3), false)
    );
    assert_eq!(read(&mut pair, server, 100), b"ow");
    assert_eq!(
        (left(&mut pair, server), at_mark(&mut pair, server)),
        (Some(1), true)
    );
    // MUST-32: and when more of it comes.
    let now_ns = pair.now_ns;
    pair.ends[0]
        .io(now_ns)
        .write_urgent(client, b"more")
        .unwrap();
    pair.calm();
    assert_eq!(left(&mut pair, server), Some(1 + 6 + 4));
    assert_eq!(read(&mut pair, server, 100), b"!behindmor");
    assert_eq!(read(&mut pair, server, 100), b"e");
    assert_eq!((polled(&mut pair), left(&mut pair, server)), (0, None));
    for end in &pair.ends {
        assert!(end.stack.shared.urgents.is_empty(), "acknowledged and read");
    }
}

/// MUST-31: a pointer has 16 bits, urgent data any length.
#[test]
fn rfc_9293_3_8_5_must_31_urgent_data_has_any_length() {
    let (mut pair, client, server) = pair();
    let (mut written, mut got) = (0, 0);
    const LEN: usize = 200_000;
    let bytes = vec![7; LEN];
    let mut most = 0;
    while got < LEN {
        let now_ns = pair.now_ns;
        if written < LEN {
            let mut io = pair.ends[0].io(now_ns);
            written += io.write_urgent(client, &bytes[written..]).unwrap_or(0);
        }
        pair.pass(10 * MS);
        most = most.max(left(&mut pair, server).unwrap_or(0));
        let now_ns = pair.now_ns;
        let mut out = vec![0; 20_000];
        got += pair.ends[1].io(now_ns).read(server, &mut out).unwrap_or(0);
    }
    assert_eq!(got, LEN);
    assert!(most > 65_535, "{most}");
    pair.calm();
    assert_eq!(left(&mut pair, server), None);
}

#[test]
fn what_a_connection_had_goes_with_it() {
    let (mut pair, client, server) = pair();
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).write_urgent(client, b"a").unwrap();
    pair.calm();
    assert_eq!(left(&mut pair, server), Some(1));
    let now_ns = pair.now_ns;
    pair.ends[1].io(now_ns).abort(server);
    pair.calm();
    assert!(pair.ends[1].stack.shared.urgents.is_empty());
}

/// As BSD and Linux by default; RFC 6093 3.1 describes it.
#[test]
fn the_last_urgent_byte_is_kept_apart_where_the_user_wants_it() {
    let (mut pair, client, server) = pair();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    io.set_urgent_apart(server, true).unwrap();
    io.register(server, interest::URGENT, 1).unwrap();
    assert_eq!(apart(&mut pair, server), Ok(None));
    let now_ns = pair.now_ns;
    let mut io = pair.ends[0].io(now_ns);
    io.write(client, b"ab").unwrap();
    io.write_urgent(client, b"c!").unwrap();
    io.write(client, b"de").unwrap();
    pair.calm();
    assert_eq!(polled(&mut pair), interest::URGENT);
    // It can be had before what lies before it; once.
    assert_eq!(apart(&mut pair, server), Ok(Some(b'!')));
    assert_eq!(apart(&mut pair, server), Ok(None));
    assert_eq!((polled(&mut pair), at_mark(&mut pair, server)), (0, false));
    assert_eq!(read(&mut pair, server, 100), b"abc");
    assert!(at_mark(&mut pair, server));
    assert_eq!(read(&mut pair, server, 100), b"de");
    assert!(!at_mark(&mut pair, server));
    // Alone it is nothing to be read; by the calls that give pieces neither.
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).write_urgent(client, b"x?").unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    let mut peeked = [0; 9];
    assert_eq!(io.peek(server, &mut peeked), 1);
    let mut seen = Vec::new();
    let look = |bytes: &[u8]| {
        seen.extend_from_slice(bytes);
        bytes.len()
    };
    assert_eq!(io.consume(server, look), Ok(1));
    assert_eq!(seen, b"x");
    assert_eq!(io.read(server, &mut peeked), Err(Error::WouldBlock));
    assert_eq!(io.readable(server), 0);
    assert_eq!(apart(&mut pair, server), Ok(Some(b'?')));
    assert_eq!(apart(&mut pair, server), Ok(None));
}

/// RFC 9293 3.8.5: the pointer may be ahead of what has come.
#[test]
fn a_pointer_that_was_announced_is_waited_for() {
    let (mut pair, client, server) = pair();
    let now_ns = pair.now_ns;
    pair.ends[1]
        .io(now_ns)
        .set_urgent_apart(server, true)
        .unwrap();
    // The second segment, with the urgent byte, is lost first.
    let mut count = 0;
    pair.loses = Box::new(move |frame| {
        let is_data = frame.len() > 400;
        count += u32::from(is_data);
        is_data && count == 2
    });
    let now_ns = pair.now_ns;
    let mut io = pair.ends[0].io(now_ns);
    io.write_urgent(client, &[7; 2000]).unwrap();
    pair.round();
    assert_eq!(left(&mut pair, server), Some(2000), "it is ahead");
    assert_eq!(apart(&mut pair, server), Err(Error::WouldBlock));
    pair.pass(S);
    assert_eq!(apart(&mut pair, server), Ok(Some(7)));
    assert_eq!(read(&mut pair, server, 4000).len(), 1999);
}

/// A connection that moves takes what is urgent along.
#[test]
fn it_moves_with_its_connection() {
    let (mut pair, client, server) = pair();
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).write_urgent(client, b"ab").unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    let moved = pair.ends[1].io(now_ns).detach(server).unwrap();
    assert!(pair.ends[1].stack.shared.urgents.is_empty());
    let server = pair.ends[1].io(now_ns).attach(moved).unwrap();
    assert_eq!(left(&mut pair, server), Some(2));
    assert_eq!(read(&mut pair, server, 9), b"a");
    assert!(at_mark(&mut pair, server));
}

/// MUST-66: the flag counts while the window is closed; the probe of the window has it.
#[test]
fn must_66_urgent_data_is_announced_through_a_closed_window() {
    let (mut pair, client, server) = pair();
    let bytes = [7; 10_000];
    // More than the peer's buffer, and less than that and ours.
    for _ in 0..16 {
        let now_ns = pair.now_ns;
        assert_eq!(pair.ends[0].io(now_ns).write(client, &bytes), Ok(10_000));
        pair.calm();
    }
    pair.pass(5 * S);
    let now_ns = pair.now_ns;
    let info = pair.ends[0].io(now_ns).info(client).unwrap();
    assert_eq!((info.snd_wnd, info.unacked_bytes), (0, 0), "it is closed");
    let before = info.unsent_bytes;
    let mut io = pair.ends[0].io(now_ns);
    let extra = io.write_urgent(client, b"!").unwrap_or(0);
    assert_eq!((extra, left(&mut pair, server)), (1, None));
    pair.pass(100 * S);
    let waits = u32::try_from(pair.ends[1].io(now_ns).readable(server)).unwrap();
    assert_eq!(left(&mut pair, server), Some(waits + before + 1));
}
