//! Proportional Rate Reduction (RFC 9937): how much is sent for each ACK of a fast recovery, so
//! that the data in flight comes down to the slow start threshold over one round trip, and ends
//! there.
//!
//! While more is in flight than the threshold, PRR sends the fraction of what is delivered that
//! the window will be of what it was. With less in flight (many losses, or an application that
//! paused) it sends as much as is delivered (PRR-CRB), and a segment more for each ACK that shows
//! that recovery goes well (PRR-SSRB).
//!
//! The same serves the round after an ECN mark (RFC 9937 4), and anew each time that a lost
//! retransmission makes the congestion control reduce its window again (6.1).
//!
//! ```
//! use linerate_stack::tcp::prr::{Flight, Prr};
//! // RFC 9937 8, in segments of one byte: 22 in flight, one lost, the third SACK comes.
//! let flight = Flight { outstanding: 22, sacked: 3, newly_sacked: 1, newly_acked: 0 };
//! let mut prr = Prr::start(flight);
//! assert_eq!(prr.on_ack(1, 18, 10, 1, false), Some(19)); // the retransmission may be sent
//! prr.on_sent(1);
//! assert_eq!(prr.on_ack(1, 18, 10, 1, false), Some(18)); // none
//! ```

#[cfg(test)]
mod tests;

/// One episode, from the start of a reduction to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prr {
    /// prr_delivered: bytes delivered in the episode.
    delivered: u32,
    /// prr_out: bytes sent in it.
    out: u32,
    /// RecoverFS: bytes that may be delivered in it.
    recover_fs: u32,
    /// Without SACK: what duplicate ACKs have counted, and no cumulative ACK yet.
    by_duplicates: u32,
}

const _: () = assert!(size_of::<Prr>() <= 16);

/// What is outstanding when an episode starts, in bytes, after the ACK that starts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flight {
    /// SND.NXT - SND.UNA.
    pub outstanding: u32,
    /// What of that is SACKed.
    pub sacked: u32,
    /// What of that this ACK SACKed.
    pub newly_sacked: u32,
    /// What this ACK acknowledged cumulatively.
    pub newly_acked: u32,
}

impl Prr {
    /// Starts an episode (RFC 9937 6.1). [`on_ack`](Self::on_ack) follows for the same ACK.
    pub fn start(flight: Flight) -> Self {
        let rest = flight.outstanding.saturating_sub(flight.sacked);
        let newly = flight.newly_sacked.saturating_add(flight.newly_acked);
        Self {
            delivered: 0,
            out: 0,
            // Something was outstanding, else there would be no loss: 0 must not divide.
            recover_fs: rest.saturating_add(newly).max(1),
            by_duplicates: 0,
        }
    }

    /// The congestion window in bytes for an ACK of the episode (RFC 9937 6.2), which is what is
    /// in flight and what may be sent now. `None`: it stays as it is, since nothing was delivered.
    /// Not for the ACK that ends the episode: then the window is the threshold (6.4).
    ///
    /// - `delivered_bytes`: newly acknowledged and newly SACKed. It is 0 where a timer (RFC 8985
    ///   6.2 step 5) and no ACK starts the episode; the first transmission is allowed also then.
    /// - `in_flight_bytes`: after this ACK, without what is SACKed or marked lost.
    /// - `target_bytes`: the slow start threshold, `congestion::Window::target_bytes`.
    /// - `is_safe`: the ACK advances SND.UNA, and no segment was marked lost by it.
    #[inline]
    pub fn on_ack(
        &mut self,
        delivered_bytes: u32,
        in_flight_bytes: u32,
        target_bytes: u32,
        mss: u32,
        is_safe: bool,
    ) -> Option<u32> {
        if delivered_bytes == 0 && self.out > 0 {
            return None;
        }
        self.delivered = self.delivered.saturating_add(delivered_bytes);
        let mut count = if in_flight_bytes > target_bytes {
            let share = u64::from(self.delivered) * u64::from(target_bytes);
            let out = share.div_ceil(u64::from(self.recover_fs));
            out.saturating_sub(u64::from(self.out))
                .min(u64::from(u32::MAX)) as u32
        } else {
            let conserving = self.delivered.saturating_sub(self.out);
            let extra = if is_safe { mss } else { 0 };
            let count = conserving.max(delivered_bytes).saturating_add(extra);
            count.min(target_bytes - in_flight_bytes)
        };
        // The first retransmission keeps the clock of ACKs going.
        if self.out == 0 && count == 0 {
            count = mss;
        }
        Some(in_flight_bytes.saturating_add(count))
    }

    /// Data was sent, new or again (RFC 9937 6.3).
    #[inline]
    pub fn on_sent(&mut self, bytes: u32) {
        self.out = self.out.saturating_add(bytes);
    }

    /// What an ACK delivered on a connection without SACK (RFC 9937 6.2): a segment for each
    /// duplicate ACK, and for a cumulative one what it acknowledges beyond those. Give it to
    /// [`on_ack`](Self::on_ack).
    ///
    /// Duplicates never count more than was outstanding at the start: a receiver that sends them
    /// for nothing gains nothing (Savage et al., 1999).
    pub fn delivered_without_sack(&mut self, newly_acked: u32, mss: u32) -> u32 {
        if newly_acked == 0 {
            let room = self.recover_fs.saturating_sub(self.delivered);
            let counted = mss.min(room);
            self.by_duplicates = self.by_duplicates.saturating_add(counted);
            return counted;
        }
        let counted = self.by_duplicates.min(newly_acked);
        self.by_duplicates -= counted;
        newly_acked - counted
    }

    /// RecoverFS (RFC 9937 6.1), in bytes: without SACK, duplicate ACKs stand for no more than this
    /// (6.2).
    pub fn recover_fs_bytes(&self) -> u32 {
        self.recover_fs
    }

    /// What duplicate ACKs have counted and no cumulative ACK yet, in bytes: without SACK, what is
    /// outstanding is in flight but for this and what is lost (RFC 9937 6.2).
    pub fn by_duplicates_bytes(&self) -> u32 {
        self.by_duplicates
    }
}
