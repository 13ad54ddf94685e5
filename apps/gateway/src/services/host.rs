//! Names of hosts, as the first bytes of connections say them.

use std::fmt;

/// The longest name (RFC 1035 2.3.4, without the dot at its end).
pub const MOST_BYTES: usize = 253;

/// What a reader found in the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // on the packet path nothing is allocated
pub enum Look {
    /// The name.
    Found(Host),
    /// What is there is of the protocol, and says no name.
    Nameless,
    /// So far it is of the protocol: more bytes are needed.
    More,
    /// It is not of the protocol.
    Other,
}

/// A name of a host, or its address as it was written: in lower case, without a port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Host {
    len: u8,
    bytes: [u8; MOST_BYTES],
}

impl Host {
    /// The host of these bytes; `None` if they cannot be one. A dot at the end is left out.
    pub fn of(name: &[u8]) -> Option<Self> {
        let name = name.strip_suffix(b".").unwrap_or(name);
        let is_of_names = |byte: &u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']')
        };
        if name.is_empty() || name.len() > MOST_BYTES || !name.iter().all(is_of_names) {
            return None;
        }
        let mut host = Self {
            len: name.len() as u8,
            bytes: [0; MOST_BYTES],
        };
        for (to, from) in host.bytes.iter_mut().zip(name) {
            *to = from.to_ascii_lowercase();
        }
        Some(host)
    }

    /// The host of an authority (RFC 3986 3.2): what is before its port, behind its user.
    pub fn of_authority(authority: &[u8]) -> Option<Self> {
        let start = authority.iter().rposition(|&byte| byte == b'@');
        let rest = &authority[start.map_or(0, |at| at + 1)..];
        let end = match rest.first() {
            Some(b'[') => rest.iter().position(|&byte| byte == b']')? + 1,
            _ => {
                let colon = rest.iter().position(|&byte| byte == b':');
                colon.unwrap_or(rest.len())
            }
        };
        let (host, port) = rest.split_at(end);
        let is_port = match port {
            [] => true,
            [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
            _ => false,
        };
        Self::of(host).filter(|_| is_port)
    }

    /// Its bytes: letters, digits and `-._:[]`.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The name, and each name above it: `a.b.c`, `b.c`, `c`.
    pub fn and_above(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = Some(self.bytes());
        std::iter::from_fn(move || {
            let this = rest?;
            let dot = this.iter().position(|&byte| byte == b'.');
            rest = dot.map(|dot| &this[dot + 1..]);
            Some(this)
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(self.bytes()).unwrap_or_default())
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({self})")
    }
}
