//! Good connections beside forged SYNs: as many as a server serves a second, with a flood and
//! without.
//!
//! The flood is counted by the server's own time: for each microsecond that it has worked, one SYN
//! of a host that does not exist comes by the same wire. So the figure is what a lcore serves that
//! does nothing else, whatever the other end of the bench costs. The flood fills the queue of
//! half-open connections first; from then on all are answered by cookies, good ones too (RFC 4987
//! 3.6).

use std::net::Ipv4Addr;

use linerate_core::env::Clock;
use linerate_stack::host::Route;

use super::tcp::{Pair, address, lost};
use super::tcp_conn::{Opening, syn};
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "tcp.flood.good",
        about: "TCP connections that a server serves beside 1 M forged SYNs a second",
        run: |row, run| good(row, run, FLOOD_PER_S),
    },
    Row {
        name: "tcp.flood.calm",
        about: "the same without the flood",
        run: |row, run| good(row, run, 0.0),
    },
];

/// Forged SYNs for a second of the server's time.
const FLOOD_PER_S: f64 = 1e6;
/// Most of them at once: what the ring takes beside everything else.
const AT_ONCE: usize = 1024;

/// Who sends SYNs as if from many.
struct Forger {
    frames: Vec<Vec<u8>>,
    per_tick: f64,
    sent: u64,
    /// Those for which there was no slot.
    lost: u64,
}

impl Forger {
    /// Sends as many as are due by the server's time.
    fn send(&mut self, pair: &mut Pair) {
        let due = (pair.server_ticks as f64 * self.per_tick) as u64;
        let count = due.saturating_sub(self.sent).min(AT_ONCE as u64);
        for _ in 0..count {
            let frame = &self.frames[self.sent as usize % self.frames.len()];
            self.sent += 1;
            let out = &mut pair.client.out;
            match out.cache.copy_of(frame) {
                Some(packet) => out.send_one(0, packet),
                None => self.lost += 1,
            }
        }
        pair.client.out.flush();
    }
}

/// Thousands of connections a second of the server's time.
fn good(row: &'static str, run: Run, per_s: f64) -> Result<Sample, Error> {
    let mut opening = Opening::new(run.quick)?;
    let pair = &mut opening.pair;
    // Its answers to the forged SYNs leave by the same wire.
    let host = pair.server.stack.host();
    let lan = host.interface_of(0).expect("the pair has an interface");
    let by = Route::by((Ipv4Addr::UNSPECIFIED.into(), 0), address(1), lan);
    host.add_route(by).map_err(std::io::Error::other)?;
    let (pages, hz) = (pair.pages, Clock::hz(&pair.clock));
    let mut forger = Forger {
        frames: (0..1 << 14).map(syn).collect(),
        per_tick: per_s / hz,
        sent: 0,
        lost: 0,
    };
    let (opening, forger) = run.pinned(move |run| {
        let turn = |opening: &mut Opening, forger: &mut Forger| {
            let before = opening.ended;
            opening.client_turn();
            forger.send(&mut opening.pair);
            // What forging takes is not the server's.
            opening.pair.rest();
            opening.server_turn();
            opening.ended - before
        };
        run.time_for(run.duration / 5, &mut || turn(&mut opening, &mut forger));
        opening.pair.reset();
        (opening.ended, forger.sent, forger.lost) = (0, 0, 0);
        run.time_for(run.duration, &mut || turn(&mut opening, &mut forger));
        (opening, forger)
    })?;
    let server = &opening.pair.server.stack;
    let cookies = server.stats().cookies_sent;
    if opening.ended == 0 || forger.lost > 0 {
        return Err(lost("connections did not end, or SYNs were not sent"));
    }
    if forger.sent as usize > forger.frames.len() && cookies == 0 {
        return Err(lost("the flood was not answered by cookies"));
    }
    let seconds = opening.pair.server_ticks as f64 / hz;
    let value = opening.ended as f64 / seconds / 1e3;
    Ok(Sample::new(row, value, "K/s", pages)
        .with("forged_per_s", forger.sent as f64 / seconds)
        .with("cookies", cookies)
        .with("connections", opening.ended))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn connections_are_served_beside_a_flood_that_cookies_answer() {
        let run = Run {
            duration: Duration::from_millis(200),
            ..Run::quick()
        };
        let sample = good("tcp.flood.good", run, FLOOD_PER_S).unwrap();
        let detail = |key: &str| sample.detail[key].as_f64().unwrap();
        assert!(sample.value > 0.0 && detail("cookies") > 0.0);
        let forged = detail("forged_per_s");
        assert!((0.5e6..1.5e6).contains(&forged), "{forged}");
        let calm = good("tcp.flood.calm", Run::quick(), 0.0).unwrap();
        assert_eq!(calm.detail["cookies"].as_f64(), Some(0.0));
    }
}
