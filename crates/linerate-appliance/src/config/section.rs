//! Reads tables of a TOML file key by key, and collects all errors instead of stopping at the
//! first.
//!
//! serde stops at its first error; an operator wants to see every line that has to change. So code
//! reads each possible key from a [`Section`], which records errors, and at its
//! [`end`](Section::end) reports unknown keys.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::nearest::{nearest, offer};

/// An error of one line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigError {
    /// Counted from 1.
    pub line: usize,
    /// `interface.vlan`; empty if the error is of the whole line.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub legal: String,
}

impl fmt::Display for ConfigError {
    /// The text behind the file's name: `12: interface.vlan: 5000 is too large; 1 to 4094`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.line)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.problem)?;
        match self.legal.is_empty() {
            true => Ok(()),
            false => write!(f, "; {}", self.legal),
        }
    }
}

/// A value and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its line, counted from 1.
    pub line: usize,
}

/// All errors and warnings of a text.
pub struct Notes {
    /// Where each line but the first begins.
    lines: Vec<usize>,
    errors: RefCell<Vec<ConfigError>>,
    warnings: RefCell<Vec<ConfigError>>,
}

impl Notes {
    pub(super) fn new(text: &str) -> Self {
        let bytes = (1..).zip(text.as_bytes());
        let ends = bytes.filter(|&(_, &byte)| byte == b'\n');
        Self {
            lines: ends.map(|(next, _)| next).collect(),
            errors: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    pub(super) fn line_of(&self, byte: usize) -> usize {
        1 + self.lines.partition_point(|&start| start <= byte)
    }

    /// Records an error.
    pub fn error(
        &self,
        line: usize,
        key: &str,
        problem: impl Into<String>,
        legal: impl Into<String>,
    ) {
        note(&self.errors, line, key, problem, legal);
    }

    /// Records a warning: the file is valid, but may not do what was meant.
    pub fn warn(
        &self,
        line: usize,
        key: &str,
        problem: impl Into<String>,
        advice: impl Into<String>,
    ) {
        note(&self.warnings, line, key, problem, advice);
    }

    /// Errors and warnings, by line.
    pub(super) fn sorted(self) -> (Vec<ConfigError>, Vec<ConfigError>) {
        let sorted = |list: RefCell<Vec<ConfigError>>| {
            let mut list = list.into_inner();
            list.sort();
            list.dedup();
            list
        };
        (sorted(self.errors), sorted(self.warnings))
    }
}

fn note(
    list: &RefCell<Vec<ConfigError>>,
    line: usize,
    key: &str,
    problem: impl Into<String>,
    legal: impl Into<String>,
) {
    list.borrow_mut().push(ConfigError {
        line,
        key: key.into(),
        problem: problem.into(),
        legal: legal.into(),
    });
}

/// One table of the file, and which of its keys were read.
pub struct Section<'a> {
    /// What errors have before a key: `interface.`, `acl edge rule 2: `.
    before: String,
    /// The line on which it begins.
    pub line: usize,
    table: &'a DeTable<'a>,
    notes: &'a Notes,
    known: RefCell<Vec<&'static str>>,
    /// Missing keys, and their legal values.
    missing: RefCell<Vec<(&'static str, String)>>,
    /// Whether it has no errors so far.
    sound: Cell<bool>,
}

impl<'a> Section<'a> {
    pub(super) fn new(name: &str, byte: usize, table: &'a DeTable<'a>, notes: &'a Notes) -> Self {
        Self {
            before: match name {
                "" => String::new(),
                name => format!("{name}."),
            },
            line: notes.line_of(byte),
            table,
            notes,
            known: RefCell::default(),
            missing: RefCell::default(),
            sound: Cell::new(true),
        }
    }

    /// The table in `value`; an error if it is not one.
    fn of(
        name: &str,
        value: &'a Spanned<DeValue<'a>>,
        notes: &'a Notes,
        legal: &str,
    ) -> Option<Self> {
        let at = value.span().start;
        match value.get_ref() {
            DeValue::Table(table) => Some(Self::new(name, at, table, notes)),
            other => {
                let problem = format!("this is {}, not a table", kind(other));
                notes.error(notes.line_of(at), name, problem, legal);
                None
            }
        }
    }

    /// Errors and warnings of the whole file.
    pub fn notes(&self) -> &'a Notes {
        self.notes
    }

    fn find(&self, key: &'static str) -> Option<(&'a Spanned<DeValue<'a>>, usize)> {
        self.known.borrow_mut().push(key);
        let value = self.table.get(key)?;
        Some((value, self.notes.line_of(value.span().start)))
    }

    /// A table that is an element of one of this section's lists.
    pub fn within(
        &self,
        name: &str,
        value: &'a Spanned<DeValue<'a>>,
        legal: &str,
    ) -> Option<Section<'a>> {
        let section = Self::of(name, value, self.notes, legal);
        self.sound.set(self.sound.get() && section.is_some());
        section
    }

    /// The same, with a name of the element for errors.
    pub fn element(
        &self,
        which: &str,
        value: &'a Spanned<DeValue<'a>>,
        legal: &str,
    ) -> Option<Section<'a>> {
        let mut section = Self::of("", value, self.notes, legal);
        match &mut section {
            Some(section) => section.before = format!("{which}: "),
            None => self.sound.set(false),
        }
        section
    }

    /// Whether the file has `key`, valid or not.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Records an error of the value of `key`.
    pub fn wrong(
        &self,
        line: usize,
        key: &str,
        problem: impl Into<String>,
        legal: impl Into<String>,
    ) {
        self.sound.set(false);
        self.notes.error(line, &self.full(key), problem, legal);
    }

    /// `interface.vlan`
    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.before)
    }

    fn mistyped(&self, line: usize, key: &str, value: &DeValue<'_>, legal: &str) {
        self.wrong(line, key, format!("this is {}", kind(value)), legal);
    }

    /// A text that must be there.
    pub fn required(&self, key: &'static str, legal: &str) -> Option<At<String>> {
        self.requires(key, legal).then(|| self.text(key, legal))?
    }

    /// A [scalar](Self::scalar) that must be there.
    pub fn required_scalar(&self, key: &'static str, legal: &str) -> Option<At<String>> {
        self.requires(key, legal).then(|| self.scalar(key, legal))?
    }

    /// Whether the file has `key`, which must be there: for keys that are read otherwise than as
    /// a text. That it is missing is reported at the [`end`](Self::end).
    pub fn requires(&self, key: &'static str, legal: &str) -> bool {
        let is_there = self.has(key);
        if !is_there {
            self.known.borrow_mut().push(key);
            // It may be misspelt: `end` finds out.
            self.missing.borrow_mut().push((key, legal.into()));
            self.sound.set(false);
        }
        is_there
    }

    /// What users write as a number, as a text, as `true` or `false` or as a list of those:
    /// returned as the command line has it, with `on`, `off` and commas.
    pub fn scalar(&self, key: &'static str, legal: &str) -> Option<At<String>> {
        let (value, line) = self.find(key)?;
        match scalar(value.get_ref()) {
            Some(value) => Some(At { value, line }),
            None => {
                self.mistyped(line, key, value.get_ref(), legal);
                None
            }
        }
    }

    /// A text.
    pub fn text(&self, key: &'static str, legal: &str) -> Option<At<String>> {
        let (value, line) = self.find(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some(At {
                value: text.to_string(),
                line,
            }),
            other => {
                self.mistyped(line, key, other, legal);
                None
            }
        }
    }

    /// `true` or `false`.
    pub fn switch(&self, key: &'static str) -> Option<At<bool>> {
        let (value, line) = self.find(key)?;
        match value.get_ref() {
            DeValue::Boolean(value) => Some(At {
                value: *value,
                line,
            }),
            other => {
                self.mistyped(line, key, other, "true or false");
                None
            }
        }
    }

    /// A whole number within `range`.
    pub fn number<N>(&self, key: &'static str, range: RangeInclusive<N>) -> Option<At<N>>
    where
        N: TryFrom<i64> + PartialOrd + fmt::Display,
    {
        let (value, line) = self.find(key)?;
        let legal = format!("a number from {} to {}", range.start(), range.end());
        let DeValue::Integer(integer) = value.get_ref() else {
            self.mistyped(line, key, value.get_ref(), &legal);
            return None;
        };
        let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.and_then(|number| N::try_from(number).ok());
        match number.filter(|number| range.contains(number)) {
            Some(value) => Some(At { value, line }),
            None => {
                self.wrong(line, key, format!("{integer} is out of range"), legal);
                None
            }
        }
    }

    /// A number with or without a fraction, not negative.
    pub fn decimal(&self, key: &'static str, legal: &str) -> Option<At<f64>> {
        let (value, line) = self.find(key)?;
        let number = match value.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(integer) => integer.as_str().parse().ok(),
            other => {
                self.mistyped(line, key, other, legal);
                return None;
            }
        };
        match number.filter(|number: &f64| number.is_finite() && *number >= 0.0) {
            Some(value) => Some(At { value, line }),
            None => {
                self.wrong(line, key, "this is no such number", legal);
                None
            }
        }
    }

    /// A time in seconds, with or without a fraction.
    pub fn seconds(&self, key: &'static str) -> Option<At<Duration>> {
        let legal = "a number of seconds such as 2.5";
        let At { value, line } = self.decimal(key, legal)?;
        match Duration::try_from_secs_f64(value) {
            Ok(value) => Some(At { value, line }),
            Err(_) => {
                self.wrong(line, key, "this is no time", legal);
                None
            }
        }
    }

    /// A text, converted by `read`.
    pub fn read<T>(
        &self,
        key: &'static str,
        legal: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<At<T>> {
        let text = self.text(key, legal)?;
        self.converted(key, text, legal, read)
    }

    /// A text or a whole number, converted by `read`: of ports or protocols, say, where users write
    /// `443` as well as `"443"`.
    pub fn word<T>(
        &self,
        key: &'static str,
        legal: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<At<T>> {
        match self.table.get(key).map(|value| value.get_ref()) {
            Some(DeValue::Integer(_)) => {
                let number = self.scalar(key, legal)?;
                self.converted(key, number, legal, read)
            }
            _ => self.read(key, legal, read),
        }
    }

    fn converted<T>(
        &self,
        key: &str,
        At { value, line }: At<String>,
        legal: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<At<T>> {
        match read(&value) {
            Ok(value) => Some(At { value, line }),
            Err(problem) => {
                self.wrong(line, key, problem, legal);
                None
            }
        }
    }

    /// A text that is a `T`.
    pub fn parsed<T: FromStr>(&self, key: &'static str, legal: &str) -> Option<At<T>> {
        self.read(key, legal, |text| {
            text.parse().map_err(|_| format!("`{text}` is none"))
        })
    }

    /// One of some words.
    pub fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<At<T>> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let At { value, line } = self.text(key, &format!("one of {}", names.join(", ")))?;
        match choices.iter().find(|(name, _)| *name == value) {
            Some((_, value)) => Some(At {
                value: *value,
                line,
            }),
            None => {
                let legal = offer(&value, names);
                self.wrong(line, key, format!("`{value}` is unknown"), legal);
                None
            }
        }
    }

    /// The number of what is named, among all of its `kind` that have names.
    pub fn named<'n, N: Copy>(
        &self,
        key: &'static str,
        legal: &str,
        kind: &str,
        all: impl Iterator<Item = (N, &'n str)> + Clone,
    ) -> Option<At<N>> {
        let At { value, line } = self.text(key, legal)?;
        let Some((number, _)) = all.clone().find(|(_, name)| *name == value) else {
            let legal = offer(&value, all.map(|(_, name)| name));
            self.wrong(line, key, format!("there is no {kind} `{value}`"), legal);
            return None;
        };
        Some(At {
            value: number,
            line,
        })
    }

    /// The raw value, for keys that take several kinds.
    pub fn value(&self, key: &'static str) -> Option<(&'a Spanned<DeValue<'a>>, usize)> {
        self.find(key)
    }

    /// The elements of a list; nothing where there is no such key.
    pub fn list(&self, key: &'static str, legal: &str) -> Vec<(&'a Spanned<DeValue<'a>>, usize)> {
        let Some((value, line)) = self.find(key) else {
            return Vec::new();
        };
        match value.get_ref() {
            DeValue::Array(items) => items
                .iter()
                .map(|item| (item, self.notes.line_of(item.span().start)))
                .collect(),
            other => {
                self.mistyped(line, key, other, legal);
                Vec::new()
            }
        }
    }

    /// The texts of a list, each converted by `read`.
    pub fn texts<T>(
        &self,
        key: &'static str,
        legal: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<At<T>> {
        let mut all = Vec::new();
        for (value, line) in self.list(key, legal) {
            match value.get_ref() {
                DeValue::String(text) => match read(text) {
                    Ok(value) => all.push(At { value, line }),
                    Err(problem) => self.wrong(line, key, problem, legal),
                },
                other => self.mistyped(line, key, other, legal),
            }
        }
        all
    }

    /// The tables of a list, such as all `[[interface]]`.
    pub fn tables(&self, key: &'static str, legal: &str) -> Vec<Section<'a>> {
        let items = self.list(key, legal).into_iter();
        items
            .filter_map(|(item, _)| Section::of(key, item, self.notes, legal))
            .collect()
    }

    /// The table of a key.
    pub fn table(&self, name: &str, key: &'static str, legal: &str) -> Option<Section<'a>> {
        let (value, _) = self.find(key)?;
        let table = Section::of(name, value, self.notes, legal);
        self.sound.set(self.sound.get() && table.is_some());
        table
    }

    /// Reports unknown keys, and missing ones unless an unknown key is a likely misspelling of
    /// them; returns whether there were no errors.
    pub fn end(&self) -> bool {
        let known = self.known.borrow();
        let mut missing = self.missing.borrow_mut();
        for (key, _) in self.table.iter() {
            let text: &str = key.get_ref();
            if !known.contains(&text) {
                let line = self.notes.line_of(key.span().start);
                let legal = offer(text, known.iter().copied());
                self.notes
                    .error(line, &self.full(text), "there is no such key", legal);
                self.sound.set(false);
                let meant = nearest(text, known.iter().copied());
                missing.retain(|(key, _)| meant.first().is_none_or(|meant| meant != key));
            }
        }
        for (key, legal) in missing.drain(..) {
            self.notes
                .error(self.line, &self.full(key), "it is missing", legal);
        }
        self.sound.get()
    }
}

/// A value as the command line has it.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    Some(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| number.to_string(), |number| number.to_string()),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(true) => "on".into(),
        DeValue::Boolean(false) => "off".into(),
        DeValue::Array(items) => {
            let items: Option<Vec<String>> =
                items.iter().map(|item| scalar(item.get_ref())).collect();
            items?.join(",")
        }
        DeValue::Datetime(_) | DeValue::Table(_) => return None,
    })
}

/// The type of a value, in words.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
