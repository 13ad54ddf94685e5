//! Congestion control: how much a connection may have in flight.
//!
//! | file | what |
//! |---|---|
//! | `window` | the window that all algorithms share; the initial window (RFC 6928), idle times |
//! | `usage` | whether the window is what limits the sender (RFC 7661) |
//! | `cubic` | CUBIC (RFC 9438), the default |
//! | `hystart` | its slow start: HyStart++ (RFC 9406) |
//! | `new_reno` | NewReno (RFC 5681, 6582) |
//! | `bbr` | BBR version 1, as in Linux |
//! | `rate` | samples of the delivery rate, which BBR needs |
//!
//! A [`Controller`] is the window and the algorithm of one connection: 96 bytes, which are copied
//! when the connection moves. What a connection does, in this order:
//!
//! 1. *An ACK comes.* It updates its scoreboard, marks what is lost, and gives the segments that
//!    are delivered to [`rate::Sampler`] and the round trip to [`Rtt`](super::rtt::Rtt).
//! 2. *An episode ends* (what was outstanding at its start is acknowledged): `on_recovery_end`.
//!    *A segment is lost*, or the peer reports a mark, and there is no episode: `on_congestion`,
//!    then [`Prr::start`](super::prr::Prr::start). One whose retransmission was lost may be
//!    another episode, after the end of this one (RFC 9937 6.1).
//! 3. `on_ack`, whatever the state. In a fast recovery then [`Prr::on_ack`](super::prr::Prr) with
//!    [`Window::target_bytes`], whose window it sets, if [`Congestion::is_by_prr`].
//! 4. It paces: [`Congestion::pacing_rate`], or the window over the round trip.
//! 5. *It sends*: `on_idle` first, if nothing is in flight; [`Usage::note_sent`] at the end.
//!
//! Besides, *the timer expires*: `on_timeout`. *All of it was spurious*: `undo`, and no
//! `on_recovery_end` for that episode.
//!
//! ```
//! use linerate_stack::tcp::congestion::{Ack, Algorithm, Controller, Signal};
//! let mut control = Controller::new(Algorithm::default(), 1460, false, 0);
//! assert_eq!(control.window.cwnd_bytes, 14_600); // RFC 6928
//! let mut ack = Ack::default();
//! (ack.acked_bytes, ack.in_flight_bytes, ack.is_cwnd_limited) = (2920, 14_600, true);
//! control.on_ack(&ack);
//! assert_eq!(control.window.cwnd_bytes, 14_600 + 2920); // slow start
//! control.on_congestion(Signal::Loss, 17_520, 0);
//! assert_eq!(control.window.ssthresh_bytes, 12_264); // CUBIC keeps 0.7 of it
//! ```
//!
//! # An algorithm of your own
//!
//! Implement [`Congestion`] for a small type, and use `Controller<Yours>`; [`Algorithm`], which
//! chooses among those here while running, is nothing else. Set the window's fields, use
//! [`Window`]'s methods for what all algorithms do alike, and read the comments on the trait's
//! functions for what the connection does by itself. One that has a fixed share of a link:
//!
//! ```
//! use linerate_stack::tcp::congestion::{Ack, Congestion, Controller, Signal, Window};
//!
//! struct Reserved {
//!     bytes_per_s: u64,
//! }
//!
//! impl Congestion for Reserved {
//!     fn name(&self) -> &'static str {
//!         "reserved"
//!     }
//!
//!     fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
//!         // What leaves in two round trips: the rate is what limits.
//!         let bytes = self.bytes_per_s * ack.srtt_ns / 500_000_000;
//!         window.cwnd_bytes = (bytes as u32).max(4 * window.mss());
//!     }
//!
//!     // Losses are sent again, within the share.
//!     fn on_congestion(&mut self, _: &mut Window, _: Signal, _: u32, _: u64) {}
//!
//!     fn on_timeout(&mut self, window: &mut Window, _: bool, _: u32, _: u64) {
//!         window.cwnd_bytes = window.mss();
//!     }
//!
//!     fn on_recovery_end(&mut self, _: &mut Window, _: bool, _: u64) {}
//!
//!     fn undo(&mut self, _: &mut Window, _: u64) {}
//!
//!     fn on_idle(&mut self, _: &mut Window, _: u64, _: u64, _: u64) {}
//!
//!     fn pacing_rate(&self) -> Option<u64> {
//!         Some(self.bytes_per_s)
//!     }
//!
//!     fn is_by_prr(&self) -> bool {
//!         false
//!     }
//! }
//!
//! let mut control = Controller::new(Reserved { bytes_per_s: 1_000_000 }, 1460, true, 0);
//! control.on_ack(&Ack { srtt_ns: 50_000_000, ..Ack::default() });
//! assert_eq!(control.window.cwnd_bytes, 100_000);
//! ```

mod bbr;
mod cubic;
mod hystart;
mod new_reno;
pub mod rate;
#[cfg(test)]
mod tests;
mod usage;
mod window;

pub use bbr::Bbr;
pub use cubic::Cubic;
pub use new_reno::NewReno;
pub use rate::RateSample;
pub use usage::Usage;
pub use window::{CWND_MAX_BYTES, SSTHRESH_INFINITE, Window, initial_window, loss_window};

/// What an ACK says to congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// When it came.
    pub now_ns: u64,
    /// How much it delivered: newly acknowledged, and newly SACKed; nothing counts twice.
    pub acked_bytes: u32,
    /// How much was in flight before it came: sent, neither acknowledged, SACKed nor marked lost.
    pub in_flight_bytes: u32,
    /// How much was marked lost by it, also of what had been sent again.
    pub lost_bytes: u32,
    /// The oldest byte that is not acknowledged, after this ACK.
    pub snd_una: u32,
    /// The next byte that is sent for the first time.
    pub snd_nxt: u32,
    /// The round trip that it measures, where it measures one.
    pub rtt_ns: Option<u64>,
    /// The smoothed round trip; 0 where there is none.
    pub srtt_ns: u64,
    /// Whether the window limited the sender in the last round trip, not the application or the
    /// receiver's window: see [`Usage`].
    pub is_cwnd_limited: bool,
    /// Whether this is a fast recovery, or the round after an ECN mark: the window is PRR's. It is
    /// not after a timeout, when the window grows by slow start, and not after a mark if the
    /// algorithm is without PRR.
    pub in_recovery: bool,
    /// The delivery rate that it measures, where it measures one.
    pub delivery: Option<RateSample>,
}

/// Why congestion is assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A segment was lost, and that was found without a timeout.
    Loss,
    /// The peer reports a mark of ECN (RFC 3168 6.1.2).
    Ecn,
}

/// An algorithm of congestion control.
///
/// All its state is in the type itself, which is copied with its connection and allocates nothing.
/// Time is an argument; it never goes back.
pub trait Congestion {
    /// The algorithm's name, as Linux' `TCP_CONGESTION` has it.
    fn name(&self) -> &'static str;

    /// The connection begins, or goes on with this algorithm instead of another: the window is
    /// there. Nothing by default.
    fn on_start(&mut self, window: &mut Window, now_ns: u64) {
        let _ = (window, now_ns);
    }

    /// An ACK came that delivered something. Called after the loss detection has looked at it, and
    /// before anything is sent. Where [`is_by_prr`](Self::is_by_prr), what is set here while
    /// [`Ack::in_recovery`] is overwritten by PRR's window.
    fn on_ack(&mut self, window: &mut Window, ack: &Ack);

    /// Congestion: called once for each episode, at its start. Must set the threshold, and the
    /// window for those without PRR.
    ///
    /// `flight_bytes` is RFC 5681's FlightSize: all that is outstanding, also SACKed and lost. A
    /// mark while the window is one segment cannot reduce it further: then the connection sends
    /// only when its retransmission timer expires (RFC 3168 6.1.2).
    fn on_congestion(
        &mut self,
        window: &mut Window,
        signal: Signal,
        flight_bytes: u32,
        now_ns: u64,
    );

    /// The retransmission timer has expired: everything in flight is taken to be lost. Must set
    /// the window to [`loss_window`], and the threshold if `is_first`.
    ///
    /// `is_first`: it is not for data that was sent again after an earlier timeout or in a
    /// recovery already, so that this is a new episode (RFC 5681 3.1 equation 4).
    fn on_timeout(&mut self, window: &mut Window, is_first: bool, flight_bytes: u32, now_ns: u64);

    /// The episode is over: all is acknowledged that was outstanding at its start. `by_timeout`:
    /// it was one of a timeout.
    fn on_recovery_end(&mut self, window: &mut Window, by_timeout: bool, now_ns: u64);

    /// The last reduction was a mistake: everything had arrived (RFC 5682, 4015, 2883). The state
    /// from before it comes back.
    fn undo(&mut self, window: &mut Window, now_ns: u64);

    /// Something is going to be sent with nothing in flight, `idle_ns` after the last
    /// transmission. Called however short that is, from a millisecond on. `rto_ns`: the timeout,
    /// after which the window begins anew; [`u64::MAX`] where it does not.
    fn on_idle(&mut self, window: &mut Window, idle_ns: u64, rto_ns: u64, now_ns: u64);

    /// The rate to pace at in bytes a second; `None`: by the window and the round trip.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// Whether PRR has the window in a recovery.
    fn is_by_prr(&self) -> bool {
        true
    }

    /// Whether what is sent now is limited by the algorithm on purpose, so that samples of the
    /// delivery rate are marked as if the application limited them.
    fn is_self_limited(&self) -> bool {
        false
    }
}

/// One of the algorithms that come with this crate, chosen while running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// CUBIC with HyStart++: the default, as everywhere.
    Cubic(Cubic),
    /// NewReno.
    NewReno(NewReno),
    /// BBR version 1.
    Bbr(Bbr),
}

impl Default for Algorithm {
    fn default() -> Self {
        Self::Cubic(Cubic::default())
    }
}

impl Algorithm {
    /// The names that [`from_name`](Self::from_name) knows.
    pub const NAMES: [&'static str; 3] = ["cubic", "reno", "bbr"];

    /// The algorithm of that name, as Linux' `TCP_CONGESTION` has it.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "cubic" => Some(Self::Cubic(Cubic::default())),
            "reno" => Some(Self::NewReno(NewReno::default())),
            "bbr" => Some(Self::Bbr(Bbr::default())),
            _ => None,
        }
    }
}

/// Runs an expression on whichever algorithm it is.
macro_rules! each {
    ($algorithm:expr, $name:ident => $run:expr) => {
        match $algorithm {
            Algorithm::Cubic($name) => $run,
            Algorithm::NewReno($name) => $run,
            Algorithm::Bbr($name) => $run,
        }
    };
}

impl Congestion for Algorithm {
    fn name(&self) -> &'static str {
        each!(self, it => it.name())
    }

    fn on_start(&mut self, window: &mut Window, now_ns: u64) {
        each!(self, it => it.on_start(window, now_ns));
    }

    #[inline]
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        each!(self, it => it.on_ack(window, ack));
    }

    fn on_congestion(
        &mut self,
        window: &mut Window,
        signal: Signal,
        flight_bytes: u32,
        now_ns: u64,
    ) {
        each!(self, it => it.on_congestion(window, signal, flight_bytes, now_ns));
    }

    fn on_timeout(&mut self, window: &mut Window, is_first: bool, flight_bytes: u32, now_ns: u64) {
        each!(self, it => it.on_timeout(window, is_first, flight_bytes, now_ns));
    }

    fn on_recovery_end(&mut self, window: &mut Window, by_timeout: bool, now_ns: u64) {
        each!(self, it => it.on_recovery_end(window, by_timeout, now_ns));
    }

    fn undo(&mut self, window: &mut Window, now_ns: u64) {
        each!(self, it => it.undo(window, now_ns));
    }

    fn on_idle(&mut self, window: &mut Window, idle_ns: u64, rto_ns: u64, now_ns: u64) {
        each!(self, it => it.on_idle(window, idle_ns, rto_ns, now_ns));
    }

    fn pacing_rate(&self) -> Option<u64> {
        each!(self, it => it.pacing_rate())
    }

    fn is_by_prr(&self) -> bool {
        each!(self, it => it.is_by_prr())
    }

    fn is_self_limited(&self) -> bool {
        each!(self, it => it.is_self_limited())
    }
}

/// The congestion control of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller<A = Algorithm> {
    /// The window. In a recovery the connection sets its size to PRR's.
    pub window: Window,
    /// The algorithm.
    pub algorithm: A,
}

const _: () = assert!(size_of::<Controller>() <= 96);

impl<A: Congestion> Controller<A> {
    /// Of a new connection: see [`Window::new`].
    pub fn new(algorithm: A, mss: u16, is_paced: bool, now_ns: u64) -> Self {
        let window = Window::new(mss, is_paced);
        let mut controller = Self { window, algorithm };
        controller
            .algorithm
            .on_start(&mut controller.window, now_ns);
        controller
    }

    /// Goes on with another algorithm, as Linux' `TCP_CONGESTION` does on a connection that is
    /// open: the window stays. Not in an episode, whose end the other one would not know.
    pub fn set_algorithm(&mut self, algorithm: A, now_ns: u64) {
        self.algorithm = algorithm;
        self.algorithm.on_start(&mut self.window, now_ns);
    }

    /// See [`Congestion::on_ack`].
    #[inline]
    pub fn on_ack(&mut self, ack: &Ack) {
        self.algorithm.on_ack(&mut self.window, ack);
    }

    /// See [`Congestion::on_congestion`].
    pub fn on_congestion(&mut self, signal: Signal, flight_bytes: u32, now_ns: u64) {
        self.algorithm
            .on_congestion(&mut self.window, signal, flight_bytes, now_ns);
    }

    /// See [`Congestion::on_timeout`].
    pub fn on_timeout(&mut self, is_first: bool, flight_bytes: u32, now_ns: u64) {
        self.algorithm
            .on_timeout(&mut self.window, is_first, flight_bytes, now_ns);
    }

    /// See [`Congestion::on_recovery_end`].
    pub fn on_recovery_end(&mut self, by_timeout: bool, now_ns: u64) {
        self.algorithm
            .on_recovery_end(&mut self.window, by_timeout, now_ns);
    }

    /// See [`Congestion::undo`].
    pub fn undo(&mut self, now_ns: u64) {
        self.algorithm.undo(&mut self.window, now_ns);
    }

    /// See [`Congestion::on_idle`].
    pub fn on_idle(&mut self, idle_ns: u64, rto_ns: u64, now_ns: u64) {
        self.algorithm
            .on_idle(&mut self.window, idle_ns, rto_ns, now_ns);
    }
}

/// Times of algorithms are in ticks of 2^10 ns, about a microsecond, in 32 bits, which wrap after
/// 73 minutes. Only the time between two ACKs of a connection that is not idle is looked at.
#[inline(always)]
fn ticks(now_ns: u64) -> u32 {
    (now_ns >> 10) as u32
}

/// What a reduction on congestion leaves (RFC 5681 3.1, RFC 9438 4.6): `reduced` bytes, but two
/// segments, and one after a mark of ECN, which loses nothing.
fn reduce(window: &mut Window, signal: Signal, reduced: u32) {
    window.save();
    let least = 2 * window.mss();
    window.ssthresh_bytes = reduced.max(least);
    window.is_single = signal == Signal::Ecn && reduced < least;
    // A window that is smaller already stays.
    window.cwnd_bytes = window.target_bytes().min(window.cwnd_bytes);
}

/// What a timeout leaves (RFC 5681 3.1 equation 4): one segment, and a threshold of `reduced`.
fn time_out(window: &mut Window, is_first: bool, reduced: u32) {
    if is_first {
        window.save();
        window.ssthresh_bytes = reduced.max(2 * window.mss());
    }
    window.is_single = false;
    window.cwnd_bytes = window.mss();
}

/// The end of a recovery that PRR had (RFC 9937 6.4, RFC 6582 3.2 step 3): the window is what it
/// was reduced to. After a timeout slow start goes on where it is.
fn end_recovery(window: &mut Window, by_timeout: bool) {
    if !by_timeout && !window.is_first_slow_start() {
        window.cwnd_bytes = window.target_bytes();
    }
}
