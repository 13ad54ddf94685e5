//! GTP-U messages that carry no user's packet (TS 29.281 7): echo, error indication, end marker.

use linerate_wire::gtpu::{Gtpu, HEADER_LEN, OPTIONAL_LEN, message};

/// Bytes of the longest message here.
pub const ROOM: usize = 24;

/// Information element types (TS 29.281 8.1).
const RECOVERY: u8 = 14;
const TEID_DATA: u8 = 16;
const PEER_ADDRESS: u8 = 133;

/// A header with a sequence number, for `len` bytes behind it. TS 29.281 5.1: echoes and error
/// indications have one.
fn header(to: &mut [u8; ROOM], kind: u8, sequence: u16, len: usize) -> usize {
    let [m, n] = ((OPTIONAL_LEN + len) as u16).to_be_bytes();
    let [a, b] = sequence.to_be_bytes();
    to[..12].copy_from_slice(&[0x32, kind, m, n, 0, 0, 0, 0, a, b, 0, 0]);
    HEADER_LEN + OPTIONAL_LEN
}

/// The answer to an echo request (7.2.2): its Recovery is there for older peers, and 0.
pub fn echo_response(sequence: u16, room: &mut [u8; ROOM]) -> &[u8] {
    let at = header(room, message::ECHO_RESPONSE, sequence, 2);
    room[at..at + 2].copy_from_slice(&[RECOVERY, 0]);
    &room[..at + 2]
}

/// A packet came for a tunnel that there is not (7.3.1); `own` is the address that it came to.
pub fn error_indication(teid: u32, own: [u8; 4], room: &mut [u8; ROOM]) -> &[u8] {
    let at = header(room, message::ERROR_INDICATION, 0, 12);
    room[at] = TEID_DATA;
    room[at + 1..at + 5].copy_from_slice(&teid.to_be_bytes());
    room[at + 5..at + 8].copy_from_slice(&[PEER_ADDRESS, 0, 4]);
    room[at + 8..at + 12].copy_from_slice(&own);
    &room[..at + 12]
}

/// Nothing more comes through this tunnel (7.3.2).
pub fn end_marker(teid: u32, room: &mut [u8; ROOM]) -> &[u8] {
    room[..HEADER_LEN].copy_from_slice(&linerate_wire::gtpu::header(teid, 0));
    room[1] = message::END_MARKER;
    &room[..HEADER_LEN]
}

/// The tunnel that an error indication says is not there: identifier and address of its owner.
pub fn gone(indication: &Gtpu<&[u8]>) -> Option<(u32, [u8; 4])> {
    let (teid, rest) = indication.payload().split_first_chunk::<5>()?;
    let &[TEID_DATA, a, b, c, d] = teid else {
        return None;
    };
    let &[PEER_ADDRESS, 0, 4, w, x, y, z] = rest.first_chunk()? else {
        return None;
    };
    Some((u32::from_be_bytes([a, b, c, d]), [w, x, y, z]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ts_29_281_7_messages_are_read() {
        let mut room = [0; ROOM];
        let bytes = echo_response(7, &mut room);
        let gtpu = Gtpu::new_checked(bytes).unwrap();
        assert_eq!(
            gtpu.to_string(),
            "GTP-U message 2 teid 0x00000000 seq 7 len 2"
        );
        let bytes = error_indication(9, [10, 0, 0, 1], &mut room);
        let gtpu = Gtpu::new_checked(bytes).unwrap();
        assert_eq!(
            gtpu.to_string(),
            "GTP-U message 26 teid 0x00000000 seq 0 len 12"
        );
        assert_eq!(gone(&gtpu), Some((9, [10, 0, 0, 1])));
        let bytes = end_marker(5, &mut room);
        let gtpu = Gtpu::new_checked(bytes).unwrap();
        assert_eq!(gtpu.to_string(), "GTP-U message 254 teid 0x00000005 len 0");
        assert_eq!(gone(&gtpu), None);
    }
}
