//! The parser: recursive descent over [`tokens`].
//!
//! A script is options, a command, events, a command. Each rule is a function; [`packet`] has those
//! of packets, [`call`] those of system calls. Recursion is bounded by [`MAX_DEPTH`].

mod call;
mod packet;
#[cfg(test)]
mod tests;

use crate::code::Code;
use crate::fault::{At, Fault};
use crate::lex::{Token, tokens};
use crate::script::{Action, Event, Script, When};

/// How deep lists and structures may be nested.
const MAX_DEPTH: u32 = 32;
/// The latest time, in seconds: a day.
const MAX_SECONDS: f64 = 86_400.0;

/// Parses a script.
///
/// # Errors
/// A [`Fault`] with the place and the fix: `Syntax` where the text is not in the language,
/// `Unsupported` where it is, and this program does not have it.
///
/// ```
/// let script = linerate_drill::parse("+0 < S 0:0(0) win 1000 <mss 1000>\n")?;
/// assert_eq!(script.events.len(), 1);
/// let fault = linerate_drill::parse("+0 < S 0:10(0) win 1000\n").unwrap_err();
/// assert_eq!((fault.at.line, fault.at.column), (1, 8));
/// # Ok::<(), linerate_drill::Fault>(())
/// ```
pub fn parse(script: &str) -> Result<Script, Fault> {
    parse_with(script, &[])
}

/// The same, with words that stand for values, as of `--define=WORD=VALUE`.
///
/// # Errors
/// As for [`parse`].
pub fn parse_with(script: &str, defines: &[(String, String)]) -> Result<Script, Fault> {
    let tokens = tokens(script, defines)?;
    let mut parser = Parser { tokens, next: 0 };
    parser.script()
}

struct Parser {
    tokens: Vec<(Token, At)>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    fn peek_behind(&self) -> Option<&Token> {
        self.tokens.get(self.next + 1).map(|(token, _)| token)
    }

    /// Where the next token stands, or the last one did.
    fn at(&self) -> At {
        let last = self.next.min(self.tokens.len().saturating_sub(1));
        self.tokens.get(last).map_or(At::default(), |(_, at)| *at)
    }

    fn advance(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.next += usize::from(token.is_some());
        token
    }

    /// The error that something else was expected here.
    fn expected(&self, what: &str) -> Fault {
        let found = self.peek().map_or("the end".into(), Token::name);
        Fault::syntax(self.at(), format!("found {found}"), format!("write {what}"))
    }

    fn is_mark(&self, mark: char) -> bool {
        self.peek() == Some(&Token::Mark(mark))
    }

    /// Takes a mark if it is next.
    fn accept(&mut self, mark: char) -> bool {
        let found = self.is_mark(mark);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, mark: char) -> Result<(), Fault> {
        if self.accept(mark) {
            return Ok(());
        }
        Err(self.expected(&format!("{mark:?}")))
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(w)) if w == word)
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.next += usize::from(found);
        found
    }

    fn word(&mut self, what: &str) -> Result<String, Fault> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.next += 1;
                Ok(word)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// A number that fits.
    fn number<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T, Fault> {
        let value = match self.peek() {
            Some(Token::Int(value, _) | Token::Hex(value)) => *value,
            _ => return Err(self.expected(what)),
        };
        let at = self.at();
        self.next += 1;
        T::try_from(value).map_err(|_| {
            let bits = size_of::<T>() * 8;
            let fix = format!("write {what} of {bits} bits");
            Fault::syntax(at, format!("{value} is out of range"), fix)
        })
    }

    fn script(&mut self) -> Result<Script, Fault> {
        let mut script = Script::default();
        loop {
            let at = self.at();
            match self.peek() {
                Some(Token::Option(name, value)) => {
                    let option = (name.clone(), value.clone(), at);
                    self.next += 1;
                    script.options.push(option);
                }
                Some(Token::Command(command)) => {
                    script.init = Some((command.clone(), at));
                    self.next += 1;
                    break;
                }
                _ => break,
            }
        }
        while self.peek().is_some() {
            let at = self.at();
            if let Some(Token::Command(command)) = self.peek() {
                script.cleanup = Some((command.clone(), at));
                self.next += 1;
                if self.peek().is_some() {
                    return Err(self.expected("nothing behind the command that cleans up"));
                }
                break;
            }
            let event = self.event()?;
            script.events.push(event);
        }
        if script.events.is_empty() {
            let fix = "add an event such as +0 < S 0:0(0) win 1000";
            return Err(Fault::syntax(self.at(), "the script has no events", fix));
        }
        Ok(script)
    }

    fn event(&mut self) -> Result<Event, Fault> {
        let at = self.at();
        let when = self.when()?;
        let action = self.action()?;
        let expects = matches!(&action, Action::Packet(packet) if !packet.inbound);
        if !expects && !matches!(when, When::Absolute(_) | When::Relative(_)) {
            let fix = "use + and a time: only an outbound packet can come at any of several times";
            return Err(Fault::syntax(at, "a time without an exact value", fix));
        }
        Ok(Event { at, when, action })
    }

    fn when(&mut self) -> Result<When, Fault> {
        if self.accept('*') {
            return Ok(When::Any);
        }
        let at = self.at();
        let relative = self.accept('+');
        let start = self.time()?;
        if !self.accept('~') {
            return Ok(match relative {
                true => When::Relative(start),
                false => When::Absolute(start),
            });
        }
        if relative {
            self.expect('+')?;
        }
        let end = self.time()?;
        if end < start {
            return Err(Fault::syntax(
                at,
                "the range of times ends before it starts",
                "exchange its ends",
            ));
        }
        Ok(match relative {
            true => When::RelativeRange(start, end),
            false => When::AbsoluteRange(start, end),
        })
    }

    /// Seconds, as microseconds.
    fn time(&mut self) -> Result<i64, Fault> {
        let seconds = match self.peek() {
            Some(Token::Int(seconds, _)) => *seconds as f64,
            Some(Token::Float(seconds)) => *seconds,
            _ => return Err(self.expected("a time in seconds, such as +0.1")),
        };
        if !(0.0..=MAX_SECONDS).contains(&seconds) {
            let fix = format!("write 0 to {MAX_SECONDS} seconds");
            return Err(Fault::syntax(self.at(), "a time out of range", fix));
        }
        self.next += 1;
        Ok((seconds * 1e6).round() as i64)
    }

    fn action(&mut self) -> Result<Action, Fault> {
        let at = self.at();
        match self.peek() {
            Some(Token::Mark('<' | '>')) => self.packet().map(Action::Packet),
            Some(Token::Command(command)) => {
                let command = command.clone();
                self.next += 1;
                Ok(Action::Command(command))
            }
            Some(Token::Code(text)) => {
                let code = Code::parse(text, at)?;
                self.next += 1;
                Ok(Action::Code(code))
            }
            Some(Token::Word(_) | Token::Ellipsis) => self.call().map(Action::Call),
            _ => Err(self.expected("a packet (< or >), a system call, a command or %{ code }%")),
        }
    }
}
