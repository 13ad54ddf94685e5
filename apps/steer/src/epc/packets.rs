//! Packets of users, where they leave and enter the network beyond (SGi), datagrams, and the rule
//! that brings both to the lcores of their users.

use std::net::{Ipv4Addr, SocketAddrV4};

use linerate_core::packet::{Offload, Packet};
use linerate_epc::tunnels::AddressPool;
use linerate_epc::{Cores, Link, Owner};
use linerate_stack::host::udp::UdpId;
use linerate_stack::host::{Checksum, Ends, Header};
use linerate_stack::socket::Io;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::udp::Udp;
use linerate_wire::{ethernet, gtpc, gtpu};

use super::role::Role;
use crate::steering::OwnerRule;

/// Whose frames to the sockets of a node are: TEIDs and sequence numbers name cores, the first
/// message names the user, and the addresses of users are dealt to cores.
pub(super) fn owner_rule<R: Role>(
    cores: Cores,
    (control, user): (Option<Ipv4Addr>, Vec<Ipv4Addr>),
    pool: Option<AddressPool>,
) -> OwnerRule {
    Box::new(move |frame| {
        let ip = Ipv4::new_checked(frame.get(ethernet::HEADER_LEN..)?).ok()?;
        let to = ip.dst();
        if let Some(pool) = &pool
            && let Some(core) = pool.owner(to.octets())
        {
            return Some(core);
        }
        let is_control = control == Some(to);
        if !is_control && !user.contains(&to) || ip.is_fragment() {
            return None;
        }
        let datagram = Udp::new_checked(ip.payload()).ok()?;
        let from = SocketAddrV4::new(ip.src(), datagram.src_port());
        let link = match datagram.dst_port() {
            gtpc::PORT if is_control => Link::Gtpc(from),
            gtpu::PORT => Link::Gtpu(from),
            _ => return None,
        };
        match R::owner(cores, link, datagram.payload()) {
            Owner::Home => None,
            Owner::Core(core) => Some(core),
            Owner::User(imsi) => Some(cores.owner(imsi)),
        }
    })
}

/// Whether a packet is to a user. One to be cut by a port cannot be put into a tunnel.
pub(super) fn claims(pool: &AddressPool, packet: &Packet) -> bool {
    match packet.data() {
        [to, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x00, ip @ ..] => {
            let address = ip.get(16..).and_then(|at| at.first_chunk::<4>());
            // The first bit of a group's MAC address is set.
            to & 1 == 0
                && address.is_some_and(|to| pool.owner(*to).is_some())
                && !packet.meta().offload.intersects(Offload::GSO)
        }
        _ => false,
    }
}

/// Sends a datagram by a socket; whether it was sent.
pub(super) fn send_datagram(
    io: &mut Io<'_>,
    by: Option<UdpId>,
    to: SocketAddrV4,
    bytes: &[u8],
) -> bool {
    let now_ns = io.now_ns();
    let (udp, host, out) = io.udp();
    by.is_some_and(|id| {
        let sent = udp.send_to(host, id, bytes, Some(to.into()), now_ns, out);
        sent.is_ok()
    })
}

/// What has become of a user's packet.
pub(super) enum Beyond {
    /// It is on its way.
    Sent,
    /// It is not.
    Unsent,
    /// It was to an address of this host's, where the control of the network is.
    Own,
}

/// Sends a user's packet to the network beyond, as a router does that is one hop with the user:
/// the time to live stays. Options are not passed on, nor are fragments.
pub(super) fn send_packet(io: &mut Io<'_>, bytes: &[u8]) -> Beyond {
    let now_ns = io.now_ns();
    let (_, host, out) = io.udp();
    let Ok(ip) = Ipv4::new_checked(bytes) else {
        return Beyond::Unsent;
    };
    // RFC 2644: none to the broadcast address of a network of ours either.
    let Some(mut path) = host.path_through(ip.dst().into()) else {
        return Beyond::Unsent;
    };
    if path.is_loopback() {
        return Beyond::Own;
    }
    if ip.is_fragment() {
        return Beyond::Unsent;
    }
    let Some(packet) = out.cache.copy_of(ip.payload()) else {
        return Beyond::Unsent;
    };
    out.made(1);
    let header = Header {
        ends: Ends::V4 {
            src: ip.src(),
            dst: ip.dst(),
        },
        protocol: ip.protocol(),
        tos: ip.tos(),
        ttl: ip.ttl(),
        dont_fragment: ip.dont_fragment(),
        flow_label: 0,
        checksum: Checksum::Done,
    };
    match host.transmit(&mut path, packet, &header, now_ns, out) {
        Ok(()) => Beyond::Sent,
        Err(_) => Beyond::Unsent,
    }
}
