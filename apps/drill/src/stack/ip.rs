//! Options of IP: the Diffserv field and the time to live of what a socket sends.

use super::options::Options;
use libc::{IPPROTO_IP, IPPROTO_IPV6};
use linerate_stack::host::udp::Bind;
use linerate_stack::socket::IpOptions;

/// Bits of the octet that are ECN's (RFC 3168 5).
const ECN_MASK: i32 = 3;

/// What an option of IP sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// The octet that has the Diffserv field.
    Class,
    /// The time to live, or hop limit.
    Life,
}

const NAMES: [((i32, i32), Field); 4] = [
    ((IPPROTO_IP, libc::IP_TOS), Field::Class),
    ((IPPROTO_IPV6, libc::IPV6_TCLASS), Field::Class),
    ((IPPROTO_IP, libc::IP_TTL), Field::Life),
    ((IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS), Field::Life),
];

/// What an option sets, if it is one of these.
pub(super) fn field_of(option: (i32, i32)) -> Option<Field> {
    let found = NAMES.iter().find(|(name, _)| *name == option);
    found.map(|(_, field)| *field)
}

/// The value that counts for one that is set, as ip(7) and ipv6(7) have it; `usual` for -1.
///
/// # Errors
/// `EINVAL`: it is out of range.
pub(super) fn checked(option: (i32, i32), value: i32, usual: i32) -> Result<i32, i32> {
    let least = match option {
        (IPPROTO_IP, libc::IP_TTL) => 1,
        _ => 0,
    };
    match (option, value) {
        // Linux takes the lowest octet of whatever it is given.
        ((IPPROTO_IP, libc::IP_TOS), any) => Ok(any & 0xff),
        (_, -1) => Ok(usual),
        (_, value) if (least..=0xff).contains(&value) => Ok(value),
        _ => Err(libc::EINVAL),
    }
}

/// The octet without ECN, which is TCP's own (RFC 9293 3.9.1.9: the user sets 6 bits).
pub(super) fn without_ecn(class: i32) -> i32 {
    class & !ECN_MASK
}

/// The octet and the life that `options` set.
fn fields(options: &Options) -> (Option<u8>, Option<u8>) {
    let of = |wanted: Field| {
        let mut names = NAMES.iter().filter(|(_, field)| *field == wanted);
        let set = names.find_map(|(name, _)| options.get(name))?;
        u8::try_from(*set).ok()
    };
    (of(Field::Class), of(Field::Life))
}

/// Those of a TCP socket.
pub(super) fn of_stream(options: &Options) -> IpOptions {
    let (class, ttl) = fields(options);
    let dscp = class.map(|class| class >> 2);
    IpOptions { dscp, ttl }
}

/// A UDP socket's, beside what is bound.
pub(super) fn of_datagram(options: &Options, bind: Bind) -> Bind {
    let (class, ttl) = fields(options);
    Bind {
        tos: class.unwrap_or(bind.tos),
        ttl: ttl.unwrap_or(bind.ttl),
        ..bind
    }
}
