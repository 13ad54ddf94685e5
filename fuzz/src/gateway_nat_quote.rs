//! Any frame, as the gateway's NAT meets it: what is translated is what its checksums say it is,
//! with the packet that an ICMP error quotes; what is not translated is as it was.

use linerate_gateway::nat::nat64::{self, Prefix64};
use linerate_gateway::nat::rewrite::{Translation4, Translation6, write_any, write_error};
use linerate_gateway::nat::{Endpoint, Tuple};
use linerate_wire::{EtherType, FlowKey4, FlowKey6, Headers, parse, protocol};

pub(crate) fn check(frame: &[u8]) {
    let Ok(headers) = parse(frame) else { return };
    let translated = match headers.ethertype {
        EtherType::IPV4 => translate4(frame, &headers),
        EtherType::IPV6 => translate6(frame, &headers),
        _ => return,
    };
    if let Some(translated) = translated {
        assert_eq!(translated.len(), frame.len());
        right_stays_right(frame, &headers, &translated);
    }
    change_version(frame, &headers);
}

fn translate4(frame: &[u8], headers: &Headers) -> Option<Vec<u8>> {
    let to = FlowKey4::new([198, 51, 100, 7], [10, 0, 0, 1], 40_000, 9, 6);
    let translation = Translation4::new(&to, &to);
    let mut copy = frame.to_vec();
    let quoted = headers.quoted(frame).ok()?;
    let router = [192, 0, 2, 254];
    let done = match &quoted {
        Some(quoted) => {
            let (to, router) = (translation.to(), Some(&router[..]));
            write_error(&mut copy, headers, quoted, &to, router, false)
        }
        None => write_any(&mut copy, headers, &translation.to(), false),
    };
    settled(frame, copy, done)
}

fn translate6(frame: &[u8], headers: &Headers) -> Option<Vec<u8>> {
    let to = FlowKey6::new([0x20; 16], [0xfd; 16], 40_000, 9, 6);
    let translation = Translation6::new(&to, &to);
    let mut copy = frame.to_vec();
    let quoted = headers.quoted(frame).ok()?;
    let done = match &quoted {
        Some(quoted) => write_error(&mut copy, headers, quoted, &translation.to(), None, false),
        None => write_any(&mut copy, headers, &translation.to(), false),
    };
    settled(frame, copy, done)
}

fn settled(before: &[u8], after: Vec<u8>, done: bool) -> Option<Vec<u8>> {
    if !done {
        assert_eq!(after, before);
    }
    done.then_some(after)
}

/// Of the frame, and of the header that it quotes.
fn right_stays_right(before: &[u8], headers: &Headers, after: &[u8]) {
    let now = parse(after).expect("addresses and ports change no lengths");
    assert_eq!(
        (now.l3, now.l4, now.end),
        (headers.l3, headers.l4, headers.end)
    );
    let pairs = [
        (headers.is_ipv4_right(before), now.is_ipv4_right(after)),
        (headers.is_l4_right(before), now.is_l4_right(after)),
    ];
    for (before, after) in pairs {
        assert!(before != Some(true) || after == Some(true));
    }
    if let (Ok(Some(was)), Ok(Some(is))) = (headers.quoted(before), now.quoted(after)) {
        assert_eq!((was.l3, was.l4, was.end), (is.l3, is.l4, is.end));
    }
}

/// To the other version and whatever is said there of it.
fn change_version(frame: &[u8], headers: &Headers) {
    let prefix = Prefix64::well_known();
    let six: [u8; 16] = prefix.embed([192, 0, 2, 1].into()).octets();
    let tuple = |src: Endpoint, dst: Endpoint| Tuple {
        src,
        dst,
        protocol: protocol::UDP,
    };
    let mut copy = frame.to_vec();
    let front = match headers.ethertype {
        EtherType::IPV4 => {
            let to = tuple(Endpoint::new(six, 53), Endpoint::new([0x20; 16], 4000));
            nat64::four_to_six(&mut copy, headers, &to, &prefix, 1500, false)
        }
        _ => {
            let (src, dst) = ([198, 51, 100, 7], [192, 0, 2, 1]);
            let to = tuple(Endpoint::new(src, 4000), Endpoint::new(dst, 53));
            nat64::six_to_four(&mut copy, headers, &to, 7, 1500, false)
        }
    };
    let Ok(front) = front else { return };
    let mut out = vec![0; 12];
    out.extend(front.ethertype.0.to_be_bytes());
    out.extend(front.bytes());
    out.extend(&copy[headers.l3 + front.replaced..front.end]);
    let now = parse(&out).expect("it is well formed");
    assert_eq!((now.ethertype, now.end), (front.ethertype, out.len()));
    assert_ne!(now.is_ipv4_right(&out), Some(false));
    let was = headers.is_l4_right(frame);
    assert!(was != Some(true) || now.is_l4_right(&out) == Some(true));
}
