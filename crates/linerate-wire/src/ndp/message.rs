//! Writes a message with its checksum.

use core::net::Ipv6Addr;

use super::{MessageKind, PrefixInfo, Router, field, flag, option};
use crate::{MacAddr, bytes::put16, checksum, ipv6, protocol};

/// A message to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Router solicitation.
    RouterSolicitation {
        /// The sender's, unless it sends from the unspecified address.
        source_mac: Option<MacAddr>,
    },
    /// I am a router.
    RouterAdvertisement {
        /// The fields before the options.
        router: Router,
        /// The sender's MAC address.
        source_mac: Option<MacAddr>,
        /// The link's MTU in bytes.
        mtu: Option<u32>,
        /// What is on link.
        prefixes: &'a [PrefixInfo],
    },
    /// Neighbour solicitation.
    NeighbourSolicitation {
        /// The target address.
        target: Ipv6Addr,
        /// The sender's, unless it sends from the unspecified address.
        source_mac: Option<MacAddr>,
    },
    /// The target is here.
    NeighbourAdvertisement {
        /// The address whose MAC address is advertised.
        target: Ipv6Addr,
        /// It.
        target_mac: Option<MacAddr>,
        /// R: the sender is a router.
        router: bool,
        /// S: this answers a solicitation.
        solicited: bool,
        /// O: replace what is known.
        override_known: bool,
    },
    /// Send what is for the destination to the target instead.
    Redirect {
        /// The better first hop; the destination itself where that is a neighbour.
        target: Ipv6Addr,
        /// What the redirected packet was for.
        destination: Ipv6Addr,
        /// The target's MAC address.
        target_mac: Option<MacAddr>,
        /// The packet, from its IPv6 header on; as much of it is quoted as the least MTU allows.
        packet: &'a [u8],
    },
}

impl Message<'_> {
    /// Writes the message with its checksum for these addresses; returns its length in bytes, or
    /// `None` if `out` is shorter.
    pub fn write(&self, src: Ipv6Addr, dst: Ipv6Addr, out: &mut [u8]) -> Option<usize> {
        let mut w = Writer { out, at: 0 };
        match *self {
            Message::RouterSolicitation { source_mac } => {
                w.put(&[MessageKind::RouterSolicitation as u8, 0, 0, 0, 0, 0, 0, 0])?;
                w.put_mac(option::SOURCE, source_mac)?;
            }
            Message::RouterAdvertisement {
                router,
                source_mac,
                mtu,
                prefixes,
            } => {
                w.put(&[
                    MessageKind::RouterAdvertisement as u8,
                    0,
                    0,
                    0,
                    router.hop_limit,
                ])?;
                w.put(&[bit(router.managed, flag::MANAGED) | bit(router.other, flag::OTHER)])?;
                w.put(&router.lifetime_s.to_be_bytes())?;
                w.put(&router.reachable_ms.to_be_bytes())?;
                w.put(&router.retransmit_ms.to_be_bytes())?;
                w.put_mac(option::SOURCE, source_mac)?;
                if let Some(mtu) = mtu {
                    w.put(&[option::MTU, 1, 0, 0])?;
                    w.put(&mtu.to_be_bytes())?;
                }
                for prefix in prefixes {
                    let flags = bit(prefix.on_link, flag::ON_LINK)
                        | bit(prefix.autonomous, flag::AUTONOMOUS);
                    w.put(&[option::PREFIX, 4, prefix.len, flags])?;
                    w.put(&prefix.valid_s.to_be_bytes())?;
                    w.put(&prefix.preferred_s.to_be_bytes())?;
                    w.put(&[0; 4])?;
                    w.put(&prefix.prefix.octets())?;
                }
            }
            Message::NeighbourSolicitation { target, source_mac } => {
                w.put(&[
                    MessageKind::NeighbourSolicitation as u8,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                ])?;
                w.put(&target.octets())?;
                w.put_mac(option::SOURCE, source_mac)?;
            }
            Message::NeighbourAdvertisement {
                target,
                target_mac,
                router,
                solicited,
                override_known,
            } => {
                let flags = bit(router, flag::ROUTER)
                    | bit(solicited, flag::SOLICITED)
                    | bit(override_known, flag::OVERRIDE);
                w.put(&[
                    MessageKind::NeighbourAdvertisement as u8,
                    0,
                    0,
                    0,
                    flags,
                    0,
                    0,
                    0,
                ])?;
                w.put(&target.octets())?;
                w.put_mac(option::TARGET, target_mac)?;
            }
            Message::Redirect {
                target,
                destination,
                target_mac,
                packet,
            } => {
                w.put(&[MessageKind::Redirect as u8, 0, 0, 0, 0, 0, 0, 0])?;
                w.put(&target.octets())?;
                w.put(&destination.octets())?;
                w.put_mac(option::TARGET, target_mac)?;
                // RFC 4861 8.2: with its IP header no longer than the least MTU.
                let room = (ipv6::MIN_MTU - ipv6::HEADER_LEN - w.at - 8) & !7;
                let quote = &packet[..packet.len().min(room)];
                let padded = quote.len().next_multiple_of(8);
                w.put(&[option::REDIRECTED, (padded / 8 + 1) as u8, 0, 0, 0, 0, 0, 0])?;
                w.put(quote)?;
                w.put(&[0; 7][..padded - quote.len()])?;
            }
        }
        let (len, message) = (w.at, &mut w.out[..w.at]);
        let pseudo = checksum::pseudo_v6(src.octets(), dst.octets(), protocol::ICMPV6, len as u32);
        let sum = checksum::add(pseudo, checksum::sum(message));
        put16(message, field::CHECKSUM, !sum);
        Some(len)
    }
}

fn bit(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at + bytes.len();
        self.out.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    fn put_mac(&mut self, option: u8, mac: Option<MacAddr>) -> Option<()> {
        match mac {
            Some(mac) => {
                self.put(&[option, 1])?;
                self.put(&mac.0)
            }
            None => Some(()),
        }
    }
}
