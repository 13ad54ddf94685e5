//! S6a (3GPP TS 29.272): what an MME asks of the HSS about a user, as Diameter messages.
//!
//! | request | asks | answer has |
//! |---|---|---|
//! | Authentication-Information | a challenge for the user | one E-UTRAN vector |
//! | Update-Location | what the user may do, and to be its MME | subscription data |
//! | Purge-UE | to forget that | |
//! | Cancel-Location (by the HSS) | to forget the user: another MME has it | |
//!
//! [`Contents`] is one walk over a message; `connection` is what RFC 6733 wants of a connection.

pub mod connection;

use crate::challenge::Vector;
use linerate_wire::diameter::{Avp, Diameter, Flags, Writer, avp, result};
use linerate_wire::gtpc::ie::{Ambr, Imsi};
use std::fmt::{self, Write};
use std::net::Ipv4Addr;

/// The vendor 3GPP.
pub const VENDOR: u32 = 10415;
/// The application S6a.
pub const APPLICATION: u32 = 16_777_251;
/// Room for any message that a node here makes, in bytes.
pub const ROOM: usize = 1024;

/// The result where a request is for another host than this (RFC 6733 7.1.3).
pub const UNABLE_TO_DELIVER: u32 = 3002;

/// Command codes (TS 29.272 7.2.1).
#[allow(missing_docs)] // each constant is the command of that name
pub mod command {
    pub const UPDATE_LOCATION: u32 = 316;
    pub const CANCEL_LOCATION: u32 = 317;
    pub const AUTHENTICATION_INFORMATION: u32 = 318;
    pub const PURGE_UE: u32 = 321;
}

/// Experimental results (TS 29.272 7.4).
#[allow(missing_docs)] // each constant is the result of that name
pub mod experimental {
    pub const USER_UNKNOWN: u32 = 5001;
    pub const UNKNOWN_EPS_SUBSCRIPTION: u32 = 5420;
}

/// AVPs of 3GPP (TS 29.272 7.3, TS 29.061, TS 29.212, TS 29.329).
mod code {
    pub(super) const MAX_BANDWIDTH_DOWN: u32 = 515;
    pub(super) const MAX_BANDWIDTH_UP: u32 = 516;
    pub(super) const MSISDN: u32 = 701;
    pub(super) const QCI: u32 = 1028;
    pub(super) const RAT_TYPE: u32 = 1032;
    pub(super) const ARP: u32 = 1034;
    pub(super) const PRIORITY_LEVEL: u32 = 1046;
    pub(super) const SUBSCRIPTION_DATA: u32 = 1400;
    pub(super) const ULR_FLAGS: u32 = 1405;
    pub(super) const ULA_FLAGS: u32 = 1406;
    pub(super) const VISITED_PLMN: u32 = 1407;
    pub(super) const REQUESTED_EUTRAN: u32 = 1408;
    pub(super) const NUMBER_OF_VECTORS: u32 = 1410;
    pub(super) const IMMEDIATE_RESPONSE: u32 = 1412;
    pub(super) const AUTHENTICATION_INFO: u32 = 1413;
    pub(super) const EUTRAN_VECTOR: u32 = 1414;
    pub(super) const NETWORK_ACCESS_MODE: u32 = 1417;
    pub(super) const CANCELLATION_TYPE: u32 = 1420;
    pub(super) const CONTEXT_IDENTIFIER: u32 = 1423;
    pub(super) const SUBSCRIBER_STATUS: u32 = 1424;
    pub(super) const ALL_APNS_INCLUDED: u32 = 1428;
    pub(super) const APN_PROFILE: u32 = 1429;
    pub(super) const APN_CONFIGURATION: u32 = 1430;
    pub(super) const EPS_QOS: u32 = 1431;
    pub(super) const AMBR: u32 = 1435;
    pub(super) const PUA_FLAGS: u32 = 1442;
    pub(super) const RAND: u32 = 1447;
    pub(super) const XRES: u32 = 1448;
    pub(super) const AUTN: u32 = 1449;
    pub(super) const KASME: u32 = 1450;
    pub(super) const PDN_TYPE: u32 = 1456;
    /// Of RFC 5778, without vendor: the name of an access point.
    pub(super) const SERVICE_SELECTION: u32 = 493;
}

/// Who a Diameter node is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its name: Origin-Host.
    pub host: String,
    /// Its realm: Origin-Realm.
    pub realm: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Grows with each restart (RFC 6733 8.16): when it was made, in seconds.
    pub restarts: u32,
}

/// The longest name of a peer that is kept, in bytes: those of TS 23.003 19.4.2.4 have 54.
const NAME: usize = 64;

/// Whom a peer says that it is (DiameterIdentity of RFC 6733 4.3.1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    len: u8,
    bytes: [u8; NAME],
}

impl Name {
    /// That of an Origin-Host; `None`: it is too long to be kept.
    pub fn new(host: &[u8]) -> Option<Self> {
        let mut bytes = [0; NAME];
        bytes.get_mut(..host.len())?.copy_from_slice(host);
        let len = host.len() as u8;
        Some(Self { len, bytes })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Default for Name {
    fn default() -> Self {
        Self {
            len: 0,
            bytes: [0; NAME],
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(self.bytes()).fmt(f)
    }
}

/// What a user may do (TS 29.272 7.3.2), as far as a node here asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The most that the user may send and receive.
    pub ambr: Ambr,
    /// QoS class of the default bearer.
    pub qci: u8,
    /// Priority of the default bearer, 1 (highest) to 15.
    pub priority: u8,
}

impl Default for Subscription {
    fn default() -> Self {
        Self {
            ambr: Ambr {
                up_kbps: 50_000,
                down_kbps: 100_000,
            },
            qci: 9,
            priority: 8,
        }
    }
}

/// What a message contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents<'a> {
    /// The session, which an answer repeats.
    pub session: Option<&'a [u8]>,
    /// Whose it is.
    pub user: Option<Imsi>,
    /// Who sent it.
    pub origin_host: Option<&'a [u8]>,
    /// Whom it is for, if that is said.
    pub destination_host: Option<&'a [u8]>,
    /// Result-Code, or the code of Experimental-Result.
    pub result: Option<u32>,
    /// A challenge.
    pub vector: Option<Vector>,
    /// What the user may do.
    pub subscription: Option<Subscription>,
    /// The network where the user is.
    pub plmn: Option<[u8; 3]>,
}

/// Why a message is refused: the result to answer with.
pub type Refusal = u32;

impl<'a> Contents<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// Invalid AVP Length for AVPs past the end, and for one whose length is not its type's;
    /// Invalid AVP Value for a user that is no IMSI (RFC 6733 7.1.5).
    pub fn read<T: AsRef<[u8]>>(message: &'a Diameter<T>) -> Result<Self, Refusal> {
        let mut found = Self::default();
        for avp in message.avps() {
            let avp = avp.map_err(|_| result::INVALID_AVP_LENGTH)?;
            let data = avp.data;
            match (avp.code, avp.vendor) {
                (avp::SESSION_ID, None) => found.session = Some(data),
                (avp::USER_NAME, None) => {
                    let user = Imsi::from_text(data).ok_or(result::INVALID_AVP_VALUE)?;
                    found.user = Some(user);
                }
                (avp::ORIGIN_HOST, None) => found.origin_host = Some(data),
                (avp::DESTINATION_HOST, None) => found.destination_host = Some(data),
                (avp::RESULT_CODE, None) => found.result = Some(number(&avp)?),
                (avp::EXPERIMENTAL_RESULT, None) => {
                    found.result = find(&avp, avp::EXPERIMENTAL_RESULT_CODE, None)?
                        .map(|code| number(&code))
                        .transpose()?;
                }
                (code::AUTHENTICATION_INFO, Some(VENDOR)) => found.vector = vector(&avp)?,
                (code::SUBSCRIPTION_DATA, Some(VENDOR)) => {
                    found.subscription = Some(subscription(&avp)?);
                }
                (code::VISITED_PLMN, Some(VENDOR)) => found.plmn = Some(exactly(&avp)?),
                _ => {}
            }
        }
        Ok(found)
    }
}

fn number(avp: &Avp<'_>) -> Result<u32, Refusal> {
    avp.u32().ok_or(result::INVALID_AVP_LENGTH)
}

fn exactly<const N: usize>(avp: &Avp<'_>) -> Result<[u8; N], Refusal> {
    avp.data.try_into().map_err(|_| result::INVALID_AVP_LENGTH)
}

/// The first of these in a grouped AVP.
fn find<'a>(group: &Avp<'a>, code: u32, vendor: Option<u32>) -> Result<Option<Avp<'a>>, Refusal> {
    for avp in group.avps() {
        let avp = avp.map_err(|_| result::INVALID_AVP_LENGTH)?;
        if avp.is(code, vendor) {
            return Ok(Some(avp));
        }
    }
    Ok(None)
}

fn vector(info: &Avp<'_>) -> Result<Option<Vector>, Refusal> {
    let Some(group) = find(info, code::EUTRAN_VECTOR, Some(VENDOR))? else {
        return Ok(None);
    };
    let mut vector = Vector::default();
    for avp in group.avps() {
        let avp = avp.map_err(|_| result::INVALID_AVP_LENGTH)?;
        match (avp.code, avp.vendor) {
            (code::RAND, Some(VENDOR)) => vector.rand = exactly(&avp)?,
            (code::XRES, Some(VENDOR)) => vector.xres = exactly(&avp)?,
            (code::AUTN, Some(VENDOR)) => vector.autn = exactly(&avp)?,
            (code::KASME, Some(VENDOR)) => vector.kasme = exactly(&avp)?,
            _ => {}
        }
    }
    Ok(Some(vector))
}

/// The first of these of 3GPP's in a grouped AVP, if that is there.
fn inside<'a>(group: Option<Avp<'a>>, code: u32) -> Result<Option<Avp<'a>>, Refusal> {
    match group {
        Some(group) => find(&group, code, Some(VENDOR)),
        None => Ok(None),
    }
}

fn subscription(data: &Avp<'_>) -> Result<Subscription, Refusal> {
    let word = |group, code| inside(group, code)?.map(|avp| number(&avp)).transpose();
    let small = |value: u32| u8::try_from(value).map_err(|_| result::INVALID_AVP_VALUE);
    let mut found = Subscription::default();
    if let Some(ambr) = inside(Some(*data), code::AMBR)? {
        // In bit/s here (TS 29.272 7.3.41), in kbit/s in GTP.
        let kbps = |code| word(Some(ambr), code).map(|bps| bps.unwrap_or_default() / 1000);
        found.ambr = Ambr {
            up_kbps: kbps(code::MAX_BANDWIDTH_UP)?,
            down_kbps: kbps(code::MAX_BANDWIDTH_DOWN)?,
        };
    }
    let profile = inside(Some(*data), code::APN_PROFILE)?;
    let qos = inside(inside(profile, code::APN_CONFIGURATION)?, code::EPS_QOS)?;
    if let Some(qci) = word(qos, code::QCI)? {
        found.qci = small(qci)?;
    }
    if let Some(priority) = word(inside(qos, code::ARP)?, code::PRIORITY_LEVEL)? {
        found.priority = small(priority)? & 0x0f;
    }
    Ok(found)
}

/// A request, ready to be filled: session, application, origin, user.
pub fn request<'a>(
    room: &'a mut [u8; ROOM],
    who: &Identity,
    command: u32,
    number: u32,
    user: Imsi,
) -> Writer<'a> {
    let end_to_end = who.restarts << 24 | number & 0x00ff_ffff;
    let flags = Flags::REQUEST.and(Flags::PROXIABLE);
    let mut to = Writer::new(room, flags, command, APPLICATION, number, end_to_end);
    let mut session = Text::default();
    // RFC 6733 8.8: whose it is, then what makes it unique: since when, and which.
    let written = write!(session, "{};{};{number};{user}", who.host, who.restarts);
    written.expect("what is too long is cut");
    to.avp(avp::SESSION_ID, None, session.bytes());
    application(&mut to);
    to.u32(avp::AUTH_SESSION_STATE, None, 1);
    to.avp(avp::ORIGIN_HOST, None, who.host.as_bytes());
    to.avp(avp::ORIGIN_REALM, None, who.realm.as_bytes());
    to.avp(avp::DESTINATION_REALM, None, who.realm.as_bytes());
    let (digits, len) = user.text();
    to.avp(avp::USER_NAME, None, &digits[..len]);
    to
}

/// An answer to a request: session, result, origin.
pub fn answer<'a>(
    room: &'a mut [u8; ROOM],
    who: &Identity,
    to: &Diameter<&[u8]>,
    session: Option<&[u8]>,
    code: u32,
) -> Writer<'a> {
    // RFC 6733 7.1.3: the E bit is set for what breaks the protocol.
    let error = match code {
        3000..=3999 => Flags::ERROR,
        _ => Flags(0),
    };
    let flags = Flags(to.flags().0 & Flags::PROXIABLE.0).and(error);
    let (hop, end) = (to.hop_by_hop(), to.end_to_end());
    let mut writer = Writer::new(room, flags, to.command(), APPLICATION, hop, end);
    if let Some(session) = session {
        // A longer one is not ours, and is not repeated: the room is for what we say.
        writer.avp(avp::SESSION_ID, None, &session[..session.len().min(128)]);
    }
    application(&mut writer);
    match code {
        experimental::USER_UNKNOWN | experimental::UNKNOWN_EPS_SUBSCRIPTION => {
            writer.group(avp::EXPERIMENTAL_RESULT, None, |group| {
                group.u32(avp::VENDOR_ID, None, VENDOR);
                group.u32(avp::EXPERIMENTAL_RESULT_CODE, None, code);
            });
        }
        code => writer.u32(avp::RESULT_CODE, None, code),
    }
    writer.u32(avp::AUTH_SESSION_STATE, None, 1);
    writer.avp(avp::ORIGIN_HOST, None, who.host.as_bytes());
    writer.avp(avp::ORIGIN_REALM, None, who.realm.as_bytes());
    writer
}

fn application(to: &mut Writer<'_>) {
    to.group(avp::VENDOR_SPECIFIC_APPLICATION_ID, None, |group| {
        group.u32(avp::VENDOR_ID, None, VENDOR);
        group.u32(avp::AUTH_APPLICATION_ID, None, APPLICATION);
    });
}

/// Fills an Authentication-Information-Request: one vector for E-UTRAN.
pub fn put_vector_wanted(to: &mut Writer<'_>, plmn: [u8; 3]) {
    to.group(code::REQUESTED_EUTRAN, Some(VENDOR), |group| {
        group.u32(code::NUMBER_OF_VECTORS, Some(VENDOR), 1);
        group.u32(code::IMMEDIATE_RESPONSE, Some(VENDOR), 1);
    });
    to.avp(code::VISITED_PLMN, Some(VENDOR), &plmn);
}

/// Fills an Update-Location-Request: S6a, first registration, E-UTRAN.
pub fn put_location(to: &mut Writer<'_>, plmn: [u8; 3]) {
    // TS 29.272 7.3.128: 1004 is E-UTRAN. 7.3.7: the S6a indicator, and initial attach.
    to.u32(code::RAT_TYPE, Some(VENDOR), 1004);
    to.u32(code::ULR_FLAGS, Some(VENDOR), 1 << 1 | 1 << 5);
    to.avp(code::VISITED_PLMN, Some(VENDOR), &plmn);
}

/// Fills an Authentication-Information-Answer.
pub fn put_vector(to: &mut Writer<'_>, vector: &Vector) {
    to.group(code::AUTHENTICATION_INFO, Some(VENDOR), |info| {
        info.group(code::EUTRAN_VECTOR, Some(VENDOR), |group| {
            group.avp(code::RAND, Some(VENDOR), &vector.rand);
            group.avp(code::XRES, Some(VENDOR), &vector.xres);
            group.avp(code::AUTN, Some(VENDOR), &vector.autn);
            group.avp(code::KASME, Some(VENDOR), &vector.kasme);
        });
    });
}

/// Fills an Update-Location-Answer: one access point, its default bearer.
pub fn put_subscription(to: &mut Writer<'_>, user: Imsi, apn: &str, of: &Subscription) {
    let vendor = Some(VENDOR);
    to.u32(code::ULA_FLAGS, vendor, 1); // separation indication
    to.group(code::SUBSCRIPTION_DATA, vendor, |data| {
        // A number to call, which nobody does here: the user's own, in BCD.
        data.avp(code::MSISDN, vendor, &user.bytes()[..7]);
        data.u32(code::SUBSCRIBER_STATUS, vendor, 0);
        data.u32(code::NETWORK_ACCESS_MODE, vendor, 2); // only packets
        data.group(code::AMBR, vendor, |ambr| {
            let bps = |kbps: u32| kbps.saturating_mul(1000);
            ambr.u32(code::MAX_BANDWIDTH_UP, vendor, bps(of.ambr.up_kbps));
            ambr.u32(code::MAX_BANDWIDTH_DOWN, vendor, bps(of.ambr.down_kbps));
        });
        data.group(code::APN_PROFILE, vendor, |profile| {
            profile.u32(code::CONTEXT_IDENTIFIER, vendor, 1);
            profile.u32(code::ALL_APNS_INCLUDED, vendor, 0);
            profile.group(code::APN_CONFIGURATION, vendor, |configuration| {
                configuration.u32(code::CONTEXT_IDENTIFIER, vendor, 1);
                configuration.u32(code::PDN_TYPE, vendor, 0); // IPv4
                configuration.avp(code::SERVICE_SELECTION, None, apn.as_bytes());
                configuration.group(code::EPS_QOS, vendor, |qos| {
                    qos.u32(code::QCI, vendor, of.qci.into());
                    qos.group(code::ARP, vendor, |arp| {
                        arp.u32(code::PRIORITY_LEVEL, vendor, of.priority.into());
                    });
                });
            });
        });
    });
}

/// Fills a Cancel-Location-Request: another MME has the user.
pub fn put_cancellation(to: &mut Writer<'_>, host: &[u8]) {
    to.avp(avp::DESTINATION_HOST, None, host);
    to.u32(code::CANCELLATION_TYPE, Some(VENDOR), 0);
}

/// Fills a Purge-UE-Answer: the temporary identity is not to be frozen.
pub fn put_purged(to: &mut Writer<'_>) {
    to.u32(code::PUA_FLAGS, Some(VENDOR), 0);
}

/// Text on the stack, cut at its room.
struct Text {
    bytes: [u8; 128],
    len: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self {
            bytes: [0; 128],
            len: 0,
        }
    }
}

impl Text {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let len = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::challenge::Key;

    fn identity() -> Identity {
        Identity {
            host: "mme.linerate".into(),
            realm: "linerate".into(),
            address: Ipv4Addr::new(10, 0, 0, 1),
            restarts: 1,
        }
    }

    #[test]
    fn ts_29_272_what_is_written_is_read() {
        let (who, user) = (identity(), Imsi::new(1_010_000_000_001, 15).unwrap());
        let mut room = [0; ROOM];
        let mut writer = request(&mut room, &who, command::UPDATE_LOCATION, 77, user);
        put_location(&mut writer, [0, 0xf1, 0x10]);
        let asked = Diameter::new_checked(writer.finish().unwrap()).unwrap();
        let found = Contents::read(&asked).unwrap();
        assert_eq!(
            found.session,
            Some(&b"mme.linerate;1;77;001010000000001"[..])
        );
        assert_eq!(
            (found.user, found.plmn),
            (Some(user), Some([0, 0xf1, 0x10]))
        );
        assert_eq!((asked.hop_by_hop(), asked.is_request()), (77, true));

        let subscription = Subscription {
            qci: 7,
            priority: 3,
            ..Subscription::default()
        };
        let vector = Key::derive(1, user).vector([9; 16]);
        let mut room = [0; ROOM];
        let mut writer = answer(&mut room, &who, &asked, found.session, result::SUCCESS);
        put_subscription(&mut writer, user, "internet", &subscription);
        put_vector(&mut writer, &vector);
        let answered = Diameter::new_checked(writer.finish().unwrap()).unwrap();
        let found = Contents::read(&answered).unwrap();
        assert_eq!(found.subscription, Some(subscription));
        assert_eq!(
            (found.vector, found.result),
            (Some(vector), Some(result::SUCCESS))
        );
        assert_eq!((answered.hop_by_hop(), answered.is_request()), (77, false));
    }

    #[test]
    fn rfc_6733_7_1_5_wrong_avps_are_refused() {
        let who = identity();
        let read = |fill: &dyn Fn(&mut Writer<'_>)| {
            let mut room = [0; ROOM];
            let user = Imsi::new(1, 15).unwrap();
            let mut writer = request(&mut room, &who, command::PURGE_UE, 1, user);
            fill(&mut writer);
            let message = Diameter::new_checked(writer.finish().unwrap()).unwrap();
            Contents::read(&message).map(drop)
        };
        let short: &dyn Fn(&mut Writer<'_>) = &|w| w.avp(avp::RESULT_CODE, None, &[1]);
        assert_eq!(read(short), Err(result::INVALID_AVP_LENGTH));
        let text: &dyn Fn(&mut Writer<'_>) = &|w| w.avp(avp::USER_NAME, None, b"alice");
        assert_eq!(read(text), Err(result::INVALID_AVP_VALUE));
        let inside: &dyn Fn(&mut Writer<'_>) = &|w| {
            w.avp(
                code::SUBSCRIPTION_DATA,
                Some(VENDOR),
                &[0, 0, 0, 1, 0, 0, 0, 99],
            )
        };
        assert_eq!(read(inside), Err(result::INVALID_AVP_LENGTH));
        assert_eq!(read(&|_| {}), Ok(()));
    }
}
