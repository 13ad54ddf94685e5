//! Options, of the command line and at a script's head.

use crate::fault::{At, Fault};
use crate::script::Script;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses and sockets of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IpVersion {
    /// IPv4.
    Ipv4,
    /// IPv4 packets of IPv6 sockets with mapped addresses (RFC 4291 2.5.5.2).
    Ipv4MappedIpv6,
    /// IPv6.
    Ipv6,
}

/// Where the stack under test is, unless a script says otherwise.
const LOCAL_V4: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
const LOCAL_V6: Ipv6Addr = Ipv6Addr::new(0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1);
/// Where the remote host is, which scripts play: TEST-NET-1 (RFC 5737).
pub(crate) const REMOTE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The same: documentation (RFC 3849).
pub(crate) const REMOTE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// What a script runs with.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `--ip_version`.
    pub ip_version: IpVersion,
    /// `--bind_port`: where `bind(3, ..., ...)` binds, and inbound packets go.
    pub bind_port: u16,
    /// `--connect_port`: where `connect(3, ..., ...)` connects.
    pub connect_port: u16,
    /// `--local_ip`, if it is not the target's default.
    pub local_ip: Option<IpAddr>,
    /// `--remote_ip`.
    pub remote_ip: Option<IpAddr>,
    /// `--mtu` of the interface.
    pub mtu: u16,
    /// `--tolerance_usecs`: how far from its time an event may be.
    pub tolerance_us: i64,
    /// `--tolerance_percent` of the time since the last event, if that is more.
    pub tolerance_percent: f64,
    /// `--tcp_ts_tick_usecs`: a tick of time stamps; 0: their values are not checked.
    pub ts_tick_us: u32,
    /// `--tcp_ts_ecr_scaled`: echo replies that no packet had are taken as times.
    pub ts_ecr_scaled: bool,
    /// `--strict_segments`: packets are not put together and cut to fit what the script expects.
    pub strict_segments: bool,
    /// `--strict_end`: what was sent by a script's end, and not asked for, is a fault.
    pub strict_end: bool,
    /// Whether [`Outcome::trace`](crate::Outcome::trace) is wanted.
    pub trace: bool,
}

impl Default for Config {
    /// packetdrill's: ports 8080, 4 ms or 12.5 %.
    fn default() -> Self {
        Self {
            ip_version: IpVersion::Ipv4,
            bind_port: 8080,
            connect_port: 8080,
            local_ip: None,
            remote_ip: None,
            mtu: 1500,
            tolerance_us: 4000,
            tolerance_percent: 12.5,
            ts_tick_us: 0,
            ts_ecr_scaled: false,
            strict_segments: false,
            strict_end: false,
            trace: false,
        }
    }
}

/// Options that change nothing here: of packetdrill's own output, or defaults.
const IGNORED: &[&str] = &[
    "define",
    "D",
    "verbose",
    "v",
    "debug",
    "dry_run",
    "code_sockopt",
    "code_format",
    "code_command",
    "netmask_ip",
    "gateway_ip",
    "speed",
];

impl Config {
    /// Whether packets are IPv6.
    pub fn is_v6(&self) -> bool {
        self.ip_version == IpVersion::Ipv6
    }

    /// The address of the host that the script plays. One of the other version of IP than packets
    /// have does not count.
    pub fn remote(&self) -> IpAddr {
        let given = self.remote_ip.filter(|ip| ip.is_ipv6() == self.is_v6());
        given.unwrap_or(match self.is_v6() {
            true => REMOTE_V6.into(),
            false => REMOTE_V4.into(),
        })
    }

    /// The stack's own address of a version of IP.
    pub(crate) fn local(&self, is_v6: bool) -> IpAddr {
        let given = self.local_ip.filter(|ip| ip.is_ipv6() == is_v6);
        given.unwrap_or(match is_v6 {
            true => LOCAL_V6.into(),
            false => LOCAL_V4.into(),
        })
    }

    /// These options, and a script's over them.
    ///
    /// # Errors
    /// A [`Fault`] for an option without a value, with a wrong one, or that is not known.
    pub fn with_options_of(&self, script: &Script) -> Result<Self, Fault> {
        let mut config = self.clone();
        for (name, value, at) in &script.options {
            config.set(name, value.as_deref(), *at)?;
        }
        Ok(config)
    }

    fn set(&mut self, name: &str, value: Option<&str>, at: At) -> Result<(), Fault> {
        match name {
            "ip_version" => {
                self.ip_version = match value {
                    Some("ipv4") => IpVersion::Ipv4,
                    Some("ipv4-mapped-ipv6") => IpVersion::Ipv4MappedIpv6,
                    Some("ipv6") => IpVersion::Ipv6,
                    _ => {
                        let fix = "use ipv4, ipv4-mapped-ipv6 or ipv6";
                        return Err(Fault::syntax(at, "an unknown --ip_version", fix));
                    }
                }
            }
            "bind_port" => self.bind_port = parsed(name, value, at)?,
            "connect_port" => self.connect_port = parsed(name, value, at)?,
            "local_ip" => self.local_ip = Some(address(name, value, at)?),
            "remote_ip" => self.remote_ip = Some(address(name, value, at)?),
            "mtu" => self.mtu = parsed(name, value, at)?,
            "tolerance_usecs" => {
                // A script may ask for more patience than the command line, not for less.
                let wanted: u32 = parsed(name, value, at)?;
                self.tolerance_us = self.tolerance_us.max(i64::from(wanted));
            }
            "tolerance_percent" => self.tolerance_percent = parsed(name, value, at)?,
            "tcp_ts_tick_usecs" => self.ts_tick_us = parsed(name, value, at)?,
            "tcp_ts_ecr_scaled" => self.ts_ecr_scaled = true,
            "strict_segments" => self.strict_segments = true,
            "strict_end" => self.strict_end = true,
            _ if IGNORED.contains(&name) => {}
            _ => return Err(Fault::unsupported(at, format!("the option --{name}"))),
        }
        Ok(())
    }
}

fn parsed<T: std::str::FromStr>(name: &str, value: Option<&str>, at: At) -> Result<T, Fault> {
    value.and_then(|value| value.parse().ok()).ok_or_else(|| {
        let fix = format!("write --{name}=NUMBER");
        Fault::syntax(at, format!("--{name} without a number that fits"), fix)
    })
}

/// An address; packetdrill's may have the length of a prefix, which nothing here needs.
fn address(name: &str, value: Option<&str>, at: At) -> Result<IpAddr, Fault> {
    let text = value.unwrap_or_default();
    let text = text.split_once('/').map_or(text, |(address, _)| address);
    text.parse().map_err(|_| {
        let fix = format!("write --{name}=ADDRESS");
        Fault::syntax(at, format!("--{name} without an address"), fix)
    })
}
