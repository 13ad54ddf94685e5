//! What must hold for any input of the program itself.

use linerate_appliance::socket::Request;

/// Frames of any bytes, with any metadata, through a router of any of 64 configurations.
pub(crate) fn router_path(input: &[u8]) {
    linerate_routing::plane::fuzz::check(input);
}

/// zebra's stream of routes.
pub(crate) fn fpm_stream(input: &[u8]) {
    linerate_routing::fpm::fuzz::check(input);
}

/// A line to a control socket: it is a request or an error, and a request survives being written.
pub(crate) fn control_request(input: &[u8]) {
    let Ok(request) = serde_json::from_slice::<Request>(input) else {
        return;
    };
    let written = serde_json::to_vec(&request).expect("a request is JSON");
    let again: Request = serde_json::from_slice(&written).expect("our own JSON");
    assert_eq!(again, request);
    linerate_appliance::control::fuzz_params(&request.params);
}

/// A request for the page of metrics.
pub(crate) fn http_request(input: &[u8]) {
    linerate_appliance::control::http::fuzz(input);
}

/// Commands, run files and ports of the generator.
pub(crate) fn pktgen_text(input: &[u8]) {
    linerate_pktgen::fuzz(input);
}
