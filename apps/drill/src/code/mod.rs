//! `%{ code }%`: assertions over a connection's `TCP_INFO`, in the part of Python that scripts use.
//!
//! Statements are `assert EXPR[, MESSAGE]`, `print(...)`, `NAME = EXPR` and `NAME += EXPR` (`-=`
//! too), divided by `;` or line ends. Expressions have `or and not`, chains of comparisons,
//! `| ^ & << >> + - * / // % ~`, parentheses, texts, `%` with a text, and `abs min max int`. Names
//! are fields of [`TCP_INFO`](crate::Info), constants such as `TCP_CA_Open`, and variables.

mod eval;
mod parse;
#[cfg(test)]
mod tests;

pub use eval::Variables;

use crate::fault::{At, Fault};

/// Statements.
#[derive(Clone, Debug, PartialEq)]
pub struct Code {
    at: At,
    statements: Vec<Statement>,
}

#[derive(Clone, Debug, PartialEq)]
enum Statement {
    Assert(Expr, Option<Expr>),
    Print(Vec<Expr>),
    Set(String, Expr),
}

#[derive(Clone, Debug, PartialEq)]
enum Expr {
    Int(i64),
    Float(f64),
    Text(String),
    Name(String),
    Tuple(Vec<Expr>),
    Unary(Op, Box<Expr>),
    /// A chain of operators of one precedence: the first operand, then pairs.
    Chain(Box<Expr>, Vec<(Op, Expr)>),
    Call(String, Vec<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Or,
    And,
    Not,
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    BitOr,
    BitXor,
    BitAnd,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Invert,
}

impl Code {
    /// Parses what stands between `%{` and `}%`, which is at `at`.
    ///
    /// # Errors
    /// A [`Fault`]: `Unsupported` for other parts of Python.
    pub fn parse(text: &str, at: At) -> Result<Self, Fault> {
        let statements = parse::statements(text)
            .map_err(|problem| Fault::unsupported(at, format!("this code: {problem}")))?;
        Ok(Self { at, statements })
    }
}
