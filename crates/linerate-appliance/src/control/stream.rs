//! Requests that are answered by packets, for as long as somebody listens:
//! [captures](super::capture)
//! and [traces](super::trace).

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, SystemTime};

use linerate_wire::filter::{Filter, FilterError};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::socket::Problem;

/// How often is looked whether the client is still there, and how long a packet may wait for
/// others.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// Parameters of a method.
///
/// # Errors
/// They are those of another one.
pub(super) fn read<T: DeserializeOwned>(params: &Value) -> Result<T, Problem> {
    serde_json::from_value(params.clone())
        .map_err(|error| Problem::new(error.to_string(), "see docs/ctl.md for the parameters"))
}

/// A filter as people write it; none for all.
///
/// # Errors
/// What is wrong with it.
pub(super) fn filter(text: &str) -> Result<Option<Filter>, Problem> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let wrong = |error: FilterError| {
        let fix = "write it as for tcpdump, such as `udp port 53 and not src net 10.0.0.0/8`";
        Problem::new(format!("filter `{text}`: {error}"), fix)
    };
    text.parse().map(Some).map_err(wrong)
}

/// Whether the client has closed its side; anything else that it says means nothing here.
pub(super) fn has_gone(stream: &mut UnixStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let read = stream.read(&mut [0; 64]);
    stream.set_nonblocking(false)?;
    Ok(match read {
        Ok(count) => count == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    })
}

/// Nanoseconds since 1970 UTC.
pub(super) fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |passed| passed.as_nanos() as u64)
}

/// Any parameters as those of a capture or a trace: an error, or a filter that can be asked.
#[cfg(any(test, feature = "fuzz"))]
pub fn fuzz_params(params: &Value) {
    let captured = read::<super::capture::Asked>(params).map(|asked| asked.filter);
    let traced = read::<super::trace::Asked>(params).map(|asked| asked.filter);
    for text in [captured, traced].into_iter().flatten() {
        match filter(&text) {
            Ok(filter) => assert_eq!(filter.is_none(), text.trim().is_empty()),
            Err(problem) => assert!(problem.problem.contains(&text) && !problem.fix.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_refused_with_what_is_wrong() {
        assert!(filter("").unwrap().is_none());
        let problem = filter("prot 53").unwrap_err();
        assert!(problem.problem.contains("prot"), "{problem}");
        let wrong: Result<super::super::trace::Asked, _> = read(&serde_json::json!({ "n": 1 }));
        assert!(wrong.unwrap_err().problem.contains("`n`"));
    }
}
