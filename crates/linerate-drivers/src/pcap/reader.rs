//! Frames of a capture file, one by one: pcap (µs and ns, either byte order) and pcapng.
//!
//! Streams: memory depends on the longest record, not on the file. Nothing in a file is trusted;
//! a file with damage in the middle gives its frames up to there and then an error with the
//! position.

use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use std::io::{self, Read};
use std::ops::Range;

/// Bytes read at a time, and so the longest record that is read without growing.
const BUFFER_BYTES: usize = 1 << 18;
/// Longest record: what is longer is taken for damage.
const LONGEST_RECORD_BYTES: usize = 16 << 20;
/// In the link type field of a pcap file: its four top bits count the 16-bit words of check
/// sequence.
const HAS_CHECK_SEQUENCE: u32 = 1 << 26;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// Why a capture cannot be read, or not any further.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Neither pcap nor pcapng.
    #[error("not a pcap or pcapng file: {0}")]
    NotCapture(String),
    /// Frames that are not Ethernet.
    #[error(
        "its link type is {0}, but only Ethernet (1) can be replayed; convert it, for example with \
         `editcap -T ether`"
    )]
    LinkType(String),
    /// Damage.
    #[error("record {number} is damaged: {reason}")]
    Record {
        /// Counted from 1; in pcapng packets only.
        number: u64,
        /// What is wrong.
        reason: String,
    },
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// One captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Nanoseconds since 1970 UTC; 0 where the file has no time.
    pub timestamp_ns: u64,
    /// What was captured of the frame.
    pub data: &'a [u8],
}

/// Reads a capture.
///
/// ```
/// use linerate_drivers::pcap::Reader;
/// # fn main() -> Result<(), linerate_drivers::pcap::ReadError> {
/// let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]; // µs, little-endian
/// file.extend([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0]);
/// file.extend([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0]); // at 1.000002 s: 3 bytes
/// file.extend(b"abc");
/// let mut reader = Reader::new(std::io::Cursor::new(file))?;
/// let frame = reader.next()?.unwrap();
/// assert_eq!((frame.timestamp_ns, frame.data), (1_000_002_000, &b"abc"[..]));
/// assert!(reader.next()?.is_none());
/// # Ok(())
/// # }
/// ```
pub struct Reader {
    inner: Box<dyn PcapReaderIterator + Send>,
    format: PcapFormat,
    /// The packet given out last.
    held: Option<Held>,
    /// Packets before that one.
    count: u64,
}

enum PcapFormat {
    Unknown,
    Legacy {
        nanoseconds: bool,
        check_bytes: usize,
    },
    Ng {
        interfaces: Vec<Interface>,
    },
}

#[derive(Clone, Copy)]
struct Interface {
    units_per_second: u64,
    offset_seconds: i64,
    /// 0 for none.
    snap_bytes: u32,
}

/// Where in the buffer a packet lies, at the start of which its block is of `block` bytes.
struct Held {
    timestamp_ns: u64,
    at: Range<usize>,
    block: usize,
}

/// What the next block of the file is.
enum Step {
    Packet(Held),
    Other { block: usize },
    NeedsData,
    NeedsRoom,
    End,
}

impl Reader {
    /// Reads the file's header.
    ///
    /// # Errors
    /// [`ReadError::NotCapture`], or [`ReadError::LinkType`] where that is known at the start.
    pub fn new(file: impl Read + Send + 'static) -> Result<Self, ReadError> {
        let inner = create_reader(BUFFER_BYTES, file)
            .map_err(|error| ReadError::NotCapture(reason(&error)))?;
        let mut reader = Self {
            inner,
            format: PcapFormat::Unknown,
            held: None,
            count: 0,
        };
        // Up to the first packet, which stays where it is, so that a wrong link type shows now.
        while let Ok(Step::Other { block }) = reader.step()? {
            reader.inner.consume(block);
        }
        Ok(reader)
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`] where the file is damaged; there is no going on after that.
    #[allow(clippy::should_implement_trait)] // frames borrow the reader
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, ReadError> {
        self.advance();
        self.peek()
    }

    /// The same frame as the last time, until [`advance`](Self::advance).
    pub(super) fn peek(&mut self) -> Result<Option<Frame<'_>>, ReadError> {
        while self.held.is_none() {
            match self.step()? {
                Ok(Step::Packet(held)) => self.held = Some(held),
                Ok(Step::Other { block }) => self.inner.consume(block),
                Ok(_) => return Ok(None),
                Err(reason) => {
                    return Err(ReadError::Record {
                        number: self.count + 1,
                        reason,
                    });
                }
            }
        }
        let data = self.inner.data();
        Ok(self.held.as_ref().map(|held| Frame {
            timestamp_ns: held.timestamp_ns,
            data: &data[held.at.clone()],
        }))
    }

    /// Goes past the frame that was last given out.
    pub(super) fn advance(&mut self) {
        if let Some(held) = self.held.take() {
            self.inner.consume(held.block);
            self.count += 1;
        }
    }

    /// The next block, once it is whole in the buffer. Damage is the inner error.
    fn step(&mut self) -> Result<Result<Step, String>, ReadError> {
        let mut bytes = BUFFER_BYTES;
        loop {
            match self.look()? {
                Ok(Step::NeedsData) => {
                    let before = self.inner.data().len();
                    if let Err(error) = self.inner.refill() {
                        return Ok(Err(reason(&error)));
                    }
                    if self.inner.data().len() == before && !self.inner.reader_exhausted() {
                        return Ok(Err("it does not fit any buffer".into()));
                    }
                }
                Ok(Step::NeedsRoom) => {
                    bytes *= 2;
                    if bytes > 2 * LONGEST_RECORD_BYTES {
                        return Ok(Err(format!(
                            "it is longer than {LONGEST_RECORD_BYTES} bytes"
                        )));
                    }
                    self.inner.grow(bytes);
                    if let Err(error) = self.inner.refill() {
                        return Ok(Err(reason(&error)));
                    }
                }
                step => return Ok(step),
            }
        }
    }

    /// Looks at what is in the buffer.
    fn look(&mut self) -> Result<Result<Step, String>, ReadError> {
        let start = self.inner.data().as_ptr().addr();
        let span = |data: &[u8]| {
            let from = data.as_ptr().addr().wrapping_sub(start);
            from..from + data.len()
        };
        let (block, content) = match self.inner.next() {
            Ok(found) => found,
            Err(PcapError::Eof) => return Ok(Ok(Step::End)),
            Err(PcapError::Incomplete(_)) => return Ok(Ok(Step::NeedsData)),
            Err(PcapError::BufferTooSmall) => return Ok(Ok(Step::NeedsRoom)),
            Err(error) => return Ok(Err(reason(&error))),
        };
        let (timestamp_ns, at) = match (content, &mut self.format) {
            (PcapBlockOwned::LegacyHeader(header), format) => {
                // draft-ietf-opsawg-pcap 4: the upper bits describe frame check sequences.
                let field = header.network.0.cast_unsigned();
                check_link_type(Linktype((field & 0xffff).cast_signed()))?;
                let has_check = field & HAS_CHECK_SEQUENCE != 0;
                *format = PcapFormat::Legacy {
                    nanoseconds: header.is_nanosecond_precision(),
                    check_bytes: if has_check {
                        (field >> 28) as usize * 2
                    } else {
                        0
                    },
                };
                return Ok(Ok(Step::Other { block }));
            }
            (
                PcapBlockOwned::Legacy(packet),
                PcapFormat::Legacy {
                    nanoseconds,
                    check_bytes,
                },
            ) => {
                let fraction = u64::from(packet.ts_usec) * if *nanoseconds { 1 } else { 1000 };
                let captured = packet.data.len().min(packet.caplen as usize);
                // Ports carry frames without their check sequence, so what there is of it goes.
                let whole = (packet.origlen as usize).saturating_sub(*check_bytes);
                let captured = if *check_bytes > 0 {
                    captured.min(whole)
                } else {
                    captured
                };
                (
                    u64::from(packet.ts_sec) * NS_PER_SECOND + fraction,
                    span(&packet.data[..captured]),
                )
            }
            (PcapBlockOwned::NG(Block::SectionHeader(_)), format) => {
                *format = PcapFormat::Ng {
                    interfaces: Vec::new(),
                };
                return Ok(Ok(Step::Other { block }));
            }
            (
                PcapBlockOwned::NG(Block::InterfaceDescription(described)),
                PcapFormat::Ng { interfaces },
            ) => {
                check_link_type(described.linktype)?;
                let Some(units_per_second) = described.ts_resolution().filter(|&units| units > 0)
                else {
                    return Ok(Err(format!(
                        "its interface has a clock of 10^-{} s",
                        described.if_tsresol
                    )));
                };
                let (offset_seconds, snap_bytes) = (described.ts_offset(), described.snaplen);
                interfaces.push(Interface {
                    units_per_second,
                    offset_seconds,
                    snap_bytes,
                });
                return Ok(Ok(Step::Other { block }));
            }
            (PcapBlockOwned::NG(Block::EnhancedPacket(packet)), PcapFormat::Ng { interfaces }) => {
                let Some(interface) = interfaces.get(packet.if_id as usize) else {
                    return Ok(Err(format!(
                        "it names interface {}, which the file does not describe",
                        packet.if_id
                    )));
                };
                let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                (interface.nanoseconds(units), span(packet.packet_data()))
            }
            (PcapBlockOwned::NG(Block::SimplePacket(packet)), PcapFormat::Ng { interfaces }) => {
                let Some(interface) = interfaces.first() else {
                    return Ok(Err(
                        "it needs an interface, but the file describes none".into()
                    ));
                };
                let snap = if interface.snap_bytes == 0 {
                    u32::MAX
                } else {
                    interface.snap_bytes
                };
                let captured = packet.data.len().min(packet.origlen.min(snap) as usize);
                (0, span(&packet.data[..captured]))
            }
            _ => return Ok(Ok(Step::Other { block })),
        };
        Ok(Ok(Step::Packet(Held {
            timestamp_ns,
            at,
            block,
        })))
    }
}

impl Interface {
    fn nanoseconds(&self, units: u64) -> u64 {
        let per_second = self.units_per_second;
        let fraction =
            u128::from(units % per_second) * u128::from(NS_PER_SECOND) / u128::from(per_second);
        let seconds = (units / per_second).saturating_add_signed(self.offset_seconds);
        seconds
            .saturating_mul(NS_PER_SECOND)
            .saturating_add(fraction as u64)
    }
}

fn check_link_type(found: Linktype) -> Result<(), ReadError> {
    if found == Linktype::ETHERNET {
        Ok(())
    } else {
        let name = found.to_string();
        let has_name = !name.starts_with("Linktype(");
        let number = found.0;
        Err(ReadError::LinkType(if has_name {
            format!("{number} ({name})")
        } else {
            number.to_string()
        }))
    }
}

/// The parser's message without the bytes it stumbled over.
fn reason(error: &PcapError<&[u8]>) -> String {
    match error {
        PcapError::Eof => "it is empty".into(),
        PcapError::UnexpectedEof => "the file ends inside it".into(),
        PcapError::ReadError => "the file could not be read".into(),
        PcapError::Incomplete(_) => "it ends inside its header".into(),
        PcapError::HeaderNotRecognized => "its first bytes are those of neither".into(),
        PcapError::BufferTooSmall => "it is too long".into(),
        PcapError::NomError(_, format) | PcapError::OwnedNomError(_, format) => {
            format!(
                "its lengths or types contradict each other ({})",
                format.description()
            )
        }
    }
}
