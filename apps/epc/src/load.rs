//! What users do, when: an open-loop profile, so that a slow core does not slow its load down.
//!
//! Each user attaches at a moment of its own, then goes through its day again and again: it sends
//! packets, is idle for a while, asks for its bearer, and after so many rounds detaches for a
//! while. Times are drawn from half to one and a half of what the profile says, by a seed.

use crate::EpcError;
use crate::ids::mix;
use crate::link::{MS, Sink};
use crate::ran::{Ran, State};
use linerate_tables::wheel::Wheel;
use linerate_wire::checksum;

/// What users do.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Users that attach for the first time in each second, on all cores together.
    pub attaches_per_s: u32,
    /// Milliseconds that a user stays connected each time.
    pub connected_ms: u32,
    /// Packets that it sends in that time.
    pub packets: u32,
    /// Bytes of each, of the IP header on: an ICMP echo request, 28 at least.
    pub packet_bytes: u16,
    /// Milliseconds that it stays idle.
    pub idle_ms: u32,
    /// How often it is connected before it detaches; 0: it never does.
    pub rounds: u32,
    /// Milliseconds that it stays away; then it attaches again.
    pub away_ms: u32,
    /// Where its packets go.
    pub to: [u8; 4],
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            attaches_per_s: 1000,
            connected_ms: 1000,
            packets: 10,
            packet_bytes: 100,
            idle_ms: 2000,
            rounds: 3,
            away_ms: 5000,
            to: [192, 0, 2, 1],
        }
    }
}

/// What a load did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // what each counts is its name
pub struct LoadCounts {
    pub attaches: u64,
    pub services: u64,
    pub releases: u64,
    pub detaches: u64,
    pub packets: u64,
    /// Moments at which a user could not do what was its turn: it still waited for an answer.
    pub late: u64,
}

#[derive(Clone, Copy, Default)]
struct Plan {
    id: u32,
    /// Packets left to send in this round, and rounds left.
    packets: u32,
    rounds: u32,
}

/// The load of one core's users.
pub struct Load {
    profile: Profile,
    plans: Box<[Plan]>,
    /// When each does its next thing, in milliseconds.
    wheel: Wheel,
    random: u64,
    is_over: bool,
    /// What was done.
    pub counts: LoadCounts,
}

/// The most bytes of a packet.
const MOST: usize = 1500;

impl Load {
    /// The load of the users of `ran`, one of `cores` parts, from `now_ns` on.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        profile: Profile,
        ran: &Ran,
        cores: u8,
        seed: u64,
        now_ns: u64,
    ) -> Result<Self, EpcError> {
        let plan = |id| Plan {
            id,
            packets: profile.packets,
            rounds: profile.rounds,
        };
        let plans: Box<[Plan]> = ran.ids().map(plan).collect();
        let mut wheel = Wheel::new("load", plans.len(), now_ns / MS)?;
        let rate = u64::from(profile.attaches_per_s.max(1));
        for number in 0..plans.len() {
            let after_ms = number as u64 * u64::from(cores) * 1000 / rate;
            wheel.schedule(number as u32, now_ns / MS + after_ms);
        }
        Ok(Self {
            profile,
            plans,
            wheel,
            random: seed,
            is_over: false,
            counts: LoadCounts::default(),
        })
    }

    /// From now on users detach at their next turn, and stay away.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// A time around `ms`, in milliseconds.
    fn around(&mut self, ms: u32) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let ms = u64::from(ms);
        let drawn = u128::from(mix(self.random)) * u128::from(ms);
        (ms / 2 + (drawn >> 64) as u64).max(1)
    }

    /// Does what is due, at most `budget` steps; returns when to be called again, in nanoseconds.
    pub fn poll(
        &mut self,
        now_ns: u64,
        budget: usize,
        ran: &mut Ran,
        out: &mut impl Sink,
    ) -> Option<u64> {
        let (now_ms, mut left) = (now_ns / MS, budget);
        while let Some((number, due_ms)) = self.wheel.pop(now_ms, &mut left) {
            let next = self.act(now_ns, number as usize, ran, out);
            // From when it was due, not from when it came: nothing slows the load down.
            if let Some(after_ms) = next {
                self.wheel.schedule(number, due_ms + after_ms);
            }
        }
        self.wheel.next_expiry().map(|next| next * MS)
    }

    /// One user's turn; how long until its next, `None`: never.
    fn act(
        &mut self,
        now_ns: u64,
        number: usize,
        ran: &mut Ran,
        out: &mut impl Sink,
    ) -> Option<u64> {
        let profile = self.profile;
        let Plan {
            id,
            packets,
            rounds,
        } = self.plans[number];
        match ran.state(id) {
            State::Off if self.is_over => return None,
            State::Off => {
                self.counts.attaches += u64::from(ran.attach(now_ns, id, out));
                self.plans[number].packets = profile.packets;
                self.plans[number].rounds = profile.rounds;
            }
            State::Connected | State::Idle if self.is_over => {
                self.counts.detaches += u64::from(ran.detach(now_ns, id, out));
            }
            State::Connected if packets > 0 => {
                let sent = self.send(now_ns, id, ran, out);
                self.counts.packets += u64::from(sent);
                self.plans[number].packets -= 1;
            }
            State::Connected if profile.rounds > 0 && rounds == 1 => {
                self.counts.detaches += u64::from(ran.detach(now_ns, id, out));
                return Some(self.around(profile.away_ms));
            }
            State::Connected => {
                self.counts.releases += u64::from(ran.go_idle(now_ns, id, out));
                self.plans[number].rounds = rounds.saturating_sub(1);
                return Some(self.around(profile.idle_ms));
            }
            State::Idle => {
                self.counts.services += u64::from(ran.service(now_ns, id, out));
                self.plans[number].packets = profile.packets;
            }
            State::Attaching | State::Releasing | State::Requesting | State::Detaching => {
                self.counts.late += 1;
            }
        }
        Some(self.around(profile.connected_ms / (profile.packets + 1)))
    }

    fn send(&mut self, now_ns: u64, id: u32, ran: &mut Ran, out: &mut impl Sink) -> bool {
        let Some(from) = ran.address(id) else {
            return false;
        };
        const HEADER: usize = linerate_wire::ipv4::HEADER_LEN;
        const ECHO: usize = HEADER + 8;
        let len = usize::from(self.profile.packet_bytes).clamp(ECHO, MOST);
        let mut packet = [0; MOST];
        let (to, payload) = (self.profile.to.into(), (len - HEADER) as u16);
        let header =
            linerate_wire::ipv4::header(0, 64, linerate_wire::protocol::ICMP, from, to, payload);
        packet[..HEADER].copy_from_slice(&header);
        // An echo request (RFC 792), so that any host answers: packets go both ways.
        let sequence = self.counts.packets as u16;
        packet[HEADER] = 8;
        packet[HEADER + 6..ECHO].copy_from_slice(&sequence.to_be_bytes());
        let checksum = !checksum::sum(&packet[HEADER..len]);
        packet[HEADER + 2..HEADER + 4].copy_from_slice(&checksum.to_be_bytes());
        ran.send(now_ns, id, &packet[..len], out)
    }
}
