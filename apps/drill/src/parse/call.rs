//! System calls: `0...0.2 read(4, ..., 1000) = -1 ETIMEDOUT (Connection timed out)`.

use super::{MAX_DEPTH, Parser};
use crate::fault::Fault;
use crate::lex::Token;
use crate::script::{CallSpec, Expr};

impl Parser {
    pub(super) fn call(&mut self) -> Result<CallSpec, Fault> {
        let mut end_us = None;
        if self.peek() == Some(&Token::Ellipsis) {
            self.next += 1;
            end_us = Some(self.time()?);
        }
        let name = self.word("a system call, such as read(4, ..., 1000) = 1000")?;
        self.expect('(')?;
        let args = self.list(')', MAX_DEPTH)?;
        self.expect('=')?;
        let result = self.expr(MAX_DEPTH)?;
        let mut error = None;
        if let Some(Token::Word(word)) = self.peek()
            && word.starts_with('E')
        {
            error = Some(word.clone());
            self.next += 1;
        }
        // Notes, as strace writes them: `(flags O_RDWR)`, `(Connection refused)`.
        while self.accept('(') {
            while !self.accept(')') {
                if self.advance().is_none() {
                    return Err(self.expected("')'"));
                }
            }
        }
        Ok(CallSpec {
            name,
            args,
            end_us,
            result,
            error,
        })
    }

    /// Expressions up to `close`, with commas between them.
    fn list(&mut self, close: char, depth: u32) -> Result<Vec<Expr>, Fault> {
        let mut items = Vec::new();
        if self.accept(close) {
            return Ok(items);
        }
        loop {
            items.push(self.expr(depth)?);
            if self.accept(close) {
                return Ok(items);
            }
            self.expect(',')?;
        }
    }

    fn expr(&mut self, depth: u32) -> Result<Expr, Fault> {
        let Some(depth) = depth.checked_sub(1) else {
            let fix = format!("nest at most {MAX_DEPTH} deep");
            return Err(Fault::syntax(self.at(), "lists nested too deep", fix));
        };
        let first = self.term(depth)?;
        if !self.is_mark('|') {
            return Ok(first);
        }
        let mut terms = vec![first];
        while self.accept('|') {
            terms.push(self.term(depth)?);
        }
        Ok(Expr::Or(terms))
    }

    fn term(&mut self, depth: u32) -> Result<Expr, Fault> {
        let what = "a number, a constant, a text, a list [..] or a structure {..}";
        match self.peek() {
            Some(Token::Ellipsis) => {
                self.next += 1;
                Ok(Expr::Ellipsis)
            }
            Some(Token::Int(value, _) | Token::Hex(value)) => {
                let value = *value;
                self.next += 1;
                Ok(Expr::Int(value))
            }
            Some(Token::Text(text)) => {
                let mut text = text.clone();
                self.next += 1;
                while let Some(Token::Text(more)) = self.peek() {
                    text.push_str(more);
                    self.next += 1;
                }
                // `"abc"...`, as strace shortens texts.
                self.next += usize::from(self.peek() == Some(&Token::Ellipsis));
                Ok(Expr::Text(text))
            }
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.next += 1;
                if self.accept('(') {
                    return Ok(Expr::Function(word, self.list(')', depth)?));
                }
                Ok(Expr::Word(word))
            }
            Some(Token::Mark('[')) => {
                self.next += 1;
                Ok(Expr::List(self.list(']', depth)?))
            }
            Some(Token::Mark('{')) => {
                self.next += 1;
                self.structure(depth)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Behind `{`: `name=value`, `name(...)=value` or values.
    fn structure(&mut self, depth: u32) -> Result<Expr, Fault> {
        let mut fields = Vec::new();
        if self.accept('}') {
            return Ok(Expr::Struct(fields));
        }
        loop {
            let mut name = String::new();
            let mut value = self.expr(depth)?;
            if self.accept('=') {
                name = match value {
                    Expr::Word(word) | Expr::Function(word, _) => word,
                    _ => return Err(self.expected("a field's name before =")),
                };
                value = self.expr(depth)?;
            }
            fields.push((name, value));
            if self.accept('}') {
                return Ok(Expr::Struct(fields));
            }
            self.expect(',')?;
        }
    }
}
