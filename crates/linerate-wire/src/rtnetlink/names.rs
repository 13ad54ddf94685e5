//! The kernel's numbers: types of message, address families, attributes.

/// Message types (`RTM_...`, `NLMSG_...`).
#[allow(missing_docs)] // they are the kernel's names
pub mod kind {
    pub const NOOP: u16 = 1;
    pub const ERROR: u16 = 2;
    pub const DONE: u16 = 3;
    pub const OVERRUN: u16 = 4;
    pub const NEW_LINK: u16 = 16;
    pub const DEL_LINK: u16 = 17;
    pub const GET_LINK: u16 = 18;
    pub const SET_LINK: u16 = 19;
    pub const NEW_ADDRESS: u16 = 20;
    pub const DEL_ADDRESS: u16 = 21;
    pub const GET_ADDRESS: u16 = 22;
    pub const NEW_ROUTE: u16 = 24;
    pub const DEL_ROUTE: u16 = 25;
    pub const GET_ROUTE: u16 = 26;
    pub const NEW_NEIGHBOUR: u16 = 28;
    pub const DEL_NEIGHBOUR: u16 = 29;
    pub const GET_NEIGHBOUR: u16 = 30;
    pub const NEW_NEXTHOP: u16 = 104;
    pub const DEL_NEXTHOP: u16 = 105;
    pub const GET_NEXTHOP: u16 = 106;
}

/// Address families (`AF_...`).
#[allow(missing_docs)] // they are the kernel's names
pub mod family {
    pub const UNSPEC: u8 = 0;
    pub const INET: u8 = 2;
    pub const INET6: u8 = 10;
}

/// Attributes of each kind of message, by the kernel's names without their prefix.
#[allow(missing_docs)]
pub mod attribute {
    /// Of links (`IFLA_...`).
    pub mod link {
        pub const ADDRESS: u16 = 1;
        pub const NAME: u16 = 3;
        pub const MTU: u16 = 4;
        pub const MASTER: u16 = 10;
        pub const INFO: u16 = 18;
        pub const NET_NS_FD: u16 = 28;
        pub const CARRIER: u16 = 33;
        pub const CARRIER_CHANGES: u16 = 35;
    }
    /// Within a link's `INFO` (`IFLA_INFO_...`), and within that of a VRF device (`IFLA_VRF_...`).
    pub mod info {
        pub const KIND: u16 = 1;
        pub const DATA: u16 = 2;
        pub const VRF_TABLE: u16 = 1;
    }
    /// Of addresses (`IFA_...`).
    pub mod address {
        pub const ADDRESS: u16 = 1;
        pub const LOCAL: u16 = 2;
        pub const FLAGS: u16 = 8;
    }
    /// Of routes (`RTA_...`).
    pub mod route {
        pub const DST: u16 = 1;
        pub const OIF: u16 = 4;
        pub const GATEWAY: u16 = 5;
        pub const PRIORITY: u16 = 6;
        pub const MULTIPATH: u16 = 9;
        pub const TABLE: u16 = 15;
        pub const VIA: u16 = 18;
        pub const NEW_DST: u16 = 19;
        pub const ENCAP_TYPE: u16 = 21;
        pub const ENCAP: u16 = 22;
        pub const NH_ID: u16 = 30;
    }
    /// Of neighbours (`NDA_...`).
    pub mod neighbour {
        pub const DST: u16 = 1;
        pub const LLADDR: u16 = 2;
    }
    /// Of next hops (`NHA_...`).
    pub mod nexthop {
        pub const ID: u16 = 1;
        pub const GROUP: u16 = 2;
        pub const BLACKHOLE: u16 = 4;
        pub const OIF: u16 = 5;
        pub const GATEWAY: u16 = 6;
        pub const ENCAP_TYPE: u16 = 7;
        pub const ENCAP: u16 = 8;
        pub const FDB: u16 = 11;
    }
}
