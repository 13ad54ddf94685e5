//! `[nat.log]`: where records of sessions and blocks go.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use linerate_appliance::config::Section;

use super::{Entry, Limits};
use crate::nat::writer::To;

const FILE: &str = "an absolute path such as \"/var/lib/linerate/nat.jsonl\"";
const SYSLOG: &str = "an address such as \"192.0.2.9\" or \"[2001:db8::9]:514\", or a socket such \
                      as \"/dev/log\"";

/// The stanza.
pub(super) struct Log {
    pub(super) to: To,
    /// Whether pools without blocks have their sessions recorded, unless they say otherwise.
    sessions: bool,
    pub(super) blocks: bool,
    /// Records of one worker that wait to be written.
    pub(super) records: usize,
}

pub(super) fn read(nat: &Section<'_>) -> Option<Log> {
    let section = nat.table("nat.log", "log", "a table: [nat.log] with file or syslog")?;
    let file = section.read("file", FILE, |text| match Path::new(text).is_absolute() {
        true => Ok(To::File(text.into())),
        false => Err(format!("`{text}` depends on where the gateway is started")),
    });
    let syslog = section.read("syslog", SYSLOG, syslog);
    let switch = |key| section.switch(key).is_none_or(|at| at.value);
    let (sessions, blocks) = (switch("sessions"), switch("blocks"));
    let size = section.number::<u32>("size", 16..=10_000_000);
    let to = match (section.has("file"), section.has("syslog")) {
        (true, false) => file,
        (false, true) => syslog,
        (both, _) => {
            let problem = match both {
                true => "records go to one place",
                false => "it is not said where records go",
            };
            section.wrong(section.line, "file", problem, "file or syslog");
            None
        }
    };
    section.end();
    Some(Log {
        to: to?.value,
        sessions,
        blocks,
        records: size.map_or(Limits::default().records, |at| at.value as usize),
    })
}

/// `192.0.2.9`, `192.0.2.9:514`, or a path.
fn syslog(text: &str) -> Result<To, String> {
    /// RFC 5426 3.3.
    const PORT: u16 = 514;
    if text.starts_with('/') {
        return Ok(To::Unix(text.into()));
    }
    let address = text.parse::<IpAddr>();
    let address = address.map(|address| SocketAddr::new(address, PORT));
    let address = address.or_else(|_| text.parse::<SocketAddr>());
    let address = address.map_err(|_| format!("`{text}` is no address and no path"))?;
    match address.port() {
        0 => Err("there is no port 0".into()),
        _ => Ok(To::Udp(address)),
    }
}

/// Which pools have their sessions recorded (RFC 6888 REQ-12; REQ-13 for blocks instead).
pub(super) fn pools(nat: &Section<'_>, log: Option<&Log>, pools: &mut [Entry]) {
    for entry in pools {
        let usual = log.is_some_and(|log| log.sessions) && entry.pool.block_ports == 0;
        entry.pool.logs = log.is_some() && entry.logs.as_ref().map_or(usual, |at| at.value);
        let Some(at) = entry.logs.as_ref().filter(|at| at.value && log.is_none()) else {
            continue;
        };
        if !nat.has("log") {
            let problem = "there is no [nat.log]: nothing is written";
            let advice = "say in [nat.log] where records go";
            nat.notes().warn(at.line, "nat.pool.log", problem, advice);
        }
    }
}
