//! The JSON interface's methods: one row for each, from which answers and the guide come.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::complete;
use super::connection::{Asker, to_value};
use super::names::unknown;
use super::protocol::{Problem, Request, VERSION};
use super::table::rows;

/// The result of a method.
type Result = std::result::Result<Value, Problem>;

/// One method.
pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) params: &'static str,
    pub(super) help: &'static str,
    does: fn(&mut Asker, &Request) -> Result,
}

const fn method(
    name: &'static str,
    params: &'static str,
    help: &'static str,
    does: fn(&mut Asker, &Request) -> Result,
) -> Method {
    Method {
        name,
        params,
        help,
        does,
    }
}

/// All methods.
pub(super) const METHODS: &[Method] = &[
    method(
        "hello",
        "`token`, `read_only`",
        "says who answers: `version`, `program`, `pid`, `may_change`; over TCP it comes first, \
         with the token; `read_only` true gives up changing things",
        hello,
    ),
    method("snapshot", "", "all counts now", snapshot),
    method(
        "subscribe",
        "`period_ms` (default 1000)",
        "a snapshot each period from now on, as lines with `event`; again for another period",
        subscribe,
    ),
    method("unsubscribe", "", "no more of them", unsubscribe),
    method(
        "start",
        "`ports` (default all), `seconds`",
        "as the command",
        start,
    ),
    method("stop", "`ports` (default all)", "as the command", stop),
    method("clear", "", "as the command", clear),
    method(
        "wait",
        "`seconds`",
        "answers when all has been sent and none is under way any more, or after so long: `done`",
        wait,
    ),
    method(
        "arp",
        "`ports`, `address`",
        "as the command: a list of `port`, `ip`, `mac`",
        arp,
    ),
    method(
        "ping",
        "`port`, `address`, `count`",
        "as the command: `sent`, `answered`, `rtt_ns`",
        ping,
    ),
    method("set", "`ports`, `key`, `value`", "as the command", set),
    method(
        "streams",
        "`ports` (default all)",
        "streams: `id`, `name`, `port`, `enabled`, `line`",
        streams,
    ),
    method(
        "help",
        "`command`",
        "commands: `name`, `usage`, `help`, `example`",
        help,
    ),
    method("methods", "", "methods: `name`, `params`, `help`", methods),
    method(
        "complete",
        "`line`, `cursor` (in bytes)",
        "candidates for the word at the cursor: `begins`, `candidates`",
        complete_line,
    ),
    method("quit", "", "ends the session", quit),
];

/// Answers a request for a method.
pub(super) fn call(asker: &mut Asker, name: &str, request: &Request) -> Result {
    match METHODS.iter().find(|method| method.name == name) {
        Some(method) => (method.does)(asker, request),
        None => Err(unknown(
            "method",
            name,
            METHODS.iter().map(|method| method.name),
        )),
    }
}

/// Parameters of a method as the type says; absent ones are an empty object.
fn params<T: DeserializeOwned>(request: &Request) -> std::result::Result<T, Problem> {
    let value = match &request.params {
        Value::Null => json!({}),
        value => value.clone(),
    };
    serde_json::from_value(value).map_err(|error| {
        let name = request.method.as_deref().unwrap_or_default();
        let row = METHODS.iter().find(|method| method.name == name);
        let takes = match row.map(|method| method.params) {
            None | Some("") => "no params".into(),
            Some(params) => params.replace('`', ""),
        };
        Problem::new(
            format!("params of `{name}`: {error}"),
            format!("`{name}` takes {takes}"),
        )
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ports {
    #[serde(default)]
    ports: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PortsAndTime {
    #[serde(default)]
    ports: Value,
    seconds: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seconds {
    seconds: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hello {
    /// Checked before any method is called.
    #[serde(rename = "token")]
    _token: Option<String>,
    #[serde(default)]
    read_only: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Period {
    period_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    ports: Value,
    key: String,
    value: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arp {
    ports: Value,
    address: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ping {
    port: Value,
    address: String,
    count: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Help {
    #[serde(default)]
    command: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct At {
    line: String,
    cursor: Option<usize>,
}

/// Ports in JSON: a list as in commands, one number, or an array of numbers and names.
fn ports(value: &Value) -> std::result::Result<String, Problem> {
    let bad = || {
        Problem::new(
            format!("ports are {value}"),
            r#"write "all", "0,2-3", 0 or [0, "wan"]"#,
        )
    };
    let word = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    match value {
        Value::Null => Ok("all".into()),
        Value::Array(list) => {
            let words: Option<Vec<String>> = list.iter().map(word).collect();
            Ok(words.ok_or_else(bad)?.join(","))
        }
        value => word(value).ok_or_else(bad),
    }
}

fn hello(asker: &mut Asker, request: &Request) -> Result {
    let hello: Hello = params(request)?;
    if hello.read_only {
        asker.access.change = false;
    }
    Ok(json!({
        "version": VERSION,
        "program": concat!("linerate ", env!("CARGO_PKG_VERSION")),
        "pid": std::process::id(),
        "may_change": asker.access.change,
    }))
}

fn snapshot(asker: &mut Asker, request: &Request) -> Result {
    params::<Nothing>(request)?;
    let snapshot = asker.control.call(|control| control.snapshot())??;
    Ok(to_value(snapshot))
}

fn subscribe(asker: &mut Asker, request: &Request) -> Result {
    let period: Period = params(request)?;
    let period_ms = period.period_ms.unwrap_or(1000).clamp(50, 3_600_000);
    let Some(out) = asker.out.clone() else {
        return Err(Problem::new("this source reads no events", "connect"));
    };
    unsubscribe_now(asker)?;
    let id = request.id.clone();
    let period = Duration::from_millis(period_ms);
    let number = asker
        .control
        .call(move |control| control.subscribe(id, period, out))?;
    asker.subscription = Some(number);
    Ok(json!({ "period_ms": period_ms }))
}

fn unsubscribe(asker: &mut Asker, request: &Request) -> Result {
    params::<Nothing>(request)?;
    unsubscribe_now(asker)?;
    Ok(json!({}))
}

fn unsubscribe_now(asker: &mut Asker) -> std::result::Result<(), Problem> {
    match asker.subscription.take() {
        Some(number) => asker
            .control
            .call(move |control| control.unsubscribe(number)),
        None => Ok(()),
    }
}

fn start(asker: &mut Asker, request: &Request) -> Result {
    let given: PortsAndTime = params(request)?;
    let mut words = vec![ports(&given.ports)?];
    words.extend(given.seconds.map(|time| time.to_string()));
    asker.run_named("start", words).map(to_value)
}

fn stop(asker: &mut Asker, request: &Request) -> Result {
    let given: Ports = params(request)?;
    let words = vec![ports(&given.ports)?];
    asker.run_named("stop", words).map(to_value)
}

fn clear(asker: &mut Asker, request: &Request) -> Result {
    params::<Nothing>(request)?;
    asker.run_named("clear", Vec::new()).map(to_value)
}

fn wait(asker: &mut Asker, request: &Request) -> Result {
    let given: Seconds = params(request)?;
    let words = given.seconds.map(|time| time.to_string());
    asker
        .run_named("wait", words.into_iter().collect())
        .map(|reply| reply.data)
}

fn arp(asker: &mut Asker, request: &Request) -> Result {
    let given: Arp = params(request)?;
    let mut words = vec![ports(&given.ports)?];
    words.extend(given.address);
    asker.run_named("arp", words).map(|reply| reply.data)
}

fn ping(asker: &mut Asker, request: &Request) -> Result {
    let given: Ping = params(request)?;
    let mut words = vec![ports(&given.port)?, given.address];
    words.extend(given.count.map(|count| count.to_string()));
    asker.run_named("ping", words).map(|reply| reply.data)
}

fn set(asker: &mut Asker, request: &Request) -> Result {
    let given: Set = params(request)?;
    let value = match &given.value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let words = vec![ports(&given.ports)?, given.key, value];
    asker.run_named("set", words).map(to_value)
}

fn streams(asker: &mut Asker, request: &Request) -> Result {
    let given: Ports = params(request)?;
    let words = vec![ports(&given.ports)?];
    asker
        .run_named("stream list", words)
        .map(|reply| reply.data)
}

fn help(_: &mut Asker, request: &Request) -> Result {
    let given: Help = params(request)?;
    let rows = rows(&given.command)?;
    let row = |row: &&super::table::Row| {
        json!({ "name": row.name, "usage": row.usage(),
        "help": row.help, "example": row.example })
    };
    Ok(rows.iter().map(row).collect())
}

fn methods(_: &mut Asker, request: &Request) -> Result {
    params::<Nothing>(request)?;
    let row = |method: &Method| {
        json!({ "name": method.name, "params": method.params,
        "help": method.help })
    };
    Ok(METHODS.iter().map(row).collect())
}

fn complete_line(asker: &mut Asker, request: &Request) -> Result {
    let At { line, cursor } = params(request)?;
    let mut names = asker.control.call(complete::Names::of)??;
    names.files = asker.access.files;
    let cursor = cursor.unwrap_or(line.len());
    Ok(to_value(complete::complete(&line, cursor, &names)))
}

fn quit(asker: &mut Asker, request: &Request) -> Result {
    params::<Nothing>(request)?;
    asker.run_named("quit", Vec::new()).map(to_value)
}
