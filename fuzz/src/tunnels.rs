//! Any frame: what its tunnels carry and its ICMP errors quote lies in what is around it.

use linerate_wire::{
    Headers, geneve::Geneve, gre::Gre, gtpu::Gtpu, mpls::LabelStack, parse, parse_tunnelled,
    sctp::Sctp, vxlan::Vxlan,
};

pub(crate) fn check(frame: &[u8]) {
    views(frame);
    let Ok(found) = parse_tunnelled(frame) else {
        return assert!(parse(frame).is_err());
    };
    assert_eq!(parse(frame), Ok(found.outer));
    let mut around = found.outer;
    answers(frame, &around);
    for tunnel in found.tunnels() {
        assert!(around.l3 <= tunnel.header && tunnel.header <= around.end);
        views(&frame[tunnel.header..around.end]);
        assert_eq!(around.tunnel(frame), Ok(Some(*tunnel)));
        let Some(inner) = tunnel.inner else {
            continue;
        };
        assert!(
            tunnel
                .l2
                .is_none_or(|l2| tunnel.header <= l2 && l2 + 14 <= inner.l3)
        );
        assert!(tunnel.header <= inner.l3 && inner.l3 <= inner.end && inner.end <= around.end);
        around = inner;
        answers(frame, &around);
    }
    assert_eq!(around, *found.innermost());
}

/// What classifiers ask of a packet, and of what it quotes.
fn answers(frame: &[u8], headers: &Headers) {
    assert_eq!(
        headers.flow_key(frame).is_some(),
        headers.protocol.is_some()
    );
    assert_eq!(headers.dscp(frame).is_some(), headers.protocol.is_some());
    let _ = (headers.tcp_flags(frame), headers.fragment());
    let quoted = headers.quoted(frame);
    let flow = headers.icmp_error_flow(frame);
    assert_eq!(flow.is_err(), quoted.is_err());
    if let Ok(Some(quoted)) = quoted {
        assert!(headers.icmp_type_code(frame).is_some());
        assert!(headers.l4.is_some_and(|l4| l4 + 8 == quoted.l3));
        assert!(quoted.l3 < quoted.end && quoted.end <= headers.end);
        assert!(
            quoted
                .l4
                .is_none_or(|l4| quoted.l3 < l4 && l4 <= quoted.end)
        );
        assert_eq!(
            quoted.flow_key(frame).map(|key| key.reversed()),
            flow.unwrap_or_default()
        );
    }
}

/// Every view that takes these bytes must answer every question about them.
fn views(bytes: &[u8]) {
    let text = [
        Sctp::new_checked(bytes).map(|v| format!("{v} {}", v.verify())),
        Vxlan::new_checked(bytes).map(|v| format!("{v} {:?}", v.payload())),
        Geneve::new_checked(bytes).map(|v| format!("{v} {:?}", v.payload())),
        Gre::new_checked(bytes).map(|v| format!("{v} {:?} {}", v.payload(), v.verify())),
        LabelStack::new_checked(bytes).map(|v| format!("{v} {:?}", v.payload_type())),
        Gtpu::new_checked(bytes).map(|v| format!("{v} {:?}", v.payload_type())),
    ];
    for answer in text {
        let answer = answer.unwrap_or_else(|reason| reason.to_string());
        assert!(!answer.is_empty());
    }
}
