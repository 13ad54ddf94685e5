//! Writes records of NAT to a file or to syslog, on a thread of its own: a full disk or a syslog
//! that is gone costs records, which are counted, and nothing else.
//!
//! Control takes records from workers ([`Log::take`](super::log::Log::take)) and hands them over in
//! batches. What cannot be written is told of once, and once more when it works again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use super::log::Record;

/// Batches that wait to be written at most.
const BATCHES: usize = 64;
/// Records that are put into one text at most.
const AT_ONCE: usize = 1024;
/// So long nothing has failed when it is told that writing works again.
const CALM: Duration = Duration::from_secs(10);
/// So long syslog at a socket of this machine is waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// So long the end of a run waits for what was not written yet.
const AT_END: Duration = Duration::from_secs(1);

/// Where records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// Lines of JSON, behind what the file has.
    File(PathBuf),
    /// Syslog (RFC 5424) over UDP (RFC 5426).
    Udp(SocketAddr),
    /// Syslog at a socket of this machine.
    Unix(PathBuf),
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Udp(address) => write!(f, "syslog at {address}"),
            Self::Unix(path) => write!(f, "syslog at {}", path.display()),
        }
    }
}

/// What became of records.
#[derive(Debug, Default)]
struct State {
    written: AtomicU64,
    lost: AtomicU64,
    reopens: AtomicBool,
    /// Memory of records that were written.
    spares: Mutex<Vec<Vec<Record>>>,
}

/// Records of one worker.
struct Batch {
    records: Vec<Record>,
    /// When the worker's clock was 0, in ms since 1970.
    began_ms: u64,
}

/// Hands records to the thread that writes them.
#[derive(Debug)]
pub struct Writer {
    to: To,
    state: Arc<State>,
    /// `None` where there is no thread.
    batches: Option<SyncSender<Batch>>,
    /// Says when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

impl Writer {
    /// Begins to write; `tell` is told what goes wrong.
    pub fn new(to: To, tell: impl Fn(String) + Send + 'static) -> Self {
        let state = Arc::new(State::default());
        let (batches, taken) = sync_channel(BATCHES);
        let (end, ended) = channel();
        let mut sink = Sink {
            to: to.clone(),
            open: None,
            is_torn: false,
            failed: None,
            tell: Box::new(tell),
            host: host(),
        };
        let shared = state.clone();
        let begun = thread::Builder::new()
            .name("nat-log".into())
            .spawn(move || {
                // An error is told of before the first record is lost.
                let opened = sink.opened().map(|_| ());
                sink.note(opened);
                for batch in taken {
                    sink.batch(&batch, &shared);
                    let mut spares = locked(&shared.spares);
                    if spares.len() < BATCHES {
                        spares.push(batch.records);
                    }
                }
                drop(end);
            });
        Self {
            to,
            state,
            batches: begun.ok().map(|_| batches),
            ended: Mutex::new(ended),
        }
    }

    /// Where records go.
    pub fn to(&self) -> &To {
        &self.to
    }

    /// The file is opened anew before the next record: somebody has moved it.
    pub fn reopen(&self) {
        self.state.reopens.store(true, Ordering::Relaxed);
    }

    /// Room for so many records.
    pub fn room(&self, records: usize) -> Vec<Record> {
        let spare = locked(&self.state.spares).pop();
        let mut room = spare.unwrap_or_default();
        room.clear();
        room.reserve_exact(records);
        room
    }

    /// Memory that was not needed.
    pub fn give_back(&self, room: Vec<Record>) {
        locked(&self.state.spares).push(room);
    }

    /// Hands records over; without room for them they are lost.
    pub fn write(&self, records: Vec<Record>, began_ms: u64) {
        let count = records.len() as u64;
        let batch = Batch { records, began_ms };
        let batches = self.batches.as_ref();
        if batches.is_none_or(|batches| batches.try_send(batch).is_err()) {
            self.state.lost.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Records that were written, and that were not.
    pub fn counts(&self) -> (u64, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (count(&self.state.written), count(&self.state.lost))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.batches = None;
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        // An error says that the thread has ended.
        let _ = ended.recv_timeout(AT_END);
    }
}

fn locked<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of this machine, as syslog has it.
fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "-".into(),
        name => name.into(),
    }
}

enum Open {
    File(File),
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

/// What the thread has.
struct Sink {
    to: To,
    open: Option<Open>,
    /// Whether the last line of the file is cut.
    is_torn: bool,
    /// When writing has failed last, if that was told.
    failed: Option<Instant>,
    tell: Box<dyn Fn(String) + Send>,
    host: String,
}

impl Sink {
    fn opened(&mut self) -> io::Result<&mut Open> {
        let open = match self.open.take() {
            Some(open) => open,
            None => match &self.to {
                To::File(path) => {
                    let mut options = OpenOptions::new();
                    let file = options.append(true).create(true).mode(0o640).open(path)?;
                    // Another file has no such line.
                    self.is_torn &= file.metadata().is_ok_and(|about| about.len() > 0);
                    Open::File(file)
                }
                To::Udp(address) => {
                    let any: IpAddr = match address {
                        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                    };
                    let socket = UdpSocket::bind((any, 0))?;
                    socket.connect(address)?;
                    socket.set_nonblocking(true)?;
                    Open::Udp(socket)
                }
                To::Unix(path) => {
                    let socket = UnixDatagram::unbound()?;
                    socket.connect(path)?;
                    // Such a socket holds few messages: 10, if nobody says otherwise.
                    socket.set_write_timeout(Some(PATIENCE))?;
                    Open::Unix(socket)
                }
            },
        };
        Ok(self.open.insert(open))
    }

    fn batch(&mut self, batch: &Batch, state: &State) {
        if state.reopens.swap(false, Ordering::Relaxed) {
            self.open = None;
        }
        for records in batch.records.chunks(AT_ONCE) {
            let (written, outcome) = match self.to {
                To::File(_) => self.lines(records, batch.began_ms),
                _ => self.messages(records, batch.began_ms),
            };
            let lost = (records.len() - written) as u64;
            state.written.fetch_add(written as u64, Ordering::Relaxed);
            state.lost.fetch_add(lost, Ordering::Relaxed);
            self.note(outcome);
        }
    }

    /// Writes lines; how many were written whole, and what went wrong.
    fn lines(&mut self, records: &[Record], began_ms: u64) -> (usize, io::Result<()>) {
        if let Err(error) = self.opened() {
            return (0, Err(error));
        }
        let mut text = String::new();
        if self.is_torn {
            text.push('\n');
        }
        for record in records {
            text += &record.json(began_ms);
            text.push('\n');
        }
        let mut done = 0;
        let mut outcome = Ok(());
        while done < text.len() {
            let rest = &text.as_bytes()[done..];
            let wrote = match self.opened() {
                Ok(Open::File(file)) => file.write(rest),
                Ok(_) => return (0, Ok(())),
                Err(error) => Err(error),
            };
            match wrote {
                Ok(0) => outcome = Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => outcome = Err(error),
            }
            if outcome.is_err() {
                self.open = None;
                break;
            }
        }
        let begun = &text.as_bytes()[..done];
        let mut whole = begun.iter().filter(|byte| **byte == b'\n').count();
        whole -= usize::from(self.is_torn && done > 0);
        self.is_torn = match begun.last() {
            Some(last) => *last != b'\n',
            None => self.is_torn,
        };
        (whole, outcome)
    }

    /// Sends messages; how many were sent, and what went wrong.
    fn messages(&mut self, records: &[Record], began_ms: u64) -> (usize, io::Result<()>) {
        let (mut sent, mut outcome) = (0, Ok(()));
        for record in records {
            let message = record.syslog(began_ms, &self.host);
            let one = match self.opened() {
                Ok(Open::Udp(socket)) => socket.send(message.as_bytes()),
                Ok(Open::Unix(socket)) => socket.send(message.as_bytes()),
                Ok(Open::File(_)) => return (0, Ok(())),
                Err(error) => Err(error),
            };
            match one {
                Ok(_) => sent += 1,
                Err(error) => {
                    // A syslog that was started again has another socket; one that does not read
                    // is not waited for by each record.
                    let is_stuck = error.kind() == io::ErrorKind::WouldBlock;
                    if matches!(self.to, To::Unix(_)) && !is_stuck {
                        self.open = None;
                    }
                    outcome = Err(error);
                    if is_stuck {
                        break;
                    }
                }
            }
        }
        (sent, outcome)
    }

    /// Tells what fails, once, and that it works again.
    fn note(&mut self, outcome: io::Result<()>) {
        let to = &self.to;
        match (outcome, self.failed) {
            (Ok(()), Some(failed)) if failed.elapsed() >= CALM => {
                self.failed = None;
                (self.tell)(format!("nat.log: {to}: records are written again"));
            }
            (Ok(()), _) => {}
            (Err(error), failed) => {
                self.failed = Some(Instant::now());
                if failed.is_none() {
                    (self.tell)(format!(
                        "nat.log: {to}: {error}; records are lost, and counted, until it works"
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
