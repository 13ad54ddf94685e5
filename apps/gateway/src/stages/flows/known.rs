//! Packets of flows that need more than `usual.rs` does for them: they are decided anew, end where
//! they are answered, begin another flow of the same key, or have services.

use linerate_core::packet::{Offload, Packet};
use linerate_core::run::Egress;
use linerate_routing::plane::{Context, Verdict};
use linerate_tables::flow::{Direction, FlowKey, Hit};
use linerate_wire::checksum;
use linerate_wire::ethernet::HEADER_LEN;

use super::balanced::{DIRECT, Directed, direct};
use super::turned::TURNS;
use super::{Beside, Flows, Table, gone_of, read, tuples_of};
use crate::nat::rewrite::Differences;
use crate::nat::{Held, Refused};
use crate::services::{ServiceBits, Wanted};
use crate::track::{Made, Reason, Tcp, Tracker, Upper, Verdict as Next};

/// What becomes of a packet of a flow.
enum Judged<F> {
    /// It passes, and gets the addresses and ports of this key, if of any.
    Pass(Option<(F, Differences)>),
    /// The same, and its sequence numbers change.
    Shift(Option<(F, Differences)>),
    /// It ends here, and this is said to its source, and to its destination.
    Answer(Option<(F, Differences)>, [Option<Made>; 2]),
    /// Policy or translation have changed since.
    Old(Held, Beside),
    /// It begins another flow.
    Anew,
    Drop(Reason),
}

/// Judges a packet of a flow.
#[inline(always)]
fn judge<F: FlowKey<K>, const K: usize>(
    table: &mut Table<F, K>,
    tracker: &Tracker,
    hit: &Hit,
    (key, upper, bytes): (F, &Upper, u32),
    (now, number): (u64, u32),
    (index, is_v4, wanted): (usize, bool, &mut Wanted),
) -> Judged<F> {
    let Some(mut flow) = table.flow_mut(hit, key) else {
        // It has ended since: a packet before in the same burst has begun another.
        return Judged::Anew;
    };
    if flow.user.permitted_by != number {
        return Judged::Old(flow.user.held, flow.user.beside);
    }
    let before = flow.state;
    let next = tracker.next(&mut flow.user.tcp, hit.direction, before, upper, now);
    let is_shifted = matches!(upper, Upper::Tcp(_)) && flow.user.tcp.is_shifted();
    let becomes = flow.translated.then(|| {
        let differences = match hit.direction {
            Direction::Forward => flow.user.differences,
            Direction::Reverse => flow.user.differences.reversed(),
        };
        (flow.other.reversed(), differences)
    });
    match next {
        Next::Pass(state) => {
            flow.count(bytes);
            flow.refresh(now);
            if !flow.user.services.is_none() {
                wanted.add(index, (hit, is_v4), flow.user.services);
            }
            if state as u8 != before {
                // A state without room leaves the flow in the one that it has.
                let _ = table.set_state(hit.flow, state as u8);
            }
            passes(becomes, is_shifted)
        }
        Next::Unchanged => {
            flow.count(bytes);
            if !flow.user.services.is_none() {
                wanted.add(index, (hit, is_v4), flow.user.services);
            }
            passes(becomes, is_shifted)
        }
        Next::Anew => Judged::Anew,
        Next::Answer {
            state,
            back,
            onward,
        } => {
            flow.count(bytes);
            flow.refresh(now);
            let _ = table.set_state(hit.flow, state as u8);
            Judged::Answer(becomes, [back, onward])
        }
        Next::Drop(reason) => Judged::Drop(reason),
    }
}

#[inline(always)]
fn passes<F>(becomes: Option<(F, Differences)>, is_shifted: bool) -> Judged<F> {
    match is_shifted {
        true => Judged::Shift(becomes),
        false => Judged::Pass(becomes),
    }
}

macro_rules! known {
    ($name:ident, $table:ident, $keys:ident, $write:ident) => {
        impl Flows {
            /// A packet that has hit a flow.
            #[inline]
            pub(super) fn $name(
                &mut self,
                now: u64,
                index: usize,
                hit: &Hit,
                packet: &mut Packet,
                (context, out): (&mut Context<'_>, &mut Egress),
            ) -> Result<(), Verdict> {
                let parsed = &context.packets.parsed;
                let (key, end) = (parsed.$keys[index], parsed.end[index]);
                let is_v4 = parsed.class.v4 >> index & 1 != 0;
                let upper = match parsed.class.udp >> index & 1 {
                    1 => Upper::Udp,
                    _ => read(packet, is_v4, key.protocol(), end)
                        .map_err(|why| self.reasons.of(why))?,
                };
                let mut is_left = false;
                if let Upper::Tcp(segment) = &upper
                    && segment.is_syn()
                {
                    if !is_sound(packet) {
                        return Err(self.reasons.of(Reason::TcpChecksum));
                    }
                    // Nobody would answer it: who has died says no word.
                    let backend = self.$table.user(hit.flow).map_or(0, |user| user.backend);
                    let is_forward = hit.direction == Direction::Forward;
                    is_left = is_forward && backend != 0 && !self.balance.is_up(backend);
                }
                let (number, bytes) = (self.number, end.saturating_sub(HEADER_LEN as u32));
                let (table, tracker) = (&mut self.$table, &self.tracker);
                let (packet_of, mut when) = ((key, &upper, bytes), (now, number));
                let wanted = (index, is_v4, &mut self.services.wanted);
                let mut judged = match is_left {
                    true => Judged::Anew,
                    false => judge(table, tracker, hit, packet_of, when, wanted),
                };
                if let Judged::Old(held, beside) = judged {
                    let Some(flow) = self.$table.get(hit.flow) else {
                        return self.begin(now, index, packet, context);
                    };
                    let (backend, before) = (flow.user.backend, flow.user.permitted_by);
                    let number = number | before & (DIRECT | TURNS);
                    when.1 = number;
                    if before != number {
                        let tuples = tuples_of(&flow);
                        let kept = (held, beside, backend, flow.user.number());
                        let turning = match before & TURNS {
                            0 => None,
                            _ => self.decide_turning(hit, &tuples, (held, kept.3)),
                        };
                        let decided = match turning {
                            Some(decided) => decided,
                            None => self.decide_again(index, hit, tuples, kept, packet, context),
                        };
                        match decided {
                            Ok(Some(services)) => {
                                if let Some(user) = self.$table.user_mut(hit.flow) {
                                    user.permitted_by = number;
                                    user.services = services;
                                }
                            }
                            // The lookup drops it, and says so to whoever has sent it; or it goes
                            // on to who decides. Which services it has is not known until then.
                            Ok(None) => {
                                when.1 = before;
                                if let Some(user) = self.$table.user_mut(hit.flow)
                                    && !user.services.is_denied()
                                {
                                    user.services = ServiceBits::NONE;
                                }
                            }
                            Err(verdict) => {
                                if let Some(flow) = self.$table.remove(hit.flow) {
                                    let (held, original, translated, zone) =
                                        gone_of(&self.nat, &flow);
                                    self.nat.release(held, &original, &translated, zone, now);
                                }
                                return Err(verdict);
                            }
                        }
                    }
                    if number & DIRECT != 0 {
                        return match direct(&mut self.$table, hit, (key, &upper, bytes), now) {
                            Directed::There => self.encapsulate(index, backend, packet, context),
                            Directed::Back => Ok(()),
                            Directed::Anew => {
                                self.$table.remove(hit.flow);
                                self.begin(now, index, packet, context)
                            }
                        };
                    }
                    let (table, tracker) = (&mut self.$table, &self.tracker);
                    let wanted = (index, is_v4, &mut self.services.wanted);
                    judged = judge(table, tracker, hit, packet_of, when, wanted);
                }
                match judged {
                    Judged::Pass(None) => Ok(()),
                    Judged::Pass(Some((to, differences))) => {
                        self.passes_to(index, to.zone());
                        self.$write(index, to, differences, packet, context)
                    }
                    Judged::Drop(reason) => Err(self.reasons.of(reason)),
                    Judged::Shift(becomes) => {
                        let tcp = self.$table.user(hit.flow).map(|user| user.tcp);
                        match becomes {
                            Some((to, differences)) => {
                                self.$write(index, to, differences, packet, context)?;
                            }
                            None => context.packets.translate(index, packet.data()),
                        }
                        shift(tcp, hit.direction, end, packet);
                        Ok(())
                    }
                    Judged::Answer(becomes, said) => {
                        let is_onward = said[1].is_some();
                        self.answer(index, said, packet, (context, out))?;
                        match becomes.filter(|_| is_onward) {
                            None => Ok(()),
                            Some((to, differences)) => {
                                self.$write(index, to, differences, packet, context)
                            }
                        }
                    }
                    // The flow before is closed, or its backend down: it goes, whatever becomes of
                    // this one.
                    Judged::Anew | Judged::Old(..) => {
                        if let Some(flow) = self.$table.remove(hit.flow) {
                            let (held, original, translated, zone) = gone_of(&self.nat, &flow);
                            self.nat.release(held, &original, &translated, zone, now);
                        }
                        if self.has_arrived {
                            // Its session has gone with the flow. Repeated, it may begin another.
                            return Err(self.reasons.of_nat(Refused::NoMapping));
                        }
                        self.begin(now, index, packet, context)
                    }
                }
            }
        }
    };
}
known!(known4, v4, keys4, write4);
known!(known6, v6, keys6, write6);

/// Whether the checksum of a SYN is not wrong: what it does to a flow is by what its receiver says
/// of it, and that one would not hear it.
#[cold]
fn is_sound(packet: &Packet) -> bool {
    let vouched = Offload::CSUM_PARTIAL | Offload::CSUM_VALID;
    if packet.meta().offload.intersects(vouched) {
        return true;
    }
    let frame = packet.data();
    let headers = linerate_wire::parse(frame).ok();
    let covered = headers.and_then(|headers| headers.covered(frame)?.is_right(checksum::sum));
    covered != Some(false)
}

/// Changes the numbers of a segment of a connection that has begun with a SYN cookie.
#[cold]
fn shift(tcp: Option<Tcp>, direction: Direction, end: u32, packet: &mut Packet) {
    let l4 = usize::from(packet.meta().l4_offset);
    let is_partial = packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
    if let (Some(tcp), Some(segment)) = (tcp, packet.data_mut().get_mut(l4..end as usize)) {
        tcp.shift(direction, segment, is_partial);
    }
}
