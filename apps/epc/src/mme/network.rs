//! What HSS and SGW say about users, and what they are asked.

use super::{About, Mme, State, User};
use crate::answers::Ask;
use crate::gtp::{Contents, put, put_cause, put_f_teid};
use crate::link::{Link, Sink};
use crate::s1::{Kind, cause as why};
use crate::s6a::{self, ROOM, command};
use crate::sgw::tunnel;
use linerate_wire::diameter::{Diameter, result};
use linerate_wire::gtpc::ie::{
    self, BearerQos, Cause, EUTRAN, FTeid, Imsi, Paa, Uli, cause, interface, pdn_type,
};
use linerate_wire::gtpc::{Gtpc, Writer, message};
use std::net::SocketAddrV4;

/// The one bearer of a user.
pub(super) const EBI: u8 = 5;

impl Mme {
    /// A message of the HSS.
    pub(super) fn hss_says(
        &mut self,
        now_ns: u64,
        link: Link,
        message: &Diameter<&[u8]>,
        out: &mut impl Sink,
    ) {
        let contents = s6a::Contents::read(message);
        if message.is_request() {
            return self.asked_by_hss(now_ns, link, message, contents, out);
        }
        let number = message.hop_by_hop();
        let id = self.gtp.about(number).map(|About(id)| id);
        let user = id.and_then(|id| Some((id, *self.users.get(id)?)));
        let user = user.filter(|(_, user)| user.pending == number);
        let Some((id, user)) = user else {
            self.counts.unexpected += 1;
            return;
        };
        let found = contents.unwrap_or_default();
        let is_success = found.result.is_some_and(result::is_success);
        match (user.state, message.command()) {
            (State::Vector, command::AUTHENTICATION_INFORMATION) => {
                match found.vector.filter(|_| is_success) {
                    Some(vector) => {
                        if let Some(user) = self.users.get_mut(id) {
                            user.xres = vector.xres;
                        }
                        if !self.step_and_wait(now_ns, id, State::Proof) {
                            return self.refuse(now_ns, id, why::CONGESTION, out);
                        }
                        self.to_user(id, Kind::Challenge, out, |message| {
                            message.rand = Some(vector.rand);
                            message.autn = Some(vector.autn);
                        });
                    }
                    None => self.refuse(now_ns, id, refused(found.result), out),
                }
            }
            (State::Locating, command::UPDATE_LOCATION) => {
                match found.subscription.filter(|_| is_success) {
                    Some(may) => {
                        if let Some(user) = self.users.get_mut(id) {
                            user.may = may;
                        }
                        self.create(now_ns, id, out);
                    }
                    None => self.refuse(now_ns, id, refused(found.result), out),
                }
            }
            (State::Purging, command::PURGE_UE) => self.gone(id, out),
            _ => self.counts.unexpected += 1,
        }
    }

    /// TS 29.272 5.2.1.2: another MME has the user; here nothing stays (TS 23.401 5.3.2.1).
    fn asked_by_hss(
        &mut self,
        now_ns: u64,
        link: Link,
        message: &Diameter<&[u8]>,
        contents: Result<s6a::Contents<'_>, s6a::Refusal>,
        out: &mut impl Sink,
    ) {
        let session = contents.as_ref().ok().and_then(|found| found.session);
        let own = self.config.who.host.as_bytes();
        let host = contents
            .as_ref()
            .ok()
            .and_then(|found| found.destination_host);
        let is_own = host.is_none_or(|host| host.eq_ignore_ascii_case(own));
        let code = match (message.command(), contents.map(|found| found.user)) {
            _ if !is_own => s6a::UNABLE_TO_DELIVER,
            (command::CANCEL_LOCATION, Ok(Some(user))) => {
                let id = self.by_imsi.lookup(&user.bytes()).map(u32::from_be_bytes);
                if let Some(id) = id {
                    self.to_user(id, Kind::Release, out, |message| {
                        message.cause = Some(why::SUPERSEDED);
                    });
                    if let Some(user) = self.users.get_mut(id) {
                        user.station_id = 0;
                    }
                    self.end(now_ns, id, why::SUPERSEDED, out);
                }
                result::SUCCESS
            }
            (command::CANCEL_LOCATION, Ok(None)) => result::MISSING_AVP,
            (command::CANCEL_LOCATION, Err(code)) => code,
            _ => result::COMMAND_UNSUPPORTED,
        };
        let mut room = [0; ROOM];
        let to = s6a::answer(&mut room, &self.config.who, message, session, code);
        if let Some(message) = to.finish() {
            out.send(link, message);
        }
    }

    /// Sends a request to the SGW about a user, who then waits in `state`.
    fn ask_sgw(
        &mut self,
        now_ns: u64,
        id: u32,
        state: State,
        kind: u8,
        out: &mut impl Sink,
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        // The session that is asked for has no end at the SGW, whatever there was before.
        let teid = match kind {
            message::CREATE_SESSION_REQUEST => 0,
            _ => self.users.get(id).map_or(0, |user| user.sgw_teid),
        };
        let to = (self.config.sgw, kind, teid);
        self.stop_waiting(id);
        let sent = self.gtp.request(now_ns, to, About(id), out, fill);
        if sent.is_some() {
            self.step(id, state, sent);
        }
        sent.is_some()
    }

    fn create(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) {
        let Some(&user) = self.users.get(id) else {
            return;
        };
        let epoch = self
            .gtp
            .paths
            .epoch(Self::now_ms(now_ns), *self.config.sgw.ip());
        let (Some(epoch), Some(imsi)) = (epoch, Imsi::from_bytes(user.imsi)) else {
            return self.refuse(now_ns, id, why::CONGESTION, out);
        };
        if let Some(user) = self.users.get_mut(id) {
            (user.sgw_epoch, user.before) = (epoch, 0);
        }
        let before = self.users.get(user.before);
        if before.is_some_and(|before| before.state == State::Creating) {
            // The SGW replaces whatever it is making: that is not asked for again.
            self.counts.superseded += 1;
            self.remove(user.before);
        }
        let control = &self.config.control;
        let own = FTeid::v4(interface::S11_MME, id, control.address.ip().octets());
        let pgw = FTeid::v4(interface::S5C_PGW, 0, self.config.pgw.octets());
        let (plmn, restarts) = (self.config.plmn, [control.restarts]);
        let mut apn = [0; 100];
        let len = ie::write_apn(&self.config.apn, &mut apn).unwrap_or_default();
        let uli = Uli {
            tai: Some((plmn, user.tac)),
            ecgi: Some((plmn, user.cell & 0x0fff_ffff)),
        };
        let qos = BearerQos {
            arp: 0x40 | (user.may.priority & 0x0f) << 2 | 1,
            qci: user.may.qci,
            ..BearerQos::default()
        };
        let ambr = user.may.ambr;
        let kind = message::CREATE_SESSION_REQUEST;
        let sent = self.ask_sgw(now_ns, id, State::Creating, kind, out, |to| {
            let digits = imsi.digits().div_ceil(2);
            to.ie(ie::IMSI, 0, &imsi.bytes()[..digits]);
            put(to, ie::ULI, 0, |bytes| uli.write(bytes));
            to.ie(ie::SERVING_NETWORK, 0, &plmn);
            to.ie(ie::RAT_TYPE, 0, &[EUTRAN]);
            put_f_teid(to, 0, &own);
            put_f_teid(to, 1, &pgw);
            to.ie(ie::APN, 0, &apn[..len]);
            // The name came from the network, and is a verified one.
            to.ie(ie::SELECTION_MODE, 0, &[0]);
            to.ie(ie::PDN_TYPE, 0, &[pdn_type::IPV4]);
            put(to, ie::PAA, 0, |bytes| Paa::v4([0; 4]).write(bytes));
            to.ie(ie::APN_RESTRICTION, 0, &[0]);
            put(to, ie::AMBR, 0, |bytes| ambr.write(bytes));
            to.group(ie::BEARER_CONTEXT, 0, |bearer| {
                bearer.ie(ie::EBI, 0, &[EBI]);
                put(bearer, ie::BEARER_QOS, 0, |bytes| qos.write(bytes));
            });
            to.ie(ie::RECOVERY, 0, &restarts);
            to.ie(ie::UE_TIME_ZONE, 0, &[0, 0]);
        });
        if !sent {
            self.refuse(now_ns, id, why::CONGESTION, out);
        }
    }

    /// The SGW is to send the user's packets to its base station.
    pub(super) fn modify(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) {
        let Some(&User { downlink, .. }) = self.users.get(id) else {
            return;
        };
        let station = FTeid::v4(interface::S1U_ENODEB, downlink.teid, downlink.address);
        let kind = message::MODIFY_BEARER_REQUEST;
        let sent = self.ask_sgw(now_ns, id, State::Modifying, kind, out, |to| {
            to.group(ie::BEARER_CONTEXT, 0, |bearer| {
                bearer.ie(ie::EBI, 0, &[EBI]);
                put_f_teid(bearer, 0, &station);
            });
        });
        if !sent {
            self.end(now_ns, id, why::CONGESTION, out);
        }
    }

    /// The SGW is to keep the user's packets (TS 23.401 5.3.5).
    /// False where that cannot be asked, and the user is as it was.
    pub(super) fn release(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) -> bool {
        let kind = message::RELEASE_ACCESS_BEARERS_REQUEST;
        self.ask_sgw(now_ns, id, State::Releasing, kind, out, |_| {})
    }

    /// The SGW is to end the user's session; false where that cannot be asked yet.
    pub(super) fn delete(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) -> bool {
        let kind = message::DELETE_SESSION_REQUEST;
        self.ask_sgw(now_ns, id, State::Deleting, kind, out, |to| {
            to.ie(ie::EBI, 0, &[EBI]);
            // OI: the PGW is to know (TS 29.274 8.12).
            to.ie(ie::INDICATION, 0, &[0x08, 0]);
        })
    }

    /// An answer of the SGW.
    pub(super) fn answered(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        gtpc: &Gtpc<&[u8]>,
        out: &mut impl Sink,
    ) {
        let sequence = gtpc.sequence();
        let id = self.gtp.about(sequence).map(|About(id)| id);
        let user = id.and_then(|id| Some((id, *self.users.get(id)?)));
        let user = user.filter(|(_, user)| user.pending == sequence);
        let is_match = |state| match state {
            State::Creating => gtpc.message() == message::CREATE_SESSION_RESPONSE,
            State::Modifying => gtpc.message() == message::MODIFY_BEARER_RESPONSE,
            State::Releasing => gtpc.message() == message::RELEASE_ACCESS_BEARERS_RESPONSE,
            State::Deleting => gtpc.message() == message::DELETE_SESSION_RESPONSE,
            _ => false,
        };
        let user = user.filter(|(_, user)| is_match(user.state));
        let Some((id, user)) = user.filter(|_| from.ip() == self.config.sgw.ip()) else {
            self.counts.unexpected += 1;
            return;
        };
        self.gtp.end(sequence);
        let contents = Contents::read(gtpc);
        if let Ok(Some(restarts)) = contents.map(|found| found.recovery) {
            self.heard(*from.ip(), restarts, out);
        }
        let found = contents.unwrap_or_default();
        let said = found.cause.map_or(0, |said| said.value);
        let is_accepted = cause::is_accepted(said);
        match user.state {
            State::Creating => match created(&found).filter(|_| is_accepted) {
                Some((control, uplink, address)) => {
                    let sgw = *self.config.sgw.ip();
                    let epoch = self.gtp.paths.epoch(Self::now_ms(now_ns), sgw);
                    if let Some(user) = self.users.get_mut(id) {
                        user.sgw_teid = control;
                        (user.uplink, user.address) = (uplink, address);
                        // The first counter that was heard may have been this answer's.
                        user.sgw_epoch = epoch.unwrap_or(user.sgw_epoch);
                    }
                    let why = match user.ends_by {
                        // The answer that came has made room for it.
                        why::NORMAL if self.context(now_ns, id, out) => return,
                        why::NORMAL => why::CONGESTION,
                        why => why,
                    };
                    self.end(now_ns, id, why, out);
                }
                None => self.refuse(now_ns, id, why::NETWORK_FAILURE, out),
            },
            State::Modifying if is_accepted && user.station_id != 0 => {
                // Every first time ends an attach, every later one a service request.
                self.step(id, State::Connected, None);
                self.counts.attached += u64::from(!user.was_connected);
                if let Some(user) = self.users.get_mut(id) {
                    user.was_connected = true;
                }
            }
            State::Modifying if is_accepted => {
                // The answer that came has made room for the request.
                self.release(now_ns, id, out);
            }
            State::Modifying => {
                if said == cause::CONTEXT_NOT_FOUND
                    && let Some(user) = self.users.get_mut(id)
                {
                    user.sgw_teid = 0;
                }
                self.end(now_ns, id, why::NETWORK_FAILURE, out);
            }
            State::Releasing => self.released(now_ns, id, out),
            // Whatever it says, the session is gone.
            State::Deleting => self.purge(now_ns, id, out),
            _ => {}
        }
    }

    /// A request of the SGW: packets wait for a user (TS 23.401 5.3.4.3).
    pub(super) fn sgw_says(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        gtpc: &Gtpc<&[u8]>,
        out: &mut impl Sink,
    ) {
        if gtpc.message() != message::DOWNLINK_DATA_NOTIFICATION {
            self.gtp.counts.stray += 1;
            return;
        }
        let id = gtpc.teid().unwrap_or_default();
        let user = self
            .users
            .get(id)
            .filter(|user| user.sgw_teid != 0)
            .copied();
        // Who is idle is paged; who is on the way to it, when it is. Who is about to be connected
        // is heard of soon. Of others the SGW is to tell again: what it holds back until then is
        // lost, but not what comes later.
        let state = user.map(|user| user.state);
        let said = match state {
            None => cause::CONTEXT_NOT_FOUND,
            Some(State::Idle) if self.step_and_wait(now_ns, id, State::Paging) => cause::ACCEPTED,
            Some(State::Paging | State::Context | State::Modifying) => cause::ACCEPTED,
            Some(State::Releasing | State::Released) => {
                if let Some(user) = self.users.get_mut(id) {
                    user.is_wanted = true;
                }
                cause::ACCEPTED
            }
            Some(_) => cause::UNABLE_TO_PAGE,
        };
        let teid = user.map_or(0, |user| user.sgw_teid);
        let kind = message::DOWNLINK_DATA_NOTIFICATION_ACK;
        self.gtp
            .answer(now_ns, Ask::of(from, gtpc), kind, teid, out, |to| {
                put_cause(to, Cause::new(said));
            });
        if state == Some(State::Idle) && said == cause::ACCEPTED {
            self.page(id, out);
        }
    }

    /// Nobody answered the pagings.
    pub(super) fn not_found(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) {
        self.counts.not_found += 1;
        self.step(id, State::Idle, None);
        self.give_up(now_ns, id, cause::UE_NOT_RESPONDING, out);
    }

    /// The SGW drops what waits for a user.
    pub(super) fn give_up(&mut self, now_ns: u64, id: u32, why: u8, out: &mut impl Sink) {
        let Some(&User { sgw_teid, .. }) = self.users.get(id) else {
            return;
        };
        let (to, kind) = (self.config.sgw, message::DOWNLINK_DATA_NOTIFICATION_FAILURE);
        let said = Cause::new(why);
        // It is not answered: its number is not waited for.
        let patience = self.config.paging;
        let Some(sequence) = self.gtp.wait(now_ns, patience, About(id)) else {
            return;
        };
        self.gtp.end(sequence);
        self.gtp
            .send(to, kind, Some(sgw_teid), sequence, out, |to| {
                put_cause(to, said);
            });
    }
}

/// What a session has, of an answer that has it all: the SGW's ends for control and user, and the
/// user's address.
fn created(found: &Contents<'_>) -> Option<(u32, crate::s1::Tunnel, [u8; 4])> {
    let control = tunnel(found.sender?)?;
    let user = tunnel(found.bearer?.f_teids[0]?)?;
    Some((control.teid, user, found.paa?.v4?))
}

/// What a user is told of the HSS's refusal.
fn refused(code: Option<u32>) -> u8 {
    match code {
        Some(s6a::experimental::USER_UNKNOWN | s6a::experimental::UNKNOWN_EPS_SUBSCRIPTION) => {
            why::UNKNOWN_USER
        }
        _ => why::NETWORK_FAILURE,
    }
}
