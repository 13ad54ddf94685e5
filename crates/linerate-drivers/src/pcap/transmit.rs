//! The file that transmit queues write to.

use super::{Status, file_error};
use linerate_core::packet::{Burst, PoolCache};
use linerate_core::port::pcapng::{Direction, InterfaceId, PcapngWriter, Record};
use linerate_core::port::{DropReason, PortError, QueueStats, TxQueue};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How long a frame may wait before it is written.
const LINGER: Duration = Duration::from_millis(100);

/// One file, of which all queues of a port have a share.
pub(super) struct Output {
    writer: PcapngWriter<File>,
    interface: InterfaceId,
    /// Since when something waits to be written.
    waiting: Option<Instant>,
    path: String,
}

impl Output {
    /// Begins a section at the end of a file that was opened.
    pub(super) fn open(
        port: &str,
        path: &Path,
        file: io::Result<File>,
        snap_bytes: u32,
    ) -> Result<Self, PortError> {
        let file = file.map_err(|source| file_error(port, "create", path, source))?;
        let mut writer = PcapngWriter::new(file, "linerate");
        let interface = writer.add_interface(port, snap_bytes);
        let interface = interface.map_err(|source| file_error(port, "write", path, source))?;
        Ok(Self {
            writer,
            interface,
            waiting: None,
            path: path.display().to_string(),
        })
    }

    /// Writes what waits, if it has waited long enough.
    fn write_old(&mut self) -> io::Result<()> {
        if self.waiting.is_none_or(|since| since.elapsed() < LINGER) {
            return Ok(());
        }
        // After a failure, too, not again before the time has passed.
        self.waiting = Some(Instant::now());
        self.writer.finish()?;
        self.waiting = None;
        Ok(())
    }

    /// Ends the section.
    pub(super) fn finish(&mut self, seen_pkts: u64, dropped_pkts: u64) -> io::Result<()> {
        self.writer
            .write_statistics(self.interface, now_ns(), seen_pkts, dropped_pkts)?;
        self.writer.finish()
    }
}

fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |passed| passed.as_nanos() as u64)
}

/// A transmit queue.
pub(super) struct Write {
    output: Arc<Mutex<Output>>,
    status: Arc<Status>,
    /// Whether the last write failed.
    failing: bool,
    stats: Arc<QueueStats>,
}

impl Write {
    pub(super) fn new(
        output: Arc<Mutex<Output>>,
        status: Arc<Status>,
        stats: Arc<QueueStats>,
    ) -> Self {
        Self {
            output,
            status,
            failing: false,
            stats,
        }
    }

    /// Reports to the port when writing begins to fail, and when it works again.
    fn report(&mut self, result: io::Result<()>, path: &str) {
        let failing = result.is_err();
        if failing != self.failing {
            match result {
                Ok(()) => self.status.set(Status::TX, None),
                Err(error) => {
                    let text = format!("cannot write {path}: {error}");
                    self.status.fail(Status::TX, text, error);
                }
            }
            self.failing = failing;
        }
    }
}

fn lock(output: &Mutex<Output>) -> MutexGuard<'_, Output> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TxQueue for Write {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let count = burst.len();
        if count == 0 {
            return 0;
        }
        let output = self.output.clone();
        let mut output = lock(&output);
        let timestamp_ns = now_ns();
        let (interface, direction) = (output.interface, Direction::Outbound);
        let (mut written, mut bytes, mut result) = (0, 0, Ok(()));
        for packet in burst.iter() {
            let record = Record {
                interface,
                timestamp_ns,
                direction,
                frame: packet.data(),
                comment: "",
            };
            // The first failure stands for the whole burst: the others would fail as slowly.
            result = output.writer.write(&record);
            if result.is_err() {
                break;
            }
            written += 1;
            bytes += packet.len() as u64;
        }
        output.waiting.get_or_insert_with(Instant::now);
        self.report(result, &output.path);
        self.stats.passed(written, bytes);
        if written < count as u64 {
            self.stats
                .dropped(DropReason::WriteFailed, count as u64 - written);
        }
        cache.free(burst);
        count
    }

    fn flush(&mut self, _: &mut PoolCache) {
        let output = self.output.clone();
        let mut output = lock(&output);
        if output.waiting.is_some() {
            let result = output.write_old();
            // "Not yet" is no success.
            if result.is_err() || output.waiting.is_none() {
                self.report(result, &output.path);
            }
        }
    }
}
