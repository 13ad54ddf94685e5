//! What users and base stations say, and the steps of a user's life: attach (TS 23.401 5.3.2.1),
//! release (5.3.5), service request (5.3.4.1), detach (5.3.8.2.1).

use super::{Mme, State, User};
use crate::link::{MS, Sink};
use crate::s1::{Kind, Message, cause};
use crate::s6a::{self, ROOM, command};
use linerate_wire::diameter::Writer;
use linerate_wire::gtpc::ie::{Imsi, cause as gtpc};

/// The most of one name who are not proved.
const UNPROVED: usize = 8;

impl Mme {
    /// A message of a base station.
    pub(super) fn station_says(
        &mut self,
        now_ns: u64,
        station: u16,
        message: &Message,
        out: &mut impl Sink,
    ) {
        let id = message.mme_id;
        // That it is there is told once, and a telling may be lost.
        if self
            .stations
            .get(usize::from(station))
            .is_some_and(|known| !known.is_open)
        {
            self.station_is(station, true);
        }
        match message.kind {
            Kind::Setup => {
                let mut answer = Message::new(Kind::SetupAnswer, 0, 0);
                if message.plmn != Some(self.config.plmn) {
                    answer.cause = Some(cause::WRONG_NETWORK);
                }
                self.s1(station, &answer, out);
                return;
            }
            Kind::Attach => return self.attach(now_ns, station, message, out),
            Kind::Service => return self.service(now_ns, station, message, out),
            Kind::Detach if id == 0 => return self.detach_idle(now_ns, station, message, out),
            _ => {}
        }
        // All else is about the connection of a user that has one, at that base station.
        let user = self.users.get(id).copied();
        let user = user.filter(|user| {
            let is_it = (user.station, user.station_id) == (station, message.station_id);
            is_it && self.has_station(user)
        });
        let Some(user) = user else {
            // Of a user that is gone, that is all right. Otherwise a base station that has what we
            // have not is told to forget it.
            if message.kind == Kind::ReleaseAnswer {
                return;
            }
            self.counts.unexpected += 1;
            if message.station_id != 0 {
                let mut release = Message::new(Kind::Release, message.station_id, id);
                release.cause = Some(cause::UNKNOWN_USER);
                self.s1(station, &release, out);
            }
            return;
        };
        match (message.kind, user.state) {
            (Kind::ChallengeAnswer, State::Proof) => {
                self.proof(now_ns, id, &user, message, out);
            }
            (Kind::SecurityAnswer, State::Securing) => self.locate(now_ns, id, out),
            (Kind::ContextAnswer, State::Context) => match message.tunnel {
                Some(tunnel) if tunnel.teid != 0 && message.cause.is_none() => {
                    if let Some(user) = self.users.get_mut(id) {
                        user.downlink = tunnel;
                    }
                    self.modify(now_ns, id, out);
                }
                _ => self.not_carried(now_ns, id, out),
            },
            (Kind::ReleaseRequest, State::Connected) => {
                // Where too much is in flight, the base station asks again.
                self.release(now_ns, id, out);
            }
            (Kind::ReleaseAnswer, State::Released) => self.idle(now_ns, id, out),
            (Kind::Detach, State::Ending | State::Deleting | State::Purging) => {}
            (Kind::Detach, State::Vector | State::Proof) => {
                // Nobody is proved: of the user in whose name it came, nothing changes.
                self.counts.unproved += 1;
                self.to_user(id, Kind::DetachAnswer, out, |_| {});
                self.remove(id);
            }
            (Kind::Detach, _) => self.end(now_ns, id, cause::DETACHED, out),
            _ => self.counts.unexpected += 1,
        }
    }

    /// Which of the base stations with that number is there.
    fn opened(&self, station: u16) -> u32 {
        let station = self.stations.get(usize::from(station));
        station.map_or(0, |station| station.opened)
    }

    fn reject(&mut self, station: u16, station_id: u32, why: u8, out: &mut impl Sink) {
        match why {
            cause::CONGESTION => self.counts.congestion += 1,
            _ => self.counts.rejected += 1,
        }
        let mut reject = Message::new(Kind::Reject, station_id, 0);
        reject.cause = Some(why);
        self.s1(station, &reject, out);
    }

    /// A user that is on its way in is refused, and forgotten, with the session that it may have
    /// had before.
    pub(super) fn refuse(&mut self, now_ns: u64, id: u32, why: u8, out: &mut impl Sink) {
        let Some(&user) = self.users.get(id) else {
            return;
        };
        if self.has_station(&user) {
            self.reject(user.station, user.station_id, why, out);
        }
        self.leave(now_ns, id, why, out);
    }

    /// The same, and it is told nothing.
    fn leave(&mut self, now_ns: u64, id: u32, why: u8, out: &mut impl Sink) {
        match self.users.get_mut(id) {
            Some(user) if user.sgw_teid != 0 => {
                user.station_id = 0;
                self.end(now_ns, id, why, out);
            }
            _ => self.remove(id),
        }
    }

    /// TS 24.301 5.5.1.2.7: who attaches in the name of a user who is there has to prove itself
    /// first. Of too many who are not proved, the first one goes: so many have to come while a user
    /// proves itself to keep it out.
    fn attach(&mut self, now_ns: u64, station: u16, message: &Message, out: &mut impl Sink) {
        let station_id = message.station_id;
        let imsi = message.imsi.and_then(Imsi::from_bytes);
        let Some(imsi) = imsi.filter(|_| station_id != 0) else {
            self.counts.malformed += 1;
            return;
        };
        let (mut oldest, mut count) = (None, 0);
        for id in self.of_name(&imsi.bytes()) {
            let Some(user) = self.users.get(id) else {
                continue;
            };
            let is_same =
                (user.station, user.station_id) == (station, station_id) && self.has_station(user);
            let goes = matches!(
                user.state,
                State::Connected | State::Ending | State::Deleting
            );
            if is_same && !goes {
                return; // the same, again
            }
            if matches!(user.state, State::Vector | State::Proof) {
                oldest = oldest.or(Some(id));
                count += 1;
            }
        }
        if let Some(oldest) = oldest.filter(|_| count >= UNPROVED) {
            self.counts.unproved += 1;
            self.supersede(oldest, out);
        }
        // Who is not proved leaves half of the places to those who are.
        if self.gtp.in_flight() * 2 >= self.config.control.requests {
            return self.reject(station, station_id, cause::CONGESTION, out);
        }
        let user = User {
            imsi: imsi.bytes(),
            station,
            station_id,
            opened: self.opened(station),
            tac: message.tac.unwrap_or_default(),
            cell: message.cell.unwrap_or_default(),
            ..User::default()
        };
        let Some(id) = self.users.insert(user) else {
            return self.reject(station, station_id, cause::CONGESTION, out);
        };
        let last = self.of_name(&imsi.bytes()).last();
        let is_placed = match last {
            Some(last) => {
                self.set_newcomer(last, id);
                true
            }
            None => {
                let bytes = id.to_be_bytes();
                self.by_imsi.insert(&imsi.bytes(), bytes).is_ok()
            }
        };
        let plmn = self.config.plmn;
        let command = command::AUTHENTICATION_INFORMATION;
        let asked = is_placed
            && self.ask_hss(now_ns, id, State::Vector, command, out, |to| {
                s6a::put_vector_wanted(to, plmn);
            });
        if !asked {
            self.refuse(now_ns, id, cause::CONGESTION, out);
        }
    }

    /// A user is forgotten for another one of its name.
    fn supersede(&mut self, id: u32, out: &mut impl Sink) {
        self.to_user(id, Kind::Release, out, |message| {
            message.cause = Some(cause::SUPERSEDED);
        });
        self.remove(id);
    }

    /// Asks the HSS about a user; false, and nothing else, where that cannot be.
    fn ask_hss(
        &mut self,
        now_ns: u64,
        id: u32,
        state: State,
        command: u32,
        out: &mut impl Sink,
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        let is_open = self.hss.state() == s6a::connection::State::Open;
        let user = self.users.get(id);
        let imsi = user.and_then(|user| Imsi::from_bytes(user.imsi));
        let Some(imsi) = imsi.filter(|_| is_open) else {
            return false;
        };
        if !self.step_and_wait(now_ns, id, state) {
            return false;
        }
        let number = self.users.get(id).map_or(0, |user| user.pending);
        let mut room = [0; ROOM];
        let mut to = s6a::request(&mut room, &self.config.who, command, number, imsi);
        fill(&mut to);
        // What names too long for it makes is missed like an answer.
        if let Some(message) = to.finish() {
            out.send(self.hss_link, message);
        }
        true
    }

    fn proof(&mut self, now_ns: u64, id: u32, user: &User, message: &Message, out: &mut impl Sink) {
        if message.res != Some(user.xres) {
            return self.refuse(now_ns, id, cause::NOT_AUTHENTICATED, out);
        }
        self.take_place(now_ns, id, user, out);
        if self.step_and_wait(now_ns, id, State::Securing) {
            self.to_user(id, Kind::Security, out, |_| {});
        } else {
            self.refuse(now_ns, id, cause::CONGESTION, out);
        }
    }

    /// Who is proved takes the place of whom there was, with the session: the SGW replaces that
    /// when the new one is made (TS 29.274 7.2.1).
    fn take_place(&mut self, now_ns: u64, id: u32, user: &User, out: &mut impl Sink) {
        let known = self.by_imsi.lookup(&user.imsi).map(u32::from_be_bytes);
        let before = self.ahead_of(id, &user.imsi);
        let (Some(known), Some(before)) = (known, before) else {
            return;
        };
        // All other newcomers are behind it now.
        self.set_newcomer(before, user.newcomer);
        let others = self.users.get(known).map_or(0, |old| old.newcomer);
        self.set_newcomer(id, others);
        self.set_newcomer(known, id);
        let Some(old) = self.users.get_mut(known) else {
            return;
        };
        let session = (old.sgw_teid, old.sgw_epoch, old.before);
        let is_made = old.state == State::Creating && self.gtp.about(old.pending).is_some();
        // The base station has but one user of that number.
        if (old.station, old.station_id) == (user.station, user.station_id) {
            old.station_id = 0;
        }
        if is_made {
            return self.outlive(now_ns, known, id, out);
        }
        match old.state {
            State::Vector | State::Proof => self.counts.unproved += 1,
            _ => self.counts.superseded += 1,
        }
        self.supersede(known, out);
        if let Some(user) = self.users.get_mut(id) {
            (user.sgw_teid, user.sgw_epoch, user.before) = session;
        }
    }

    /// The same where the old one's session is being made: its record waits, for nobody to find,
    /// until the SGW has said what there is to end, or is asked for the new one.
    fn outlive(&mut self, now_ns: u64, old: u32, id: u32, out: &mut impl Sink) {
        self.to_user(old, Kind::Release, out, |message| {
            message.cause = Some(cause::SUPERSEDED);
        });
        let Some(user) = self.users.get_mut(old) else {
            return;
        };
        (user.station_id, user.newcomer) = (0, 0);
        let (imsi, place) = (user.imsi, id.to_be_bytes());
        self.by_imsi.update(&imsi, |_| place);
        if let Some(user) = self.users.get_mut(id) {
            user.before = old;
        }
        self.end(now_ns, old, cause::SUPERSEDED, out);
    }

    fn locate(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) {
        let plmn = self.config.plmn;
        let command = command::UPDATE_LOCATION;
        let asked = self.ask_hss(now_ns, id, State::Locating, command, out, |to| {
            s6a::put_location(to, plmn);
        });
        if !asked {
            self.refuse(now_ns, id, cause::CONGESTION, out);
        }
    }

    /// The base station is to carry the user; false where it cannot be waited for.
    pub(super) fn context(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) -> bool {
        if !self.step_and_wait(now_ns, id, State::Context) {
            return false;
        }
        let Some(&User {
            uplink, address, ..
        }) = self.users.get(id)
        else {
            return false;
        };
        self.to_user(id, Kind::Context, out, |message| {
            message.ebi = Some(super::network::EBI);
            message.tunnel = Some(uplink);
            message.address = Some(address);
            message.tmsi = Some(id);
        });
        true
    }

    /// The base station does not carry the user: one that asked for service stays idle, and its
    /// packets do not wait.
    fn not_carried(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) {
        if !self.users.get(id).is_some_and(|user| user.was_connected) {
            return self.end(now_ns, id, cause::NO_RESOURCES, out);
        }
        self.to_user(id, Kind::Release, out, |message| {
            message.cause = Some(cause::USER_INACTIVITY);
        });
        self.idle(now_ns, id, out);
        self.give_up(now_ns, id, gtpc::SERVICE_DENIED, out);
    }

    fn service(&mut self, now_ns: u64, station: u16, message: &Message, out: &mut impl Sink) {
        let station_id = message.station_id;
        if station_id == 0 {
            self.counts.malformed += 1;
            return;
        }
        let id = message.tmsi.unwrap_or_default();
        let opened = self.opened(station);
        let Some(user) = self.users.get_mut(id) else {
            // The user attaches again.
            return self.reject(station, station_id, cause::UNKNOWN_USER, out);
        };
        match user.state {
            State::Idle | State::Paging => {}
            State::Context | State::Modifying
                if (user.station, user.station_id, user.opened)
                    == (station, station_id, opened) =>
            {
                return; // the same, again
            }
            // It crosses with something else that is done: the user asks again.
            _ => return self.reject(station, station_id, cause::CONGESTION, out),
        }
        (user.station, user.station_id, user.opened) = (station, station_id, opened);
        user.tac = message.tac.unwrap_or(user.tac);
        user.cell = message.cell.unwrap_or(user.cell);
        if self.context(now_ns, id, out) {
            self.counts.services += 1;
            return;
        }
        if let Some(user) = self.users.get_mut(id) {
            user.station_id = 0;
        }
        self.reject(station, station_id, cause::CONGESTION, out);
    }

    /// The SGW gave the bearer back: the base station forgets the user.
    pub(super) fn released(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) {
        self.to_user(id, Kind::Release, out, |message| {
            message.cause = Some(cause::USER_INACTIVITY);
        });
        let is_there = self.users.get(id).is_some_and(|user| user.station_id != 0);
        if !is_there || !self.step_and_wait(now_ns, id, State::Released) {
            self.idle(now_ns, id, out);
        }
    }

    pub(super) fn idle(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) {
        self.step(id, State::Idle, None);
        let Some(user) = self.users.get_mut(id) else {
            return;
        };
        (user.station_id, user.downlink) = (0, Default::default());
        self.counts.idled += 1;
        if !std::mem::take(&mut user.is_wanted) {
            return;
        }
        match self.step_and_wait(now_ns, id, State::Paging) {
            true => self.page(id, out),
            false => self.not_found(now_ns, id, out),
        }
    }

    /// Looks for a user in all cells: the one where it was last is told first.
    pub(super) fn page(&mut self, id: u32, out: &mut impl Sink) {
        let Some(user) = self.users.get(id) else {
            return;
        };
        let last = user.station;
        self.counts.pagings += 1;
        let mut paging = Message::new(Kind::Paging, 0, 0);
        paging.tmsi = Some(id);
        let others = (0..self.stations.len() as u16).filter(|station| *station != last);
        for station in std::iter::once(last).chain(others) {
            if self.stations[usize::from(station)].is_open {
                self.s1(station, &paging, out);
            }
        }
    }

    fn detach_idle(&mut self, now_ns: u64, station: u16, message: &Message, out: &mut impl Sink) {
        let id = message.tmsi.unwrap_or_default();
        let (station_id, opened) = (message.station_id, self.opened(station));
        let user = self.users.get_mut(id);
        let user = user.filter(|user| matches!(user.state, State::Idle | State::Paging));
        let Some(user) = user.filter(|_| station_id != 0) else {
            self.counts.unexpected += 1;
            if station_id != 0 {
                // It is gone already, or its connection tells.
                let gone = Message::new(Kind::DetachAnswer, station_id, 0);
                self.s1(station, &gone, out);
            }
            return;
        };
        (user.station, user.station_id, user.opened) = (station, station_id, opened);
        self.end(now_ns, id, cause::DETACHED, out);
    }

    /// A user goes, or has to: its session first, if it has one.
    pub(super) fn end(&mut self, now_ns: u64, id: u32, why: u8, out: &mut impl Sink) {
        let Some(user) = self.users.get_mut(id) else {
            return;
        };
        // Who is elsewhere stays so, whatever comes after.
        if user.ends_by != cause::SUPERSEDED {
            user.ends_by = why;
        }
        let (has_session, pending) = (user.sgw_teid != 0, user.pending);
        if user.state == State::Creating && self.gtp.about(pending).is_some() {
            return; // the answer says what there is to end
        }
        if !has_session {
            return self.purge(now_ns, id, out);
        }
        self.step(id, State::Ending, None);
        if !self.delete(now_ns, id, out) {
            self.search.begin();
        }
    }

    /// The session is gone: the HSS is told, unless it knows that the user is elsewhere.
    pub(super) fn purge(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) {
        let Some(user) = self.users.get_mut(id) else {
            return;
        };
        user.sgw_teid = 0;
        let (is_elsewhere, command) = (user.ends_by == cause::SUPERSEDED, command::PURGE_UE);
        if is_elsewhere || !self.ask_hss(now_ns, id, State::Purging, command, out, |_| {}) {
            self.gone(id, out);
        }
    }

    /// All others know: the user and its base station are told, and it is forgotten.
    pub(super) fn gone(&mut self, id: u32, out: &mut impl Sink) {
        let Some(user) = self.users.get(id) else {
            return;
        };
        let why = user.ends_by;
        match why {
            cause::DETACHED => {
                self.counts.detached += 1;
                self.to_user(id, Kind::DetachAnswer, out, |_| {});
            }
            cause::SUPERSEDED => self.counts.superseded += 1,
            _ => self.counts.lost += 1,
        }
        self.to_user(id, Kind::Release, out, |message| message.cause = Some(why));
        self.remove(id);
    }

    /// Counts one that goes on its way in. Who has a session is counted when that is over.
    fn count_lost(&mut self, user: &User) {
        match user.state {
            State::Vector | State::Proof => self.counts.unproved += 1,
            _ => self.counts.lost += u64::from(user.sgw_teid == 0),
        }
    }

    /// The base station of a user is gone; false: the SGW cannot be told yet.
    pub(super) fn station_lost(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) -> bool {
        let Some(&user) = self.users.get(id) else {
            return true;
        };
        let has_bearer = matches!(
            user.state,
            State::Connected | State::Context | State::Modifying
        );
        if has_bearer && !self.release(now_ns, id, out) {
            return false;
        }
        match user.state {
            State::Released => self.idle(now_ns, id, out),
            State::Vector | State::Proof | State::Securing | State::Locating => {
                self.count_lost(&user);
                self.leave(now_ns, id, cause::NETWORK_FAILURE, out);
            }
            // The answer that is waited for finds no base station, and goes on from there.
            _ => {}
        }
        if let Some(user) = self.users.get_mut(id) {
            user.station_id = 0;
        }
        true
    }

    /// What was waited for did not come.
    pub(super) fn overdue(
        &mut self,
        now_ns: u64,
        id: u32,
        sequence: u32,
        again: bool,
        out: &mut impl Sink,
    ) {
        let user = self.users.get(id).copied();
        let Some(user) = user.filter(|user| user.pending == sequence) else {
            return;
        };
        if again {
            return self.page(id, out);
        }
        if let Some(user) = self.users.get_mut(id) {
            user.pending = 0;
        }
        match user.state {
            State::Vector | State::Locating | State::Creating => {
                self.refuse(now_ns, id, cause::NETWORK_FAILURE, out);
            }
            State::Proof | State::Securing => {
                self.to_user(id, Kind::Release, out, |message| {
                    message.cause = Some(cause::NOT_AUTHENTICATED);
                });
                self.count_lost(&user);
                self.leave(now_ns, id, cause::NOT_AUTHENTICATED, out);
            }
            State::Context => self.not_carried(now_ns, id, out),
            State::Modifying => self.end(now_ns, id, cause::NETWORK_FAILURE, out),
            State::Releasing => self.released(now_ns, id, out),
            State::Released => self.idle(now_ns, id, out),
            State::Paging => self.not_found(now_ns, id, out),
            State::Deleting => self.purge(now_ns, id, out),
            State::Purging => self.gone(id, out),
            State::Connected | State::Idle | State::Ending => {}
        }
    }

    pub(super) fn now_ms(now_ns: u64) -> u64 {
        now_ns / MS
    }
}
