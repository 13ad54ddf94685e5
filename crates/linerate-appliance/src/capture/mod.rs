//! `linerate capture`: packets of a running appliance to a pcapng file, or to a pipe into tcpdump.
//!
//! The [appliance](crate::control::capture) copies what matches into a bounded ring and writes it
//! to its socket as pcapng; this side passes that on. Packets that did not fit into the ring, or
//! were not read in time, are counted and shown.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::runtime::Interrupts;
use crate::error::Error;
use crate::socket::{Caller, START_ONE, found_socket};

/// Longest piece that an appliance sends at once, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Arguments of `linerate capture`.
#[derive(clap::Args)]
pub struct Args {
    /// Socket of the appliance; default: the usual one of a router
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Only at this port, or at this host interface of a router; may be repeated. Default: all
    /// ports
    #[arg(long, value_name = "NAME")]
    port: Vec<String>,
    /// Only at this stage: pipeline (as it came), sent (as it goes), drop (what is dropped, with
    /// the reason), or another one that `linerate ctl show path` names. Default: pipeline and sent
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
    /// Which packets, in the words of tcpdump; default: all
    #[arg(long, value_name = "EXPR", default_value = "")]
    filter: String,
    /// File to write, or - for standard output
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// Packets after which to end
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Bytes kept of each packet
    #[arg(long, value_name = "BYTES", default_value_t = 65_535)]
    snap: u32,
}

/// The summary at the end.
#[derive(Debug, Deserialize)]
struct Summary {
    captured: u64,
    matched: u64,
    dropped: u64,
}

/// Runs `linerate capture`.
///
/// # Errors
/// No appliance answers, it refuses, or the output cannot be written.
pub fn run(args: &Args) -> Result<(), Error> {
    let to_stdout = args.write == Path::new("-");
    if to_stdout && io::stdout().is_terminal() {
        return Err(Error::Usage {
            problem: "packets are no text for a terminal".into(),
            fix: "pipe them: `linerate capture -w - | tcpdump -r -`, or name a file".into(),
        });
    }
    let path = args.socket.clone().unwrap_or_else(found_socket);
    let mut appliance = Caller::connect(&path, START_ONE)?;
    let params = json!({
        "ports": args.port,
        "stage": args.stage,
        "filter": args.filter,
        "count": args.count,
        "snap": args.snap,
    });
    appliance.call("capture", params, |_| Ok(()))?;
    // Opened only now, so that a refusal leaves no empty file behind.
    let mut out: Box<dyn Write> = match to_stdout {
        true => Box::new(io::stdout().lock()),
        false => Box::new(File::create(&args.write).map_err(|source| Error::File {
            path: args.write.clone(),
            source,
        })?),
    };
    let (mut pieces, wire) = appliance.into_stream()?;
    let interrupts = Interrupts::catch()?;
    let ended = Arc::new(AtomicBool::new(false));
    let summary = std::thread::scope(|scope| {
        let over = ended.clone();
        let wire = &wire;
        scope.spawn(move || {
            while !over.load(Ordering::SeqCst) {
                if interrupts.wait(Duration::from_millis(50)) {
                    // The appliance sees the end, and sends the summary.
                    let _ = wire.shutdown(Shutdown::Write);
                    return;
                }
            }
        });
        let result = pass_on(&mut pieces, &mut out);
        ended.store(true, Ordering::SeqCst);
        result
    })?;
    if let Some(Summary {
        captured,
        matched,
        dropped,
    }) = summary
    {
        eprintln!("{captured} packets captured, {matched} matched, {dropped} dropped");
    }
    Ok(())
}

/// Passes pieces on until the empty one, which is before the summary. `None` if our reader has
/// closed the output.
fn pass_on(from: &mut impl Read, out: &mut impl Write) -> Result<Option<Summary>, Error> {
    let broken = || Error::Usage {
        problem: "the appliance has ended in the middle of the capture".into(),
        fix: "what was written so far is valid; start it and capture again".into(),
    };
    let mut piece = Vec::new();
    loop {
        let mut length = [0; 4];
        from.read_exact(&mut length).map_err(|_| broken())?;
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 {
            break;
        }
        if length > PIECE_BYTES {
            return Err(broken());
        }
        piece.resize(length, 0);
        from.read_exact(&mut piece).map_err(|_| broken())?;
        match out.write_all(&piece).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(None),
            result => result?,
        }
    }
    let mut line = String::new();
    from.read_to_string(&mut line)?;
    let summary = serde_json::from_str(&line).map_err(io::Error::from)?;
    Ok(Some(summary))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_and_the_summary_is_no_part_of_them() {
        let mut sent = Vec::new();
        for piece in [&b"abc"[..], b"de", b""] {
            sent.extend((piece.len() as u32).to_le_bytes());
            sent.extend(piece);
        }
        sent.extend(br#"{"captured":1,"matched":2,"dropped":1}"#);
        let mut out = Vec::new();
        let summary = pass_on(&mut &sent[..], &mut out).unwrap().unwrap();
        assert_eq!(out, b"abcde");
        assert_eq!(
            (summary.captured, summary.matched, summary.dropped),
            (1, 2, 1)
        );
    }

    #[test]
    fn a_router_that_ends_in_the_middle_is_an_error() {
        for sent in [&[5, 0, 0, 0, 1, 2][..], &[0xff; 8], &[1, 0]] {
            assert!(pass_on(&mut &sent[..], &mut Vec::new()).is_err());
        }
    }
}
