use super::*;
use proptest::prelude::*;
use std::{string::ToString, vec::Vec};

/// A watchdog request with Origin-Host "mme", and a vendor's AVP.
const BYTES: [u8; 48] = [
    1, 0, 0, 48, 0x80, 0, 1, 24, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, // header
    0, 0, 1, 8, 0x40, 0, 0, 11, b'm', b'm', b'e', 0, // Origin-Host
    0, 0, 5, 126, 0xc0, 0, 0, 16, 0, 0, 0x28, 0xaf, 0, 0, 0, 34, // ULA-Flags of 3GPP
];

#[test]
fn rfc_6733_3_reads_a_message() {
    let diameter = Diameter::new_checked(&BYTES[..]).unwrap();
    assert_eq!(
        diameter.to_string(),
        "Diameter request 280 application 0 ids 0x5 0x6 len 48"
    );
    let avps: Vec<_> = diameter.avps().map(Result::unwrap).collect();
    assert!(avps[0].is(avp::ORIGIN_HOST, None) && avps[0].is_mandatory);
    assert_eq!(avps[0].data, b"mme");
    assert!(avps[1].is(1406, Some(10415)));
    assert_eq!((avps[1].u32(), avps[0].u32()), (Some(34), None));
}

#[test]
fn a_writer_writes_what_is_read() {
    let mut bytes = [0; 48];
    let mut writer = Writer::new(&mut bytes, Flags::REQUEST, 280, 0, 5, 6);
    writer.avp(avp::ORIGIN_HOST, None, b"mme");
    writer.u32(1406, Some(10415), 34);
    assert_eq!(writer.finish(), Some(&BYTES[..]));
    for room in 0..48 {
        let mut bytes = [0; 48];
        let mut writer = Writer::new(&mut bytes[..room], Flags::REQUEST, 280, 0, 5, 6);
        writer.group(avp::FAILED_AVP, None, |inside| {
            inside.optional(avp::ORIGIN_HOST, None, b"mme");
        });
        assert_eq!(writer.finish().map(<[u8]>::len), (room >= 40).then_some(40));
    }
}

#[test]
fn rfc_6733_2_1_messages_of_a_stream_are_framed() {
    assert_eq!(frame(&BYTES[..3]), Ok(None));
    assert_eq!(frame(&BYTES[..4]), Ok(Some(48)));
    let total = Err(Malformed::TotalLength(Layer::Diameter));
    assert_eq!(frame(&[1, 0, 0, 16]), total);
    assert_eq!(frame(&[1, 0, 0, 22]), total);
    assert_eq!(frame(&[1, 1, 0, 0]), total);
    assert_eq!(frame(b"GET /"), Err(Malformed::Version(Layer::Diameter)));
}

#[test]
fn lengths_are_checked_once() {
    let reason = |len: usize| Diameter::new_checked(&BYTES[..len]).unwrap_err();
    assert_eq!(reason(19), Malformed::Truncated(Layer::Diameter));
    assert_eq!(reason(47), Malformed::TotalLength(Layer::Diameter));
}

#[test]
fn rfc_6733_4_1_an_avp_past_the_end_is_the_last() {
    for (len, is_good) in [(7, false), (8, true), (11, true), (12, true), (13, false)] {
        let bytes = [0, 0, 1, 8, 0x40, 0, 0, len, 1, 2, 3, 4];
        assert_eq!(avps(&bytes).next().unwrap().is_ok(), is_good, "{len}");
    }
    // A vendor's is longer by four, and padding has to be there.
    assert!(avps(&[0, 0, 1, 8, 0x80, 0, 0, 8]).next().unwrap().is_err());
    assert!(avps(&[0, 0, 1, 8, 0, 0, 0, 9, 1]).next().unwrap().is_err());
    assert!(avps(&[0; 7]).next().unwrap().is_err());
}

proptest! {
    #[test]
    fn never_panics(flags: u8, len in 0_u8..80,
        tail in prop::collection::vec(prop_oneof![0_u8..16, any::<u8>()], 16..80)) {
        let bytes: Vec<u8> = [&[1, 0, 0, len][..], &[flags], &tail].concat();
        let Ok(diameter) = Diameter::new_checked(&bytes) else { return Ok(()) };
        let _ = diameter.to_string();
        for avp in diameter.avps().flatten() {
            prop_assert!(avp.data.len() < diameter.len());
            avp.avps().for_each(drop);
        }
    }
}
