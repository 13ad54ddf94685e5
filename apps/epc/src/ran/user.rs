//! What users do, and what the network says to them.

use super::{Ran, State};
use crate::link::{Link, Sink};
use crate::s1::{Kind, MAX_LEN, Message, Tunnel, cause};
use linerate_wire::gtpu;

/// The longest packet that a user sends, in bytes.
const MOST: usize = 9000;

impl Ran {
    /// A user who is off wants to attach; false where it is not, or has no base station.
    pub fn attach(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) -> bool {
        if !self.may(id, State::Off) || !self.step_and_wait(now_ns, id, State::Attaching) {
            return false;
        }
        let (imsi, tac) = (self.users.get(id).map(|user| user.imsi), self.config.tac);
        let cell = self.cell(id);
        self.say(id, Kind::Attach, out, |message| {
            (message.imsi, message.tac, message.cell) = (imsi, Some(tac), Some(cell));
        });
        true
    }

    /// A user who is connected has nothing to say for a while.
    pub fn go_idle(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) -> bool {
        if !self.may(id, State::Connected) || !self.step_and_wait(now_ns, id, State::Releasing) {
            return false;
        }
        self.say(id, Kind::ReleaseRequest, out, |_| {});
        true
    }

    /// A user who is idle has something to say.
    pub fn service(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) -> bool {
        if !self.may(id, State::Idle) || !self.step_and_wait(now_ns, id, State::Requesting) {
            return false;
        }
        let tmsi = self.users.get(id).map(|user| user.tmsi);
        let (tac, cell) = (self.config.tac, self.cell(id));
        self.say(id, Kind::Service, out, |message| {
            (message.tmsi, message.tac, message.cell) = (tmsi, Some(tac), Some(cell));
        });
        true
    }

    /// A user who is attached goes.
    pub fn detach(&mut self, now_ns: u64, id: u32, out: &mut impl Sink) -> bool {
        let is_attached = self.may(id, State::Connected) || self.may(id, State::Idle);
        if !is_attached || !self.step_and_wait(now_ns, id, State::Detaching) {
            return false;
        }
        let tmsi = self.users.get(id).map(|user| user.tmsi);
        self.say(id, Kind::Detach, out, |message| message.tmsi = tmsi);
        true
    }

    /// A user sends an IP packet; false where it has no bearer. One who is idle asks for it then,
    /// and the packet is lost.
    pub fn send(&mut self, now_ns: u64, id: u32, packet: &[u8], out: &mut impl Sink) -> bool {
        let Some(user) = self.users.get(id) else {
            return false;
        };
        let (state, uplink) = (user.state, user.uplink);
        if state != State::Connected || uplink.teid == 0 || packet.len() > MOST {
            self.counts.unsent += 1;
            self.service(now_ns, id, out);
            return false;
        }
        let mut room = [0; gtpu::HEADER_LEN + MOST];
        let len = gtpu::HEADER_LEN + packet.len();
        let header = gtpu::header(uplink.teid, packet.len() as u16);
        room[..gtpu::HEADER_LEN].copy_from_slice(&header);
        room[gtpu::HEADER_LEN..len].copy_from_slice(packet);
        self.counts.up_packets += 1;
        out.send(crate::sgw::link(uplink), &room[..len]);
        true
    }

    fn may(&self, id: u32, state: State) -> bool {
        self.users.get(id).is_some_and(|user| {
            user.state == state && self.stations.get(usize::from(user.station)) == Some(&true)
        })
    }

    fn cell(&self, id: u32) -> u32 {
        // Base station in the upper 20 bits, cell in the lower 8 (TS 36.413 9.2.1.38).
        self.users
            .get(id)
            .map_or(0, |user| (u32::from(user.station) + 1) << 8 | 1)
    }

    pub(super) fn set_up(&mut self, station: u16, out: &mut impl Sink) {
        let mut setup = Message::new(Kind::Setup, 0, 0);
        setup.station = Some(u32::from(station) + 1);
        (setup.plmn, setup.tac) = (Some(self.config.plmn), Some(self.config.tac));
        let mut room = [0; MAX_LEN];
        out.send(Link::S1(station), setup.write(&mut room));
    }

    /// The MME is gone: its users are off.
    pub(super) fn cut_off(&mut self, station: u16) {
        for at in 0..self.users.capacity() {
            if let Some((id, user)) = self.users.at(at)
                && user.station == station
                && user.state != State::Off
            {
                self.counts.dropped += 1;
                self.off(id);
            }
        }
    }

    /// A user is not attached any more.
    fn off(&mut self, id: u32) {
        self.step(id, State::Off);
        if let Some(user) = self.users.get_mut(id) {
            let tmsi = std::mem::take(&mut user.tmsi).to_be_bytes();
            (user.mme_id, user.uplink) = (0, Tunnel::default());
            if self.by_tmsi.lookup(&tmsi) == Some(id.to_be_bytes()) {
                self.by_tmsi.remove(&tmsi);
            }
        }
    }

    /// A message of the MME.
    pub(super) fn network_says(
        &mut self,
        now_ns: u64,
        station: u16,
        message: &Message,
        out: &mut impl Sink,
    ) {
        let id = message.station_id;
        match message.kind {
            Kind::SetupAnswer => {
                if message.cause.is_some() {
                    self.counts.rejected += 1;
                    self.cut_off(station);
                }
                return;
            }
            Kind::Paging => {
                let tmsi = message.tmsi.unwrap_or_default().to_be_bytes();
                if let Some(id) = self.by_tmsi.lookup(&tmsi) {
                    let id = u32::from_be_bytes(id);
                    // Every base station is asked; that of the user answers.
                    let is_here = self
                        .users
                        .get(id)
                        .is_some_and(|user| user.station == station);
                    if is_here && self.service(now_ns, id, out) {
                        self.counts.paged += 1;
                    }
                }
                return;
            }
            _ => {}
        }
        let user = self.users.get(id).copied();
        let Some(user) = user.filter(|user| user.station == station) else {
            self.counts.unexpected += 1;
            return;
        };
        match (message.kind, user.state) {
            (Kind::Challenge, State::Attaching) => self.prove(id, message, out),
            (Kind::Security, State::Attaching) => {
                self.hear(id, message.mme_id);
                self.say(id, Kind::SecurityAnswer, out, |_| {});
            }
            (Kind::Context, State::Attaching | State::Requesting) => {
                self.connect(id, message, out);
            }
            (Kind::Reject, State::Attaching) => {
                self.counts.rejected += 1;
                self.off(id);
            }
            (Kind::Reject, State::Requesting) => {
                self.counts.rejected += 1;
                match message.cause {
                    Some(cause::CONGESTION) => self.step(id, State::Idle),
                    _ => self.off(id),
                }
            }
            (Kind::DetachAnswer, State::Detaching) => {
                self.counts.detached += 1;
                self.off(id);
            }
            (Kind::Release, state) => {
                let mme_id = message.mme_id;
                self.say(id, Kind::ReleaseAnswer, out, |message| {
                    message.mme_id = mme_id
                });
                // Of a connection that is no longer: nothing else changes.
                if user.mme_id != 0 && user.mme_id != mme_id {
                    return;
                }
                self.released(id, state, message.cause);
            }
            _ => self.counts.unexpected += 1,
        }
    }

    fn hear(&mut self, id: u32, mme_id: u32) {
        if let Some(user) = self.users.get_mut(id) {
            user.mme_id = mme_id;
        }
    }

    /// TS 33.401 6.1.1: the user proves itself only to its home.
    fn prove(&mut self, id: u32, message: &Message, out: &mut impl Sink) {
        let user = self.users.get(id).copied();
        let key = user.and_then(|user| self.key(&user));
        let (Some(key), Some(rand)) = (key, message.rand) else {
            self.counts.malformed += 1;
            return;
        };
        self.hear(id, message.mme_id);
        if message.autn != Some(key.autn(&rand)) {
            self.counts.forged += 1;
            self.say(id, Kind::ChallengeAnswer, out, |message| {
                message.cause = Some(cause::NOT_AUTHENTICATED);
            });
            return self.off(id);
        }
        self.say(id, Kind::ChallengeAnswer, out, |message| {
            message.res = Some(key.answer(&rand));
        });
    }

    fn connect(&mut self, id: u32, message: &Message, out: &mut impl Sink) {
        let (Some(uplink), Some(address)) = (message.tunnel, message.address) else {
            self.counts.malformed += 1;
            return;
        };
        let Some(user) = self.users.get_mut(id) else {
            return;
        };
        let was_attaching = user.state == State::Attaching;
        (user.mme_id, user.uplink, user.address) = (message.mme_id, uplink, address);
        let (old, station) = (user.tmsi, user.station);
        let new = message.tmsi.unwrap_or(old);
        user.tmsi = new;
        self.by_tmsi.remove(&old.to_be_bytes());
        // As many places as users: none is refused but by collisions, which paging misses then.
        let _ = self.by_tmsi.insert(&new.to_be_bytes(), id.to_be_bytes());
        self.step(id, State::Connected);
        match was_attaching {
            true => self.counts.attached += 1,
            false => self.counts.services += 1,
        }
        let address = self.station_address(station);
        self.say(id, Kind::ContextAnswer, out, |message| {
            message.tunnel = Some(Tunnel { teid: id, address });
        });
    }

    /// The network let the connection of a user go: by what was asked for, or for good.
    fn released(&mut self, id: u32, state: State, why: Option<u8>) {
        match (state, why) {
            (State::Off, _) => {}
            (
                State::Connected | State::Releasing | State::Requesting,
                Some(cause::USER_INACTIVITY),
            ) => {
                self.counts.idled += 1;
                self.step(id, State::Idle);
                if let Some(user) = self.users.get_mut(id) {
                    (user.mme_id, user.uplink) = (0, Tunnel::default());
                }
            }
            (State::Detaching, _) => {
                self.counts.detached += 1;
                self.off(id);
            }
            _ => {
                self.counts.dropped += 1;
                self.off(id);
            }
        }
    }

    /// A user waited in vain.
    pub(super) fn overdue(&mut self, id: u32, sequence: u32) {
        let user = self.users.get_mut(id);
        let Some(user) = user.filter(|user| user.pending == sequence) else {
            return;
        };
        user.pending = 0;
        self.counts.timeouts += 1;
        match user.state {
            State::Releasing => user.state = State::Connected,
            State::Requesting => user.state = State::Idle,
            // It switches off, whatever the network says (TS 24.301 5.5.2.2.4).
            State::Attaching | State::Detaching => self.off(id),
            State::Off | State::Connected | State::Idle => {}
        }
    }
}
