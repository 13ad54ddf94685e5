//! ICMP types and codes by packetdrill's names.

/// A type: its name, its number, and its codes.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) number: u8,
    pub(crate) codes: &'static [(&'static str, u8)],
    /// It is an error, which quotes the packet that caused it.
    pub(crate) is_error: bool,
}

const fn kind(
    name: &'static str,
    number: u8,
    codes: &'static [(&'static str, u8)],
    is_error: bool,
) -> Kind {
    Kind {
        name,
        number,
        codes,
        is_error,
    }
}

/// ICMP's (RFC 792, RFC 1812 5.2.7).
pub(crate) const V4: &[Kind] = &[
    kind("echo_reply", 0, &[], false),
    kind(
        "unreachable",
        3,
        &[
            ("net_unreachable", 0),
            ("host_unreachable", 1),
            ("protocol_unreachable", 2),
            ("port_unreachable", 3),
            ("frag_needed", 4),
            ("source_route_failed", 5),
            ("net_unknown", 6),
            ("host_unknown", 7),
            ("source_host_isolated", 8),
            ("net_prohibited", 9),
            ("host_prohibited", 10),
            ("net_unreachable_for_tos", 11),
            ("host_unreachable_for_tos", 12),
            ("packet_filtered", 13),
            ("precedence_violation", 14),
            ("precedence_cutoff", 15),
        ],
        true,
    ),
    kind("source_quench", 4, &[], true),
    kind("echo_request", 8, &[], false),
    kind(
        "time_exceeded",
        11,
        &[("exceeded_ttl", 0), ("exceeded_frag_time", 1)],
        true,
    ),
    kind("parameter_problem", 12, &[], true),
];

/// ICMPv6's (RFC 4443).
pub(crate) const V6: &[Kind] = &[
    kind(
        "unreachable",
        1,
        &[
            ("net_unreachable", 0),
            ("no_route", 0),
            ("admin_prohibited", 1),
            ("not_neighbour", 2),
            ("address_unreachable", 3),
            ("port_unreachable", 4),
        ],
        true,
    ),
    kind("packet_too_big", 2, &[], true),
    kind(
        "time_exceeded",
        3,
        &[("exceeded_hop_limit", 0), ("exceeded_frag_time", 1)],
        true,
    ),
    kind(
        "parameter_problem",
        4,
        &[
            ("header_field", 0),
            ("unknown_next_header", 1),
            ("unknown_option", 2),
        ],
        true,
    ),
    kind("echo_request", 128, &[], false),
    kind("echo_reply", 129, &[], false),
];

/// The table of a version of IP.
pub(crate) fn kinds(is_v6: bool) -> &'static [Kind] {
    if is_v6 { V6 } else { V4 }
}
