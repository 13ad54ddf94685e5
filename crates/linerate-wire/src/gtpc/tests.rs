use super::ie::{Ambr, BearerQos, Cause, FTeid, Imsi, MAX_LEN, Paa, Uli, apn_is, plmn, write_apn};
use super::*;
use proptest::prelude::*;
use std::{string::ToString, vec::Vec};

/// An echo request of sequence 0x010203 with Recovery 7.
const ECHO: [u8; 13] = [
    0x40, 0x01, 0x00, 0x09, 0x01, 0x02, 0x03, 0x00, 0x03, 0x00, 0x01, 0x00, 0x07,
];

#[test]
fn ts_29_274_5_5_1_reads_a_header_without_teid() {
    let gtpc = Gtpc::new_checked(&ECHO[..]).unwrap();
    assert_eq!(gtpc.to_string(), "GTP-C message 1 seq 66051 len 5");
    let recovery = Ie {
        kind: ie::RECOVERY,
        instance: 0,
        value: &[7],
    };
    assert!(gtpc.ies().eq([Ok(recovery)]));
}

#[test]
fn ts_29_274_5_5_1_reads_a_header_with_teid() {
    let mut bytes = [
        0x58, 0x22, 0, 8, 0xde, 0xad, 0xbe, 0xef, 0, 0, 9, 0, 0xee, 0xee,
    ];
    let gtpc = Gtpc::new_checked(&bytes[..]).unwrap();
    assert_eq!(
        gtpc.to_string(),
        "GTP-C message 34 teid 0xdeadbeef seq 9 len 0"
    );
    assert!(gtpc.is_piggybacked() && gtpc.len() == 12);
    assert!(readdress(&mut bytes, 1, 2));
    let gtpc = Gtpc::new_checked(&bytes[..]).unwrap();
    assert_eq!((gtpc.teid(), gtpc.sequence()), (Some(1), 2));
    assert!(!readdress(&mut ECHO.clone(), 1, 2));
}

#[test]
fn lengths_are_checked_once() {
    let reason = |at: usize, value: u8, len: usize| {
        let mut bytes = ECHO;
        bytes[at] = value;
        Gtpc::new_checked(&bytes[..len]).unwrap_err()
    };
    assert_eq!(reason(0, 0x40, 7), Malformed::Truncated(Layer::Gtpc));
    assert_eq!(reason(0, 0x20, 13), Malformed::Version(Layer::Gtpc));
    assert_eq!(reason(3, 10, 13), Malformed::TotalLength(Layer::Gtpc));
    assert_eq!(reason(3, 3, 13), Malformed::TotalLength(Layer::Gtpc));
    // With TEID the header alone is longer.
    let short = [0x48, 0x22, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        Gtpc::new_checked(short).unwrap_err(),
        Malformed::TotalLength(Layer::Gtpc)
    );
}

#[test]
fn an_ie_past_the_end_is_the_last() {
    let mut walk = ies(&[3, 0, 1, 0, 7, 1, 0, 9, 0, 1]);
    assert!(walk.next().unwrap().is_ok());
    let reason = Malformed::HeaderLength(Layer::Gtpc);
    assert_eq!(walk.next(), Some(Err(reason)));
    assert_eq!(walk.next(), None);
    let short = Some(Err(Malformed::Truncated(Layer::Gtpc)));
    assert_eq!(ies(&[3, 0, 1]).next(), short);
}

#[test]
fn a_writer_without_room_says_so() {
    for room in 0..40 {
        let mut bytes = [0; 40];
        let mut writer = Writer::new(&mut bytes[..room], message::ECHO_REQUEST, Some(1), 2);
        writer.group(ie::BEARER_CONTEXT, 1, |inside| {
            inside.ie(ie::EBI, 0, &[5]);
            inside.ie(ie::EBI, 0, &[6]);
        });
        assert_eq!(writer.finish().map(<[u8]>::len), (room >= 26).then_some(26));
    }
}

#[test]
fn ts_29_274_8_3_imsi() {
    let imsi = Imsi::new(1_010_123_456_789, 15).unwrap();
    assert_eq!(imsi.to_string(), "001010123456789");
    assert_eq!(
        imsi.bytes(),
        [0x00, 0x01, 0x01, 0x21, 0x43, 0x65, 0x87, 0xf9]
    );
    assert_eq!(Imsi::read(&imsi.bytes()), Some(imsi));
    assert_eq!(Imsi::from_text(b"001010123456789"), Some(imsi));
    assert_eq!((imsi.number(), imsi.digits()), (1_010_123_456_789, 15));
    assert_eq!(Imsi::new(12, 1), None);
    assert_eq!(Imsi::read(&[0x1f]), None); // the filler is not at the end
    assert_eq!(Imsi::read(&[0xf1]).unwrap().to_string(), "1");
    assert_eq!(Imsi::read(&[0; 9]), None);
    assert_eq!(Imsi::read(&[]), None);
    assert_eq!(Imsi::from_text(b"12a"), None);
}

#[test]
fn ts_29_274_8_22_f_teid() {
    let v4 = FTeid::v4(ie::interface::S11_MME, 0x0102_0304, [10, 0, 0, 1]);
    let bytes = [0x8a, 1, 2, 3, 4, 10, 0, 0, 1];
    let mut to = [0; MAX_LEN];
    assert_eq!((v4.write(&mut to), &to[..9]), (9, &bytes[..]));
    assert_eq!(FTeid::read(&bytes), Some(v4));
    assert_eq!(FTeid::read(&bytes[..8]), None);
    assert_eq!(FTeid::read(&[0x0a, 1, 2, 3, 4]), None); // no address
    assert_eq!(FTeid::read(&[0xca, 1, 2, 3, 4, 10, 0, 0, 1, 0]), None); // half of IPv6
}

#[test]
fn ts_23_003_9_1_apn() {
    let mut to = [0; 20];
    assert_eq!(write_apn("internet.lr", &mut to), Some(12));
    assert_eq!(&to[..12], b"\x08internet\x02lr");
    assert!(apn_is(b"\x08InterNet\x02lr", "internet.lr"));
    assert!(!apn_is(b"\x08internet\x03lr", "internet.lr"));
    assert!(!apn_is(b"\x08internet", "internet.lr"));
    assert!(!apn_is(b"\x08internet\x02lr\x01x", "internet.lr"));
    assert_eq!(write_apn("a..b", &mut to), None);
    assert_eq!(write_apn("much.too.long.for.it", &mut to), None);
}

#[test]
fn ts_24_008_10_5_1_13_plmn() {
    assert_eq!(plmn(1, 1, 2), Some([0x00, 0xf1, 0x10]));
    assert_eq!(plmn(310, 410, 3), Some([0x13, 0x00, 0x14]));
    assert_eq!((plmn(1000, 1, 2), plmn(1, 100, 2)), (None, None));
}

fn address() -> impl Strategy<Value = (Option<[u8; 4]>, Option<[u8; 16]>)> {
    (any::<Option<[u8; 4]>>(), any::<Option<[u8; 16]>>())
        .prop_filter("one address", |(v4, v6)| v4.is_some() || v6.is_some())
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        (v4, v6) in address(), teid: u32, kind in 0_u8..64, cause: u8, flags: u8,
        offending in any::<Option<(u8, u8)>>(), up: u32, down: u32, arp: u8, qci: u8,
        rates in any::<[u32; 4]>(), tai in any::<Option<([u8; 3], u16)>>(),
        ecgi in any::<Option<([u8; 3], u32)>>(),
    ) {
        let mut to = [0; MAX_LEN];
        let f_teid = FTeid { interface: kind, teid, v4, v6 };
        let len = f_teid.write(&mut to);
        prop_assert_eq!(FTeid::read(&to[..len]), Some(f_teid));

        let pdn_type = u8::from(v4.is_some()) | u8::from(v6.is_some()) << 1;
        let paa = Paa { pdn_type, v4, v6: v6.map(|v6| (64, v6)) };
        let len = paa.write(&mut to);
        prop_assert_eq!(Paa::read(&to[..len]), Some(paa));

        let offending = offending.map(|(kind, instance)| (kind, instance & 0x0f));
        let cause = Cause { value: cause, flags, offending };
        let len = cause.write(&mut to);
        prop_assert_eq!(Cause::read(&to[..len]), Some(cause));

        let ambr = Ambr { up_kbps: up, down_kbps: down };
        let len = ambr.write(&mut to);
        prop_assert_eq!(Ambr::read(&to[..len]), Some(ambr));

        let qos = BearerQos { arp, qci, rates_kbps: rates.map(|rate| u64::from(rate) << 8) };
        let len = qos.write(&mut to);
        prop_assert_eq!(BearerQos::read(&to[..len]), Some(qos));

        let ecgi = ecgi.map(|(plmn, cell)| (plmn, cell & 0x0fff_ffff));
        let uli = Uli { tai, ecgi };
        let len = uli.write(&mut to);
        prop_assert_eq!(Uli::read(&to[..len]), Some(uli));
    }

    #[test]
    fn never_panics(flags: u8, message: u8, len in 0_u8..60,
        tail in prop::collection::vec(prop_oneof![0_u8..8, any::<u8>()], 0..60)) {
        let bytes: Vec<u8> = [&[0x40 | flags & 0x1f, message, 0, len][..], &tail].concat();
        let Ok(gtpc) = Gtpc::new_checked(&bytes) else { return Ok(()) };
        let _ = gtpc.to_string();
        prop_assert_eq!(gtpc.header_len() + gtpc.body().len(), gtpc.len());
        let whole: usize = gtpc.ies().flatten().map(|ie| ie.value.len() + IE_HEADER_LEN).sum();
        prop_assert!(whole <= gtpc.body().len());
        prop_assert!(whole == gtpc.body().len() || gtpc.ies().last().unwrap().is_err());
    }
}
