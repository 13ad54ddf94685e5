//! Cutting datagrams to an MTU (RFC 791 3.2, RFC 8200 4.5).
