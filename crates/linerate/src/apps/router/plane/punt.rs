//! What a packet is handed to the slow worker for: it stands in the packet's own 16 bytes.

use linerate_core::packet::UserData;

use crate::apps::router::model::InterfaceId;

/// Why the slow worker gets a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    /// ARP, requests and replies.
    Arp,
    /// Neighbor Discovery (RFC 4861): router and neighbour solicitations and advertisements, redirects.
    Nd,
    /// For an address of the router, or a group or broadcast address that it listens to.
    #[default]
    Local,
    /// Neither IP nor ARP: what else speaks on this link (LLDP, IS-IS) is the twin's.
    Other,
    /// To be sent to the gateway of the hop, whose MAC address is not known. Its link-layer header is
    /// to be written; all else is done.
    Resolve,
    /// The same for the destination itself, a neighbour on the interface.
    Glean,
}

impl Reason {
    pub(super) const ALL: [Self; 6] = [
        Self::Arp,
        Self::Nd,
        Self::Local,
        Self::Other,
        Self::Resolve,
        Self::Glean,
    ];

    /// As counters are called by it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Arp => "arp",
            Self::Nd => "nd",
            Self::Local => "local",
            Self::Other => "other",
            Self::Resolve => "resolve",
            Self::Glean => "glean",
        }
    }

    fn of(byte: u8) -> Self {
        Self::ALL
            .get(usize::from(byte))
            .copied()
            .unwrap_or_default()
    }
}

/// What a punted packet says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Punt {
    pub(crate) reason: Reason,
    /// The interface that it came in by; of [`Reason::Resolve`] and [`Reason::Glean`], leaves by.
    pub(crate) interface: InterfaceId,
    /// Of [`Reason::Resolve`]: the number of the hop.
    pub(crate) hop: u32,
    /// What goes on here of a packet that is traced; 0: it is not.
    pub(crate) ticket: u64,
}

impl UserData for Punt {
    fn from_words([a, ticket]: [u64; 2]) -> Self {
        Self {
            reason: Reason::of(a as u8),
            interface: InterfaceId((a >> 16) as u16),
            hop: (a >> 32) as u32,
            ticket,
        }
    }

    fn into_words(self) -> [u64; 2] {
        let (reason, interface) = (self.reason as u64, u64::from(self.interface.0));
        [
            reason | interface << 16 | u64::from(self.hop) << 32,
            self.ticket,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_punt_survives_its_words_and_any_words_are_one() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number, "ALL is in the order of the enum");
            let punt = Punt {
                reason,
                interface: InterfaceId(0xfffe),
                hop: 0xdead_beef,
                ticket: 1 << 40,
            };
            assert_eq!(Punt::from_words(punt.into_words()), punt);
        }
        assert_eq!(Punt::from_words([u64::MAX; 2]).reason, Reason::Local);
    }
}
