//! How a stack is to be.

use crate::host::HostConfig;
use crate::host::IpFields;
use crate::host::ping::PingConfig;
use crate::host::udp::UdpConfig;
use crate::tcp::config::Config;
use crate::tcp::metrics::MetricsConfig;
use crate::tcp::secret::Secret;
use crate::tcp::time_wait;

/// Sizes and settings of a [`Stack`](super::Stack). All memory is taken at the start, and most of
/// it is touched only when it is used.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// The IP host.
    pub host: HostConfig,
    /// UDP sockets.
    pub udp: UdpConfig,
    /// Ping sockets.
    pub ping: PingConfig,
    /// What TCP connections do.
    pub tcp: Config,
    /// TCP connections at most, half-open ones included; at most 2^24.
    pub connections: u32,
    /// Records of connections in TIME-WAIT.
    pub time_wait: time_wait::Config,
    /// Frames that are under way and unacknowledged, of all connections.
    pub sent_frames: usize,
    /// Chunks of about 2 KiB for what is to be sent, of all connections.
    pub send_chunks: u32,
    /// Packets of received data that nobody has read, of all connections, and the bytes of their
    /// slots.
    pub received_pkts: u32,
    /// The bytes of those slots.
    pub received_bytes: u64,
    /// How many of those slots may be large ones, of 64 KiB.
    pub received_large: u32,
    /// What is remembered of hosts.
    pub metrics: MetricsConfig,
    /// Challenge ACKs a second (RFC 5961 7).
    pub challenges_per_s: u32,
    /// Local ports that connections opened here use (Linux: `ip_local_port_range`).
    pub ports: std::ops::RangeInclusive<u16>,
    /// What sequence numbers, time stamps and ports are derived from. Stacks that may get each
    /// other's segments need the same.
    pub secret: Secret,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            host: HostConfig::default(),
            udp: UdpConfig::default(),
            ping: PingConfig::default(),
            tcp: Config::default(),
            connections: 65_536,
            time_wait: time_wait::Config::default(),
            sent_frames: 65_536,
            send_chunks: 32_768,
            received_pkts: 65_536,
            received_bytes: 128 << 20,
            received_large: 64,
            metrics: MetricsConfig::default(),
            challenges_per_s: crate::tcp::rate::CHALLENGES_PER_S,
            ports: 32_768..=60_999,
            secret: Secret::random(),
        }
    }
}

/// What IP is told of segments (RFC 9293 3.9.1.9, 3.9.2), where it is not what the
/// [stack](crate::tcp::config::Config) says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpOptions {
    /// The Diffserv codepoint, at most [`MAX_DSCP`](crate::host::MAX_DSCP) (RFC 2474 3).
    pub dscp: Option<u8>,
    /// The time to live, or hop limit; 0 is taken for 1.
    pub ttl: Option<u8>,
}

impl IpOptions {
    #[inline]
    pub(super) fn fields4(self, config: &Config) -> IpFields {
        let dscp = self.dscp.unwrap_or(config.dscp);
        IpFields::v4(dscp, self.ttl.unwrap_or(config.ttl))
    }

    #[inline]
    pub(super) fn fields6(self, config: &Config, flow_label: u32) -> IpFields {
        let dscp = self.dscp.unwrap_or(config.dscp);
        IpFields::v6(dscp, self.ttl.unwrap_or(config.ttl), flow_label)
    }
}

/// How a port is listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address, or any of ours.
    pub address: Option<std::net::IpAddr>,
    /// The port.
    pub port: u16,
    /// Connections that may wait to be accepted.
    pub backlog: u32,
    /// Connections that may be half-open; beyond that SYNs are answered by cookies.
    pub half_open: u32,
    /// Connections that may be open before their handshake is over (RFC 7413 5.1), where the stack
    /// [has](crate::tcp::config::FastOpenMode::server) Fast Open; 0 for none.
    pub fast_open: u32,
    /// The longest segment that they send and tell the peer to send, in bytes (Linux: TCP_MAXSEG);
    /// without, what link and path take.
    pub max_segment: Option<u16>,
    /// What its segments and those of its connections have.
    pub ip: IpOptions,
    /// What its events have with them.
    pub token: u64,
}

impl Listen {
    /// Any address of ours.
    pub fn on(port: u16) -> Self {
        Self {
            address: None,
            port,
            backlog: 4096,
            half_open: 1024,
            fast_open: 256,
            max_segment: None,
            ip: IpOptions::default(),
            token: 0,
        }
    }
}

/// How a connection is opened.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// From where, if that matters; with any port where the port is 0.
    pub local: Option<std::net::SocketAddr>,
    /// To where.
    pub remote: std::net::SocketAddr,
    /// Data for the SYN, where the stack [has](crate::tcp::config::FastOpenMode::client) Fast Open
    /// (RFC 7413). It may be delivered twice (6.1): only what can bear that belongs here.
    pub data: &'a [u8],
    /// Whether its SYN asks for a cookie even without data, where the stack has Fast Open: later
    /// connections can send data with theirs (Linux: `sendto` of nothing with `MSG_FASTOPEN`).
    pub asks_cookie: bool,
    /// As of [`Listen`].
    pub max_segment: Option<u16>,
    /// What its segments have, the SYN included.
    pub ip: IpOptions,
}

impl Connect<'_> {
    /// From anywhere, without data.
    pub fn to(remote: std::net::SocketAddr) -> Self {
        Self {
            local: None,
            remote,
            data: &[],
            asks_cookie: false,
            max_segment: None,
            ip: IpOptions::default(),
        }
    }
}
