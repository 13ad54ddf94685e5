//! The messages of the control channel, each 128 bytes: memif protocol 2.0.
//!
//! Numbers are in the machine's order. What a peer sends is any bytes: [`Message::read`] takes them
//! apart, and who receives the message checks its numbers.

/// Bytes of every message.
pub(super) const LEN: usize = 128;
/// The one version: 2.0.
pub(super) const VERSION: u16 = 2 << 8;
/// Most bytes of a secret.
pub(super) const SECRET_LEN: usize = 24;
/// Bytes of a name's field.
const NAME_LEN: usize = 32;
/// Bytes of a reason's field.
const REASON_LEN: usize = 96;

/// A ring in the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingPlace {
    /// From client to server.
    pub(super) to_server: bool,
    pub(super) index: u16,
    pub(super) region: u16,
    pub(super) offset: u32,
    pub(super) log2_size: u8,
    /// Bytes of private metadata in front of packets; nobody has any.
    pub(super) private_header: u16,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Yes: go on.
    Ack,
    /// Server to client: what it can do.
    Hello {
        name: String,
        versions: (u16, u16),
        /// Highest numbers, not counts.
        max_region: u16,
        max_to_server: u16,
        max_to_client: u16,
        max_log2_size: u8,
    },
    /// Client to server: which interface it wants.
    Init {
        version: u16,
        id: u32,
        mode: u8,
        secret: [u8; SECRET_LEN],
        name: String,
    },
    /// Client to server, with the memory's descriptor.
    AddRegion { index: u16, bytes: u64 },
    /// Client to server, with an eventfd.
    AddRing(RingPlace),
    /// Client to server: all is said.
    Connect { name: String },
    /// Server to client: the rings are in use.
    Connected { name: String },
    /// Either way, and why.
    Disconnect { code: u32, reason: String },
}

/// Takes numbers and names from a message, one after the other.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (first, rest) = self.0.split_first_chunk().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *first
    }

    fn u8(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.bytes())
    }

    /// A peer's text goes to logs and screens: what is not printable becomes `?`.
    fn text<const N: usize>(&mut self) -> String {
        let field: [u8; N] = self.bytes();
        let text = field.iter().take_while(|&&byte| byte != 0);
        let printable = text.map(|&byte| match byte {
            b' '..=b'~' => char::from(byte),
            _ => '?',
        });
        printable.collect()
    }
}

/// Puts numbers and names into a message.
struct Writer {
    bytes: [u8; LEN],
    at: usize,
}

impl Writer {
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        if let Some(to) = self.bytes.get_mut(self.at..self.at + bytes.len()) {
            to.copy_from_slice(bytes);
        }
        self.at += bytes.len();
        self
    }

    /// Cut so that a 0 ends it.
    fn text<const N: usize>(&mut self, text: &str) -> &mut Self {
        let mut field = [0; N];
        let bytes = &text.as_bytes()[..text.len().min(N - 1)];
        field[..bytes.len()].copy_from_slice(bytes);
        self.put(&field)
    }
}

impl Message {
    /// A message as it came; `None` where it has another length or no known type.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != LEN {
            return None;
        }
        let mut from = Reader(bytes);
        Some(match from.u16() {
            1 => Self::Ack,
            2 => Self::Hello {
                name: from.text::<NAME_LEN>(),
                versions: (from.u16(), from.u16()),
                max_region: from.u16(),
                max_to_client: from.u16(),
                max_to_server: from.u16(),
                max_log2_size: from.u8(),
            },
            3 => Self::Init {
                version: from.u16(),
                id: from.u32(),
                mode: from.u8(),
                secret: from.bytes(),
                name: from.text::<NAME_LEN>(),
            },
            4 => Self::AddRegion {
                index: from.u16(),
                bytes: from.u64(),
            },
            5 => Self::AddRing(RingPlace {
                to_server: from.u16() & 1 != 0,
                index: from.u16(),
                region: from.u16(),
                offset: from.u32(),
                log2_size: from.u8(),
                private_header: from.u16(),
            }),
            6 => Self::Connect {
                name: from.text::<NAME_LEN>(),
            },
            7 => Self::Connected {
                name: from.text::<NAME_LEN>(),
            },
            8 => Self::Disconnect {
                code: from.u32(),
                reason: from.text::<REASON_LEN>(),
            },
            _ => return None,
        })
    }

    /// The message as it is sent.
    pub(super) fn write(&self) -> [u8; LEN] {
        let mut to = Writer {
            bytes: [0; LEN],
            at: 0,
        };
        to.put(&self.number().to_ne_bytes());
        match self {
            Self::Ack => &mut to,
            Self::Hello {
                name,
                versions,
                max_region,
                max_to_server,
                max_to_client,
                max_log2_size,
            } => to
                .text::<NAME_LEN>(name)
                .put(&versions.0.to_ne_bytes())
                .put(&versions.1.to_ne_bytes())
                .put(&max_region.to_ne_bytes())
                .put(&max_to_client.to_ne_bytes())
                .put(&max_to_server.to_ne_bytes())
                .put(&[*max_log2_size]),
            Self::Init {
                version,
                id,
                mode,
                secret,
                name,
            } => to
                .put(&version.to_ne_bytes())
                .put(&id.to_ne_bytes())
                .put(&[*mode])
                .put(secret)
                .text::<NAME_LEN>(name),
            Self::AddRegion { index, bytes } => {
                to.put(&index.to_ne_bytes()).put(&bytes.to_ne_bytes())
            }
            Self::AddRing(place) => to
                .put(&u16::from(place.to_server).to_ne_bytes())
                .put(&place.index.to_ne_bytes())
                .put(&place.region.to_ne_bytes())
                .put(&place.offset.to_ne_bytes())
                .put(&[place.log2_size])
                .put(&place.private_header.to_ne_bytes()),
            Self::Connect { name } | Self::Connected { name } => to.text::<NAME_LEN>(name),
            Self::Disconnect { code, reason } => {
                to.put(&code.to_ne_bytes()).text::<REASON_LEN>(reason)
            }
        };
        to.bytes
    }

    fn number(&self) -> u16 {
        match self {
            Self::Ack => 1,
            Self::Hello { .. } => 2,
            Self::Init { .. } => 3,
            Self::AddRegion { .. } => 4,
            Self::AddRing(_) => 5,
            Self::Connect { .. } => 6,
            Self::Connected { .. } => 7,
            Self::Disconnect { .. } => 8,
        }
    }

    /// What it is called, for messages to people.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Ack => "ACK",
            Self::Hello { .. } => "HELLO",
            Self::Init { .. } => "INIT",
            Self::AddRegion { .. } => "ADD_REGION",
            Self::AddRing(_) => "ADD_RING",
            Self::Connect { .. } => "CONNECT",
            Self::Connected { .. } => "CONNECTED",
            Self::Disconnect { .. } => "DISCONNECT",
        }
    }

    /// Descriptors that come with it.
    pub(super) fn files(&self) -> usize {
        usize::from(matches!(self, Self::AddRegion { .. } | Self::AddRing(_)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let name = || "linerate 1".to_owned();
        vec![
            Message::Ack,
            Message::Hello {
                name: name(),
                versions: (VERSION, VERSION),
                max_region: 255,
                max_to_server: 3,
                max_to_client: 4,
                max_log2_size: 14,
            },
            Message::Init {
                version: VERSION,
                id: 7,
                mode: 0,
                secret: *b"0123456789abcdefghijklmn",
                name: name(),
            },
            Message::AddRegion {
                index: 1,
                bytes: 1 << 33,
            },
            Message::AddRing(RingPlace {
                to_server: true,
                index: 2,
                region: 1,
                offset: 4096,
                log2_size: 10,
                private_header: 0,
            }),
            Message::Connect { name: name() },
            Message::Connected { name: name() },
            Message::Disconnect {
                code: 5,
                reason: "enough".into(),
            },
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        for message in all() {
            let bytes = message.write();
            assert_eq!(Message::read(&bytes).unwrap(), message);
            assert!(Message::read(&bytes[..LEN - 1]).is_none(), "too short");
        }
        assert!(Message::read(&[0; LEN]).is_none() && Message::read(&[9; LEN]).is_none());
    }

    /// Where the fields of the packed C structures lie (memif.h of DPDK and VPP).
    #[test]
    fn fields_lie_where_c_has_them() {
        let all = all();
        let [_, hello, init, region, ring, ..] = &all[..] else {
            panic!("as many as are listed")
        };
        let (hello, init) = (hello.write(), init.write());
        assert_eq!(hello[..2], 2_u16.to_ne_bytes());
        assert_eq!(&hello[2..12], b"linerate 1");
        assert_eq!(hello[34..36], VERSION.to_ne_bytes());
        assert_eq!(hello[38..40], 255_u16.to_ne_bytes());
        assert_eq!(hello[40..42], 4_u16.to_ne_bytes(), "server to client first");
        assert_eq!((hello[42], hello[44]), (3, 14));
        assert_eq!((init[4], init[8], init[9], init[33]), (7, 0, b'0', b'l'));
        let (region, ring) = (region.write(), ring.write());
        assert_eq!(region[4..12], (1_u64 << 33).to_ne_bytes());
        assert_eq!((ring[2], ring[4], ring[6], ring[12]), (1, 2, 1, 10));
        assert_eq!(ring[8..12], 4096_u32.to_ne_bytes());
    }

    #[test]
    fn names_are_cut_and_made_printable() {
        let long = Message::Connect {
            name: "x".repeat(99),
        };
        let Some(Message::Connect { name }) = Message::read(&long.write()) else {
            panic!()
        };
        assert_eq!(name.len(), 31);
        let mut bytes = [b'a'; LEN];
        bytes[..2].copy_from_slice(&7_u16.to_ne_bytes());
        bytes[3] = 0x1b;
        let Some(Message::Connected { name }) = Message::read(&bytes) else {
            panic!()
        };
        assert!(name.len() == 32 && name.starts_with("a?a"), "{name}");
    }
}
