//! Frames with users' packets, in bursts: from S1-U (or S5-U) to SGi, and back; and from one tunnel
//! into another.
//!
//! The headers of a packet are read, and the line of its tunnel is asked for, some packets before
//! its turn comes, so that the line is in the cache then. All lines of a burst at once would be
//! more than a core waits for at a time, and it would stand still meanwhile. What is not the common
//! case (extension headers, signalling, unknown tunnels, packets that do not fit) stays behind
//! unchanged, for the slow path, which counts it.

use super::handed::{End, Handed};
use super::headers::{
    ETHERNET, INNER_AT, IPV4, OUTER, address, forget, is_plain, teid_of, user_of, word,
    write_headers,
};
use super::{Tunnel, Tunnels};
use linerate_core::arch::prefetch_write;
use linerate_core::packet::{Burst, Packet};
use std::net::Ipv4Addr;

/// As many packets as a burst has.
pub(super) const BURST: usize = Burst::CAPACITY;
/// How many packets before its turn a packet's tunnel is asked for: the time for these is longer
/// than memory takes, and a core waits for at least so many lines at a time.
const AHEAD: usize = 16;

/// The way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way<P> {
    /// What it is to whoever sends along it.
    pub path: P,
    /// The longest IP packet that it takes, in bytes.
    pub mtu: usize,
    /// The address is of this host itself.
    pub is_own: bool,
}

/// Who knows the ways to addresses.
pub trait Ways {
    /// What a way is to whoever sends along it.
    type Path: Copy;

    /// The way to an address, if there is one.
    fn way(&mut self, to: [u8; 4]) -> Option<Way<Self::Path>>;
}

/// Frames that leave a gateway, whole but for the Ethernet header, each with its path.
pub struct Leaving<P> {
    frames: Burst,
    paths: Vec<P>,
}

impl<P: Copy> Leaving<P> {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self {
            frames: Burst::new(),
            paths: Vec::with_capacity(BURST),
        }
    }

    /// All frames, and the path of each.
    #[inline]
    pub fn all(&mut self) -> (&mut Burst, &[P]) {
        (&mut self.frames, &self.paths)
    }

    /// Takes all, in order.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = (Packet, P)> {
        self.frames.drain().zip(self.paths.drain(..))
    }
}

impl<P: Copy> Default for Leaving<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// What becomes of a frame.
enum Fate<P> {
    /// It is for the slow path, unchanged.
    Stays,
    /// It leaves.
    Leaves(P),
    /// It goes on in a tunnel that ends at this host.
    GoesOn(End),
}

/// Where packets go that a gateway has dealt with.
pub struct Onward<'a, W: Ways> {
    /// By a port.
    pub leaving: &'a mut Leaving<W::Path>,
    /// To another gateway of this host.
    pub handed: &'a mut Handed,
    /// Who knows which.
    pub ways: &'a mut W,
}

impl<W: Ways> Onward<'_, W> {
    /// Moves the frames of a burst to where `fate` says, which gets what `look` has found out of
    /// each [some frames before](AHEAD). Returns how many did not stay.
    #[inline]
    fn sort<T, X: Copy + Default>(
        &mut self,
        burst: &mut Burst,
        tunnels: &mut T,
        look: impl Fn(&T, &Packet) -> X,
        mut fate: impl FnMut(&mut T, X, &mut Packet, &mut W) -> Fate<W::Path>,
    ) -> usize {
        let (mut leave, mut go_on) = (0_u64, 0_u64);
        let (packets, mut seen) = (burst.as_packets_mut(), [X::default(); AHEAD]);
        for (packet, seen) in packets.iter().zip(&mut seen) {
            *seen = look(tunnels, packet);
        }
        for at in 0..packets.len() {
            let known = seen[at % AHEAD];
            if let Some(next) = packets.get(at + AHEAD) {
                seen[at % AHEAD] = look(tunnels, next);
            }
            match fate(tunnels, known, &mut packets[at], self.ways) {
                Fate::Stays => {}
                Fate::Leaves(path) => {
                    leave |= 1 << at;
                    self.leaving.paths.push(path);
                }
                Fate::GoesOn(end) => {
                    go_on |= 1 << at;
                    self.handed.expect(go_on.count_ones(), end);
                }
            }
        }
        let stay = burst.mask() & !go_on;
        move_those(burst, go_on, &mut self.handed.frames);
        move_those(burst, gathered(leave, stay), &mut self.leaving.frames);
        (leave | go_on).count_ones() as usize
    }

    /// The same for what other gateways have handed on to `own`, in tunnels that `look` is told of.
    #[inline]
    fn sort_handed<T>(
        &mut self,
        own: [u8; 4],
        tunnels: &mut T,
        look: impl Fn(&T, u32),
        mut fate: impl FnMut(&mut T, u32, &mut Packet, &mut W) -> Fate<W::Path>,
    ) -> usize {
        let (mut leave, mut moved) = (0_u64, 0);
        let Handed { frames, ends } = &mut *self.handed;
        let ends = &mut ends[..frames.len()];
        let is_own = |end: &&End| end.to == own;
        let first = ends.iter().take(AHEAD).filter(is_own);
        first.for_each(|end| look(tunnels, end.teid));
        for (at, packet) in frames.as_packets_mut().iter_mut().enumerate() {
            if let Some(next) = ends.get(at + AHEAD).filter(is_own) {
                look(tunnels, next.teid);
            }
            let Some(end) = ends.get_mut(at).filter(|end| end.to == own) else {
                continue;
            };
            moved += 1;
            match fate(tunnels, end.teid, packet, self.ways) {
                Fate::Stays => moved -= 1,
                Fate::Leaves(path) => {
                    leave |= 1 << at;
                    self.leaving.paths.push(path);
                }
                Fate::GoesOn(next) => *end = next,
            }
        }
        self.handed.take_those(leave, &mut self.leaving.frames);
        moved
    }
}

/// Moves the packets at these positions, which have room in `to`.
#[inline]
pub(super) fn move_those(burst: &mut Burst, those: u64, to: &mut Burst) {
    if those == burst.mask() {
        // As a rule all go the same way.
        burst.move_front(burst.len(), to);
    } else if those != 0 {
        let mut at = 0;
        burst.retain(to, |_| {
            at += 1;
            those >> (at - 1) & 1 == 0
        });
    }
}

/// The bits of `those` at the positions of `places`, one behind the other.
#[inline]
fn gathered(those: u64, mut places: u64) -> u64 {
    if places & places.wrapping_add(1) == 0 {
        return those;
    }
    let (mut all, mut at) = (0, 0);
    while places != 0 {
        all |= (those >> places.trailing_zeros() & 1) << at;
        places &= places - 1;
        at += 1;
    }
    all
}

/// Tunnels that go on in others.
pub(crate) trait Joined {
    /// Asks for the memory of a tunnel that is looked at soon.
    fn prefetch(&self, teid: u32);

    /// The peer's end of the tunnel in which packets of this one go on, and its address.
    fn next(&self, teid: u32) -> Option<(u32, [u8; 4])>;

    /// Counts a packet that has gone on.
    fn count(&mut self, teid: u32);
}

/// Where users' packets are at a gateway. What its functions do not deal with stays in the burst,
/// as it came.
///
/// An outer checksum that the port has not checked is checked here where it is not 0.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// Our address of GTP-U.
    pub own: Ipv4Addr,
}

impl Plane {
    /// Takes users' packets out of their tunnels: they leave. Returns how many.
    pub(crate) fn decapsulate<W: Ways>(
        &self,
        tunnels: &mut Tunnels,
        burst: &mut Burst,
        onward: &mut Onward<'_, W>,
    ) -> usize {
        let own = self.own.octets();
        let look = |tunnels: &Tunnels, packet: &Packet| {
            asked_for(packet, own, |teid| tunnels.prefetch(teid))
        };
        onward.sort(burst, tunnels, look, Tunnels::take_out)
    }

    /// The same of what other gateways have handed on.
    pub(crate) fn decapsulate_handed<W: Ways>(
        &self,
        tunnels: &mut Tunnels,
        onward: &mut Onward<'_, W>,
    ) -> usize {
        let own = self.own.octets();
        onward.sort_handed(own, tunnels, Tunnels::prefetch, Tunnels::take_out)
    }

    /// Puts users' packets into their tunnels, with the headers of a G-PDU. Returns how many.
    pub(crate) fn encapsulate<W: Ways>(
        &self,
        tunnels: &mut Tunnels,
        burst: &mut Burst,
        onward: &mut Onward<'_, W>,
    ) -> usize {
        let own = self.own.octets();
        let look = |tunnels: &Tunnels, packet: &Packet| {
            let user = user_of(packet)?;
            tunnels.prefetch_user(user);
            Some(user)
        };
        onward.sort(burst, tunnels, look, |tunnels, user, packet, ways| {
            let tunnel = user.and_then(|user| tunnels.of_user(user));
            tunnel.map_or(Fate::Stays, |tunnel| put_in(packet, tunnel, own, ways))
        })
    }

    /// Has G-PDUs go on into another tunnel. Returns how many.
    pub(crate) fn pass_on<T: Joined, W: Ways>(
        &self,
        tunnels: &mut T,
        burst: &mut Burst,
        onward: &mut Onward<'_, W>,
    ) -> usize {
        let own = self.own.octets();
        let look =
            |tunnels: &T, packet: &Packet| asked_for(packet, own, |teid| tunnels.prefetch(teid));
        onward.sort(burst, tunnels, look, |tunnels, teid, packet, ways| {
            // Behind it there may be padding.
            let total = packet.data().get(ETHERNET..INNER_AT);
            let total = total.map_or(0, |ip| word(ip, 2));
            join(packet, total, teid, (tunnels, own), ways)
        })
    }

    /// The same of what other gateways have handed on.
    pub(crate) fn pass_on_handed<T: Joined, W: Ways>(
        &self,
        tunnels: &mut T,
        onward: &mut Onward<'_, W>,
    ) -> usize {
        let own = self.own.octets();
        onward.sort_handed(own, tunnels, T::prefetch, |tunnels, teid, packet, ways| {
            let total = packet.len() - ETHERNET;
            join(packet, total, teid, (tunnels, own), ways)
        })
    }
}

impl Tunnels {
    /// Asks for the memory of a tunnel that is looked at soon.
    #[inline]
    fn prefetch(&self, teid: u32) {
        if let Some(tunnel) = self.entries.get(self.space.index(teid) as usize) {
            prefetch_write(tunnel);
        }
    }

    #[inline]
    fn prefetch_user(&self, user: [u8; 4]) {
        if let Some(tunnel) = self.entries.get(self.pool.index(self.core, user)) {
            prefetch_write(tunnel);
        }
    }

    /// Takes a user's packet out of a tunnel, if it is that user's and in the common form. 0 is no
    /// tunnel.
    #[inline]
    fn take_out<W: Ways>(&mut self, teid: u32, packet: &mut Packet, ways: &mut W) -> Fate<W::Path> {
        let Some(inner) = packet.data().get(INNER_AT..).filter(|_| teid != 0) else {
            return Fate::Stays;
        };
        let (Some(tunnel), Some(header)) = (self.of_id(teid), inner.first_chunk()) else {
            return Fate::Stays;
        };
        // RFC 2827: a user has one address. Packets to this host itself are refused elsewhere.
        let len = word(header, 2);
        if !is_plain(header, inner.len()) || tunnel.user != address(header, 12) {
            return Fate::Stays;
        }
        let way = ways.way(address(header, 16));
        let Some(way) = way.filter(|way| !way.is_own && len <= way.mtu) else {
            return Fate::Stays;
        };
        tunnel.up.count(len);
        // The frame's own header goes where the last of GTP-U's was: there is as much.
        packet.trim_front(OUTER);
        packet.truncate(ETHERNET + len);
        packet.data_mut()[ETHERNET - 2..ETHERNET].copy_from_slice(&IPV4);
        forget(packet);
        Fate::Leaves(way.path)
    }
}

/// The tunnel that a frame comes in, whose memory is asked for; 0 where it comes in none.
#[inline(always)]
fn asked_for(packet: &Packet, own: [u8; 4], prefetch: impl FnOnce(u32)) -> u32 {
    let teid = teid_of(packet, own);
    if teid != 0 {
        prefetch(teid);
    }
    teid
}

/// Puts a user's packet into a tunnel.
#[inline]
fn put_in<W: Ways>(
    packet: &mut Packet,
    tunnel: &mut Tunnel,
    own: [u8; 4],
    ways: &mut W,
) -> Fate<W::Path> {
    let len = word(packet.data(), ETHERNET + 2);
    let way = ways.way(tunnel.peer_address);
    let Some(way) = way.filter(|way| OUTER + len <= way.mtu) else {
        return Fate::Stays;
    };
    if packet.prepend(OUTER).is_none() {
        return Fate::Stays;
    }
    tunnel.down.count(len);
    packet.truncate(INNER_AT + len);
    let end = End {
        from: own,
        to: tunnel.peer_address,
        teid: tunnel.peer,
    };
    go_on(packet, end, way)
}

/// Has a G-PDU, an IP packet of `total` bytes, go on into the tunnel that its own is joined to. 0
/// is no tunnel.
#[inline]
fn join<W: Ways>(
    packet: &mut Packet,
    total: usize,
    teid: u32,
    (tunnels, own): (&mut impl Joined, [u8; 4]),
    ways: &mut W,
) -> Fate<W::Path> {
    let next = (teid != 0).then(|| tunnels.next(teid)).flatten();
    let Some((peer, to)) = next else {
        return Fate::Stays;
    };
    let way = ways.way(to);
    let Some(way) = way.filter(|way| total <= way.mtu) else {
        return Fate::Stays;
    };
    tunnels.count(teid);
    packet.truncate(ETHERNET + total);
    let end = End {
        from: own,
        to,
        teid: peer,
    };
    go_on(packet, end, way)
}

/// A G-PDU goes on to a peer's end. To another gateway of this host it goes without new headers,
/// which nobody would look at.
#[inline]
fn go_on<P>(packet: &mut Packet, end: End, way: Way<P>) -> Fate<P> {
    if way.is_own {
        return Fate::GoesOn(end);
    }
    write_headers(packet, &end);
    Fate::Leaves(way.path)
}
