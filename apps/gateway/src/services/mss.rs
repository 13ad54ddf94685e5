//! `mss`: TCP connections use segments that fit where they go.
//!
//! The option of a SYN or SYN-ACK says what its sender takes (RFC 9293 3.7.1); it is lowered to
//! `size`, or to what fits both ways: the MTU of the route that the packet takes, and of the one
//! that its answers take, less the headers. A SYN without the option is left as it is: it means 536
//! bytes. Both directions have said theirs after one packet, so the service is then done.

use std::net::IpAddr;
use std::sync::Arc;

use linerate_tables::TableError;
use linerate_wire::tcp::{HEADER_LEN, Tcp, flag};
use linerate_wire::{checksum, ipv4, ipv6};

use super::{Given, Kind, Make, One, Outcome, Service};

pub(super) const KIND: Kind = Kind {
    name: "mss",
    is_named: false,
    directions: [true; 2],
    reads_payload: false,
    read: |section| {
        // RFC 9293 3.7.1, RFC 8200 5: what any path takes with room for options, and what any
        // packet can have.
        let size = section.and_then(|section| section.number::<u16>("size", 500..=65_495));
        Arc::new(Config(size.map(|at| at.value)))
    },
};

#[derive(Debug, PartialEq)]
struct Config(Option<u16>);

impl Make for Config {
    fn make(&self) -> Result<Box<dyn Service>, TableError> {
        Ok(Box::new(Mss(self.0)))
    }

    fn text(&self) -> String {
        match self.0 {
            Some(size) => format!("segments of at most {size} bytes"),
            None => "segments that fit the routes of both directions".into(),
        }
    }
}

struct Mss(Option<u16>);

impl Mss {
    /// The most that the sender of a SYN may be told to take.
    fn limit(&self, one: &One<'_, '_>) -> Option<u16> {
        if let Some(size) = self.0 {
            return Some(size);
        }
        let ends = [one.sender(), one.receiver()];
        // Behind NAT64 they are of different versions.
        let fits = |end: IpAddr| {
            let ip = match end.is_ipv4() {
                true => ipv4::HEADER_LEN,
                false => ipv6::HEADER_LEN,
            };
            Some(one.route_mtu(end)?.saturating_sub((ip + HEADER_LEN) as u16))
        };
        ends.into_iter().filter_map(fits).min()
    }
}

impl Service for Mss {
    fn run(&mut self, given: &mut Given<'_, '_>) {
        given.each(|one| {
            let segment = Tcp::new_checked(one.upper()).ok();
            let segment = segment.filter(|_| one.is_tcp());
            if segment.is_none_or(|segment| segment.flags() & flag::SYN == 0) {
                return Outcome::Done;
            }
            let Some(limit) = self.limit(one) else {
                return Outcome::Keep;
            };
            let (segment, is_partial) = one.upper_mut();
            if let Some(before) = clamp(segment, limit, is_partial) {
                one.note(|| format!("segments of {limit} bytes, not {before}"));
            }
            // A SYN may be repeated.
            Outcome::Keep
        });
    }
}

/// Lowers the largest segment that a SYN's sender takes to `limit`, and keeps its checksum right,
/// unless that is only begun. Returns what it was, if it was more.
pub fn clamp(segment: &mut [u8], limit: u16, is_partial: bool) -> Option<u16> {
    let header_len = Tcp::new_checked(&*segment).ok()?.header_len();
    let at = option(segment.get(HEADER_LEN..header_len)?)? + HEADER_LEN;
    let before = u16::from_be_bytes([segment[at], segment[at + 1]]);
    if before <= limit {
        return None;
    }
    // The checksum is over 16-bit words; the value need not begin at one.
    let (start, end) = (at & !1, (at + 2).next_multiple_of(2));
    let mut old = [0; 4];
    let old = &mut old[..end - start];
    old.copy_from_slice(&segment[start..end]);
    segment[at..at + 2].copy_from_slice(&limit.to_be_bytes());
    if !is_partial {
        let sum = u16::from_be_bytes([segment[16], segment[17]]);
        let sum = checksum::update(sum, old, &segment[start..end]);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
    }
    Some(before)
}

/// Where in the options the value of the largest segment is.
fn option(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *options.get(at)? {
            0 => return None,
            1 => at += 1,
            kind => {
                let len = usize::from(*options.get(at + 1)?);
                if len < 2 || at + len > options.len() {
                    return None;
                }
                if (kind, len) == (2, 4) {
                    return Some(at + 2);
                }
                at += len;
            }
        }
    }
}
