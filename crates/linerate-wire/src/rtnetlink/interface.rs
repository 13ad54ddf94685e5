//! Messages about interfaces: links, their addresses, the neighbours there.

use core::net::IpAddr;

use super::attributes::{Attributes, Value, check_prefix, unspecified};
use super::{Flaw, Message, attribute, family, u16_at, u32_at};
use crate::MacAddr;

/// A network interface of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// Its number.
    pub index: u32,
    /// Its name; empty if the message has none.
    pub name: &'a str,
    /// Whether it was set up (`IFF_UP`).
    pub up: bool,
    /// Whether it has a carrier (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// How often the carrier has come or gone.
    pub carrier_changes: Option<u32>,
    /// Its Ethernet address.
    pub mac: Option<MacAddr>,
    /// Largest packet in bytes.
    pub mtu: Option<u32>,
    /// The bridge or VRF device that it belongs to.
    pub master: Option<u32>,
    /// Whether it is the loopback (`IFF_LOOPBACK`).
    pub loopback: bool,
    /// What kind of software device it is (`IFLA_INFO_KIND`): `dummy`, `vrf`, `tun`.
    pub kind: Option<&'a str>,
    /// Of a VRF device: its table (`IFLA_VRF_TABLE`).
    pub table: Option<u32>,
}

impl<'a> Link<'a> {
    pub(super) fn read(message: &Message<'a>) -> Result<Option<Self>, Flaw> {
        let fixed = message.fixed::<16>()?;
        if fixed[0] != family::UNSPEC {
            return Ok(None); // what a bridge says about its ports
        }
        let flags = u32_at(fixed, 8);
        let mut link = Self {
            index: u32_at(fixed, 4),
            name: "",
            up: flags & 1 != 0,
            carrier: flags & 1 << 16 != 0,
            carrier_changes: None,
            mac: None,
            mtu: None,
            master: None,
            loopback: flags & 1 << 3 != 0,
            kind: None,
            table: None,
        };
        message.attributes::<16>(|attribute, value| {
            match attribute {
                attribute::link::ADDRESS => link.mac = value.mac(),
                attribute::link::NAME => {
                    let name = value.bytes.split(|&byte| byte == 0).next();
                    let name = core::str::from_utf8(name.unwrap_or_default());
                    link.name = name.map_err(|_| value.wrong())?;
                }
                attribute::link::MTU => link.mtu = Some(value.u32()?),
                attribute::link::CARRIER_CHANGES => link.carrier_changes = Some(value.u32()?),
                attribute::link::MASTER => link.master = Some(value.u32()?),
                attribute::link::INFO => link.read_info(value)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(Some(link))
    }

    /// What kind of device it is, and of a VRF device its table. The kernel says the kind first.
    fn read_info(&mut self, info: Value<'a>) -> Result<(), Flaw> {
        for part in Attributes(info.bytes) {
            match part? {
                (attribute::info::KIND, kind) => {
                    let kind = kind.split(|&byte| byte == 0).next();
                    let kind = core::str::from_utf8(kind.unwrap_or_default());
                    self.kind = Some(kind.map_err(|_| info.wrong())?);
                }
                (attribute::info::DATA, data) if self.kind == Some("vrf") => {
                    for part in Attributes(data) {
                        if let (attribute::info::VRF_TABLE, bytes) = part? {
                            self.table = Some(Value { bytes, ..info }.u32()?);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The interface.
    pub index: u32,
    /// The address itself.
    pub address: IpAddr,
    /// Length of the network around it.
    pub len: u8,
    /// `IFA_F_...`.
    pub flags: u32,
}

impl Address {
    /// Duplicate address detection has not ended, or has found another with this address.
    pub fn tentative(&self) -> bool {
        const DAD_FAILED: u32 = 0x08;
        const TENTATIVE: u32 = 0x40;
        self.flags & (DAD_FAILED | TENTATIVE) != 0
    }

    pub(super) fn read(message: &Message<'_>) -> Result<Option<Self>, Flaw> {
        let &[family, len, flags, _, ..] = message.fixed::<8>()?;
        if unspecified(family).is_none() {
            return Ok(None);
        }
        let mut flags = u32::from(flags);
        let (mut address, mut local) = (None, None);
        message.attributes::<8>(|attribute, value| {
            match attribute {
                attribute::address::ADDRESS => address = Some(value.address()?),
                attribute::address::LOCAL => local = Some(value.address()?),
                attribute::address::FLAGS => flags = value.u32()?,
                _ => {}
            }
            Ok(())
        })?;
        // On a point-to-point link ADDRESS is the other end.
        let Some(address) = local.or(address) else {
            return Ok(None);
        };
        check_prefix(address, len)?;
        Ok(Some(Self {
            index: u32_at(message.payload, 4),
            address,
            len,
            flags,
        }))
    }
}

/// A neighbour on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface.
    pub index: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address, if it is known.
    pub mac: Option<MacAddr>,
    /// `NUD_...`.
    pub state: u16,
}

impl Neighbour {
    /// Whether someone has set it by hand (`NUD_PERMANENT`).
    pub fn permanent(&self) -> bool {
        self.state & 0x80 != 0
    }

    pub(super) fn read(message: &Message<'_>) -> Result<Option<Self>, Flaw> {
        let fixed = message.fixed::<12>()?;
        if unspecified(fixed[0]).is_none() {
            return Ok(None);
        }
        let (mut address, mut mac) = (None, None);
        message.attributes::<12>(|attribute, value| {
            match attribute {
                attribute::neighbour::DST => address = Some(value.address()?),
                attribute::neighbour::LLADDR => mac = value.mac(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(address.map(|address| Self {
            index: u32_at(fixed, 4),
            address,
            mac,
            state: u16_at(fixed, 8),
        }))
    }
}
