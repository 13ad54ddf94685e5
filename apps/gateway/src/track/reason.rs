//! Why a packet is dropped: each reason is a counter that operators see.

/// Why a packet is not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // `sentence` says what each is
pub enum Reason {
    TcpHeader,
    TcpChecksum,
    TcpFlags,
    TcpNoSyn,
    TcpCookie,
    TcpHandshake,
    TcpWindow,
    TcpOld,
    TcpAckUnsent,
    TcpAckOld,
    TcpReset,
    IcmpHeader,
    IcmpType,
    IcmpNoQuery,
    QuoteMalformed,
    QuoteChecksum,
    QuoteAddress,
    QuoteNoFlow,
    QuoteSequence,
}

impl Reason {
    /// All of them, by number.
    pub const ALL: [Self; 19] = [
        Self::TcpHeader,
        Self::TcpChecksum,
        Self::TcpFlags,
        Self::TcpNoSyn,
        Self::TcpCookie,
        Self::TcpHandshake,
        Self::TcpWindow,
        Self::TcpOld,
        Self::TcpAckUnsent,
        Self::TcpAckOld,
        Self::TcpReset,
        Self::IcmpHeader,
        Self::IcmpType,
        Self::IcmpNoQuery,
        Self::QuoteMalformed,
        Self::QuoteChecksum,
        Self::QuoteAddress,
        Self::QuoteNoFlow,
        Self::QuoteSequence,
    ];

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TcpHeader => "track_tcp_header",
            Self::TcpChecksum => "track_tcp_checksum",
            Self::TcpFlags => "track_tcp_flags",
            Self::TcpNoSyn => "track_tcp_no_syn",
            Self::TcpCookie => "track_tcp_cookie",
            Self::TcpHandshake => "track_tcp_handshake",
            Self::TcpWindow => "track_tcp_window",
            Self::TcpOld => "track_tcp_old",
            Self::TcpAckUnsent => "track_tcp_ack_unsent",
            Self::TcpAckOld => "track_tcp_ack_old",
            Self::TcpReset => "track_tcp_reset",
            Self::IcmpHeader => "track_icmp_header",
            Self::IcmpType => "track_icmp_type",
            Self::IcmpNoQuery => "track_icmp_no_query",
            Self::QuoteMalformed => "track_quote_malformed",
            Self::QuoteChecksum => "track_quote_checksum",
            Self::QuoteAddress => "track_quote_address",
            Self::QuoteNoFlow => "track_quote_no_flow",
            Self::QuoteSequence => "track_quote_sequence",
        }
    }

    /// What the counter counts.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::TcpHeader => "TCP that is shorter than its header",
            Self::TcpChecksum => "a SYN of a connection that has a wrong checksum",
            Self::TcpFlags => "TCP flags that no TCP sets together",
            Self::TcpNoSyn => "TCP without a flow, and no SYN to begin one",
            Self::TcpCookie => "an ACK that answers no SYN cookie, while cookies are given",
            Self::TcpHandshake => "TCP that does not fit the handshake, or acknowledges another",
            Self::TcpWindow => "TCP data above the window that the receiver has opened",
            Self::TcpOld => "TCP data that was acknowledged a window ago, or more",
            Self::TcpAckUnsent => "a TCP acknowledgment of what was not sent",
            Self::TcpAckOld => "a TCP acknowledgment that is older than a window",
            Self::TcpReset => "a TCP reset outside the window",
            Self::IcmpHeader => "ICMP that is shorter than its header",
            Self::IcmpType => "ICMP that is neither a query, an answer nor an error to pass on",
            Self::IcmpNoQuery => "an ICMP answer without a query",
            Self::QuoteMalformed => "an ICMP error whose quote cannot be read",
            Self::QuoteChecksum => "an ICMP error with a wrong checksum",
            Self::QuoteAddress => "an ICMP error to another host than the one it quotes",
            Self::QuoteNoFlow => "an ICMP error about no flow",
            Self::QuoteSequence => "an ICMP error about TCP data that is not on its way",
        }
    }
}
