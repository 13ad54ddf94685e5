//! Router advertisements: RFC 4861 6.2.

use linerate_wire::ndp::{self, Message, PrefixInfo, Router};

use super::interface::Interface;
use super::{Advertise, MILLISECOND, Out, SECOND, Table, nd};
use linerate_core::random::Random;

/// RFC 4861 10, router constants.
const MAX_INITIAL_RTR_ADVERT_INTERVAL_NS: u64 = 16 * SECOND;
const MAX_INITIAL_RTR_ADVERTISEMENTS: u8 = 3;
const MIN_DELAY_BETWEEN_RAS_NS: u64 = 3 * SECOND;
const MAX_RA_DELAY_TIME_NS: u64 = 500 * MILLISECOND;
/// RFC 4861 6.2.1: bounds of MaxRtrAdvInterval.
const INTERVAL_S: (u16, u16) = (4, 1800);
/// Prefixes of one advertisement: what the least MTU has room for.
const MAX_PREFIXES: usize = 37;

/// When an interface advertises.
#[derive(Debug)]
pub(super) struct Advertiser {
    pub(super) due_ns: u64,
    /// Number sent of the first few, which have shorter intervals.
    sent: u8,
    last_ns: Option<u64>,
}

impl Advertiser {
    pub(super) fn new(now_ns: u64, random: &mut Random) -> Self {
        Self {
            due_ns: now_ns + random.within(0, MAX_RA_DELAY_TIME_NS),
            sent: 0,
            last_ns: None,
        }
    }

    /// The advertised values have changed: advertisements start over as at the beginning (RFC 4861
    /// 6.2.4).
    pub(super) fn restart(&mut self, now_ns: u64, random: &mut Random) {
        self.sent = 0;
        self.solicited(now_ns, random);
    }

    /// RFC 4861 6.2.6: after a short random delay, one answer for all solicitations meanwhile, and
    /// not within [`MIN_DELAY_BETWEEN_RAS_NS`] of the last one.
    pub(super) fn solicited(&mut self, now_ns: u64, random: &mut Random) {
        let delay_ns = random.within(0, MAX_RA_DELAY_TIME_NS);
        let soonest = self
            .last_ns
            .map_or(0, |last| last + MIN_DELAY_BETWEEN_RAS_NS);
        let at = match now_ns + delay_ns < soonest {
            true => soonest + delay_ns,
            false => now_ns + delay_ns,
        };
        self.due_ns = self.due_ns.min(at);
    }

    /// One was sent: RFC 4861 6.2.4 for when the next one is.
    fn advertised(&mut self, said: &Advertise, now_ns: u64, random: &mut Random) {
        let most_s = u64::from(said.interval_s.clamp(INTERVAL_S.0, INTERVAL_S.1));
        // MinRtrAdvInterval's default.
        let least_ns = match most_s {
            9.. => most_s * SECOND * 33 / 100,
            _ => most_s * SECOND * 3 / 4,
        };
        let mut wait_ns = random.within(least_ns, most_s * SECOND);
        self.sent = self.sent.saturating_add(1);
        if self.sent < MAX_INITIAL_RTR_ADVERTISEMENTS {
            wait_ns = wait_ns.min(MAX_INITIAL_RTR_ADVERT_INTERVAL_NS);
        }
        self.last_ns = Some(now_ns);
        self.due_ns = now_ns + wait_ns.max(MIN_DELAY_BETWEEN_RAS_NS);
    }
}

impl Table {
    /// Advertises, where it is time.
    pub(super) fn tick_advertiser(&mut self, id: u16, now_ns: u64, out: &mut Out) {
        let Some(place) = self.interfaces.get_mut(&id) else {
            return;
        };
        let (Some(said), Some(advertiser)) = (place.config.advertise, &place.advertiser) else {
            return;
        };
        if advertiser.due_ns > now_ns {
            return;
        }
        let is_sent = advertise(id, place, said, said.lifetime_s, out);
        if let Some(advertiser) = &mut place.advertiser {
            match is_sent {
                true => advertiser.advertised(&said, now_ns, &mut self.random),
                // The link-local address is still being probed for.
                false => advertiser.due_ns = now_ns + SECOND,
            }
        }
    }
}

/// RFC 4861 6.2.5: the final advertisement of an interface that stops advertising.
pub(super) fn cease(id: u16, place: &Interface, out: &mut Out) {
    let has_spoken =
        (place.advertiser.as_ref()).is_some_and(|advertiser| advertiser.last_ns.is_some());
    if let (true, Some(said)) = (has_spoken, place.config.advertise) {
        advertise(id, place, said, 0, out);
    }
}

/// Sends an advertisement to all nodes, if there is a link-local address to send it from (RFC 4861
/// 4.2).
fn advertise(id: u16, place: &Interface, said: Advertise, lifetime_s: u16, out: &mut Out) -> bool {
    let Some(src) = place.link_local() else {
        return false;
    };
    let mut prefixes = Vec::<PrefixInfo>::new();
    for (prefix, len) in place.own.iter().filter_map(|own| own.prefix6()) {
        let is_new = !(prefixes.iter()).any(|known| (known.prefix, known.len) == (prefix, len));
        if is_new && prefixes.len() < MAX_PREFIXES {
            prefixes.push(PrefixInfo {
                prefix,
                len,
                on_link: true,
                autonomous: len == 64, // RFC 4862 5.5.3: with 64-bit interface identifiers
                valid_s: said.valid_s,
                preferred_s: said.preferred_s.min(said.valid_s),
            });
        }
    }
    let message = Message::RouterAdvertisement {
        router: Router {
            hop_limit: said.hop_limit,
            managed: said.managed,
            other: said.other,
            lifetime_s,
            reachable_ms: 0,
            retransmit_ms: 0,
        },
        source_mac: Some(place.mac()),
        mtu: said.mtu,
        prefixes: &prefixes,
    };
    let macs = (ndp::multicast_mac(ndp::ALL_NODES), place.mac());
    nd::send(id, macs, src, ndp::ALL_NODES, message, out);
    true
}
