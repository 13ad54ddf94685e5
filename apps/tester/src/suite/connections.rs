//! Connections through a device, opened from one side and answered from the other.
//!
//! The frames of so many connections are all pairs of a range of ports and one of addresses, which
//! the two streams run through whole: wherever they begin, each connection is met once.

use std::time::{Duration, Instant};

use super::tester::Running;
use crate::method::{Connected, Load, Opened};
use linerate_appliance::error::Error;

/// Most ports, and addresses behind them: those of one network of RFC 2544 C.2.2.
const PORTS: u64 = 32_768;
const ADDRESSES: u64 = 254;
const FIRST_PORT: u64 = 1024;

/// How many ports and addresses make `connections`, or a few more.
fn ranges(connections: u64) -> (u64, u64) {
    let addresses = connections.div_ceil(PORTS).clamp(1, ADDRESSES);
    (connections.div_ceil(addresses).clamp(1, PORTS), addresses)
}

/// The keys of both streams, of the first frames and of the answers.
fn keys(ranges: (u64, u64)) -> [Vec<(&'static str, String)>; 2] {
    let range = |first: u64, count: u64, of: &str| match count {
        1 => format!("{of}{first}"),
        count => format!("{of}{first}-{of}{}", first + count - 1),
    };
    let ports = range(FIRST_PORT, ranges.0, "");
    let hosts = range(1, ranges.1, "198.19.0.");
    let own = || "198.18.0.1".to_string();
    let is_nested = ranges.0 > 1 && ranges.1 > 1;
    // Only fields that vary can be nested.
    let nest = |names: &str| match is_nested {
        true => ("nest", names.to_string()),
        false => ("nest", "default".to_string()),
    };
    [
        vec![
            ("nest", "default".into()),
            ("src", own()),
            ("dst", hosts.clone()),
            ("sport", ports.clone()),
            ("dport", "9".into()),
            nest("sport,dst"),
        ],
        vec![
            ("nest", "default".into()),
            ("src", hosts),
            ("dst", own()),
            ("sport", "9".into()),
            ("dport", ports),
            nest("dport,src"),
        ],
    ]
}

impl Running<'_> {
    /// One trial of RFC 9693; `None` where the device knows no connections.
    pub(super) fn connect(&mut self, opened: &Opened) -> Result<Option<Connected>, Error> {
        if self.stand.setup.under_test.forget()?.is_none() {
            return Ok(None);
        }
        let ranges = ranges(opened.connections);
        for (stream, keys) in (0..).zip(keys(ranges)) {
            for (key, value) in keys {
                self.stand.session.set_stream(stream, key, &value)?;
            }
        }
        let many = ranges.0 * ranges.1;
        let load = |pps: f64| Load {
            frame_bytes: opened.frame_bytes,
            pps: Some(pps),
            duration: Duration::from_secs_f64(many as f64 / pps * 2.0 + 1.0),
            count: Some(many),
            ..Load::default()
        };
        let first = self.offer_from(0, &load(opened.pps))?;
        let answers = self.offer_from(1, &load(opened.answers_pps))?;
        let began = Instant::now();
        let known = self.stand.setup.under_test.forget()?.unwrap_or(0);
        let forgotten_ns = began.elapsed().as_nanos() as u64;
        Ok(Some(Connected {
            first: first.trial,
            answers: answers.trial,
            known,
            forgotten_ns,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_make_at_least_as_many_connections_and_hardly_more() {
        for many in [1, 1000, 32_768, 32_769, 50_000, 262_144, 4 << 20] {
            let (ports, addresses) = ranges(many);
            let made = ports * addresses;
            assert!((many..many + addresses).contains(&made), "{many}: {made}");
            assert!(ports <= PORTS && addresses <= ADDRESSES);
        }
    }

    #[test]
    fn answers_are_the_mirror_of_first_frames() {
        let [first, answers] = keys(ranges(100_000));
        let of = |keys: &[(&str, String)], name: &str| {
            let found = keys.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.clone())
        };
        for (one, other) in [
            ("src", "dst"),
            ("dst", "src"),
            ("sport", "dport"),
            ("dport", "sport"),
        ] {
            assert_eq!(of(&first, one), of(&answers, other));
        }
        assert_eq!(of(&first, "dst").as_deref(), Some("198.19.0.1-198.19.0.4"));
        assert_eq!(of(&first, "sport").as_deref(), Some("1024-26023"));
    }
}
