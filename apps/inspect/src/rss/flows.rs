//! Input of the NIC: flows drawn from a description, or the packets of a capture.

use std::fs::File;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use linerate_core::random::Random;
use linerate_drivers::pcap::Reader;
use linerate_tables::rss::Flow;
use linerate_wire::flow::{FlowKey4, FlowKey6};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{EtherType, protocol};

use linerate_appliance::error::Error;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct FlowArgs {
    /// Flows to draw:
    /// `PROTOCOL[,src=PREFIX][,dst=PREFIX][,src_port=A-B][,dst_port=A-B][,count=N][,seed=N]`;
    /// PROTOCOL is tcp, udp, sctp or icmp
    #[arg(long, value_name = "SPEC", conflicts_with = "pcap")]
    pub(super) flows: Option<String>,
    /// Take the flows of this capture instead
    #[arg(long, value_name = "FILE")]
    pub(super) pcap: Option<PathBuf>,
}

/// The default description.
const DEFAULT: &str =
    "tcp,src=10.0.0.0/8,dst=192.0.2.1,src_port=1024-65535,dst_port=443,count=10000,seed=1";

/// One packet as RSS sees it.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// A packet of a flow, perhaps a fragment.
    Ip { flow: Flow, fragment: bool },
    /// No IP, or malformed: not hashed.
    Other,
}

impl FlowArgs {
    /// Whether flows were given.
    pub fn is_given(&self) -> bool {
        self.flows.is_some() || self.pcap.is_some()
    }

    /// Calls `each` for every packet; returns their name in reports.
    pub fn for_each(&self, mut each: impl FnMut(Seen)) -> Result<String, Error> {
        if let Some(path) = &self.pcap {
            read(path, each)?;
            return Ok(path.display().to_string());
        }
        let text = self.flows.as_deref().unwrap_or(DEFAULT);
        let spec = FlowSpec::parse(text)?;
        spec.draw(|flow| {
            each(Seen::Ip {
                flow,
                fragment: false,
            })
        });
        Ok(text.into())
    }
}

fn read(path: &Path, mut each: impl FnMut(Seen)) -> Result<(), Error> {
    let failed = |source: std::io::Error| Error::File {
        path: path.into(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let mut reader = Reader::new(file).map_err(|error| failed(error.into()))?;
    while let Some(frame) = reader.next().map_err(|error| failed(error.into()))? {
        each(seen(frame.data));
    }
    Ok(())
}

/// How RSS classifies a frame.
pub(super) fn seen(frame: &[u8]) -> Seen {
    let Ok(headers) = linerate_wire::parse(frame) else {
        return Seen::Other;
    };
    let packet = &frame[headers.l3..];
    let (src_port, dst_port) = headers.ports.unwrap_or((0, 0));
    let protocol = headers.protocol.unwrap_or(0);
    let flow = match headers.ethertype {
        EtherType::IPV4 => Ipv4::new_checked(packet).map(|ip| {
            let (src, dst) = (ip.src().octets(), ip.dst().octets());
            Flow::V4(FlowKey4::new(src, dst, src_port, dst_port, protocol))
        }),
        EtherType::IPV6 => Ipv6::new_checked(packet).map(|ip| {
            let (src, dst) = (ip.src().octets(), ip.dst().octets());
            Flow::V6(FlowKey6::new(src, dst, src_port, dst_port, protocol))
        }),
        _ => return Seen::Other,
    };
    match flow {
        // Packets without ports are hashed like fragments: by addresses.
        Ok(flow) => Seen::Ip {
            flow,
            fragment: headers.is_fragment || headers.ports.is_none(),
        },
        Err(_) => Seen::Other,
    }
}

/// `tcp 10.0.0.1:1024 > 192.0.2.1:443`.
pub(super) fn name(flow: &Flow) -> String {
    let (src_port, dst_port) = flow.ports();
    name_with(flow, &src_port.to_string(), &dst_port.to_string())
}

/// The same with other words for the ports.
pub(super) fn name_with(flow: &Flow, src_port: &str, dst_port: &str) -> String {
    let (src, dst) = match flow {
        Flow::V4(key) => (address::<4>(&key.0), address::<4>(&key.0[4..])),
        Flow::V6(key) => (address::<16>(&key.0), address::<16>(&key.0[16..])),
    };
    let protocol = protocol_name(flow.protocol());
    format!("{protocol} {src}:{src_port} > {dst}:{dst_port}")
}

fn address<const N: usize>(bytes: &[u8]) -> String
where
    IpAddr: From<[u8; N]>,
{
    let octets = bytes.first_chunk::<N>().copied().unwrap_or([0; N]);
    match IpAddr::from(octets) {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

const PROTOCOLS: [(&str, u8); 4] = [
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("sctp", protocol::SCTP),
    ("icmp", protocol::ICMP),
];

fn protocol_name(number: u8) -> String {
    let known = PROTOCOLS.iter().find(|&&(_, it)| it == number);
    known.map_or_else(|| format!("protocol {number}"), |(name, _)| (*name).into())
}

/// Addresses of one prefix.
#[derive(Clone, Copy, Debug)]
struct Prefix {
    address: IpAddr,
    bits: u32,
}

/// A description of flows.
#[derive(Clone, Debug)]
pub(super) struct FlowSpec {
    protocol: u8,
    src: Prefix,
    dst: Prefix,
    pub(super) src_port: Option<RangeInclusive<u16>>,
    pub(super) dst_port: Option<RangeInclusive<u16>>,
    count: u64,
    seed: u64,
}

impl FlowSpec {
    /// Reads `tcp,src=10.0.0.0/8,...`; ports that are not given stay absent.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let named = PROTOCOLS.iter().find(|(name, _)| *name == first);
        let &(name, protocol) = named.ok_or_else(|| {
            bad(
                text,
                format!("`{first}` is no protocol"),
                "begin with tcp, udp, sctp or icmp",
            )
        })?;
        let mut spec = Self {
            protocol,
            src: Prefix::parse("10.0.0.0/8").map_err(|problem| bad(text, problem, "-"))?,
            dst: Prefix::parse("192.0.2.1").map_err(|problem| bad(text, problem, "-"))?,
            src_port: None,
            dst_port: None,
            count: 10_000,
            seed: 1,
        };
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let failed = |problem: String| bad(text, format!("{key}: {problem}"), fix_of(key));
            match key {
                "src" => spec.src = Prefix::parse(value).map_err(failed)?,
                "dst" => spec.dst = Prefix::parse(value).map_err(failed)?,
                "src_port" | "dst_port" if name == "icmp" => {
                    return Err(failed("icmp has no ports".into()));
                }
                "src_port" => spec.src_port = Some(ports(value).map_err(failed)?),
                "dst_port" => spec.dst_port = Some(ports(value).map_err(failed)?),
                "count" => spec.count = number(value).map_err(failed)?,
                "seed" => spec.seed = number(value).map_err(failed)?,
                _ => {
                    return Err(bad(
                        text,
                        format!("`{key}` is no key"),
                        "the keys are src, dst, src_port, dst_port, count and seed",
                    ));
                }
            }
        }
        match spec.src.address.is_ipv4() == spec.dst.address.is_ipv4() {
            true => Ok(spec),
            false => Err(bad(
                text,
                "src and dst are of different IP versions".into(),
                "give both as IPv4 or both as IPv6",
            )),
        }
    }

    /// Calls `each` for `count` random flows, the same for the same seed.
    fn draw(&self, mut each: impl FnMut(Flow)) {
        let any = 1024..=u16::MAX;
        let (src_port, dst_port) = match self.protocol {
            protocol::ICMP => (0..=0, 0..=0),
            _ => (
                self.src_port.clone().unwrap_or(any.clone()),
                self.dst_port.clone().unwrap_or(any),
            ),
        };
        let mut random = Random::new(self.seed);
        for _ in 0..self.count {
            let (src, dst) = (self.src.draw(&mut random), self.dst.draw(&mut random));
            each(flow(
                src,
                dst,
                port(&mut random, &src_port),
                port(&mut random, &dst_port),
                self.protocol,
            ));
        }
    }

    /// The flow of single addresses; absent ports and ranges count as their first port.
    pub(super) fn single(&self) -> Option<Flow> {
        let first =
            |ports: &Option<RangeInclusive<u16>>| ports.as_ref().map_or(0, |ports| *ports.start());
        let single = |prefix: Prefix| (prefix.bits == prefix.width()).then_some(prefix.address);
        Some(flow(
            single(self.src)?,
            single(self.dst)?,
            first(&self.src_port),
            first(&self.dst_port),
            self.protocol,
        ))
    }
}

fn flow(src: IpAddr, dst: IpAddr, src_port: u16, dst_port: u16, protocol: u8) -> Flow {
    let wide = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Flow::V4(FlowKey4::new(
            src.octets(),
            dst.octets(),
            src_port,
            dst_port,
            protocol,
        )),
        _ => Flow::V6(FlowKey6::new(
            wide(src),
            wide(dst),
            src_port,
            dst_port,
            protocol,
        )),
    }
}

fn bad(text: &str, problem: String, fix: &str) -> Error {
    Error::Usage {
        problem: format!("--flows {text}: {problem}"),
        fix: fix.into(),
    }
}

fn fix_of(key: &str) -> &'static str {
    match key {
        "src" | "dst" => {
            "write an address or a prefix without host bits, such as 10.0.0.0/8 or 2001:db8::/32"
        }
        "src_port" | "dst_port" => {
            "write a port or a range, the lower first, such as 443 or 1024-65535"
        }
        _ => "write a number, such as 10000",
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

pub(super) fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let port = |text: &str| {
        text.parse::<u16>()
            .map_err(|_| format!("`{text}` is no port"))
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    match first <= last {
        true => Ok(first..=last),
        false => Err(format!("{first}-{last} is a range the wrong way round")),
    }
}

impl Prefix {
    fn parse(text: &str) -> Result<Self, String> {
        let (address, bits) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("`{address}` is no address"))?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits: u32 = match bits {
            "" => width,
            bits => bits
                .parse()
                .ok()
                .filter(|&bits| bits <= width)
                .ok_or_else(|| format!("/{bits} is no prefix length up to {width}"))?,
        };
        let prefix = Self { address, bits };
        match prefix.host_bits() & prefix.mask() {
            0 => Ok(prefix),
            _ => Err(format!("{text} has host bits set")),
        }
    }

    fn width(self) -> u32 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    fn host_bits(self) -> u128 {
        match self.address {
            IpAddr::V4(v4) => v4.to_bits().into(),
            IpAddr::V6(v6) => v6.to_bits(),
        }
    }

    /// Ones in the host bits.
    fn mask(self) -> u128 {
        match self.width() - self.bits {
            128 => u128::MAX,
            free => (1 << free) - 1,
        }
    }

    fn draw(self, random: &mut Random) -> IpAddr {
        let any = random.bits128();
        let bits = self.host_bits() | (any & self.mask());
        match self.address {
            IpAddr::V4(_) => IpAddr::V4((bits as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(bits.into()),
        }
    }
}

fn port(random: &mut Random, range: &RangeInclusive<u16>) -> u16 {
    let span = u64::from(range.end() - range.start()) + 1;
    range.start() + (random.bits() % span) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_drawn_from_where_the_description_says() {
        let spec =
            FlowSpec::parse("udp,src=2001:db8::/32,dst=2001:db8::1,dst_port=53,count=500").unwrap();
        let mut count = 0;
        spec.draw(|flow| {
            let tuple = flow.tuple();
            assert_eq!(tuple[..4], [0x20, 1, 0x0d, 0xb8]);
            assert_eq!((flow.ports().1, flow.protocol()), (53, 17));
            assert!(flow.ports().0 >= 1024);
            count += 1;
        });
        assert_eq!(count, 500);
    }

    #[test]
    fn descriptions_that_make_no_sense_are_refused_with_a_fix() {
        for (text, part) in [
            ("gre", "`gre` is no protocol"),
            ("tcp,src=10.0.0.1/8", "10.0.0.1/8 has host bits set"),
            ("tcp,src=10.0.0.0/33", "/33 is no prefix length up to 32"),
            ("tcp,dst=host", "`host` is no address"),
            ("tcp,dst_port=9-5", "9-5 is a range the wrong way round"),
            ("tcp,dst_port=65536", "`65536` is no port"),
            ("icmp,dst_port=1", "icmp has no ports"),
            ("tcp,ttl=3", "`ttl` is no key"),
            ("tcp,count=many", "`many` is no number"),
            ("tcp,dst=::1", "different IP versions"),
        ] {
            let error = FlowSpec::parse(text).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
            assert!(error.fix().is_some_and(|fix| fix.len() > 5), "{error}");
        }
    }

    #[test]
    fn flows_are_named_as_people_write_them() {
        let spec = FlowSpec::parse("tcp,src=10.0.0.1,dst=192.0.2.1,src_port=5,dst_port=6").unwrap();
        assert_eq!(
            name(&spec.single().unwrap()),
            "tcp 10.0.0.1:5 > 192.0.2.1:6"
        );
        let spec = FlowSpec::parse("udp,src=::1,dst=::2,dst_port=6").unwrap();
        assert_eq!(name(&spec.single().unwrap()), "udp [::1]:0 > [::2]:6");
        assert!(FlowSpec::parse("udp").unwrap().single().is_none());
    }
}
