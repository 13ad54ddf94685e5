//! One network interface of the system: whether it exists, its state, MTU and address.
//!
//! Plain ioctls, not netlink: six small requests about one interface need no message parser, and
//! nothing here has to listen. A packet socket itself says when its interface went away
//! (`ENETDOWN`), and whoever waits for it to come back asks ten times a second at most. Not sysfs
//! either: `/sys` shows the network name space of whoever mounted it, a socket that of its maker.

pub(crate) mod sys;

use crate::opener::{Opener, TapChange};
use linerate_core::port::{Link, PortError, Spec};
use linerate_wire::ethernet::MacAddr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Longest interface name, in bytes.
pub(crate) const NAME_MAX: usize = libc::IFNAMSIZ - 1;

/// An interface by name, in the network name space of the thread that made this value, or in
/// another.
#[derive(Debug)]
pub(crate) struct Interface {
    name: String,
    socket: OwnedFd,
    /// The other name space, as `ip netns` calls it.
    netns: Option<String>,
    opener: Arc<dyn Opener>,
}

impl Interface {
    /// Names an interface, which need not exist yet.
    ///
    /// # Errors
    /// [`PortError::BadValue`] where no interface can have that name.
    pub(crate) fn named_by(spec: &Spec, opener: &Arc<dyn Opener>) -> Result<Self, PortError> {
        let expected =
            format!("the name of an interface, 1 to {NAME_MAX} bytes without `/`, `:` or spaces");
        let name = spec.required_target(&expected)?;
        let forbidden = |byte: u8| byte == b'/' || byte == b':' || byte == b'%' || byte <= b' ';
        if name.len() > NAME_MAX || name.bytes().any(forbidden) || name == "." || name == ".." {
            return Err(spec.bad("target", expected));
        }
        let netns = spec.text("netns");
        let socket = match netns {
            None => sys::control_socket(),
            Some(netns) => opener.control_socket(netns),
        };
        let socket = socket.map_err(|source| {
            let (action, fix) = match netns {
                Some(netns) if source.kind() == io::ErrorKind::NotFound => (
                    format!("open network name space `{netns}`"),
                    "`ip netns` lists those there are, `ip netns add` makes one",
                ),
                _ => (
                    "open a socket".into(),
                    "raise the limit of open files with `ulimit -n`; other name spaces need \
                     CAP_SYS_ADMIN",
                ),
            };
            PortError::System {
                port: spec.name(),
                action,
                source,
                fix: fix.into(),
            }
        })?;
        Ok(Self {
            name: name.into(),
            socket,
            netns: netns.map(Into::into),
            opener: opener.clone(),
        })
    }

    /// Opens what needs privileges.
    pub(crate) fn opener(&self) -> &dyn Opener {
        &*self.opener
    }

    /// A queue of the TAP of this name.
    pub(crate) fn open_tap(&self, several: bool) -> io::Result<OwnedFd> {
        self.opener.tap(self.netns.as_deref(), &self.name, several)
    }

    /// Changes the kernel's end of the TAP of this name.
    pub(crate) fn change_tap(&self, change: TapChange) -> io::Result<()> {
        self.opener
            .change_tap(self.netns.as_deref(), &self.name, change)
    }

    /// Changes an interface in the name space of a socket.
    pub(crate) fn change(socket: &OwnedFd, name: &str, change: TapChange) -> io::Result<()> {
        match change {
            TapChange::Mac(mac) => sys::set_mac(socket, name, mac.0),
            TapChange::Mtu(mtu) => sys::set_mtu(socket, name, mtu.cast_signed()),
            TapChange::Up(up) => {
                let flags = sys::flags(socket, name)?;
                let flags = if up {
                    flags | libc::IFF_UP
                } else {
                    flags & !libc::IFF_UP
                };
                sys::set_flags(socket, name, flags)
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its number; changes when it is deleted and made anew. `ENODEV` where it does not exist.
    pub(crate) fn index(&self) -> io::Result<i32> {
        sys::index(&self.socket, &self.name)
    }

    pub(crate) fn mtu(&self) -> io::Result<u32> {
        sys::mtu(&self.socket, &self.name).map(i32::cast_unsigned)
    }

    /// Its address; `None` where it is no Ethernet device.
    pub(crate) fn mac(&self) -> io::Result<Option<MacAddr>> {
        let (kind, mac) = sys::hardware(&self.socket, &self.name)?;
        let ethernet = kind == libc::ARPHRD_ETHER || kind == libc::ARPHRD_LOOPBACK;
        Ok(ethernet.then_some(MacAddr(mac)))
    }

    pub(crate) fn is_up(&self) -> io::Result<bool> {
        Ok(sys::flags(&self.socket, &self.name)? & libc::IFF_UP != 0)
    }

    /// The driver's name, and whether the device is on no bus: a veth or the like.
    pub(crate) fn driver(&self) -> (String, bool) {
        let words = sys::ethtool_driver(&self.socket, &self.name).unwrap_or([0; 49]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let text = |at: usize| {
            let field = bytes[at..at + 32].split(|&byte| byte == 0).next();
            String::from_utf8_lossy(field.unwrap_or_default()).into_owned()
        };
        let bus = text(4 + 3 * 32);
        (text(4), bus.is_empty() || bus == "N/A" || bus == "tap")
    }

    /// Receive and transmit queues in use.
    pub(crate) fn channels(&self) -> (u16, u16) {
        let words = sys::ethtool_channels(&self.socket, &self.name).unwrap_or_default();
        let [_, _, _, _, _, rx, tx, _, combined] = words;
        let clamp = |count: u32| count.clamp(1, u32::from(u16::MAX)) as u16;
        if rx + combined > 0 {
            return (clamp(rx + combined), clamp(tx + combined));
        }
        // Not every driver reports it; sysfs does, in the name space that it shows.
        let count = |prefix: &str| {
            let path = format!("/sys/class/net/{}/queues", self.name);
            let queues = std::fs::read_dir(path).into_iter().flatten().flatten();
            let counted =
                queues.filter(|queue| queue.file_name().to_string_lossy().starts_with(prefix));
            clamp(counted.count() as u32)
        };
        (count("rx-"), count("tx-"))
    }

    /// Whether it merges received frames (GRO).
    pub(crate) fn merges(&self) -> bool {
        sys::ethtool_value(&self.socket, &self.name, sys::EthtoolValue::Gro).is_ok_and(|on| on != 0)
    }

    /// Whether it takes VLAN tags off received frames.
    pub(crate) fn strips_vlan(&self) -> bool {
        const ETH_FLAG_RXVLAN: u32 = 1 << 8;
        let flags = sys::ethtool_value(&self.socket, &self.name, sys::EthtoolValue::Flags);
        flags.is_ok_and(|flags| flags & ETH_FLAG_RXVLAN != 0)
    }

    /// Whether frames can come and go.
    pub(crate) fn link(&self) -> Link {
        let name = &self.name;
        match sys::flags(&self.socket, name) {
            Err(error) if is_gone(&error) => Link::Down(format!("interface `{name}` was deleted")),
            Err(error) => Link::Down(format!("interface `{name}`: {error}")),
            Ok(flags) if flags & libc::IFF_UP == 0 => Link::Down(format!(
                "interface `{name}` is down; `ip link set {name} up`"
            )),
            Ok(flags) if !self.has_carrier(flags) => {
                Link::Down(format!("interface `{name}` has no carrier"))
            }
            Ok(_) => Link::Up,
        }
    }

    /// Whether there is a carrier, by the driver; if that does not report it, by the interface's
    /// flags, which the kernel brings up to date once a second when there is much to do.
    fn has_carrier(&self, flags: i32) -> bool {
        let carrier = sys::ethtool_value(&self.socket, &self.name, sys::EthtoolValue::Link);
        carrier.map_or(flags & libc::IFF_RUNNING != 0, |carrier| carrier != 0)
    }

    /// The error for a port whose interface does not exist.
    pub(crate) fn missing(&self, port: &str) -> PortError {
        PortError::NoInterface {
            port: port.into(),
            interface: self.name.clone(),
            fix: "`ip link` or `linerate ports` lists those there are".into(),
        }
    }

    /// What an ioctl about this interface failed with, as a port's error.
    pub(crate) fn failed(&self, port: &str, action: &str, source: io::Error) -> PortError {
        if is_gone(&source) {
            return self.missing(port);
        }
        if matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES)) {
            return no_permission(
                port,
                format!("{action} of `{}`", self.name),
                "CAP_NET_ADMIN",
            );
        }
        PortError::System {
            port: port.into(),
            action: format!("{action} of `{}`", self.name),
            source,
            fix: format!("see `ip -d link show {}` for what it allows", self.name),
        }
    }
}

/// Whether an error says that the interface does not exist (any more).
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

/// The error for a missing capability, with the commands that give it.
pub(crate) fn no_permission(port: &str, action: String, capability: &'static str) -> PortError {
    let short = capability.trim_start_matches("CAP_");
    let file = std::env::current_exe()
        .map_or_else(|_| "linerate".into(), |path| path.display().to_string());
    PortError::Permission {
        port: port.into(),
        action,
        capability,
        fix: format!(
            "run as root, or `sudo setcap {}+ep {file}` (in a container: `--cap-add {short}`)",
            capability.to_lowercase()
        ),
    }
}
