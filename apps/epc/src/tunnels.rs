//! Users' packets in and out of GTP-U: the table of tunnels, one packet, and (`burst`) frames.
//!
//! There is no search: the identifier that comes with a packet up names the place of its tunnel,
//! and so does the user's address that a packet down goes to, since [`AddressPool`] gives the n-th
//! address to the n-th place. So each packet costs one cache line of the table, which has the
//! counters too. What was guessed, or is over, differs from what the line says.

mod burst;
mod handed;
mod headers;

pub(crate) use burst::Joined;
pub use burst::{Leaving, Onward, Plane, Way, Ways};
pub use handed::Handed;

use crate::ids::IdSpace;
use crate::{Cores, EpcError};
use linerate_core::mem::HugeArray;
use linerate_wire::gtpu::{Gtpu, message};
use linerate_wire::ipv4::Ipv4;
use std::net::Ipv4Addr;

/// Addresses for users: a prefix, cut into a part for each core, so that an address names its
/// user's core as an identifier does.
#[derive(Clone, Copy, Debug)]
pub struct AddressPool {
    prefix: u32,
    cores: Cores,
    part_bits: u32,
}

impl AddressPool {
    /// The addresses of a prefix, for `users` on each core.
    ///
    /// # Errors
    /// [`EpcError::Addresses`] where a part has not as many, its first and last left out.
    pub fn new(
        prefix: Ipv4Addr,
        prefix_len: u8,
        cores: Cores,
        users: usize,
    ) -> Result<Self, EpcError> {
        let host_bits = 32 - u32::from(prefix_len.min(32));
        let part_bits = host_bits.checked_sub(cores.bits());
        let fits = part_bits.filter(|bits| users + 2 <= 1_usize << bits);
        let part_bits = fits.ok_or(EpcError::Addresses {
            prefix_len,
            asked: users * usize::from(cores.count()),
        })?;
        let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
        Ok(Self {
            prefix: u32::from(prefix) & mask,
            cores,
            part_bits,
        })
    }

    /// The core whose user has this address.
    #[inline]
    pub fn owner(&self, address: [u8; 4]) -> Option<u8> {
        let part = (u32::from_be_bytes(address) ^ self.prefix) >> self.part_bits;
        (part < u32::from(self.cores.count())).then_some(part as u8)
    }

    /// The address of a place on a core.
    #[inline]
    fn address(&self, core: u8, index: usize) -> [u8; 4] {
        let part = u32::from(core) << self.part_bits;
        (self.prefix | part | (index as u32 + 1)).to_be_bytes()
    }

    /// The place on a core that has this address: beyond all places if none has.
    #[inline]
    fn index(&self, core: u8, address: [u8; 4]) -> usize {
        let first = u32::from_be_bytes(self.address(core, 0));
        u32::from_be_bytes(address).wrapping_sub(first) as usize
    }
}

/// Packets and bytes of users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes, of IP headers on.
    pub bytes: u64,
}

impl Traffic {
    #[inline]
    fn count(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// One user's tunnel, a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Tunnel {
    /// Our end; 0: the place is free.
    pub own: u32,
    /// The peer's end.
    pub peer: u32,
    /// The peer's address.
    pub peer_address: [u8; 4],
    /// The user's address.
    pub user: [u8; 4],
    /// From the user.
    pub up: Traffic,
    /// To the user.
    pub down: Traffic,
}

const _: () = assert!(size_of::<Tunnel>() == 64);

/// Why a packet does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No whole IPv4 packet.
    Malformed,
    /// There is no such tunnel, or no user with that address.
    Unknown,
    /// It comes from another address than the tunnel's user has.
    Spoofed,
}

/// What was counted of packets that did not pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // each is the reason of that name
pub struct Refusals {
    pub malformed: u64,
    pub unknown: u64,
    pub spoofed: u64,
}

impl Refusals {
    fn count(&mut self, why: Refused) -> Refused {
        *match why {
            Refused::Malformed => &mut self.malformed,
            Refused::Unknown => &mut self.unknown,
            Refused::Spoofed => &mut self.spoofed,
        } += 1;
        why
    }
}

/// The tunnels of one core.
pub struct Tunnels {
    entries: HugeArray<Tunnel>,
    space: IdSpace,
    pool: AddressPool,
    core: u8,
    /// What was counted.
    pub refusals: Refusals,
}

impl Tunnels {
    /// Room for as many tunnels as `space` has places for records: `capacity`.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        space: IdSpace,
        pool: AddressPool,
        core: u8,
        capacity: usize,
    ) -> Result<Self, EpcError> {
        Ok(Self {
            entries: HugeArray::filled("tunnels", capacity, Tunnel::default())?,
            space,
            pool,
            core,
            refusals: Refusals::default(),
        })
    }

    /// The addresses of users, on all cores.
    pub fn pool(&self) -> AddressPool {
        self.pool
    }

    /// All memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.entries.region().len()
    }

    /// Opens the tunnel of an identifier to a peer's end; returns the user's address.
    pub fn open(&mut self, own: u32, peer: u32, peer_address: [u8; 4]) -> [u8; 4] {
        let index = self.space.index(own) as usize;
        let user = self.pool.address(self.core, index);
        if let Some(entry) = self.entries.get_mut(index) {
            *entry = Tunnel {
                own,
                peer,
                peer_address,
                user,
                ..Tunnel::default()
            };
        }
        user
    }

    /// Moves a tunnel to another end of a peer: the user's gateway changed.
    pub fn redirect(&mut self, own: u32, peer: u32, peer_address: [u8; 4]) {
        if let Some(tunnel) = self.of_id(own) {
            (tunnel.peer, tunnel.peer_address) = (peer, peer_address);
        }
    }

    /// Closes a tunnel; returns what it was.
    pub fn close(&mut self, own: u32) -> Option<Tunnel> {
        self.of_id(own).map(std::mem::take)
    }

    #[inline]
    fn of_id(&mut self, own: u32) -> Option<&mut Tunnel> {
        let tunnel = self.entries.get_mut(self.space.index(own) as usize)?;
        (tunnel.own == own && own != 0).then_some(tunnel)
    }

    #[inline]
    fn of_user(&mut self, address: [u8; 4]) -> Option<&mut Tunnel> {
        let index = self.pool.index(self.core, address);
        let tunnel = self.entries.get_mut(index)?;
        (tunnel.user == address && tunnel.own != 0).then_some(tunnel)
    }

    /// A G-PDU from below: the user's packet in it, if the tunnel is its user's.
    ///
    /// # Errors
    /// Why it does not pass, which is counted.
    pub fn up<'a>(&mut self, gtpu: &'a Gtpu<&[u8]>) -> Result<&'a [u8], Refused> {
        debug_assert_eq!(gtpu.message(), message::G_PDU);
        // RFC 1812 5.2.2: nothing is done with a header that may say something else.
        let Some(ip) = Ipv4::new_checked(gtpu.payload()).ok().filter(Ipv4::verify) else {
            return Err(self.refusals.count(Refused::Malformed));
        };
        let (source, len) = (ip.src().octets(), ip.total_len());
        let Some(tunnel) = self.of_id(gtpu.teid()) else {
            return Err(self.refusals.count(Refused::Unknown));
        };
        if source != tunnel.user {
            return Err(self.refusals.count(Refused::Spoofed));
        }
        tunnel.up.count(len);
        Ok(&gtpu.payload()[..len])
    }

    /// A packet from beyond: its length, and the tunnel to put it into.
    ///
    /// # Errors
    /// Why it does not pass, which is counted.
    pub fn down(&mut self, packet: &[u8]) -> Result<(usize, Tunnel), Refused> {
        let Some(ip) = Ipv4::new_checked(packet).ok().filter(Ipv4::verify) else {
            return Err(self.refusals.count(Refused::Malformed));
        };
        let (address, len) = (ip.dst().octets(), ip.total_len());
        let Some(tunnel) = self.of_user(address) else {
            return Err(self.refusals.count(Refused::Unknown));
        };
        tunnel.down.count(len);
        Ok((len, *tunnel))
    }
}

#[cfg(test)]
mod tests;
