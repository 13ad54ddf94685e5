//! Arguments of system calls: expressions to numbers, addresses, texts.

use crate::fault::{At, Fault};
use crate::names;
use crate::script::{CallSpec, Expr};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The most bytes that a script can read or write at once.
const MAX_BYTES: usize = 64 << 20;

/// A system call's arguments.
pub(super) struct Arguments<'a> {
    pub(super) at: At,
    pub(super) name: &'a str,
    args: &'a [Expr],
}

impl<'a> Arguments<'a> {
    pub(super) fn new(at: At, spec: &'a CallSpec) -> Self {
        Self {
            at,
            name: &spec.name,
            args: &spec.args,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.args.len()
    }

    pub(super) fn wrong(&self, what: &str) -> Fault {
        Fault::syntax(
            self.at,
            format!("{} with other arguments", self.name),
            format!("write {what}"),
        )
    }

    pub(super) fn unsupported(&self, what: &str) -> Fault {
        Fault::unsupported(self.at, format!("{} with {what}", self.name))
    }

    pub(super) fn expr(&self, index: usize) -> Result<&'a Expr, Fault> {
        let problem = || {
            let problem = format!("{} has {} arguments", self.name, self.args.len());
            Fault::syntax(self.at, problem, format!("write at least {}", index + 1))
        };
        self.args.get(index).ok_or_else(problem)
    }

    pub(super) fn is_ellipsis(&self, index: usize) -> bool {
        matches!(self.args.get(index), Some(Expr::Ellipsis))
    }

    pub(super) fn int(&self, index: usize) -> Result<i64, Fault> {
        number(self.expr(index)?, self.at)
    }

    pub(super) fn int32(&self, index: usize) -> Result<i32, Fault> {
        let value = self.int(index)?;
        // Flags such as EPOLLET have bit 31, and scripts write 0xffffffff for -1.
        i32::try_from(value)
            .or_else(|_| u32::try_from(value).map(u32::cast_signed))
            .map_err(|_| self.wrong("numbers of 32 bits"))
    }

    pub(super) fn size(&self, index: usize) -> Result<usize, Fault> {
        size(self.int(index)?, self.at)
    }

    /// An address: `...` is `default`; `None` for AF_UNSPEC.
    pub(super) fn address(
        &self,
        index: usize,
        default: SocketAddr,
    ) -> Result<Option<SocketAddr>, Fault> {
        address(self.expr(index)?, default, self.at)
    }
}

pub(super) fn size(value: i64, at: At) -> Result<usize, Fault> {
    let size = usize::try_from(value)
        .ok()
        .filter(|size| *size <= MAX_BYTES);
    size.ok_or_else(|| {
        let fix = format!("use 0 to {MAX_BYTES}");
        Fault::syntax(at, format!("{value} bytes"), fix)
    })
}

/// A number: written, of a constant, or of an expression.
pub(super) fn number(expr: &Expr, at: At) -> Result<i64, Fault> {
    match expr {
        Expr::Int(value) => Ok(*value),
        Expr::Word(word) => names::constant(word)
            .ok_or_else(|| Fault::unsupported(at, format!("the constant {word}"))),
        Expr::Or(terms) => terms
            .iter()
            .try_fold(0, |sum, term| Ok(sum | number(term, at)?)),
        Expr::Function(name, args) if name == "htons" && args.len() == 1 => number(&args[0], at),
        Expr::List(items) if items.len() == 1 => number(&items[0], at),
        _ => Err(Fault::syntax(
            at,
            "no number",
            "write a number or a constant",
        )),
    }
}

/// A field of a structure.
pub(super) fn field<'a>(fields: &'a [(String, Expr)], name: &str) -> Option<&'a Expr> {
    let found = fields.iter().find(|(field, _)| field == name);
    found.map(|(_, value)| value)
}

pub(super) fn address(
    expr: &Expr,
    default: SocketAddr,
    at: At,
) -> Result<Option<SocketAddr>, Fault> {
    let fields = match expr {
        Expr::Ellipsis => return Ok(Some(default)),
        Expr::Struct(fields) => fields,
        _ => {
            return Err(Fault::syntax(
                at,
                "no address",
                "write ... or {sa_family = ...}",
            ));
        }
    };
    let family = field(fields, "sa_family").map_or(Ok(0), |family| number(family, at))?;
    if family == i64::from(libc::AF_UNSPEC) {
        return Ok(None);
    }
    let port = field(fields, "sin_port").map_or(Ok(0), |port| number(port, at))?;
    let port = u16::try_from(port).map_err(|_| Fault::syntax(at, "no port", "use 0 to 65535"))?;
    let text = match field(fields, "sin_addr") {
        Some(Expr::Function(_, args)) => match args.as_slice() {
            [Expr::Text(text)] => text.as_str(),
            _ => "",
        },
        Some(Expr::Word(word)) if word == "INADDR_ANY" => "0.0.0.0",
        _ => "",
    };
    let ip: IpAddr = text.parse().map_err(|_| {
        Fault::syntax(
            at,
            "no IP address",
            "write sin_addr = inet_addr(\"192.0.2.1\")",
        )
    })?;
    let ip = match ip {
        IpAddr::V4(ip) if family == i64::from(libc::AF_INET6) => IpAddr::V6(mapped(ip)),
        ip => ip,
    };
    Ok(Some(SocketAddr::new(ip, port)))
}

pub(super) fn mapped(ip: Ipv4Addr) -> std::net::Ipv6Addr {
    ip.to_ipv6_mapped()
}
