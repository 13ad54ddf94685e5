//! GTP-C messages as the nodes here use them: what one contains, and how refusals are said.
//!
//! [`Contents`] is one walk over a message: each IE that a node here wants, by type and instance,
//! the first of equals (TS 29.274 7.7.10); unknown ones are skipped (7.7.9). `endpoint` sends
//! again, recognises what comes again, and watches peers.

pub mod endpoint;
pub mod paths;
pub(crate) mod sessions;
pub mod user;

use linerate_wire::gtpc::ie::{self, Ambr, BearerQos, Cause, FTeid, Imsi, MAX_LEN, Paa, Uli};
use linerate_wire::gtpc::{Gtpc, Writer, ies};

/// Room for any message that a node here makes, in bytes.
pub const ROOM: usize = 512;

/// Why a message is refused: the cause to answer with (TS 29.274 7.7).
pub type Refusal = Cause;

/// A refusal that names the IE it is about.
pub const fn refusal(cause: u8, kind: u8, instance: u8) -> Refusal {
    Cause {
        value: cause,
        flags: 0,
        offending: Some((kind, instance)),
    }
}

/// TS 29.274 7.7.6: a mandatory IE is not there.
pub const fn missing(kind: u8, instance: u8) -> Refusal {
    refusal(ie::cause::MANDATORY_IE_MISSING, kind, instance)
}

/// A bearer context: grouped, with IEs of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bearer {
    /// Which bearer.
    pub ebi: Option<u8>,
    /// How it is treated.
    pub qos: Option<BearerQos>,
    /// How its part of a request ended.
    pub cause: Option<Cause>,
    /// Its tunnels' ends, by instance: what each is for, the message says.
    pub f_teids: [Option<FTeid>; 4],
}

/// What a message contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // each field is the IE of that name
pub struct Contents<'a> {
    pub imsi: Option<Imsi>,
    pub cause: Option<Cause>,
    pub recovery: Option<u8>,
    pub apn: Option<&'a [u8]>,
    pub ambr: Option<Ambr>,
    pub ebi: Option<u8>,
    pub msisdn: Option<&'a [u8]>,
    pub mei: Option<&'a [u8]>,
    pub indication: Option<&'a [u8]>,
    pub pco: Option<&'a [u8]>,
    pub paa: Option<Paa>,
    pub rat_type: Option<u8>,
    pub serving_network: Option<[u8; 3]>,
    pub uli: Option<Uli>,
    pub pdn_type: Option<u8>,
    pub selection_mode: Option<u8>,
    pub apn_restriction: Option<u8>,
    pub charging_characteristics: Option<[u8; 2]>,
    /// Instance 0: the sender's end for control.
    pub sender: Option<FTeid>,
    /// Instance 1: the gateway's end for control.
    pub gateway: Option<FTeid>,
    /// Instance 0: created, modified.
    pub bearer: Option<Bearer>,
}

impl<'a> Contents<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// Invalid Message Format for IEs that go past the end (TS 29.274 7.7.3); Invalid Length, with
    /// the IE, for one too short for what it says (7.7.7).
    pub fn read<T: AsRef<[u8]>>(message: &'a Gtpc<T>) -> Result<Self, Refusal> {
        let mut found = Self::default();
        for ie in message.ies() {
            let ie = ie.map_err(|_| Cause::new(ie::cause::INVALID_MESSAGE_FORMAT))?;
            let (kind, value) = (ie.kind, ie.value);
            let wrong = refusal(ie::cause::INVALID_LENGTH, kind, ie.instance);
            let byte = || value.first().copied().ok_or(wrong);
            match (kind, ie.instance) {
                (ie::IMSI, 0) => first(&mut found.imsi, Imsi::read(value).ok_or(wrong)?),
                (ie::CAUSE, 0) => first(&mut found.cause, Cause::read(value).ok_or(wrong)?),
                (ie::RECOVERY, 0) => first(&mut found.recovery, byte()?),
                (ie::APN, 0) => first(&mut found.apn, value),
                (ie::AMBR, 0) => first(&mut found.ambr, Ambr::read(value).ok_or(wrong)?),
                (ie::EBI, 0) => first(&mut found.ebi, byte()? & 0x0f),
                (ie::MSISDN, 0) => first(&mut found.msisdn, value),
                (ie::MEI, 0) => first(&mut found.mei, value),
                (ie::INDICATION, 0) => first(&mut found.indication, value),
                (ie::PCO, 0) => first(&mut found.pco, value),
                (ie::PAA, 0) => first(&mut found.paa, Paa::read(value).ok_or(wrong)?),
                (ie::RAT_TYPE, 0) => first(&mut found.rat_type, byte()?),
                (ie::SERVING_NETWORK, 0) => {
                    let network = *value.first_chunk().ok_or(wrong)?;
                    first(&mut found.serving_network, network);
                }
                (ie::ULI, 0) => first(&mut found.uli, Uli::read(value).ok_or(wrong)?),
                (ie::PDN_TYPE, 0) => first(&mut found.pdn_type, byte()? & 0x07),
                (ie::SELECTION_MODE, 0) => first(&mut found.selection_mode, byte()? & 0x03),
                (ie::APN_RESTRICTION, 0) => first(&mut found.apn_restriction, byte()?),
                (ie::CHARGING_CHARACTERISTICS, 0) => {
                    let bits = *value.first_chunk().ok_or(wrong)?;
                    first(&mut found.charging_characteristics, bits);
                }
                (ie::F_TEID, 0) => first(&mut found.sender, FTeid::read(value).ok_or(wrong)?),
                (ie::F_TEID, 1) => first(&mut found.gateway, FTeid::read(value).ok_or(wrong)?),
                (ie::BEARER_CONTEXT, 0) => first(&mut found.bearer, Bearer::read(value)?),
                _ => {}
            }
        }
        Ok(found)
    }
}

impl Bearer {
    fn read(value: &[u8]) -> Result<Self, Refusal> {
        let mut found = Self::default();
        for ie in ies(value) {
            let ie = ie.map_err(|_| Cause::new(ie::cause::INVALID_MESSAGE_FORMAT))?;
            let (kind, value) = (ie.kind, ie.value);
            let wrong = refusal(ie::cause::INVALID_LENGTH, kind, ie.instance);
            match (kind, usize::from(ie.instance)) {
                (ie::EBI, 0) => {
                    first(&mut found.ebi, value.first().ok_or(wrong)? & 0x0f);
                }
                (ie::BEARER_QOS, 0) => {
                    first(&mut found.qos, BearerQos::read(value).ok_or(wrong)?);
                }
                (ie::CAUSE, 0) => first(&mut found.cause, Cause::read(value).ok_or(wrong)?),
                (ie::F_TEID, instance @ 0..4) => {
                    let f_teid = FTeid::read(value).ok_or(wrong)?;
                    first(&mut found.f_teids[instance], f_teid);
                }
                _ => {}
            }
        }
        Ok(found)
    }
}

fn first<T>(place: &mut Option<T>, value: T) {
    place.get_or_insert(value);
}

/// Appends an IE that a value of [`ie`] writes.
pub fn put(
    to: &mut Writer<'_>,
    kind: u8,
    instance: u8,
    write: impl FnOnce(&mut [u8; MAX_LEN]) -> usize,
) {
    let mut bytes = [0; MAX_LEN];
    let len = write(&mut bytes);
    to.ie(kind, instance, &bytes[..len]);
}

/// Appends an F-TEID.
pub fn put_f_teid(to: &mut Writer<'_>, instance: u8, f_teid: &FTeid) {
    put(to, ie::F_TEID, instance, |bytes| f_teid.write(bytes));
}

/// Appends a cause.
pub fn put_cause(to: &mut Writer<'_>, cause: Cause) {
    put(to, ie::CAUSE, 0, |bytes| cause.write(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_wire::gtpc::message;

    fn read(fill: impl FnOnce(&mut Writer<'_>)) -> Result<(Option<u8>, Option<u8>), Refusal> {
        let mut bytes = [0; ROOM];
        let mut writer = Writer::new(&mut bytes, message::CREATE_SESSION_REQUEST, Some(1), 1);
        fill(&mut writer);
        let gtpc = Gtpc::new_checked(writer.finish().unwrap()).unwrap();
        let contents = Contents::read(&gtpc)?;
        Ok((
            contents.recovery,
            contents.bearer.and_then(|bearer| bearer.ebi),
        ))
    }

    #[test]
    fn ts_29_274_7_7_7_an_ie_too_short_is_named() {
        let wrong = refusal(ie::cause::INVALID_LENGTH, ie::F_TEID, 1);
        assert_eq!(read(|w| w.ie(ie::F_TEID, 1, &[0x80])), Err(wrong));
        let wrong = refusal(ie::cause::INVALID_LENGTH, ie::EBI, 0);
        let in_group =
            |w: &mut Writer<'_>| w.group(ie::BEARER_CONTEXT, 0, |w| w.ie(ie::EBI, 0, &[]));
        assert_eq!(read(in_group), Err(wrong));
    }

    #[test]
    fn ts_29_274_7_7_9_and_10_unknown_and_repeated_ies_are_skipped() {
        let found = read(|w| {
            w.ie(250, 0, &[1, 2, 3]);
            w.ie(ie::RECOVERY, 0, &[4]);
            w.ie(ie::RECOVERY, 0, &[5]);
            w.group(ie::BEARER_CONTEXT, 0, |w| w.ie(ie::EBI, 0, &[0xf5, 9]));
            w.ie(ie::BEARER_CONTEXT, 0, &[]);
        });
        assert_eq!(found, Ok((Some(4), Some(5))));
    }

    #[test]
    fn ts_29_274_7_7_3_an_ie_past_the_end_is_a_wrong_format() {
        let wrong = Cause::new(ie::cause::INVALID_MESSAGE_FORMAT);
        let past = |w: &mut Writer<'_>| w.ie(ie::BEARER_CONTEXT, 0, &[ie::EBI, 0, 9, 0, 1]);
        assert_eq!(read(past), Err(wrong));
    }
}
