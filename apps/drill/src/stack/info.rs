//! `TCP_INFO` of a connection of linerate's stack, in Linux' units: windows in segments, times in
//! microseconds.

use crate::call::Info;
use linerate_stack::tcp::connection::{self, Phase, State};
use linerate_stack::tcp::stats::Stats;

/// Linux' number of a state (`net/tcp_states.h`).
pub(super) fn state(state: State) -> u64 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

fn phase(phase: Phase) -> u64 {
    match phase {
        Phase::Open => 0,
        Phase::Disorder => 1,
        Phase::Cwr => 2,
        Phase::Recovery => 3,
        Phase::Loss => 4,
    }
}

/// The fields. What only the stack counts, and no connection, is of all connections of the run;
/// `path_mtu` is in bytes.
pub(super) fn fields(info: &connection::Info, stats: &Stats, path_mtu: u16) -> Info {
    let mss = u64::from(info.mss.max(1));
    let segments = |bytes: u32| u64::from(bytes).div_ceil(mss);
    let us = |ns: u64| ns / 1000;
    let (snd_scale, rcv_scale) = info.scales;
    let is_scaled = snd_scale != 0 || rcv_scale != 0;
    let options = u64::from(info.timestamps)
        | u64::from(info.sack) << 1
        | u64::from(is_scaled) << 2
        | u64::from(info.ecn) << 3
        | u64::from(info.syn_data) << 5;
    let ssthresh = match info.ssthresh_bytes {
        // TCP_INFINITE_SSTHRESH
        u32::MAX => 0x7fff_ffff,
        bytes => u64::from(bytes) / mss,
    };
    vec![
        ("tcpi_state", state(info.state)),
        ("tcpi_ca_state", phase(info.phase)),
        ("tcpi_retransmits", info.retries.into()),
        ("tcpi_backoff", info.retries.into()),
        ("tcpi_probes", info.probes.into()),
        ("tcpi_options", options),
        ("tcpi_snd_wscale", snd_scale.into()),
        ("tcpi_rcv_wscale", rcv_scale.into()),
        ("tcpi_rto", us(info.rto_ns)),
        ("tcpi_snd_mss", mss),
        ("tcpi_rcv_mss", info.rcv_mss.into()),
        ("tcpi_advmss", info.advertised_mss.into()),
        ("tcpi_unacked", segments(info.unacked_bytes)),
        ("tcpi_sacked", segments(info.sacked_bytes)),
        ("tcpi_lost", segments(info.lost_bytes)),
        ("tcpi_retrans", segments(info.retrans_bytes)),
        ("tcpi_pmtu", path_mtu.into()),
        ("tcpi_rtt", us(info.srtt_ns.unwrap_or(0))),
        ("tcpi_rttvar", us(info.rttvar_ns)),
        ("tcpi_min_rtt", us(info.min_rtt_ns.unwrap_or(0))),
        ("tcpi_snd_ssthresh", ssthresh),
        ("tcpi_snd_cwnd", u64::from(info.cwnd_bytes) / mss),
        ("tcpi_total_retrans", stats.retransmitted),
        ("tcpi_dsack_dups", stats.dsacks),
        ("tcpi_reord_seen", stats.reordered),
        ("tcpi_notsent_bytes", info.unsent_bytes.into()),
        ("tcpi_snd_wnd", info.snd_wnd.into()),
        ("tcpi_rcv_wnd", info.rcv_wnd.into()),
    ]
}
