//! Any bytes as netlink messages, and as a stream of FPM frames in two different cuts.

use linerate_wire::fpm::{Flaw, Stream};
use linerate_wire::rtnetlink::{Body, Messages};

pub(crate) fn check(input: &[u8]) {
    messages(input);
    let whole = frames(input, usize::MAX);
    // The first byte chooses the cut, and is a part of the stream too.
    let cut = input.first().map_or(1, |&byte| usize::from(byte) % 61 + 1);
    assert_eq!(frames(input, cut), whole);
    for frame in &whole.0 {
        messages(frame);
    }
}

/// The frames of a stream that comes in pieces of `cut` bytes, what ends it, and what is left.
fn frames(input: &[u8], cut: usize) -> (Vec<Vec<u8>>, Option<Flaw>, usize) {
    let (mut stream, mut frames, mut rest) = (Stream::new(), Vec::new(), input);
    loop {
        loop {
            match stream.frame() {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                // What is left then depends on the cut.
                Err(flaw) => return (frames, Some(flaw), 0),
            }
        }
        if rest.is_empty() {
            return (frames, None, stream.rest());
        }
        let space = stream.space();
        let len = rest.len().min(space.len()).min(cut);
        assert!(len > 0);
        space[..len].copy_from_slice(&rest[..len]);
        stream.filled(len);
        rest = &rest[len..];
    }
}

/// Every message must answer every question, and the walk must end.
fn messages(bytes: &[u8]) {
    let mut read = 0;
    for message in Messages::new(bytes) {
        let Ok(message) = message else { break };
        read += 16 + message.payload.len();
        assert!(read <= bytes.len());
        match message.read() {
            Ok(Body::NewRoute(route) | Body::DelRoute(route)) => {
                let most = if route.destination.is_ipv4() { 32 } else { 128 };
                assert!(route.len <= most);
                assert!(route.vias().count() <= bytes.len());
                assert!(route.vias().all(|via| via.weight > 0));
            }
            Ok(Body::NewNexthop(nexthop) | Body::DelNexthop(nexthop)) => {
                assert_eq!(nexthop.is_group(), nexthop.members().count() > 0);
                assert!(nexthop.members().all(|(_, share)| share > 0));
            }
            Ok(body) => assert!(!format!("{body:?}").is_empty()),
            Err(flaw) => assert!(!flaw.to_string().is_empty()),
        }
    }
}
