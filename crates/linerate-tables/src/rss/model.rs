//! One NIC as it is set up: a profile with a key and a table, asked for the queues of packets.

use super::{AffineHash, Inverse, PortField, PortHash, Profile, Reta, Symmetry, Toeplitz};
use crate::TableError;
use linerate_core::port::RssSetup;
use linerate_wire::flow::{FlowKey4, FlowKey6};

/// What RSS hashes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// IPv4.
    V4(FlowKey4),
    /// IPv6.
    V6(FlowKey6),
}

impl Flow {
    /// IP protocol.
    pub fn protocol(&self) -> u8 {
        match self {
            Self::V4(key) => key.0[12],
            Self::V6(key) => key.0[36],
        }
    }

    /// Addresses, then ports: 12 or 36 bytes.
    pub fn tuple(&self) -> &[u8] {
        match self {
            Self::V4(key) => &key.0[..12],
            Self::V6(key) => &key.0[..36],
        }
    }

    /// Source port and destination port.
    pub fn ports(&self) -> (u16, u16) {
        let &[.., a, b, c, d] = self.tuple() else {
            return (0, 0);
        };
        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    }

    /// The same flow seen from the other side.
    pub fn reversed(&self) -> Self {
        match self {
            Self::V4(key) => Self::V4(key.reversed()),
            Self::V6(key) => Self::V6(key.reversed()),
        }
    }
}

/// A NIC's RSS in software.
///
/// ```
/// use linerate_tables::rss::{Flow, Model, Profile, Reta};
/// use linerate_wire::flow::FlowKey4;
/// let nic = Model::new(Profile::find("ixgbe")?, None, Reta::round_robin(128, 4)?)?;
/// let tcp = Flow::V4(FlowKey4::new([66, 9, 149, 187], [161, 142, 100, 80], 2794, 1766, 6));
/// assert_eq!(nic.hash(&tcp, false), Some(0x51cc_c178));
/// assert_eq!(nic.hash(&tcp, true), Some(0x323e_8fc2), "a fragment has no ports");
/// assert_eq!(nic.queue(&tcp, false), Some(0));
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    profile: &'static Profile,
    symmetry: Symmetry,
    toeplitz: Toeplitz,
    reta: Reta,
}

impl Model {
    /// The NIC with this key, or its default one.
    ///
    /// # Errors
    /// [`TableError::RssKeyUnknown`] where there is no default key; [`TableError::RssKeyOf`] for a
    /// key of a length that the NIC does not take.
    pub fn new(
        profile: &'static Profile,
        key: Option<&[u8]>,
        reta: Reta,
    ) -> Result<Self, TableError> {
        let key = key.or(profile.default_key);
        let Some(key) = key else {
            return Err(TableError::RssKeyUnknown {
                profile: profile.name,
                bytes: profile.key_bytes,
            });
        };
        if key.len() != profile.key_bytes {
            return Err(TableError::RssKeyOf {
                profile: profile.name,
                given: key.len(),
                needed: profile.key_bytes,
            });
        }
        let mut turned = key.to_vec();
        if profile.reversed_key {
            turned.reverse();
        }
        Ok(Self {
            profile,
            symmetry: Symmetry::None,
            toeplitz: Toeplitz::with_start(&turned, profile.start)?,
            reta,
        })
    }

    /// The NIC that a port is, or plays.
    ///
    /// # Errors
    /// As [`new`](Self::new), [`Profile::find`] and [`Reta::from_slots`].
    pub fn of_port(setup: &RssSetup) -> Result<Self, TableError> {
        let reta = Reta::from_slots(setup.reta.iter().copied())?;
        Self::new(Profile::find(&setup.profile)?, Some(&setup.key), reta)
    }

    /// The same, with source and destination made alike first.
    pub fn symmetric(self, symmetry: Symmetry) -> Self {
        Self { symmetry, ..self }
    }

    /// The same hash with another table: of another size, or whose slots are no queues.
    #[must_use]
    pub fn with_reta(&self, reta: Reta) -> Self {
        Self {
            reta,
            ..self.clone()
        }
    }

    /// The part of the flow's tuple that is hashed; `None` where more is hashed than the tuple.
    fn hashed<'a>(&self, flow: &'a Flow, fragment: bool) -> Option<&'a [u8]> {
        let tuple = flow.tuple();
        match self.profile.ports_of(flow.protocol()) {
            _ if fragment => Some(&tuple[..tuple.len() - 4]),
            PortHash::Hashed => Some(tuple),
            PortHash::AddressesOnly => Some(&tuple[..tuple.len() - 4]),
            PortHash::Unpredictable => None,
        }
    }

    /// Whether the ports of this flow's packets count.
    pub fn counts_ports(&self, flow: &Flow, fragment: bool) -> bool {
        !fragment && self.profile.ports_of(flow.protocol()) == PortHash::Hashed
    }

    /// The hash of a flow's packets, `fragment` if they are fragments; `None` where it depends on
    /// more than the 4-tuple.
    pub fn hash(&self, flow: &Flow, fragment: bool) -> Option<u32> {
        let hashed = self.hashed(flow, fragment)?;
        let mut tuple = [0; 36];
        let tuple = &mut tuple[..hashed.len()];
        tuple.copy_from_slice(hashed);
        self.symmetry.apply(tuple);
        Some(self.toeplitz.hash(tuple))
    }

    /// The queue of a flow's packets.
    pub fn queue(&self, flow: &Flow, fragment: bool) -> Option<u16> {
        Some(self.reta.queue(self.hash(flow, fragment)?))
    }

    /// The inverse for one of the ports of flows like this one, destination or source; `keep` are
    /// bits of the port that stay.
    ///
    /// # Errors
    /// [`TableError::RssPortsNotHashed`] where the NIC does not hash the ports of this protocol, so
    /// that no choice of port changes the queue; [`TableError::RssNotAffine`] under a symmetry that
    /// is not linear.
    pub fn inverse(&self, like: &Flow, dst_port: bool, keep: u16) -> Result<Inverse, TableError> {
        if !self.counts_ports(like, false) {
            return Err(TableError::RssPortsNotHashed {
                profile: self.profile.name,
                protocol: like.protocol(),
            });
        }
        let field = match (like, dst_port) {
            (Flow::V4(_), false) => PortField::V4_SRC,
            (Flow::V4(_), true) => PortField::V4_DST,
            (Flow::V6(_), false) => PortField::V6_SRC,
            (Flow::V6(_), true) => PortField::V6_DST,
        };
        let hash: AffineHash = self.symmetry.affine(&self.toeplitz, like.tuple().len())?;
        Inverse::new(&hash, field.keeping(keep), &self.reta)
    }

    /// The family.
    pub fn profile(&self) -> &'static Profile {
        self.profile
    }

    /// The hash.
    pub fn toeplitz(&self) -> &Toeplitz {
        &self.toeplitz
    }

    /// The table.
    pub fn reta(&self) -> &Reta {
        &self.reta
    }

    /// How source and destination are made alike.
    pub fn symmetry(&self) -> Symmetry {
        self.symmetry
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;
    use crate::rss::{MICROSOFT_KEY, PROFILES};

    fn flow(protocol: u8) -> Flow {
        Flow::V4(FlowKey4::new(
            [10, 1, 2, 3],
            [10, 4, 5, 6],
            1000,
            2000,
            protocol,
        ))
    }

    #[test]
    fn every_profile_takes_its_own_key_and_table() {
        for profile in PROFILES {
            let key: Vec<u8> = (0..profile.key_bytes as u8).collect();
            for &entries in profile
                .other_reta_entries
                .iter()
                .chain([&profile.reta_entries])
            {
                let reta = Reta::round_robin(entries, 1).unwrap();
                let nic = Model::new(profile, Some(&key), reta.clone()).unwrap();
                assert!(nic.queue(&flow(6), false) == Some(0));
                let short = Model::new(profile, Some(&key[1..]), reta.clone()).unwrap_err();
                assert!(short.to_string().contains(profile.name), "{short}");
                match (profile.default_key, Model::new(profile, None, reta)) {
                    (Some(key), nic) => assert_eq!(nic.unwrap().toeplitz().key().len(), key.len()),
                    (None, Err(error)) => {
                        assert!(error.to_string().contains("ethtool -x"), "{error}")
                    }
                    (None, Ok(_)) => panic!("{} has no default key", profile.name),
                }
            }
        }
    }

    /// The example of amzn-drivers issue 169: key reversed, sum begun at all ones.
    #[test]
    fn ena_hashes_by_the_reversed_key_from_all_ones() {
        let reta = Reta::round_robin(128, 8).unwrap();
        let nic = Model::new(Profile::find("ena").unwrap(), Some(&MICROSOFT_KEY), reta).unwrap();
        let mut turned = MICROSOFT_KEY;
        turned.reverse();
        let plain = Toeplitz::new(&turned).unwrap();
        let expected = !plain.hash(flow(6).tuple());
        assert_eq!(nic.hash(&flow(6), false), Some(expected));
    }

    #[test]
    fn ports_count_as_the_profile_says() {
        let reta = || Reta::round_robin(512, 8).unwrap();
        let ixgbe = Model::new(Profile::find("ixgbe").unwrap(), None, reta()).unwrap();
        let i40e = Model::new(Profile::find("i40e").unwrap(), None, reta()).unwrap();
        let addresses = ixgbe.hash(&flow(6), true);
        assert_ne!(ixgbe.hash(&flow(6), false), addresses);
        assert_eq!(
            ixgbe.hash(&flow(17), false),
            addresses,
            "UDP by addresses only"
        );
        assert_eq!(ixgbe.hash(&flow(1), false), addresses);
        assert_ne!(i40e.hash(&flow(17), false), i40e.hash(&flow(17), true));
        assert_eq!(
            i40e.hash(&flow(132), false),
            None,
            "the verification tag is hashed too"
        );
        let error = ixgbe.inverse(&flow(17), true, 0).unwrap_err().to_string();
        assert!(
            error.contains("ixgbe") && error.contains("protocol 17"),
            "{error}"
        );
    }

    #[test]
    fn the_inverse_of_a_model_lands_where_the_model_says() {
        for symmetry in [Symmetry::None, Symmetry::Xor] {
            let reta = Reta::weighted(512, &[3, 1, 2]).unwrap();
            let nic = Model::new(Profile::find("mlx5").unwrap(), None, reta).unwrap();
            let nic = nic.symmetric(symmetry);
            let flow = FlowKey6::new([0x20; 16], [0x30; 16], 443, 9999, 17);
            let inverse = nic.inverse(&Flow::V6(flow), true, 0).unwrap();
            let ports = inverse.ports(&flow.0[..36], 2).unwrap();
            assert!(ports.count() > 10_000);
            for port in ports.iter() {
                let to = FlowKey6::new([0x20; 16], [0x30; 16], 443, port, 17);
                assert_eq!(nic.queue(&Flow::V6(to), false), Some(2));
            }
        }
    }

    #[test]
    fn an_unknown_profile_is_refused_with_the_known_ones() {
        let error = Profile::find("e100").unwrap_err().to_string();
        assert!(
            error.contains("e100") && error.contains("microsoft, igb"),
            "{error}"
        );
    }
}
