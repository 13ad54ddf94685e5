//! `struct tcp_info` of `linux/tcp.h`: fields by name.

use crate::call::Info;

/// Bytes to ask for: more than any kernel has.
pub(super) const BYTES: usize = 512;

/// Name, offset and size in bytes.
#[rustfmt::skip]
const FIELDS: &[(&str, usize, usize)] = &[
    ("tcpi_state", 0, 1), ("tcpi_ca_state", 1, 1), ("tcpi_retransmits", 2, 1),
    ("tcpi_probes", 3, 1), ("tcpi_backoff", 4, 1), ("tcpi_options", 5, 1),
    ("tcpi_rto", 8, 4), ("tcpi_ato", 12, 4), ("tcpi_snd_mss", 16, 4), ("tcpi_rcv_mss", 20, 4),
    ("tcpi_unacked", 24, 4), ("tcpi_sacked", 28, 4), ("tcpi_lost", 32, 4),
    ("tcpi_retrans", 36, 4), ("tcpi_fackets", 40, 4), ("tcpi_last_data_sent", 44, 4),
    ("tcpi_last_ack_sent", 48, 4), ("tcpi_last_data_recv", 52, 4),
    ("tcpi_last_ack_recv", 56, 4), ("tcpi_pmtu", 60, 4), ("tcpi_rcv_ssthresh", 64, 4),
    ("tcpi_rtt", 68, 4), ("tcpi_rttvar", 72, 4), ("tcpi_snd_ssthresh", 76, 4),
    ("tcpi_snd_cwnd", 80, 4), ("tcpi_advmss", 84, 4), ("tcpi_reordering", 88, 4),
    ("tcpi_rcv_rtt", 92, 4), ("tcpi_rcv_space", 96, 4), ("tcpi_total_retrans", 100, 4),
    ("tcpi_pacing_rate", 104, 8), ("tcpi_max_pacing_rate", 112, 8),
    ("tcpi_bytes_acked", 120, 8), ("tcpi_bytes_received", 128, 8), ("tcpi_segs_out", 136, 4),
    ("tcpi_segs_in", 140, 4), ("tcpi_notsent_bytes", 144, 4), ("tcpi_min_rtt", 148, 4),
    ("tcpi_data_segs_in", 152, 4), ("tcpi_data_segs_out", 156, 4),
    ("tcpi_delivery_rate", 160, 8), ("tcpi_busy_time", 168, 8), ("tcpi_rwnd_limited", 176, 8),
    ("tcpi_sndbuf_limited", 184, 8), ("tcpi_delivered", 192, 4), ("tcpi_delivered_ce", 196, 4),
    ("tcpi_bytes_sent", 200, 8), ("tcpi_bytes_retrans", 208, 8), ("tcpi_dsack_dups", 216, 4),
    ("tcpi_reord_seen", 220, 4), ("tcpi_rcv_ooopack", 224, 4), ("tcpi_snd_wnd", 228, 4),
    ("tcpi_rcv_wnd", 232, 4), ("tcpi_rehash", 236, 4), ("tcpi_total_rto", 240, 2),
    ("tcpi_total_rto_recoveries", 242, 2), ("tcpi_total_rto_time", 244, 4),
];

/// The fields that this kernel has.
pub(super) fn fields(bytes: &[u8]) -> Info {
    let mut info = Info::new();
    for (name, at, len) in FIELDS {
        let Some(field) = bytes.get(*at..at + len) else {
            break;
        };
        let mut value = [0; 8];
        if cfg!(target_endian = "little") {
            value[..*len].copy_from_slice(field);
        } else {
            value[8 - len..].copy_from_slice(field);
        }
        info.push((name, u64::from_ne_bytes(value)));
    }
    // Bit fields: the compiler of a little-endian kernel puts the first into the low bits.
    if let Some([scales, limits]) = bytes.get(6..8) {
        let low_first = cfg!(target_endian = "little");
        let (low, high) = (u64::from(scales & 15), u64::from(scales >> 4));
        let (snd, rcv) = if low_first { (low, high) } else { (high, low) };
        info.push(("tcpi_snd_wscale", snd));
        info.push(("tcpi_rcv_wscale", rcv));
        let limited = if low_first { limits & 1 } else { limits >> 7 };
        info.push(("tcpi_delivery_rate_app_limited", u64::from(limited)));
    }
    info
}
