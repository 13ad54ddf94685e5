//! Where in an expression the compiler is, and the words from there on.

use core::str::FromStr;

use super::FilterError;

/// A piece of the expression.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl Word<'_> {
    pub(super) fn wrong(self, reason: &'static str) -> FilterError {
        FilterError {
            word: self.text.into(),
            at: self.at,
            reason,
        }
    }

    pub(super) fn parse<T: FromStr>(self, reason: &'static str) -> Result<T, FilterError> {
        self.text.parse().map_err(|_| self.wrong(reason))
    }
}

/// A place in an expression; behind its end are empty words.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// How many bytes the word has that text without leading spaces begins with.
    len: fn(&str) -> usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, len: fn(&str) -> usize) -> Self {
        Self { text, at: 0, len }
    }

    /// The same place, from which words are cut in another way.
    pub(super) fn cut(self, len: fn(&str) -> usize) -> Self {
        Self { len, ..self }
    }

    /// Goes on from where `other`, of the same text, has come to.
    pub(super) fn go_to(&mut self, other: Self) {
        self.at = other.at;
    }

    pub(super) fn peek(&self) -> Word<'a> {
        let rest = self.text[self.at..].trim_start();
        Word {
            text: &rest[..(self.len)(rest)],
            at: self.text.len() - rest.len(),
        }
    }

    pub(super) fn next(&mut self) -> Word<'a> {
        let word = self.peek();
        self.at = word.at + word.text.len();
        word
    }

    /// Takes the next word if it is this one.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let found = self.peek().text == text;
        if found {
            self.next();
        }
        found
    }

    /// Takes the next word, which must be this one.
    pub(super) fn expect(&mut self, text: &str, reason: &'static str) -> Result<(), FilterError> {
        let word = self.next();
        match word.text == text {
            true => Ok(()),
            false => Err(word.wrong(reason)),
        }
    }
}
