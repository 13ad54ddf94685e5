//! What the information elements of GTP-C hold (TS 29.274 8), as values: each reads the bytes of an
//! IE and writes them.
//!
//! A reader takes values that are longer than it knows, since later releases extend IEs at their
//! ends (7.7.8, 7.7.11), and returns `None` for those too short for what their flags announce.
//! Writers put the value into `to` and return its length in bytes; `to` has [`MAX_LEN`] of them.

use core::fmt;

use crate::bytes::{array, be16, be32};

/// The most bytes that a writer here uses.
pub const MAX_LEN: usize = 40;

/// Types of IEs (TS 29.274 8.1).
#[allow(missing_docs)] // each constant is the IE of that name
mod kind {
    pub const IMSI: u8 = 1;
    pub const CAUSE: u8 = 2;
    pub const RECOVERY: u8 = 3;
    pub const APN: u8 = 71;
    pub const AMBR: u8 = 72;
    pub const EBI: u8 = 73;
    pub const MEI: u8 = 75;
    pub const MSISDN: u8 = 76;
    pub const INDICATION: u8 = 77;
    pub const PCO: u8 = 78;
    pub const PAA: u8 = 79;
    pub const BEARER_QOS: u8 = 80;
    pub const RAT_TYPE: u8 = 82;
    pub const SERVING_NETWORK: u8 = 83;
    pub const BEARER_TFT: u8 = 84;
    pub const ULI: u8 = 86;
    pub const F_TEID: u8 = 87;
    pub const DELAY_VALUE: u8 = 92;
    pub const BEARER_CONTEXT: u8 = 93;
    pub const CHARGING_ID: u8 = 94;
    pub const CHARGING_CHARACTERISTICS: u8 = 95;
    pub const PDN_TYPE: u8 = 99;
    pub const UE_TIME_ZONE: u8 = 114;
    pub const APN_RESTRICTION: u8 = 127;
    pub const SELECTION_MODE: u8 = 128;
    pub const ARP: u8 = 155;
}
pub use kind::*;

/// Cause values (TS 29.274 8.4).
#[allow(missing_docs)] // each constant is the cause of that name
pub mod cause {
    pub const ACCEPTED: u8 = 16;
    pub const ACCEPTED_PARTIALLY: u8 = 17;
    /// The request was accepted, with another type of address than the one asked for.
    pub const NEW_PDN_TYPE_NETWORK_PREFERENCE: u8 = 18;
    pub const CONTEXT_NOT_FOUND: u8 = 64;
    pub const INVALID_MESSAGE_FORMAT: u8 = 65;
    pub const INVALID_LENGTH: u8 = 67;
    pub const SERVICE_NOT_SUPPORTED: u8 = 68;
    pub const MANDATORY_IE_INCORRECT: u8 = 69;
    pub const MANDATORY_IE_MISSING: u8 = 70;
    pub const SYSTEM_FAILURE: u8 = 72;
    pub const NO_RESOURCES: u8 = 73;
    pub const UNKNOWN_APN: u8 = 78;
    pub const PREFERRED_PDN_TYPE_NOT_SUPPORTED: u8 = 83;
    pub const ADDRESSES_OCCUPIED: u8 = 84;
    pub const UE_NOT_RESPONDING: u8 = 87;
    pub const SERVICE_DENIED: u8 = 89;
    pub const UNABLE_TO_PAGE: u8 = 90;
    pub const NO_MEMORY: u8 = 91;
    pub const REQUEST_REJECTED: u8 = 94;
    pub const PEER_NOT_RESPONDING: u8 = 100;
    pub const CONDITIONAL_IE_MISSING: u8 = 103;

    /// Whether a request with this cause in its response was accepted (8.4: 16 to 63).
    pub const fn is_accepted(cause: u8) -> bool {
        matches!(cause, 16..=63)
    }
}

/// Interface types of an F-TEID (TS 29.274 8.22).
#[allow(missing_docs)] // each constant is the interface of that name
pub mod interface {
    pub const S1U_ENODEB: u8 = 0;
    pub const S1U_SGW: u8 = 1;
    pub const S5U_SGW: u8 = 4;
    pub const S5U_PGW: u8 = 5;
    pub const S5C_SGW: u8 = 6;
    pub const S5C_PGW: u8 = 7;
    pub const S11_MME: u8 = 10;
    pub const S11_SGW: u8 = 11;
}

/// RAT type: E-UTRAN (TS 29.274 8.17).
pub const EUTRAN: u8 = 6;

/// PDN types (TS 29.274 8.34).
#[allow(missing_docs)] // each constant is the type of that name
pub mod pdn_type {
    pub const IPV4: u8 = 1;
    pub const IPV6: u8 = 2;
    pub const IPV4V6: u8 = 3;
}

/// An IMSI as telephony BCD (TS 29.274 8.3): a digit in each nibble, the lower one first, filled
/// up with ones. Values that are equal are the same bytes, so it can be a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Imsi([u8; 8]);

impl Imsi {
    /// The IMSI of so many digits, 1 to 15, with leading zeros. `None` for a number that has more,
    /// and for another count.
    pub const fn new(number: u64, digits: u32) -> Option<Self> {
        if digits < 1 || digits > 15 {
            return None;
        }
        let mut bytes = [0xff; 8];
        let (mut rest, mut at) = (number, digits as usize);
        while at > 0 {
            at -= 1;
            let (digit, shift) = ((rest % 10) as u8, 4 * (at as u32 % 2));
            bytes[at / 2] = bytes[at / 2] & !(0x0f << shift) | digit << shift;
            rest /= 10;
        }
        if rest > 0 { None } else { Some(Self(bytes)) }
    }

    /// Reads the bytes of an IE: 1 to 8, all of them decimal digits up to the filler.
    pub fn read(value: &[u8]) -> Option<Self> {
        let mut bytes = [0xff; 8];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Self::from_bytes(bytes)
    }

    /// Reads eight bytes of BCD.
    pub fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        let nibble = |at: usize| bytes[at / 2] >> (4 * (at % 2)) & 0x0f;
        let digits = (0..16).take_while(|&at| nibble(at) <= 9).count();
        let is_filled = (digits..16).all(|at| nibble(at) == 0x0f);
        ((1..=15).contains(&digits) && is_filled).then_some(Self(bytes))
    }

    /// Reads decimal digits as text, as Diameter's User-Name has them.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        let digits = u32::try_from(text.len()).ok()?;
        let number = text.iter().try_fold(0_u64, |number, &digit| {
            let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
            number.checked_mul(10)?.checked_add(digit)
        })?;
        Self::new(number, digits)
    }

    /// The eight bytes of BCD: what an IE holds, and a key.
    pub const fn bytes(&self) -> [u8; 8] {
        self.0
    }

    /// How many digits it has, 1 to 15.
    pub fn digits(&self) -> usize {
        let fillers = u64::from_le_bytes(self.0).leading_ones() as usize / 4;
        16 - fillers
    }

    /// Its digits as text, and how many of the 15 places they take.
    pub fn text(&self) -> ([u8; 15], usize) {
        let digits = self.digits();
        let digit = |at: usize| b'0' + (self.0[at / 2] >> (4 * (at % 2)) & 0x0f);
        let text = core::array::from_fn(|at| if at < digits { digit(at) } else { 0 });
        (text, digits)
    }

    /// Its digits as one number.
    pub fn number(&self) -> u64 {
        let (text, digits) = self.text();
        let digits = text[..digits].iter();
        digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
    }
}

impl fmt::Display for Imsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, digits) = self.text();
        f.write_str(core::str::from_utf8(&text[..digits]).unwrap_or_default())
    }
}

impl fmt::Debug for Imsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Imsi({self})")
    }
}

/// How a request ended (TS 29.274 8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// See [`cause`].
    pub value: u8,
    /// Bit 0: the cause came from the other end of the node that answers (CS).
    pub flags: u8,
    /// Type and instance of the IE that was missing or wrong.
    pub offending: Option<(u8, u8)>,
}

impl Cause {
    /// The cause alone.
    pub const fn new(value: u8) -> Self {
        Self {
            value,
            flags: 0,
            offending: None,
        }
    }

    /// Reads the bytes of an IE.
    pub fn read(value: &[u8]) -> Option<Self> {
        let offending = value.get(2..6).map(|ie| (ie[0], ie[3] & 0x0f));
        Some(Self {
            value: *value.first()?,
            flags: *value.get(1)?,
            offending,
        })
    }

    /// Writes it: 2 bytes, or 6 with the offending IE.
    pub fn write(&self, to: &mut [u8; MAX_LEN]) -> usize {
        to[..2].copy_from_slice(&[self.value, self.flags]);
        let Some((kind, instance)) = self.offending else {
            return 2;
        };
        to[2..6].copy_from_slice(&[kind, 0, 0, instance]);
        6
    }
}

/// An endpoint of a tunnel: interface, identifier, addresses (TS 29.274 8.22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FTeid {
    /// See [`interface`], 6 bits.
    pub interface: u8,
    /// The identifier by which its owner knows it.
    pub teid: u32,
    /// The owner's IPv4 address.
    pub v4: Option<[u8; 4]>,
    /// The owner's IPv6 address.
    pub v6: Option<[u8; 16]>,
}

impl FTeid {
    /// One with an IPv4 address.
    pub const fn v4(interface: u8, teid: u32, address: [u8; 4]) -> Self {
        Self {
            interface,
            teid,
            v4: Some(address),
            v6: None,
        }
    }

    /// Reads the bytes of an IE: flags that announce at least one address, and all of it.
    pub fn read(value: &[u8]) -> Option<Self> {
        let flags = *value.first()?;
        let teid = u32::from_be_bytes(*value.get(1..)?.first_chunk()?);
        let mut rest = &value[5..];
        let mut v4 = None;
        if flags & 0x80 != 0 {
            v4 = Some(*rest.first_chunk()?);
            rest = &rest[4..];
        }
        let v6 = match flags & 0x40 {
            0 => None,
            _ => Some(*rest.first_chunk()?),
        };
        (v4.is_some() || v6.is_some()).then_some(Self {
            interface: flags & 0x3f,
            teid,
            v4,
            v6,
        })
    }

    /// Writes it: 9, 21 or 25 bytes.
    pub fn write(&self, to: &mut [u8; MAX_LEN]) -> usize {
        to[0] = self.interface & 0x3f;
        to[1..5].copy_from_slice(&self.teid.to_be_bytes());
        let mut len = 5;
        if let Some(v4) = self.v4 {
            to[0] |= 0x80;
            to[len..len + 4].copy_from_slice(&v4);
            len += 4;
        }
        if let Some(v6) = self.v6 {
            to[0] |= 0x40;
            to[len..len + 16].copy_from_slice(&v6);
            len += 16;
        }
        len
    }
}

/// The address given to a user (TS 29.274 8.14). In a request, zeros ask for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paa {
    /// See [`pdn_type`], 3 bits.
    pub pdn_type: u8,
    /// The IPv4 address, of the types that have one.
    pub v4: Option<[u8; 4]>,
    /// Prefix length and IPv6 address, of the types that have one.
    pub v6: Option<(u8, [u8; 16])>,
}

impl Paa {
    /// An IPv4 address.
    pub const fn v4(address: [u8; 4]) -> Self {
        Self {
            pdn_type: pdn_type::IPV4,
            v4: Some(address),
            v6: None,
        }
    }

    /// Reads the bytes of an IE.
    pub fn read(value: &[u8]) -> Option<Self> {
        let (&kind, mut rest) = value.split_first()?;
        let pdn_type = kind & 0x07;
        let mut v6 = None;
        if matches!(pdn_type, pdn_type::IPV6 | pdn_type::IPV4V6) {
            let (&prefix, address) = rest.split_first()?;
            v6 = Some((prefix, *address.first_chunk()?));
            rest = &address[16..];
        }
        let v4 = match pdn_type {
            pdn_type::IPV4 | pdn_type::IPV4V6 => Some(*rest.first_chunk()?),
            _ => None,
        };
        (v4.is_some() || v6.is_some()).then_some(Self { pdn_type, v4, v6 })
    }

    /// Writes it: 5, 18 or 22 bytes.
    pub fn write(&self, to: &mut [u8; MAX_LEN]) -> usize {
        to[0] = self.pdn_type;
        let mut len = 1;
        if let Some((prefix, v6)) = self.v6 {
            to[len] = prefix;
            to[len + 1..len + 17].copy_from_slice(&v6);
            len += 17;
        }
        if let Some(v4) = self.v4 {
            to[len..len + 4].copy_from_slice(&v4);
            len += 4;
        }
        len
    }
}

/// The most that a user may send and receive, in kbit/s (TS 29.274 8.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ambr {
    /// From the user.
    pub up_kbps: u32,
    /// To the user.
    pub down_kbps: u32,
}

impl Ambr {
    /// Reads the bytes of an IE.
    pub fn read(value: &[u8]) -> Option<Self> {
        (value.len() >= 8).then(|| Self {
            up_kbps: be32(value, 0),
            down_kbps: be32(value, 4),
        })
    }

    /// Writes it: 8 bytes.
    pub fn write(&self, to: &mut [u8; MAX_LEN]) -> usize {
        to[..4].copy_from_slice(&self.up_kbps.to_be_bytes());
        to[4..8].copy_from_slice(&self.down_kbps.to_be_bytes());
        8
    }
}

/// How a bearer is treated (TS 29.274 8.15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BearerQos {
    /// Allocation and retention priority as it stands: may pre-empt (0x40 set: may not), level
    /// (bits 2 to 5), may be pre-empted (0x01 set: may not).
    pub arp: u8,
    /// QoS class.
    pub qci: u8,
    /// Most and guaranteed kbit/s, up and down each; 40 bits, all 0 without a guarantee.
    pub rates_kbps: [u64; 4],
}

impl BearerQos {
    /// Reads the bytes of an IE.
    pub fn read(value: &[u8]) -> Option<Self> {
        if value.len() < 22 {
            return None;
        }
        let rate = |at: usize| u64::from(value[at]) << 32 | u64::from(be32(value, at + 1));
        Some(Self {
            arp: value[0],
            qci: value[1],
            rates_kbps: core::array::from_fn(|number| rate(2 + 5 * number)),
        })
    }

    /// Writes it: 22 bytes.
    pub fn write(&self, to: &mut [u8; MAX_LEN]) -> usize {
        to[..2].copy_from_slice(&[self.arp, self.qci]);
        for (number, rate) in self.rates_kbps.iter().enumerate() {
            to[2 + 5 * number..][..5].copy_from_slice(&rate.to_be_bytes()[3..]);
        }
        22
    }
}

/// Where a user is (TS 29.274 8.21): tracking area and cell. Other kinds of place are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uli {
    /// Network (three bytes of BCD) and code of the tracking area.
    pub tai: Option<([u8; 3], u16)>,
    /// Network and identity, 28 bits, of the cell.
    pub ecgi: Option<([u8; 3], u32)>,
}

impl Uli {
    /// Reads the bytes of an IE.
    pub fn read(value: &[u8]) -> Option<Self> {
        let (&flags, mut rest) = value.split_first()?;
        let mut uli = Self::default();
        // The places are in this order, each there if its bit is set: CGI, SAI, RAI, TAI, ECGI.
        for (bit, len) in [(0x01, 7), (0x02, 7), (0x04, 7), (0x08, 5), (0x10, 7)] {
            if flags & bit == 0 {
                continue;
            }
            let (place, after) = rest.split_at_checked(len)?;
            match bit {
                0x08 => uli.tai = Some((array(place, 0), be16(place, 3))),
                0x10 => uli.ecgi = Some((array(place, 0), be32(place, 3) & 0x0fff_ffff)),
                _ => {}
            }
            rest = after;
        }
        Some(uli)
    }

    /// Writes it: up to 13 bytes.
    pub fn write(&self, to: &mut [u8; MAX_LEN]) -> usize {
        to[0] = 0;
        let mut len = 1;
        if let Some((plmn, code)) = self.tai {
            to[0] |= 0x08;
            to[len..len + 3].copy_from_slice(&plmn);
            to[len + 3..len + 5].copy_from_slice(&code.to_be_bytes());
            len += 5;
        }
        if let Some((plmn, cell)) = self.ecgi {
            to[0] |= 0x10;
            to[len..len + 3].copy_from_slice(&plmn);
            to[len + 3..len + 7].copy_from_slice(&cell.to_be_bytes());
            len += 7;
        }
        len
    }
}

/// A network (MCC and MNC) as three bytes of BCD (TS 24.008 10.5.1.13). `None` for numbers that
/// are too long: a country has 3 digits, a network `mnc_digits`, 2 or 3.
pub const fn plmn(mcc: u16, mnc: u16, mnc_digits: u8) -> Option<[u8; 3]> {
    let limit = match mnc_digits {
        2 => 100,
        3 => 1000,
        _ => return None,
    };
    if mcc >= 1000 || mnc >= limit {
        return None;
    }
    const fn digit(number: u16, place: u16) -> u8 {
        (number / place % 10) as u8
    }
    // Three digits of network: the last is beside the country's last; two: ones stand there.
    let (first, second, third) = if mnc_digits == 3 {
        (digit(mnc, 100), digit(mnc, 10), digit(mnc, 1))
    } else {
        (digit(mnc, 10), digit(mnc, 1), 0x0f)
    };
    Some([
        digit(mcc, 10) << 4 | digit(mcc, 100),
        third << 4 | digit(mcc, 1),
        second << 4 | first,
    ])
}

/// Writes an access point's name, labels divided by dots, as length and label each (TS 23.003
/// 9.1). Returns the bytes used; `None` for an empty label, one above 63 bytes, or too little room.
pub fn write_apn(name: &str, to: &mut [u8]) -> Option<usize> {
    let mut len = 0;
    for label in name.split('.') {
        if !(1..=63).contains(&label.len()) {
            return None;
        }
        let place = to.get_mut(len..len + 1 + label.len())?;
        place[0] = label.len() as u8;
        place[1..].copy_from_slice(label.as_bytes());
        len += place.len();
    }
    Some(len)
}

/// Whether the bytes of an APN IE are this name, whatever their case.
pub fn apn_is(mut value: &[u8], name: &str) -> bool {
    for label in name.split('.') {
        let Some((&len, rest)) = value.split_first() else {
            return false;
        };
        let Some((there, rest)) = rest.split_at_checked(len.into()) else {
            return false;
        };
        if !there.eq_ignore_ascii_case(label.as_bytes()) {
            return false;
        }
        value = rest;
    }
    value.is_empty()
}
