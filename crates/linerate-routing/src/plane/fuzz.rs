//! Runs any frames through the router's path: nothing panics, and every slot is freed.
//!
//! The input's first byte is one of 64 configurations, a bit a feature ([`configure`]). Records
//! follow, each a header of eight bytes and a frame:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | bit 0: the port; bit 7: the burst ends behind it |
//! | 1 | offload flags of the packet's metadata |
//! | 2, 3 | its size of segments |
//! | 4 | where its unfinished checksum begins |
//! | 5 | where that goes |
//! | 6, 7 | bytes of the frame |
//!
//! Punts go on to the slow worker, as in the appliance.

use std::cell::RefCell;
use std::sync::Arc;

use linerate_core::packet::{Burst, Offload, Packet};
use linerate_core::run::Stage;
use linerate_stack::neighbour::Config;
use linerate_tables::acl::{Bits, Match4, Match6, Range};

use super::acl::{AccessList, AclRule, Verdict};
use super::settings::{Interface, Policer, PortMap, Settings, Urpf};
use super::testing::{LAN, LAN_MAC, Lab, SLOW, WAN, accounted, interface};
use super::{Fast, Slow};
use crate::model::InterfaceId;

const HEADER_LEN: usize = 8;
/// Flags that a port sets; the others are not known.
const FLAGS: [Offload; 7] = [
    Offload::CSUM_PARTIAL,
    Offload::CSUM_VALID,
    Offload::VLAN,
    Offload::VLAN_8021AD,
    Offload::GSO_TCP4,
    Offload::GSO_TCP6,
    Offload::GSO_UDP,
];

thread_local! {
    /// Tables and pools, made once; stages are new for each input.
    static LAB: RefCell<Option<(Lab, Settings)>> = const { RefCell::new(None) };
}

/// Runs an input; panics where the path breaks a rule.
pub fn check(input: &[u8]) {
    let Some((&configuration, records)) = input.split_first() else {
        return;
    };
    LAB.with_borrow_mut(|lab| {
        let (lab, plain) = lab.get_or_insert_with(|| {
            let lab = Lab::new();
            let plain = lab.settings.clone();
            (lab, plain)
        });
        lab.settings = plain.clone();
        configure(&mut lab.settings, configuration);
        run(lab, records);
        assert_eq!(lab.free_slots(), lab.all_slots(), "a slot is lost");
    });
}

fn run(lab: &mut Lab, mut records: &[u8]) {
    let mut fast = lab.fast();
    let setup = lab.setup();
    let slow = Slow::new(setup, Config::default(), Box::new(drop), &mut lab.egress);
    let mut slow = slow.expect("memory for a test");
    lab.now += 1_000_000_000;
    let mut bursts = [Burst::new(), Burst::new()];
    while let Some((header, rest)) = records.split_first_chunk::<HEADER_LEN>() {
        let len = usize::from(u16::from_le_bytes([header[6], header[7]]));
        let (frame, rest) = rest.split_at(len.min(rest.len()));
        records = rest;
        let burst = &mut bursts[usize::from(header[0] & 1)];
        burst
            .push(packet(lab, header, frame))
            .expect("a burst with room");
        if burst.len() == Burst::CAPACITY || header[0] & 0x80 != 0 {
            pass(lab, &mut fast, &mut slow, &mut bursts);
        }
    }
    pass(lab, &mut fast, &mut slow, &mut bursts);
}

/// Runs both ports' bursts through the fast stage, and its punts through the slow one.
fn pass(lab: &mut Lab, fast: &mut Fast, slow: &mut Slow, bursts: &mut [Burst; 2]) {
    for (port, burst) in (0..).zip(bursts) {
        (burst.port, burst.now) = (port, lab.now);
        fast.run(burst, &mut (), &mut lab.egress);
        accounted(fast);
        assert!(burst.is_empty(), "a stage leaves nothing");
        lab.now += 1000;
    }
    let mut punts = Burst::new();
    loop {
        lab.take_punts(&mut punts);
        if punts.is_empty() {
            break;
        }
        (punts.port, punts.now) = (SLOW, lab.now);
        slow.run(&mut punts, &mut (), &mut lab.egress);
        assert!(punts.is_empty(), "a stage leaves nothing");
    }
    lab.left();
}

fn packet(lab: &mut Lab, header: &[u8; HEADER_LEN], frame: &[u8]) -> Packet {
    let room = lab.room_bytes();
    // A port drops what is shorter than an Ethernet header.
    let mut bytes = frame[..frame.len().min(room)].to_vec();
    bytes.resize(bytes.len().max(14), 0);
    let mut packet = lab.packet(&bytes);
    let [_, flags, gso_low, gso_high, start, offset, ..] = *header;
    let meta = packet.meta_mut();
    for (bit, flag) in FLAGS.into_iter().enumerate() {
        if flags >> bit & 1 != 0 {
            meta.offload.insert(flag);
        }
    }
    meta.gso_size = u16::from_le_bytes([gso_low, gso_high]);
    meta.csum_start = start.into();
    meta.csum_offset = offset;
    meta.vlan_tci = u16::from(start);
    packet
}

/// Bit 0: strict reverse path filtering; 1 and 2: access lists in and out; 3: reassembly; 4: a
/// policer, and proxies; 5: a VLAN, and no redirects.
fn configure(settings: &mut Settings, configuration: u8) {
    let has = |bit: u8| configuration >> bit & 1 != 0;
    for interface in &mut settings.interfaces {
        interface.urpf = if has(0) { Urpf::Strict } else { Urpf::Loose };
        interface.acl_in = has(1).then_some(0);
        interface.acl_out = has(2).then_some(0);
        interface.reassemble = has(3);
        interface.proxy = has(4);
        interface.redirects = !has(5);
        interface.policer = has(4).then_some(Policer {
            rate_bps: 1_000_000,
            burst_bytes: 3000,
        });
    }
    settings.acls = vec![list()];
    if has(5) {
        settings.interfaces.push(Interface {
            vlan: Some(7),
            ..interface("vlan7", LAN.0, LAN_MAC, &["203.0.113.1/24"])
        });
        settings.ports = [(WAN, vec![]), (LAN, vec![(7, InterfaceId(2))])]
            .map(|(id, vlans)| PortMap {
                untagged: Some(id),
                vlans,
            })
            .into();
    }
}

/// Rejects and logs port 53, denies SCTP, permits the rest.
fn list() -> Arc<AccessList> {
    let dns = AclRule {
        v4: Some(Match4 {
            dst_ports: Range::one(53),
            ..Match4::ANY
        }),
        v6: Some(Match6 {
            dst_ports: Range::one(53),
            ..Match6::ANY
        }),
        verdict: Verdict::Reject,
        log: true,
    };
    let sctp = AclRule {
        v4: Some(Match4 {
            protocol: Bits::byte(132),
            ..Match4::ANY
        }),
        v6: None,
        verdict: Verdict::Deny,
        log: false,
    };
    let list = AccessList::new("edge", Verdict::Permit, &[dns, sctp]);
    Arc::new(list.expect("memory for a test"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Frame, udp};
    use super::*;
    use linerate_tables::lpm::synth::Rng;

    /// Sound frames of every kind that the path knows.
    fn frames() -> Vec<Vec<u8>> {
        let fragment = |fragment| Frame {
            fragment,
            payload: udp(64),
            ..Frame::new()
        };
        let echo = |dst| Frame {
            protocol: 1,
            payload: vec![8, 0, 0xf7, 0xff, 0, 0, 0, 0],
            ..Frame::to(dst)
        };
        let extended = Frame {
            protocol: 0,
            options: vec![44, 0, 5, 2, 0, 0, 1, 0, 17, 0, 0, 1, 0, 0, 0, 9],
            ..Frame::new6()
        };
        let routed = Frame {
            options: vec![7, 7, 4, 0, 0, 0, 0, 0],
            ..Frame::new()
        };
        let mut frames: Vec<Vec<u8>> = (1..8)
            .map(|number| format!("10.{number}.0.9"))
            .chain((1..8).map(|number| format!("2001:db8:a{number}::9")))
            .map(|dst| Frame::to(dst.leak()).bytes())
            .collect();
        frames.extend(
            [
                Frame::tcp(2, b""),
                Frame::tcp6(16, b"data"),
                fragment(0x2000),
                fragment(0x0009),
                fragment(0x2001),
                echo("192.0.2.1"),
                echo("10.1.0.9"),
                echo("192.0.2.255"),
                extended,
                routed,
                Frame {
                    ttl: 1,
                    ..Frame::new()
                },
            ]
            .map(|frame| frame.bytes()),
        );
        // Who has 192.0.2.1?
        let mut arp = [[0xff; 6], super::super::testing::HOST_MAC.0].concat();
        arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 0xa7]);
        arp.extend([192, 0, 2, 7, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
        arp.resize(60, 0);
        frames.push(arp);
        frames
    }

    fn record(out: &mut Vec<u8>, rng: &mut Rng, frame: &[u8], is_odd: bool) {
        let mut header = [rng.next_u64() as u8, 0, 0, 0, 0, 0, 0, 0];
        if is_odd {
            header[1..6].copy_from_slice(&rng.next_u64().to_le_bytes()[..5]);
        }
        header[6..].copy_from_slice(&(frame.len() as u16).to_le_bytes());
        out.extend(header);
        out.extend(frame);
    }

    #[test]
    fn changed_frames_through_64_configurations_lose_no_slot() {
        let frames = frames();
        for configuration in 0..64 {
            let seed = 0x11e7_a7e0 + u64::from(configuration);
            println!("seed {seed:#x}");
            let mut rng = Rng::new(seed);
            for round in 0..8 {
                let mut input = vec![configuration];
                for frame in &frames {
                    let mut frame = frame.clone();
                    for _ in 0..round % 4 {
                        let at = rng.next_u64() as usize % frame.len();
                        frame[at] = rng.next_u64() as u8;
                    }
                    if round % 3 == 2 {
                        frame.truncate(rng.next_u64() as usize % frame.len());
                    }
                    record(&mut input, &mut rng, &frame, round >= 4);
                }
                check(&input);
            }
        }
    }
}
