//! A received burst: plain packets are checked in a loop, the others judged one by one.

use linerate_core::packet::{Burst, Offload, Packet};
use linerate_core::run::Egress;
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::protocol;

use super::Host;
use super::address::is_host6;
use super::config::InterfaceId;
use super::inbound::{Arrived, Inbound, ones};
use super::judge::{Verdict, is_plain4};

impl Host {
    /// Takes a received burst, in whole frames, each with the number of the port that received it
    /// in its metadata ([`Packet::port`]). Packets for the users stay in it, and `inbound` says
    /// what they are: TCP, UDP and echo replies, with sound headers, right checksums (or unfinished
    /// ones of senders on this machine), and addresses that a host accepts (RFC 1122 3.2.1.3). All
    /// others were answered, kept or dropped. Datagrams that have become whole, and packets to our
    /// own addresses, come to the end of the burst: where [`has_waiting`](Self::has_waiting) says
    /// so, also to an empty one.
    pub fn receive(
        &mut self,
        burst: &mut Burst,
        now_ns: u64,
        inbound: &mut Inbound,
        out: &mut Egress,
    ) {
        inbound.clear();
        self.stats.received += burst.len() as u64;
        for error in self.local_errors.drain(..) {
            self.stats.errors_reported += u64::from(inbound.report(error));
        }
        while burst.room() > 0
            && let Some(packet) = self.looped.pop_front()
        {
            if let Err(packet) = burst.push(packet) {
                out.drop_one(self.reasons.loopback_full, packet);
            }
        }
        if burst.is_empty() {
            return;
        }
        let mut whole = Burst::new();
        self.pass(burst, Some(&mut whole), now_ns, inbound, out);
        if !whole.is_empty() {
            self.pass(&mut whole, None, now_ns, inbound, out);
            let count = whole.len();
            // There is room: each fragment was taken out before.
            whole.move_front(count, burst);
            out.drop_burst(self.reasons.no_buffer, &mut whole);
        }
        self.stats.delivered += inbound.len as u64;
    }

    /// One pass over packets; those to be kept stay. Datagrams that become whole go to `whole`,
    /// without which fragments are dropped: those in a datagram that was one of fragments itself.
    fn pass(
        &mut self,
        burst: &mut Burst,
        mut whole: Option<&mut Burst>,
        now_ns: u64,
        inbound: &mut Inbound,
        out: &mut Egress,
    ) {
        self.parser.parse_checked(burst, &mut inbound.parsed);
        let plain = self.plain(burst, &inbound.parsed);
        let all = burst.mask();
        if plain == all {
            for index in ones(all) {
                let arrived = plain_facts(index, &burst.as_packets()[index], &inbound.parsed, self);
                inbound.push(index, arrived);
            }
            return;
        }
        let mut kept = plain;
        let mut verdicts = [None; Burst::CAPACITY];
        for index in ones(all) {
            let packet = &burst.as_packets()[index];
            if plain >> index & 1 != 0 {
                let arrived = plain_facts(index, packet, &inbound.parsed, self);
                inbound.push(index, arrived);
                continue;
            }
            match self.judge(index, packet, &inbound.parsed) {
                Verdict::Keep(arrived) => {
                    inbound.push(index, arrived);
                    kept |= 1 << index;
                }
                verdict => verdicts[index] = Some(verdict),
            }
        }
        let mut odd = Burst::new();
        burst.parts().take(all & !kept, &mut odd);
        for (packet, verdict) in odd.drain().zip(verdicts.into_iter().flatten()) {
            self.handle(packet, verdict, whole.as_deref_mut(), now_ns, inbound, out);
        }
        self.count_fragments(out);
    }

    /// Which packets are for a user without further checks: TCP or UDP, no options, no fragment, to
    /// our MAC and an IP address of ours, from a single host, and sound.
    #[inline(always)]
    fn plain(&self, burst: &Burst, parsed: &Parsed) -> Mask {
        let (class, checks) = (&parsed.class, &parsed.checks);
        if parsed.offloads.intersects(Offload::VLAN) {
            return 0;
        }
        let odd = class.fragment | class.options | class.vlan | class.group | class.malformed;
        let odd = odd | checks.ip_bad | checks.l4_bad;
        let mut plain = 0;
        for index in ones((class.tcp | class.udp) & !odd) {
            let packet = &burst.as_packets()[index];
            let is_plain = self.is_plain(index, packet, parsed).is_some_and(|is| is);
            plain |= Mask::from(is_plain) << index;
        }
        plain
    }

    #[inline(always)]
    fn is_plain(&self, index: usize, packet: &Packet, parsed: &Parsed) -> Option<bool> {
        let id = (*self.by_port.get(usize::from(packet.port()))?)?;
        let interface = self.at(id)?;
        if packet.data().first_chunk::<6>()? != &interface.config.mac.0 {
            return Some(false);
        }
        if parsed.class.v4 >> index & 1 != 0 {
            let (src, dst) = (parsed.src4[index], parsed.dst4[index]);
            return Some(is_plain4(&self.own, src, dst));
        }
        let key = &parsed.keys6[index];
        let (src, dst) = (key.src(), key.dst());
        let is_from_host = is_host6(src) && !self.own.has6(src, Some(id));
        Some(is_from_host && self.own.has6(dst, Some(id)))
    }

    /// Does what was judged of a packet that is not kept.
    fn handle(
        &mut self,
        packet: Packet,
        verdict: Verdict,
        whole: Option<&mut Burst>,
        now_ns: u64,
        inbound: &mut Inbound,
        out: &mut Egress,
    ) {
        match verdict {
            Verdict::Arp => self.arp(packet, now_ns, out),
            Verdict::Nd => self.nd(packet, now_ns, out),
            Verdict::Echo => self.echo(packet, now_ns, out),
            Verdict::Quoted => self.quoted(packet, inbound, out),
            Verdict::Fragment => self.fragment(packet, whole, now_ns, out),
            Verdict::Refuse(error, reason) => {
                let l3 = usize::from(packet.meta().l3_offset);
                self.refuse(&packet, l3, error, now_ns, out);
                out.drop_one(reason, packet);
            }
            Verdict::Drop(reason) => out.drop_one(reason, packet),
            // Those were kept.
            Verdict::Keep(_) => out.drop_one(self.reasons.no_listener, packet),
        }
    }
}

/// Facts of a plain packet.
#[inline(always)]
fn plain_facts(index: usize, packet: &Packet, parsed: &Parsed, host: &Host) -> Arrived {
    let (meta, frame) = (packet.meta(), packet.data());
    let is_v6 = parsed.class.v6 >> index & 1 != 0;
    let l3 = usize::from(meta.l3_offset);
    let head = frame.get(l3..).and_then(|ip| ip.first_chunk::<20>());
    let head = head.copied().unwrap_or_default();
    let (tos, ttl) = match is_v6 {
        true => (head[0] << 4 | head[1] >> 4, head[7]),
        false => (head[1], head[8]),
    };
    Arrived {
        l4_len: parsed.end[index].saturating_sub(meta.l4_offset.into()),
        l4: meta.l4_offset,
        interface: host
            .interface_of(packet.port())
            .unwrap_or(InterfaceId::LOOPBACK),
        protocol: match parsed.class.tcp >> index & 1 {
            0 => protocol::UDP,
            _ => protocol::TCP,
        },
        tos,
        ttl,
        l3: meta.l3_offset,
        is_v6,
        is_group: false,
        is_verified: parsed.checks.l4_good >> index & 1 != 0,
    }
}
