//! What must hold for any input of the program itself, as functions over bytes: targets of `fuzz/`.
//!
//! Here for fuzzing alone. `fuzz/tests/replay.rs` replays `fuzz/corpus/NAME` through each.

use crate::apps::{pktgen, router};
use crate::socket::Request;

/// Frames of any bytes, with any metadata, through a router of any of 64 configurations.
pub fn router_path(input: &[u8]) {
    router::plane::fuzz::check(input);
}

/// zebra's stream of routes.
pub fn fpm_stream(input: &[u8]) {
    router::fpm::fuzz::check(input);
}

/// A line to a control socket: it is a request or an error, and a request survives being written.
pub fn control_request(input: &[u8]) {
    let Ok(request) = serde_json::from_slice::<Request>(input) else {
        return;
    };
    let written = serde_json::to_vec(&request).expect("a request is JSON");
    let again: Request = serde_json::from_slice(&written).expect("our own JSON");
    assert_eq!(again, request);
    router::control::fuzz_params(&request.params);
}

/// A request for the page of metrics.
pub fn http_request(input: &[u8]) {
    router::control::fuzz_http(input);
}

/// Commands, run files and ports of the generator.
pub fn pktgen_text(input: &[u8]) {
    pktgen::fuzz(input);
}
