//! Which window to advertise: never a silly one, never less than was promised.

use super::seq;

/// The receive window of one connection as its peer knows it. All sizes are bytes.
///
/// The caller says how much its buffer takes in all (`buffer`, RCV.BUFF) and how much of that is
/// free (`free`, RCV.BUFF - RCV.USER): bytes out of order lie inside the window, and are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The highest sequence number that the peer was told not to reach: RCV.NXT + RCV.WND.
    edge: u32,
    /// Shift of the header's field (RFC 7323 2.2).
    scale: u8,
}

impl Window {
    /// Largest shift (RFC 7323 2.3).
    pub const MAX_SCALE: u8 = 14;

    /// Nothing is promised yet. `next` is RCV.NXT; `scale` is the shift of our window scale option,
    /// or 0 unless both sides sent one. A larger shift than [`MAX_SCALE`](Self::MAX_SCALE) is that
    /// (RFC 7323 2.3).
    pub fn new(next: u32, scale: u8) -> Self {
        Self {
            edge: next,
            scale: scale.min(Self::MAX_SCALE),
        }
    }

    /// The shift with which the largest window field says `max_buffer`.
    pub fn scale_for(max_buffer: u32) -> u8 {
        let scale = max_buffer.checked_ilog2().unwrap_or(0).saturating_sub(15);
        (scale as u8).min(Self::MAX_SCALE)
    }

    /// The right edge: sequence number behind the window.
    #[inline]
    pub fn edge(&self) -> u32 {
        self.edge
    }

    /// The shift.
    #[inline]
    pub fn scale(&self) -> u8 {
        self.scale
    }

    /// RCV.WND: bytes from `next` to the edge.
    #[inline]
    pub fn bytes(&self, next: u32) -> u32 {
        seq::diff(self.edge, next).max(0) as u32
    }

    /// The window field of the next segment; the edge moves to what it says. `mss` is the largest
    /// payload that the peer sends.
    ///
    /// The edge stays until it can move by a segment or by half the buffer (RFC 9293 3.8.6.2.2), so
    /// that the peer has no reason to send small segments. It never moves back (3.8.6): where the
    /// buffer has shrunk, or where the scale cannot say exactly what was promised, the field is
    /// rounded up (RFC 7323 2.4). So it may promise up to 2^scale - 1 bytes more than are free.
    pub fn offer(&mut self, next: u32, free: u32, buffer: u32, mss: u32) -> u16 {
        let now = self.bytes(next);
        let window = now + self.growth(next, free, buffer, mss);
        let field = window.div_ceil(1 << self.scale).min(u16::MAX.into());
        self.edge = next.wrapping_add(now.max(field << self.scale));
        field as u16
    }

    /// By how many bytes the edge can move: 0, or more than a silly window.
    fn growth(&self, next: u32, free: u32, buffer: u32, mss: u32) -> u32 {
        let step = 1u32 << self.scale;
        let least = (buffer / 2).min(mss).max(1);
        let whole = match free & !(step - 1) {
            // Rounded down it would stay closed for ever where the whole buffer is less than that.
            0 if free >= least => step,
            whole => whole.min(u32::from(u16::MAX) << self.scale),
        };
        let growth = whole.saturating_sub(self.bytes(next));
        if growth >= least { growth } else { 0 }
    }

    /// The window field of a SYN or SYN-ACK, which is not scaled (RFC 7323 2.2).
    pub fn offer_syn(&mut self, next: u32, free: u32) -> u16 {
        let field = free.min(u16::MAX.into());
        let now = self.bytes(next);
        self.edge = next.wrapping_add(now.max(field));
        field as u16
    }

    /// Whether the application has read so much that the peer should be told without waiting for
    /// a segment: the window is half the buffer at most, and can be twice what it is, but never a
    /// silly one. So Linux does, since RFC 9293 3.8.6.2.2 says how far the edge moves and not when
    /// the peer is told: one that has more than half goes on, and the ACKs of what it sends have
    /// the window. A window of zero is opened by a segment at once (3.8.6.1).
    #[inline]
    pub fn is_update_due(&self, next: u32, free: u32, buffer: u32, mss: u32) -> bool {
        let now = self.bytes(next);
        if now > buffer / 2 {
            return false;
        }
        let growth = self.growth(next, free, buffer, mss);
        growth > 0 && growth >= now
    }
}
