//! Host interfaces: the kernel interfaces that represent ours, configured like them, and as a
//! router's.
//!
//! Every function changes only the interface that it names, and is idempotent.

use std::net::IpAddr;
use std::path::Path;
use std::{fs, io};

use linerate_wire::MacAddr;
use linerate_wire::rtnetlink::build::{ACK, Builder, CREATE, DUMP, REPLACE, REQUEST};
use linerate_wire::rtnetlink::{Body, attribute, family, kind};

use super::socket::{Socket, open};
use crate::address::Cidr;
use crate::error::Error;
use crate::netns::Space;

/// A kernel interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number in the kernel.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is set up (IFF_UP).
    pub up: bool,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// How often the carrier has come or gone.
    pub carrier_changes: Option<u32>,
    /// Its MAC address, where it has one.
    pub mac: Option<MacAddr>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// The VRF device or bridge that it belongs to.
    pub master: Option<u32>,
    /// Whether it is a virtual device of the kernel (`ip -d link` names its kind), without
    /// hardware.
    pub is_made: bool,
    /// For a loopback, dummy or VRF device, whose addresses are the machine's own on every
    /// interface.
    pub inward: Option<Inward>,
}

/// Kinds of interfaces without a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inward {
    /// `lo`.
    Loopback,
    /// Of its master's VRF, where it has one.
    Dummy,
    /// The VRF device of a table.
    Vrf(u32),
}

impl Link {
    /// From a message of the kernel.
    pub fn of(link: &linerate_wire::rtnetlink::Link<'_>) -> Self {
        Self {
            index: link.index,
            name: link.name.into(),
            up: link.up,
            carrier: link.carrier,
            carrier_changes: link.carrier_changes,
            mac: link.mac,
            mtu: link.mtu.unwrap_or(0),
            master: link.master,
            is_made: link.kind.is_some(),
            inward: match (link.kind, link.table) {
                _ if link.loopback => Some(Inward::Loopback),
                (Some("dummy"), _) => Some(Inward::Dummy),
                (Some("vrf"), Some(table)) => Some(Inward::Vrf(table)),
                _ => None,
            },
        }
    }
}

/// Wanted configuration of a host interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// MAC address.
    pub mac: MacAddr,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Whether it is to be set up.
    pub up: bool,
    /// Addresses that it has at least.
    pub addresses: Vec<Cidr>,
}

/// The interfaces of one network name space.
pub struct Kernel {
    socket: Socket,
    space: Option<String>,
}

impl Kernel {
    /// Of a name space by its name (`ip netns`), or of this one.
    ///
    /// # Errors
    /// If there is no such name space, or it may not be entered.
    pub fn open(space: Option<&str>) -> Result<Self, Error> {
        Ok(Self {
            socket: Socket::new(open(space, None)?),
            space: space.map(Into::into),
        })
    }

    /// An interface by its name, if there is one.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>, Error> {
        let all = self.links()?;
        Ok(all.into_iter().find(|link| link.name == name))
    }

    /// All interfaces.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let request = Builder::new(kind::GET_LINK, REQUEST | DUMP).fixed(&[0; 16]);
        let mut all = Vec::new();
        self.socket.dump(request, |body| {
            if let Body::NewLink(link) = body {
                all.push(Link::of(&link));
            }
        })?;
        Ok(all)
    }

    /// Configures a host interface, with its carrier; does nothing if it was deleted: when it is
    /// back an event comes.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn make_alike(
        &mut self,
        name: &str,
        like: &Attributes,
        carrier: bool,
    ) -> Result<(), Error> {
        if self.link(name)?.is_none() {
            return Ok(());
        }
        self.mirror(name, like)?;
        if let Some(link) = self.link(name)?
            && link.carrier != carrier
        {
            self.set_carrier(&link, carrier)?;
        }
        self.make_router(name)
    }

    /// Makes an interface a router's in the kernel: then the kernel ignores router advertisements
    /// and redirects (RFC 4861 6.2.7, 8.2), of which it would make addresses and default routes,
    /// sends no router solicitations, and sets the router flag in its answers (4.4). This is per
    /// interface: forwarding itself depends on `conf/all`.
    ///
    /// # Errors
    /// If the kernel refuses: the setting, and why.
    fn make_router(&self, name: &str) -> Result<(), Error> {
        let setting = Path::new("/proc/sys/net/ipv6/conf")
            .join(name)
            .join("forwarding");
        let set = || match fs::read_to_string(&setting) {
            Ok(now) if now.trim() != "1" => fs::write(&setting, "1"),
            // A kernel without IPv6 does not need this.
            _ => Ok(()),
        };
        // The settings are those of the name space that the thread is in.
        let outcome = match &self.space {
            None => set(),
            Some(space) => Space::named(space)?.within(|| Ok(set()))?,
        };
        outcome.map_err(|error| Error::Usage {
            problem: format!("the kernel heeds router advertisements by `{name}`: {error}"),
            fix: format!("set it as root: sysctl -w net.ipv6.conf.{name}.forwarding=1"),
        })
    }

    /// Configures an interface, and adds missing addresses. Returns its number.
    ///
    /// # Errors
    /// If there is no such interface, or the kernel refuses: the error has the name, the change and
    /// the reason.
    pub fn mirror(&mut self, name: &str, like: &Attributes) -> Result<u32, Error> {
        let link = self.link(name)?.ok_or_else(|| Error::Usage {
            problem: format!("there is no kernel interface `{name}`"),
            fix: "leave host interfaces to the router; it makes them when it starts".into(),
        })?;
        if link.mac != Some(like.mac) {
            self.set_mac(&link, like.mac)?;
        }
        if link.mtu != like.mtu {
            self.set_mtu(&link, like.mtu)?;
        }
        if link.up != like.up {
            self.set_up(&link, like.up)?;
        }
        let had = self.addresses(link.index)?;
        for &cidr in like.addresses.iter().filter(|cidr| !had.contains(cidr)) {
            self.add_address(&link, cidr)?;
        }
        Ok(link.index)
    }

    /// Sets an interface's Ethernet address.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_mac(&mut self, link: &Link, mac: MacAddr) -> Result<(), Error> {
        let request = change(link, 0, 0).bytes(attribute::link::ADDRESS, &mac.0);
        self.change(link, format!("MAC address {mac}"), request)
    }

    /// Sets the size of its largest packet, in bytes.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_mtu(&mut self, link: &Link, mtu: u32) -> Result<(), Error> {
        let request = change(link, 0, 0).u32(attribute::link::MTU, mtu);
        self.change(link, format!("MTU {mtu}"), request)
    }

    /// Sets an interface up or down.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_up(&mut self, link: &Link, up: bool) -> Result<(), Error> {
        const IFF_UP: u32 = 1;
        let request = change(link, u32::from(up), IFF_UP);
        self.change(
            link,
            format!("state {}", if up { "up" } else { "down" }),
            request,
        )
    }

    /// Sets its carrier. Without one it keeps its addresses and routes, like any interface with a
    /// pulled cable.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_carrier(&mut self, link: &Link, carrier: bool) -> Result<(), Error> {
        let request = change(link, 0, 0).bytes(attribute::link::CARRIER, &[u8::from(carrier)]);
        let what = format!("carrier {}", if carrier { "on" } else { "off" });
        self.change(link, what, request)
    }

    /// The addresses that an interface has; without those that have not passed duplicate detection.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub fn addresses(&mut self, index: u32) -> Result<Vec<Cidr>, Error> {
        let request = Builder::new(kind::GET_ADDRESS, REQUEST | DUMP).fixed(&[0; 8]);
        let mut found = Vec::new();
        self.socket.dump(request, |body| match body {
            Body::NewAddress(address) if address.index == index => found.push(Cidr {
                address: address.address,
                len: address.len,
            }),
            _ => {}
        })?;
        Ok(found)
    }

    /// Adds an address; succeeds if it exists.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_address(&mut self, link: &Link, cidr: Cidr) -> Result<(), Error> {
        let flags = REQUEST | ACK | CREATE | REPLACE;
        let request = address(kind::NEW_ADDRESS, flags, link, cidr);
        self.change(link, format!("address {cidr}"), request)
    }

    /// Removes an address; succeeds if it, or the interface, does not exist.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove_address(&mut self, name: &str, cidr: Cidr) -> Result<(), Error> {
        let Some(link) = self.link(name)? else {
            return Ok(());
        };
        let request = address(kind::DEL_ADDRESS, REQUEST | ACK, &link, cidr);
        match self.socket.request(request) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(()),
            outcome => outcome.map_err(|e| refused(&link, &format!("no address {cidr}"), &e)),
        }
    }

    fn change(&mut self, link: &Link, what: String, request: Builder) -> Result<(), Error> {
        let outcome = self.socket.request(request);
        outcome.map_err(|error| refused(link, &what, &error))
    }
}

fn refused(link: &Link, what: &str, error: &io::Error) -> Error {
    Error::Usage {
        problem: format!("the kernel refuses `{}` {what}: {error}", link.name),
        fix: "give the router CAP_NET_ADMIN, or set `kernel = false` to do without host interfaces"
            .into(),
    }
}

/// `struct ifinfomsg` of a request about an interface.
fn change(link: &Link, flags: u32, mask: u32) -> Builder {
    Builder::new(kind::SET_LINK, REQUEST | ACK)
        .fixed(&[0; 4])
        .fixed(&link.index.to_ne_bytes())
        .fixed(&flags.to_ne_bytes())
        .fixed(&mask.to_ne_bytes())
}

/// `struct ifaddrmsg` and the address.
fn address(kind: u16, flags: u16, link: &Link, cidr: Cidr) -> Builder {
    let family = match cidr.address {
        IpAddr::V4(_) => family::INET,
        IpAddr::V6(_) => family::INET6,
    };
    Builder::new(kind, flags)
        .fixed(&[family, cidr.len, 0, 0])
        .fixed(&link.index.to_ne_bytes())
        .address(attribute::address::LOCAL, cidr.address)
        .address(attribute::address::ADDRESS, cidr.address)
}
