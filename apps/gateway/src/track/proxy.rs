//! Connections that begin with a SYN cookie: the gateway answers the client in the server's place,
//! and from then on sequence numbers differ.
//!
//! ```text
//! client                     gateway                               server
//!   SYN c            ->      no flow is made
//!                    <-      SYN-ACK k, ack c+1, window 0           k: the cookie
//!   ACK c+1, k+1     ->      valid: a flow, proxied        ->       SYN c, as the client offered
//!                            established                   <-       SYN-ACK s, ack c+1
//!                    <-      ACK k+1, with the window;     ->       ACK c+1, s+1
//!   data ...         <->     server's numbers + (k - s)    <->      ... data
//! ```
//!
//! The window of 0 keeps the client from sending before the server has answered. If the SYN or its
//! answer is lost, the next segment of the client (a probe of the closed window) sends the SYN
//! again; a client that has nothing to say waits for its own keep-alive. The server's RST reaches
//! the client as one of its connection.
//!
//! **Options.** The client's segment size, window scale and SACK are in the cookie, and in the SYN
//! that the server gets, rounded down to a class. The client is told the configured segment size,
//! SACK if it permits it, and if it scales windows a shift of [`SCALE`]; the windows of the
//! server's segments are rescaled to that, those of the client's where the server does not scale.
//! Timestamps are not offered, so neither end sends them. SACK blocks of the client are shifted.

use linerate_stack::icmp;
use linerate_tables::flow::Direction;
use linerate_wire::tcp::{self, HEADER_LEN, flag};
use linerate_wire::{Headers, checksum, ipv4, ipv6, protocol};

use super::cookie::Offer;
use super::segment::{Kind, NO_SCALE, Segment};
use super::tcp::{OPEN, SHIFTED, Side, Tcp};
use super::{Reason, State, Verdict};

/// The shift of windows that clients are told.
pub const SCALE: u8 = 7;

/// In [`Tcp::noted`]: the client scales windows, and so does the server.
const CLIENT_SCALES: u8 = 1;
const SERVER_SCALES: u8 = 2;

/// Longest packet that is made, in bytes: an IPv6 header, a TCP header, its options.
pub const MAX_MADE_LEN: usize = ipv6::HEADER_LEN + HEADER_LEN + MAX_OPTIONS_LEN;

const MAX_OPTIONS_LEN: usize = 12;

/// A segment that the gateway makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment; 0 without [`flag::ACK`].
    pub ack: u32,
    /// Window, as it stands in the header.
    pub window: u16,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Of a SYN: maximum segment size.
    pub mss: u16,
    /// Of a SYN: window scale, or [`NO_SCALE`].
    pub scale: u8,
    /// Of a SYN: whether SACK is permitted.
    pub sack_permitted: bool,
}

/// Where a made segment goes, seen from the packet that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To its source.
    Back,
    /// To its destination.
    Onward,
}

impl Made {
    fn plain(flags: u8, seq: u32, ack: u32, window: u16) -> Self {
        Self {
            seq,
            ack,
            window,
            flags,
            mss: 0,
            scale: NO_SCALE,
            sack_permitted: false,
        }
    }

    /// The answer to a SYN, with this cookie.
    pub(super) fn cookie(syn: &Segment, cookie: u32, mss: u16) -> Self {
        Self {
            mss,
            scale: if syn.scale == NO_SCALE {
                NO_SCALE
            } else {
                SCALE
            },
            sack_permitted: syn.sack_permitted,
            ..Self::plain(flag::SYN | flag::ACK, cookie, syn.seq.wrapping_add(1), 0)
        }
    }

    /// Writes the packet into `out`, from its IP header on, with the addresses and ports of
    /// `packet` (from its IP header on), which caused it. Returns its length; `None` if it does
    /// not fit, or `packet` is no TCP packet.
    pub fn write(&self, way: Way, packet: &[u8], out: &mut [u8]) -> Option<usize> {
        let mut segment = [0; HEADER_LEN + MAX_OPTIONS_LEN];
        let mut put = |ports: (u16, u16)| {
            let header = tcp::header(ports.0, ports.1, self.seq, self.ack, self.flags);
            segment[..HEADER_LEN].copy_from_slice(&header);
            segment[14..16].copy_from_slice(&self.window.to_be_bytes());
            let len = HEADER_LEN + self.options(&mut segment[HEADER_LEN..]);
            segment[12] = (len as u8 / 4) << 4;
            len
        };
        let turned = |ports: (u16, u16)| match way {
            Way::Back => (ports.1, ports.0),
            Way::Onward => ports,
        };
        let ports_of = |bytes: &[u8]| {
            let tcp = tcp::Tcp::new_checked(bytes).ok()?;
            Some((tcp.src_port(), tcp.dst_port()))
        };
        if packet.first()? >> 4 == 4 {
            let ip = ipv4::Ipv4::new_checked(packet).ok()?;
            let len = put(turned(ports_of(ip.payload())?));
            let (src, dst) = match way {
                Way::Back => (ip.dst(), ip.src()),
                Way::Onward => (ip.src(), ip.dst()),
            };
            let segment = &mut segment[..len];
            let len = len as u16;
            let pseudo = checksum::pseudo_v4(src.octets(), dst.octets(), protocol::TCP, len);
            let header = ipv4::header(0, icmp::TTL, protocol::TCP, src, dst, len);
            finish(segment, pseudo, &header, out)
        } else {
            let ip = ipv6::Ipv6::new_checked(packet).ok()?;
            let upper = ip.upper_layer().ok()?;
            let ports = ports_of(packet.get(upper.offset..ip.total_len())?)?;
            let len = put(turned(ports));
            let (src, dst) = match way {
                Way::Back => (ip.dst(), ip.src()),
                Way::Onward => (ip.src(), ip.dst()),
            };
            let segment = &mut segment[..len];
            let pseudo = checksum::pseudo_v6(src.octets(), dst.octets(), protocol::TCP, len as u32);
            let header = ipv6::header(protocol::TCP, icmp::TTL, src, dst, len as u16);
            finish(segment, pseudo, &header, out)
        }
    }

    /// Writes the options; returns their length, a multiple of 4.
    fn options(&self, out: &mut [u8]) -> usize {
        if self.flags & flag::SYN == 0 {
            return 0;
        }
        let [high, low] = self.mss.to_be_bytes();
        out[..4].copy_from_slice(&[2, 4, high, low]);
        let mut len = 4;
        if self.sack_permitted {
            out[len..len + 4].copy_from_slice(&[1, 1, 4, 2]);
            len += 4;
        }
        if self.scale != NO_SCALE {
            out[len..len + 4].copy_from_slice(&[1, 3, 3, self.scale]);
            len += 4;
        }
        len
    }
}

/// Fills in the checksum, and puts header and segment together.
fn finish(segment: &mut [u8], pseudo: u16, header: &[u8], out: &mut [u8]) -> Option<usize> {
    if let Ok(mut tcp) = tcp::Tcp::new_checked(&mut *segment) {
        tcp.fill_checksum(pseudo);
    }
    let (front, rest) = out.split_at_mut_checked(header.len())?;
    front.copy_from_slice(header);
    rest.get_mut(..segment.len())?.copy_from_slice(segment);
    Some(header.len() + segment.len())
}

impl Tcp {
    /// A connection of which a valid cookie has come back, from a client whose SYN was `isn`.
    pub(super) fn with_cookie(ack: &Segment, isn: u32, offer: &Offer) -> Self {
        let (shift, scales) = match offer.scale {
            NO_SCALE => (0, 0),
            scale => (scale, CLIENT_SCALES),
        };
        let next = isn.wrapping_add(1);
        let client = Side {
            end: next,
            max_end: next,
            max_win: (u32::from(ack.window) << shift).max(1),
            max_ack: 0,
        };
        // Until the server is heard, its side keeps what its SYN will need.
        let server = Side {
            end: u32::from(offer.mss) | u32::from(offer.sack_permitted) << 16,
            max_ack: isn,
            ..Side::default()
        };
        Self {
            sides: [client, server],
            extra: ack.ack.wrapping_sub(1),
            scales: [offer.scale, NO_SCALE],
            flags: SHIFTED,
            noted: scales,
        }
    }

    /// The SYN to the server.
    pub(super) fn server_syn(&self) -> Made {
        let kept = self.sides[1].end;
        Made {
            mss: kept as u16,
            scale: self.scales[0],
            sack_permitted: kept >> 16 != 0,
            ..Made::plain(
                flag::SYN,
                self.sides[1].max_ack,
                0,
                clamped(self.sides[0].max_win),
            )
        }
    }

    /// A segment of a connection whose server has not answered.
    pub(super) fn proxied(&mut self, from: usize, segment: &Segment) -> Verdict {
        let (cookie, isn) = (self.extra, self.sides[1].max_ack);
        let (seen, next) = (cookie.wrapping_add(1), isn.wrapping_add(1));
        let answer = |state, back, onward| Verdict::Answer {
            state,
            back,
            onward,
        };
        match (from, segment.kind()) {
            (0, Kind::Syn) if segment.seq != isn => Verdict::Anew,
            (0, Kind::Reset) if segment.seq == next => {
                let reset = Made::plain(flag::RST, next, 0, 0);
                answer(State::Reset, None, Some(reset))
            }
            // From a keep-alive to what follows a probe.
            (0, Kind::Ack | Kind::Fin)
                if segment.ack == seen && segment.seq.wrapping_sub(isn) <= 2 =>
            {
                answer(State::Proxied, None, Some(self.server_syn()))
            }
            (1, Kind::SynAck) if segment.ack == next => self.joined(segment),
            (1, Kind::Reset) if segment.acks() && segment.ack == next => {
                let reset = Made::plain(flag::RST | flag::ACK, seen, next, 0);
                answer(State::Reset, None, Some(reset))
            }
            // RFC 9293 3.5.1: the server is in an old connection.
            (1, Kind::Ack) => {
                let reset = Made::plain(flag::RST, segment.ack, 0, 0);
                answer(State::Proxied, Some(reset), None)
            }
            (_, Kind::Reset) => Verdict::Drop(Reason::TcpReset),
            _ => Verdict::Drop(Reason::TcpHandshake),
        }
    }

    /// The server has answered: both ends may talk.
    fn joined(&mut self, syn_ack: &Segment) -> Verdict {
        let (cookie, isn) = (self.extra, self.sides[1].max_ack);
        let (seen, next) = (cookie.wrapping_add(1), isn.wrapping_add(1));
        let server_next = syn_ack.seq.wrapping_add(1);
        let client_window = self.sides[0].max_win;
        let window = u32::from(syn_ack.window);
        if self.noted & CLIENT_SCALES != 0 && syn_ack.scale != NO_SCALE {
            self.noted |= SERVER_SCALES;
            self.scales[1] = syn_ack.scale;
        } else {
            self.scales[1] = 0;
        }
        if self.scales[0] == NO_SCALE {
            self.scales[0] = 0;
        }
        self.sides[1] = Side {
            end: server_next,
            max_end: server_next.wrapping_add(client_window),
            max_win: window.max(1),
            max_ack: next,
        };
        self.sides[0].max_ack = server_next;
        self.sides[0].max_end = next.wrapping_add(window.max(1));
        self.extra = cookie.wrapping_sub(syn_ack.seq);
        self.flags = SHIFTED | OPEN;
        let to_server = self.window(Direction::Forward, client_window);
        let to_client = self.window(Direction::Reverse, window);
        Verdict::Answer {
            state: State::Established,
            back: Some(Made::plain(flag::ACK, next, server_next, to_server)),
            onward: Some(Made::plain(flag::ACK, seen, next, to_client)),
        }
    }

    /// A window of so many bytes, as the receiver in this direction reads it.
    fn window(&self, direction: Direction, bytes: u32) -> u16 {
        let shift = match direction {
            Direction::Forward if self.noted & SERVER_SCALES != 0 => self.scales[0],
            Direction::Reverse if self.noted & CLIENT_SCALES != 0 => SCALE,
            _ => 0,
        };
        clamped(bytes >> shift)
    }

    /// Changes the numbers of a segment that passes, where [`Tcp::is_shifted`]: those of the
    /// server for the client, and back. `segment` is from the TCP header to the end of the packet;
    /// its checksum `is_partial` where only the pseudo header is summed so far.
    pub fn shift(&self, direction: Direction, segment: &mut [u8], is_partial: bool) {
        let Some(header_len) = segment.get(12).map(|byte| usize::from(byte >> 4) * 4) else {
            return;
        };
        if segment.len() < header_len || header_len < HEADER_LEN {
            return;
        }
        let sum = (!is_partial).then_some(16);
        let flags = segment[13];
        let scale = self.scales[direction as usize];
        match direction {
            Direction::Reverse => change(segment, sum, 4, self.extra),
            Direction::Forward if flags & flag::ACK != 0 => {
                let back = self.extra.wrapping_neg();
                change(segment, sum, 8, back);
                for at in sack_edges(&segment[..header_len]).into_iter().flatten() {
                    change(segment, sum, at, back);
                }
            }
            Direction::Forward => {}
        }
        if flags & flag::SYN == 0 {
            let old = u16::from_be_bytes([segment[14], segment[15]]);
            let window = self.window(direction, u32::from(old) << (scale & 15));
            replace(segment, sum, 14, &window.to_be_bytes());
        }
    }

    /// Changes the quoted sequence number of an ICMP error that passes, where
    /// [`Tcp::is_shifted`]; `direction` is the error's, `headers` are its own, `quoted` those of
    /// [`Quote`](super::Quote).
    pub fn shift_quote(
        &self,
        direction: Direction,
        frame: &mut [u8],
        headers: &Headers,
        quoted: &Headers,
    ) {
        let (Some(l4), Some(quoted_l4)) = (headers.l4, quoted.l4) else {
            return;
        };
        // Only what the server has sent has other numbers at the client.
        let seq = quoted_l4.checked_sub(l4).map(|at| at + 4);
        let message = frame.get_mut(l4..headers.end);
        if let (Direction::Forward, Some(seq), Some(message)) = (direction, seq, message)
            && message.len() >= seq + 4
        {
            change(message, Some(2), seq, self.extra.wrapping_neg());
        }
    }
}

/// A window as a header has it.
fn clamped(window: u32) -> u16 {
    window.min(0xffff) as u16
}

/// Adds to the number at `at` of a message whose checksum is at `sum`, if it has one.
fn change(message: &mut [u8], sum: Option<usize>, at: usize, difference: u32) {
    let number = &message[at..at + 4];
    let number = u32::from_be_bytes([number[0], number[1], number[2], number[3]]);
    let new = number.wrapping_add(difference).to_be_bytes();
    replace(message, sum, at, &new);
}

/// Replaces bytes, which may begin at an odd place, and updates the checksum (RFC 1624).
fn replace(message: &mut [u8], sum: Option<usize>, at: usize, new: &[u8]) {
    let start = at & !1;
    let len = (at + new.len() - start).next_multiple_of(2);
    let mut old = [0; 6];
    old[..len].copy_from_slice(&message[start..start + len]);
    message[at..at + new.len()].copy_from_slice(new);
    let Some(sum) = sum else { return };
    let before = u16::from_be_bytes([message[sum], message[sum + 1]]);
    let after = checksum::update(before, &old[..len], &message[start..start + len]);
    message[sum..sum + 2].copy_from_slice(&after.to_be_bytes());
}

/// Where the edges of SACK blocks are in a header: at most four blocks fit.
fn sack_edges(header: &[u8]) -> [Option<usize>; 8] {
    let mut edges = [None; 8];
    let mut at = HEADER_LEN;
    while let Some(&kind) = header.get(at) {
        let len = match (kind, header.get(at + 1)) {
            (0, _) => break,
            (1, _) => 1,
            (_, Some(&len)) if len >= 2 && at + usize::from(len) <= header.len() => len.into(),
            _ => break,
        };
        if kind == 5 && matches!(len, 10 | 18 | 26 | 34) {
            for (edge, place) in edges.iter_mut().zip((at + 2..at + len).step_by(4)) {
                *edge = Some(place);
            }
            break;
        }
        at += len;
    }
    edges
}
