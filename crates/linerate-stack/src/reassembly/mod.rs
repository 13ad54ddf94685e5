//! Reassembly of IPv4 (RFC 791) and IPv6 (RFC 8200, RFC 5722) fragments.
