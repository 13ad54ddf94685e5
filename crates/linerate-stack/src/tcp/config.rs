//! Settings of a stack's TCP, and what a connection starts with.

use super::congestion::Algorithm;
use super::mtu_search::MtuProbing;

/// Whether connections agree on ECN (RFC 3168 6.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnMode {
    /// Never.
    Off,
    /// If the peer asks (Linux: `tcp_ecn = 2`, its default).
    #[default]
    Accept,
    /// They ask for it.
    Request,
}

/// Which side of TCP Fast Open is on (RFC 7413; Linux: `tcp_fastopen`). Data in a SYN may be
/// delivered twice (6.1), so neither is unless the user asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastOpenMode {
    /// Connections that are opened here with data ask for a cookie, or use the one they have.
    pub client: bool,
    /// Listeners give cookies, and take data of SYNs that have one.
    pub server: bool,
    /// Listeners take data of any SYN: where all clients can be trusted (4.1.1; Linux: 0x200).
    pub server_without_cookie: bool,
}

/// Settings of all connections of a stack. The defaults are Linux', but where a comment says more.
#[derive(Clone, Debug)]
pub struct Config {
    /// SACK (RFC 2018).
    pub sack: bool,
    /// Time stamps (RFC 7323 3).
    pub timestamps: bool,
    /// Window scaling (RFC 7323 2).
    pub window_scaling: bool,
    /// ECN.
    pub ecn: EcnMode,
    /// RACK-TLP (RFC 8985); otherwise losses are found by RFC 6675.
    pub rack: bool,
    /// Loss probes, of those that have RACK-TLP (RFC 8985 7; Linux: `tcp_early_retrans`).
    pub loss_probes: bool,
    /// F-RTO (RFC 5682).
    pub frto: bool,
    /// Congestion control.
    pub algorithm: Algorithm,
    /// Whether segments are paced, where the algorithm does not ask for it.
    pub pacing: bool,
    /// TCP Fast Open.
    pub fast_open: FastOpenMode,
    /// Whether connections begin with what earlier ones to the same host have learned (RFC 9040;
    /// Linux: `tcp_no_metrics_save = 0`).
    pub path_metrics: bool,
    /// Whether the MTU of paths is looked for without ICMP (RFC 4821).
    pub mtu_probing: MtuProbing,
    /// Whether a connection that was idle begins with a small window (RFC 5681 4.1).
    pub slow_start_after_idle: bool,
    /// Retransmissions of a SYN. RFC 9293 3.8.3 wants three minutes: 7 make 255 s (Linux has 6,
    /// 127 s).
    pub syn_retries: u8,
    /// Of the answer to one.
    pub syn_ack_retries: u8,
    /// Retransmissions after which the user is told that nothing is answered, the neighbour is
    /// asked whether it is there, and shorter segments are tried (R1 of RFC 9293 3.8.3).
    pub retries1: u8,
    /// Of anything but a SYN and its answer (R2 of RFC 9293 3.8.3): 15 make 924 s or more.
    pub retries: u8,
    /// Of what the user has closed.
    pub orphan_retries: u8,
    /// How long FIN-WAIT-2 waits for the peer of a closed connection, in milliseconds.
    pub fin_timeout_ms: u32,
    /// Bytes that a connection may have received, to begin with.
    pub receive_bytes: u32,
    /// The most that they may become.
    pub receive_bytes_max: u32,
    /// Bytes that a connection's user may have written and the peer not acknowledged.
    pub send_bytes_max: u32,
    /// Whether connections probe an idle peer from the start (RFC 9293 3.8.4: MUST-25, off by
    /// default; FreeBSD: `net.inet.tcp.always_keepalive`).
    pub keepalive: bool,
    /// Keepalive: idle seconds, seconds between probes, probes.
    pub keep_idle_s: u16,
    /// Seconds between two probes.
    pub keep_interval_s: u16,
    /// Probes without an answer.
    pub keep_count: u8,
    /// The Diffserv codepoint of segments, where neither a connection nor its listener says
    /// otherwise (RFC 9293 3.9.1.9; RFC 2474 3: at most 63). Also of resets and ACKs of those that
    /// are none (any more).
    pub dscp: u8,
    /// Their time to live, or hop limit (RFC 9293 3.9.2; Linux: `ip_default_ttl`).
    pub ttl: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sack: true,
            timestamps: true,
            window_scaling: true,
            ecn: EcnMode::default(),
            rack: true,
            loss_probes: true,
            frto: true,
            algorithm: Algorithm::default(),
            pacing: false,
            fast_open: FastOpenMode::default(),
            path_metrics: true,
            mtu_probing: MtuProbing::default(),
            slow_start_after_idle: true,
            syn_retries: 7,
            syn_ack_retries: 5,
            retries1: 3,
            retries: 15,
            orphan_retries: 8,
            fin_timeout_ms: 60_000,
            receive_bytes: 128 << 10,
            receive_bytes_max: 6 << 20,
            send_bytes_max: 4 << 20,
            keepalive: false,
            keep_idle_s: 7200,
            keep_interval_s: 75,
            keep_count: 9,
            dscp: 0,
            ttl: crate::host::DEFAULT_TTL,
        }
    }
}
