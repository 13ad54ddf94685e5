//! A pcapng writer (draft-ietf-opsawg-pcapng): sections, interfaces, packets, drop counts.
//!
//! Needs only [`std::io::Write`]. Blocks gather in one buffer, whose size is fixed once the longest
//! packet was seen, and go out 64 KiB at a time, so that nothing is allocated and rarely a system
//! call made for a packet. Little-endian, Ethernet, nanoseconds.

use std::io::{self, Write};

/// Bytes gathered before they are written out.
const SPILL_BYTES: usize = 64 << 10;

/// Options and block types, by the draft's names and numbers.
mod code {
    pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
    pub(super) const INTERFACE_STATISTICS: u32 = 5;
    pub(super) const ENHANCED_PACKET: u32 = 6;

    pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
    pub(super) const LINKTYPE_ETHERNET: u16 = 1;

    pub(super) const OPT_ENDOFOPT: u16 = 0;
    pub(super) const OPT_COMMENT: u16 = 1;
    pub(super) const SHB_USERAPPL: u16 = 4;
    pub(super) const IF_NAME: u16 = 2;
    pub(super) const IF_TSRESOL: u16 = 9;
    pub(super) const EPB_FLAGS: u16 = 2;
    pub(super) const ISB_IFRECV: u16 = 4;
    pub(super) const ISB_IFDROP: u16 = 5;
}

/// Names an interface of one writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceId(u32);

/// Direction of a packet, seen from the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// One packet to write.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Where it was seen.
    pub interface: InterfaceId,
    /// When, in nanoseconds since 1970 UTC.
    pub timestamp_ns: u64,
    /// Its direction.
    pub direction: Direction,
    /// The frame, from its destination address on; the interface's snap length cuts it.
    pub frame: &'a [u8],
    /// A remark shown with the packet; empty for none. Cut to 65,535 bytes.
    pub comment: &'a str,
}

/// Writes one section.
///
/// An error means that the call had no effect: the packet is not in the file, and is the caller's
/// to count. What was taken before stays queued and is tried again by the next call, from the very
/// byte that failed, so that a file on a disk that was full for a while is still well formed.
/// Call [`finish`](Self::finish) at the end: a drop writes what is left, but cannot report.
///
/// ```
/// use linerate_core::port::pcapng::{Direction, PcapngWriter, Record};
/// let mut file = Vec::new();
/// let mut writer = PcapngWriter::new(&mut file, "linerate");
/// let interface = writer.add_interface("wan", 128)?;
/// let frame = &[0; 60];
/// let direction = Direction::Inbound;
/// writer.write(&Record { interface, timestamp_ns: 1, direction, frame, comment: "" })?;
/// writer.write_statistics(interface, 2, 1, 0)?;
/// writer.finish()?;
/// # drop(writer);
/// # assert_eq!(file.len() % 4, 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct PcapngWriter<W: Write> {
    out: W,
    /// Whole blocks, but for the first, of which a part may have been written.
    queued: Vec<u8>,
    /// Snap length in bytes of each interface.
    snap_bytes: Vec<u32>,
}

impl<W: Write> PcapngWriter<W> {
    /// Begins a section; `application` is what tools show as the writing program. Nothing is
    /// written yet.
    pub fn new(out: W, application: &str) -> Self {
        let queued = Vec::with_capacity(2 * SPILL_BYTES + 4096);
        let mut writer = Self {
            out,
            queued,
            snap_bytes: Vec::new(),
        };
        writer.block(code::SECTION_HEADER, |b| {
            put32(b, code::BYTE_ORDER_MAGIC);
            put16(b, 1); // version 1.0
            put16(b, 0);
            put64(b, u64::MAX); // section length unknown
            option(b, code::SHB_USERAPPL, application.as_bytes());
            option(b, code::OPT_ENDOFOPT, &[]);
        });
        writer
    }

    /// Describes an interface: its name, and the most bytes of a frame that are kept (0 for all).
    ///
    /// # Errors
    /// Those of the output; the interface is then not described.
    pub fn add_interface(&mut self, name: &str, snap_bytes: u32) -> io::Result<InterfaceId> {
        self.make_room()?;
        self.block(code::INTERFACE_DESCRIPTION, |b| {
            put16(b, code::LINKTYPE_ETHERNET);
            put16(b, 0);
            put32(b, snap_bytes);
            option(b, code::IF_NAME, name.as_bytes());
            option(b, code::IF_TSRESOL, &[9]); // 10^-9 s
            option(b, code::OPT_ENDOFOPT, &[]);
        });
        self.snap_bytes.push(if snap_bytes == 0 {
            u32::MAX
        } else {
            snap_bytes
        });
        Ok(InterfaceId(self.snap_bytes.len() as u32 - 1))
    }

    /// Takes one packet.
    ///
    /// # Errors
    /// Those of the output, and `InvalidInput` for another writer's interface; the packet is then
    /// not in the file.
    pub fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        let Record {
            interface,
            timestamp_ns,
            direction,
            frame,
            comment,
        } = *record;
        let snap = self.known(interface)?;
        self.make_room()?;
        let kept = &frame[..frame.len().min(snap as usize)];
        self.block(code::ENHANCED_PACKET, |b| {
            put32(b, interface.0);
            put_time(b, timestamp_ns);
            put32(b, kept.len() as u32);
            put32(b, frame.len() as u32);
            put_padded(b, kept);
            let flags: u32 = match direction {
                Direction::Inbound => 1,
                Direction::Outbound => 2,
            };
            option(b, code::EPB_FLAGS, &flags.to_le_bytes());
            if !comment.is_empty() {
                option(b, code::OPT_COMMENT, comment.as_bytes());
            }
            option(b, code::OPT_ENDOFOPT, &[]);
        });
        Ok(())
    }

    /// Writes how many packets an interface has seen and how many of those are missing here; to be
    /// called once for each, at the end. `timestamp_ns` as in [`Record`].
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn write_statistics(
        &mut self,
        interface: InterfaceId,
        timestamp_ns: u64,
        seen_pkts: u64,
        dropped_pkts: u64,
    ) -> io::Result<()> {
        self.known(interface)?;
        self.make_room()?;
        self.block(code::INTERFACE_STATISTICS, |b| {
            put32(b, interface.0);
            put_time(b, timestamp_ns);
            option(b, code::ISB_IFRECV, &seen_pkts.to_le_bytes());
            option(b, code::ISB_IFDROP, &dropped_pkts.to_le_bytes());
            option(b, code::OPT_ENDOFOPT, &[]);
        });
        Ok(())
    }

    /// Writes out all that was taken, so that a reader of the file sees it.
    ///
    /// # Errors
    /// Those of the output; nothing is lost, and the next call tries again.
    pub fn finish(&mut self) -> io::Result<()> {
        self.spill()?;
        self.out.flush()
    }

    /// The output; what is still queued has not reached it.
    pub fn output(&self) -> &W {
        &self.out
    }

    fn known(&self, interface: InterfaceId) -> io::Result<u32> {
        self.snap_bytes
            .get(interface.0 as usize)
            .copied()
            .ok_or_else(|| {
                let what = "the interface was not added to this pcapng writer";
                io::Error::new(io::ErrorKind::InvalidInput, what)
            })
    }

    fn make_room(&mut self) -> io::Result<()> {
        if self.queued.len() < SPILL_BYTES {
            Ok(())
        } else {
            self.spill()
        }
    }

    /// Writes the queue out. Not by `write_all`, which does not return how much was written.
    fn spill(&mut self) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            if written == self.queued.len() {
                break Ok(());
            }
            match self.out.write(&self.queued[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.queued.drain(..written);
        result
    }

    /// Queues a block: type and length before what `body` writes, the length again behind it.
    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
        let start = self.queued.len();
        put32(&mut self.queued, kind);
        put32(&mut self.queued, 0);
        body(&mut self.queued);
        let len = (self.queued.len() - start + 4) as u32;
        self.queued[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
        put32(&mut self.queued, len);
    }
}

impl<W: Write> Drop for PcapngWriter<W> {
    fn drop(&mut self) {
        let _ = self.finish(); // whoever wants to know has called it
    }
}

fn put16(b: &mut Vec<u8>, value: u16) {
    b.extend_from_slice(&value.to_le_bytes());
}

fn put32(b: &mut Vec<u8>, value: u32) {
    b.extend_from_slice(&value.to_le_bytes());
}

fn put64(b: &mut Vec<u8>, value: u64) {
    b.extend_from_slice(&value.to_le_bytes());
}

/// The upper half first, whatever the byte order.
fn put_time(b: &mut Vec<u8>, ns: u64) {
    put32(b, (ns >> 32) as u32);
    put32(b, ns as u32);
}

fn put_padded(b: &mut Vec<u8>, bytes: &[u8]) {
    b.extend_from_slice(bytes);
    b.extend_from_slice(&[0; 3][..bytes.len().wrapping_neg() % 4]);
}

/// An option; its value is cut, between characters, where 16 bits cannot hold the length.
fn option(b: &mut Vec<u8>, code: u16, mut value: &[u8]) {
    if value.len() > usize::from(u16::MAX) {
        let is_inside = |byte: u8| byte & 0xc0 == 0x80; // a UTF-8 character
        let end = (0..=usize::from(u16::MAX))
            .rev()
            .find(|&at| !is_inside(value[at]));
        value = &value[..end.unwrap_or(0)];
    }
    put16(b, code);
    put16(b, value.len() as u16);
    put_padded(b, value);
}

#[cfg(test)]
mod tests;
