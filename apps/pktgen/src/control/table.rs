//! The command table: one row for each command, from which parsing, completion, help and the guide
//! come.
//!
//! A row names its arguments, and where candidates for each come from; the work is a function of
//! [`commands`](super::commands). [`ALIASES`] are other words for the same; [`ELSEWHERE`] tells
//! Pktgen's users what replaces its other commands.

use std::fmt::Write;

use super::commands as run;
use super::connection::Asker;
use super::names::unknown;
use super::owner::Control;
use super::protocol::{Problem, Reply};

/// The result of a command.
pub(super) type Done = Result<Reply, Problem>;

/// One command.
#[derive(Debug)]
pub(super) struct Row {
    /// One word, or two: `stream add`.
    pub(super) name: &'static str,
    pub(super) args: &'static [Arg],
    /// One sentence, without its full stop.
    pub(super) help: &'static str,
    pub(super) example: &'static str,
    pub(super) does: Does,
}

/// Which thread runs the command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Does {
    /// The session's thread, for any client.
    Look(fn(&mut Control, &Given) -> Done),
    /// The session's thread, for clients that may change things.
    Change(fn(&mut Control, &Given) -> Done),
    /// The thread of the client's connection, which may wait. For clients that may change things.
    Wait(fn(&mut Asker, &Given) -> Done),
}

/// One argument.
#[derive(Debug)]
pub(super) struct Arg {
    pub(super) name: &'static str,
    pub(super) from: Source,
    pub(super) need: Need,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    One,
    Optional,
    /// All that is left of the line.
    Rest,
    OptionalRest,
}

/// Where candidates for an argument come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Ports,
    Streams,
    /// Keys of ports and streams.
    Keys,
    /// Keys of streams.
    StreamKeys,
    /// The value of the key before.
    Value,
    /// `key=value` words.
    Line,
    Pages,
    Themes,
    Commands,
    Files,
    /// There are no candidates.
    Free,
}

/// The arguments that a command was given, by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given(pub(super) Vec<String>);

impl Given {
    /// An argument that the table requires.
    pub(super) fn get(&self, position: usize) -> &str {
        self.optional(position).unwrap_or_default()
    }

    pub(super) fn optional(&self, position: usize) -> Option<&str> {
        self.0.get(position).map(String::as_str)
    }
}

impl Arg {
    /// Whether its help has a list of keys.
    pub(super) fn takes_keys(&self) -> bool {
        matches!(self.from, Source::Keys | Source::StreamKeys | Source::Line)
    }
}

const fn one(name: &'static str, from: Source) -> Arg {
    Arg {
        name,
        from,
        need: Need::One,
    }
}

const fn optional(name: &'static str, from: Source) -> Arg {
    Arg {
        name,
        from,
        need: Need::Optional,
    }
}

const fn rest(name: &'static str, from: Source) -> Arg {
    Arg {
        name,
        from,
        need: Need::Rest,
    }
}

const fn optional_rest(name: &'static str, from: Source) -> Arg {
    Arg {
        name,
        from,
        need: Need::OptionalRest,
    }
}

/// All commands, as help shows them.
pub(super) const COMMANDS: &[Row] = &[
    Row {
        name: "set",
        args: &[
            one("PORTS", Source::Ports),
            one("KEY", Source::Keys),
            rest("VALUE", Source::Value),
        ],
        help: "change a port, or all streams that it sends, at once and while they are sent",
        example: "set 0 rate 99%",
        does: Does::Change(run::set),
    },
    Row {
        name: "start",
        args: &[
            one("PORTS", Source::Ports),
            optional("SECONDS", Source::Free),
        ],
        help: "send on these ports, for so long or until stopped",
        example: "start all 10",
        does: Does::Change(run::start),
    },
    Row {
        name: "stop",
        args: &[optional("PORTS", Source::Ports)],
        help: "send no more, on these ports or on all",
        example: "stop 0",
        does: Does::Change(run::stop),
    },
    Row {
        name: "clear",
        args: &[],
        help: "begin all counts at zero",
        example: "clear",
        does: Does::Change(run::clear),
    },
    Row {
        name: "arp",
        args: &[
            one("PORTS", Source::Ports),
            optional("ADDRESS", Source::Free),
        ],
        help: "ask who has an IPv4 or IPv6 address; without one, tell all neighbours of the port's \
            own",
        example: "arp 0 192.0.2.2",
        does: Does::Wait(run::arp),
    },
    Row {
        name: "ping",
        args: &[
            one("PORT", Source::Ports),
            one("ADDRESS", Source::Free),
            optional("COUNT", Source::Free),
        ],
        help: "send echo requests, one or COUNT, and wait up to a second for each answer",
        example: "ping 0 192.0.2.2 3",
        does: Does::Wait(run::ping),
    },
    Row {
        name: "wait",
        args: &[optional("SECONDS", Source::Free)],
        help: "wait until all that was asked for has been sent and none of it is under way, or \
            after so long",
        example: "wait 60",
        does: Does::Wait(run::wait),
    },
    Row {
        name: "sleep",
        args: &[one("SECONDS", Source::Free)],
        help: "wait for so many seconds",
        example: "sleep 2.5",
        does: Does::Wait(run::sleep),
    },
    Row {
        name: "delay",
        args: &[one("MILLISECONDS", Source::Free)],
        help: "wait for so many milliseconds",
        example: "delay 500",
        does: Does::Wait(run::delay),
    },
    Row {
        name: "stream add",
        args: &[optional_rest("KEY=VALUE...", Source::Line)],
        help: "add a stream",
        example: "stream add port=0 name=voice size=128 rate=50kpps",
        does: Does::Change(run::stream_add),
    },
    Row {
        name: "stream remove",
        args: &[one("STREAMS", Source::Streams)],
        help: "remove streams, by number or name",
        example: "stream remove 2,4-6",
        does: Does::Change(run::stream_remove),
    },
    Row {
        name: "stream enable",
        args: &[one("STREAMS", Source::Streams)],
        help: "send these streams again",
        example: "stream enable voice",
        does: Does::Change(run::stream_enable),
    },
    Row {
        name: "stream disable",
        args: &[one("STREAMS", Source::Streams)],
        help: "leave these streams out",
        example: "stream disable all",
        does: Does::Change(run::stream_disable),
    },
    Row {
        name: "stream set",
        args: &[
            one("STREAMS", Source::Streams),
            one("KEY", Source::StreamKeys),
            rest("VALUE", Source::Value),
        ],
        help: "change streams, at once and while they are sent",
        example: "stream set voice rate 60kpps",
        does: Does::Change(run::stream_set),
    },
    Row {
        name: "stream list",
        args: &[optional("PORTS", Source::Ports)],
        help: "show streams in their one-line form",
        example: "stream list 0",
        does: Does::Look(run::stream_list),
    },
    Row {
        name: "range",
        args: &[
            one("PORTS", Source::Ports),
            one("KEY", Source::StreamKeys),
            rest("RANGE", Source::Value),
        ],
        help: "let a field run through a range",
        example: "range 0 src 198.18.0.1-198.18.0.200",
        does: Does::Change(run::range),
    },
    Row {
        name: "random",
        args: &[
            one("PORTS", Source::Ports),
            one("KEY", Source::StreamKeys),
            optional_rest("RANGE", Source::Value),
        ],
        help: "have a field run through a range in an order by the seed, each value once before \
            any comes again",
        example: "random 0 sport 1024-65535",
        does: Does::Change(run::random),
    },
    Row {
        name: "seq",
        args: &[
            one("NUMBER", Source::Free),
            one("PORTS", Source::Ports),
            optional_rest("KEY=VALUE...", Source::Line),
        ],
        help: "give the stream `seqNUMBER` of these ports, one of several templates",
        example: "seq 0 all dst=198.19.0.9 size=128",
        does: Does::Change(run::seq),
    },
    Row {
        name: "pcap load",
        args: &[
            one("PORTS", Source::Ports),
            one("FILE", Source::Files),
            optional_rest("KEY=VALUE...", Source::Line),
        ],
        help: "replay a capture on these ports instead of their streams",
        example: "pcap load 0 calls.pcap speed=2",
        does: Does::Change(run::pcap_load),
    },
    Row {
        name: "pcap start",
        args: &[
            one("PORTS", Source::Ports),
            optional("SECONDS", Source::Free),
        ],
        help: "send the captures that these ports have loaded",
        example: "pcap start 0",
        does: Does::Change(run::pcap_start),
    },
    Row {
        name: "map",
        args: &[],
        help: "show which lcore polls what",
        example: "map",
        does: Does::Look(run::map),
    },
    Row {
        name: "explain",
        args: &[one("PORTS", Source::Ports)],
        help: "say what a port does and why, and what holds it back",
        example: "explain 0",
        does: Does::Look(run::explain),
    },
    Row {
        name: "dump",
        args: &[one("PORT", Source::Ports), optional("N", Source::Free)],
        help: "show the first frames of each stream of a port, without sending them",
        example: "dump 0 3",
        does: Does::Look(run::dump),
    },
    Row {
        name: "log",
        args: &[optional("LINES", Source::Free)],
        help: "show the newest lines of the log",
        example: "log 20",
        does: Does::Look(run::log),
    },
    Row {
        name: "page",
        args: &[one("NAME", Source::Pages)],
        help: "show a page of the screen",
        example: "page latency",
        does: Does::Look(run::page),
    },
    Row {
        name: "theme",
        args: &[one("NAME", Source::Themes)],
        help: "colour the screen",
        example: "theme mono",
        does: Does::Look(run::theme),
    },
    Row {
        name: "save",
        args: &[rest("FILE", Source::Files)],
        help: "write ports and streams: a run file where FILE ends in .toml, else commands",
        example: "save mine.toml",
        does: Does::Change(run::save),
    },
    Row {
        name: "load",
        args: &[rest("FILE", Source::Files)],
        help: "take streams and commands from a run file or a file of commands",
        example: "load mine.toml",
        does: Does::Wait(run::load),
    },
    Row {
        name: "help",
        args: &[optional_rest("COMMAND", Source::Commands)],
        help: "show the commands, or one of them",
        example: "help set",
        does: Does::Look(run::help),
    },
    Row {
        name: "quit",
        args: &[],
        help: "end the session",
        example: "quit",
        does: Does::Change(run::quit),
    },
];

/// Aliases, as Pktgen's users type them.
pub(super) const ALIASES: &[(&str, &str)] = &[
    ("str", "start all"),
    ("stp", "stop all"),
    ("clr", "clear"),
    ("clear.stats", "clear"),
    ("sequence", "seq"),
    ("rnd", "random"),
    ("cls", "page main"),
    ("exit", "quit"),
    ("streams", "stream list"),
    ("script", "load"),
];

/// Commands of Pktgen without a counterpart, and what replaces them.
pub(super) const ELSEWHERE: &[(&str, &str)] = &[
    (
        "enable",
        "latency and order are always measured; ARP and ping are answered where a port has an \
         address; a field is there when it is set: `set 0 vlan 5`",
    ),
    (
        "disable",
        "`stream disable STREAMS` leaves streams out; `set 0 vlan none` takes a field away",
    ),
    (
        "port",
        "streams of all ports are on one page: `page streams`",
    ),
    (
        "lua",
        "send commands over the JSON interface: `linerate pktgen --connect`",
    ),
    (
        "reset",
        "`load FILE` sets everything anew; `stream remove all` leaves nothing",
    ),
    (
        "rst",
        "`load FILE` sets everything anew; `stream remove all` leaves nothing",
    ),
    (
        "restart",
        "end the session and start it again: ports are opened with it",
    ),
    ("geometry", "the screen takes the terminal's size"),
    ("geom", "the screen takes the terminal's size"),
    (
        "debug",
        "`dump PORT` shows frames, `map` lcores, `explain` what holds a port back",
    ),
    ("prime", "`set 0 count 1` and `start 0`"),
];

/// A word that users may give, with what it is.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    /// Other names that are taken.
    pub(crate) also: &'static [&'static str],
    pub(crate) help: &'static str,
}

const fn named(name: &'static str, also: &'static [&'static str], help: &'static str) -> Named {
    Named { name, also, help }
}

/// Pages of the screen.
pub(crate) const PAGES: &[Named] = &[
    named(
        "main",
        &["0"],
        "ports: rates, totals, loss, latency, template",
    ),
    named(
        "streams",
        &[],
        "each stream: asked, sent, received, lost, latency",
    ),
    named("range", &[], "fields that vary, and how"),
    named("seq", &["sequence"], "templates sent in turn"),
    named("random", &["rnd"], "fields that are random, and the seed"),
    named("pcap", &[], "captures that are replayed"),
    named("latency", &["lat"], "percentiles and a live histogram"),
    named(
        "queues",
        &["qstats"],
        "each queue: packets, refused, no slot",
    ),
    named("cpu", &["sys"], "lcores: work, busy share, gaps"),
    named(
        "path",
        &["stats"],
        "drops by reason, and where frames were lost",
    ),
    named(
        "xstats",
        &["facts"],
        "facts that drivers report of their ports",
    ),
    named("log", &[], "what happened"),
    named("help", &[], "commands and keys"),
];

/// Colours of the screen.
pub(crate) const THEMES: &[Named] = &[
    named("dark", &["default", "on"], "for a dark terminal"),
    named("light", &[], "for a light terminal"),
    named(
        "safe",
        &["colour-blind", "color-blind"],
        "blue and orange, no red against green",
    ),
    named("mono", &["none", "off"], "no colours"),
];

/// The name in `list` that `word` means.
pub(super) fn named_in(kind: &str, list: &[Named], word: &str) -> Result<&'static str, Problem> {
    let matches = |named: &&Named| named.name == word || named.also.contains(&word);
    match list.iter().find(matches) {
        Some(named) => Ok(named.name),
        None => Err(unknown(kind, word, list.iter().map(|named| named.name))),
    }
}

impl Row {
    /// `set PORTS KEY VALUE`
    pub(super) fn usage(&self) -> String {
        let mut text = self.name.to_owned();
        for arg in self.args {
            let _ = match arg.need {
                Need::One | Need::Rest => write!(text, " {}", arg.name),
                Need::Optional | Need::OptionalRest => write!(text, " [{}]", arg.name),
            };
        }
        text
    }

    /// Cuts what follows the command's name into its arguments.
    fn take(&self, mut text: &str) -> Result<Given, Problem> {
        let mut given = Vec::new();
        for arg in self.args {
            text = text.trim();
            if text.is_empty() {
                if matches!(arg.need, Need::One | Need::Rest) {
                    let problem = format!("`{}` without {}", self.name, arg.name);
                    let fix = format!("write {}, such as `{}`", self.usage(), self.example);
                    return Err(Problem::new(problem, fix));
                }
                break;
            }
            let (word, left) = match arg.need {
                Need::One | Need::Optional => first_word(text),
                Need::Rest | Need::OptionalRest => (unquoted(text), ""),
            };
            given.push(word.to_owned());
            text = left;
        }
        match text.trim() {
            "" => Ok(Given(given)),
            more => Err(Problem::new(
                format!("`{}` does not take `{more}`", self.name),
                format!("write {}, such as `{}`", self.usage(), self.example),
            )),
        }
    }
}

/// The first word of a text without blanks before it, without quotes, and what follows.
pub(super) fn first_word(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        let inside = text.strip_prefix(quote);
        if let Some((word, left)) = inside.and_then(|inside| inside.split_once(quote)) {
            return (word, left);
        }
    }
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

/// The text inside quotes, where they are around all of it.
fn unquoted(text: &str) -> &str {
    let inside = |quote: char| {
        let inside = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inside.contains(quote)).then_some(inside)
    };
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

/// A line without its comment and the blanks around it; empty where it has no command. `#` begins a
/// comment at the beginning of a word.
pub(super) fn without_comment(line: &str) -> &str {
    let begins = |&(at, _): &(usize, &str)| at == 0 || line[..at].ends_with(char::is_whitespace);
    let end = line.match_indices('#').find(begins);
    line[..end.map_or(line.len(), |(at, _)| at)].trim()
}

/// The line with an alias at its beginning written out.
pub(super) fn expanded(line: &str) -> String {
    let line = without_comment(line);
    let (word, left) = first_word(line);
    match ALIASES.iter().find(|(alias, _)| *alias == word) {
        // `clear.stats all`: `clear` always clears all.
        Some((_, "clear")) => "clear".into(),
        Some((_, meaning)) => format!("{meaning} {left}").trim_end().into(),
        None => line.into(),
    }
}

/// The command of a line, aliases [`expanded`], and its arguments.
pub(super) fn parse(line: &str) -> Result<(&'static Row, Given), Problem> {
    let (word, left) = first_word(line);
    let of_word = |row: &&Row| row.name.split(' ').next() == Some(word);
    if let Some(row) = COMMANDS.iter().find(|row| row.name == word) {
        return Ok((row, row.take(left)?));
    }
    let second = first_word(left.trim()).0;
    let mut family = COMMANDS.iter().filter(of_word).peekable();
    if family.peek().is_some() {
        let seconds = || {
            COMMANDS
                .iter()
                .filter(of_word)
                .filter_map(|row| row.name.split(' ').nth(1))
        };
        return match family.find(|row| row.name.split(' ').nth(1) == Some(second)) {
            Some(row) => Ok((row, row.take(&left.trim()[second.len()..])?)),
            None => {
                let mut problem = unknown(&format!("`{word}` command"), second, seconds());
                if second.is_empty() {
                    problem.problem = format!("`{word}` alone says too little");
                }
                problem.nearest = problem
                    .nearest
                    .iter()
                    .map(|near| format!("{word} {near}"))
                    .collect();
                Err(problem)
            }
        };
    }
    if let Some((_, fix)) = ELSEWHERE.iter().find(|(name, _)| *name == word) {
        return Err(Problem::new(format!("there is no command `{word}`"), *fix));
    }
    let names = COMMANDS.iter().filter_map(|row| row.name.split(' ').next());
    Err(unknown(
        "command",
        word,
        names.chain(ALIASES.iter().map(|(alias, _)| *alias)),
    ))
}

/// The rows of a name: one, or all that begin with that word; every row for an empty name.
pub(super) fn rows(name: &str) -> Result<Vec<&'static Row>, Problem> {
    let name = expanded(name);
    let hits = |row: &&Row| {
        name.is_empty() || row.name == name || row.name.split(' ').next() == Some(&name)
    };
    let rows: Vec<_> = COMMANDS.iter().filter(hits).collect();
    match rows.is_empty() {
        true => Err(unknown(
            "command",
            &name,
            COMMANDS
                .iter()
                .flat_map(|row| [row.name, first_word(row.name).0]),
        )),
        false => Ok(rows),
    }
}

#[cfg(test)]
mod tests;
