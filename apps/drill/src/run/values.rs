//! Values in a script's form: of options, events, vectors, texts.

use super::arguments::{Arguments, field, number, size};
use crate::call::{OptionForm, OptionValue};
use crate::fault::{At, Fault};
use crate::script::Expr;

/// A text as bytes: what `\xff` stands for is one.
pub(super) fn bytes_of(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u8::try_from(c) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

pub(super) fn form_of(value: &OptionValue) -> OptionForm {
    match value {
        OptionValue::Int(_) => OptionForm::Int,
        OptionValue::Linger(..) => OptionForm::Linger,
        OptionValue::Time(_) => OptionForm::Time,
        OptionValue::Bytes(_) => OptionForm::Bytes,
    }
}

/// `[1]`, `"cubic"`, `{onoff=1, linger=0}`, `{tv_sec=1, tv_usec=0}`.
pub(super) fn option_value(expr: &Expr, at: At) -> Result<OptionValue, Fault> {
    match expr {
        Expr::Text(text) => Ok(OptionValue::Bytes(bytes_of(text))),
        Expr::List(items) if matches!(items.as_slice(), [Expr::Text(_) | Expr::Struct(_)]) => {
            option_value(&items[0], at)
        }
        Expr::Struct(fields) => {
            let value = |name| {
                field(fields, name)
                    .map(|value| number(value, at))
                    .transpose()
            };
            if let (Some(on), Some(seconds)) = (value("onoff")?, value("linger")?) {
                return Ok(OptionValue::Linger(on != 0, seconds as i32));
            }
            if let (Some(seconds), Some(us)) = (value("tv_sec")?, value("tv_usec")?) {
                return Ok(OptionValue::Time(
                    seconds.saturating_mul(1_000_000).saturating_add(us),
                ));
            }
            Err(Fault::unsupported(at, "an option's value of this form"))
        }
        expr => {
            let value = number(expr, at)?;
            // 0xffffffff is -1: an option has 32 bits.
            Ok(OptionValue::Int(value as i32))
        }
    }
}

/// `{events=EPOLLIN, fd=4}`: events, and data if written.
pub(super) fn epoll_event(fields: &[(String, Expr)], at: At) -> Result<(u32, Option<u64>), Fault> {
    let events = field(fields, "events").map_or(Ok(0), |events| number(events, at))?;
    let names = ["fd", "ptr", "u32", "u64"];
    let data = names.iter().find_map(|name| field(fields, name));
    let data = data.map(|data| number(data, at)).transpose()?;
    Ok((events as u32, data.map(i64::cast_unsigned)))
}

/// `[{..., 10}, {..., 20}]`: bytes, and what they are, zeros where not written.
pub(super) fn vector(expr: &Expr, at: At) -> Result<(usize, Vec<u8>), Fault> {
    let wrong = || Fault::syntax(at, "no vector", "write [{..., 10}, {..., 20}]");
    let Expr::List(items) = expr else {
        return Err(wrong());
    };
    let mut data = Vec::new();
    for item in items {
        let Expr::Struct(fields) = item else {
            return Err(wrong());
        };
        let [(_, content), (_, bytes)] = fields.as_slice() else {
            return Err(wrong());
        };
        let start = data.len();
        if let Expr::Text(text) = content {
            data.extend(bytes_of(text));
        }
        let end = start + size(number(bytes, at)?, at)?;
        size(end as i64, at)?;
        data.resize(end, 0);
    }
    Ok((data.len(), data))
}

pub(super) fn message_vector(
    args: &Arguments<'_>,
    message: &[(String, Expr)],
) -> Result<(usize, Vec<u8>), Fault> {
    match field(message, "msg_control") {
        Some(Expr::List(items)) if items.is_empty() => {}
        None => {}
        Some(_) => return Err(args.unsupported("control messages")),
    }
    match field(message, "msg_iov") {
        Some(iov) => vector(iov, args.at),
        None => Ok((0, Vec::new())),
    }
}
