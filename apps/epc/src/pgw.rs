//! The packet data network gateway: gives users their addresses, and joins their tunnels to the
//! network beyond (TS 23.401 4.4.3.3).
//!
//! The identifier of a session is its S5-C end and its S5-U end. The place of its record is also
//! the place of its tunnel and, by the pool, of its address: see [`crate::tunnels`].

use crate::answers::Ask;
use crate::gtp::endpoint::{Arrived, Endpoint, EndpointConfig, EndpointCounts};
use crate::gtp::paths::Paths;
use crate::gtp::sessions::{self, Sessions};
use crate::gtp::user::{ROOM, echo_response, error_indication};
use crate::gtp::{Contents, Refusal, missing, put, put_cause, put_f_teid, refusal};
use crate::link::{Link, Node, Notice, Owner, Sink};
use crate::sgw::tunnel;
use crate::tunnels::{AddressPool, Onward, Plane, Refused, Tunnels, Ways};
use crate::{Cores, EpcError};
use linerate_core::packet::Burst;
use linerate_wire::gtpc::ie::{
    self, Ambr, BearerQos, Cause, FTeid, Paa, apn_is, cause, interface, pdn_type,
};
use linerate_wire::gtpc::{Gtpc, message};
use linerate_wire::gtpu::{self, Gtpu};
use std::net::{Ipv4Addr, SocketAddrV4};

/// How a PGW is to be.
#[derive(Clone, Debug)]
pub struct PgwConfig {
    /// Its end of GTP-C.
    pub control: EndpointConfig,
    /// Its address of GTP-U.
    pub user: Ipv4Addr,
    /// Sessions, for each core.
    pub sessions: usize,
    /// The addresses of users: first and prefix length.
    pub addresses: (Ipv4Addr, u8),
    /// The access point that it serves.
    pub apn: String,
    /// Makes identifiers unpredictable.
    pub secret: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // what each counts is its name
pub struct PgwCounts {
    pub created: u64,
    pub deleted: u64,
    /// Sessions made again by a request for a user who had one.
    pub replaced: u64,
    /// Sessions of peers that restarted.
    pub lost: u64,
    /// Packets of users.
    pub up_packets: u64,
    pub down_packets: u64,
    pub error_indications: u64,
    /// Datagrams of GTP-U that are no message.
    pub malformed: u64,
}

#[derive(Clone, Copy, Default)]
struct Session {
    imsi: [u8; 8],
    sgw: u32,
    sgw_teid: u32,
    epoch: u16,
    ebi: u8,
}

impl sessions::Session for Session {
    fn imsi(&self) -> [u8; 8] {
        self.imsi
    }

    fn stands(&self, paths: &Paths) -> bool {
        paths.is_current(self.sgw.into(), self.epoch)
    }
}

/// One core's part of a PGW.
pub struct Pgw {
    user: Ipv4Addr,
    apn: String,
    gtp: Endpoint<()>,
    sessions: Sessions<Session>,
    /// Users' tunnels.
    pub tunnels: Tunnels,
    /// What was counted.
    pub counts: PgwCounts,
}

impl Pgw {
    /// The part of `core`.
    ///
    /// # Errors
    /// [`EpcError`] for what does not fit identifiers or addresses, a name that is no access
    /// point, and for want of memory.
    pub fn new(config: &PgwConfig, cores: Cores, core: u8, now_ns: u64) -> Result<Self, EpcError> {
        if ie::write_apn(&config.apn, &mut [0; 100]).is_none() {
            return Err(EpcError::Apn(config.apn.clone()));
        }
        let (prefix, prefix_len) = config.addresses;
        let pool = AddressPool::new(prefix, prefix_len, cores, config.sessions)?;
        let secret = config.secret;
        let sessions = Sessions::new("pgw sessions", config.sessions, cores, core, secret)?;
        Ok(Self {
            user: config.user,
            apn: config.apn.clone(),
            gtp: Endpoint::new(config.control.clone(), cores, core, now_ns)?,
            tunnels: Tunnels::new(sessions.space(), pool, core, config.sessions)?,
            sessions,
            counts: PgwCounts::default(),
        })
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Whether every table is empty.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The end of GTP-C, for its counters and peers.
    pub fn control(&self) -> (&EndpointCounts, &Paths) {
        (&self.gtp.counts, &self.gtp.paths)
    }

    fn heard(&mut self, address: Ipv4Addr, restarts: u8, out: &mut impl Sink) {
        if self.gtp.heard(address, restarts, out) {
            self.sessions.doubt();
        }
    }

    fn remove(&mut self, id: u32) {
        self.tunnels.close(id);
        if let Some(session) = self.sessions.remove(id) {
            self.gtp.paths.release(session.sgw.into());
        }
    }

    fn request(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        gtpc: &Gtpc<&[u8]>,
        out: &mut impl Sink,
    ) {
        let ask = Ask::of(from, gtpc);
        let id = ask.teid;
        let contents = Contents::read(gtpc);
        let known = self.sessions.get(id).copied();
        let teid = known.map_or(0, |session| session.sgw_teid);
        let unknown = Cause::new(cause::CONTEXT_NOT_FOUND);
        match gtpc.message() {
            message::CREATE_SESSION_REQUEST => {
                let sender = contents.as_ref().ok().and_then(|found| found.sender);
                let done = contents.and_then(|found| self.create(now_ns, ask, &found, out));
                if let Err(refusal) = done {
                    let teid = sender.map_or(0, |sender| sender.teid);
                    let kind = message::CREATE_SESSION_RESPONSE;
                    self.gtp.refuse(now_ns, ask, kind, teid, refusal, out);
                }
            }
            message::MODIFY_BEARER_REQUEST => {
                let kind = message::MODIFY_BEARER_RESPONSE;
                let known = known.ok_or(unknown);
                let done = known
                    .and(contents)
                    .and_then(|found| self.modify(now_ns, id, &found, out));
                match done {
                    Ok(teid) => self.gtp.accept(now_ns, ask, kind, teid, out, |_| {}),
                    Err(refusal) => self.gtp.refuse(now_ns, ask, kind, teid, refusal, out),
                }
            }
            message::DELETE_SESSION_REQUEST => {
                let kind = message::DELETE_SESSION_RESPONSE;
                match known.ok_or(unknown).and(contents) {
                    Ok(_) => {
                        self.remove(id);
                        self.counts.deleted += 1;
                        self.gtp.accept(now_ns, ask, kind, teid, out, |_| {});
                    }
                    Err(refusal) => self.gtp.refuse(now_ns, ask, kind, teid, refusal, out),
                }
            }
            _ => self.gtp.counts.stray += 1,
        }
    }

    fn create(
        &mut self,
        now_ns: u64,
        ask: Ask,
        found: &Contents<'_>,
        out: &mut impl Sink,
    ) -> Result<(), Refusal> {
        let imsi = found.imsi.ok_or(missing(ie::IMSI, 0))?;
        found.rat_type.ok_or(missing(ie::RAT_TYPE, 0))?;
        let apn = found.apn.ok_or(missing(ie::APN, 0))?;
        let sgw = found.sender.ok_or(missing(ie::F_TEID, 0))?;
        let bearer = found.bearer.ok_or(missing(ie::BEARER_CONTEXT, 0))?;
        let ebi = bearer.ebi.ok_or(missing(ie::EBI, 0))?;
        let qos: BearerQos = bearer.qos.ok_or(missing(ie::BEARER_QOS, 0))?;
        let sgw_user = bearer.f_teids[2].ok_or(missing(ie::F_TEID, 2))?;
        let wrong = |instance| refusal(cause::MANDATORY_IE_INCORRECT, ie::F_TEID, instance);
        let sgw = tunnel(sgw).ok_or(wrong(0))?;
        let sgw_user = tunnel(sgw_user).ok_or(wrong(2))?;
        if !apn_is(apn, &self.apn) {
            return Err(refusal(cause::UNKNOWN_APN, ie::APN, 0));
        }
        // TS 23.401 5.3.1.1: of an address of both kinds, the one that there is.
        let wanted = found.paa.map(|paa| paa.pdn_type).or(found.pdn_type);
        let said = match wanted.unwrap_or(pdn_type::IPV4) {
            pdn_type::IPV4 => cause::ACCEPTED,
            pdn_type::IPV4V6 => cause::NEW_PDN_TYPE_NETWORK_PREFERENCE,
            _ => return Err(Cause::new(cause::PREFERRED_PDN_TYPE_NOT_SUPPORTED)),
        };
        let address = Ipv4Addr::from(sgw.address);
        let (epoch, is_restart) = self.gtp.peer(now_ns, address, found.recovery, out)?;
        if is_restart {
            self.sessions.doubt();
        }
        // TS 29.274 7.2.1: a session of the same user is replaced.
        if let Some(old) = self.sessions.of_user(&imsi.bytes()) {
            self.remove(old);
            self.counts.replaced += 1;
        }
        let session = Session {
            imsi: imsi.bytes(),
            sgw: address.into(),
            sgw_teid: sgw.teid,
            epoch,
            ebi,
        };
        // As many sessions as addresses: with no place there is no address either.
        let occupied = Cause::new(cause::ADDRESSES_OCCUPIED);
        let id = self.sessions.insert(session).map_err(|_| occupied)?;
        self.gtp.paths.hold(address);
        let user = self.tunnels.open(id, sgw_user.teid, sgw_user.address);
        self.counts.created += 1;

        let control = *self.gtp.config().address.ip();
        let (ambr, restarts) = (found.ambr, [self.gtp.config().restarts]);
        let control = FTeid::v4(interface::S5C_PGW, id, control.octets());
        let own_user = FTeid::v4(interface::S5U_PGW, id, self.user.octets());
        let kind = message::CREATE_SESSION_RESPONSE;
        self.gtp.answer(now_ns, ask, kind, sgw.teid, out, |to| {
            put_cause(to, Cause::new(said));
            put_f_teid(to, 1, &control);
            put(to, ie::PAA, 0, |bytes| Paa::v4(user).write(bytes));
            to.ie(ie::APN_RESTRICTION, 0, &[0]);
            if let Some(ambr) = ambr {
                put(to, ie::AMBR, 0, |bytes| Ambr::write(&ambr, bytes));
            }
            to.group(ie::BEARER_CONTEXT, 0, |bearer| {
                bearer.ie(ie::EBI, 0, &[ebi]);
                put_cause(bearer, Cause::new(cause::ACCEPTED));
                put_f_teid(bearer, 2, &own_user);
                put(bearer, ie::BEARER_QOS, 0, |bytes| qos.write(bytes));
                bearer.ie(ie::CHARGING_ID, 0, &id.to_be_bytes());
            });
            to.ie(ie::RECOVERY, 0, &restarts);
        });
        Ok(())
    }

    /// The user's SGW has another end, or is another one (TS 23.401 5.5.1.1.3), on which the
    /// session depends from then on. Returns its end for control.
    fn modify(
        &mut self,
        now_ns: u64,
        id: u32,
        found: &Contents<'_>,
        out: &mut impl Sink,
    ) -> Result<u32, Refusal> {
        let unknown = Cause::new(cause::CONTEXT_NOT_FOUND);
        let mut session = *self.sessions.get(id).ok_or(unknown)?;
        if let Some(bearer) = found.bearer {
            let ebi = bearer.ebi.ok_or(missing(ie::EBI, 0))?;
            if ebi != session.ebi {
                return Err(unknown);
            }
        }
        if let Some(control) = found.sender.and_then(tunnel) {
            let address = Ipv4Addr::from(control.address);
            let (epoch, is_restart) = self.gtp.peer(now_ns, address, found.recovery, out)?;
            if is_restart {
                self.sessions.doubt();
            }
            self.gtp.paths.hold(address);
            self.gtp.paths.release(session.sgw.into());
            (session.sgw, session.sgw_teid) = (address.into(), control.teid);
            session.epoch = epoch;
        }
        if let Some(place) = self.sessions.get_mut(id) {
            *place = session;
        }
        let user = found.bearer.and_then(|bearer| bearer.f_teids[1]);
        if let Some(user) = user.and_then(tunnel) {
            self.tunnels.redirect(id, user.teid, user.address);
        }
        Ok(session.sgw_teid)
    }

    /// A datagram of GTP-U.
    fn packet(&mut self, from: SocketAddrV4, datagram: &[u8], out: &mut impl Sink) {
        let mut room = [0; ROOM];
        let Ok(packet) = Gtpu::new_checked(datagram) else {
            self.counts.malformed += 1;
            return;
        };
        match packet.message() {
            gtpu::message::ECHO_REQUEST => {
                let sequence = packet.sequence().unwrap_or_default();
                out.send(Link::Gtpu(from), echo_response(sequence, &mut room));
            }
            gtpu::message::G_PDU => match self.tunnels.up(&packet) {
                Ok(inner) => {
                    self.counts.up_packets += 1;
                    out.send(Link::Sgi, inner);
                }
                Err(Refused::Unknown) => {
                    let own = self.user.octets();
                    let error = error_indication(packet.teid(), own, &mut room);
                    out.send(Link::Gtpu(from), error);
                }
                Err(_) => {}
            },
            gtpu::message::ERROR_INDICATION => self.counts.error_indications += 1,
            gtpu::message::END_MARKER => {}
            _ => self.counts.malformed += 1,
        }
    }

    /// Takes users' packets in their tunnels and from beyond, in frames of a burst, as far as they
    /// are in the common form. The rest stays, to be [received](Node::receive) one by one. Returns
    /// how many did not stay.
    pub fn forward<W: Ways>(&mut self, burst: &mut Burst, onward: &mut Onward<'_, W>) -> usize {
        let plane = Plane { own: self.user };
        let up = plane.decapsulate(&mut self.tunnels, burst, onward);
        let down = plane.encapsulate(&mut self.tunnels, burst, onward);
        self.counts.up_packets += up as u64;
        self.counts.down_packets += down as u64;
        up + down
    }

    /// The same of what another gateway has handed on to this one.
    pub fn forward_handed<W: Ways>(&mut self, onward: &mut Onward<'_, W>) -> usize {
        let up = Plane { own: self.user }.decapsulate_handed(&mut self.tunnels, onward);
        self.counts.up_packets += up as u64;
        up
    }

    /// A user's packet from beyond, which is copied behind a header.
    fn beyond(&mut self, packet: &[u8], out: &mut impl Sink) {
        /// Of the packet, above which nothing is sent: what fits a jumbo frame.
        const MOST: usize = 9000;
        let Ok((len, tunnel)) = self.tunnels.down(packet) else {
            return;
        };
        let mut room = [0; gtpu::HEADER_LEN + MOST];
        let Some(inner) = room.get_mut(gtpu::HEADER_LEN..gtpu::HEADER_LEN + len) else {
            self.tunnels.refusals.malformed += 1;
            return;
        };
        inner.copy_from_slice(&packet[..len]);
        room[..gtpu::HEADER_LEN].copy_from_slice(&gtpu::header(tunnel.peer, len as u16));
        let to = SocketAddrV4::new(tunnel.peer_address.into(), gtpu::PORT);
        self.counts.down_packets += 1;
        out.send(Link::Gtpu(to), &room[..gtpu::HEADER_LEN + len]);
    }

    /// The core whose user an IP packet from beyond goes to.
    pub fn owner_of_packet(pool: &AddressPool, packet: &[u8]) -> Option<u8> {
        let ip = linerate_wire::ipv4::Ipv4::new_checked(packet).ok()?;
        pool.owner(ip.dst().octets())
    }
}

impl Node for Pgw {
    /// Packets from beyond are owned by the core whose part of the pool has their address, which
    /// only [`owner_of_packet`](Pgw::owner_of_packet) knows: here they are home's.
    fn owner(cores: Cores, from: Link, message: &[u8]) -> Owner {
        match from {
            Link::Gtpc(_) => Endpoint::<()>::owner(cores, message),
            Link::Gtpu(_) => crate::sgw::user_owner(cores, message),
            _ => Owner::Home,
        }
    }

    fn receive(&mut self, now_ns: u64, from: Link, message: &mut [u8], out: &mut impl Sink) {
        match from {
            Link::Gtpc(from) => match self.gtp.arrive(now_ns, from, message, out) {
                Some(Arrived::Request(gtpc)) => self.request(now_ns, from, &gtpc, out),
                Some(Arrived::Counter(restarts)) => self.heard(*from.ip(), restarts, out),
                Some(Arrived::Response(_)) | None => {}
            },
            Link::Gtpu(from) => self.packet(from, message, out),
            Link::Sgi => self.beyond(message, out),
            _ => {}
        }
    }

    fn notice(&mut self, now_ns: u64, notice: Notice, _: &mut impl Sink) {
        if self.gtp.told(now_ns, notice) {
            self.sessions.doubt();
        }
    }

    fn poll(&mut self, now_ns: u64, budget: usize, out: &mut impl Sink) -> Option<u64> {
        let mut left = budget;
        while let Some(id) = self.sessions.next_lost(&self.gtp.paths, &mut left) {
            self.remove(id);
            self.counts.lost += 1;
        }
        let mut left = budget;
        while self.gtp.poll(now_ns, &mut left, out).is_some() {}
        match self.sessions.is_in_doubt() {
            true => Some(now_ns),
            false => self.gtp.next_ns(),
        }
    }
}
