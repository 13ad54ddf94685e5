//! Captures: connections that packets of the running appliance are sent over, as pcapng.
//!
//! Workers hand copies over without ever waiting: into a channel and a budget of bytes that both
//! are bounded. What does not fit is counted, and the worker goes on. When the client goes, or has
//! what it asked for, the taps are removed.

use std::borrow::Cow;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};

use linerate_core::port::pcapng::{Direction, InterfaceId, PcapngWriter, Record};
use linerate_core::run::{Passing, Tap};
use linerate_wire::filter::Filter;
use serde::Deserialize;
use serde_json::{Value, json};

use super::server::{say, write_line};
use super::stream::{LOOK, filter, has_gone, now_ns, read};
use super::taps::Taps;
use crate::socket::Problem;

/// Copies under way to a client at most.
const QUEUED: usize = 8192;
/// Bytes of them at most.
const QUEUED_BYTES: usize = 16 << 20;
/// Bytes gathered before a piece is sent.
const PIECE_BYTES: usize = 256 << 10;
/// Where packets are taken unless the client says otherwise: as they come, and as they leave.
const ENDS: [&str; 2] = ["pipeline", "sent"];

/// What a client wants to capture.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Asked {
    ports: Vec<String>,
    stage: Option<String>,
    pub(super) filter: String,
    count: Option<u64>,
    snap: u32,
}

/// A copy of a packet.
struct Copy {
    port: u16,
    stage: &'static str,
    /// Why it is dropped, where it is.
    reason: String,
    at_ns: u64,
    bytes: usize,
    data: Vec<u8>,
}

/// What taps and the client's thread share.
#[derive(Default)]
struct Budget {
    matched: AtomicU64,
    dropped: AtomicU64,
    queued_bytes: AtomicUsize,
}

/// A capture under way. Its taps go with it.
struct Capture {
    copies: Receiver<Copy>,
    budget: Arc<Budget>,
    /// Names of ports by their numbers.
    names: Vec<(u16, String)>,
    _taps: Taps,
}

/// Serves one capture until its client goes or has enough, or `closing` is set.
///
/// # Errors
/// The client does not read, or has gone.
pub fn serve(
    mut stream: UnixStream,
    id: Value,
    params: &Value,
    taps: Result<Taps, Problem>,
    closing: &AtomicBool,
) -> io::Result<()> {
    let begun = taps.and_then(|taps| {
        let asked: Asked = read(params)?;
        Ok((begin(taps, &asked)?, asked))
    });
    let (capture, asked) = match begun {
        Ok(begun) => begun,
        Err(problem) => return say(&mut stream, id, Err(problem)),
    };
    say(&mut stream, id, Ok(json!({})))?;
    let limit = asked.count.unwrap_or(u64::MAX);
    pump(&mut stream, &capture, limit, asked.snap, closing)
}

/// Sets the taps.
fn begin(taps: Taps, asked: &Asked) -> Result<Capture, Problem> {
    let filter = filter(&asked.filter)?;
    let stages = match asked.stage.as_deref() {
        None => ENDS.to_vec(),
        Some(name) => vec![taps.stage(name)?],
    };
    let names = taps.ports(&asked.ports)?;
    let numbers: Vec<u16> = names.iter().map(|(number, _)| *number).collect();
    let snap = match asked.snap {
        0 => usize::MAX,
        snap => snap as usize,
    };
    let (out, copies) = mpsc::sync_channel(QUEUED);
    let budget = Arc::new(Budget::default());
    taps.set(|_, stage| {
        let (numbers, filter) = (numbers.clone(), filter.clone());
        let wanted = stages.contains(&stage);
        wanted.then(|| tap(numbers, filter, snap, out.clone(), budget.clone()))
    });
    Ok(Capture {
        copies,
        budget,
        names,
        _taps: taps,
    })
}

/// What copies a worker's packets at one point.
fn tap(
    ports: Vec<u16>,
    filter: Option<Filter>,
    snap: usize,
    out: SyncSender<Copy>,
    budget: Arc<Budget>,
) -> Tap {
    Box::new(move |passing: &Passing<'_>| {
        let frame = passing.packet.data();
        let is_wanted = |filter: &Filter| filter.matches(frame);
        if !ports.contains(&passing.port) || !filter.as_ref().is_none_or(is_wanted) {
            return;
        }
        budget.matched.fetch_add(1, Ordering::Relaxed);
        let kept = frame.len().min(snap);
        if budget.queued_bytes.load(Ordering::Relaxed) + kept > QUEUED_BYTES {
            budget.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let copy = Copy {
            port: passing.port,
            stage: passing.stage,
            reason: passing.reason.into(),
            at_ns: now_ns(),
            bytes: frame.len(),
            data: frame[..kept].to_vec(),
        };
        // Before it can be taken out again.
        budget.queued_bytes.fetch_add(kept, Ordering::Relaxed);
        if out.try_send(copy).is_err() {
            budget.queued_bytes.fetch_sub(kept, Ordering::Relaxed);
            budget.dropped.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// Writes copies as pcapng, in pieces, until the client goes or has `limit` of them.
fn pump(
    stream: &mut UnixStream,
    capture: &Capture,
    limit: u64,
    snap: u32,
    closing: &AtomicBool,
) -> io::Result<()> {
    let mut writer = PcapngWriter::new(Pieces::new(stream.try_clone()?), "linerate");
    let mut interfaces: Vec<(u16, InterfaceId, u64)> = Vec::new();
    for (number, name) in &capture.names {
        interfaces.push((*number, writer.add_interface(name, snap)?, 0));
    }
    let budget = &capture.budget;
    let mut captured = 0;
    let mut last_ns = now_ns();
    while captured < limit && !closing.load(Ordering::SeqCst) {
        match capture.copies.recv_timeout(LOOK) {
            Ok(copy) => {
                budget
                    .queued_bytes
                    .fetch_sub(copy.data.len(), Ordering::Relaxed);
                last_ns = copy.at_ns;
                let known = interfaces.iter_mut().find(|(port, ..)| *port == copy.port);
                let Some((_, interface, count)) = known else {
                    continue;
                };
                *count += 1;
                captured += 1;
                let comment = match copy.reason.is_empty() {
                    true => String::new(),
                    false => format!("dropped: {}", copy.reason),
                };
                writer.write(&Record {
                    interface: *interface,
                    timestamp_ns: copy.at_ns,
                    direction: match copy.stage {
                        "sent" => Direction::Outbound,
                        _ => Direction::Inbound,
                    },
                    frame: &padded(&copy),
                    comment: &comment,
                })?;
            }
            Err(RecvTimeoutError::Timeout) => {
                writer.finish()?;
                if has_gone(stream)? {
                    break;
                }
            }
            // All workers have ended, and their taps with them.
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let matched = budget.matched.load(Ordering::Relaxed);
    let dropped = budget.dropped.load(Ordering::Relaxed);
    for (index, (_, interface, count)) in interfaces.iter().enumerate() {
        // What was dropped is not known by port: the first says it.
        let dropped = if index == 0 { dropped } else { 0 };
        writer.write_statistics(*interface, last_ns, count + dropped, dropped)?;
    }
    writer.finish()?;
    drop(writer);
    stream.write_all(&0_u32.to_le_bytes())?;
    write_line(
        stream,
        &json!({ "captured": captured, "matched": matched, "dropped": dropped }),
    )
}

/// The frame as long as it was: what a snap length cut is told by the lengths of a record.
fn padded(copy: &Copy) -> Cow<'_, [u8]> {
    match copy.bytes == copy.data.len() {
        true => copy.data.as_slice().into(),
        false => {
            let mut whole = copy.data.clone();
            whole.resize(copy.bytes, 0);
            whole.into()
        }
    }
}

/// Writes pieces, each with its length before it.
struct Pieces {
    stream: UnixStream,
    piece: Vec<u8>,
}

impl Pieces {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            piece: Vec::with_capacity(PIECE_BYTES),
        }
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        let taken = bytes.len().min(PIECE_BYTES);
        self.piece.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let length = (self.piece.len() as u32).to_le_bytes();
        self.stream.write_all(&length)?;
        self.stream.write_all(&self.piece)?;
        self.piece.clear();
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read;

    use linerate_core::packet::{Pool, PoolCache, PoolConfig, Pools};

    use super::*;

    #[test]
    fn a_tap_copies_what_matches_and_counts_what_has_no_room() {
        let pool = Pool::new(&PoolConfig::new("tap", 64)).unwrap();
        let pools = Pools::new(vec![pool.clone()]);
        let mut cache = PoolCache::new(pools.as_slice());
        let mut packet = cache.get(&pool).unwrap();
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[8, 6]);
        packet.set_data(&frame);
        let (out, copies) = mpsc::sync_channel(2);
        let budget = Arc::new(Budget::default());
        let arp = filter("arp").unwrap();
        let mut tap = tap(vec![1], arp, 20, out, budget.clone());
        let mut show = |port, reason, packet: &_| {
            let stage = "drop";
            tap(&Passing {
                stage,
                port,
                reason,
                packet,
            });
        };
        for port in [0, 1, 1, 1] {
            show(port, "short", &packet);
        }
        assert_eq!(budget.matched.load(Ordering::Relaxed), 3);
        assert_eq!(budget.dropped.load(Ordering::Relaxed), 1);
        assert_eq!(budget.queued_bytes.load(Ordering::Relaxed), 40);
        let copy = copies.recv().unwrap();
        assert_eq!((copy.port, copy.bytes, copy.data.len()), (1, 60, 20));
        assert_eq!((copy.stage, &*copy.reason), ("drop", "short"));
        frame[13] = 0;
        packet.set_data(&frame);
        show(1, "", &packet);
        assert_eq!(budget.matched.load(Ordering::Relaxed), 3);
        cache.free_one(packet);
    }

    #[test]
    fn pieces_carry_their_length_and_nothing_is_written_before_a_flush() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut pieces = Pieces::new(ours);
        pieces.write_all(b"abc").unwrap();
        pieces.write_all(b"de").unwrap();
        pieces.flush().unwrap();
        drop(pieces);
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).unwrap();
        assert_eq!(sent, b"\x05\0\0\0abcde");
    }
}
