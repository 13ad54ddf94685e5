//! Code to statements: a lexer by characters, then recursive descent by precedence.

use super::{Expr, Op, Statement};

/// How deep expressions may be nested.
const MAX_DEPTH: u32 = 32;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Int(i64),
    Float(f64),
    Text(String),
    Name(String),
    Mark(&'static str),
    End,
}

/// Marks, the longer ones first.
const MARKS: &[&str] = &[
    "//", "==", "!=", "<=", ">=", "<<", ">>", "+=", "-=", "+", "-", "*", "/", "%", "<", ">", "=",
    "|", "^", "&", "~", "(", ")", ",",
];

/// Operators by precedence, the weakest first, as in Python's reference (6.17).
const LEVELS: &[&[(&str, Op)]] = &[
    &[("or", Op::Or)],
    &[("and", Op::And)],
    &[
        ("==", Op::Equal),
        ("!=", Op::Unequal),
        ("<", Op::Less),
        ("<=", Op::LessEqual),
        (">", Op::Greater),
        (">=", Op::GreaterEqual),
    ],
    &[("|", Op::BitOr)],
    &[("^", Op::BitXor)],
    &[("&", Op::BitAnd)],
    &[("<<", Op::ShiftLeft), (">>", Op::ShiftRight)],
    &[("+", Op::Add), ("-", Op::Subtract)],
    &[
        ("*", Op::Multiply),
        ("/", Op::Divide),
        ("//", Op::FloorDivide),
        ("%", Op::Remainder),
    ],
];

/// Where `not` binds: above `and`, below comparisons.
const COMPARISON: usize = 2;

pub(super) fn statements(text: &str) -> Result<Vec<Statement>, String> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        next: 0,
    };
    let mut statements = Vec::new();
    while parser.next < parser.tokens.len() {
        if parser.accept_end() {
            continue;
        }
        statements.push(parser.statement()?);
        if parser.next < parser.tokens.len() && !parser.accept_end() {
            return Err(parser.unexpected());
        }
    }
    Ok(statements)
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut open = 0_u32;
    while let Some(c) = rest.chars().next() {
        let word = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        if c == '#' {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if c == '\n' || c == ';' {
            // Inside parentheses a line goes on.
            if open == 0 {
                tokens.push(Token::End);
            }
            rest = &rest[1..];
        } else if c.is_whitespace() || c == '\\' {
            rest = &rest[c.len_utf8()..];
        } else if c == '"' || c == '\'' {
            let end = rest[1..].find(c).ok_or("a text does not end")?;
            tokens.push(Token::Text(rest[1..=end].to_owned()));
            rest = &rest[end + 2..];
        } else if c.is_ascii_digit() {
            let (token, len) = number(rest, word)?;
            tokens.push(token);
            rest = &rest[len..];
        } else if word > 0 {
            tokens.push(Token::Name(rest[..word].to_owned()));
            rest = &rest[word..];
        } else {
            let mark = MARKS.iter().find(|mark| rest.starts_with(**mark));
            let mark = mark.ok_or_else(|| format!("{c:?}"))?;
            match *mark {
                "(" => open += 1,
                ")" => open = open.saturating_sub(1),
                _ => {}
            }
            tokens.push(Token::Mark(mark));
            rest = &rest[mark.len()..];
        }
    }
    Ok(tokens)
}

/// The number at the start of `rest`, whose first word has `word` bytes; and its length.
fn number(rest: &str, word: usize) -> Result<(Token, usize), String> {
    let digits = &rest[..word];
    let wrong = || format!("the number {digits:?}");
    if let Some(hex) = digits.strip_prefix("0x") {
        let value = i64::from_str_radix(hex, 16).map_err(|_| wrong())?;
        return Ok((Token::Int(value), word));
    }
    let fraction = rest[word..]
        .strip_prefix('.')
        .map(|text| 1 + text.bytes().take_while(u8::is_ascii_digit).count());
    if let Some(fraction) = fraction {
        let len = word + fraction;
        return Ok((Token::Float(rest[..len].parse().map_err(|_| wrong())?), len));
    }
    Ok((Token::Int(digits.parse().map_err(|_| wrong())?), word))
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn unexpected(&self) -> String {
        match self.peek() {
            Some(token) => format!("{token:?} is not understood"),
            None => "it ends too early".into(),
        }
    }

    fn accept_end(&mut self) -> bool {
        let found = self.peek() == Some(&Token::End);
        self.next += usize::from(found);
        found
    }

    /// Takes an operator, mark or keyword, if it is next.
    fn accept(&mut self, text: &str) -> bool {
        let found = match self.peek() {
            Some(Token::Mark(mark)) => *mark == text,
            Some(Token::Name(name)) => name == text,
            _ => false,
        };
        self.next += usize::from(found);
        found
    }

    fn statement(&mut self) -> Result<Statement, String> {
        if self.accept("assert") {
            let condition = self.expr(0, MAX_DEPTH)?;
            let message = match self.accept(",") {
                true => Some(self.expr(0, MAX_DEPTH)?),
                false => None,
            };
            return Ok(Statement::Assert(condition, message));
        }
        if self.accept("print") {
            let value = self.expr(0, MAX_DEPTH)?;
            return Ok(Statement::Print(match value {
                Expr::Tuple(values) => values,
                value => vec![value],
            }));
        }
        let Some(Token::Name(name)) = self.peek().cloned() else {
            return Err(self.unexpected());
        };
        self.next += 1;
        if self.accept("=") {
            return Ok(Statement::Set(name, self.expr(0, MAX_DEPTH)?));
        }
        let op = match () {
            () if self.accept("+=") => Op::Add,
            () if self.accept("-=") => Op::Subtract,
            () => return Err(format!("the statement {name:?}")),
        };
        let value = self.expr(0, MAX_DEPTH)?;
        let sum = Expr::Chain(Box::new(Expr::Name(name.clone())), vec![(op, value)]);
        Ok(Statement::Set(name, sum))
    }

    fn expr(&mut self, level: usize, depth: u32) -> Result<Expr, String> {
        if level == COMPARISON && self.accept("not") {
            let depth = depth.checked_sub(1).ok_or("nested too deep")?;
            let operand = self.expr(level, depth)?;
            return Ok(Expr::Unary(Op::Not, Box::new(operand)));
        }
        let Some(operators) = LEVELS.get(level) else {
            return self.unary(depth);
        };
        let first = self.expr(level + 1, depth)?;
        let mut rest = Vec::new();
        while let Some((_, op)) = operators.iter().find(|(text, _)| self.accept(text)) {
            rest.push((*op, self.expr(level + 1, depth)?));
        }
        Ok(match rest.is_empty() {
            true => first,
            false => Expr::Chain(Box::new(first), rest),
        })
    }

    fn unary(&mut self, depth: u32) -> Result<Expr, String> {
        let depth = depth.checked_sub(1).ok_or("nested too deep")?;
        let op = match () {
            () if self.accept("-") => Op::Subtract,
            () if self.accept("+") => Op::Add,
            () if self.accept("~") => Op::Invert,
            () => return self.atom(depth),
        };
        Ok(Expr::Unary(op, Box::new(self.unary(depth)?)))
    }

    fn atom(&mut self, depth: u32) -> Result<Expr, String> {
        if self.accept("(") {
            let mut items = self.arguments(depth)?;
            return Ok(match items.len() {
                1 => items.remove(0),
                _ => Expr::Tuple(items),
            });
        }
        let token = self.peek().cloned();
        let expr = match token {
            Some(Token::Int(value)) => Expr::Int(value),
            Some(Token::Float(value)) => Expr::Float(value),
            Some(Token::Text(text)) => Expr::Text(text),
            Some(Token::Name(name)) => {
                self.next += 1;
                if self.accept("(") {
                    return Ok(Expr::Call(name, self.arguments(depth)?));
                }
                return Ok(Expr::Name(name));
            }
            _ => return Err(self.unexpected()),
        };
        self.next += 1;
        Ok(expr)
    }

    /// Behind `(`: expressions with commas between them, and `)`.
    fn arguments(&mut self, depth: u32) -> Result<Vec<Expr>, String> {
        let mut items = Vec::new();
        while !self.accept(")") {
            items.push(self.expr(0, depth)?);
            if !self.accept(",") && self.peek() != Some(&Token::Mark(")")) {
                return Err(self.unexpected());
            }
        }
        Ok(items)
    }
}
