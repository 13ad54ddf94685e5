//! One line of text for each packet that passes a port.
//!
//! ```text
//! 1700000000.123456789 rx 0 60 02:00:00:00:00:01 > 02:00:00:00:00:02 10.0.0.1:5000 > 10.0.0.2:53 udp
//! ```

use super::observed::{Observed, Observer, SeenFrame};
use super::pcapng::Direction;
use super::{Port, PortError};
use linerate_wire::ethernet::Ethernet;
use linerate_wire::{EtherType, Headers, ipv4::Ipv4, ipv6::Ipv6, parse, protocol};
use std::io::{self, Write};
use std::net::IpAddr;

/// A port whose packets are written down, one line each: time in seconds, direction, queue, bytes,
/// addresses, and what the headers say.
pub type Traced = Observed<Tracer>;

/// Writes the lines. After a failed write it stops, which the port's facts show.
pub struct Tracer {
    out: Box<dyn Write + Send>,
    /// What it writes to, for messages.
    target: String,
    lines: u64,
    /// Packets that have no line because a write failed.
    missed: u64,
    failure: Option<io::Error>,
}

impl Traced {
    /// Writes packets of `port` to `out`, which messages call `target`.
    pub fn to(port: Box<dyn Port>, target: &str, out: Box<dyn Write + Send>) -> Self {
        Self::new(
            port,
            Tracer {
                out,
                target: target.into(),
                lines: 0,
                missed: 0,
                failure: None,
            },
        )
    }
}

impl Observer for Tracer {
    fn wants(&mut self, _: &SeenFrame<'_>) -> bool {
        true
    }

    fn see(&mut self, seen: &SeenFrame<'_>) {
        if self.failure.is_some() {
            self.missed += 1;
            return;
        }
        match line(&mut self.out, seen) {
            Ok(()) => self.lines += 1,
            Err(error) => {
                self.missed += 1;
                self.failure = Some(error);
            }
        }
    }

    fn finish(&mut self, port: &str) -> Result<(), PortError> {
        let result = self.failure.take().map_or_else(|| self.out.flush(), Err);
        let (port, path) = (port.into(), self.target.clone());
        result.map_err(|source| PortError::File {
            port,
            action: "write the trace to",
            path,
            source,
        })
    }

    fn fact(&self) -> (&'static str, String) {
        let end = self
            .failure
            .as_ref()
            .map_or(String::new(), |error| format!(", ended: {error}"));
        (
            "trace",
            format!("{} lines to {}{end}", self.lines, self.target),
        )
    }

    fn missed(&self) -> u64 {
        self.missed
    }

    fn warning(&self) -> Option<String> {
        let error = self.failure.as_ref()?;
        Some(format!(
            "no more lines are traced to {}: {error}",
            self.target
        ))
    }
}

fn line(out: &mut dyn Write, seen: &SeenFrame<'_>) -> io::Result<()> {
    let (seconds, nanos) = (
        seen.timestamp_ns / 1_000_000_000,
        seen.timestamp_ns % 1_000_000_000,
    );
    let way = match seen.direction {
        Direction::Inbound => "rx",
        Direction::Outbound => "tx",
    };
    let frame = seen.frame;
    write!(
        out,
        "{seconds}.{nanos:09} {way} {} {}",
        seen.queue,
        frame.len()
    )?;
    if let Ok(ethernet) = Ethernet::new_checked(frame) {
        write!(out, " {} > {}", ethernet.src(), ethernet.dst())?;
    }
    match parse(frame) {
        Err(reason) => writeln!(out, " malformed: {reason}"),
        Ok(headers) => content(out, frame, &headers),
    }
}

/// The part behind the Ethernet addresses.
fn content(out: &mut dyn Write, frame: &[u8], headers: &Headers) -> io::Result<()> {
    if let Some(tci) = headers.outer_tci {
        write!(out, " vlan {}", tci & 0xfff)?;
    }
    let packet = &frame[headers.l3..];
    let addresses: Option<(IpAddr, IpAddr)> = match headers.ethertype {
        EtherType::IPV4 => Ipv4::new_checked(packet)
            .ok()
            .map(|ip| (ip.src().into(), ip.dst().into())),
        EtherType::IPV6 => Ipv6::new_checked(packet)
            .ok()
            .map(|ip| (ip.src().into(), ip.dst().into())),
        _ => None,
    };
    match (addresses, headers.ports) {
        (None, _) => return writeln!(out, " {}", headers.ethertype),
        (Some((src, dst)), None) => write!(out, " {src} > {dst}")?,
        (Some((IpAddr::V4(src), IpAddr::V4(dst))), Some((from, to))) => {
            write!(out, " {src}:{from} > {dst}:{to}")?
        }
        (Some((src, dst)), Some((from, to))) => write!(out, " [{src}]:{from} > [{dst}]:{to}")?,
    }
    match headers.protocol {
        Some(protocol::TCP) => write!(out, " tcp")?,
        Some(protocol::UDP) => write!(out, " udp")?,
        Some(protocol::SCTP) => write!(out, " sctp")?,
        Some(protocol::ICMP) => write!(out, " icmp")?,
        Some(protocol::ICMPV6) => write!(out, " icmp6")?,
        Some(other) => write!(out, " protocol {other}")?,
        None => {}
    }
    writeln!(
        out,
        "{}",
        if headers.is_fragment { " fragment" } else { "" }
    )
}
