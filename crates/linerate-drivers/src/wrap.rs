//! The options that every kind of port takes: faults, traces and captures around the driver.

use crate::Opener;
use linerate_core::port::pcapng::Direction;
use linerate_core::port::{
    Capture, CaptureConfig, Faulty, OptionHelp, Port, PortError, Spec, Traced,
};
use std::fs::File;
use std::io::{BufWriter, Write, stderr};
use std::path::Path;

/// What every port takes besides its driver's options.
pub const COMMON_OPTIONS: &[OptionHelp] = &[
    OptionHelp {
        key: "faulty",
        value: "FAULT:N[+...]",
        help: "probabilities loss, dup, reorder[@TIME], flip, burst:ENTER/LEAVE[/LOSS]; a link of \
            rate:100M, and queue:N or NkB before it (default 1000), ce:P or ce:queue@N; delay:20ms \
            (delay:N: packets), jitter:[normal@]2ms, order:keep; keep:N packets at most; seed; \
            on:rx|tx|both; rx.KEY and tx.KEY are for one direction",
    },
    OptionHelp {
        key: "trace",
        value: "FILE|-",
        help: "one line per packet; - is the standard error",
    },
    OptionHelp {
        key: "capture",
        value: "FILE",
        help: "copy what passes to a pcapng file",
    },
    OptionHelp {
        key: "capture_filter",
        value: "FILTER",
        help: "only what matches, such as `tcp port 80`",
    },
    OptionHelp {
        key: "capture_dir",
        value: "rx|tx|both",
        help: "which way; default both",
    },
    OptionHelp {
        key: "capture_snaplen",
        value: "N",
        help: "bytes kept of each frame; default 0: all",
    },
    OptionHelp {
        key: "capture_max_mb",
        value: "N",
        help: "most MB of frames; default 1000, 0: no bound",
    },
    OptionHelp {
        key: "capture_max_packets",
        value: "N",
        help: "most frames; default 0: no bound",
    },
];

/// Wraps a port by its specification. Faults are the wire's: traces and captures show what the
/// application sends and gets.
pub(crate) fn wrap(
    spec: &Spec,
    mut port: Box<dyn Port>,
    opener: &dyn Opener,
) -> Result<Box<dyn Port>, PortError> {
    if let Some(text) = spec.text("faulty") {
        let faults = text
            .parse()
            .map_err(|reason: String| spec.bad("faulty", format!("different: {reason}")))?;
        port = Box::new(Faulty::new(port, faults));
    }
    if let Some(path) = spec.text("capture") {
        let config = capture_config(spec)?;
        let file = create(spec, "capture", path, opener)?;
        port = Box::new(Capture::to(port, path, Box::new(file), config)?);
    } else if let Some(key) = CAPTURE_KEYS
        .into_iter()
        .find(|key| spec.text(key).is_some())
    {
        return Err(spec.bad(key, "together with capture=FILE"));
    }
    if let Some(path) = spec.text("trace") {
        let out: Box<dyn Write + Send> = match path {
            "-" => Box::new(stderr()),
            _ => Box::new(BufWriter::new(create(spec, "trace", path, opener)?)),
        };
        port = Box::new(Traced::to(port, path, out));
    }
    Ok(port)
}

const CAPTURE_KEYS: [&str; 5] = [
    "capture_filter",
    "capture_dir",
    "capture_snaplen",
    "capture_max_mb",
    "capture_max_packets",
];

fn capture_config(spec: &Spec) -> Result<CaptureConfig, PortError> {
    let filter = match spec.text("capture_filter") {
        None => None,
        Some(text) => {
            let filter = text.parse();
            Some(filter.map_err(|error| spec.bad("capture_filter", format!("a filter: {error}")))?)
        }
    };
    let direction = match spec.text("capture_dir") {
        None | Some("both") => None,
        Some("rx") => Some(Direction::Inbound),
        Some("tx") => Some(Direction::Outbound),
        Some(_) => return Err(spec.bad("capture_dir", "`rx`, `tx` or `both`")),
    };
    Ok(CaptureConfig {
        filter,
        direction,
        snap_bytes: spec.number("capture_snaplen", 0, 0..=u32::MAX)?,
        most_bytes: spec.number("capture_max_mb", 1000, 0..=1_000_000_000)? * 1_000_000,
        most_pkts: spec.number("capture_max_packets", 0, 0..=u64::MAX)?,
    })
}

fn create(spec: &Spec, key: &str, path: &str, opener: &dyn Opener) -> Result<File, PortError> {
    if path.is_empty() {
        return Err(spec.bad(key, "a file"));
    }
    let error = |source| PortError::File {
        port: spec.name(),
        action: "create",
        path: path.into(),
        source,
    };
    opener.write_file(Path::new(path), false).map_err(error)
}
