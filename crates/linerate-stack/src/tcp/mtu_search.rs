//! The search for the longest segment that a path takes, without ICMP (RFC 4821), as Linux does it
//! (`tcp_mtu_probing`): between what is known to arrive and what is known not to.
//!
//! Sizes are payload and options of a segment, in bytes, as a path's MTU has room for beside the
//! headers of IP and TCP.

/// Whether connections look for the MTU of their path by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuProbing {
    /// They believe ICMP, and nothing else (Linux: 0, its default).
    Off,
    /// Once segments are lost again and again they send shorter ones, and then look for the longest
    /// that arrive (Linux: 1). It is the default: it begins where a connection would end otherwise
    /// (RFC 2923 2.1), and what it costs one whose peer was only away is some longer headers until
    /// the search has come up again.
    #[default]
    BlackHole,
    /// All begin with [`Least::base`], and look for more (Linux: 2).
    On,
}

/// The least that paths are taken to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    /// Where a search begins.
    pub base: u16,
    /// Not below this, where even that does not arrive.
    pub floor: u16,
}

impl Least {
    /// Over IPv4: 1024 (RFC 4821 7.2; Linux: tcp_base_mss), 512. RFC 4821 7.7 goes down to an MTU
    /// of 68, and Linux to segments of 48: a peer that was away for minutes would then get those.
    pub const V4: Self = Self {
        base: 1024,
        floor: 512,
    };
    /// Over IPv6 every path carries 1280 bytes (RFC 8200 5, RFC 4821 7.7), of which 60 are headers.
    pub const V6: Self = Self {
        base: 1220,
        floor: 1220,
    };
}

/// A search ends where less is to be gained (Linux: tcp_probe_threshold).
const THRESHOLD: u16 = 8;
/// When it is tried again whether the path takes more by now (RFC 4821 7.3: ten minutes).
const AGAIN_NS: u64 = 600_000_000_000;

/// What is known of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MtuSearch {
    /// Segments of so many bytes arrive, as far as is known.
    low: u16,
    /// Longer ones do not.
    high: u16,
    /// What the link and the peer take.
    most: u16,
    /// Since when `high` holds.
    since_ns: u64,
    /// No probe before this, since one has failed.
    pause_until_ns: u64,
    /// The probe under way: its size, or 0, and its sequence numbers.
    size: u16,
    first: u32,
    end: u32,
}

impl MtuSearch {
    /// One that begins, on a path of which `most` is known: by its link, and the peer's MSS.
    pub fn new(low: u16, most: u16, now_ns: u64) -> Self {
        Self {
            low: low.min(most),
            high: most,
            most,
            since_ns: now_ns,
            ..Self::default()
        }
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.most == 0
    }

    /// Whether segments arrive that are as long as link and peer take, so that there is nothing
    /// more to be found.
    pub fn is_over(&self) -> bool {
        self.most - self.low < THRESHOLD
    }

    /// The longest segments that arrive.
    pub fn low(&self) -> u16 {
        self.low
    }

    /// Even these do not arrive: half of it (RFC 4821 7.7). Whether that is less.
    pub fn fall(&mut self, least: Least, now_ns: u64) -> bool {
        let before = self.low;
        self.low = (before / 2).min(least.base).max(least.floor).min(before);
        (self.since_ns, self.size) = (now_ns, 0);
        self.low < before
    }

    /// A router takes no more than `most` (RFC 1191, RFC 8201).
    pub fn limit(&mut self, most: u16) {
        self.most = self.most.min(most);
        self.high = self.high.min(most);
        self.low = self.low.min(most);
    }

    /// The size to try next; `None` where there is nothing to be found, a probe is under way, or
    /// one has failed not long enough ago.
    pub fn next(&mut self, now_ns: u64) -> Option<u16> {
        if self.size != 0 || now_ns < self.pause_until_ns {
            return None;
        }
        if self.high - self.low < THRESHOLD {
            if self.high == self.most || now_ns.saturating_sub(self.since_ns) < AGAIN_NS {
                return None;
            }
            (self.high, self.since_ns) = (self.most, now_ns);
            if self.high - self.low < THRESHOLD {
                return None;
            }
        }
        Some(self.low + (self.high - self.low).div_ceil(2))
    }

    /// A probe of `size` bytes was sent, with the sequence numbers from `first` to `end`.
    pub fn sent(&mut self, size: u16, first: u32, end: u32) {
        (self.size, self.first, self.end) = (size, first, end);
    }

    /// The sequence numbers of the probe that is under way: the first, and the one behind it.
    pub fn probe(&self) -> Option<(u32, u32)> {
        (self.size != 0).then_some((self.first, self.end))
    }

    /// The probe has arrived.
    pub fn arrived(&mut self) {
        // A router may have said since that it takes less.
        let size = std::mem::take(&mut self.size).min(self.most);
        self.low = size.max(self.low);
        self.high = self.high.max(self.low);
    }

    /// The probe is lost, and nothing else: the path does not take it (RFC 4821 7.6.2).
    ///
    /// No other goes for `pause_ns`, ten minutes at most: a round trip for each segment that the
    /// congestion window lets go (RFC 4821 4). So losses that reduce nothing are more seldom than
    /// those that a flow of the same rate by TCP's rules has. Linux does without.
    pub fn lost(&mut self, now_ns: u64, pause_ns: u64) {
        self.pause_until_ns = now_ns.saturating_add(pause_ns.min(AGAIN_NS));
        let shorter = std::mem::take(&mut self.size).saturating_sub(1);
        self.high = self.high.min(shorter).max(self.low);
        self.since_ns = now_ns;
    }

    /// Nothing is known of what became of the probe (RFC 4821 7.6.3 and 7.6.4).
    pub fn forget_probe(&mut self) {
        self.size = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the path takes is found, but for the threshold, in a few probes.
        #[test]
        fn rfc_4821_7_3_a_search_comes_near_what_the_path_takes(
            most in 600_u16..9000,
            path in 512_u16..9000,
        ) {
            let path = path.min(most);
            let mut search = MtuSearch::new(Least::V4.base.min(path), most, 0);
            let mut probes = 0;
            while let Some(size) = search.next(0) {
                prop_assert!(size > search.low() && size <= most);
                search.sent(size, 0, 1);
                prop_assert_eq!(search.next(0), None);
                match size <= path {
                    true => search.arrived(),
                    false => search.lost(0, 0),
                }
                probes += 1;
            }
            prop_assert!(probes <= 14);
            prop_assert!(search.low() <= path && path - search.low() < THRESHOLD);
        }
    }

    #[test]
    fn rfc_4821_7_7_it_falls_to_a_floor_and_is_tried_again_after_ten_minutes() {
        let mut search = MtuSearch::new(1460, 1460, 0);
        assert!(search.next(0).is_none(), "nothing is to be found");
        assert!(search.fall(Least::V4, 5));
        assert_eq!(search.low(), 730);
        assert!(search.fall(Least::V4, 6));
        assert_eq!(search.low(), 512);
        assert!(!search.fall(Least::V4, 7));
        let mut over_v6 = MtuSearch::new(1220, 1440, 0);
        assert!(!over_v6.fall(Least::V6, 1));
        search.sent(1000, 0, 1);
        search.lost(10, 0);
        while let Some(size) = search.next(10) {
            search.sent(size, 0, 1);
            search.lost(10, 0);
        }
        assert_eq!((search.low(), search.next(10 + AGAIN_NS - 1)), (512, None));
        assert_eq!(search.next(10 + AGAIN_NS), Some(512 + (1460 - 512) / 2));
        search.limit(600);
        search.sent(600, 0, 1);
        search.arrived();
        assert_eq!((search.low(), search.next(u64::MAX)), (600, None));
    }

    /// A router says that it takes less than a probe that arrives all the same.
    #[test]
    fn rfc_4821_7_6_1_what_a_router_takes_bounds_a_probe_that_has_arrived() {
        let mut search = MtuSearch::new(1024, 1460, 0);
        search.sent(1242, 0, 1);
        search.limit(1100);
        search.arrived();
        assert_eq!((search.low(), search.is_over()), (1100, true));
        assert_eq!(search.next(u64::MAX), None);
    }

    #[test]
    fn rfc_4821_4_a_probe_that_failed_is_followed_by_none_for_a_while() {
        let mut search = MtuSearch::new(1000, 1460, 0);
        search.sent(1230, 0, 1);
        search.lost(5, 100);
        assert_eq!((search.next(5), search.next(104)), (None, None));
        assert_eq!(search.next(105), Some(1115));
        // One that arrives does not have the next wait.
        search.sent(1115, 1, 2);
        search.arrived();
        assert_eq!(search.next(105), Some(1172));
        // However large the window and long the round trip.
        search.sent(1172, 2, 3);
        search.lost(200, u64::MAX);
        assert_eq!(search.next(199 + AGAIN_NS), None);
        assert!(search.next(200 + AGAIN_NS).is_some());
    }
}
