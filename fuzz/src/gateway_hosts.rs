//! The first bytes of any connection, read for the host that it asks for: as TLS, as HTTP, and as
//! whichever of them it seems to be. What was decided stands whatever follows.

use linerate_gateway::services::classify::look;
use linerate_gateway::services::host::{Host, Look, MOST_BYTES};
use linerate_gateway::services::{http, tls};

/// Bytes that a classifier looks at.
const MOST: usize = 4096;

pub(crate) fn sni(input: &[u8]) {
    check(input, tls::host);
    check(input, look);
}

pub(crate) fn http_host(input: &[u8]) {
    check(input, http::host);
    check(input, look);
}

fn check(input: &[u8], read: fn(&[u8]) -> Look) {
    let input = &input[..input.len().min(MOST)];
    let whole = read(input);
    if let Look::Found(host) = whole {
        sound(&host);
    }
    // Some prefixes: the replay has all of them.
    for len in (0..input.len()).step_by(input.len() / 8 + 1) {
        match read(&input[..len]) {
            Look::More => {}
            early => assert_eq!(early, whole, "what follows changes nothing"),
        }
    }
}

fn sound(host: &Host) {
    let bytes = host.bytes();
    assert!(!bytes.is_empty() && bytes.len() <= MOST_BYTES);
    let is_shown = |byte: &u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
    assert!(bytes.iter().all(is_shown));
    assert_eq!(host.to_string().as_bytes(), bytes);
    assert!(host.and_above().all(|name| bytes.ends_with(name)));
    // A name is a fixed point, but for a dot at its end.
    assert_eq!(
        Host::of(bytes).is_some(),
        !bytes.ends_with(b".") || bytes.len() > 1
    );
}
