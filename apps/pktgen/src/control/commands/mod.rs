//! What commands do: one function for each row of the [table](super::table).

mod files;
mod look;
mod streams;
mod traffic;

pub(super) use files::{load, run_lines, save};
pub(super) use look::{dump, explain, help, log, map, page, quit, theme};
pub(super) use streams::{
    default_stream, pcap_load, pcap_start, random, range, seq, set, stream_add, stream_disable,
    stream_enable, stream_list, stream_remove, stream_set,
};
pub(super) use traffic::{arp, clear, delay, ping, sleep, start, stop, wait};

use std::time::Duration;

use super::protocol::{Problem, Reply};

/// An answer with text only.
fn text(text: impl Into<String>) -> Reply {
    Reply {
        text: text.into(),
        ..Reply::default()
    }
}

/// A time in seconds.
fn seconds(text: &str) -> Result<Duration, Problem> {
    let number = text.strip_suffix('s').unwrap_or(text).parse::<f64>();
    let time = number
        .ok()
        .and_then(|time| Duration::try_from_secs_f64(time).ok());
    time.ok_or_else(|| Problem::new(format!("`{text}` is no time"), "give seconds, such as 2.5"))
}

/// A whole number, for `what`.
fn number<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|_| {
        Problem::new(
            format!("{what} is `{text}`"),
            format!("give {what} as a whole number"),
        )
    })
}

/// `1 port`, `2 ports`.
fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
