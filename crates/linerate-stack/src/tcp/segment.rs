//! Segments: what a received header says, and how one is written.
//!
//! A [`Segment`] is a header taken apart once: plain numbers, the options that matter as values,
//! and where the payload lies. A [`Header`] is what is to be written; its length is known before,
//! so that the payload is copied to its place at once.

use linerate_wire::checksum;
use linerate_wire::tcp::{self, Tcp, TcpOption, flag};

use super::fast_open::FastOpen;

/// Most SACK blocks of a header (RFC 2018 3: 40 bytes of options have room for four).
pub const SACKS: usize = 4;

/// Longest header in bytes, options included.
pub const MAX_HEADER_LEN: usize = 60;

/// Bytes of the time stamps option with its padding (RFC 7323 appendix A).
pub const TIMESTAMPS_LEN: usize = 12;

/// Blocks of SACK: left edge and right edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sacks {
    blocks: [(u32, u32); SACKS],
    len: u8,
}

impl Sacks {
    /// None.
    pub const NONE: Self = Self {
        blocks: [(0, 0); SACKS],
        len: 0,
    };

    /// Adds a block; one too many is left out.
    #[inline]
    pub fn push(&mut self, block: (u32, u32)) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.len)) {
            *place = block;
            self.len += 1;
        }
    }

    /// The blocks, in their order.
    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.len).min(SACKS)]
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What only a SYN says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynOptions {
    /// The longest segment that the sender takes, in bytes (RFC 9293 3.7.1).
    pub mss: Option<u16>,
    /// How far its windows are shifted (RFC 7323 2.3: at most 14).
    pub window_scale: Option<u8>,
    /// Whether it takes SACK (RFC 2018 2).
    pub sack_permitted: bool,
    /// Fast Open (RFC 7413 4.1.1): a cookie, or an empty one that asks for one.
    pub fast_open: Option<FastOpen>,
}

/// A received segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment {
    /// Sequence number of the first byte, or of the SYN.
    pub seq: u32,
    /// Acknowledgment number, valid with the flag ACK.
    pub ack: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Window as it stands in the header.
    pub window: u16,
    /// Bytes of payload.
    pub len: u32,
    /// Where the payload begins, in bytes from the start of the header.
    pub header_len: u8,
    /// The sender's clock and the one that it echoes (RFC 7323 3.2).
    pub timestamps: Option<(u32, u32)>,
    /// Blocks of SACK.
    pub sacks: Sacks,
    /// The urgent pointer, which means something with the flag URG.
    pub urgent: u16,
    /// Whether the network has marked it as having met congestion (RFC 3168 5).
    pub is_ce: bool,
}

impl Segment {
    /// Reads a segment; `bytes` end where the IP packet does. `None` where its header does not lie
    /// within them.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let tcp = Tcp::new_checked(bytes).ok()?;
        let header_len = tcp.header_len();
        let mut segment = Self {
            seq: tcp.seq(),
            ack: tcp.ack(),
            flags: tcp.flags(),
            window: tcp.window(),
            urgent: u16::from_be_bytes([bytes[18], bytes[19]]),
            len: (bytes.len() - header_len) as u32,
            header_len: header_len as u8,
            ..Self::default()
        };
        let options = tcp.options();
        match options.first_chunk::<TIMESTAMPS_LEN>() {
            // RFC 7323 appendix A: what nearly every segment has, and nothing else.
            Some(&[1, 1, 8, 10, a, b, c, d, e, f, g, h]) if options.len() == TIMESTAMPS_LEN => {
                let value = u32::from_be_bytes([a, b, c, d]);
                segment.timestamps = Some((value, u32::from_be_bytes([e, f, g, h])));
            }
            None if options.is_empty() => {}
            _ => match UsualSyn::read(options) {
                Some(usual) => segment.timestamps = Some(usual.timestamps),
                None => segment.read_options(options),
            },
        }
        Some(segment)
    }

    /// The same of one with no option but time stamps, written as nearly all write them; `tos` is
    /// its IP header's. `None` where it is not.
    #[inline(always)]
    pub fn read_usual(bytes: &[u8], tos: u8) -> Option<Self> {
        let header = bytes.first_chunk::<{ Usual::LEN }>()?;
        let word = |at: usize| {
            let [a, b, c, d] = *header[4 * at..].first_chunk().unwrap_or(&[0; 4]);
            u32::from_be_bytes([a, b, c, d])
        };
        // The data offset, and RFC 7323 appendix A.
        if header[12] >> 4 != Usual::LEN as u8 / 4 || word(5) != 0x0101_080a {
            return None;
        }
        Some(Self {
            seq: word(1),
            ack: word(2),
            flags: header[13],
            window: word(3) as u16,
            urgent: word(4) as u16,
            len: (bytes.len() - Usual::LEN) as u32,
            header_len: Usual::LEN as u8,
            timestamps: Some((word(6), word(7))),
            sacks: Sacks::NONE,
            is_ce: tos & 3 == 3,
        })
    }

    fn read_options(&mut self, bytes: &[u8]) {
        for option in tcp::options(bytes) {
            match option {
                TcpOption::Timestamps(value, echo) => self.timestamps = Some((value, echo)),
                TcpOption::Sack(blocks) => {
                    self.sacks = Sacks::NONE;
                    for block in blocks.as_chunks::<8>().0 {
                        let [a, b, c, d, e, f, g, h] = *block;
                        let left = u32::from_be_bytes([a, b, c, d]);
                        self.sacks.push((left, u32::from_be_bytes([e, f, g, h])));
                    }
                }
                _ => {}
            }
        }
    }

    /// What the options of a SYN say, which are those of the same bytes.
    pub fn syn_options(bytes: &[u8]) -> SynOptions {
        let mut found = SynOptions::default();
        let Ok(tcp) = Tcp::new_checked(bytes) else {
            return found;
        };
        if let Some(usual) = UsualSyn::read(tcp.options()) {
            return usual.options;
        }
        for option in tcp::options(tcp.options()) {
            match option {
                TcpOption::MaxSegment(mss) => found.mss = Some(mss),
                // RFC 7323 2.3: a shift above 14 counts as 14.
                TcpOption::WindowScale(shift) => found.window_scale = Some(shift.min(14)),
                TcpOption::SackPermitted => found.sack_permitted = true,
                _ => {}
            }
        }
        found.fast_open = FastOpen::find(tcp::options(tcp.options()));
        found
    }

    /// Whether a flag of these is set.
    #[inline(always)]
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Sequence numbers that it takes: payload, SYN and FIN (RFC 9293 3.4).
    #[inline(always)]
    pub fn seq_len(&self) -> u32 {
        let controls = (self.flags & flag::SYN != 0) as u32 + (self.flags & flag::FIN != 0) as u32;
        self.len.wrapping_add(controls)
    }

    /// The sequence number behind it.
    #[inline(always)]
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.seq_len())
    }
}

/// What the options of most SYNs say: MSS, SACK-permitted, time stamps and window scale, in the
/// order in which Linux and [`Header::write`] have them.
pub struct UsualSyn {
    /// The sender's clock, and 0.
    pub timestamps: (u32, u32),
    /// The others; all but Fast Open's are there.
    pub options: SynOptions,
}

impl UsualSyn {
    /// Length of the header in bytes.
    pub const LEN: usize = tcp::HEADER_LEN + 20;

    /// The sequence number and the options of a segment that is a SYN, nothing else, with these.
    #[inline(always)]
    pub fn of(bytes: &[u8]) -> Option<(u32, Self)> {
        let header = bytes.as_array::<{ Self::LEN }>()?;
        let (base, options) = header.split_first_chunk::<{ tcp::HEADER_LEN }>()?;
        if base[12..14] != [(Self::LEN as u8 / 4) << 4, flag::SYN] {
            return None;
        }
        let seq = u32::from_be_bytes([base[4], base[5], base[6], base[7]]);
        Some((seq, Self::read(options)?))
    }

    /// The words of a header with such options, its checksum 0; `ports` are the source's and the
    /// destination's, `shift` the window's scale.
    #[inline(always)]
    pub fn words(header: &Usual, ports: (u16, u16), mss: u16, shift: u8) -> [u32; Self::LEN / 4] {
        [
            u32::from(ports.0) << 16 | u32::from(ports.1),
            header.seq,
            header.ack,
            10 << 28 | u32::from(header.flags) << 16 | u32::from(header.window),
            0,
            0x0204_0000 | u32::from(mss),
            0x0402_080a,
            header.timestamps.0,
            header.timestamps.1,
            0x0103_0300 | u32::from(shift),
        ]
    }

    #[inline]
    fn read(options: &[u8]) -> Option<Self> {
        let options = options.as_array::<20>()?;
        let [2, 4, a, b, 4, 2, 8, 10, stamps @ .., 1, 3, 3, shift] = *options else {
            return None;
        };
        let [c, d, e, f, g, h, i, j] = stamps;
        Some(Self {
            timestamps: (
                u32::from_be_bytes([c, d, e, f]),
                u32::from_be_bytes([g, h, i, j]),
            ),
            options: SynOptions {
                mss: Some(u16::from_be_bytes([a, b])),
                // RFC 7323 2.3: a shift above 14 counts as 14.
                window_scale: Some(shift.min(14)),
                sack_permitted: true,
                fast_open: None,
            },
        })
    }
}

/// A header to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Window as it stands in the header.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// Time stamps.
    pub timestamps: Option<(u32, u32)>,
    /// Blocks of SACK; those that do not fit are left out.
    pub sacks: Sacks,
    /// What only a SYN says.
    pub syn: Option<SynOptions>,
}

impl Header {
    /// Length in bytes, options and their padding included: at most [`MAX_HEADER_LEN`].
    #[inline]
    pub fn len(&self) -> usize {
        let mut len = tcp::HEADER_LEN;
        if self.timestamps.is_some() {
            len += TIMESTAMPS_LEN;
        }
        if let Some(syn) = &self.syn {
            len += self.syn_len(syn);
        }
        if !self.sacks.is_empty() {
            len += 4 + 8 * self.sacks_that_fit(len);
        }
        len
    }

    /// Whether it has no bytes: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    fn sacks_that_fit(&self, taken: usize) -> usize {
        let room = MAX_HEADER_LEN.saturating_sub(taken + 4) / 8;
        self.sacks.as_slice().len().min(room)
    }

    fn syn_len(&self, syn: &SynOptions) -> usize {
        let mut len = if syn.mss.is_some() { 4 } else { 0 };
        len += if syn.window_scale.is_some() { 4 } else { 0 };
        // Beside time stamps it lies where their padding would be.
        let is_alone = syn.sack_permitted && self.timestamps.is_none();
        len += if is_alone { 4 } else { 0 };
        len += syn
            .fast_open
            .map_or(0, |option| option.len().next_multiple_of(4));
        len
    }

    /// Writes the header at the start of `out`, its checksum 0. Returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`len`](Self::len).
    #[inline]
    pub fn write(&self, src_port: u16, dst_port: u16, out: &mut [u8]) -> usize {
        let mut base = tcp::header(src_port, dst_port, self.seq, self.ack, self.flags);
        base[14..16].copy_from_slice(&self.window.to_be_bytes());
        base[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        out[..tcp::HEADER_LEN].copy_from_slice(&base);
        let mut at = tcp::HEADER_LEN;
        if let Some(mss) = self.syn.and_then(|syn| syn.mss) {
            let [high, low] = mss.to_be_bytes();
            out[at..at + 4].copy_from_slice(&[2, 4, high, low]);
            at += 4;
        }
        let may_sack = self.syn.is_some_and(|syn| syn.sack_permitted);
        if let Some((value, echo)) = self.timestamps {
            let option = &mut out[at..at + TIMESTAMPS_LEN];
            // In a SYN, SACK-permitted takes the place of the padding: four bytes less.
            let first = if may_sack { [4, 2] } else { [1, 1] };
            option[..2].copy_from_slice(&first);
            option[2..4].copy_from_slice(&[8, 10]);
            option[4..8].copy_from_slice(&value.to_be_bytes());
            option[8..].copy_from_slice(&echo.to_be_bytes());
            at += TIMESTAMPS_LEN;
        } else if may_sack {
            out[at..at + 4].copy_from_slice(&[1, 1, 4, 2]);
            at += 4;
        }
        if let Some(syn) = &self.syn {
            at = write_rest_of_syn(syn, out, at);
        }
        if !self.sacks.is_empty() {
            let count = self.sacks_that_fit(at);
            out[at..at + 4].copy_from_slice(&[1, 1, 5, 2 + 8 * count as u8]);
            at += 4;
            for (left, right) in &self.sacks.as_slice()[..count] {
                out[at..at + 4].copy_from_slice(&left.to_be_bytes());
                out[at + 4..at + 8].copy_from_slice(&right.to_be_bytes());
                at += 8;
            }
        }
        out[12] = (at as u8 / 4) << 4;
        at
    }
}

/// The header of nearly all segments: time stamps are its only option.
#[derive(Clone, Copy, Debug)]
pub struct Usual {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Window as it stands in the header.
    pub window: u16,
    /// Time stamps.
    pub timestamps: (u32, u32),
}

impl Usual {
    /// Length in bytes.
    pub const LEN: usize = tcp::HEADER_LEN + TIMESTAMPS_LEN;

    /// The words of the header, its checksum 0.
    #[inline(always)]
    pub fn words(&self, src_port: u16, dst_port: u16) -> [u32; Self::LEN / 4] {
        // 32 bytes are eight words; the checksum's place and the urgent pointer are 0.
        [
            u32::from(src_port) << 16 | u32::from(dst_port),
            self.seq,
            self.ack,
            8 << 28 | u32::from(self.flags) << 16 | u32::from(self.window),
            0,
            // RFC 7323 appendix A.
            0x0101_080a,
            self.timestamps.0,
            self.timestamps.1,
        ]
    }
}

impl From<Usual> for Header {
    fn from(usual: Usual) -> Self {
        Self {
            seq: usual.seq,
            ack: usual.ack,
            flags: usual.flags,
            window: usual.window,
            urgent: 0,
            timestamps: Some(usual.timestamps),
            sacks: Sacks::NONE,
            syn: None,
        }
    }
}

impl Header {
    /// As [`write`](Self::write), and returns the sum of the header's words, for the checksum:
    /// [`fold`](linerate_wire::checksum::fold) makes it one of 16 bits.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[inline]
    pub fn write_summed(&self, src_port: u16, dst_port: u16, out: &mut [u8]) -> u64 {
        if let Some(sum) = self.write_usual_syn(src_port, dst_port, out) {
            return sum;
        }
        let is_common = self.syn.is_none() && self.sacks.is_empty() && self.urgent == 0;
        let room = out.first_chunk_mut::<{ tcp::HEADER_LEN + TIMESTAMPS_LEN }>();
        let (Some((value, echo)), Some(room), true) = (self.timestamps, room, is_common) else {
            let len = self.write(src_port, dst_port, out);
            return checksum::sum(&out[..len]).into();
        };
        let usual = Usual {
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            timestamps: (value, echo),
        };
        let words = usual.words(src_port, dst_port);
        write_words(words, room)
    }

    /// The same of a SYN whose options are the [usual](UsualSyn) ones; `None` where they are not.
    #[inline]
    fn write_usual_syn(&self, src_port: u16, dst_port: u16, out: &mut [u8]) -> Option<u64> {
        let (Some(syn), Some((value, echo))) = (&self.syn, self.timestamps) else {
            return None;
        };
        let (Some(mss), Some(shift)) = (syn.mss, syn.window_scale) else {
            return None;
        };
        let is_plain = self.sacks.is_empty() && self.urgent == 0;
        if !syn.sack_permitted || syn.fast_open.is_some() || !is_plain {
            return None;
        }
        let usual = Usual {
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            timestamps: (value, echo),
        };
        let words = UsualSyn::words(&usual, (src_port, dst_port), mss, shift);
        let room = out.first_chunk_mut::<{ UsualSyn::LEN }>()?;
        Some(write_words(words, room))
    }
}

/// Stores words in network order, and adds them up.
#[inline(always)]
fn write_words<const N: usize, const L: usize>(words: [u32; N], out: &mut [u8; L]) -> u64 {
    for (place, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
    words.iter().map(|&word| u64::from(word)).sum()
}

fn write_rest_of_syn(syn: &SynOptions, out: &mut [u8], mut at: usize) -> usize {
    if let Some(shift) = syn.window_scale {
        out[at..at + 4].copy_from_slice(&[1, 3, 3, shift]);
        at += 4;
    }
    if let Some(option) = syn.fast_open {
        let end = at + option.len().next_multiple_of(4);
        out[at..end].fill(1);
        option.write(&mut out[at..end]);
        at = end;
    }
    at
}

impl Sacks {
    /// Puts the blocks in the order of their left edges, and gives them.
    pub fn sort(&mut self) -> &[(u32, u32)] {
        let len = usize::from(self.len).min(SACKS);
        let blocks = &mut self.blocks[..len];
        // At most four.
        for at in 1..blocks.len() {
            let mut place = at;
            while place > 0 && super::seq::lt(blocks[place].0, blocks[place - 1].0) {
                blocks.swap(place, place - 1);
                place -= 1;
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_is_the_same_with_its_sum(
            (seq, ack) in any::<(u32, u32)>(),
            (flags, window, urgent) in any::<(u8, u16, u16)>(),
            timestamps in any::<Option<(u32, u32)>>(),
            blocks in prop::collection::vec(any::<(u32, u32)>(), 0..4),
            mss in any::<Option<u16>>(),
            (window_scale, sack_permitted) in (prop::option::of(0_u8..15), any::<bool>()),
        ) {
            let mut sacks = Sacks::NONE;
            blocks.iter().for_each(|&block| sacks.push(block));
            if mss.is_some() {
                sacks = Sacks::NONE;
            }
            let syn = mss.map(|mss| SynOptions {
                mss: Some(mss),
                window_scale,
                sack_permitted,
                fast_open: None,
            });
            let header = Header { seq, ack, flags, window, urgent, timestamps, sacks, syn };
            let (mut one, mut other) = ([0xee; 80], [0xee; 80]);
            let len = header.write(1000, 80, &mut one);
            let sum = header.write_summed(1000, 80, &mut other);
            prop_assert_eq!(one, other);
            prop_assert_eq!(checksum::fold(sum), checksum::sum(&one[..len]));
            // What was written is read.
            let read = Segment::read(&one[..len]);
            prop_assert_eq!(read.and_then(|segment| segment.timestamps), timestamps);
            if let Some(syn) = syn {
                prop_assert_eq!(Segment::syn_options(&one[..len]), syn);
            }
        }
    }
}
