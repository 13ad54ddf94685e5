//! What nodes of a mobile core hear: any message of GTP-C, of Diameter, of S1 control; and any
//! messages, from anybody, at nodes with a few users.

use linerate_epc::gtp::{self, endpoint::EndpointConfig};
use linerate_epc::hss::{Hss, HssConfig, Subscribers};
use linerate_epc::mme::{Mme, MmeConfig};
use linerate_epc::pending::Patience;
use linerate_epc::pgw::{Pgw, PgwConfig};
use linerate_epc::s6a::{self, Identity, Subscription};
use linerate_epc::sgw::{BufferConfig, Sgw, SgwConfig};
use linerate_epc::{Cores, Link, Node, Notice, Sink, s1};
use linerate_wire::diameter::{self, Diameter};
use linerate_wire::gtpc::{Gtpc, IE_HEADER_LEN, ie};
use std::net::{Ipv4Addr, SocketAddrV4};

/// A datagram of GTP-C: what is read stays within it.
pub(crate) fn gtpc(input: &[u8]) {
    let Ok(message) = Gtpc::new_checked(input) else {
        return;
    };
    assert_eq!(message.header_len() + message.body().len(), message.len());
    assert!(message.len() <= input.len() && !message.to_string().is_empty());
    let mut walked = 0;
    for ie in message.ies() {
        match ie {
            Ok(ie) => walked += IE_HEADER_LEN + ie.value.len(),
            Err(_) => walked = message.body().len(),
        }
    }
    assert_eq!(walked, message.body().len());
    if let Ok(found) = gtp::Contents::read(&message) {
        // What was read is read again from what is written of it.
        let mut bytes = [0; ie::MAX_LEN];
        if let Some(sender) = found.sender {
            let len = sender.write(&mut bytes);
            assert_eq!(ie::FTeid::read(&bytes[..len]), Some(sender));
        }
        if let Some(paa) = found.paa {
            let len = paa.write(&mut bytes);
            assert_eq!(ie::Paa::read(&bytes[..len]), Some(paa));
        }
        if let Some(imsi) = found.imsi {
            assert_eq!(ie::Imsi::from_text(imsi.to_string().as_bytes()), Some(imsi));
        }
    }
}

/// A stream of Diameter: its messages, one behind the other.
pub(crate) fn diameter(mut input: &[u8]) {
    while let Ok(Some(len)) = diameter::frame(input) {
        let Some((message, rest)) = input.split_at_checked(len) else {
            return;
        };
        let message = Diameter::new_checked(message).expect("it is framed");
        assert_eq!(message.len(), len);
        let _ = (message.to_string(), s6a::Contents::read(&message));
        for avp in message.avps().flatten() {
            avp.avps().for_each(drop);
        }
        input = rest;
    }
}

/// A stream of S1 control: what is read is written as it was, if nothing was skipped.
pub(crate) fn s1_control(mut input: &[u8]) {
    while let Ok(Some(len)) = s1::frame(input) {
        let Some((bytes, rest)) = input.split_at_checked(len) else {
            return;
        };
        if let Ok(message) = s1::Message::read(bytes) {
            let mut room = [0; s1::MAX_LEN];
            let written = message.write(&mut room);
            assert_eq!(s1::Message::read(written), Ok(message));
            assert!(written.len() <= bytes.len());
        }
        input = rest;
    }
}

/// Counts what nodes send.
#[derive(Default)]
struct Counted {
    messages: usize,
    bytes: usize,
}

impl Sink for Counted {
    fn send(&mut self, _: Link, message: &[u8]) {
        self.messages += 1;
        self.bytes += message.len();
    }

    fn tell(&mut self, _: Notice) {}
}

const USERS: usize = 4;

/// Messages at nodes, which are as those of the test that writes the corpus: which node and link,
/// two bytes of length, the message.
pub(crate) fn epc_nodes(mut input: &[u8]) {
    let cores = Cores::new(1).expect("one is a count of cores");
    let [mme, sgw, pgw, hss] = [1, 2, 3, 4].map(|last| Ipv4Addr::new(10, 0, 0, last));
    let who = |host: &str, address| Identity {
        host: host.into(),
        realm: "linerate".into(),
        address,
        restarts: 1,
    };
    let control = |address| EndpointConfig {
        requests: 16,
        peers: 4,
        ..EndpointConfig::new(SocketAddrV4::new(address, 2123))
    };
    let first = ie::Imsi::new(1_010_000_000_001, 15).expect("15 digits");
    let made = "a node of a few users is made";
    let plmn = [0, 0xf1, 0x10];
    let mut nodes = (
        Mme::new(
            &MmeConfig {
                control: control(mme),
                who: who("mme.linerate", mme),
                plmn,
                sgw: SocketAddrV4::new(sgw, 2123),
                pgw,
                apn: "internet".into(),
                users: USERS,
                stations: 4,
                answer_ms: 1000,
                paging: Patience {
                    timeout_ms: 1000,
                    again: 1,
                },
                silence_ms: 30_000,
                secret: 11,
            },
            cores,
            0,
            Link::S6a(0),
            0,
        )
        .expect(made),
        Hss::new(
            &HssConfig {
                who: who("hss.linerate", hss),
                subscribers: vec![Subscribers {
                    first,
                    count: 16,
                    subscription: Subscription::default(),
                }],
                apn: "internet".into(),
                operator: 99,
                users: USERS,
                connections: 4,
                silence_ms: 30_000,
                secret: 13,
            },
            cores,
            0,
        )
        .expect(made),
        Sgw::new(
            &SgwConfig {
                control: control(sgw),
                user: sgw,
                sessions: USERS,
                buffers: BufferConfig {
                    slots: 4,
                    ..BufferConfig::default()
                },
                secret: 14,
            },
            cores,
            0,
            0,
        )
        .expect(made),
        Pgw::new(
            &PgwConfig {
                control: control(pgw),
                user: pgw,
                sessions: USERS,
                addresses: (Ipv4Addr::new(100, 64, 0, 0), 10),
                apn: "internet".into(),
                secret: 15,
            },
            cores,
            0,
            0,
        )
        .expect(made),
    );
    let mut out = Counted::default();
    for link in [Link::S6a(0), Link::S1(0), Link::S1(1)] {
        nodes.0.notice(0, Notice::Opened(link), &mut out);
        nodes.1.notice(0, Notice::Opened(link), &mut out);
    }
    let (mut now, mut heard) = (0, 0);
    while let Some((&[which, high, low], rest)) = input.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
        let (message, rest) = rest.split_at(len);
        let peer = [mme, sgw, pgw, hss][usize::from(which >> 2 & 3)];
        let (c, u) = (SocketAddrV4::new(peer, 2123), SocketAddrV4::new(peer, 2152));
        let link = match which >> 4 & 7 {
            0 | 1 => Link::Gtpc(c),
            2 => Link::Gtpu(u),
            3 => Link::Sgi,
            4 => Link::S6a(u16::from(which >> 7)),
            _ => Link::S1(u16::from(which >> 7)),
        };
        let mut message = message.to_vec();
        now += 100_000_000;
        heard += 1;
        match which & 3 {
            0 => hear(&mut nodes.0, now, link, &mut message, &mut out),
            1 => hear(&mut nodes.1, now, link, &mut message, &mut out),
            2 => hear(&mut nodes.2, now, link, &mut message, &mut out),
            _ => hear(&mut nodes.3, now, link, &mut message, &mut out),
        }
        input = rest;
    }
    assert!(nodes.0.users() <= USERS && nodes.1.users() <= USERS);
    assert!(nodes.2.sessions() <= USERS && nodes.3.sessions() <= USERS);
    // Work is bounded: a message makes a handful, with what is sent again meanwhile.
    assert!(out.messages <= 200 * (heard + 1));
    assert!(out.bytes <= out.messages * 9008);
}

fn hear<N: Node>(node: &mut N, now: u64, link: Link, message: &mut [u8], out: &mut Counted) {
    let cores = Cores::new(1).expect("one is a count of cores");
    let _ = N::owner(cores, link, message);
    node.receive(now, link, message, out);
    node.poll(now, 16, out);
}
