//! `[[app]]`: what each lcore's stack serves.

mod client;

pub(crate) use client::path;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use linerate_appliance::config::{At, Section};
use linerate_stack::host::MAX_DSCP;
use linerate_stack::socket::{IpOptions, Listen, StackConfig};

use super::said;
use crate::by_user::Extract;
use crate::epc::settings::{Settings, Word as Node};
use crate::http::client::Job;
use crate::http::client::meter::Meters;
use crate::http::server::Limits;
use crate::http::site::Site;
use crate::stream::{Amount, Peer};

/// An application of a file.
#[derive(Clone, Debug)]
pub struct AppStanza {
    /// What it is called.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Where the user of a connection is, to whose lcore it goes.
    pub by_user: Option<Extract>,
}

/// What an application does.
#[derive(Clone, Debug)]
pub enum Kind {
    /// [`Echo`](crate::echo::Echo).
    Echo(Listen),
    /// [`Stream::source`](crate::stream::Stream::source).
    Source(Peer, Amount),
    /// [`Stream::sink`](crate::stream::Stream::sink).
    Sink(Peer),
    /// [`Server`](crate::http::server::Server).
    Http(Listen, Arc<Site>, Limits),
    /// [`Client`](crate::http::client::Client), and where those of all lcores count.
    HttpClient(Arc<Job>, Arc<Meters>),
    /// [`Proxy`](crate::proxy::Proxy).
    Proxy(Listen, SocketAddr),
    /// [`Epc`](crate::epc::Epc): a node of an EPC.
    Epc(Box<Settings>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Echo,
    Source,
    Sink,
    Http,
    HttpClient,
    Proxy,
    Epc(Node),
}

const WORDS: [(&str, Word); 11] = [
    ("echo", Word::Echo),
    ("source", Word::Source),
    ("sink", Word::Sink),
    ("http", Word::Http),
    ("http-client", Word::HttpClient),
    ("proxy", Word::Proxy),
    ("epc-ran", Word::Epc(Node::Ran)),
    ("epc-mme", Word::Epc(Node::Mme)),
    ("epc-hss", Word::Epc(Node::Hss)),
    ("epc-sgw", Word::Epc(Node::Sgw)),
    ("epc-pgw", Word::Epc(Node::Pgw)),
];

const USER: &str = "\"first:8\" (bytes), \"line\", or \"field:X-User\" (of an HTTP head)";
const LISTEN: &str = "a port, or an address and a port such as \"192.0.2.1:80\"";
const ADDRESS: &str = "an address and a port such as \"192.0.2.2:80\" or \"[2001:db8::2]:80\"";

/// Reads all.
pub(super) fn read(file: &Section<'_>, stack: &StackConfig) -> Vec<AppStanza> {
    let mut all: Vec<AppStanza> = Vec::new();
    for section in file.tables("app", "tables: [[app]] with kind") {
        let legal = "echo, source, sink, http, http-client, proxy or epc-…";
        let word = match section.requires("kind", legal) {
            true => section.choice("kind", &WORDS),
            false => None,
        };
        let name = section.text("name", "a text");
        let kind = word.as_ref().and_then(|at| kind(&section, at.value, stack));
        let by_user = section.word("user", USER, extract);
        if word.is_none() {
            // Its keys depend on its kind: they are wrong only with one.
            continue;
        }
        section.end();
        let place = all.len();
        let usual = || {
            let word = WORDS
                .iter()
                .find(|(_, one)| Some(*one) == word.map(|at| at.value));
            format!("{}{place}", word.map_or("app", |(name, _)| name))
        };
        let line = name.as_ref().map_or(section.line, |at| at.line);
        let name = said(name).unwrap_or_else(usual);
        if all.iter().any(|other| other.name == name) {
            let problem = format!("`{name}` names two applications");
            section.wrong(line, "name", problem, "a name of its own");
        }
        if let Some(kind) = kind {
            if let Some(at) = by_user.as_ref().filter(|_| kind.listens().is_none()) {
                let problem = "connections that begin here are where their user is";
                section.wrong(at.line, "user", problem, "an application that listens");
            }
            all.push(AppStanza {
                name,
                kind,
                by_user: said(by_user),
            });
        }
    }
    if all.len() > 256 {
        let notes = file.notes();
        notes.error(1, "app", "there are more than 256 applications", "fewer");
    }
    taken(file, &all);
    all
}

/// Two that listen to one port.
fn taken(file: &Section<'_>, all: &[AppStanza]) {
    for (place, app) in all.iter().enumerate() {
        let Some(on) = app.kind.listens() else {
            continue;
        };
        let same = |other: &&AppStanza| {
            let other = other.kind.listens();
            other.is_some_and(|other| (other.address, other.port) == (on.address, on.port))
        };
        if let Some(other) = all[..place].iter().find(same) {
            let problem = format!(
                "`{}` and `{}` listen to the same port, {}",
                other.name, app.name, on.port
            );
            file.notes()
                .error(1, "app.listen", problem, "a port of its own");
        }
    }
}

impl AppStanza {
    /// Whether it says the same as another one; a node of an EPC has secrets of its own, and is
    /// another one each time.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let user = match (&self.by_user, &other.by_user) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is_same(other),
            _ => false,
        };
        let kind = match (&self.kind, &other.kind) {
            (Kind::Echo(one), Kind::Echo(other)) => one == other,
            (Kind::Source(to, amount), Kind::Source(other, much)) => (to, amount) == (other, much),
            (Kind::Sink(one), Kind::Sink(other)) => one == other,
            (Kind::Http(on, site, limits), Kind::Http(other, other_site, other_limits)) => {
                (on, site, limits) == (other, other_site, other_limits)
            }
            (Kind::HttpClient(one, _), Kind::HttpClient(other, _)) => one == other,
            (Kind::Proxy(on, to), Kind::Proxy(other, other_to)) => (on, to) == (other, other_to),
            _ => false,
        };
        self.name == other.name && user && kind
    }
}

impl Kind {
    /// What it listens to, if it does.
    fn listens(&self) -> Option<Listen> {
        match self {
            Self::Echo(on) | Self::Http(on, ..) | Self::Proxy(on, _) => Some(*on),
            Self::Source(Peer::Listen(on), _) | Self::Sink(Peer::Listen(on)) => Some(*on),
            Self::Source(..) | Self::Sink(_) | Self::HttpClient(..) | Self::Epc(_) => None,
        }
    }
}

fn kind(section: &Section<'_>, word: Word, stack: &StackConfig) -> Option<Kind> {
    match word {
        Word::Echo => Some(Kind::Echo(listen(section)?)),
        Word::Source => {
            let bytes = section.number("bytes", 0..=i64::MAX as u64);
            let seconds = section.seconds("seconds");
            let amount = match (bytes, seconds) {
                (Some(_), Some(at)) => {
                    let problem = "bytes and seconds are both said";
                    section.wrong(at.line, "seconds", problem, "one of them");
                    None
                }
                (Some(bytes), None) => Some(Amount::Bytes(bytes.value)),
                (None, Some(at)) => {
                    Some(Amount::Ns(at.value.as_nanos().min(u64::MAX.into()) as u64))
                }
                (None, None) => {
                    let legal = "a number of bytes, or seconds instead";
                    section.wrong(section.line, "bytes", "it is missing", legal);
                    None
                }
            };
            let peer = peer(section);
            Some(Kind::Source(peer?, amount?))
        }
        Word::Sink => Some(Kind::Sink(peer(section)?)),
        Word::Http => {
            let limits = limits(section, stack);
            let site = site(section);
            Some(Kind::Http(listen(section)?, Arc::new(site), limits))
        }
        Word::HttpClient => {
            let job = client::read(section, stack)?;
            Some(Kind::HttpClient(Arc::new(job), Arc::default()))
        }
        Word::Proxy => {
            let on = listen(section);
            let to = match section.requires("to", ADDRESS) {
                true => section.parsed("to", ADDRESS),
                false => None,
            };
            Some(Kind::Proxy(on?, said(to)?))
        }
        Word::Epc(node) => {
            let settings = Settings::read(section, node)?;
            Some(Kind::Epc(Box::new(settings)))
        }
    }
}

/// Where the user is.
fn extract(text: &str) -> Result<Extract, String> {
    let wrong = || format!("`{text}` does not say where a user is");
    match text.split_once(':') {
        None if text == "line" => Ok(Extract::Line),
        Some(("first", count)) => match count.parse() {
            Ok(count @ 1..=1024) => Ok(Extract::First(count)),
            _ => Err(format!("`{count}` is no number of bytes from 1 to 1024")),
        },
        Some(("field", name)) if !name.is_empty() => Ok(Extract::Field(name.into())),
        _ => Err(wrong()),
    }
}

/// Who begins.
fn peer(section: &Section<'_>) -> Option<Peer> {
    if section.has("connect") {
        let to = said(section.parsed("connect", ADDRESS));
        let connections = said(section.number("connections", 1..=1 << 20)).unwrap_or(1);
        if section.has("listen") {
            let problem = "both listen and connect are said";
            section.wrong(section.line, "connect", problem, "one of them");
        }
        return Some(Peer::Connect(to?, connections, ip_options(section)));
    }
    listen(section).map(Peer::Listen)
}

/// `listen`, `backlog`, `half_open`.
fn listen(section: &Section<'_>) -> Option<Listen> {
    let on = match section.requires("listen", LISTEN) {
        true => section.word("listen", LISTEN, address_or_port),
        false => None,
    };
    let usual = Listen::on(0);
    let backlog = said(section.number("backlog", 1..=1 << 24));
    let half_open = said(section.number("half_open", 0..=1 << 24));
    let ip = ip_options(section);
    let (address, port) = said(on)?;
    Some(Listen {
        address,
        port,
        backlog: backlog.unwrap_or(usual.backlog),
        half_open: half_open.unwrap_or(usual.half_open),
        ip,
        ..usual
    })
}

/// `dscp` and `ttl`, of all connections of an application.
fn ip_options(section: &Section<'_>) -> IpOptions {
    IpOptions {
        dscp: said(section.number("dscp", 0..=MAX_DSCP)),
        ttl: said(section.number("ttl", 1..=u8::MAX)),
    }
}

fn address_or_port(text: &str) -> Result<(Option<IpAddr>, u16), String> {
    if let Ok(port) = text.parse::<u16>() {
        return match port {
            0 => Err("port 0 is none".into()),
            port => Ok((None, port)),
        };
    }
    let address: SocketAddr = text.parse().map_err(|_| format!("`{text}` is none"))?;
    Ok((Some(address.ip()), address.port()))
}

fn limits(section: &Section<'_>, stack: &StackConfig) -> Limits {
    let usual = Limits::default();
    let time = |key, usual: Duration| said(section.seconds(key)).unwrap_or(usual);
    let head_bytes = section.number("head_bytes", 256..=65_536_u32);
    let body_bytes = section.number("body_bytes", 0..=i64::MAX as u64);
    Limits {
        connections: stack.connections,
        head_bytes: said(head_bytes).map_or(usual.head_bytes, |bytes| bytes as usize),
        body_bytes: said(body_bytes).unwrap_or(usual.body_bytes),
        idle: time("idle_timeout", usual.idle),
        head: time("head_timeout", usual.head),
        stall: time("stall_timeout", usual.stall),
    }
}

/// `files` and `bodies`.
fn site(section: &Section<'_>) -> Site {
    let mut site = Site::default();
    let folder = section.text("files", "the path of a folder");
    if let Some(At { value, line }) = folder
        && let Err((path, error)) = site.add_folder(&PathBuf::from(&value))
    {
        let problem = format!("{}: {error}", path.display());
        section.wrong(line, "files", problem, "a folder that can be read");
    }
    let legal = "paths with a length in bytes, such as [\"/1k=1024\"]";
    for At { value, .. } in section.texts("bodies", legal, body) {
        site.add_pattern(&value.0, value.1);
    }
    if site.is_empty() && !section.has("files") && !section.has("bodies") {
        let problem = "it has neither files nor bodies";
        let legal = "files = \"FOLDER\" or bodies = [\"/1k=1024\"]";
        section.wrong(section.line, "files", problem, legal);
    }
    site
}

fn body(text: &str) -> Result<(String, u64), String> {
    let wrong = || format!("`{text}` is no path with a length");
    let (path, len) = text.rsplit_once('=').ok_or_else(wrong)?;
    let len = len.parse().map_err(|_| wrong())?;
    match path.starts_with('/') {
        true => Ok((path.into(), len)),
        false => Err(wrong()),
    }
}
