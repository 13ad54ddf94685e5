//! SYN cookies (RFC 4987 3.6): all that a half-open connection needs is in the sequence number that
//! its client sends back.
//!
//! | bits | what |
//! |---|---|
//! | 31 to 8 | SipHash-2-4 of key, client's sequence number, time slot and bits 7 to 0 |
//! | 7 to 5 | class of the client's segment size: the largest of `MSS` that is not above it |
//! | 4 to 2 | class of its window scale: the largest of `SCALES` that is not above it, or none |
//! | 1 | whether it permits SACK |
//! | 0 | the last bit of the time slot |
//!
//! The hash is keyed with a secret; all workers that may get the answer need the same. A cookie
//! holds for the slot in which it was given and the next: 32 to 64 seconds. One guess in 5 million
//! is right (24 bits, for three sequence numbers); what it gains is a SYN to the server. Timestamps
//! are not offered, so connections that begin with a cookie have none.

use linerate_stack::tcp::secret::Secret;

use super::segment::{NO_SCALE, Segment};

/// Milliseconds of a time slot.
const SLOT_MS: u64 = 32_000;

/// Classes of segment sizes.
const MSS: [u16; 8] = [64, 536, 1200, 1300, 1360, 1440, 1460, 8960];

/// Classes of window scales, after none.
const SCALES: [u8; 7] = [0, 2, 4, 6, 7, 8, 10];

/// Room for a flow's key: the longest, of IPv6, has 40 bytes.
const KEY_BYTES: usize = 40;

/// What a client offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) mss: u16,
    pub(super) scale: u8,
    pub(super) sack_permitted: bool,
}

/// Gives cookies and knows them again.
#[derive(Clone)]
pub struct Cookies {
    secret: Secret,
    /// The segment size that is offered to clients.
    mss: u16,
    last_given_ms: Option<u64>,
}

/// Prints no secret.
impl std::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cookies")
            .field("mss", &self.mss)
            .finish_non_exhaustive()
    }
}

impl Cookies {
    /// Cookies. `secret` must be unpredictable; `mss` is what clients are told to send at most.
    pub fn new(secret: u128, mss: u16) -> Self {
        Self {
            secret: Secret::new(secret),
            mss,
            last_given_ms: None,
        }
    }

    pub(super) fn mss(&self) -> u16 {
        self.mss
    }

    /// Whether there may be valid ones.
    pub(super) fn are_out(&self, now_ms: u64) -> bool {
        (self.last_given_ms).is_some_and(|given| now_ms.saturating_sub(given) < 2 * SLOT_MS)
    }

    /// The cookie for this SYN.
    pub(super) fn give(&mut self, key: &[u8], syn: &Segment, now_ms: u64) -> u32 {
        self.last_given_ms = Some(now_ms);
        let slot = now_ms / SLOT_MS;
        // RFC 9293 3.7.1: who says none takes 536.
        let offered = if syn.mss == 0 { 536 } else { syn.mss };
        let mss = MSS.iter().rposition(|&mss| mss <= offered).unwrap_or(0);
        let scale = match syn.scale {
            NO_SCALE => 0,
            // The first is 0, so there is one.
            scale => {
                1 + SCALES
                    .iter()
                    .rposition(|&class| class <= scale)
                    .unwrap_or(0)
            }
        };
        let sack = usize::from(syn.sack_permitted);
        let low = (mss << 5 | scale << 2 | sack << 1) as u8 | (slot & 1) as u8;
        self.cookie(key, syn.seq, slot, low)
    }

    /// What the client offered to whom this cookie was given, if it was and still holds.
    pub(super) fn check(&self, key: &[u8], isn: u32, cookie: u32, now_ms: u64) -> Option<Offer> {
        let now = now_ms / SLOT_MS;
        let low = cookie as u8;
        let slot = match (now & 1) as u8 == low & 1 {
            true => now,
            false => now.checked_sub(1)?,
        };
        let scale = usize::from(low >> 2 & 7);
        (cookie == self.cookie(key, isn, slot, low)).then(|| Offer {
            mss: MSS[usize::from(low >> 5)],
            scale: scale.checked_sub(1).map_or(NO_SCALE, |class| SCALES[class]),
            sack_permitted: low & 2 != 0,
        })
    }

    fn cookie(&self, key: &[u8], isn: u32, slot: u64, low: u8) -> u32 {
        let rest = u64::from(isn) << 8 | u64::from(low);
        let mut words = [0; KEY_BYTES];
        words[..key.len()].copy_from_slice(key);
        let len = key.len().next_multiple_of(8);
        let hash = self.secret.hash(&words[..len], &[slot, rest]);
        (hash as u32) << 8 | u32::from(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syn(mss: u16, scale: u8, sack_permitted: bool) -> Segment {
        Segment {
            seq: 100,
            mss,
            scale,
            sack_permitted,
            ..Segment::default()
        }
    }

    #[test]
    fn rfc_4987_3_6_a_cookie_tells_what_was_offered() {
        let mut cookies = Cookies::new(1, 1460);
        for (mss, is) in [
            (0, 536),
            (63, 64),
            (64, 64),
            (536, 536),
            (1459, 1440),
            (1460, 1460),
            (65_535, 8960),
        ] {
            let scales = (0..=14).map(|scale| (scale, SCALES.iter().rfind(|&&s| s <= scale)));
            for (scale, class) in scales.chain([(NO_SCALE, Some(&NO_SCALE))]) {
                for sack_permitted in [false, true] {
                    let cookie = cookies.give(b"key", &syn(mss, scale, sack_permitted), 5);
                    let offer = Offer {
                        mss: is,
                        scale: *class.unwrap(),
                        sack_permitted,
                    };
                    assert_eq!(cookies.check(b"key", 100, cookie, 5), Some(offer));
                }
            }
        }
    }

    #[test]
    fn rfc_4987_3_6_a_cookie_is_for_one_connection_and_holds_for_a_while() {
        let mut cookies = Cookies::new(1, 1460);
        for slot in [0, 1, 2, 3, 1_000_001] {
            let now = slot * SLOT_MS + 7;
            let cookie = cookies.give(b"key", &syn(1460, 7, true), now);
            let check = |key, isn, cookie, now| cookies.check(key, isn, cookie, now).is_some();
            assert!(check(b"key", 100, cookie, now));
            assert!(check(b"key", 100, cookie, now + SLOT_MS));
            for later in 2..10 {
                assert!(!check(b"key", 100, cookie, now + later * SLOT_MS));
            }
            assert!(!check(b"kez", 100, cookie, now));
            assert!(!check(b"key", 101, cookie, now));
            for bit in 0..32 {
                assert!(!check(b"key", 100, cookie ^ 1 << bit, now), "{bit}");
            }
            let other = Cookies::new(2, 1460);
            assert_eq!(other.check(b"key", 100, cookie, now), None);
            assert!(cookies.are_out(now + SLOT_MS) && !cookies.are_out(now + 2 * SLOT_MS));
        }
    }

    #[test]
    fn guesses_are_wrong() {
        let cookies = Cookies::new(1, 1460);
        let right = (0..200_000_u32).filter(|guess| {
            let guess = guess.wrapping_mul(0x9e37_79b9);
            cookies.check(b"key", 100, guess, SLOT_MS).is_some()
        });
        assert!(right.count() <= 1);
    }
}
