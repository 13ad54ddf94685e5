//! What the stack under test sent against what the script expects.

use super::{Layer4, Seen, Segment, TcpOption, build, flag, flag_letters, icmp};
use crate::script::{Body, IcmpSpec, PacketSpec, Quoted, TcpSpec, TosSpec};
use std::net::{IpAddr, SocketAddr};

/// All differences between a packet, whose numbers are the script's, and what the script expects;
/// empty if there are none. `ts_slack` is how far a time stamp may be off; `None`: not checked.
pub(crate) fn differences(spec: &PacketSpec, seen: &Seen, ts_slack: Option<u32>) -> Vec<String> {
    let mut wrong = Vec::new();
    match spec.ip.tos {
        TosSpec::Any => {}
        TosSpec::Ecn(bits) => field(
            &mut wrong,
            "ECN field",
            u32::from(bits),
            u32::from(seen.tos & 3),
        ),
        TosSpec::EitherEct if matches!(seen.tos & 3, 1 | 2) => {}
        TosSpec::EitherEct => wrong.push(format!("ECN field is {}, not ECT", seen.tos & 3)),
        TosSpec::All(tos) => field(
            &mut wrong,
            "type of service",
            u32::from(tos),
            u32::from(seen.tos),
        ),
    }
    if let Some(ttl) = spec.ip.ttl {
        field(
            &mut wrong,
            "time to live",
            u32::from(ttl),
            u32::from(seen.ttl),
        );
    }
    if let Some(label) = spec.ip.flow_label {
        field(&mut wrong, "flow label", label, seen.flow_label);
    }
    match (&spec.body, &seen.layer4) {
        (Body::Tcp(spec), Layer4::Tcp(segment)) => tcp(&mut wrong, spec, segment, ts_slack),
        (Body::Udp(bytes), Layer4::Udp(_, _, payload)) => {
            field(
                &mut wrong,
                "payload",
                u32::from(*bytes),
                payload.len() as u32,
            );
        }
        (Body::Icmp(spec), Layer4::Icmp(kind, code, rest, payload)) => {
            icmp(&mut wrong, spec, seen.src.is_ipv6(), (*kind, *code, *rest));
            if let Quoted::Raw(bytes) = spec.quoted {
                field(&mut wrong, "payload", bytes.into(), payload.len() as u32);
                let is_reply = spec.kind == "echo_reply";
                if is_reply && !build::echoed(bytes).eq(payload.iter().copied()) {
                    wrong.push("the payload is not that of the request".into());
                }
            }
        }
        _ => wrong.push("another protocol".into()),
    }
    wrong
}

fn field(wrong: &mut Vec<String>, name: &str, expected: u32, found: u32) {
    if expected != found {
        wrong.push(format!("{name} is {found}, not {expected}"));
    }
}

fn tcp(wrong: &mut Vec<String>, spec: &TcpSpec, segment: &Segment, ts_slack: Option<u32>) {
    if segment.flags != spec.flags {
        wrong.push(format!(
            "flags are {}, not {}",
            flag_letters(segment.flags),
            flag_letters(spec.flags)
        ));
    }
    field(wrong, "sequence number", spec.seq, segment.seq);
    field(
        wrong,
        "payload",
        spec.payload_bytes,
        segment.payload.len() as u32,
    );
    if spec.flags & flag::ACK != 0 || spec.ack.is_some() {
        field(
            wrong,
            "acknowledgment number",
            spec.ack.unwrap_or(0),
            segment.ack,
        );
    }
    if let Some(window) = spec.window {
        field(
            wrong,
            "window",
            u32::from(window),
            u32::from(segment.window),
        );
    }
    let urgent = spec.urgent.unwrap_or(0);
    field(
        wrong,
        "urgent pointer",
        u32::from(urgent),
        u32::from(segment.urgent),
    );
    if let Some(options) = &spec.options {
        check_options(wrong, options, &segment.options, ts_slack);
    }
}

fn check_options(
    wrong: &mut Vec<String>,
    expected: &[TcpOption],
    found: &[TcpOption],
    ts_slack: Option<u32>,
) {
    let mut padded = expected.to_vec();
    // What a script leaves out at the end is padding (RFC 9293 3.1).
    let len: usize = padded.iter().map(TcpOption::len).sum();
    padded.extend((len..len.next_multiple_of(4)).map(|_| TcpOption::Eol));
    let same = padded.len() == found.len()
        && padded
            .iter()
            .zip(found)
            .all(|(expected, found)| match (expected, found) {
                (TcpOption::Timestamps(value, echo), TcpOption::Timestamps(seen, seen_echo)) => {
                    let off = value.wrapping_sub(*seen).cast_signed().unsigned_abs();
                    echo == seen_echo && ts_slack.is_none_or(|slack| off <= slack)
                }
                _ => expected == found,
            });
    if !same {
        let list = |options: &[TcpOption]| {
            let options: Vec<_> = options.iter().map(ToString::to_string).collect();
            format!("<{}>", options.join(","))
        };
        wrong.push(format!(
            "options are {}, not {}",
            list(found),
            list(expected)
        ));
    }
}

fn icmp(wrong: &mut Vec<String>, spec: &IcmpSpec, is_v6: bool, found: (u8, u8, [u8; 4])) {
    let (kind, code, rest) = found;
    let Some(expected) = icmp::kinds(is_v6)
        .iter()
        .find(|kind| kind.name == spec.kind)
    else {
        wrong.push(format!("no ICMP type is called {:?}", spec.kind));
        return;
    };
    field(
        wrong,
        "ICMP type",
        u32::from(expected.number),
        u32::from(kind),
    );
    if let Some(name) = &spec.code {
        match expected.codes.iter().find(|(code, _)| code == name) {
            Some((_, number)) => field(wrong, "ICMP code", u32::from(*number), u32::from(code)),
            None => wrong.push(format!("no ICMP code is called {name:?}")),
        }
    }
    if let Some(mtu) = spec.mtu {
        field(wrong, "MTU", mtu, u32::from_be_bytes(rest));
    }
    if let Some(ident) = spec.ident {
        let found = u16::from_be_bytes([rest[0], rest[1]]);
        field(wrong, "identifier", ident.into(), found.into());
    }
}

/// Whether an ICMP error quotes a datagram with so many bytes between these two, or its start.
pub(crate) fn quotes_datagram(quoted: &[u8], src: SocketAddr, dst: SocketAddr, bytes: u16) -> bool {
    let (protocol, ends, start) = match quoted.first().map(|byte| byte >> 4) {
        Some(4) => (9, 12..20, usize::from(quoted[0] & 15) * 4),
        Some(6) => (6, 8..40, 40),
        _ => return false,
    };
    let addresses: Vec<u8> = match (src.ip(), dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => [src.octets(), dst.octets()].concat(),
        (IpAddr::V6(src), IpAddr::V6(dst)) => [src.octets(), dst.octets()].concat(),
        _ => return false,
    };
    let words = [src.port(), dst.port(), 8 + bytes];
    let words = words.iter().flat_map(|word| word.to_be_bytes());
    quoted.get(protocol) == Some(&build::UDP)
        && quoted.get(ends) == Some(&addresses[..])
        && quoted
            .get(start..start + 6)
            .is_some_and(|found| words.eq(found.iter().copied()))
}
