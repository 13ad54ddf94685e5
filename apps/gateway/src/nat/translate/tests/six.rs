//! NAT64 and NPTv6.

use super::*;
use crate::nat::nat64::Prefix64;
use crate::nat::nptv6::Prefixes;
use crate::nat::rules::{Nat64, Nptv6};

/// NAT64 by 64:ff9b::/96 to one address.
fn sixty_four(filtering: Filtering) -> Net {
    let mut config = config(pool("198.51.100.1", "198.51.100.1"));
    config.pools[0].filtering = filtering;
    config.nat64 = vec![Nat64 {
        prefix: Prefix64::well_known(),
        pool: 0,
        from: Place {
            zone: Some(1),
            interface: None,
        },
    }];
    Net::new(config)
}

#[test]
fn rfc_6146_3_5_ipv6_hosts_have_bindings_of_ipv4() {
    let mut net = sixty_four(Filtering::AddressDependent);
    let server = "[64:ff9b::192.0.2.1]:53";
    let a = net.out("[2001:db8::1]:4000", server, UDP).unwrap();
    assert_eq!(a.tuple, tuple("198.51.100.1:4000", "192.0.2.1:53", UDP));
    // One binding for all destinations, and none for others.
    let b = net
        .out("[2001:db8::1]:4000", "[64:ff9b::192.0.2.2]:53", UDP)
        .unwrap();
    assert_eq!((b.tuple.src, net.nat.mappings.len()), (a.tuple.src, 1));
    // Address-dependent filtering (RFC 6146 3.5.1.2): the server's other port may answer.
    let inward = net.back("192.0.2.1:54", "198.51.100.1:4000", UDP).unwrap();
    let expected = tuple("[64:ff9b::192.0.2.1]:54", "[2001:db8::1]:4000", UDP);
    assert_eq!(inward.tuple, expected);
    let other = net.back("192.0.2.3:53", "198.51.100.1:4000", UDP);
    assert_eq!(other, Err(Refused::Filtered));
    let ping = net
        .out("[2001:db8::1]:77", "[64:ff9b::192.0.2.1]:128", 58)
        .unwrap();
    assert_eq!(ping.tuple, tuple("198.51.100.1:77", "192.0.2.1:8", ICMP));
    net.end("192.0.2.1:54", "198.51.100.1:4000", UDP, &inward);
    net.end("[2001:db8::1]:77", "[64:ff9b::192.0.2.1]:128", 58, &ping);
    net.end("[2001:db8::1]:4000", server, UDP, &a);
    net.end("[2001:db8::1]:4000", "[64:ff9b::192.0.2.2]:53", UDP, &b);
    net.nothing_is_taken();
    // Other protocols, other zones, other addresses.
    let esp = net.out("[2001:db8::1]:0", "[64:ff9b::192.0.2.1]:0", 50);
    assert_eq!(esp, Err(Refused::Protocol));
    let outer = net.back("[2001:db8::1]:4000", server, UDP).unwrap();
    assert_eq!(outer.tuple, tuple("[2001:db8::1]:4000", server, UDP));
    let six = net
        .out("[2001:db8::1]:4000", "[2001:db8:9::1]:53", UDP)
        .unwrap();
    assert_eq!(
        (src(&six), six.held),
        ("[2001:db8::1]:4000".into(), Held::NOTHING)
    );
}

#[test]
fn rfc_6146_3_8_hairpins_between_ipv6_hosts() {
    let mut net = sixty_four(Filtering::EndpointIndependent);
    let b = net
        .out("[2001:db8::2]:6000", "[64:ff9b::192.0.2.1]:53", UDP)
        .unwrap();
    let (from, to) = ("[2001:db8::1]:4000", "[64:ff9b::198.51.100.1]:6000");
    let call = net.send(tuple(from, to, UDP), INSIDE, INSIDE).unwrap();
    let expected = tuple("[64:ff9b::198.51.100.1]:4000", "[2001:db8::2]:6000", UDP);
    assert_eq!((call.tuple, net.nat.mappings.len()), (expected, 2));
    // And from an IPv4 host inside.
    let four = tuple("10.0.0.1:5000", "198.51.100.1:6000", UDP);
    let third = net.send(four, INSIDE, INSIDE).unwrap();
    let expected = tuple("[64:ff9b::198.51.100.1]:5000", "[2001:db8::2]:6000", UDP);
    assert_eq!(third.tuple, expected);
    net.nat.release(third.held, &four, &third.tuple, 1, 0);
    net.end(from, to, UDP, &call);
    net.end("[2001:db8::2]:6000", "[64:ff9b::192.0.2.1]:53", UDP, &b);
    net.nothing_is_taken();
    let nobody = net.send(tuple(from, to, UDP), INSIDE, INSIDE);
    assert_eq!(nobody, Err(Refused::NoMapping));
}

#[test]
fn rfc_6296_prefixes_are_exchanged_on_their_way_alone() {
    let (inside, outside) = ("fd01:203:405::/48", "2001:db8:1::/48");
    let prefixes = Prefixes::new(inside.parse().unwrap(), outside.parse().unwrap());
    let to = TO_OUTSIDE;
    let mut net = Net::new(Config {
        nptv6: vec![Nptv6 { prefixes, to }],
        ..Config::default()
    });
    let host = "[fd01:203:405:1::1234]:4000";
    let out = net.out(host, "[2001:db8:9::1]:53", UDP).unwrap();
    assert_eq!(
        (src(&out), out.held),
        ("[2001:db8:1:d550::1234]:4000".into(), Held::NOTHING)
    );
    let back = net
        .back("[2001:db8:9::1]:53", "[2001:db8:1:d550::1234]:4000", UDP)
        .unwrap();
    assert_eq!(back.tuple.dst.to_string(), host);
    let inner = tuple(host, "[fd01:203:405:2::1]:53", UDP);
    assert_eq!(net.send(inner, INSIDE, INSIDE).unwrap().tuple, inner);
    // A packet that turns round has outside addresses at both ends.
    let call = tuple(host, "[2001:db8:1:d551::1]:53", UDP);
    let hairpin = net.send(call, INSIDE, INSIDE).unwrap();
    let expected = tuple(
        "[2001:db8:1:d550::1234]:4000",
        "[fd01:203:405:2::1]:53",
        UDP,
    );
    assert_eq!(hairpin.tuple, expected);
}
