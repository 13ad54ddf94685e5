//! The first frames of streams in text, layer by layer and byte by byte, without sending them.

use std::fmt::Write;

use linerate_core::packet::Burst;
use linerate_wire::arp::Arp;
use linerate_wire::ethernet::{EtherType, Ethernet};
use linerate_wire::gre::Gre;
use linerate_wire::gtpu::{self, Gtpu};
use linerate_wire::icmp::Icmp;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::mpls::LabelStack;
use linerate_wire::tcp::Tcp;
use linerate_wire::udp::Udp;
use linerate_wire::vlan::{Vlan, untagged};
use linerate_wire::vxlan::{self, Vxlan};
use linerate_wire::{parse, protocol};

use super::owner::Control;
use super::protocol::Problem;
use crate::signature::Label;
use crate::units::FCS_BYTES;

/// Frames of a stream at most.
const MOST: usize = Burst::CAPACITY;
/// Tunnels in tunnels that are decoded.
const DEEPEST: u32 = 4;

/// The first `frames` of each stream that `port` sends, or that any port does.
pub(super) fn text(
    control: &mut Control,
    port: Option<u16>,
    frames: usize,
) -> Result<String, Problem> {
    if !(1..=MOST).contains(&frames) {
        return Err(Problem::new(
            format!("{frames} frames to show"),
            format!("ask for 1 to {MOST}"),
        ));
    }
    let mut text = String::new();
    let seed = control.session()?.seed();
    for (id, of, spec) in control.specs()? {
        if port.is_some_and(|port| port != of) {
            continue;
        }
        let (src, dst) = control.session()?.macs_of(of);
        let mut stream = spec.compile(id, src, dst, seed)?;
        let _ = writeln!(text, "stream {id} on port {of}: {spec}");
        for (number, frame) in stream.frames(0, frames).iter().enumerate() {
            let _ = writeln!(
                text,
                "  frame {number}, {} bytes with FCS",
                frame.len() + FCS_BYTES
            );
            layers(frame, 0, &mut |line| {
                let _ = writeln!(text, "    {line}");
            });
            if let Some(label) = Label::read(frame) {
                let Label {
                    stream, sequence, ..
                } = label;
                let _ = writeln!(text, "    signature: stream {stream}, sequence {sequence}");
            }
            bytes(frame, &mut text);
        }
    }
    if text.is_empty() {
        return Err(Problem::new(
            "there is no stream to show",
            "add one: `stream add port=0 size=64`",
        ));
    }
    Ok(text)
}

/// Describes each complete layer, outermost first.
fn layers(frame: &[u8], depth: u32, say: &mut impl FnMut(String)) -> Option<()> {
    let ethernet = Ethernet::new_checked(frame).ok()?;
    say(ethernet.to_string());
    let inside = untagged(frame).ok()?;
    for at in (14..inside.offset).step_by(4) {
        say(Vlan::new_checked(&frame[at..]).ok()?.to_string());
    }
    above(inside.ethertype, &frame[inside.offset..], depth, say)
}

/// The same for what an EtherType names.
fn above(
    ethertype: EtherType,
    packet: &[u8],
    depth: u32,
    say: &mut impl FnMut(String),
) -> Option<()> {
    let (kind, segment) = match ethertype {
        EtherType::ARP => {
            say(Arp::new_checked(packet).ok()?.to_string());
            return Some(());
        }
        EtherType::MPLS => {
            let labels = LabelStack::new_checked(packet).ok()?;
            say(labels.to_string());
            return above(labels.payload_type()?, labels.payload(), depth, say);
        }
        EtherType::IPV4 => {
            let ip = Ipv4::new_checked(packet).ok()?;
            say(format!("{ip}{}", wrong(ip.verify())));
            (ip.protocol(), packet.get(ip.header_len()..ip.total_len())?)
        }
        EtherType::IPV6 => {
            let ip = Ipv6::new_checked(packet).ok()?;
            say(ip.to_string());
            let upper = ip.upper_layer().ok()?;
            (upper.protocol, packet.get(upper.offset..ip.total_len())?)
        }
        _ => return Some(()),
    };
    // Checked as a frame of its own.
    let frame = [&[0; 12], &ethertype.0.to_be_bytes()[..], packet].concat();
    let right = || parse(&frame).ok()?.is_l4_right(&frame);
    let wrong = || wrong(right() != Some(false));
    match kind {
        protocol::UDP => {
            let udp = Udp::new_checked(segment).ok()?;
            say(format!("{udp}{}", wrong()));
            match udp.dst_port() {
                vxlan::PORT if depth < DEEPEST => {
                    say(Vxlan::new_checked(udp.payload()).ok()?.to_string());
                    layers(&udp.payload()[8..], depth + 1, say)
                }
                gtpu::PORT if depth < DEEPEST => {
                    let gtpu = Gtpu::new_checked(udp.payload()).ok()?;
                    say(gtpu.to_string());
                    above(gtpu.payload_type()?, gtpu.payload(), depth + 1, say)
                }
                _ => Some(()),
            }
        }
        protocol::GRE if depth < DEEPEST => {
            let gre = Gre::new_checked(segment).ok()?;
            say(gre.to_string());
            match gre.protocol() {
                EtherType::TRANSPARENT_ETHERNET => layers(gre.payload(), depth + 1, say),
                inner => above(inner, gre.payload(), depth + 1, say),
            }
        }
        protocol::TCP => {
            say(format!("{}{}", Tcp::new_checked(segment).ok()?, wrong()));
            Some(())
        }
        protocol::ICMP | protocol::ICMPV6 => {
            say(format!("{}{}", Icmp::new_checked(segment).ok()?, wrong()));
            Some(())
        }
        _ => Some(()),
    }
}

fn wrong(right: bool) -> &'static str {
    if right { "" } else { ", checksum wrong" }
}

/// Sixteen bytes a line, with their offset.
fn bytes(frame: &[u8], text: &mut String) {
    for (row, bytes) in frame.chunks(16).enumerate() {
        let _ = write!(text, "    {:04x} ", row * 16);
        for byte in bytes {
            let _ = write!(text, " {byte:02x}");
        }
        text.push('\n');
    }
}
