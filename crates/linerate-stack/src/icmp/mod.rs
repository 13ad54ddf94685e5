//! ICMP and ICMPv6 messages that a router sends (RFC 792, RFC 1812 4.3, RFC 4443), and their rate limits.
