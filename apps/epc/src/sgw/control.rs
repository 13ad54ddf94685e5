//! Sessions: what the MME asks, what the PGW answers.

use super::{About, Peer, Session, Sgw, State};
use crate::answers::Ask;
use crate::gtp::sessions::Session as _;
use crate::gtp::{Contents, Refusal, missing, put_cause, put_f_teid, refusal};
use crate::link::Sink;
use crate::s1::Tunnel;
use linerate_wire::gtpc::ie::{self, Cause, FTeid, Imsi, cause, interface};
use linerate_wire::gtpc::{Gtpc, ies, message};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Reads an IPv4 tunnel end.
pub(crate) fn tunnel(f_teid: FTeid) -> Option<Tunnel> {
    let address = f_teid.v4?;
    let teid = f_teid.teid;
    (teid != 0).then_some(Tunnel { teid, address })
}

impl Sgw {
    /// Takes a restart counter: sessions of a peer that restarted are looked for from the start.
    pub(super) fn heard(&mut self, address: Ipv4Addr, restarts: u8, out: &mut impl Sink) {
        if self.gtp.heard(address, restarts, out) {
            self.sessions.doubt();
        }
    }

    pub(super) fn request(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        gtpc: &Gtpc<&[u8]>,
        out: &mut impl Sink,
    ) {
        let ask = Ask::of(from, gtpc);
        let id = ask.teid;
        let contents = Contents::read(gtpc);
        match gtpc.message() {
            message::CREATE_SESSION_REQUEST => {
                let sender = contents.as_ref().ok().and_then(|found| found.sender);
                let done = contents.and_then(|found| self.create(now_ns, ask, gtpc, &found, out));
                if let Err(refusal) = done {
                    let teid = sender.map_or(0, |sender| sender.teid);
                    let kind = message::CREATE_SESSION_RESPONSE;
                    self.gtp.refuse(now_ns, ask, kind, teid, refusal, out);
                }
            }
            message::MODIFY_BEARER_REQUEST => {
                let kind = message::MODIFY_BEARER_RESPONSE;
                let done = contents.and_then(|found| self.modify(id, &found, out));
                match done {
                    Ok(ebi) => {
                        let own = self.own_s1u(id);
                        let teid = self.mme_teid(id);
                        self.gtp.accept(now_ns, ask, kind, teid, out, |to| {
                            to.group(ie::BEARER_CONTEXT, 0, |bearer| {
                                bearer.ie(ie::EBI, 0, &[ebi]);
                                put_cause(bearer, Cause::new(cause::ACCEPTED));
                                put_f_teid(bearer, 0, &own);
                            });
                        });
                    }
                    Err(refusal) => {
                        let teid = self.mme_teid(id);
                        self.gtp.refuse(now_ns, ask, kind, teid, refusal, out);
                    }
                }
            }
            message::RELEASE_ACCESS_BEARERS_REQUEST => {
                let kind = message::RELEASE_ACCESS_BEARERS_RESPONSE;
                let known = self.active(id).map(drop);
                self.leave_station(id);
                let teid = self.mme_teid(id);
                match known.and(contents) {
                    Ok(_) => self.gtp.accept(now_ns, ask, kind, teid, out, |_| {}),
                    Err(refusal) => self.gtp.refuse(now_ns, ask, kind, teid, refusal, out),
                }
            }
            message::DELETE_SESSION_REQUEST => {
                if let Err(refusal) = self.delete(now_ns, ask, id, out) {
                    let (kind, teid) = (message::DELETE_SESSION_RESPONSE, self.mme_teid(id));
                    self.gtp.refuse(now_ns, ask, kind, teid, refusal, out);
                }
            }
            message::DOWNLINK_DATA_NOTIFICATION_FAILURE => self.give_up(id),
            _ => self.gtp.counts.stray += 1,
        }
    }

    fn mme_teid(&self, id: u32) -> u32 {
        self.sessions.get(id).map_or(0, |session| session.mme.teid)
    }

    /// A session that is there, whole.
    fn active(&self, id: u32) -> Result<&Session, Refusal> {
        let session = self.sessions.get(id);
        let session = session.filter(|session| session.state == State::Active);
        session.ok_or(Cause::new(cause::CONTEXT_NOT_FOUND))
    }

    fn own_s1u(&self, id: u32) -> FTeid {
        FTeid::v4(interface::S1U_SGW, id, self.user.octets())
    }

    fn create(
        &mut self,
        now_ns: u64,
        ask: Ask,
        gtpc: &Gtpc<&[u8]>,
        found: &Contents<'_>,
        out: &mut impl Sink,
    ) -> Result<(), Refusal> {
        let imsi: Imsi = found.imsi.ok_or(missing(ie::IMSI, 0))?;
        let known = self.sessions.of_user(&imsi.bytes());
        let session = known.and_then(|id| self.sessions.get(id));
        if session.is_some_and(|session| session.state == State::Creating && session.ask == ask) {
            return Ok(()); // the same, again
        }
        found.rat_type.ok_or(missing(ie::RAT_TYPE, 0))?;
        found.apn.ok_or(missing(ie::APN, 0))?;
        let mme = found.sender.ok_or(missing(ie::F_TEID, 0))?;
        let pgw = found.gateway.ok_or(missing(ie::F_TEID, 1))?;
        let bearer = found.bearer.ok_or(missing(ie::BEARER_CONTEXT, 0))?;
        let ebi = bearer.ebi.ok_or(missing(ie::EBI, 0))?;
        bearer.qos.ok_or(missing(ie::BEARER_QOS, 0))?;
        let wrong = |instance| refusal(cause::MANDATORY_IE_INCORRECT, ie::F_TEID, instance);
        let mme = tunnel(mme).ok_or(wrong(0))?;
        let pgw_address = Ipv4Addr::from(pgw.v4.ok_or(wrong(1))?);

        let mme_address = Ipv4Addr::from(mme.address);
        let (mme_epoch, is_restart) = self.gtp.peer(now_ns, mme_address, found.recovery, out)?;
        if is_restart {
            self.sessions.doubt();
        }
        let (pgw_epoch, _) = self.gtp.peer(now_ns, pgw_address, None, out)?;
        let session = Session {
            imsi: imsi.bytes(),
            mme: Peer {
                address: mme_address.into(),
                teid: mme.teid,
                epoch: mme_epoch,
            },
            pgw: Peer {
                address: pgw_address.into(),
                teid: pgw.teid,
                epoch: pgw_epoch,
            },
            ebi,
            ask,
            ..Session::default()
        };
        // Of one place that was free, the PGW may have it that the MME had just taken.
        if !session.stands(&self.gtp.paths) {
            return Err(Cause::new(cause::NO_RESOURCES));
        }
        // TS 29.274 7.2.1: a session of the same user is replaced.
        if let Some(old) = self.sessions.of_user(&imsi.bytes()) {
            self.replace(now_ns, old, pgw_address, out);
        }
        let to = (
            session.pgw.socket(),
            message::CREATE_SESSION_REQUEST,
            pgw.teid,
        );
        let id = self.sessions.insert(session)?;
        for peer in [session.mme, session.pgw] {
            self.gtp.paths.hold(peer.address.into());
        }
        let own = FTeid::v4(
            interface::S5C_SGW,
            id,
            self.gtp.config().address.ip().octets(),
        );
        let down = self.sessions.space().second_side(id);
        let own_user = FTeid::v4(interface::S5U_SGW, down, self.user.octets());
        let restarts = [self.gtp.config().restarts];
        let about = About::Create(id);
        let sent = self.gtp.request(now_ns, to, about, out, |to| {
            // All that the PGW has to know is passed on as it came.
            for ie in gtpc.ies().flatten() {
                match (ie.kind, ie.instance) {
                    (ie::F_TEID, 0) => put_f_teid(to, 0, &own),
                    (ie::F_TEID, _) | (ie::RECOVERY, _) => {}
                    (ie::BEARER_CONTEXT, 0) => to.group(ie::BEARER_CONTEXT, 0, |bearer| {
                        let inside = ies(ie.value).flatten();
                        for ie in inside.filter(|ie| ie.kind != ie::F_TEID) {
                            bearer.ie(ie.kind, ie.instance, ie.value);
                        }
                        put_f_teid(bearer, 2, &own_user);
                    }),
                    _ => to.ie(ie.kind, ie.instance, ie.value),
                }
            }
            to.ie(ie::RECOVERY, 0, &restarts);
        });
        let Some(request) = sent else {
            self.remove(id);
            return Err(Cause::new(cause::NO_RESOURCES));
        };
        if let Some(session) = self.sessions.get_mut(id) {
            session.request = request;
        }
        Ok(())
    }

    fn modify(
        &mut self,
        id: u32,
        found: &Contents<'_>,
        out: &mut impl Sink,
    ) -> Result<u8, Refusal> {
        let known = self.active(id)?.ebi;
        let bearer = found.bearer.ok_or(missing(ie::BEARER_CONTEXT, 0))?;
        let ebi = bearer.ebi.ok_or(missing(ie::EBI, 0))?;
        if ebi != known {
            return Err(Cause::new(cause::CONTEXT_NOT_FOUND));
        }
        let station = bearer.f_teids[0].ok_or(missing(ie::F_TEID, 0))?;
        let wrong = refusal(cause::MANDATORY_IE_INCORRECT, ie::F_TEID, 0);
        self.connect(id, self.elsewhere(station).ok_or(wrong)?, out);
        Ok(ebi)
    }

    /// A user's tunnel that ends elsewhere. In one of our own its packets would go round and round.
    fn elsewhere(&self, f_teid: FTeid) -> Option<Tunnel> {
        tunnel(f_teid).filter(|tunnel| tunnel.address != self.user.octets())
    }

    fn delete(
        &mut self,
        now_ns: u64,
        ask: Ask,
        id: u32,
        out: &mut impl Sink,
    ) -> Result<(), Refusal> {
        let pgw = self.active(id)?.pgw;
        let ebi = self.active(id)?.ebi;
        let to = (pgw.socket(), message::DELETE_SESSION_REQUEST, pgw.teid);
        let sent = self.gtp.request(now_ns, to, About::Delete(id), out, |to| {
            to.ie(ie::EBI, 0, &[ebi]);
        });
        let request = sent.ok_or(Cause::new(cause::NO_RESOURCES))?;
        if let Some(session) = self.sessions.get_mut(id) {
            (session.state, session.request) = (State::Deleting, request);
            session.ask = ask;
        }
        Ok(())
    }

    pub(super) fn response(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        gtpc: &Gtpc<&[u8]>,
        out: &mut impl Sink,
    ) {
        let sequence = gtpc.sequence();
        let Some(about) = self.gtp.about(sequence) else {
            return;
        };
        // An answer by someone else than who was asked is none.
        let session = |id| self.sessions.get(id);
        let peer = match about {
            About::Create(id) | About::Delete(id) => session(id).map(|known| known.pgw.address),
            About::Notify(id) => session(id).map(|known| known.mme.address),
            About::Left(pgw) => Some(pgw),
            About::Nothing => None,
        };
        let is_match = match about {
            About::Create(_) => gtpc.message() == message::CREATE_SESSION_RESPONSE,
            About::Delete(_) | About::Left(_) => gtpc.message() == message::DELETE_SESSION_RESPONSE,
            _ => gtpc.message() == message::DOWNLINK_DATA_NOTIFICATION_ACK,
        };
        if peer != Some((*from.ip()).into()) || !is_match {
            self.gtp.counts.stray += 1;
            return;
        }
        self.gtp.end(sequence);
        let contents = Contents::read(gtpc);
        if let Ok(Some(restarts)) = contents.map(|found| found.recovery) {
            self.heard(*from.ip(), restarts, out);
        }
        match about {
            About::Create(id) => {
                let done = contents.and_then(|found| self.created(now_ns, id, gtpc, &found, out));
                if let Err(refusal) = done {
                    self.not_created(now_ns, id, refusal, out);
                }
            }
            About::Delete(id) => self.deleted(now_ns, id, out),
            About::Left(_) | About::Nothing => {}
            About::Notify(id) => {
                let said = contents.ok().and_then(|found| found.cause);
                if let Some(session) = self.sessions.get_mut(id) {
                    session.notification = 0;
                }
                if !said.is_some_and(|said| cause::is_accepted(said.value)) {
                    self.give_up(id);
                }
            }
        }
    }

    fn created(
        &mut self,
        now_ns: u64,
        id: u32,
        gtpc: &Gtpc<&[u8]>,
        found: &Contents<'_>,
        out: &mut impl Sink,
    ) -> Result<(), Refusal> {
        let said = found.cause.ok_or(missing(ie::CAUSE, 0))?;
        if !cause::is_accepted(said.value) {
            // TS 29.274 8.4: the cause is that of the node behind us.
            return Err(Cause { flags: 1, ..said });
        }
        let control = found.gateway.ok_or(missing(ie::F_TEID, 1))?;
        let bearer = found.bearer.ok_or(missing(ie::BEARER_CONTEXT, 0))?;
        let user = bearer.f_teids[2].ok_or(missing(ie::F_TEID, 2))?;
        let wrong = |instance| refusal(cause::MANDATORY_IE_INCORRECT, ie::F_TEID, instance);
        let control = tunnel(control).ok_or(wrong(1))?;
        let user = self.elsewhere(user).ok_or(wrong(2))?;
        let Some(session) = self.sessions.get_mut(id) else {
            return Ok(());
        };
        session.pgw.teid = control.teid;
        (session.state, session.request) = (State::Active, 0);
        self.joins.open(id, user);
        let (ask, teid) = (session.ask, session.mme.teid);
        self.counts.created += 1;
        let own = FTeid::v4(
            interface::S11_SGW,
            id,
            self.gtp.config().address.ip().octets(),
        );
        let (own_user, restarts) = (self.own_s1u(id), [self.gtp.config().restarts]);
        let kind = message::CREATE_SESSION_RESPONSE;
        self.gtp.answer(now_ns, ask, kind, teid, out, |to| {
            for ie in gtpc.ies().flatten() {
                match (ie.kind, ie.instance) {
                    (ie::F_TEID, 0) | (ie::RECOVERY, _) => {}
                    (ie::CAUSE, 0) => {
                        to.ie(ie::CAUSE, 0, ie.value);
                        put_f_teid(to, 0, &own);
                    }
                    (ie::BEARER_CONTEXT, 0) => to.group(ie::BEARER_CONTEXT, 0, |bearer| {
                        for ie in ies(ie.value).flatten() {
                            bearer.ie(ie.kind, ie.instance, ie.value);
                        }
                        put_f_teid(bearer, 0, &own_user);
                    }),
                    _ => to.ie(ie.kind, ie.instance, ie.value),
                }
            }
            to.ie(ie::RECOVERY, 0, &restarts);
        });
        Ok(())
    }

    /// A session gives its user's place to a new one; who waits for it to be made or deleted has
    /// its answer. Its PGW is told, unless that has the new one, too, and replaces it itself.
    fn replace(&mut self, now_ns: u64, id: u32, pgw: Ipv4Addr, out: &mut impl Sink) {
        self.counts.replaced += 1;
        let Some(&old) = self.sessions.get(id) else {
            return;
        };
        match old.state {
            State::Creating => {
                let refusal = Cause::new(cause::REQUEST_REJECTED);
                self.not_created(now_ns, id, refusal, out);
            }
            State::Deleting => self.deleted(now_ns, id, out),
            State::Active => self.remove(id),
        }
        if old.state != State::Creating && Ipv4Addr::from(old.pgw.address) != pgw {
            let to = (
                old.pgw.socket(),
                message::DELETE_SESSION_REQUEST,
                old.pgw.teid,
            );
            let about = About::Left(old.pgw.address);
            // Where too much is in flight, it stays until the PGW hears of a restart.
            self.gtp.request(now_ns, to, about, out, |to| {
                to.ie(ie::EBI, 0, &[old.ebi]);
            });
        }
    }

    fn not_created(&mut self, now_ns: u64, id: u32, refusal: Refusal, out: &mut impl Sink) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let (ask, teid) = (session.ask, session.mme.teid);
        let kind = message::CREATE_SESSION_RESPONSE;
        self.gtp.refuse(now_ns, ask, kind, teid, refusal, out);
        self.remove(id);
    }

    /// The PGW forgot the session, or does not answer: either way it ends here.
    fn deleted(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let (ask, teid) = (session.ask, session.mme.teid);
        self.counts.deleted += 1;
        let kind = message::DELETE_SESSION_RESPONSE;
        self.gtp.accept(now_ns, ask, kind, teid, out, |_| {});
        self.remove(id);
    }

    /// A peer did not answer.
    pub(super) fn overdue(&mut self, now_ns: u64, about: About, out: &mut impl Sink) {
        match about {
            About::Create(id) => {
                let refusal = Cause::new(cause::PEER_NOT_RESPONDING);
                self.not_created(now_ns, id, refusal, out);
            }
            About::Delete(id) => self.deleted(now_ns, id, out),
            About::Notify(id) => self.give_up(id),
            About::Left(_) | About::Nothing => {}
        }
    }
}
