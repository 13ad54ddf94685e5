//! Users' packets: from base station to PGW and back, each into the session's other tunnel.

use super::{About, Session, Sgw, State};
use crate::gtp::put;
use crate::gtp::user::{ROOM, echo_response, end_marker, error_indication, gone};
use crate::link::{Link, Sink};
use crate::s1::Tunnel;
use crate::tunnels::{Joined, Onward, Plane, Ways};
use linerate_core::packet::Burst;
use linerate_wire::gtpc::ie;
use linerate_wire::gtpc::message::DOWNLINK_DATA_NOTIFICATION;
use linerate_wire::gtpu::{self, Gtpu, message};
use std::net::SocketAddrV4;

/// Where the end of a tunnel is.
pub(crate) fn link(tunnel: Tunnel) -> Link {
    Link::Gtpu(SocketAddrV4::new(tunnel.address.into(), gtpu::PORT))
}

impl Joined for Sgw {
    #[inline]
    fn prefetch(&self, teid: u32) {
        let (id, _) = self.sessions.space().split_side(teid);
        self.joins.prefetch(id);
    }

    #[inline]
    fn next(&self, teid: u32) -> Option<(u32, [u8; 4])> {
        let (id, is_down) = self.sessions.space().split_side(teid);
        let to = self.joins.get(id)?.to(is_down);
        (to.teid != 0).then_some((to.teid, to.address))
    }

    #[inline]
    fn count(&mut self, teid: u32) {
        match self.sessions.space().split_side(teid) {
            (_, true) => self.counts.down_packets += 1,
            (_, false) => self.counts.up_packets += 1,
        }
    }
}

impl Sgw {
    /// Takes users' packets in their tunnels, in frames of a burst, as far as they are in the
    /// common form and the user is not idle. The rest stays, to be
    /// [received](crate::Node::receive) one by one. Returns how many did not stay.
    pub fn forward<W: Ways>(&mut self, burst: &mut Burst, onward: &mut Onward<'_, W>) -> usize {
        Plane { own: self.user }.pass_on(self, burst, onward)
    }

    /// The same of what another gateway has handed on to this one.
    pub fn forward_handed<W: Ways>(&mut self, onward: &mut Onward<'_, W>) -> usize {
        Plane { own: self.user }.pass_on_handed(self, onward)
    }

    /// Takes a datagram of GTP-U.
    pub(super) fn packet(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        datagram: &mut [u8],
        out: &mut impl Sink,
    ) {
        let mut room = [0; ROOM];
        let Ok(mut packet) = Gtpu::new_checked(&mut *datagram) else {
            self.counts.malformed += 1;
            return;
        };
        let teid = packet.teid();
        match packet.message() {
            message::ECHO_REQUEST => {
                let sequence = packet.sequence().unwrap_or_default();
                out.send(Link::Gtpu(from), echo_response(sequence, &mut room));
            }
            message::G_PDU | message::END_MARKER => {
                let (id, is_down) = self.sessions.space().split_side(teid);
                let Some(join) = self.joins.get(id) else {
                    self.counts.unknown_tunnel += 1;
                    let own = self.user.octets();
                    out.send(Link::Gtpu(from), error_indication(teid, own, &mut room));
                    return;
                };
                let to = join.to(is_down);
                if to.teid == 0 {
                    self.wait(now_ns, id, datagram, out);
                    return;
                }
                packet.set_teid(to.teid);
                let len = packet.len();
                match is_down {
                    true => self.counts.down_packets += 1,
                    false => self.counts.up_packets += 1,
                }
                out.send(link(to), &datagram[..len]);
            }
            message::ERROR_INDICATION => {
                self.counts.error_indications += 1;
                let packet = Gtpu::new_checked(&*datagram).ok();
                // Only the owner of the tunnel may say that it is gone.
                let end = packet.and_then(|packet| gone(&packet));
                let end = end.filter(|(_, address)| *address == from.ip().octets());
                if let Some((teid, address)) = end {
                    self.station_lost(Tunnel { teid, address });
                }
            }
            _ => self.counts.malformed += 1,
        }
    }

    /// TS 23.007 22.3: a base station does not know a user any more; the user counts as idle.
    fn station_lost(&mut self, tunnel: Tunnel) {
        let id = self.by_station.lookup(&super::station_key(tunnel));
        if let Some(id) = id {
            self.leave_station(u32::from_be_bytes(id));
        }
    }

    /// A packet for a user who is idle: it waits, and the MME is told, once (TS 23.401 5.3.4.3).
    fn wait(&mut self, now_ns: u64, id: u32, datagram: &[u8], out: &mut impl Sink) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let len = Gtpu::new_checked(datagram).map_or(0, |packet| packet.len());
        match self.buffers.push(&mut session.queue, &datagram[..len]) {
            true => self.counts.buffered += 1,
            false => self.counts.buffer_drops += 1,
        }
        if session.is_notified || session.state != State::Active {
            return;
        }
        let (mme, ebi) = (session.mme, session.ebi);
        let to = (mme.socket(), DOWNLINK_DATA_NOTIFICATION, mme.teid);
        let about = About::Notify(id);
        let sent = self.gtp.request(now_ns, to, about, out, |to| {
            to.ie(ie::EBI, 0, &[ebi]);
            // Priority level 8; neither pre-empts nor is pre-empted.
            put(to, ie::ARP, 0, |bytes| {
                bytes[0] = 0x40 | 8 << 2 | 1;
                1
            });
        });
        if let (Some(sequence), Some(session)) = (sent, self.sessions.get_mut(id)) {
            (session.notification, session.is_notified) = (sequence, true);
            self.counts.notifications += 1;
        }
    }

    /// The base station's end of a session is known: what waited goes there. Whoever had the user
    /// before gets an end marker (TS 23.401 5.5.1.1.2).
    pub(super) fn connect(&mut self, id: u32, tunnel: Tunnel, out: &mut impl Sink) {
        let old = self.joins.get(id).map(|join| join.to(true));
        let old = old.filter(|old| old.teid != 0 && *old != tunnel);
        if let Some(old) = old {
            let mut room = [0; ROOM];
            out.send(link(old), end_marker(old.teid, &mut room));
        }
        self.leave_station(id);
        // With as many places as there are sessions, none is refused but by collisions.
        let _ = self
            .by_station
            .insert(&super::station_key(tunnel), id.to_be_bytes());
        self.joins.connect(id, tunnel);
        let Some(Session {
            queue,
            is_notified,
            notification,
            ..
        }) = self.sessions.get_mut(id)
        else {
            return;
        };
        *is_notified = false;
        let waited = std::mem::take(notification);
        let pass = |packet: &mut [u8]| {
            if let Ok(mut packet) = Gtpu::new_checked(&mut *packet) {
                packet.set_teid(tunnel.teid);
            }
            out.send(link(tunnel), packet);
        };
        let mut pass = pass;
        while self.buffers.pop(queue, &mut pass) {
            self.counts.down_packets += 1;
        }
        self.gtp.end(waited);
    }

    /// The user was not found: what waited is dropped.
    pub(super) fn give_up(&mut self, id: u32) {
        if let Some(session) = self.sessions.get_mut(id) {
            self.counts.buffer_drops += self.buffers.clear(&mut session.queue);
            (session.is_notified, session.notification) = (false, 0);
        }
    }
}
