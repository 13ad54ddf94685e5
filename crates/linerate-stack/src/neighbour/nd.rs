//! Neighbor Discovery (RFC 4861 6 and 7): received and sent messages.

use std::net::{IpAddr, Ipv6Addr};

use linerate_wire::ethernet::{EtherType, Ethernet};
use linerate_wire::ndp::{self, Accepted, Message, MessageKind, Refused};
use linerate_wire::{MacAddr, ipv6, protocol, vlan};

use super::entries::For;
use super::table::Reply;
use super::{Ignored, Out, State, Table, can_be_neighbour, is_station};

/// Longest sent message, in bytes behind the IP header.
const MAX_MESSAGE: usize = ipv6::MIN_MTU - ipv6::HEADER_LEN;

impl Table {
    /// Takes a frame with a message of Neighbor Discovery that came in on an interface, from its
    /// Ethernet header on, with or without VLAN tags. `elsewhere` returns whether an address is
    /// reached by another interface; only proxies call it.
    ///
    /// Router advertisements and redirects of others are ignored: this is a router (RFC 4861 8.2).
    ///
    /// # Errors
    /// Why the frame was ignored.
    pub fn ndp(
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
        let malformed = |reason| Ignored::Invalid(Refused::Malformed(reason));
        let untagged = vlan::untagged(frame).map_err(malformed)?;
        if untagged.ethertype != EtherType::IPV6 {
            return Err(Ignored::NotForUs);
        }
        let ethernet = Ethernet::new_checked(frame).map_err(malformed)?;
        let accepted = ndp::accept(&frame[untagged.offset..]).map_err(Ignored::Invalid)?;
        let (own, from) = (place.mac(), ethernet.src());
        let told = accepted
            .message
            .source_mac()
            .or(accepted.message.target_mac());
        if from == own || told == Some(own) {
            return Err(Ignored::Own);
        }
        if !is_station(from) || told.is_some_and(|mac| !is_station(mac)) {
            return Err(Ignored::Sender);
        }
        if ethernet.dst() != own && !ethernet.dst().is_multicast() {
            return Err(Ignored::NotForUs);
        }
        let src = IpAddr::V6(accepted.src);
        if place.is_usable(src) {
            self.rival(interface, src, told.unwrap_or(from), now_ns, out);
            return Err(Ignored::Conflict);
        }
        match accepted.message.kind() {
            MessageKind::NeighbourSolicitation => {
                self.solicitation(interface, from, &accepted, elsewhere, now_ns, out)
            }
            MessageKind::NeighbourAdvertisement => {
                self.advertisement(interface, from, &accepted, now_ns, out)
            }
            MessageKind::RouterSolicitation => {
                self.router_solicitation(interface, &accepted, now_ns, out)
            }
            MessageKind::RouterAdvertisement | MessageKind::Redirect => Err(Ignored::NotForUs),
        }
    }

    /// RFC 4861 7.2.3, 7.2.4; RFC 4862 5.4.3.
    fn solicitation(
        &mut self,
        id: u16,
        from: MacAddr,
        accepted: &Accepted<'_>,
        elsewhere: &dyn Fn(IpAddr) -> bool,
        now_ns: u64,
        out: &mut Out,
    ) -> Result<(), Ignored> {
        let place = self.interfaces.get(&id).ok_or(Ignored::NoInterface)?;
        let (target, src) = (accepted.message.target(), accepted.src);
        let target = target.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let address = IpAddr::V6(target);
        if place.is_tentative(address) {
            // A solicitation of another station's duplicate detection; a mere solicitation gets no
            // answer.
            if src.is_unspecified() {
                self.rival(id, address, from, now_ns, out);
            }
            return Err(Ignored::NotForUs);
        }
        let is_ours = place.is_usable(address);
        // A proxy does not answer duplicate detection, since a default route leads to every
        // address.
        let may_proxy =
            place.config.proxy && !target.is_unicast_link_local() && !src.is_unspecified();
        let is_proxied = !is_ours && may_proxy && can_be_neighbour(address) && elsewhere(address);
        if !is_ours && !is_proxied {
            return Err(Ignored::NotForUs);
        }
        if let (false, Some(mac)) = (src.is_unspecified(), accepted.message.source_mac()) {
            self.hear_source(id, src.into(), mac, false, now_ns, out)?;
        }
        let mac = accepted.message.source_mac().unwrap_or(from);
        let reply = Reply {
            interface: id,
            target,
            to: (!src.is_unspecified()).then_some((src, mac)),
            is_proxy: is_proxied,
        };
        if !self.may_reply(now_ns) {
            return Err(Ignored::Limited);
        }
        match is_proxied && accepted.dst.is_multicast() {
            true => self.reply_later(reply, now_ns),
            false => self.reply(&reply, out),
        }
        Ok(())
    }

    /// RFC 4861 7.2.5; RFC 4862 5.4.4.
    fn advertisement(
        &mut self,
        id: u16,
        from: MacAddr,
        accepted: &Accepted<'_>,
        now_ns: u64,
        out: &mut Out,
    ) -> Result<(), Ignored> {
        let place = self.interfaces.get(&id).ok_or(Ignored::NoInterface)?;
        let message = &accepted.message;
        let address = IpAddr::V6(message.target().unwrap_or(Ipv6Addr::UNSPECIFIED));
        if place.has(address) {
            let mac = message.target_mac().unwrap_or(from);
            self.rival(id, address, mac, now_ns, out);
            return Err(Ignored::Conflict);
        }
        let at = self.entries.find(id, address).ok_or(Ignored::Unasked)?;
        let entry = &self.entries[at];
        let mac = match (message.target_mac(), entry.known_mac()) {
            (Some(mac), _) => mac,
            (None, Some(known)) => known,
            (None, None) => return Err(Ignored::Unasked), // of no use without a MAC address
        };
        if entry.state != State::Static
            && entry.known_mac().is_some_and(|known| known != mac)
            && !message.is_override()
        {
            // Another MAC address without the override flag: the entry is only probed.
            if entry.state == State::Reachable {
                self.doubt(at, now_ns);
            }
            return Err(Ignored::Unasked);
        }
        self.may_change(at, mac, now_ns)?;
        self.entries[at].is_router = message.is_router();
        self.learn(at, mac, message.is_solicited(), now_ns, out);
        Ok(())
    }

    /// RFC 4861 6.2.6.
    fn router_solicitation(
        &mut self,
        id: u16,
        accepted: &Accepted<'_>,
        now_ns: u64,
        out: &mut Out,
    ) -> Result<(), Ignored> {
        let place = self.interfaces.get_mut(&id).ok_or(Ignored::NoInterface)?;
        let advertiser = place.advertiser.as_mut().ok_or(Ignored::NotForUs)?;
        advertiser.solicited(now_ns, &mut self.random);
        match accepted.message.source_mac() {
            Some(mac) => self.hear_source(id, accepted.src.into(), mac, true, now_ns, out),
            None => Ok(()),
        }
    }

    /// Learns a source link-layer address option (RFC 4861 7.2.3): it does not confirm
    /// reachability.
    fn hear_source(
        &mut self,
        id: u16,
        address: IpAddr,
        mac: MacAddr,
        is_host: bool,
        now_ns: u64,
        out: &mut Out,
    ) -> Result<(), Ignored> {
        let at = match self.entries.find(id, address) {
            Some(at) => {
                match self.may_change(at, mac, now_ns) {
                    // It is answered nevertheless, to the MAC address in its option.
                    Err(Ignored::Locked) => return Ok(()),
                    other => other?,
                }
                at
            }
            None => {
                let place = self.interfaces.get(&id);
                let is_there = place.is_some_and(|place| place.is_on_link(address));
                match is_there.then(|| self.create(id, address, For::Asker, out)) {
                    Some(Some(at)) => at,
                    _ => return Ok(()), // off link, or no room: answered, not remembered
                }
            }
        };
        // RFC 4861 6.2.6: a sender of router solicitations is a host.
        self.entries[at].is_router &= !is_host;
        self.learn(at, mac, false, now_ns, out);
        Ok(())
    }

    /// RFC 4861 7.2.4, and 7.2.8 for proxies: they never override.
    pub(super) fn reply(&mut self, reply: &Reply, out: &mut Out) {
        let Some(place) = self.interfaces.get(&reply.interface) else {
            return;
        };
        let own = place.mac();
        // A proxy answers from its own address.
        let src = match reply.is_proxy {
            false => Some(reply.target),
            true => place.link_local(),
        };
        let Some(src) = src else {
            return;
        };
        let message = Message::NeighbourAdvertisement {
            target: reply.target,
            target_mac: Some(own),
            router: !place.config.host,
            solicited: reply.to.is_some(),
            override_known: !reply.is_proxy,
        };
        let all = (ndp::ALL_NODES, ndp::multicast_mac(ndp::ALL_NODES));
        let (dst, mac) = reply.to.unwrap_or(all);
        send(reply.interface, (mac, own), src, dst, message, out);
    }
}

/// Sends a message between MAC addresses (destination, source).
pub(super) fn send(
    interface: u16,
    macs: (MacAddr, MacAddr),
    src: Ipv6Addr,
    dst: Ipv6Addr,
    message: Message<'_>,
    out: &mut Out,
) {
    let mut bytes = [0; MAX_MESSAGE];
    // Router advertisements are cut to fit; all others are shorter.
    if let Some(len) = message.write(src, dst, &mut bytes) {
        let header = ipv6::header(protocol::ICMPV6, ndp::HOP_LIMIT, src, dst, len as u16);
        out.send(interface, macs, EtherType::IPV6, [&header, &bytes[..len]]);
    }
}
