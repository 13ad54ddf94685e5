//! S1 control in a framing of our own, over TCP: `docs/epc-s1.md` is its page.
//!
//! It has the messages and the order of S1-AP and NAS that an attach, a release, a service request
//! and a detach need (TS 36.413, TS 24.301, TS 23.401 5.3), each a fixed header and items of type,
//! length and value; not their encoding (ASN.1), their transport (SCTP) or their protection.

use std::fmt;

/// The TCP port at which an MME listens (that of S1-AP over SCTP).
pub const PORT: u16 = 36412;
/// Length in bytes of the header.
pub const HEADER_LEN: usize = 12;
/// The longest message, in bytes.
pub const MAX_LEN: usize = 256;
const VERSION: u8 = 1;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// To the MME: a base station is there (`station`, `tac`, `plmn`).
    Setup = 1,
    /// The answer; with `cause`, a refusal.
    SetupAnswer = 2,
    /// To the MME: a user wants to attach (`imsi`, `tac`, `cell`).
    Attach = 3,
    /// To the user: prove who you are (`rand`, `autn`).
    Challenge = 4,
    /// The proof (`res`); with `cause`, the home was not proved.
    ChallengeAnswer = 5,
    /// To the user: the algorithms, which here are the null ones (EEA0, EIA0).
    Security = 6,
    /// The user has them.
    SecurityAnswer = 7,
    /// To the base station: carry this user (`ebi`, `tunnel` to the gateway, `address` and `tmsi`
    /// of the user).
    Context = 8,
    /// It does (`tunnel` to the base station); with `cause`, it cannot.
    ContextAnswer = 9,
    /// To the user: the request is refused (`cause`).
    Reject = 10,
    /// To the MME: the user is idle.
    ReleaseRequest = 11,
    /// To the base station: forget the connection of this user (`cause`).
    Release = 12,
    /// It is forgotten.
    ReleaseAnswer = 13,
    /// To the MME: a user that is idle has something to send, or was paged (`tmsi`, `tac`, `cell`).
    Service = 14,
    /// To base stations: look for that user (`tmsi`).
    Paging = 15,
    /// To the MME: the user goes (`tmsi` where it is idle).
    Detach = 16,
    /// To the user: gone.
    DetachAnswer = 17,
}

/// Causes: why something was refused or released.
#[allow(missing_docs)] // each constant is the cause of that name
pub mod cause {
    pub const NORMAL: u8 = 0;
    pub const USER_INACTIVITY: u8 = 1;
    pub const DETACHED: u8 = 2;
    pub const UNKNOWN_USER: u8 = 3;
    pub const NOT_AUTHENTICATED: u8 = 4;
    pub const CONGESTION: u8 = 5;
    pub const NETWORK_FAILURE: u8 = 6;
    pub const SUPERSEDED: u8 = 7;
    pub const WRONG_NETWORK: u8 = 8;
    pub const NO_RESOURCES: u8 = 9;
}

/// A tunnel's end: identifier and IPv4 address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunnel {
    /// The identifier by which its owner knows it; 0: there is none.
    pub teid: u32,
    /// The owner's address.
    pub address: [u8; 4],
}

/// A message. Items that are `None` are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // items are described at the kinds that have them
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// The base station's identifier of the user; 0: none, or not about one.
    pub station_id: u32,
    /// The MME's identifier of the user; 0: none yet.
    pub mme_id: u32,
    pub imsi: Option<[u8; 8]>,
    pub rand: Option<[u8; 16]>,
    pub autn: Option<[u8; 16]>,
    pub res: Option<[u8; 8]>,
    pub cause: Option<u8>,
    pub tunnel: Option<Tunnel>,
    pub address: Option<[u8; 4]>,
    pub ebi: Option<u8>,
    pub tac: Option<u16>,
    pub cell: Option<u32>,
    pub tmsi: Option<u32>,
    pub plmn: Option<[u8; 3]>,
    pub station: Option<u32>,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Another version.
    Version,
    /// A length below that of the header, above [`MAX_LEN`], or not that of the bytes.
    Length,
    /// A kind that nobody defined.
    Kind(u8),
    /// An item past the end, of another length than its type has, unknown and below 128, or the
    /// second of its type.
    Item(u8),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Version => f.write_str("S1 message of another version"),
            Wrong::Length => f.write_str("S1 message with an impossible length"),
            Wrong::Kind(kind) => write!(f, "S1 message of unknown kind {kind}"),
            Wrong::Item(kind) => write!(f, "S1 message with a wrong item of type {kind}"),
        }
    }
}

impl std::error::Error for Wrong {}

impl Kind {
    const ALL: [Self; 17] = [
        Kind::Setup,
        Kind::SetupAnswer,
        Kind::Attach,
        Kind::Challenge,
        Kind::ChallengeAnswer,
        Kind::Security,
        Kind::SecurityAnswer,
        Kind::Context,
        Kind::ContextAnswer,
        Kind::Reject,
        Kind::ReleaseRequest,
        Kind::Release,
        Kind::ReleaseAnswer,
        Kind::Service,
        Kind::Paging,
        Kind::Detach,
        Kind::DetachAnswer,
    ];

    fn of(number: u8) -> Option<Self> {
        let at = usize::from(number).checked_sub(1)?;
        Self::ALL.get(at).copied()
    }
}

/// Length in bytes of the message that begins `stream`; `None` while that is not there yet.
///
/// # Errors
/// [`Wrong::Length`]: the connection cannot go on, since nothing says where the next one begins.
pub fn frame(stream: &[u8]) -> Result<Option<usize>, Wrong> {
    let Some(head) = stream.first_chunk::<2>() else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes(*head));
    if !(HEADER_LEN..=MAX_LEN).contains(&len) {
        return Err(Wrong::Length);
    }
    Ok(Some(len))
}

impl Message {
    /// One about a user, without items.
    pub const fn new(kind: Kind, station_id: u32, mme_id: u32) -> Self {
        Self {
            kind,
            station_id,
            mme_id,
            imsi: None,
            rand: None,
            autn: None,
            res: None,
            cause: None,
            tunnel: None,
            address: None,
            ebi: None,
            tac: None,
            cell: None,
            tmsi: None,
            plmn: None,
            station: None,
        }
    }

    /// Reads a message, which is all of `bytes`.
    ///
    /// # Errors
    /// Each [`Wrong`] for what it says.
    pub fn read(bytes: &[u8]) -> Result<Self, Wrong> {
        if frame(bytes)? != Some(bytes.len()) {
            return Err(Wrong::Length);
        }
        let (head, mut rest) = bytes.split_first_chunk().ok_or(Wrong::Length)?;
        let &[_, _, version, kind, a, b, c, d, m, n, o, p]: &[u8; HEADER_LEN] = head;
        if version != VERSION {
            return Err(Wrong::Version);
        }
        let kind = Kind::of(kind).ok_or(Wrong::Kind(kind))?;
        let ids = [[a, b, c, d], [m, n, o, p]].map(u32::from_be_bytes);
        let mut message = Self::new(kind, ids[0], ids[1]);
        while let Some((&[kind, len], after)) = rest.split_first_chunk::<2>() {
            let item = after.split_at_checked(len.into());
            let (value, after) = item.ok_or(Wrong::Item(kind))?;
            message.item(kind, value).ok_or(Wrong::Item(kind))?;
            rest = after;
        }
        match rest {
            [] => Ok(message),
            _ => Err(Wrong::Item(rest[0])),
        }
    }

    /// Takes one item; `None`: it is wrong.
    fn item(&mut self, kind: u8, value: &[u8]) -> Option<()> {
        fn set<T>(place: &mut Option<T>, value: Option<T>) -> Option<()> {
            if place.is_some() {
                return None;
            }
            *place = value;
            place.is_some().then_some(())
        }
        let word = || value.try_into().ok().map(u32::from_be_bytes);
        let byte = || <[u8; 1]>::try_from(value).ok().map(|[byte]| byte);
        match kind {
            1 => set(&mut self.imsi, value.try_into().ok()),
            2 => set(&mut self.rand, value.try_into().ok()),
            3 => set(&mut self.autn, value.try_into().ok()),
            4 => set(&mut self.res, value.try_into().ok()),
            5 => set(&mut self.cause, byte()),
            6 => {
                let &[a, b, c, d, ref address @ ..] = <&[u8; 8]>::try_from(value).ok()?;
                let teid = u32::from_be_bytes([a, b, c, d]);
                let address = *address;
                set(&mut self.tunnel, Some(Tunnel { teid, address }))
            }
            7 => set(&mut self.address, value.try_into().ok()),
            8 => set(&mut self.ebi, byte()),
            9 => set(&mut self.tac, value.try_into().ok().map(u16::from_be_bytes)),
            10 => set(&mut self.cell, word()),
            11 => set(&mut self.tmsi, word()),
            12 => set(&mut self.plmn, value.try_into().ok()),
            13 => set(&mut self.station, word()),
            // Types from 128 on may be skipped by who does not know them.
            128.. => Some(()),
            _ => None,
        }
    }

    /// Writes it; returns its bytes.
    pub fn write<'a>(&self, room: &'a mut [u8; MAX_LEN]) -> &'a [u8] {
        let mut len = HEADER_LEN;
        room[2..4].copy_from_slice(&[VERSION, self.kind as u8]);
        room[4..8].copy_from_slice(&self.station_id.to_be_bytes());
        room[8..12].copy_from_slice(&self.mme_id.to_be_bytes());
        // All items together have 103 bytes.
        let mut put = |kind: u8, value: Option<&[u8]>| {
            let Some(value) = value else { return };
            room[len..len + 2].copy_from_slice(&[kind, value.len() as u8]);
            room[len + 2..len + 2 + value.len()].copy_from_slice(value);
            len += 2 + value.len();
        };
        let tunnel = self.tunnel.map(|tunnel| {
            let ([a, b, c, d], [m, n, o, p]) = (tunnel.teid.to_be_bytes(), tunnel.address);
            [a, b, c, d, m, n, o, p]
        });
        let word = |value: &Option<u32>| value.map(u32::to_be_bytes);
        put(1, self.imsi.as_ref().map(|value| &value[..]));
        put(2, self.rand.as_ref().map(|value| &value[..]));
        put(3, self.autn.as_ref().map(|value| &value[..]));
        put(4, self.res.as_ref().map(|value| &value[..]));
        put(5, self.cause.as_ref().map(std::slice::from_ref));
        put(6, tunnel.as_ref().map(|value| &value[..]));
        put(7, self.address.as_ref().map(|value| &value[..]));
        put(8, self.ebi.as_ref().map(std::slice::from_ref));
        put(
            9,
            self.tac
                .map(u16::to_be_bytes)
                .as_ref()
                .map(|value| &value[..]),
        );
        put(10, word(&self.cell).as_ref().map(|value| &value[..]));
        put(11, word(&self.tmsi).as_ref().map(|value| &value[..]));
        put(12, self.plmn.as_ref().map(|value| &value[..]));
        put(13, word(&self.station).as_ref().map(|value| &value[..]));
        room[..2].copy_from_slice(&(len as u16).to_be_bytes());
        &room[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: &[u8] = &[0, 19, 1, 12, 0, 0, 0, 1, 0, 0, 0, 2, 5, 1, 1, 200, 2, 0, 0];

    #[test]
    fn a_message_is_read() {
        let message = Message::read(BYTES).unwrap();
        let mut known = Message::new(Kind::Release, 1, 2);
        known.cause = Some(cause::USER_INACTIVITY);
        assert_eq!(message, known); // with an item of type 200, which may be skipped
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let wrong = |at: usize, value: u8| {
            let mut bytes = BYTES.to_vec();
            bytes[at] = value;
            Message::read(&bytes).unwrap_err()
        };
        assert_eq!(wrong(1, 18), Wrong::Length);
        assert_eq!(wrong(1, 20), Wrong::Length);
        assert_eq!(wrong(1, 11), Wrong::Length);
        assert_eq!(wrong(0, 2), Wrong::Length);
        assert_eq!(wrong(2, 2), Wrong::Version);
        assert_eq!(
            (wrong(3, 0), wrong(3, 18)),
            (Wrong::Kind(0), Wrong::Kind(18))
        );
        assert_eq!(wrong(12, 99), Wrong::Item(99));
        assert_eq!(wrong(13, 2), Wrong::Item(5));
        assert_eq!(wrong(15, 5), Wrong::Item(5)); // a second cause
        assert_eq!(wrong(16, 3), Wrong::Item(200));
        assert_eq!(wrong(16, 1), Wrong::Item(0)); // a byte is left
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            kind in 0_usize..17, ids: (u32, u32), keys in any::<Option<([u8; 8], [u8; 16])>>(),
            bytes: (Option<u8>, Option<u8>), words: (Option<u32>, Option<u32>, Option<u32>),
            tunnel in any::<Option<(u32, [u8; 4])>>(), address: Option<[u8; 4]>,
            tac: Option<u16>, plmn: Option<[u8; 3]>,
        ) {
            let message = Message {
                imsi: keys.map(|(imsi, _)| imsi),
                rand: keys.map(|(_, rand)| rand),
                autn: keys.map(|(_, autn)| autn),
                res: keys.map(|(res, _)| res),
                cause: bytes.0,
                ebi: bytes.1,
                tunnel: tunnel.map(|(teid, address)| Tunnel { teid, address }),
                address,
                tac,
                plmn,
                cell: words.0,
                tmsi: words.1,
                station: words.2,
                ..Message::new(Kind::ALL[kind], ids.0, ids.1)
            };
            let mut room = [0; MAX_LEN];
            prop_assert_eq!(Message::read(message.write(&mut room)), Ok(message));
        }

        #[test]
        fn never_panics(kind in 0_u8..20, len in 0_u8..60,
            tail in prop::collection::vec(prop_oneof![0_u8..16, any::<u8>()], 0..60)) {
            let bytes = [&[0, len, 1, kind][..], &tail].concat();
            let _ = Message::read(&bytes);
        }
    }
}
