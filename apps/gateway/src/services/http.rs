//! The host that the first HTTP/1 request of a connection asks (RFC 9112).

use super::host::{Host, Look};

/// The methods of requests (RFC 9110 9.3, RFC 5789).
const METHODS: [&[u8]; 9] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"CONNECT ",
    b"OPTIONS ",
    b"TRACE ",
    b"PATCH ",
];

/// The name of the field (RFC 9110 7.2), and what ends it.
const HOST: &[u8] = b"host:";

/// Reads the host of a request that begins with `bytes`: that of its target where it has one, else
/// that of its Host field.
pub fn host(bytes: &[u8]) -> Look {
    let is_method = |method: &&&[u8]| {
        let shorter = method.len().min(bytes.len());
        method[..shorter] == bytes[..shorter]
    };
    let Some(method) = METHODS.iter().find(is_method) else {
        return Look::Other;
    };
    if bytes.len() < method.len() {
        return Look::More;
    }
    let Some((line, mut rest)) = split_line(bytes) else {
        return Look::More;
    };
    let mut words = line[method.len()..].split(|&byte| byte == b' ');
    let (target, version) = (words.next().unwrap_or_default(), words.next());
    if !version.is_some_and(|version| version.starts_with(b"HTTP/1.")) || words.next().is_some() {
        return Look::Other;
    }
    // RFC 9112 3.2.2: a target in absolute form is heeded, whatever the field says; 3.2.3.
    let scheme = target.windows(3).position(|three| three == b"://");
    let authority = match (scheme, *method) {
        (_, b"CONNECT ") => Some(target),
        (Some(at), _) if !target.starts_with(b"/") => Some(&target[at + 3..]),
        _ => None,
    };
    if let Some(authority) = authority {
        let mut parts = authority.split(|byte| matches!(byte, b'/' | b'?' | b'#'));
        let host = Host::of_authority(parts.next().unwrap_or_default());
        return host.map_or(Look::Nameless, Look::Found);
    }
    while let Some((line, behind)) = split_line(rest) {
        if line.is_empty() {
            return Look::Nameless;
        }
        let field = line.split_at_checked(HOST.len());
        if let Some((name, value)) = field
            && name.eq_ignore_ascii_case(HOST)
        {
            let host = Host::of_authority(value.trim_ascii());
            return host.map_or(Look::Nameless, Look::Found);
        }
        rest = behind;
    }
    Look::More
}

/// The first line without what ends it (RFC 9112 2.2: a lone LF does), and what follows; `None` if
/// it has no end.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &bytes[end + 1..]))
}
