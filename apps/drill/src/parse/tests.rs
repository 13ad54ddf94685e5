//! Scripts to events, and errors with their places.

use super::*;
use crate::fault::Kind;
use crate::packet::{TcpOption, flag};
use crate::script::{Body, Expr, PacketSpec, Quoted, TosSpec};

fn packet(text: &str) -> PacketSpec {
    let script = parse(&format!("+0 {text}")).unwrap();
    match script.events.into_iter().next().unwrap().action {
        Action::Packet(packet) => packet,
        action => panic!("{action:?}"),
    }
}

fn tcp(text: &str) -> crate::script::TcpSpec {
    match packet(text).body {
        Body::Tcp(tcp) => tcp,
        body => panic!("{body:?}"),
    }
}

fn call(text: &str) -> crate::script::CallSpec {
    let script = parse(&format!("+0 {text}")).unwrap();
    match script.events.into_iter().next().unwrap().action {
        Action::Call(call) => call,
        action => panic!("{action:?}"),
    }
}

#[track_caller]
fn fails(text: &str, kind: Kind, line: u32, column: u32) -> String {
    let fault = parse(text).unwrap_err();
    assert_eq!(
        (fault.kind, fault.at),
        (kind, At { line, column }),
        "{fault}"
    );
    fault.to_string()
}

#[test]
fn times_have_five_forms() {
    let script =
        "1.5 > . 1:1(0)\n+.25 > . 1:1(0)\n1~2 > . 1:1(0)\n+1~+2.5 > . 1:1(0)\n* > . 1:1(0)";
    let times: Vec<_> = parse(script)
        .unwrap()
        .events
        .iter()
        .map(|event| event.when)
        .collect();
    assert_eq!(
        times,
        [
            When::Absolute(1_500_000),
            When::Relative(250_000),
            When::AbsoluteRange(1_000_000, 2_000_000),
            When::RelativeRange(1_000_000, 2_500_000),
            When::Any,
        ]
    );
}

#[test]
fn a_segment_has_all_its_parts() {
    let packet = packet(
        "> [ect0] 4000 > 80 FSRPUEW. 5:15(10) ack 7 win 9 urg 3 <mss 1000,nop,wscale 7,sackOK,\
         sack 1:2,TS val 5 ecr 6,eol>",
    );
    assert!(!packet.inbound);
    assert_eq!(packet.ip.tos, TosSpec::Ecn(2));
    assert_eq!(packet.ports, Some((4000, 80)));
    let Body::Tcp(tcp) = packet.body else {
        panic!("no TCP");
    };
    assert_eq!(tcp.flags, 0xff);
    assert_eq!((tcp.seq, tcp.payload_bytes), (5, 10));
    assert_eq!(
        (tcp.ack, tcp.window, tcp.urgent),
        (Some(7), Some(9), Some(3))
    );
    assert_eq!(
        tcp.options.unwrap(),
        [
            TcpOption::Mss(1000),
            TcpOption::Nop,
            TcpOption::WindowScale(7),
            TcpOption::SackPermitted,
            TcpOption::Sack(vec![(1, 2)]),
            TcpOption::Timestamps(5, 6),
            TcpOption::Eol,
        ]
    );
    assert_eq!(
        self::tcp("> . 1:1(0) <FO 0123,FOEXP,md5 01,sack 1:2 3:4>")
            .options
            .unwrap(),
        [
            TcpOption::FastOpen(vec![1, 0x23]),
            TcpOption::FastOpenExperimental(vec![]),
            TcpOption::Md5(vec![1]),
            TcpOption::Sack(vec![(1, 2), (3, 4)]),
        ]
    );
}

#[test]
fn flags_are_letters_a_point_or_a_hyphen() {
    assert_eq!(tcp("> . 1:1(0)").flags, flag::ACK);
    assert_eq!(tcp("> - 1:1(0)").flags, 0);
    assert_eq!(tcp("> FP. 1:1(0)").flags, flag::FIN | flag::PSH | flag::ACK);
    assert_eq!(
        tcp("> SEWA 1:1(0)").flags,
        flag::SYN | flag::ECE | flag::CWR | flag::AE
    );
    assert_eq!(tcp("> . 1:1(0) <...>").options, None);
    assert_eq!(tcp("> . 1:1(0)").options, Some(vec![]));
}

#[test]
fn icmp_and_udp_are_packets_too() {
    let Body::Icmp(icmp) = packet("< icmp unreachable frag_needed mtu 1200 [1:1001(1000)]").body
    else {
        panic!("no ICMP");
    };
    assert_eq!(
        (icmp.kind.as_str(), icmp.code.as_deref()),
        ("unreachable", Some("frag_needed"))
    );
    assert_eq!((icmp.mtu, icmp.quoted), (Some(1200), Quoted::Tcp(1, 1000)));
    let Body::Icmp(icmp) = packet("< [ttl 3] icmp echo_request id 7 [raw(32)]").body else {
        panic!("no ICMP");
    };
    assert_eq!((icmp.ident, icmp.quoted), (Some(7), Quoted::Raw(32)));
    assert_eq!(packet("> udp 1 > 2 (500)").body, Body::Udp(500));
    assert_eq!(packet("> udp (500)").ports, None);
}

#[test]
fn calls_have_arguments_of_all_forms() {
    let read = call(
        "0.5...0.7 read(4, ..., 1000) = 1"
            .strip_prefix("0.5")
            .unwrap(),
    );
    assert_eq!((read.end_us, read.args.len()), (Some(700_000), 3));
    let failed = call("connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)");
    assert_eq!(
        (failed.error.as_deref(), failed.result),
        (Some("EINPROGRESS"), Expr::Int(-1))
    );
    let flags = call("fcntl(3, F_GETFL) = 0x2 (flags O_RDWR)");
    assert_eq!(flags.result, Expr::Int(2));
    let message = call(
        "sendmsg(4, {msg_name(...)=..., msg_iov(2)=[{..., 10}, {..., 20}], msg_flags=0}, A|B) = 30",
    );
    let Expr::Struct(fields) = &message.args[1] else {
        panic!("{message:?}");
    };
    let names: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["msg_name", "msg_iov", "msg_flags"]);
    let words = ["A", "B"].map(|word| Expr::Word(word.into()));
    assert_eq!(message.args[2], Expr::Or(words.to_vec()));
    let address = call(
        "bind(3, {sa_family = AF_INET, sin_port = htons(80), sin_addr = inet_addr(\"10.0.0.1\")}, \
         ...) = 0",
    );
    assert!(matches!(&address.args[1], Expr::Struct(fields) if fields.len() == 3));
}

#[test]
fn options_commands_code_and_comments() {
    let script = parse(
        "// a comment\n--ip_version=ipv6\n--define=N=5\n/* another\none */ `first\nline`\n\
         0 `sysctl x`\n+0 %{ assert tcpi_unacked == 1 }%\n+0 listen(3, N) = 0\n`last`\n",
    )
    .unwrap();
    assert_eq!(script.options[0].1.as_deref(), Some("ipv6"));
    assert_eq!(script.init.unwrap().0, "first\nline");
    assert_eq!(script.cleanup.unwrap().0, "last");
    assert_eq!(script.events.len(), 3);
    let Action::Call(call) = &script.events[2].action else {
        panic!("no call");
    };
    assert_eq!(call.args[1], Expr::Int(5));
}

#[test]
fn errors_have_place_and_fix() {
    let said = fails("+0 < S 0:10(0) win 1000", Kind::Syntax, 1, 8);
    assert_eq!(said, "1:8: 0:10 is not 0 bytes; write 0:0(0)");
    fails("", Kind::Syntax, 0, 0);
    fails("+0 < S 0:0(0)", Kind::Syntax, 1, 6);
    fails("+0 > X 0:0(0)", Kind::Syntax, 1, 6);
    fails("+0 > . 1:1(0) ack 1 <mss 70000>", Kind::Syntax, 1, 26);
    fails("+0 > . 1:1(0) <foo>", Kind::Syntax, 1, 16);
    fails("+0 < . 1:1(0) win 1 <...>", Kind::Syntax, 1, 21);
    fails("* < . 1:1(0) win 1", Kind::Syntax, 1, 1);
    fails("2~1 > . 1:1(0)", Kind::Syntax, 1, 1);
    fails("+0 read(4, ..., 1", Kind::Syntax, 1, 17);
    fails("+0 `no end", Kind::Syntax, 1, 4);
    fails(
        "+0 > . 1:1(0) <sack 1:2 3:4 5:6 7:8,TS val 1 ecr 2>",
        Kind::Syntax,
        1,
        16,
    );
    fails(
        &format!("+0 f({}) = 0", "[".repeat(100)),
        Kind::Syntax,
        1,
        38,
    );
    fails("+0 < icmp unreachable [udp(65535)]", Kind::Syntax, 1, 28);
    fails("-1 > . 1:1(0)", Kind::Syntax, 1, 1);
    fails("+0 > gre: . 1:1(0)", Kind::Unsupported, 1, 6);
    fails("+0 %{ import os }%", Kind::Unsupported, 1, 4);
    fails("+0 > . 1:1(0) <ECN e0b 1>", Kind::Unsupported, 1, 16);
}
