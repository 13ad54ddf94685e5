//! `match:NAME`: looks for patterns in what flows carry: the complex case.
//!
//! All patterns are one automaton (Aho and Corasick, CACM 1975) as a table: a step for each byte,
//! whatever number of patterns there is. The state of each direction is kept from segment to
//! segment, so that a pattern may lie in several; a segment that is not the next one is looked at
//! by itself. After `bytes` bytes of a direction, or a match, the service is done with it.

use std::sync::Arc;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::{Anchored, MatchKind};
use linerate_tables::TableError;

use super::given::FlowName;
use super::{Given, Kind, Make, One, Outcome, Service};

/// Flows whose state is remembered; those that begin later take the places of others, which are
/// then looked at segment by segment.
const FLOWS: usize = 16_384;
/// The most bytes of all patterns: the table takes up to 1 KiB for each.
const MOST_BYTES: usize = 16_384;
/// What is written before a pattern of bytes in hexadecimal digits.
const HEX: &str = "hex:";

const LEGAL: &str = "a list of texts such as [\"/etc/passwd\", \"hex:4d5a9000\"]";

pub(super) const KIND: Kind = Kind {
    name: "match",
    is_named: true,
    directions: [true; 2],
    reads_payload: true,
    read: |section| {
        let mut config = Config {
            patterns: Vec::new(),
            ignore_case: false,
            bytes: 65_536,
            action: Action::Log,
            automaton: None,
        };
        let Some(section) = section else {
            return Arc::new(config);
        };
        let patterns = section.texts("patterns", LEGAL, pattern);
        config.patterns = patterns.into_iter().map(|at| at.value).collect();
        if section.list("patterns", LEGAL).is_empty() {
            section.wrong(section.line, "patterns", "it looks for nothing", LEGAL);
        }
        let bytes: usize = config.patterns.iter().map(Vec::len).sum();
        if bytes > MOST_BYTES {
            let problem = format!("the patterns have {bytes} bytes");
            let legal = format!("at most {MOST_BYTES} in one [[services.match]]");
            section.wrong(section.line, "patterns", problem, legal);
            config.patterns.clear();
        }
        config.ignore_case = section.switch("ignore_case").is_some_and(|at| at.value);
        if let Some(at) = section.number::<u32>("bytes", 1..=u32::MAX) {
            config.bytes = at.value;
        }
        let actions = [("log", Action::Log), ("drop", Action::Drop)];
        if let Some(at) = section.choice("action", &actions) {
            config.action = at.value;
        }
        let built = DFA::builder()
            .match_kind(MatchKind::Standard)
            .ascii_case_insensitive(config.ignore_case)
            .prefilter(false)
            .build(&config.patterns);
        match built {
            Ok(automaton) => config.automaton = Some(Arc::new(automaton)),
            Err(error) => section.wrong(section.line, "patterns", error.to_string(), LEGAL),
        }
        Arc::new(config)
    },
};

/// The bytes of a pattern.
fn pattern(text: &str) -> Result<Vec<u8>, String> {
    let bytes = match text.strip_prefix(HEX) {
        None => text.as_bytes().to_vec(),
        Some(digits) => {
            let pairs = digits.as_bytes().chunks(2);
            let byte = |pair: &[u8]| {
                let text = std::str::from_utf8(pair)
                    .ok()
                    .filter(|text| text.len() == 2);
                let is_hex = pair.iter().all(u8::is_ascii_hexdigit);
                text.filter(|_| is_hex)
                    .and_then(|text| u8::from_str_radix(text, 16).ok())
            };
            let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
            bytes.ok_or_else(|| format!("`{text}` is no row of bytes, two digits each"))?
        }
    };
    match bytes.is_empty() {
        true => Err("an empty pattern is in everything".into()),
        false => Ok(bytes),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Log,
    Drop,
}

#[derive(Clone, Debug)]
struct Config {
    patterns: Vec<Vec<u8>>,
    ignore_case: bool,
    bytes: u32,
    action: Action,
    /// That of the patterns: all workers have one.
    automaton: Option<Arc<DFA>>,
}

impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        let own = |one: &Self| (one.ignore_case, one.bytes, one.action);
        own(self) == own(other) && self.patterns == other.patterns
    }
}

impl Make for Config {
    fn make(&self) -> Result<Box<dyn Service>, TableError> {
        Ok(Box::new(Matcher {
            config: self.clone(),
            flows: vec![None; FLOWS],
        }))
    }

    fn text(&self) -> String {
        let action = match self.action {
            Action::Log => "log",
            Action::Drop => "drop",
        };
        let (patterns, bytes) = (self.patterns.len(), self.bytes);
        format!("patterns {patterns}, in {bytes} bytes each way, {action}")
    }

    fn event(&self, what: u32) -> String {
        match self.patterns.get(what as usize) {
            Some(pattern) => format!("pattern \"{}\"", pattern.escape_ascii()),
            None => format!("pattern {what}"),
        }
    }
}

/// The service.
pub struct Matcher {
    config: Config,
    /// By place of the flow.
    flows: Vec<Option<(FlowName, [Side; 2])>>,
}

/// How far a direction was looked at.
#[derive(Clone, Copy, Debug)]
struct Side {
    state: StateID,
    /// The number of the next byte; `None` before the first, and where there are no numbers.
    next: Option<u32>,
    /// Bytes that are still to be looked at.
    left: u32,
    /// The pattern that was found.
    found: Option<u32>,
}

impl Matcher {
    fn serve(&mut self, automaton: &DFA, one: &mut One<'_, '_>) -> Outcome {
        let (flow, direction) = (one.flow(), one.direction());
        let Some(carried) = one.carried() else {
            return Outcome::Done;
        };
        let Ok(start) = automaton.start_state(Anchored::No) else {
            return Outcome::Done;
        };
        let fresh = Side {
            state: start,
            next: None,
            left: self.config.bytes,
            found: None,
        };
        let place = &mut self.flows[flow.0.index() % FLOWS];
        let sides = match place {
            Some((known, sides)) if *known == flow => sides,
            _ => &mut place.insert((flow, [fresh; 2])).1,
        };
        let is_known = sides.iter().any(|side| side.found.is_some());
        if is_known && self.config.action == Action::Drop {
            return Outcome::Deny; // earlier in this burst
        }
        let side = &mut sides[direction as usize];
        let len = (carried.bytes.len() as u32).min(side.left);
        let follows = side.next.is_some() && side.next == carried.seq;
        let mut state = if follows { side.state } else { start };
        let mut found = None;
        for &byte in &carried.bytes[..len as usize] {
            state = automaton.next_state(Anchored::No, state, byte);
            if automaton.is_special(state) && automaton.is_match(state) {
                found = Some(automaton.match_pattern(state, 0).as_u32());
                break;
            }
        }
        if !carried.bytes.is_empty() {
            side.next = carried.seq.map(|seq| seq.wrapping_add(len));
            side.state = state;
            side.left -= len;
        }
        let Some(pattern) = found else {
            return match side.left {
                0 => Outcome::Done,
                _ => Outcome::Keep,
            };
        };
        (side.left, side.found) = (0, Some(pattern));
        one.note(|| format!("carries {}", self.config.event(pattern)));
        one.log(pattern, None);
        match self.config.action {
            Action::Drop => Outcome::Deny,
            Action::Log => Outcome::Done,
        }
    }
}

impl Service for Matcher {
    fn run(&mut self, given: &mut Given<'_, '_>) {
        // Taken out for as long as its state is written.
        if let Some(automaton) = self.config.automaton.take() {
            given.each(|one| self.serve(&automaton, one));
            self.config.automaton = Some(automaton);
        }
    }
}
