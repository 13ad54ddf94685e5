//! Words of packetdrill's language.
//!
//! Comments (`//`, `/* */`) and white space end here. A run of letters, digits and underscores is
//! one word; it is a number where it looks like one, so `0:1000(1000)` is six tokens and the Fast
//! Open cookie `01ab` one word. A word that `--define` names is replaced by its value.

use crate::fault::{At, Fault};
use std::collections::HashMap;

/// The longest script, in bytes.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// `--name` or `--name=value`: the value up to white space, without quotes.
    Option(String, Option<String>),
    /// Digits, perhaps after a minus sign; as written, for cookies.
    Int(i64, String),
    /// `1.5`, `.5`.
    Float(f64),
    /// `0x1f`.
    Hex(i64),
    /// A word.
    Word(String),
    /// `"text"`, without quotes, escapes resolved.
    Text(String),
    /// `` `command` ``, without quotes.
    Command(String),
    /// `%{ code }%`, without delimiters and surrounding blanks.
    Code(String),
    /// `...`
    Ellipsis,
    /// Any other character.
    Mark(char),
}

impl Token {
    /// How an error message calls it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Option(name, _) => format!("the option --{name}"),
            Self::Int(_, text) => format!("the number {text}"),
            Self::Float(value) => format!("the number {value}"),
            Self::Hex(value) => format!("the number {value:#x}"),
            Self::Word(word) => format!("the word {word:?}"),
            Self::Text(text) => format!("the text {text:?}"),
            Self::Command(_) => "a shell command".into(),
            Self::Code(_) => "code".into(),
            Self::Ellipsis => "\"...\"".into(),
            Self::Mark(mark) => format!("{mark:?}"),
        }
    }
}

/// Splits a script into tokens with their places. `defines` are words and their values, as of
/// `--define`.
///
/// # Errors
/// A [`Fault`] of kind `Syntax`: the script is too long, or a comment, text, command or piece of
/// code does not end.
pub(crate) fn tokens(
    script: &str,
    defines: &[(String, String)],
) -> Result<Vec<(Token, At)>, Fault> {
    if script.len() > MAX_BYTES {
        let problem = format!("the script has {} bytes", script.len());
        let fix = format!("use at most {MAX_BYTES}");
        return Err(Fault::syntax(At { line: 1, column: 1 }, problem, fix));
    }
    let mut lexer = Lexer {
        rest: script,
        at: At { line: 1, column: 1 },
        defines: defines.iter().cloned().collect(),
    };
    let mut tokens = Vec::new();
    while lexer.skip_blanks()? {
        let at = lexer.at;
        let token = lexer.token()?;
        if let Token::Option(name, Some(value)) = &token
            && (name == "define" || name == "D")
            && let Some((name, value)) = value.split_once('=')
        {
            lexer.defines.insert(name.into(), value.into());
        }
        tokens.push((token, at));
    }
    Ok(tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    at: At,
    defines: HashMap<String, String>,
}

impl<'a> Lexer<'a> {
    /// Takes the next `bytes`, which end at a character's boundary.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        for c in taken.chars() {
            if c == '\n' {
                self.at.line += 1;
                self.at.column = 1;
            } else {
                self.at.column += 1;
            }
        }
        self.rest = rest;
        taken
    }

    /// Whether there is anything behind blanks and comments.
    fn skip_blanks(&mut self) -> Result<bool, Fault> {
        loop {
            let blanks = self.rest.len() - self.rest.trim_start().len();
            self.take(blanks);
            if self.rest.starts_with("//") {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.take(end);
            } else if self.rest.starts_with("/*") {
                let at = self.at;
                let Some(end) = self.rest[2..].find("*/") else {
                    return Err(Fault::syntax(at, "the comment does not end", "add */"));
                };
                self.take(end + 4);
            } else {
                return Ok(!self.rest.is_empty());
            }
        }
    }

    fn token(&mut self) -> Result<Token, Fault> {
        let rest = self.rest;
        if rest.starts_with("...") {
            self.take(3);
            return Ok(Token::Ellipsis);
        }
        if rest.starts_with("%{") {
            return Ok(Token::Code(
                self.enclosed(2, "}%", "code")?.trim().to_owned(),
            ));
        }
        if let Some(option) = rest.strip_prefix("--")
            && option.starts_with(|c: char| c.is_ascii_alphabetic())
        {
            return Ok(self.option());
        }
        match rest.chars().next() {
            Some('"') => self.quoted('"').map(Token::Text),
            Some('`') => self.quoted('`').map(Token::Command),
            Some(c) if is_word(c) || c == '.' || c == '-' => Ok(self.word_or_number()),
            Some(c) => {
                self.take(c.len_utf8());
                Ok(Token::Mark(c))
            }
            None => Ok(Token::Mark('\0')), // not reached: there is a character
        }
    }

    /// What stands between a start of `open` bytes and `close`.
    fn enclosed(&mut self, open: usize, close: &str, what: &str) -> Result<&'a str, Fault> {
        let at = self.at;
        let Some(end) = self.rest[open..].find(close) else {
            let fix = format!("add {close}");
            return Err(Fault::syntax(at, format!("the {what} does not end"), fix));
        };
        let taken = self.take(open + end + close.len());
        Ok(&taken[open..open + end])
    }

    fn quoted(&mut self, quote: char) -> Result<String, Fault> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((index, c)) = characters.next() {
            if c == quote {
                self.take(index + 1);
                return Ok(text);
            }
            // A command keeps its escapes: they are the shell's.
            if c != '\\' || quote == '`' {
                text.push(c);
                if c == '\\' {
                    text.extend(characters.next().map(|(_, c)| c));
                }
                continue;
            }
            match characters.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 'r')) => text.push('\r'),
                Some((_, 't')) => text.push('\t'),
                Some((_, '0')) => text.push('\0'),
                Some((at, 'x')) => {
                    // One byte, as the character of that number.
                    let digits = self.rest.get(at + 1..at + 3).unwrap_or_default();
                    if let Ok(byte) = u8::from_str_radix(digits, 16) {
                        text.push(char::from(byte));
                        characters.nth(1);
                    }
                }
                Some((_, c)) => text.push(c),
                None => {}
            }
        }
        let fix = format!("add {quote}");
        Err(Fault::syntax(self.at, "the text does not end", fix))
    }

    /// `--name[=value]`: the value ends at white space outside quotes.
    fn option(&mut self) -> Token {
        self.take(2);
        let end = |text: &str| text.find(|c| !is_word(c)).unwrap_or(text.len());
        let name = self.take(end(self.rest)).to_owned();
        if !self.rest.starts_with('=') {
            return Token::Option(name, None);
        }
        self.take(1);
        let mut quote = None;
        let end = self.rest.find(|c: char| {
            match quote {
                Some(open) if c == open => quote = None,
                None if c == '"' || c == '`' => quote = Some(c),
                _ => {}
            }
            quote.is_none() && c.is_whitespace()
        });
        let value = self.take(end.unwrap_or(self.rest.len()));
        let bare = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        Token::Option(name, Some(bare.unwrap_or(value).to_owned()))
    }

    fn word_or_number(&mut self) -> Token {
        let sign = usize::from(self.rest.starts_with('-'));
        let run = |text: &str| text.find(|c| !is_word(c)).unwrap_or(text.len());
        let word = run(&self.rest[sign..]);
        let body = &self.rest[sign..sign + word];
        let digits = body.bytes().all(|b| b.is_ascii_digit());
        let behind = &self.rest[sign + word..];
        let fraction = behind
            .strip_prefix('.')
            .filter(|_| digits)
            .map_or(0, |text| {
                text.bytes().take_while(u8::is_ascii_digit).count()
            });
        if fraction > 0 {
            let text = self.take(sign + word + 1 + fraction);
            return Token::Float(text.parse().unwrap_or(f64::MAX));
        }
        if word == 0 {
            // A lone sign or point.
            let mark = self.take(1);
            return Token::Mark(mark.chars().next().unwrap_or('.'));
        }
        if digits {
            let text = self.take(sign + word);
            let value = text.parse().unwrap_or(i64::MAX);
            return Token::Int(value, text.into());
        }
        if sign == 1 {
            self.take(1);
            return Token::Mark('-');
        }
        let text = self.take(word);
        if let Some(hex) = text.strip_prefix("0x")
            && let Ok(value) = u64::from_str_radix(hex, 16)
        {
            return Token::Hex(value.cast_signed());
        }
        match self.defines.get(text) {
            Some(value) => defined(value),
            None => Token::Word(text.into()),
        }
    }
}

/// The token that stands for a word of `--define=word=value`.
fn defined(value: &str) -> Token {
    let inside = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(text) = inside('"') {
        return Token::Text(text.into());
    }
    if let Some(text) = inside('`') {
        return Token::Command(text.into());
    }
    if let Some(Ok(number)) = value.strip_prefix("0x").map(|h| i64::from_str_radix(h, 16)) {
        return Token::Hex(number);
    }
    match value.parse() {
        Ok(number) => Token::Int(number, value.into()),
        Err(_) => Token::Word(value.into()),
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
