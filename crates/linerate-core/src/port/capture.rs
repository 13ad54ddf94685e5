//! Copies what passes a port to a pcapng file: filtered, cut, and bounded.

use super::observed::{Observed, Observer, SeenFrame};
use super::pcapng::{Direction, InterfaceId, PcapngWriter, Record};
use super::{Port, PortError};
use linerate_wire::filter::Filter;
use std::io::{self, Write};

/// A port whose packets are captured.
pub type Capture = Observed<Capturer>;

/// What to capture.
#[derive(Clone, Debug, Default)]
pub struct CaptureConfig {
    /// Only packets that match; `None`: all.
    pub filter: Option<Filter>,
    /// Only one direction; `None`: both.
    pub direction: Option<Direction>,
    /// Bytes kept of each frame; 0 for all.
    pub snap_bytes: u32,
    /// Most bytes of frames in the file; 0 for no bound.
    pub most_bytes: u64,
    /// Most frames in the file; 0 for no bound.
    pub most_pkts: u64,
}

/// Writes the file. Packets after a limit, or after a failed write, are counted as missing in the
/// file's statistics; the port is not affected.
pub struct Capturer {
    writer: PcapngWriter<Box<dyn Write + Send>>,
    interface: InterfaceId,
    config: CaptureConfig,
    /// The file, for messages.
    target: String,
    /// Frames that matched, and those of them that were taken, with their bytes.
    matched: u64,
    taken: u64,
    taken_bytes: u64,
    last_ns: u64,
    failure: Option<io::Error>,
}

impl Capture {
    /// Writes packets of `port` to `out`, which messages call `target`.
    ///
    /// # Errors
    /// [`PortError::File`] if `out` cannot be written.
    pub fn to(
        port: Box<dyn Port>,
        target: &str,
        out: Box<dyn Write + Send>,
        config: CaptureConfig,
    ) -> Result<Self, PortError> {
        let name = port.info().name;
        let mut writer = PcapngWriter::new(out, "linerate");
        let interface = writer
            .add_interface(&name, config.snap_bytes)
            .and_then(|interface| {
                writer.finish()?; // a disk that is full already shows now
                Ok(interface)
            });
        let path: String = target.into();
        let interface = interface.map_err(|source| PortError::File {
            port: name,
            action: "capture to",
            path,
            source,
        })?;
        let capturer = Capturer {
            writer,
            interface,
            config,
            target: target.into(),
            matched: 0,
            taken: 0,
            taken_bytes: 0,
            last_ns: 0,
            failure: None,
        };
        Ok(Self::new(port, capturer))
    }
}

impl Capturer {
    fn kept_bytes(&self, frame: &[u8]) -> u64 {
        let snap = if self.config.snap_bytes == 0 {
            usize::MAX
        } else {
            self.config.snap_bytes as usize
        };
        frame.len().min(snap) as u64
    }

    fn is_full(&self, frame: &[u8]) -> bool {
        let CaptureConfig {
            most_bytes,
            most_pkts,
            ..
        } = self.config;
        (most_pkts > 0 && self.taken >= most_pkts)
            || (most_bytes > 0 && self.taken_bytes + self.kept_bytes(frame) > most_bytes)
    }
}

impl Observer for Capturer {
    fn wants(&mut self, seen: &SeenFrame<'_>) -> bool {
        self.config
            .direction
            .is_none_or(|way| way == seen.direction)
            && self
                .config
                .filter
                .as_ref()
                .is_none_or(|filter| filter.matches(seen.frame))
    }

    fn see(&mut self, seen: &SeenFrame<'_>) {
        let &SeenFrame {
            timestamp_ns,
            direction,
            frame,
            ..
        } = seen;
        self.matched += 1;
        self.last_ns = timestamp_ns;
        if self.failure.is_some() || self.is_full(frame) {
            return;
        }
        let record = Record {
            interface: self.interface,
            timestamp_ns,
            direction,
            frame,
            comment: "",
        };
        match self.writer.write(&record) {
            Ok(()) => {
                self.taken += 1;
                self.taken_bytes += self.kept_bytes(frame);
            }
            Err(error) => self.failure = Some(error),
        }
    }

    fn finish(&mut self, port: &str) -> Result<(), PortError> {
        let missing = self.matched - self.taken;
        let ended =
            self.writer
                .write_statistics(self.interface, self.last_ns, self.matched, missing);
        let result = self
            .failure
            .take()
            .map_or(Ok(()), Err)
            .and(ended)
            .and_then(|()| self.writer.finish());
        let (port, path) = (port.into(), self.target.clone());
        result.map_err(|source| PortError::File {
            port,
            action: "write the capture to",
            path,
            source,
        })
    }

    fn fact(&self) -> (&'static str, String) {
        let end = self
            .failure
            .as_ref()
            .map_or(String::new(), |error| format!(", ended: {error}"));
        (
            "capture",
            format!(
                "{} of {} frames to {}{end}",
                self.taken, self.matched, self.target
            ),
        )
    }

    fn missed(&self) -> u64 {
        self.matched - self.taken
    }

    fn warning(&self) -> Option<String> {
        let error = self.failure.as_ref()?;
        Some(format!(
            "nothing more is captured to {}: {error}",
            self.target
        ))
    }
}
