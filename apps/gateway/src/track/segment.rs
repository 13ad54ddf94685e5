//! What tracking reads of a TCP segment, once.

use linerate_wire::tcp::{HEADER_LEN, TcpOption, flag, options};

use super::Reason;

/// The largest shift of a window (RFC 7323 2.3).
pub(super) const MAX_SCALE: u8 = 14;

/// Stands for a SYN without a window scale option.
pub const NO_SCALE: u8 = 15;

/// A segment, as its header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Its first sequence number.
    pub seq: u32,
    /// How many it has: payload, SYN, FIN (RFC 9293 3.4).
    pub len: u32,
    /// What it acknowledges.
    pub ack: u32,
    /// The highest sequence number that it says has arrived: `ack`, or the end of a SACK block.
    pub sack: u32,
    /// Window, unscaled.
    pub window: u16,
    /// The flags: bits of [`flag`].
    pub flags: u8,
    /// Of a SYN: window scale, 14 at most, or [`NO_SCALE`].
    pub scale: u8,
    /// Of a SYN: maximum segment size; 0 where it says none.
    pub mss: u16,
    /// Of a SYN: whether SACK is permitted.
    pub sack_permitted: bool,
}

/// What a segment is, by its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Syn,
    SynAck,
    Ack,
    Fin,
    Reset,
    Invalid,
}

/// What options say: by value, so that a segment without any stays in registers.
struct Options {
    sack: u32,
    mss: u16,
    scale: u8,
    sack_permitted: bool,
}

impl Options {
    #[inline(always)]
    fn none(ack: u32) -> Self {
        Self {
            sack: ack,
            mss: 0,
            scale: NO_SCALE,
            sack_permitted: false,
        }
    }

    #[inline(never)]
    fn read(flags: u8, ack: u32, bytes: &[u8]) -> Self {
        let is_syn = flags & flag::SYN != 0;
        let mut read = Self::none(ack);
        for option in options(bytes) {
            match option {
                TcpOption::WindowScale(scale) if is_syn => read.scale = scale.min(MAX_SCALE),
                TcpOption::MaxSegment(mss) if is_syn => read.mss = mss,
                TcpOption::SackPermitted if is_syn => read.sack_permitted = true,
                TcpOption::Sack(blocks) => {
                    for block in blocks.chunks_exact(8) {
                        let right = u32::from_be_bytes([block[4], block[5], block[6], block[7]]);
                        read.sack = later(right, read.sack);
                    }
                }
                _ => {}
            }
        }
        read
    }
}

impl Segment {
    /// Reads the segment that `bytes` are, from the TCP header to the end of the IP packet.
    ///
    /// # Errors
    /// [`Reason::TcpHeader`].
    #[inline(always)]
    pub fn read(bytes: &[u8]) -> Result<Self, Reason> {
        let header = bytes.first_chunk::<HEADER_LEN>();
        let header = header.ok_or(Reason::TcpHeader)?;
        let header_len = usize::from(header[12] >> 4) * 4;
        let Some(payload) = bytes.get(header_len..).filter(|_| header_len >= HEADER_LEN) else {
            return Err(Reason::TcpHeader);
        };
        let be32 = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let flags = header[13];
        let controls = u32::from(flags & flag::SYN != 0) + u32::from(flags & flag::FIN != 0);
        let ack = be32(8);
        let bytes = &bytes[HEADER_LEN..header_len];
        // RFC 7323 appendix A: timestamps alone, which is what most segments have.
        let options = match bytes.is_empty() || bytes.len() == 12 && bytes[..4] == [1, 1, 8, 10] {
            true => Options::none(ack),
            false => Options::read(flags, ack, bytes),
        };
        Ok(Self {
            seq: be32(4),
            len: (payload.len() as u32).wrapping_add(controls),
            ack,
            sack: options.sack,
            window: u16::from_be_bytes([header[14], header[15]]),
            flags,
            scale: options.scale,
            mss: options.mss,
            sack_permitted: options.sack_permitted,
        })
    }

    /// The sequence number behind its last.
    #[inline(always)]
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len)
    }

    /// Whether of SYN, FIN, RST and ACK only the last is set.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.flags & (flag::SYN | flag::FIN | flag::RST | flag::ACK) == flag::ACK
    }

    /// Whether it is a SYN, and no answer to one.
    pub fn is_syn(&self) -> bool {
        self.kind() == Kind::Syn
    }

    /// What it is. RFC 9293 3.10.7.4: all but SYN and RST acknowledge, and no TCP sets two of SYN,
    /// FIN and RST.
    pub(super) fn kind(&self) -> Kind {
        let acks = self.flags & flag::ACK != 0;
        match self.flags & (flag::SYN | flag::FIN | flag::RST) {
            flag::SYN if acks => Kind::SynAck,
            flag::SYN => Kind::Syn,
            flag::RST => Kind::Reset,
            flag::FIN if acks => Kind::Fin,
            0 if acks => Kind::Ack,
            _ => Kind::Invalid,
        }
    }

    /// Whether it acknowledges something.
    pub(super) fn acks(&self) -> bool {
        self.flags & flag::ACK != 0
    }
}

/// Whether a sequence number is higher than another (RFC 9293 3.4).
#[inline(always)]
pub(super) fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// The higher of two sequence numbers.
#[inline(always)]
pub(super) fn later(a: u32, b: u32) -> u32 {
    if is_after(a, b) { a } else { b }
}
