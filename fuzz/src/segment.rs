//! Two bytes of segment size, and behind them a frame to split.

use linerate_wire::{
    checksum,
    ipv4::Ipv4,
    ipv6::Ipv6,
    offload::{Segments, looks_partial},
    parse, protocol,
    tcp::Tcp,
    udp::Udp,
};

pub(crate) fn check(input: &[u8]) {
    let Some((size, frame)) = input.split_first_chunk() else {
        return;
    };
    let gso_size = u16::from_be_bytes(*size);
    let Ok(mut segments) = Segments::new(frame, gso_size) else {
        return;
    };
    let (mut buffer, count) = (vec![0; segments.max_len()], segments.remaining());
    let (mut written, mut reassembled) = (0, Vec::new());
    while let Some(len) = segments.write_next(&mut buffer) {
        written += 1;
        let body = valid_body(&buffer[..len]);
        assert!(body.len() <= gso_size.into());
        reassembled.extend_from_slice(body);
    }
    assert_eq!((written, segments.remaining()), (count, 0));
    assert_eq!(reassembled, body(frame));
}

/// The layer-4 payload of a frame that parses as TCP or UDP.
fn body(frame: &[u8]) -> &[u8] {
    let headers = parse(frame).expect("it was split");
    let segment = &frame[headers.l4.expect("has a layer 4")..headers.end];
    if headers.protocol == Some(protocol::TCP) {
        let header_len = Tcp::new_checked(segment).expect("parsed").header_len();
        &segment[header_len..]
    } else {
        let len = Udp::new_checked(segment).expect("parsed").len();
        &segment[8..len]
    }
}

/// The same of a segment, whose checksums must verify.
fn valid_body(frame: &[u8]) -> &[u8] {
    let headers = parse(frame).expect("segments are well formed");
    assert_eq!(headers.end, frame.len());
    let (packet, l4) = (&frame[headers.l3..], headers.l4.expect("has a layer 4"));
    let pseudo = match Ipv4::new_checked(packet) {
        Ok(ip) => {
            assert!(ip.verify());
            ip.pseudo_sum()
        }
        Err(_) => {
            let ip = Ipv6::new_checked(packet).expect("IPv4 or IPv6");
            ip.pseudo_sum(&ip.upper_layer().expect("walked before"))
        }
    };
    assert_eq!(checksum::add(pseudo, checksum::sum(&frame[l4..])), 0xffff);
    let _ = looks_partial(frame);
    body(frame)
}
