//! ARP (RFC 826): received and sent packets.

use std::net::{IpAddr, Ipv4Addr};

use linerate_wire::arp::{self, Arp, Operation};
use linerate_wire::ethernet::{EtherType, Ethernet};
use linerate_wire::ndp::Refused;
use linerate_wire::{MacAddr, vlan};

use super::entries::For;
use super::interface::Interface;
use super::{Ignored, Out, State, Table, can_be_neighbour, is_station};

impl Table {
    /// Takes an ARP frame that came in on an interface, from its Ethernet header on, with or
    /// without VLAN tags. `elsewhere` returns whether an address is reached by another interface;
    /// only proxies call it.
    ///
    /// # Errors
    /// Why the frame was ignored. Anything learned from it before is kept.
    pub fn arp(
        &mut self,
        interface: u16,
        frame: &[u8],
        elsewhere: &dyn Fn(IpAddr) -> bool,
        now_ns: u64,
        out: &mut Out,
    ) -> Result<(), Ignored> {
        let place = self
            .interfaces
            .get(&interface)
            .ok_or(Ignored::NoInterface)?;
        let heard = Heard::new(frame, place)?;
        let (sender, target) = (IpAddr::V4(heard.sender.1), IpAddr::V4(heard.target));
        if place.has(sender) {
            self.rival(interface, sender, heard.sender.0, now_ns, out);
            return Err(Ignored::Conflict);
        }
        let is_probe = sender.is_unspecified();
        if place.is_tentative(target) {
            // RFC 5227 2.1.1: another station probes for the address that we probe for.
            if is_probe && heard.is_request {
                self.rival(interface, target, heard.sender.0, now_ns, out);
            }
            return Err(Ignored::NotForUs);
        }
        let is_ours = place.is_usable(target);
        let is_proxied =
            !is_ours && heard.is_request && !is_probe && sender != target && place.config.proxy;
        let learned = match is_probe {
            true => Ok(()),
            false => self.hear_sender(interface, &heard, is_ours, now_ns, out),
        };
        if !heard.is_request || learned == Err(Ignored::Static) {
            return learned;
        }
        let is_proxied = is_proxied && can_be_neighbour(target) && elsewhere(target);
        if !is_ours && !is_proxied {
            return match learned {
                Ok(()) if !is_probe => Ok(()), // merged
                Ok(()) | Err(Ignored::Unasked) => Err(Ignored::NotForUs),
                other => other,
            };
        }
        if !self.may_reply(now_ns) {
            return Err(Ignored::Limited);
        }
        let mac = heard.own;
        let (says, to) = ((mac, heard.target), heard.sender);
        send(interface, to.0, Operation::Reply, says, to, out);
        Ok(())
    }

    /// RFC 826's merge: the sender's entry is updated; it is added if the request is for us.
    fn hear_sender(
        &mut self,
        interface: u16,
        heard: &Heard,
        is_for_us: bool,
        now_ns: u64,
        out: &mut Out,
    ) -> Result<(), Ignored> {
        let (mac, address) = (heard.sender.0, IpAddr::V4(heard.sender.1));
        let Some(at) = self.entries.find(interface, address) else {
            let place = self.interfaces.get(&interface);
            let may_be_there = place.is_some_and(|place| place.is_on_link(address));
            if !(heard.is_request && is_for_us) {
                return Err(Ignored::Unasked);
            }
            if may_be_there && let Some(at) = self.create(interface, address, For::Asker, out) {
                self.learn(at, mac, false, now_ns, out);
            }
            return Ok(());
        };
        let entry = &self.entries[at];
        let is_awaited = matches!(
            entry.state,
            State::Incomplete | State::Probe | State::Failed
        );
        let is_answer = is_awaited && !heard.is_request && heard.is_to_us && is_for_us;
        self.may_change(at, mac, now_ns)?;
        self.learn(at, mac, is_answer, now_ns, out);
        Ok(())
    }
}

/// A packet that passed the checks.
struct Heard {
    is_request: bool,
    sender: (MacAddr, Ipv4Addr),
    target: Ipv4Addr,
    /// Whether the frame was for us alone.
    is_to_us: bool,
    /// Our MAC address.
    own: MacAddr,
}

impl Heard {
    fn new(frame: &[u8], place: &Interface) -> Result<Self, Ignored> {
        let invalid = |reason| Ignored::Invalid(Refused::Malformed(reason));
        let untagged = vlan::untagged(frame).map_err(invalid)?;
        if untagged.ethertype != EtherType::ARP {
            return Err(Ignored::NotForUs);
        }
        let ethernet = Ethernet::new_checked(frame).map_err(invalid)?;
        let arp = Arp::new_checked(&frame[untagged.offset..]).map_err(invalid)?;
        let (mac, address) = (arp.sender_mac(), arp.sender_ip());
        let own = place.mac();
        if mac == own || ethernet.src() == own {
            return Err(Ignored::Own);
        }
        // RFC 1812 3.3.2: a reply with a broadcast or multicast MAC address is ignored.
        let can_be = address.is_unspecified() || can_be_neighbour(address.into());
        if !is_station(mac) || !is_station(ethernet.src()) || !can_be {
            return Err(Ignored::Sender);
        }
        let is_to_us = ethernet.dst() == own;
        if !is_to_us && !ethernet.dst().is_multicast() {
            return Err(Ignored::NotForUs); // a port in promiscuous mode
        }
        let is_request = match arp.operation() {
            Operation::Request => true,
            Operation::Reply => false,
            Operation::Other(_) => return Err(Ignored::NotForUs),
        };
        Ok(Self {
            is_request,
            sender: (mac, address),
            target: arp.target_ip(),
            is_to_us,
            own,
        })
    }
}

/// Sends an ARP packet from `sender`'s MAC address to `dst`.
pub(super) fn send(
    interface: u16,
    dst: MacAddr,
    operation: Operation,
    sender: (MacAddr, Ipv4Addr),
    target: (MacAddr, Ipv4Addr),
    out: &mut Out,
) {
    let packet = arp::packet(operation, sender, target);
    out.send(interface, (dst, sender.0), EtherType::ARP, [&packet, &[]]);
}
