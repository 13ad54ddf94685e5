//! Statements to a verdict.

use super::{Code, Expr, Op, Statement};
use crate::fault::Fault;
use crate::names;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

/// What a script's code has set, and what it has printed.
#[derive(Debug, Default)]
pub struct Variables {
    values: HashMap<String, Value>,
    /// Lines of `print`, in order.
    pub printed: Vec<String>,
}

#[derive(Clone, Debug)]
enum Value {
    Int(i64),
    Float(f64),
    Text(String),
    Tuple(Vec<Value>),
}

impl Value {
    fn float(&self) -> Result<f64, String> {
        match self {
            Self::Int(value) => Ok(*value as f64),
            Self::Float(value) => Ok(*value),
            _ => Err(format!("{self} is not a number")),
        }
    }

    fn is_true(&self) -> bool {
        match self {
            Self::Int(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Tuple(items) => !items.is_empty(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(text) => text.fmt(f),
            Self::Tuple(items) => {
                let items: Vec<_> = items.iter().map(ToString::to_string).collect();
                write!(f, "({})", items.join(", "))
            }
        }
    }
}

impl Code {
    /// Runs it with a connection's `TCP_INFO`.
    ///
    /// # Errors
    /// A [`Fault`]: `Mismatch` for the assertion that fails, `Unsupported` for a name that neither
    /// the script nor the stack under test knows.
    pub fn run(
        &self,
        info: &[(&'static str, u64)],
        variables: &mut Variables,
    ) -> Result<(), Fault> {
        for statement in &self.statements {
            let scope = Scope { info, variables };
            let fault = |problem| Fault::unsupported(self.at, problem);
            match statement {
                Statement::Set(name, value) => {
                    let value = scope.eval(value).map_err(fault)?;
                    scope.variables.values.insert(name.clone(), value);
                }
                Statement::Print(values) => {
                    let values: Result<Vec<_>, _> = values.iter().map(|v| scope.eval(v)).collect();
                    let values = values.map_err(fault)?;
                    let line: Vec<_> = values.iter().map(ToString::to_string).collect();
                    scope.variables.printed.push(line.join(" "));
                }
                Statement::Assert(condition, message) => {
                    if scope.eval(condition).map_err(fault)?.is_true() {
                        continue;
                    }
                    let mut problem = format!("false: {}", scope.show(condition));
                    if let Some(message) = message {
                        problem += &format!(": {}", scope.eval(message).map_err(fault)?);
                    }
                    return Err(Fault::mismatch(self.at, problem));
                }
            }
        }
        Ok(())
    }
}

struct Scope<'a> {
    info: &'a [(&'static str, u64)],
    variables: &'a mut Variables,
}

impl Scope<'_> {
    fn name(&self, name: &str) -> Result<Value, String> {
        if let Some(value) = self.variables.values.get(name) {
            return Ok(value.clone());
        }
        if let Some((_, value)) = self.info.iter().find(|(field, _)| *field == name) {
            return Ok(Value::Int(value.cast_signed()));
        }
        match name {
            "True" => Ok(Value::Int(1)),
            "False" => Ok(Value::Int(0)),
            _ => names::constant(name)
                .map(Value::Int)
                .ok_or_else(|| format!("the name {name}")),
        }
    }

    fn eval(&self, expr: &Expr) -> Result<Value, String> {
        match expr {
            Expr::Int(value) => Ok(Value::Int(*value)),
            Expr::Float(value) => Ok(Value::Float(*value)),
            Expr::Text(text) => Ok(Value::Text(text.clone())),
            Expr::Name(name) => self.name(name),
            Expr::Tuple(items) => {
                let items: Result<_, _> = items.iter().map(|item| self.eval(item)).collect();
                items.map(Value::Tuple)
            }
            Expr::Unary(op, operand) => unary(*op, &self.eval(operand)?),
            Expr::Chain(first, rest) => self.chain(first, rest),
            Expr::Call(name, arguments) => {
                let values: Result<Vec<_>, _> = arguments.iter().map(|a| self.eval(a)).collect();
                call(name, values?)
            }
        }
    }

    /// `a < b <= c` holds if both do; all others go from left to right.
    fn chain(&self, first: &Expr, rest: &[(Op, Expr)]) -> Result<Value, String> {
        let mut left = self.eval(first)?;
        let mut verdict = None;
        for (op, right) in rest {
            match op {
                Op::Or if left.is_true() => return Ok(left),
                Op::And if !left.is_true() => return Ok(left),
                Op::Or | Op::And => left = self.eval(right)?,
                _ => {
                    let right = self.eval(right)?;
                    if let Some(holds) = comparison(*op, &left, &right)? {
                        if !holds {
                            return Ok(Value::Int(0));
                        }
                        verdict = Some(Value::Int(1));
                        left = right;
                    } else {
                        left = binary(*op, &left, &right)?;
                    }
                }
            }
        }
        Ok(verdict.unwrap_or(left))
    }

    /// The names in an expression with their values, for the message of an assertion.
    fn show(&self, expr: &Expr) -> String {
        let mut names = Vec::new();
        collect(expr, &mut names);
        let shown = names.iter().map(|name| match self.name(name) {
            Ok(value) => format!("{name} = {value}"),
            Err(_) => (*name).to_owned(),
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// The names in an expression, each once.
fn collect<'a>(expr: &'a Expr, names: &mut Vec<&'a str>) {
    match expr {
        Expr::Name(name) if !names.contains(&name.as_str()) => names.push(name),
        Expr::Unary(_, operand) => collect(operand, names),
        Expr::Chain(first, rest) => {
            collect(first, names);
            rest.iter().for_each(|(_, operand)| collect(operand, names));
        }
        Expr::Tuple(items) | Expr::Call(_, items) => {
            items.iter().for_each(|item| collect(item, names));
        }
        _ => {}
    }
}

fn comparison(op: Op, left: &Value, right: &Value) -> Result<Option<bool>, String> {
    let is: fn(Ordering) -> bool = match op {
        Op::Equal => Ordering::is_eq,
        Op::Unequal => Ordering::is_ne,
        Op::Less => Ordering::is_lt,
        Op::LessEqual => Ordering::is_le,
        Op::Greater => Ordering::is_gt,
        Op::GreaterEqual => Ordering::is_ge,
        _ => return Ok(None),
    };
    let order = match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Value::Text(left), Value::Text(right)) => left.cmp(right),
        _ => left.float()?.total_cmp(&right.float()?),
    };
    Ok(Some(is(order)))
}

fn unary(op: Op, value: &Value) -> Result<Value, String> {
    Ok(match (op, value) {
        (Op::Not, value) => Value::Int(i64::from(!value.is_true())),
        (Op::Subtract, Value::Int(value)) => Value::Int(value.wrapping_neg()),
        (Op::Subtract, value) => Value::Float(-value.float()?),
        (Op::Invert, Value::Int(value)) => Value::Int(!value),
        (_, value) => Value::Float(value.float()?),
    })
}

fn binary(op: Op, left: &Value, right: &Value) -> Result<Value, String> {
    if let (Op::Remainder, Value::Text(template)) = (op, left) {
        return Ok(Value::Text(formatted(template, right)));
    }
    if let (Value::Int(left), Value::Int(right)) = (left, right) {
        if op == Op::Divide {
            return quotient(*left as f64, *right as f64);
        }
        let result = match op {
            Op::Add => left.checked_add(*right),
            Op::Subtract => left.checked_sub(*right),
            Op::Multiply => left.checked_mul(*right),
            Op::FloorDivide => floor_divide(*left, *right),
            Op::Remainder => floor_divide(*left, *right)
                .and_then(|quotient| left.checked_sub(quotient.checked_mul(*right)?)),
            Op::BitOr => Some(left | right),
            Op::BitXor => Some(left ^ right),
            Op::BitAnd => Some(left & right),
            Op::ShiftLeft => u32::try_from(*right)
                .ok()
                .and_then(|by| left.checked_shl(by)),
            Op::ShiftRight => u32::try_from(*right)
                .ok()
                .and_then(|by| left.checked_shr(by)),
            _ => None,
        };
        let problem = || format!("{left} and {right} have no such result in 64 bits");
        return result.map(Value::Int).ok_or_else(problem);
    }
    let (left, right) = (left.float()?, right.float()?);
    match op {
        Op::Add => Ok(Value::Float(left + right)),
        Op::Subtract => Ok(Value::Float(left - right)),
        Op::Multiply => Ok(Value::Float(left * right)),
        Op::Divide => quotient(left, right),
        Op::FloorDivide => quotient(left, right)?
            .float()
            .map(|q| Value::Float(q.floor())),
        _ => Err("this operator with fractions".into()),
    }
}

fn quotient(left: f64, right: f64) -> Result<Value, String> {
    if right == 0.0 {
        return Err("a division by zero".into());
    }
    Ok(Value::Float(left / right))
}

/// Towards minus infinity, as Python does.
fn floor_divide(left: i64, right: i64) -> Option<i64> {
    let quotient = left.checked_div(right)?;
    let exact = left.checked_rem(right)? == 0;
    Some(quotient - i64::from(!exact && (left < 0) != (right < 0)))
}

/// `'%d of %s' % (1, 'two')`, without widths.
fn formatted(template: &str, values: &Value) -> String {
    let mut values = match values {
        Value::Tuple(values) => values.iter(),
        value => std::slice::from_ref(value).iter(),
    };
    let mut out = String::new();
    let mut characters = template.chars();
    while let Some(c) = characters.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match characters.find(char::is_ascii_alphabetic) {
            Some('x') => match values.next() {
                Some(Value::Int(value)) => out += &format!("{value:x}"),
                Some(value) => out += &value.to_string(),
                None => {}
            },
            _ => out.extend(values.next().map(ToString::to_string)),
        }
    }
    out
}

fn call(name: &str, values: Vec<Value>) -> Result<Value, String> {
    let pick = |wanted: Op| {
        let mut values = values.iter();
        let first = values.next().cloned().ok_or("a call without arguments")?;
        values.try_fold(first, |best, value| {
            let better = comparison(wanted, value, &best)? == Some(true);
            Ok(if better { value.clone() } else { best })
        })
    };
    match (name, values.as_slice()) {
        ("min", _) => pick(Op::Less),
        ("max", _) => pick(Op::Greater),
        ("abs", [Value::Int(value)]) => Ok(Value::Int(value.saturating_abs())),
        ("abs", [value]) => Ok(Value::Float(value.float()?.abs())),
        ("int", [Value::Int(value)]) => Ok(Value::Int(*value)),
        ("int", [value]) => Ok(Value::Int(value.float()? as i64)),
        ("float", [value]) => Ok(Value::Float(value.float()?)),
        ("str", [value]) => Ok(Value::Text(value.to_string())),
        _ => Err(format!("the function {name}")),
    }
}
