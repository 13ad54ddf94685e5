//! Samples of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation-00): for each ACK, how
//! much was delivered since the segment that it acknowledges was sent, and in what time.
//!
//! [`Delivery`] is the state of a connection. Each segment keeps a [`SendStamp`] from its
//! (re)transmission until it is acknowledged or SACKed. For an ACK, a [`Sampler`] takes
//! the stamps of all segments that it delivers, and makes a [`RateSample`].
//!
//! The time is the longer one of two: that in which the bytes were sent, and that in which they
//! were acknowledged. A burst of ACKs which a network or a receiver held back would look like a
//! high rate by the second alone.
//!
//! ```
//! use linerate_stack::tcp::congestion::rate::{Delivery, Sampler};
//! let mut delivery = Delivery::default();
//! let stamp = delivery.on_send(1_000_000_000, true);
//! let mut sampler = Sampler::default();
//! sampler.deliver(&mut delivery, &stamp, 1_000_000_000, 10_000);
//! let sample = sampler.finish(&mut delivery, 1_010_000_000, Some(10_000_000)).expect("10 ms pass");
//! assert_eq!(sample.rate(), 1_000_000); // 10,000 bytes in 10 ms
//! ```
//!
//! Times are in units of 64 ns in 32 bits, which wrap after 274 s; a segment that was in flight
//! for more than half of that is no sample (it has long timed out).

/// Units of time are 2^6 ns.
const SHIFT: u32 = 6;

fn units(ns: u64) -> u32 {
    (ns >> SHIFT) as u32
}

/// What a connection has delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// C.delivered: all bytes delivered, modulo 2^32.
    delivered: u32,
    /// C.delivered_time.
    delivered_at: u32,
    /// C.first_sent_time: when the segment was sent that was last acknowledged, or the first one
    /// of a flight.
    first_sent_at: u32,
    /// C.app_limited: samples are limited until this many bytes are delivered.
    limited_until: u32,
    is_limited: bool,
}

/// What a segment remembers of when it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendStamp {
    delivered: u32,
    delivered_at: u32,
    first_sent_at: u32,
    is_app_limited: bool,
}

const _: () = assert!(size_of::<Delivery>() <= 20 && size_of::<SendStamp>() <= 16);

/// What an ACK measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes that the connection had delivered when the segment was sent, modulo 2^32.
    pub prior_delivered: u32,
    /// Bytes that it has delivered now, modulo 2^32.
    pub delivered: u32,
    /// In what time that was, in nanoseconds; 0: too short to say anything.
    pub interval_ns: u64,
    /// Whether the application, not the network, may have limited the rate.
    pub is_app_limited: bool,
}

impl RateSample {
    /// How many bytes were delivered in the interval.
    pub fn bytes(&self) -> u32 {
        self.delivered.wrapping_sub(self.prior_delivered)
    }

    /// Bytes a second; 0 where the interval says nothing.
    pub fn rate(&self) -> u64 {
        let byte_seconds = u64::from(self.bytes()) * 1_000_000_000;
        byte_seconds.checked_div(self.interval_ns).unwrap_or(0)
    }
}

impl Delivery {
    /// A segment is sent, or sent again: what it is to remember. `is_first_in_flight`: nothing
    /// was in flight, so the times of the flight begin now (draft 3.2).
    #[inline]
    pub fn on_send(&mut self, now_ns: u64, is_first_in_flight: bool) -> SendStamp {
        if is_first_in_flight {
            self.first_sent_at = units(now_ns);
            self.delivered_at = self.first_sent_at;
        }
        SendStamp {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            is_app_limited: self.is_limited,
        }
    }

    /// The sender has nothing to send while the window has room (draft 3.4): until what is in
    /// flight now is delivered, samples say what the application does. The condition is the
    /// sender's to check: no unsent segment, all that is lost sent again, and room in the window.
    pub fn on_app_limited(&mut self, in_flight_bytes: u32) {
        self.limited_until = self.delivered.wrapping_add(in_flight_bytes);
        self.is_limited = true;
    }

    /// Whether samples of what is sent now are marked as limited.
    pub fn is_app_limited(&self) -> bool {
        self.is_limited
    }

    /// Bytes delivered, modulo 2^32.
    pub fn delivered(&self) -> u32 {
        self.delivered
    }
}

/// Takes the segments that one ACK delivers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    /// The stamp of the segment sent last among them, and when it was sent.
    newest: Option<(SendStamp, u32)>,
}

impl Delivery {
    /// Bytes were delivered of which nobody wants a sample.
    #[inline(always)]
    pub fn count(&mut self, bytes: u32) {
        self.delivered = self.delivered.wrapping_add(bytes);
    }
}

impl Sampler {
    /// The ACK delivers `bytes` that were sent at `sent_ns`: acknowledges or SACKs them for the
    /// first time (draft 3.3). In any order.
    #[inline]
    pub fn deliver(
        &mut self,
        delivery: &mut Delivery,
        stamp: &SendStamp,
        sent_ns: u64,
        bytes: u32,
    ) {
        delivery.delivered = delivery.delivered.wrapping_add(bytes);
        let sent_at = units(sent_ns);
        // The one sent last: of two with the same count it is the later one.
        let is_newer = self.newest.is_none_or(|(newest, at)| {
            let more = stamp.delivered.wrapping_sub(newest.delivered) as i32;
            more > 0 || (more == 0 && sent_at.wrapping_sub(at) as i32 > 0)
        });
        if is_newer {
            self.newest = Some((*stamp, sent_at));
        }
    }

    /// What was measured; `None` if the ACK delivered nothing. `min_rtt_ns`: the connection's; a
    /// shorter interval is the acknowledgment of something that was sent twice, and gets an
    /// interval of 0.
    #[inline]
    pub fn finish(
        self,
        delivery: &mut Delivery,
        now_ns: u64,
        min_rtt_ns: Option<u64>,
    ) -> Option<RateSample> {
        let (stamp, sent_at) = self.newest?;
        let now = units(now_ns);
        delivery.delivered_at = now;
        delivery.first_sent_at = sent_at;
        let beyond = delivery.delivered.wrapping_sub(delivery.limited_until) as i32;
        if delivery.is_limited && beyond > 0 {
            delivery.is_limited = false;
        }
        let send = sent_at.wrapping_sub(stamp.first_sent_at);
        let ack = now.wrapping_sub(stamp.delivered_at);
        let interval = send.max(ack);
        let interval_ns = u64::from(interval) << SHIFT;
        // The minimum is kept less finely, rounded down.
        let is_sound = interval as i32 > 0 && interval_ns >= min_rtt_ns.unwrap_or(0);
        Some(RateSample {
            prior_delivered: stamp.delivered,
            delivered: delivery.delivered,
            interval_ns: if is_sound { interval_ns } else { 0 },
            is_app_limited: stamp.is_app_limited,
        })
    }
}
