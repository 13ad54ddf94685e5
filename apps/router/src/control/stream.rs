//! Captures and traces: connections that packets of the running router are sent over.
//!
//! Workers hand copies over without ever waiting: into a channel and a budget of bytes that both
//! are bounded. What does not fit is counted, and the worker goes on. When the client goes, or has
//! what it asked for, the taps are taken away.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime};

use linerate_core::packet::Packet;
use linerate_core::port::pcapng::{Direction, InterfaceId, PcapngWriter, Record as Entry};
use linerate_core::run::{Stage as _, Tap};
use linerate_wire::filter::Filter;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Control;
use super::handle::ControlHandle;
use super::stage::{on_fast, on_slow};
use linerate_appliance::control::server::{say, write_line};
use linerate_appliance::nearest::offer;
use linerate_appliance::socket::Problem;
use linerate_routing::plane::trace::{Record, Trace};

/// Copies under way to a client at most.
const QUEUED: usize = 8192;
/// Bytes of them at most.
const QUEUED_BYTES: usize = 16 << 20;
/// Bytes gathered before a piece is sent.
const PIECE_BYTES: usize = 256 << 10;
/// How often is looked whether the client is still there, and how long a copy may wait for others.
const LOOK: Duration = Duration::from_millis(50);
/// How long a trace waits for packets that match.
const TRACE: Duration = Duration::from_secs(60);

/// What a client wants to capture.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CaptureAsked {
    ports: Vec<String>,
    stage: Option<String>,
    filter: String,
    count: Option<u64>,
    snap: u32,
}

/// A copy of a packet.
struct Copy {
    port: u16,
    stage: &'static str,
    at_ns: u64,
    bytes: usize,
    data: Vec<u8>,
}

/// What taps and the client's thread share.
#[derive(Default)]
struct Books {
    matched: AtomicU64,
    dropped: AtomicU64,
    queued_bytes: AtomicUsize,
}

/// A capture under way.
struct Capture {
    copies: Receiver<Copy>,
    books: Arc<Books>,
    /// Number of its taps.
    id: u64,
    /// Names of ports by their numbers.
    names: Vec<(u16, String)>,
}

/// Serves one capture until its client goes or has enough.
pub(super) fn capture(
    mut stream: UnixStream,
    id: Value,
    params: &Value,
    handle: &ControlHandle,
    closing: &AtomicBool,
) -> io::Result<()> {
    let asked = read::<CaptureAsked>(params);
    let (limit, snap) = match &asked {
        Ok(asked) => (asked.count.unwrap_or(u64::MAX), asked.snap),
        Err(_) => (0, 0),
    };
    let begun =
        asked.and_then(|asked| handle.call(move |control| control.begin_capture(&asked))?);
    let capture = match begun {
        Ok(capture) => capture,
        Err(problem) => return say(&mut stream, id, Err(problem)),
    };
    let number = capture.id;
    let result = say(&mut stream, id, Ok(json!({})))
        .and_then(|()| pump(&mut stream, &capture, limit, snap, closing));
    // Where the router has ended the taps went with it.
    let _ = handle.call(move |control| control.end_capture(number));
    result
}

/// Parameters of a method.
fn read<T: serde::de::DeserializeOwned>(params: &Value) -> Result<T, Problem> {
    serde_json::from_value(params.clone())
        .map_err(|error| Problem::new(error.to_string(), "see docs/router.md for the parameters"))
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
    let mut captured = 0;
    let mut last_ns = now_ns();
    while captured < limit && !closing.load(Ordering::SeqCst) {
        match capture.copies.recv_timeout(LOOK) {
            Ok(copy) => {
                let books = &capture.books;
                books
                    .queued_bytes
                    .fetch_sub(copy.data.len(), Ordering::Relaxed);
                last_ns = copy.at_ns;
                let known = interfaces.iter_mut().find(|(port, ..)| *port == copy.port);
                let Some((_, interface, count)) = known else {
                    continue;
                };
                *count += 1;
                captured += 1;
                writer.write(&Entry {
                    interface: *interface,
                    timestamp_ns: copy.at_ns,
                    direction: match copy.stage {
                        "sent" => Direction::Outbound,
                        _ => Direction::Inbound,
                    },
                    frame: &padded(&copy),
                    comment: match copy.stage {
                        "drop" => "dropped",
                        _ => "",
                    },
                })?;
            }
            Err(RecvTimeoutError::Timeout) => {
                writer.finish()?;
                if has_gone(stream)? {
                    break;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let matched = capture.books.matched.load(Ordering::Relaxed);
    let dropped = capture.books.dropped.load(Ordering::Relaxed);
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
fn padded(copy: &Copy) -> std::borrow::Cow<'_, [u8]> {
    match copy.bytes == copy.data.len() {
        true => copy.data.as_slice().into(),
        false => {
            let mut whole = copy.data.clone();
            whole.resize(copy.bytes, 0);
            whole.into()
        }
    }
}

/// Whether the client has closed its side; anything else that it says means nothing here.
fn has_gone(stream: &mut UnixStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let read = stream.read(&mut [0; 64]);
    stream.set_nonblocking(false)?;
    Ok(match read {
        Ok(count) => count == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    })
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

fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |passed| passed.as_nanos() as u64)
}

/// What copies a worker's packets at one stage.
fn tap(
    stage: &'static str,
    ports: Vec<u16>,
    filter: Option<Filter>,
    snap: usize,
    out: SyncSender<Copy>,
    books: Arc<Books>,
) -> Tap {
    Box::new(move |port: u16, packet: &Packet| {
        let frame = packet.data();
        if !ports.contains(&port) || !filter.as_ref().is_none_or(|filter| filter.matches(frame)) {
            return;
        }
        books.matched.fetch_add(1, Ordering::Relaxed);
        let kept = frame.len().min(snap);
        if books.queued_bytes.load(Ordering::Relaxed) + kept > QUEUED_BYTES {
            books.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let copy = Copy {
            port,
            stage,
            at_ns: now_ns(),
            bytes: frame.len(),
            data: frame[..kept].to_vec(),
        };
        // Before it can be taken out again.
        books.queued_bytes.fetch_add(kept, Ordering::Relaxed);
        if out.try_send(copy).is_err() {
            books.queued_bytes.fetch_sub(kept, Ordering::Relaxed);
            books.dropped.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// A filter as people write it; none for all.
fn filter(text: &str) -> Result<Option<Filter>, Problem> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let wrong = |error: linerate_wire::filter::FilterError| {
        let fix = "write it as for tcpdump, such as `udp port 53 and not src net 10.0.0.0/8`";
        Problem::new(format!("filter `{text}`: {error}"), fix)
    };
    text.parse().map(Some).map_err(wrong)
}

impl Control {
    fn begin_capture(&mut self, asked: &CaptureAsked) -> Result<Capture, Problem> {
        let filter = filter(&asked.filter)?;
        let stages = match asked.stage.as_deref() {
            // The last for what passes to and from the host interfaces.
            None => vec!["receive", "sent", "slow"],
            Some(name) => {
                let known: Vec<&str> = self.stages().iter().map(|row| row.stage).collect();
                let found = known.iter().find(|known| **known == name).copied();
                vec![found.ok_or_else(|| {
                    Problem::new(format!("there is no stage `{name}`"), offer(name, known))
                })?]
            }
        };
        let names = self.named_ports(&asked.ports)?;
        let numbers: Vec<u16> = names.iter().map(|(number, _)| *number).collect();
        let snap = match asked.snap {
            0 => usize::MAX,
            snap => snap as usize,
        };
        let (out, copies) = mpsc::sync_channel(QUEUED);
        let books = Arc::new(Books::default());
        self.captures += 1;
        let id = self.captures;
        for worker in self.running.handles() {
            for (number, &stage) in stages.iter().enumerate() {
                let tap = tap(
                    stage,
                    numbers.clone(),
                    filter.clone(),
                    snap,
                    out.clone(),
                    books.clone(),
                );
                let id = tap_id(id, number);
                // A worker without that stage frees the tap.
                let _ = worker.call(move |worker| {
                    let mut tap = Some(tap);
                    worker.stage.points(&mut |point| {
                        if let Some(tap) = tap.take_if(|_| point.name == stage) {
                            point.set_tap(id, tap);
                        }
                    });
                });
            }
        }
        Ok(Capture {
            copies,
            books,
            id,
            names,
        })
    }

    fn end_capture(&mut self, id: u64) {
        for worker in self.running.handles() {
            let taken = worker.call(move |worker| {
                let mut taken: [Option<Tap>; 3] = Default::default();
                worker.stage.points(&mut |point| {
                    for (number, taken) in taken.iter_mut().enumerate() {
                        if let Some(tap) = point.remove_tap(tap_id(id, number)) {
                            *taken = Some(tap);
                        }
                    }
                });
                taken
            });
            // Freed here, not by the worker.
            drop(taken);
        }
    }

    /// Numbers and names of ports and host interfaces that a client names; all of the user's where
    /// it names none.
    fn named_ports(&self, wanted: &[String]) -> Result<Vec<(u16, String)>, Problem> {
        let ports = self.running.ports().iter();
        let ports: Vec<(u16, String)> =
            ports.map(|open| (open.number, open.name.clone())).collect();
        if wanted.is_empty() {
            return Ok(ports);
        }
        let host_interfaces = self
            .host_interfaces
            .iter()
            .map(|host_interface| (host_interface.number, host_interface.wanted.name.clone()));
        let all: Vec<(u16, String)> = ports.into_iter().chain(host_interfaces).collect();
        let find = |name: &String| {
            let known = all.iter().find(|(_, known)| known == name).cloned();
            let names = all.iter().map(|(_, name)| name.as_str());
            known.ok_or_else(|| {
                Problem::new(format!("there is no port `{name}`"), offer(name, names))
            })
        };
        wanted.iter().map(find).collect()
    }

    fn begin_trace(&mut self, filter: &Option<Filter>, packets: u32) -> Receiver<Record> {
        // Of each packet what a fast worker knows, and what the slow one adds.
        let (to, records) = mpsc::sync_channel(2 * packets as usize);
        let follower = to.clone();
        // Before anything is handed over to it.
        on_slow(self.slow(), move |slow, _| {
            slow.tracer().set_follower(Some(follower));
        });
        for worker in self.running.handles() {
            let trace = Trace {
                filter: filter.clone(),
                packets,
                to: to.clone(),
                tickets: self.tickets.clone(),
            };
            on_fast(worker, move |fast, _| fast.tracer().set_trace(Some(trace)));
        }
        records
    }

    fn end_trace(&mut self) {
        for worker in self.running.handles() {
            on_fast(worker, |fast, _| fast.tracer().set_trace(None));
            on_slow(worker, |slow, _| slow.tracer().set_follower(None));
        }
    }
}

/// A capture has taps at up to three stages.
fn tap_id(capture: u64, stage: usize) -> u64 {
    3 * capture + stage as u64
}

/// What a client wants to trace.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceAsked {
    #[serde(default)]
    filter: String,
    count: u32,
}

/// Sends what became of the next packets that match, one line each, and then the answer.
pub(super) fn trace(
    stream: &mut UnixStream,
    id: Value,
    params: &Value,
    handle: &ControlHandle,
    closing: &AtomicBool,
) -> io::Result<()> {
    let asked = read::<TraceAsked>(params).and_then(|asked| Ok((filter(&asked.filter)?, asked)));
    let (filter, count) = match asked {
        Ok((filter, asked)) => (filter, asked.count.clamp(1, 10_000)),
        Err(problem) => return say(stream, id, Err(problem)),
    };
    let begun = handle.call(move |control| {
        let interfaces = control.settings.interfaces.iter();
        let names: Vec<String> = interfaces.map(|interface| interface.name.clone()).collect();
        (control.begin_trace(&filter, count), names)
    });
    let (records, names) = match begun {
        Ok(begun) => begun,
        Err(problem) => return say(stream, id, Err(problem)),
    };
    let result = tell(stream, &id, &records, &names, count, closing);
    let _ = handle.call(Control::end_trace);
    let told = result?;
    let text = match told == count {
        true => format!("{told} packets"),
        false => format!("{told} packets; no more matched in {} s", TRACE.as_secs()),
    };
    say(stream, id, Ok(json!({ "text": text, "packets": told })))
}

fn tell(
    stream: &mut UnixStream,
    id: &Value,
    records: &Receiver<Record>,
    names: &[String],
    count: u32,
    closing: &AtomicBool,
) -> io::Result<u32> {
    let end = Instant::now() + TRACE;
    let mut told = 0;
    // Those that the slow worker still has.
    let mut halves: Vec<Record> = Vec::new();
    let say = |stream: &mut UnixStream, record: &Record| {
        let result = story(record, names);
        write_line(
            stream,
            &json!({ "id": id, "event": "trace", "result": result }),
        )
    };
    while told < count && Instant::now() < end && !closing.load(Ordering::SeqCst) {
        match records.recv_timeout(LOOK) {
            Ok(record) if record.ticket == 0 => {
                told += 1;
                say(stream, &record)?;
            }
            Ok(record) if record.end.is_empty() => halves.push(record),
            Ok(record) => {
                let first = halves.iter().position(|half| half.ticket == record.ticket);
                let Some(first) = first else { continue };
                told += 1;
                let whole = Record {
                    end: record.end,
                    ..halves.swap_remove(first)
                };
                say(stream, &whole)?;
            }
            Err(RecvTimeoutError::Timeout) => {
                if has_gone(stream)? {
                    break;
                }
            }
            // Every worker has told all that it was asked for.
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    for mut half in halves.into_iter().take((count - told) as usize) {
        half.end = "not known yet".into();
        told += 1;
        say(stream, &half)?;
    }
    Ok(told)
}

/// What became of one packet, in words.
fn story(record: &Record, names: &[String]) -> Value {
    let unknown = || "?".to_string();
    let interface = names.get(usize::from(record.interface.0));
    let interface = interface.cloned().unwrap_or_else(unknown);
    let mut steps: Vec<String> = record
        .steps
        .iter()
        .map(|(stage, text)| format!("{stage}: {text}"))
        .collect();
    steps.push(record.end.clone());
    json!({
        "interface": interface,
        "bytes": record.bytes,
        "packet": format!("{} by {interface}, {} bytes", record.summary, record.bytes),
        "steps": steps,
        "end": record.end,
    })
}

/// Any parameters as those of a capture or a trace: an error, or a filter that can be asked.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn fuzz(params: &Value) {
    let captured = read::<CaptureAsked>(params).map(|asked| asked.filter);
    let traced = read::<TraceAsked>(params).map(|asked| asked.filter);
    for text in [captured, traced].into_iter().flatten() {
        match filter(&text) {
            Ok(filter) => assert_eq!(filter.is_none(), text.trim().is_empty()),
            Err(problem) => assert!(problem.problem.contains(&text) && !problem.fix.is_empty()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_core::packet::{Pool, PoolCache, PoolConfig, Pools};

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
        let books = Arc::new(Books::default());
        let arp = filter("arp").unwrap();
        let mut tap = tap("receive", vec![1], arp, 20, out, books.clone());
        for port in [0, 1, 1, 1] {
            tap(port, &packet);
        }
        assert_eq!(books.matched.load(Ordering::Relaxed), 3);
        assert_eq!(books.dropped.load(Ordering::Relaxed), 1);
        assert_eq!(books.queued_bytes.load(Ordering::Relaxed), 40);
        let copy = copies.recv().unwrap();
        assert_eq!((copy.port, copy.bytes, copy.data.len()), (1, 60, 20));
        frame[13] = 0;
        packet.set_data(&frame);
        tap(1, &packet);
        assert_eq!(books.matched.load(Ordering::Relaxed), 3);
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

    #[test]
    fn filters_are_refused_with_what_is_wrong() {
        assert!(filter("").unwrap().is_none());
        let problem = filter("prot 53").unwrap_err();
        assert!(problem.problem.contains("prot"), "{problem}");
    }
}
