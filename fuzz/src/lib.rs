//! What must hold for any input, as functions over bytes that panic where it does not.
//!
//! One target per untrusted input. `tests/replay.rs` runs them over `corpus/` with the stable
//! toolchain; `libfuzzer/` hunts for new inputs: `fuzz/README.md` says how. A new target is a file
//! here, a row in [`TARGETS`], a folder of seeds and a shim in `fuzz_targets/`.
#![forbid(unsafe_code)]

mod acl_rules;
mod drill_script;
mod epc;
mod filter;
mod gateway_hosts;
mod gateway_nat_quote;
mod gateway_track;
mod headers;
mod http;
mod http_session;
mod icmp_error;
mod neighbour;
mod parse_burst;
mod pcap;
mod privilege;
mod program;
mod reassembly;
mod rtnetlink;
mod segment;
mod tcp_stack;
mod tunnels;

/// A function that panics where an input breaks a promise.
pub type Target = fn(&[u8]);

/// Every target, by the name of its corpus and its shim.
pub const TARGETS: &[(&str, Target)] = &[
    ("headers", headers::check),
    ("tunnels", tunnels::check),
    ("parse_burst", parse_burst::check),
    ("filter", filter::check),
    ("segment", segment::check),
    ("pcap", pcap::check),
    ("acl_rules", acl_rules::check),
    ("drill_script", drill_script::check),
    ("rtnetlink", rtnetlink::check),
    ("neighbour", neighbour::check),
    ("icmp_error", icmp_error::check),
    ("reassembly", reassembly::check),
    ("tcp_stack", tcp_stack::check),
    ("gateway_nat_quote", gateway_nat_quote::check),
    ("privilege", privilege::check),
    ("gateway_track", gateway_track::check),
    ("gateway_sni", gateway_hosts::sni),
    ("gateway_http_host", gateway_hosts::http_host),
    ("af_packet_ring", linerate_drivers::fuzz::af_packet_ring),
    ("memif_messages", linerate_drivers::fuzz::memif_messages),
    ("memif_ring", linerate_drivers::fuzz::memif_ring),
    ("shm_ring", linerate_drivers::fuzz::shm_ring),
    ("virtqueue", linerate_drivers::fuzz::virtqueue),
    ("inflight_record", linerate_drivers::fuzz::inflight_record),
    ("vhost_messages", linerate_drivers::fuzz::vhost_messages),
    ("router_path", program::router_path),
    ("fpm_stream", program::fpm_stream),
    ("control_request", program::control_request),
    ("gtpc", epc::gtpc),
    ("diameter", epc::diameter),
    ("s1_control", epc::s1_control),
    ("epc_nodes", epc::epc_nodes),
    ("http_request", program::http_request),
    ("http_messages", http::messages),
    ("http_session", http_session::check),
    ("pktgen_text", program::pktgen_text),
];

/// Runs the target of that name; what the shims call.
///
/// # Panics
/// Where the input breaks a promise, and where there is no such target.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, check) = target.unwrap_or_else(|| panic!("no fuzz target named {name}"));
    check(input);
}
