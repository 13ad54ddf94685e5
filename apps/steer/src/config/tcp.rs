//! `[tcp]`: sizes and settings of each lcore's stack.

use linerate_appliance::config::Section;
use linerate_stack::host::MAX_DSCP;
use linerate_stack::socket::StackConfig;
use linerate_stack::tcp::config::EcnMode;
use linerate_stack::tcp::congestion::{Algorithm, Congestion};
use linerate_stack::tcp::mtu_search::MtuProbing;

use super::said;

/// Bytes of a connection's buffers at most.
const MOST_BUFFER: u32 = 1 << 30;

const ECN: [(&str, EcnMode); 3] = [
    ("off", EcnMode::Off),
    ("accept", EcnMode::Accept),
    ("request", EcnMode::Request),
];

const MTU_PROBING: [(&str, MtuProbing); 3] = [
    ("off", MtuProbing::Off),
    ("black-hole", MtuProbing::BlackHole),
    ("on", MtuProbing::On),
];

/// Reads it; what it does not say is as the stack has it.
pub(super) fn read(file: &Section<'_>) -> StackConfig {
    let mut stack = StackConfig::default();
    let Some(section) = file.table("tcp", "tcp", "a table: [tcp]") else {
        return stack;
    };
    let switch = |key, to: &mut bool| {
        if let Some(value) = said(section.switch(key)) {
            *to = value;
        }
    };
    let tcp = &mut stack.tcp;
    switch("sack", &mut tcp.sack);
    switch("timestamps", &mut tcp.timestamps);
    switch("window_scaling", &mut tcp.window_scaling);
    switch("rack", &mut tcp.rack);
    switch("frto", &mut tcp.frto);
    switch("pacing", &mut tcp.pacing);
    switch("keepalive", &mut tcp.keepalive);
    // None of the applications opens a connection with data that may come twice.
    switch("fast_open", &mut tcp.fast_open.server);
    switch("path_metrics", &mut tcp.path_metrics);
    switch("slow_start_after_idle", &mut tcp.slow_start_after_idle);
    if let Some(ecn) = said(section.choice("ecn", &ECN)) {
        tcp.ecn = ecn;
    }
    if let Some(mtu_probing) = said(section.choice("mtu_probing", &MTU_PROBING)) {
        tcp.mtu_probing = mtu_probing;
    }
    let names = Algorithm::NAMES.map(|name| (name, name));
    let algorithm = said(section.choice("congestion", &names));
    if let Some(algorithm) = algorithm.and_then(Algorithm::from_name) {
        tcp.algorithm = algorithm;
    }
    let number = |key, range| said(section.number::<u32>(key, range));
    for (key, to) in [
        ("receive_bytes", &mut tcp.receive_bytes),
        ("receive_bytes_max", &mut tcp.receive_bytes_max),
        ("send_bytes_max", &mut tcp.send_bytes_max),
    ] {
        if let Some(value) = number(key, 4096..=MOST_BUFFER) {
            *to = value;
        }
    }
    for (key, to) in [
        ("syn_retries", &mut tcp.syn_retries),
        ("syn_ack_retries", &mut tcp.syn_ack_retries),
        ("retries1", &mut tcp.retries1),
        ("retries", &mut tcp.retries),
        ("orphan_retries", &mut tcp.orphan_retries),
        ("keep_count", &mut tcp.keep_count),
    ] {
        if let Some(value) = said(section.number(key, 1..=30_u8)) {
            *to = value;
        }
    }
    for (key, to) in [
        ("keep_idle", &mut tcp.keep_idle_s),
        ("keep_interval", &mut tcp.keep_interval_s),
    ] {
        if let Some(value) = said(section.number(key, 1..=32_767_u16)) {
            *to = value;
        }
    }
    if let Some(dscp) = said(section.number("dscp", 0..=MAX_DSCP)) {
        tcp.dscp = dscp;
    }
    if let Some(ttl) = said(section.number("ttl", 1..=u8::MAX)) {
        tcp.ttl = ttl;
    }
    if let Some(value) = number("fin_timeout", 1..=3600) {
        tcp.fin_timeout_ms = value * 1000;
    }
    if tcp.receive_bytes > tcp.receive_bytes_max {
        let problem = format!("it is below receive_bytes, {}", tcp.receive_bytes);
        section.wrong(
            section.line,
            "receive_bytes_max",
            problem,
            "as much or more",
        );
    }
    for (key, to) in [
        ("connections", &mut stack.connections),
        ("send_chunks", &mut stack.send_chunks),
        ("received_packets", &mut stack.received_pkts),
    ] {
        if let Some(value) = number(key, 16..=1 << 24) {
            *to = value;
        }
    }
    if let Some(value) = number("sent_frames", 16..=1 << 24) {
        stack.sent_frames = value as usize;
    }
    if let Some(value) = number("challenges_per_second", 0..=1_000_000) {
        stack.challenges_per_s = value;
    }
    let legal = "two ports such as \"32768-60999\"";
    if let Some(value) = said(section.read("ports", legal, ports)) {
        stack.ports = value;
    }
    section.end();
    stack
}

/// Sizes of what is allocated at the start: these keys cannot change while connections live.
pub(crate) const FIXED: [&str; 4] = [
    "tcp.connections",
    "tcp.send_chunks",
    "tcp.received_packets",
    "tcp.sent_frames",
];

/// The keys that say another thing in `new`. What is no key of the file is not compared: secrets,
/// and what the program makes of sizes.
pub(crate) fn differences(old: &StackConfig, new: &StackConfig) -> Vec<String> {
    let values = |stack: &StackConfig| {
        let tcp = &stack.tcp;
        let number = u64::from;
        [
            ("sack", number(tcp.sack)),
            ("timestamps", number(tcp.timestamps)),
            ("window_scaling", number(tcp.window_scaling)),
            ("rack", number(tcp.rack)),
            ("frto", number(tcp.frto)),
            ("pacing", number(tcp.pacing)),
            ("keepalive", number(tcp.keepalive)),
            ("fast_open", number(tcp.fast_open.server)),
            ("path_metrics", number(tcp.path_metrics)),
            ("slow_start_after_idle", number(tcp.slow_start_after_idle)),
            ("ecn", tcp.ecn as u64),
            ("mtu_probing", tcp.mtu_probing as u64),
            ("receive_bytes", tcp.receive_bytes.into()),
            ("receive_bytes_max", tcp.receive_bytes_max.into()),
            ("send_bytes_max", tcp.send_bytes_max.into()),
            ("syn_retries", tcp.syn_retries.into()),
            ("syn_ack_retries", tcp.syn_ack_retries.into()),
            ("retries1", tcp.retries1.into()),
            ("retries", tcp.retries.into()),
            ("orphan_retries", tcp.orphan_retries.into()),
            ("keep_count", tcp.keep_count.into()),
            ("keep_idle", tcp.keep_idle_s.into()),
            ("keep_interval", tcp.keep_interval_s.into()),
            ("fin_timeout", tcp.fin_timeout_ms.into()),
            ("dscp", tcp.dscp.into()),
            ("ttl", tcp.ttl.into()),
            ("connections", stack.connections.into()),
            ("send_chunks", stack.send_chunks.into()),
            ("received_packets", stack.received_pkts.into()),
            ("sent_frames", stack.sent_frames as u64),
            ("challenges_per_second", stack.challenges_per_s.into()),
            (
                "ports",
                ((*stack.ports.start() as u64) << 16) | *stack.ports.end() as u64,
            ),
        ]
    };
    let both = values(old).into_iter().zip(values(new));
    let differing = both.filter(|(old, new)| old != new);
    let is_other = old.tcp.algorithm.name() != new.tcp.algorithm.name();
    let keys = differing.map(|((key, _), _)| key);
    keys.chain(is_other.then_some("congestion"))
        .map(|key| format!("tcp.{key}"))
        .collect()
}

fn ports(text: &str) -> Result<std::ops::RangeInclusive<u16>, String> {
    let wrong = || format!("`{text}` is no range of ports");
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let port = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong());
    let (first, last) = (port(first)?, port(last)?);
    match first > 0 && first <= last {
        true => Ok(first..=last),
        false => Err(wrong()),
    }
}
