//! How a command line may go on: from the command table, and the names that the session knows.

use std::path::Path;

use super::owner::Control;
use super::protocol::{Candidate, Completion, Problem};
use super::table::{ALIASES, Arg, COMMANDS, Named, Need, PAGES, Row, Source, THEMES, first_word};
use crate::session::PORT_KEYS;
use crate::stream::{KEYS, KeyHelp};

/// Candidates at most.
const MOST: usize = 200;

/// Keys of ports and streams: key, value and help.
pub(super) fn all_keys() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let alone = |key: &&KeyHelp| !PORT_KEYS.iter().any(|port| port.0 == key.key);
    let of_streams = KEYS.iter().filter(alone);
    let of_streams = of_streams.map(|key| (key.key, key.value, key.help));
    PORT_KEYS.iter().copied().chain(of_streams)
}

/// Names of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// Number and name.
    pub(super) ports: Vec<(u16, String)>,
    pub(super) streams: Vec<(u16, String)>,
    /// Whether names of files may be offered.
    pub(super) files: bool,
}

impl Names {
    pub(super) fn of(control: &mut Control) -> Result<Self, Problem> {
        Ok(Self {
            ports: control.ports()?,
            streams: control.streams()?,
            files: false,
        })
    }
}

/// How `line` may go on at byte `cursor`.
pub(super) fn complete(line: &str, cursor: usize, names: &Names) -> Completion {
    let mut cursor = cursor.min(line.len());
    while !line.is_char_boundary(cursor) {
        cursor -= 1;
    }
    let before = &line[..cursor];
    let begins = before.rfind(char::is_whitespace).map_or(0, |at| {
        at + before[at..].chars().next().map_or(1, char::len_utf8)
    });
    let (said, word) = (before[..begins].trim(), &before[begins..]);
    let (command, left) = first_word(said);
    if command.is_empty() {
        return found(begins, word, first_words());
    }
    let meaning = ALIASES.iter().find(|(alias, _)| *alias == command);
    let command = meaning.map_or(command, |(_, meaning)| meaning);
    let left = left.trim();
    let (row, left) = match COMMANDS.iter().find(|row| row.name == command) {
        Some(row) => (row, left),
        None => {
            let (second, left) = first_word(left);
            let of_family =
                |row: &&Row| row.name.split_once(' ').map(|(name, _)| name) == Some(command);
            if second.is_empty() {
                let seconds = COMMANDS.iter().filter(of_family).map(|row| Candidate {
                    text: row.name[command.len() + 1..].into(),
                    help: row.help.into(),
                });
                return found(begins, word, seconds.collect());
            }
            let full = format!("{command} {second}");
            match COMMANDS.iter().find(|row| row.name == full) {
                Some(row) => (row, left.trim()),
                None => return Completion::default(),
            }
        }
    };
    let given: Vec<&str> = left.split_whitespace().collect();
    let Some(arg) = argument(row, given.len()) else {
        return Completion::default();
    };
    of_source(arg, &given, begins, word, names)
}

/// The argument at a position; the last one takes what is left.
fn argument(row: &'static Row, position: usize) -> Option<&'static Arg> {
    let last = row.args.last()?;
    match row.args.get(position) {
        Some(arg) => Some(arg),
        None => matches!(last.need, Need::Rest | Need::OptionalRest).then_some(last),
    }
}

fn of_source(arg: &Arg, given: &[&str], begins: usize, word: &str, names: &Names) -> Completion {
    let of_list = |numbered: &[(u16, String)]| {
        let at = word.rfind([',', '-']).map_or(0, |at| at + 1);
        let listed = numbered.iter().map(|(number, name)| Candidate {
            text: number.to_string(),
            help: name.clone(),
        });
        let by_name = numbered.iter().filter(|(_, name)| !name.is_empty());
        let named = by_name.map(|(number, name)| Candidate {
            text: name.clone(),
            help: format!("{}", number),
        });
        let mut all: Vec<Candidate> = Vec::new();
        if at == 0 {
            all.push(candidate("all", "each of them"));
        }
        all.extend(listed.chain(named.filter(|_| word.len() > at)));
        found(begins + at, &word[at..], all)
    };
    let keys = || {
        KEYS.iter().map(|key| Candidate {
            text: key.key.into(),
            help: format!("{}: {}", key.value, key.help),
        })
    };
    match arg.from {
        Source::Ports => of_list(&names.ports),
        Source::Streams => of_list(&names.streams),
        Source::Keys => {
            let all =
                all_keys().map(|(key, value, help)| candidate(key, &format!("{value}: {help}")));
            found(begins, word, all.collect())
        }
        Source::StreamKeys => found(begins, word, keys().collect()),
        Source::Value => {
            let key = given.last().copied().unwrap_or_default();
            found(begins, word, values(key))
        }
        Source::Line => match word.split_once('=') {
            Some((key, value)) => found(begins + key.len() + 1, value, values(key)),
            None => {
                let with_sign = keys().map(|key| Candidate {
                    text: format!("{}=", key.text),
                    ..key
                });
                found(begins, word, with_sign.collect())
            }
        },
        Source::Pages => found(begins, word, named(PAGES)),
        Source::Themes => found(begins, word, named(THEMES)),
        Source::Commands => found(begins, word, first_words()),
        Source::Files if names.files => files(begins, word),
        Source::Files | Source::Free => Completion::default(),
    }
}

/// Values of a key that can be guessed.
fn values(key: &str) -> Vec<Candidate> {
    let listed: &[&str] = match key {
        "rate" => &["max", "100%", "99%", "50%", "10%", "1Mpps", "100kpps"],
        "size" => &[
            "64",
            "128",
            "256",
            "512",
            "1024",
            "1280",
            "1518",
            "imix",
            "random:64-1518",
        ],
        "kind" => &[
            "udp", "tcp", "icmp", "udp6", "tcp6", "icmp6", "ipv4", "ipv6", "arp", "eth",
        ],
        "payload" => &["zero", "ones", "abc", "inc", "random"],
        "speed" => &["1G", "10G", "25G", "40G", "100G"],
        _ => &[],
    };
    let of_key = KEYS.iter().find(|known| known.key == key);
    let choices = of_key.map_or("", |known| known.value);
    let choices = choices.split('|').filter(|_| choices.contains('|'));
    let varies = of_key.is_some_and(|known| known.value.ends_with("..."));
    let all = listed
        .iter()
        .copied()
        .chain(choices)
        .chain(varies.then_some("random"));
    all.map(|text| candidate(text, "")).collect()
}

fn candidate(text: &str, help: &str) -> Candidate {
    Candidate {
        text: text.into(),
        help: help.into(),
    }
}

fn named(list: &[Named]) -> Vec<Candidate> {
    list.iter()
        .map(|named| candidate(named.name, named.help))
        .collect()
}

/// The first words of all commands, each once.
fn first_words() -> Vec<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    for row in COMMANDS {
        let (word, family) = match row.name.split_once(' ') {
            Some((word, _)) => (word, true),
            None => (row.name, false),
        };
        if all.last().is_none_or(|last| last.text != word) {
            let help = if family {
                format!("{word} ...")
            } else {
                row.help.into()
            };
            all.push(candidate(word, &help));
        }
    }
    all
}

/// Those that begin with what is there of the word.
fn found(begins: usize, word: &str, all: Vec<Candidate>) -> Completion {
    let fits = |candidate: &Candidate| candidate.text.starts_with(word);
    Completion {
        begins,
        candidates: all.into_iter().filter(fits).take(MOST).collect(),
    }
}

/// Files of this machine; directories end in `/`.
fn files(begins: usize, word: &str) -> Completion {
    let at = word.rfind('/').map_or(0, |at| at + 1);
    let (folder, name) = word.split_at(at);
    let folder = Path::new(if folder.is_empty() { "." } else { folder });
    let mut all: Vec<Candidate> = Vec::new();
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let Ok(mut text) = entry.file_name().into_string() else {
            continue;
        };
        if !text.starts_with(name) || (text.starts_with('.') && !name.starts_with('.')) {
            continue;
        }
        if entry.path().is_dir() {
            text.push('/');
        }
        all.push(candidate(&text, ""));
    }
    all.sort();
    found(begins + at, name, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let named = |number, name: &str| (number, name.to_owned());
        Names {
            ports: vec![named(0, "wan"), named(1, "lan"), named(2, "")],
            streams: vec![named(0, "voice"), named(1, "")],
            files: true,
        }
    }

    fn texts(line: &str) -> (usize, Vec<String>) {
        let completion = complete(line, line.len(), &names());
        let texts = completion.candidates.into_iter().map(|found| found.text);
        (completion.begins, texts.collect())
    }

    #[test]
    fn commands_pages_ports_and_keys_are_offered_where_they_belong() {
        assert_eq!(
            texts("st"),
            (0, vec!["start".into(), "stop".into(), "stream".into()])
        );
        assert_eq!(texts("page la"), (5, vec!["latency".into()]));
        assert_eq!(texts("stream re"), (7, vec!["remove".into()]));
        assert_eq!(
            texts("start "),
            (6, ["all", "0", "1", "2"].map(String::from).to_vec())
        );
        assert_eq!(texts("start w"), (6, vec!["wan".into()]));
        assert_eq!(texts("start 0,l"), (8, vec!["lan".into()]));
        assert_eq!(texts("set 0 rat"), (6, vec!["rate".into()]));
        assert_eq!(texts("set 0 spee"), (6, vec!["speed".into()]));
        assert!(texts("set 0 rate ").1.contains(&"99%".into()));
        assert_eq!(texts("stream set voi"), (11, vec!["voice".into()]));
        assert_eq!(texts("stream add ra"), (11, vec!["rate=".into()]));
        assert_eq!(texts("stream add rate=m"), (16, vec!["max".into()]));
        assert_eq!(texts("help pa"), (5, vec!["page".into()]));
        assert_eq!(texts("theme mo"), (6, vec!["mono".into()]));
        assert!(texts("nonsense ").1.is_empty());
        assert!(texts("quit ").1.is_empty());
        assert!(texts("page main more").1.is_empty());
    }

    #[test]
    fn the_cursor_may_be_anywhere_even_inside_a_character() {
        let line = "set 0 raté 99%";
        for cursor in 0..line.len() + 3 {
            complete(line, cursor, &names());
        }
        assert_eq!(complete("sta 0", 3, &names()).candidates[0].text, "start");
    }

    #[test]
    fn files_are_offered_by_folder() {
        let folder = linerate_core::env::PrivateFolder::new("complete").unwrap();
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        std::fs::write(folder.join("run.toml"), "").unwrap();
        let line = format!("load {}/", folder.path().display());
        assert_eq!(
            texts(&line),
            (line.len(), vec!["run.toml".into(), "sub/".into()])
        );
        let mut asks = names();
        asks.files = false;
        assert!(complete(&line, line.len(), &asks).candidates.is_empty());
    }
}
