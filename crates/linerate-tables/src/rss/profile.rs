//! How real NIC families hash: key, table, start value, and which packets count ports.
//!
//! Facts are from the drivers named with each profile (DPDK v26.07 paths below `drivers/net/`,
//! Linux paths below `drivers/net/ethernet/`). What could not be found there is left out. Three
//! things hold for all: the tuple is hashed as Microsoft orders it (source, destination, source
//! port, destination port), the *low* bits of the hash index the table, and fragments are hashed by
//! addresses only, first fragments included. Packets that are not IP are not hashed; they come to
//! queue 0 unless steered.
//!
//! A Linux driver draws its key at boot (`netdev_rss_key_fill`): `ethtool -x IFACE` shows it, with
//! the table. The default keys below are those of DPDK's drivers.

use super::MICROSOFT_KEY;
use crate::TableError;

/// Whether the ports of a protocol are hashed, by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortHash {
    /// Addresses and ports.
    Hashed,
    /// Addresses only.
    AddressesOnly,
    /// Other fields too, so that the hash does not follow from the 4-tuple.
    Unpredictable,
}

/// One family of NICs under its default settings.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// What the user calls it: mostly the driver's name.
    pub name: &'static str,
    /// Which devices it stands for.
    pub devices: &'static str,
    /// Length of the key in bytes.
    pub key_bytes: usize,
    /// The key that the driver sets by default; `None` where it is drawn at random.
    pub default_key: Option<&'static [u8]>,
    /// The device hashes by the key's bytes in reverse order.
    pub reversed_key: bool,
    /// The hash of zeros.
    pub start: u32,
    /// Entries of the table by default.
    pub reta_entries: usize,
    /// Other sizes that devices of the family have.
    pub other_reta_entries: &'static [usize],
    /// TCP.
    pub tcp: PortHash,
    /// UDP.
    pub udp: PortHash,
    /// SCTP.
    pub sctp: PortHash,
    /// Where these facts stand.
    pub source: &'static str,
}

use PortHash::{AddressesOnly, Hashed, Unpredictable};

/// What a NIC does that follows Microsoft's specification and has nothing of its own.
const PLAIN: Profile = Profile {
    name: "microsoft",
    devices: "any NIC by the specification, with the key of its verification suite",
    key_bytes: 40,
    default_key: Some(&MICROSOFT_KEY),
    reversed_key: false,
    start: 0,
    reta_entries: 128,
    other_reta_entries: &[],
    tcp: Hashed,
    udp: Hashed,
    sctp: AddressesOnly,
    source: "Microsoft, \"RSS hashing types\" and \"Verifying the RSS hash calculation\"",
};

const I40E_KEY: [u8; 52] = [
    0x44, 0x39, 0x79, 0x6b, 0xb5, 0x4c, 0x50, 0x23, 0xb6, 0x75, 0xea, 0x5b, 0x12, 0x4f, 0x9f, 0x30,
    0xb8, 0xa2, 0xc0, 0x3d, 0xdf, 0xdc, 0x4d, 0x02, 0xa0, 0x8c, 0x9b, 0x33, 0x4a, 0xf6, 0x4a, 0x4c,
    0x05, 0xc6, 0xfa, 0x34, 0x39, 0x58, 0xd8, 0x55, 0x7d, 0x99, 0x58, 0x3a, 0xe1, 0x38, 0xc9, 0x2e,
    0x81, 0x15, 0x03, 0x66,
];

const MLX5_KEY: [u8; 40] = [
    0x2c, 0xc6, 0x81, 0xd1, 0x5b, 0xdb, 0xf4, 0xf7, 0xfc, 0xa2, 0x83, 0x19, 0xdb, 0x1a, 0x3e, 0x94,
    0x6b, 0x9e, 0x38, 0xd9, 0x2c, 0x9c, 0x03, 0xd1, 0xad, 0x99, 0x44, 0xa7, 0xd9, 0x56, 0x3d, 0x59,
    0x06, 0x3c, 0x25, 0xf3, 0xfc, 0x1f, 0xdc, 0x2a,
];

const CNXK_KEY: [u8; 48] = {
    let word = [0xfe, 0xed, 0x0b, 0xad];
    let mut key = [0; 48];
    let mut at = 0;
    while at < key.len() {
        key[at] = word[at % word.len()];
        at += 1;
    }
    key
};

/// All profiles; the first is the default.
pub const PROFILES: &[Profile] = &[
    PLAIN,
    Profile {
        name: "igb",
        devices: "Intel 82575, 82576, 82580, I210, I350",
        // The driver turns port hashing of UDP on only when asked, since fragments would part from
        // their datagrams.
        udp: AddressesOnly,
        source: "DPDK intel/e1000/igb_rxtx.c rss_intel_key, igb_ethdev.c; Linux \
            intel/igb/igb_main.c igb_setup_mrqc",
        ..PLAIN
    },
    Profile {
        name: "ixgbe",
        devices: "Intel 82598, 82599, X540",
        udp: AddressesOnly,
        source: "DPDK intel/ixgbe/ixgbe_rxtx.c rss_intel_key, ixgbe_ethdev.c ixgbe_reta_size_get; \
            Intel's adapter guide, \"Support for UDP RSS\"",
        ..PLAIN
    },
    Profile {
        name: "ixgbe-x550",
        devices: "Intel X550, X552, X553, E610; 64 entries in a VF",
        reta_entries: 512,
        other_reta_entries: &[64],
        udp: AddressesOnly,
        source: "as ixgbe",
        ..PLAIN
    },
    Profile {
        name: "i40e",
        devices: "Intel X710, XL710, XXV710, X722; 64 entries in a VF",
        key_bytes: 52,
        default_key: Some(&I40E_KEY),
        reta_entries: 512,
        other_reta_entries: &[128, 64],
        // The verification tag is hashed along.
        sctp: Unpredictable,
        source: "DPDK intel/i40e/i40e_hash.c i40e_rss_key_default, i40e_ethdev.c \
            i40e_get_default_input_set; Linux intel/i40e/i40e_txrx.h I40E_DEFAULT_RSS_HENA",
        ..PLAIN
    },
    Profile {
        name: "ice",
        devices: "Intel E810, E830; 64 entries in a VF",
        key_bytes: 52,
        default_key: None,
        reta_entries: 2048,
        other_reta_entries: &[512, 128, 64],
        sctp: Hashed,
        source: "DPDK intel/ice/base/ice_adminq_cmd.h ice_lut_size, ice_flow.h ICE_HASH_SCTP_IPV4; \
            Linux intel/ice/ice_lib.c default_rss_cfgs",
        ..PLAIN
    },
    Profile {
        name: "mlx5",
        devices: "NVIDIA ConnectX-4 and later, BlueField; Linux takes 256 entries or more, DPDK as \
            many as queues",
        default_key: Some(&MLX5_KEY),
        reta_entries: 256,
        other_reta_entries: &[1, 2, 4, 8, 16, 32, 64, 128, 512, 1024, 2048],
        source: "DPDK mlx5/mlx5_rxq.c mlx5_rss_hash_default_key, mlx5_ethdev.c; Linux \
            mellanox/mlx5/core/en/rss.c rss_default_config, rqt.h MLX5E_INDIR_MIN_RQT_SIZE",
        ..PLAIN
    },
    Profile {
        name: "virtio",
        devices: "virtio-net with VIRTIO_NET_F_RSS",
        default_key: None,
        source: "virtio 1.2, 5.1.6.4.3; DPDK virtio/virtio_cvq.h VIRTIO_NET_RSS_RETA_SIZE, \
            virtio_ethdev.c; Linux drivers/net/virtio_net.c virtnet_init_default_rss",
        ..PLAIN
    },
    Profile {
        name: "ena",
        devices: "Amazon ENA; the key as the device is given it (DPDK from 21.11 on reverses the \
            user's)",
        default_key: None,
        reversed_key: true,
        start: u32::MAX,
        source: "github.com/amzn/amzn-drivers/issues/169; DPDK ena/ena_rss.c ENA_HF_RSS_*, \
            ena_reorder_rss_hash_key",
        ..PLAIN
    },
    Profile {
        name: "bnxt",
        devices: "Broadcom NetXtreme-C and -E of the fourth generation; later ones have a multiple \
            of 64 entries",
        default_key: None,
        other_reta_entries: &[64, 256, 512],
        source: "DPDK bnxt/hsi_struct_def_dpdk.h HW_HASH_INDEX_SIZE, bnxt_ethdev.c \
            bnxt_rss_hash_tbl_size; Linux broadcom/bnxt/bnxt.c bnxt_set_dflt_rss_hash_type",
        ..PLAIN
    },
    Profile {
        name: "cnxk",
        devices: "Marvell OCTEON 9 and 10, OCTEON TX2, under DPDK",
        key_bytes: 48,
        default_key: Some(&CNXK_KEY),
        reta_entries: 64,
        other_reta_entries: &[128, 256],
        sctp: Hashed,
        source: "DPDK drivers/common/cnxk/roc_nix_rss.c roc_nix_rss_key_default_fill, roc_nix.h \
            ROC_NIX_RSS_KEY_LEN; cnxk/cnxk_ethdev_devargs.c parse_reta_size, cnxk_ethdev.c \
            cnxk_rss_ethdev_to_nix",
        ..PLAIN
    },
];

impl Profile {
    /// The profile of this name.
    ///
    /// # Errors
    /// [`TableError::RssProfile`] lists the names there are.
    pub fn find(name: &str) -> Result<&'static Self, TableError> {
        let found = PROFILES.iter().find(|profile| profile.name == name);
        found.ok_or_else(|| TableError::RssProfile {
            name: name.into(),
            names: PROFILES.iter().map(|profile| profile.name).collect(),
        })
    }

    /// Whether the ports of an IP protocol (by number) are hashed.
    pub fn ports_of(&self, protocol: u8) -> PortHash {
        match protocol {
            linerate_wire::protocol::TCP => self.tcp,
            linerate_wire::protocol::UDP => self.udp,
            linerate_wire::protocol::SCTP => self.sctp,
            _ => AddressesOnly,
        }
    }
}
