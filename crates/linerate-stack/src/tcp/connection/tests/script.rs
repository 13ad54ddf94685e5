//! One connection and a peer by hand: segments go in, and what comes out is looked at. Sequence
//! numbers of both sides count from the first byte of data, which is 0; the SYN is before it.

use linerate_wire::tcp::flag;

use super::link::{End, MS, S};
use crate::tcp::config::Config;
use crate::tcp::connection::{Connection, Ecn, Error, Info, State};
use crate::tcp::segment::{Header, Sacks, Segment, SynOptions};

/// Payload of a full segment in both directions.
pub(super) const MSS: u32 = 1000;
pub(super) const SYN: u8 = flag::SYN;
pub(super) const ACK: u8 = flag::ACK;
pub(super) const FIN: u8 = flag::FIN;
pub(super) const RST: u8 = flag::RST;
pub(super) const ECE: u8 = flag::ECE;
pub(super) const CWR: u8 = flag::CWR;

/// Both close to where numbers wrap.
const ISS: u32 = 0xffff_ff00;
const IRS: u32 = 0xffff_f800;

/// A segment that the connection has sent.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) at_ns: u64,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) len: u32,
    pub(super) segment: Segment,
    pub(super) ecn: Ecn,
    pub(super) syn: SynOptions,
}

impl Seen {
    pub(super) fn has(&self, flags: u8) -> bool {
        self.segment.flags & flags == flags
    }

    /// SACK blocks, counted as the peer's bytes.
    pub(super) fn sacks(&self) -> Vec<(u32, u32)> {
        let rel = |seq: u32| seq.wrapping_sub(IRS + 1);
        let blocks = self.segment.sacks.as_slice().iter();
        blocks
            .map(|&(left, right)| (rel(left), rel(right)))
            .collect()
    }
}

pub(super) struct Script {
    pub(super) end: End,
    pub(super) now_ns: u64,
    /// The window field of what the peer sends.
    pub(super) window: u16,
    /// What the peer acknowledges with data.
    pub(super) acked: u32,
    /// Bytes of the peer that have come, for ACKs.
    pub(super) seq: u32,
    /// Time stamps of what the peer sends.
    pub(super) stamps: Option<(u32, u32)>,
}

/// Without time stamps, so that a segment has `MSS` bytes.
pub(super) fn config() -> Config {
    Config {
        timestamps: false,
        ..Config::default()
    }
}

pub(super) fn no_sack() -> Config {
    Config {
        sack: false,
        ..config()
    }
}

impl Script {
    pub(super) fn new(config: Config) -> Self {
        Self {
            end: End::new("script", config, ISS),
            now_ns: 5 * S,
            window: 60_000,
            acked: 0,
            seq: 0,
            stamps: None,
        }
    }

    /// The options of the peer's SYN.
    pub(super) fn syn_options(&self) -> SynOptions {
        SynOptions {
            mss: Some(MSS as u16),
            window_scale: None,
            sack_permitted: self.end.shared.config.sack,
            fast_open: None,
        }
    }

    /// Opened from here; a round trip takes 100 ms.
    pub(super) fn open(config: Config) -> Self {
        let mut script = Self::new(config);
        script.end.connect(script.now_ns);
        script.finish_open();
        script
    }

    fn finish_open(&mut self) {
        assert_eq!(self.out().len(), 1);
        self.now_ns += 100 * MS;
        let options = self.syn_options();
        let out = self.syn(SYN | ACK, 0, options);
        assert_eq!(out.len(), 1, "{out:?}");
        assert_eq!(self.state(), State::Established);
        let _ = self.call(Connection::take_events);
    }

    /// A SYN of the peer.
    pub(super) fn syn(&mut self, flags: u8, ack: u32, syn: SynOptions) -> Vec<Seen> {
        let header = Header {
            seq: IRS,
            ack: match flags & ACK {
                0 => 0,
                _ => ISS.wrapping_add(1).wrapping_add(ack),
            },
            flags,
            window: self.window,
            timestamps: self.stamps,
            urgent: 0,
            sacks: Sacks::NONE,
            syn: Some(syn),
        };
        self.inject(&header, 0, false)
    }

    /// Any segment of the peer.
    pub(super) fn segment(&mut self, flags: u8, seq: u32, ack: u32, len: u32) -> Vec<Seen> {
        let header = self.header(flags, seq, ack);
        self.inject(&header, len, false)
    }

    pub(super) fn header(&self, flags: u8, seq: u32, ack: u32) -> Header {
        Header {
            seq: IRS.wrapping_add(1).wrapping_add(seq),
            ack: ISS.wrapping_add(1).wrapping_add(ack),
            flags,
            window: self.window,
            timestamps: self.stamps,
            urgent: 0,
            sacks: Sacks::NONE,
            syn: None,
        }
    }

    pub(super) fn inject(&mut self, header: &Header, len: u32, is_ce: bool) -> Vec<Seen> {
        let head = header.len();
        let mut bytes = vec![0; head + len as usize];
        header.write(2, 1, &mut bytes);
        let seq = header.seq.wrapping_sub(IRS + 1);
        for (at, byte) in bytes[head..].iter_mut().enumerate() {
            *byte = (seq.wrapping_add(at as u32) % 251) as u8;
        }
        let packet = self.end.wire.cache.copy_of(&bytes).unwrap();
        self.end.receive(self.now_ns, packet, is_ce);
        self.out()
    }

    /// An ACK up to `ack`.
    pub(super) fn ack(&mut self, ack: u32) -> Vec<Seen> {
        self.acked = ack;
        self.segment(ACK, self.seq, ack, 0)
    }

    /// An ACK with blocks.
    pub(super) fn sack(&mut self, ack: u32, blocks: &[(u32, u32)]) -> Vec<Seen> {
        self.acked = ack;
        let mut header = self.header(ACK, self.seq, ack);
        for &(left, right) in blocks {
            let abs = |at: u32| ISS.wrapping_add(1).wrapping_add(at);
            header.sacks.push((abs(left), abs(right)));
        }
        self.inject(&header, 0, false)
    }

    /// Data of the peer.
    pub(super) fn data(&mut self, seq: u32, len: u32) -> Vec<Seen> {
        if seq <= self.seq {
            self.seq = self.seq.max(seq + len);
        }
        self.segment(ACK, seq, self.acked, len)
    }

    pub(super) fn call<R>(&mut self, work: impl FnOnce(&mut Connection) -> R) -> R {
        self.end.with(self.now_ns, |c, _| work(c))
    }

    pub(super) fn write(&mut self, len: u32) -> Vec<Seen> {
        let bytes = vec![7; len as usize];
        self.end.with(self.now_ns, |c, cx| {
            assert_eq!(c.write(cx, &bytes), Ok(bytes.len()));
            c.push(cx);
        });
        self.out()
    }

    /// Reads all there is, and checks each byte.
    pub(super) fn read(&mut self, from: u32) -> (u32, Vec<Seen>) {
        let mut buffer = vec![0; 1 << 20];
        let got = self.end.with(self.now_ns, |c, cx| {
            let got = c.read(cx, &mut buffer);
            c.push(cx);
            got
        });
        let got = match got {
            Ok(count) => count,
            Err(Error::WouldBlock) => 0,
            Err(error) => panic!("{error}"),
        };
        for (at, &byte) in buffer[..got].iter().enumerate() {
            assert_eq!(byte, ((from as usize + at) % 251) as u8);
        }
        (got as u32, self.out())
    }

    pub(super) fn shutdown(&mut self) -> Vec<Seen> {
        self.end.with(self.now_ns, |c, cx| {
            c.shutdown(cx);
            c.push(cx);
        });
        self.out()
    }

    pub(super) fn close(&mut self) -> Vec<Seen> {
        self.end.with(self.now_ns, |c, cx| {
            c.close(cx);
            c.push(cx);
        });
        self.out()
    }

    /// Lets time pass.
    pub(super) fn wait(&mut self, ns: u64) -> Vec<Seen> {
        let until = self.now_ns + ns;
        let mut seen = Vec::new();
        for _ in 0..10_000 {
            let deadline = self.end.connection.as_ref().unwrap().deadline_ns();
            let Some(at) = deadline.filter(|&at| at <= until) else {
                self.now_ns = until;
                return seen;
            };
            self.now_ns = self.now_ns.max(at);
            self.end.with(self.now_ns, |c, cx| c.on_timer(cx));
            seen.extend(self.out());
        }
        panic!("a deadline comes again and again at {}", self.now_ns);
    }

    pub(super) fn out(&mut self) -> Vec<Seen> {
        let taken = std::mem::take(&mut self.end.wire.out);
        let seen = taken.into_iter().map(|(packet, ecn)| {
            let segment = Segment::read(packet.data()).unwrap();
            let syn = Segment::syn_options(packet.data());
            self.end.wire.cache.free_one(packet);
            Seen {
                at_ns: self.now_ns,
                seq: segment.seq.wrapping_sub(ISS.wrapping_add(1)),
                ack: segment.ack.wrapping_sub(IRS + 1),
                len: segment.len,
                segment,
                ecn,
                syn,
            }
        });
        seen.collect()
    }

    pub(super) fn state(&self) -> State {
        self.end.state()
    }

    pub(super) fn info(&mut self) -> Info {
        let now_ns = self.now_ns;
        self.call(|c| c.info(now_ns))
    }

    pub(super) fn error(&self) -> Option<Error> {
        self.end.error()
    }
}

/// Where the segments with data begin.
pub(super) fn starts(seen: &[Seen]) -> Vec<u32> {
    let with_data = seen.iter().filter(|seen| seen.len > 0);
    with_data.map(|seen| seen.seq).collect()
}
