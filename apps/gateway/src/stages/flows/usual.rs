//! What most packets are: TCP or UDP of a flow that goes on as it has before. They are judged,
//! counted and translated here, in a loop without calls; the first that is anything else ends it.
//! One that moves its flow to another state, as at the beginning and at the end of a connection,
//! passes beside the loop: its code would cost the others registers.

use linerate_core::packet::{Burst, Packet};
use linerate_routing::plane::Packets;
use linerate_tables::flow::{Direction, FlowKey, Hit};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::{ipv4, ipv6, protocol};

use super::translate::{put4, put6};
use super::{Flows, Table, read};
use crate::nat::rewrite::Differences;
use crate::track::{State, Tracker, Upper, Verdict};

/// What becomes of a packet.
enum Goes<F> {
    /// It is no usual one: nothing has been done.
    Else,
    /// It passes as it is.
    On,
    /// It passes with the addresses and ports of this key.
    As(F, Differences),
}

/// What is the same for all packets of a burst.
#[derive(Clone, Copy)]
struct Now {
    ms: u64,
    /// That of policy and rules.
    number: u32,
}

impl Flows {
    /// Passes packets of `left` from the first on, as long as they are of `usual`, and of flows
    /// that go on. Returns those that are left.
    #[inline(always)]
    pub(super) fn pass_usual(
        &mut self,
        (mut left, usual): (Mask, Mask),
        ms: u64,
        burst: &mut Burst,
        packets: &mut Packets,
    ) -> Mask {
        let now = Now {
            ms,
            number: self.number,
        };
        let (v4, udp) = (packets.parsed.class.v4, packets.parsed.class.udp);
        let all = burst.as_packets_mut();
        while left & usual & left.wrapping_neg() != 0 {
            let index = left.trailing_zeros() as usize;
            let (Some(hit), Some(packet)) = (self.found[index], all.get_mut(index)) else {
                return left;
            };
            let is_udp = udp >> index & 1 != 0;
            let end = packets.parsed.end[index];
            let passed = match v4 >> index & 1 != 0 {
                true => {
                    let key = packets.parsed.keys4[index];
                    match goes_on(&mut self.v4, &hit, (key, is_udp, true), end, packet, now) {
                        Goes::Else => false,
                        Goes::On => true,
                        Goes::As(to, differences) => {
                            put4(index, to, differences, is_udp, packet, packets)
                        }
                    }
                }
                false => {
                    let key = packets.parsed.keys6[index];
                    match goes_on(&mut self.v6, &hit, (key, is_udp, false), end, packet, now) {
                        Goes::Else => false,
                        Goes::On => true,
                        Goes::As(to, differences) => {
                            put6(index, to, differences, is_udp, packet, packets)
                        }
                    }
                }
            };
            if !passed {
                return left;
            }
            left &= left.wrapping_sub(1);
        }
        left
    }

    /// Passes TCP or UDP that ends [`pass_usual`](Self::pass_usual), if it passes plainly and only
    /// moves its flow to another state. `false`: nothing has been done.
    #[inline(never)]
    pub(super) fn pass_moving(
        &mut self,
        index: usize,
        ms: u64,
        packet: &mut Packet,
        packets: &mut Packets,
    ) -> bool {
        let Some(hit) = self.found[index] else {
            return false;
        };
        let number = self.number;
        let now = Now { ms, number };
        let is_udp = packets.parsed.class.udp >> index & 1 != 0;
        let (tracker, end) = (&self.tracker, packets.parsed.end[index]);
        match packets.parsed.class.v4 >> index & 1 != 0 {
            true => {
                let of = (packets.parsed.keys4[index], is_udp, true);
                match moves_on(&mut self.v4, tracker, &hit, of, end, packet, now) {
                    Goes::Else => false,
                    Goes::On => true,
                    Goes::As(to, differences) => {
                        put4(index, to, differences, is_udp, packet, packets)
                    }
                }
            }
            false => {
                let of = (packets.parsed.keys6[index], is_udp, false);
                match moves_on(&mut self.v6, tracker, &hit, of, end, packet, now) {
                    Goes::Else => false,
                    Goes::On => true,
                    Goes::As(to, differences) => {
                        put6(index, to, differences, is_udp, packet, packets)
                    }
                }
            }
        }
    }
}

/// Judges a packet; counts it if it goes on as its flow has before.
#[inline(always)]
fn goes_on<F: FlowKey<K>, const K: usize>(
    table: &mut Table<F, K>,
    hit: &Hit,
    (key, is_udp, is_v4): (F, bool, bool),
    end: u32,
    packet: &Packet,
    now: Now,
) -> Goes<F> {
    // One that has ended since is none of ours.
    let Some(mut flow) = table.flow_mut(hit, key) else {
        return Goes::Else;
    };
    let is_old = flow.user.permitted_by != now.number;
    if is_old
        || !flow.user.services.is_none()
        || flow.translated && !is_whole(packet, is_v4, is_udp)
    {
        return Goes::Else;
    }
    let goes_on = match is_udp {
        true => {
            flow.state == State::UdpAssured as u8
                || flow.state == State::UdpSingle as u8 && hit.direction == Direction::Forward
        }
        false => match read(packet, is_v4, protocol::TCP, end) {
            Ok(Upper::Tcp(segment)) => flow.user.tcp.continues(hit.direction, &segment, flow.state),
            _ => false,
        },
    };
    if !goes_on {
        return Goes::Else;
    }
    flow.count(end.saturating_sub(HEADER_LEN as u32));
    flow.refresh(now.ms);
    if !flow.translated {
        return Goes::On;
    }
    let differences = match hit.direction {
        Direction::Forward => flow.user.differences,
        Direction::Reverse => flow.user.differences.reversed(),
    };
    Goes::As(flow.other.reversed(), differences)
}

/// Judges a packet that may move its flow to another state; `Else`: it does not pass, or not as it
/// is, and nothing has been done.
#[inline(always)]
fn moves_on<F: FlowKey<K>, const K: usize>(
    table: &mut Table<F, K>,
    tracker: &Tracker,
    hit: &Hit,
    (key, is_udp, is_v4): (F, bool, bool),
    end: u32,
    packet: &Packet,
    now: Now,
) -> Goes<F> {
    let Some(mut flow) = table.flow_mut(hit, key) else {
        return Goes::Else;
    };
    if flow.user.permitted_by != now.number
        || !flow.user.services.is_none()
        || flow.user.tcp.is_shifted()
        || flow.translated && !is_whole(packet, is_v4, is_udp)
    {
        return Goes::Else;
    }
    let upper = match is_udp {
        true => Upper::Udp,
        false => match read(packet, is_v4, protocol::TCP, end) {
            Ok(upper) => upper,
            Err(_) => return Goes::Else,
        },
    };
    let (before, state_before) = (flow.user.tcp, flow.state);
    let next = tracker.next(
        &mut flow.user.tcp,
        hit.direction,
        flow.state,
        &upper,
        now.ms,
    );
    let Verdict::Pass(state) = next else {
        // Whoever does the rest judges it again.
        flow.user.tcp = before;
        return Goes::Else;
    };
    flow.count(end.saturating_sub(HEADER_LEN as u32));
    flow.refresh(now.ms);
    let goes = match (flow.translated, hit.direction) {
        (false, _) => Goes::On,
        (true, Direction::Forward) => Goes::As(flow.other.reversed(), flow.user.differences),
        (true, Direction::Reverse) => {
            Goes::As(flow.other.reversed(), flow.user.differences.reversed())
        }
    };
    if state as u8 != state_before {
        // A state without room leaves the flow in the one that it has.
        let _ = table.set_state(hit.flow, state as u8);
    }
    goes
}

/// Whether what is to be translated lies within the packet.
#[inline(always)]
fn is_whole(packet: &Packet, is_v4: bool, is_udp: bool) -> bool {
    let l3_len = if is_v4 {
        ipv4::HEADER_LEN
    } else {
        ipv6::HEADER_LEN
    };
    let l4_len = if is_udp { 8 } else { 20 };
    let l4 = usize::from(packet.meta().l4_offset);
    l4 >= HEADER_LEN + l3_len && packet.data().len() >= l4 + l4_len
}
