//! IPv4 options and IPv6 extension headers of packets that are about to be forwarded.
//!
//! | option | what happens | why |
//! |---|---|---|
//! | source route, loose or strict | refused | RFC 1812 5.2.4.1 lets a router do so; RFC 7126 4.3, 4.4 ask for it |
//! | record route | our address is recorded | RFC 1812 5.2.4.2 |
//! | timestamp | the time is recorded | RFC 1812 5.2.4.3 |
//! | others, unknown ones and router alert too | forwarded as they are | RFC 1812 4.2.2.1, RFC 6398 4.2 |
//! | malformed | refused, with a parameter problem | RFC 1812 5.2.5 |
//! | IPv6 routing header of type 0 | refused | RFC 5095 |
//! | other extension headers, router alert too | forwarded as they are | RFC 8200 4, RFC 6398 4.2 |
//!
//! Router Alert asks every router on the way to look. No program here does: as in Linux without a
//! listener, the packet is forwarded rather than dropped at the first router.

use std::net::Ipv4Addr;
use std::time::{SystemTime, UNIX_EPOCH};

use linerate_wire::ipv4::{self, Ipv4};
use linerate_wire::ipv6;
use linerate_wire::protocol;

const END: u8 = 0;
const NOP: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;

/// What the options of a packet require of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing, or what is done on the way ([`record`]).
    Nothing,
    /// Source routing.
    SourceRoute,
    /// Malformed; the offending byte, from the start of the header.
    Malformed(u8),
}

/// One option: where it begins in the header, its kind, its bytes.
struct Walk<'a> {
    header: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Walk<'a> {
    /// The offending byte where it is none.
    type Item = Result<(usize, u8, &'a [u8]), u8>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.header.get(self.at..)?;
            match *rest.first()? {
                END => return None,
                NOP => self.at += 1,
                kind => {
                    // RFC 791 3.1: the length counts kind and length.
                    let len = rest.get(1).map_or(0, |&len| usize::from(len));
                    let Some(option) = rest.get(..len).filter(|_| len >= 2) else {
                        let offending = self.at as u8 + 1;
                        self.at = self.header.len();
                        return Some(Err(offending));
                    };
                    let at = self.at;
                    self.at += len;
                    return Some(Ok((at, kind, option)));
                }
            }
        }
    }
}

/// The options of the IPv4 header that `packet` begins with, whose lengths were checked.
fn walk(packet: &[u8]) -> Walk<'_> {
    let len = packet.first().map_or(0, |byte| usize::from(byte & 0xf) * 4);
    Walk {
        header: packet.get(..len).unwrap_or_default(),
        at: ipv4::HEADER_LEN,
    }
}

/// What the options of an IPv4 packet require.
pub(super) fn asked4(packet: &[u8]) -> Asked {
    let mut asked = Asked::Nothing;
    for option in walk(packet) {
        match option {
            Err(offending) => return Asked::Malformed(offending),
            Ok((at, RECORD_ROUTE, option)) => {
                // RFC 791: the pointer is relative to the option, at least 4; by RFC 1812 5.2.4.2 a
                // full one stays as it is.
                if option.get(2).is_none_or(|&pointer| pointer < 4) {
                    return Asked::Malformed(at as u8 + 2);
                }
            }
            Ok((at, TIMESTAMP, option)) => {
                if let Some(offending) = wrong_in_timestamp(option) {
                    return Asked::Malformed(at as u8 + offending);
                }
            }
            Ok((_, LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, _)) => asked = Asked::SourceRoute,
            Ok(_) => {}
        }
    }
    asked
}

/// What a timestamp option records: RFC 791 3.1.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stamps {
    Times,
    /// Of each an address and the time there.
    Addresses,
    /// The times of addresses that the sender has chosen.
    Prespecified,
}

impl Stamps {
    /// By its overflow and flags.
    fn of(flags: u8) -> Option<Self> {
        match flags & 0xf {
            0 => Some(Self::Times),
            1 => Some(Self::Addresses),
            3 => Some(Self::Prespecified),
            _ => None,
        }
    }

    /// Bytes of one.
    fn len(self) -> usize {
        if self == Self::Times { 4 } else { 8 }
    }
}

/// The offset of the wrong byte of a timestamp option: RFC 791 3.1 says to discard such a packet.
fn wrong_in_timestamp(option: &[u8]) -> Option<u8> {
    let &[_, _, pointer, flags, ..] = option else {
        return Some(1);
    };
    let (pointer, stamps) = (usize::from(pointer), Stamps::of(flags)?);
    if pointer < 5 {
        return Some(2);
    }
    if pointer <= option.len() {
        // Some room, but not enough for a whole one.
        return (pointer - 1 + stamps.len() > option.len()).then_some(2);
    }
    // The count of routers without room would overflow.
    (stamps != Stamps::Prespecified && flags >> 4 == 15).then_some(3)
}

/// How far the time of day is ahead of a worker's clock. It is updated now and then, not for each
/// packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Day {
    ahead_ms: u64,
}

impl Day {
    /// As it is at `now_ns` of the worker's clock.
    pub(super) fn at(now_ns: u64) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ms = since.map_or(0, |since| since.as_millis() as u64);
        Self {
            ahead_ms: unix_ms.wrapping_sub(now_ns / 1_000_000),
        }
    }

    /// Milliseconds since midnight UT.
    pub(super) fn ms(self, now_ns: u64) -> u32 {
        const DAY_MS: u64 = 24 * 60 * 60 * 1000;
        (self.ahead_ms.wrapping_add(now_ns / 1_000_000) % DAY_MS) as u32
    }
}

/// Writes `address`, that of the interface that the packet leaves by, where a record route option
/// has room for it (RFC 1812 5.2.4.2), and the time into a timestamp option (5.2.4.3), and corrects
/// the checksum. `is_ours` knows the router's addresses.
pub(super) fn record(
    packet: &mut [u8],
    address: Ipv4Addr,
    now_ms: u32,
    is_ours: impl Fn(Ipv4Addr) -> bool,
) {
    let (mut route, mut times) = (None, None);
    for (at, kind, option) in walk(packet).flatten() {
        match kind {
            RECORD_ROUTE => route = route.or(Some(at..at + option.len())),
            TIMESTAMP => times = times.or(Some(at..at + option.len())),
            _ => {}
        }
    }
    if route.is_none() && times.is_none() {
        return;
    }
    if let Some(option) = route.and_then(|place| packet.get_mut(place)) {
        record_route(option, address);
    }
    if let Some(option) = times.and_then(|place| packet.get_mut(place)) {
        record_time(option, address, now_ms, is_ours);
    }
    if let Ok(mut ip) = Ipv4::new_checked(packet) {
        ip.fill_checksum();
    }
}

fn record_route(option: &mut [u8], address: Ipv4Addr) {
    // RFC 791: full if the pointer exceeds the length; 4 bytes are needed from the pointer (from
    // 1).
    let pointer = usize::from(option[2]);
    if pointer < 4 {
        return;
    }
    if let Some(place) = option.get_mut(pointer - 1..pointer + 3) {
        place.copy_from_slice(&address.octets());
        option[2] = pointer as u8 + 4;
    }
}

/// Fills in a timestamp option that [`wrong_in_timestamp`] has accepted.
fn record_time(
    option: &mut [u8],
    address: Ipv4Addr,
    now_ms: u32,
    is_ours: impl Fn(Ipv4Addr) -> bool,
) {
    let &mut [_, _, pointer, flags, ..] = option else {
        return;
    };
    let Some(stamps) = Stamps::of(flags).filter(|_| pointer >= 5) else {
        return;
    };
    let start = usize::from(pointer) - 1;
    let Some(place) = option.get_mut(start..start + stamps.len()) else {
        // Full: routers without room are counted, except those that a prespecified option does not
        // name.
        if stamps != Stamps::Prespecified && flags >> 4 < 15 {
            option[3] += 0x10;
        }
        return;
    };
    let time = now_ms.to_be_bytes();
    match (stamps, place) {
        (Stamps::Times, place) => place.copy_from_slice(&time),
        (Stamps::Addresses, place) => {
            place[..4].copy_from_slice(&address.octets());
            place[4..].copy_from_slice(&time);
        }
        (Stamps::Prespecified, &mut [a, b, c, d, ref mut place @ ..])
            if is_ours(Ipv4Addr::new(a, b, c, d)) =>
        {
            place.copy_from_slice(&time);
        }
        (Stamps::Prespecified, _) => return,
    }
    option[2] = pointer + stamps.len() as u8;
}

/// Whether an IPv6 packet has a routing header of type 0 with segments left (RFC 5095), and where:
/// the offset of its type in the packet.
pub(super) fn routing_header_0(packet: &[u8]) -> Option<usize> {
    let mut next = *packet.get(6)?;
    let mut at = ipv6::HEADER_LEN;
    for _ in 0..=ipv6::MAX_EXTENSIONS {
        let header = packet.get(at..)?.first_chunk::<4>()?;
        match next {
            protocol::ROUTING if header[2] == 0 && header[3] > 0 => return Some(at + 2),
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DEST_OPTIONS => {
                at += (usize::from(header[1]) + 1) * 8;
            }
            // RFC 5095 speaks of headers before the fragment header: those that routers see.
            _ => return None,
        }
        next = header[0];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with these options, padded with ends.
    fn header(options: &[u8]) -> Vec<u8> {
        let words = 5 + options.len().div_ceil(4);
        let mut packet = vec![0; words * 4];
        packet[..20].copy_from_slice(&[
            0x40 | words as u8,
            0,
            0,
            words as u8 * 4,
            0,
            0,
            0,
            0,
            64,
            17,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ]);
        packet[20..20 + options.len()].copy_from_slice(options);
        let mut ip = Ipv4::new_checked(&mut packet).expect("lengths are right");
        ip.fill_checksum();
        packet
    }

    #[test]
    fn rfc1812_5_2_4_1_source_routes_are_seen() {
        for kind in [LOOSE_SOURCE_ROUTE, STRICT_SOURCE_ROUTE] {
            let packet = header(&[NOP, kind, 7, 4, 1, 2, 3, 4]);
            assert_eq!(asked4(&packet), Asked::SourceRoute);
        }
    }

    #[test]
    fn rfc1812_4_2_2_1_unknown_options_ask_nothing() {
        assert_eq!(asked4(&header(&[])), Asked::Nothing);
        assert_eq!(asked4(&header(&[0x9e, 4, 1, 2, NOP])), Asked::Nothing);
        // Bytes behind the end of the list have no meaning.
        assert_eq!(
            asked4(&header(&[END, STRICT_SOURCE_ROUTE, 1])),
            Asked::Nothing
        );
        // RFC 6398: so is router alert.
        assert_eq!(asked4(&header(&[148, 4, 0, 0])), Asked::Nothing);
    }

    #[test]
    fn rfc1812_5_2_5_the_offending_byte_is_named() {
        assert_eq!(asked4(&header(&[NOP, 0x9e, 1])), Asked::Malformed(22));
        assert_eq!(asked4(&header(&[0x9e, 0])), Asked::Malformed(21));
        assert_eq!(
            asked4(&header(&[NOP, NOP, NOP, 0x9e])),
            Asked::Malformed(24)
        );
        assert_eq!(asked4(&header(&[0x9e, 5, 0, 0])), Asked::Malformed(21));
        assert_eq!(
            asked4(&header(&[RECORD_ROUTE, 7, 3, 0, 0, 0, 0])),
            Asked::Malformed(22)
        );
    }

    #[test]
    fn rfc1812_5_2_4_2_routes_are_recorded_until_the_option_is_full() {
        let mut packet = header(&[RECORD_ROUTE, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut pass = |last| {
            record(&mut packet, Ipv4Addr::new(192, 0, 2, last), 0, |_| false);
            packet.clone()
        };
        assert_eq!(pass(1)[20..27], [RECORD_ROUTE, 11, 8, 192, 0, 2, 1]);
        let full = pass(2);
        assert_eq!(full[22..31], [12, 192, 0, 2, 1, 192, 0, 2, 2]);
        assert_eq!(pass(3), full);
        assert!(Ipv4::new_checked(&full).expect("as before").verify());
    }

    const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    /// A packet with a timestamp option after it has passed us at 0x01020304 ms.
    fn stamped(option: &[u8]) -> Vec<u8> {
        let mut packet = header(option);
        assert_eq!(asked4(&packet), Asked::Nothing);
        record(&mut packet, OWN, 0x0102_0304, |address| address == OWN);
        assert!(Ipv4::new_checked(&packet).expect("as before").verify());
        packet[20..20 + option.len()].to_vec()
    }

    #[test]
    fn rfc1812_5_2_4_3_the_time_is_recorded() {
        let none = [0; 8];
        let with = |front: [u8; 4], rest: &[u8]| [&front[..], rest].concat();
        // Times alone.
        assert_eq!(
            stamped(&with([68, 12, 5, 0], &none)),
            with([68, 12, 9, 0], &[1, 2, 3, 4, 0, 0, 0, 0])
        );
        // Addresses, too.
        assert_eq!(
            stamped(&with([68, 12, 5, 1], &none)),
            with([68, 12, 13, 1], &[192, 0, 2, 1, 1, 2, 3, 4])
        );
        // Addresses that the sender has chosen: ours, and another's.
        let ours = [192, 0, 2, 1, 0, 0, 0, 0];
        assert_eq!(
            stamped(&with([68, 12, 5, 3], &ours)),
            with([68, 12, 13, 3], &[192, 0, 2, 1, 1, 2, 3, 4])
        );
        let other = with([68, 12, 5, 3], &[192, 0, 2, 9, 0, 0, 0, 0]);
        assert_eq!(stamped(&other), other);
        // Full: counted. Flags that nobody knows: left alone.
        assert_eq!(
            stamped(&with([68, 8, 9, 0x10], &[9; 4])),
            with([68, 8, 9, 0x20], &[9; 4])
        );
        let full = with([68, 12, 13, 0xf3], &none);
        assert_eq!(stamped(&full), full);
        let unknown = with([68, 12, 5, 2], &none);
        assert_eq!(stamped(&unknown), unknown);
    }

    #[test]
    fn rfc791_3_1_timestamp_options_that_are_wrong() {
        for (option, offending) in [
            (&[68, 3, 5, 0][..], 21),
            (&[68, 8, 4, 0, 0, 0, 0, 0], 22),
            (&[68, 8, 6, 0, 0, 0, 0, 0], 22),
            (&[68, 8, 5, 1, 0, 0, 0, 0], 22),
            (&[68, 8, 9, 0xf0, 0, 0, 0, 0], 23),
        ] {
            let asked = asked4(&header(option));
            assert_eq!(asked, Asked::Malformed(offending), "{option:?}");
        }
    }

    #[test]
    fn the_day_is_counted_from_midnight() {
        let day = Day {
            ahead_ms: 86_399_000,
        };
        assert_eq!(day.ms(0), 86_399_000);
        assert_eq!(day.ms(1_500_000_000), 500);
        let now = Day::at(5_000_000_000).ms(5_000_000_000);
        assert!(now < 86_400_000);
    }

    #[test]
    fn rfc5095_routing_header_type_0_is_found_behind_others() {
        let mut packet = vec![0; 80];
        packet[0] = 0x60;
        packet[6] = protocol::HOP_BY_HOP;
        packet[40] = protocol::ROUTING; // hop-by-hop, 8 bytes
        packet[48..52].copy_from_slice(&[protocol::UDP, 2, 0, 1]);
        assert_eq!(routing_header_0(&packet), Some(50));
        packet[51] = 0; // no segment left: it has arrived
        assert_eq!(routing_header_0(&packet), None);
        packet[50..52].copy_from_slice(&[4, 1]); // segment routing
        assert_eq!(routing_header_0(&packet), None);
        packet.truncate(50);
        assert_eq!(routing_header_0(&packet), None);
    }
}
