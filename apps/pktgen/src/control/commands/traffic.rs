//! Commands that send, stop, count and wait.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{number, seconds, text};
use crate::control::connection::Asker;
use crate::control::owner::Control;
use crate::control::protocol::{Problem, Reply};
use crate::control::table::{Done, Given};

/// How long a neighbour may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two echoes.
const BETWEEN: Duration = Duration::from_millis(200);
/// Echoes of one command at most.
const ECHOES: u16 = 1000;
/// How often is looked whether an answer has come.
const GLANCE: Duration = Duration::from_millis(2);
/// How often `wait` looks.
const LOOK: Duration = Duration::from_millis(20);

pub(in super::super) fn start(control: &mut Control, given: &Given) -> Done {
    let ports = control.ports_of(given.get(0))?;
    // Those without anything to send are passed over where nobody named them.
    let named: &[u16] = if given.get(0) == "all" { &[] } else { &ports };
    let duration = given.optional(1).map(seconds).transpose()?;
    control.session()?.start(named, duration)?;
    let time = duration.map_or_else(
        || "until stopped".into(),
        |time| format!("for {} s", time.as_secs_f64()),
    );
    Ok(text(format!("sending {time}")))
}

pub(in super::super) fn stop(control: &mut Control, given: &Given) -> Done {
    let ports = control.ports_of(given.optional(0).unwrap_or("all"))?;
    control.session()?.stop(&ports);
    Ok(text("stopped"))
}

pub(in super::super) fn clear(control: &mut Control, _: &Given) -> Done {
    control.session()?.clear();
    Ok(text("all counts begin at zero"))
}

pub(in super::super) fn wait(asker: &mut Asker, given: &Given) -> Done {
    let longest = given.optional(0).map(seconds).transpose()?;
    let began = Instant::now();
    loop {
        let busy = asker
            .control
            .call(|control| Ok::<_, Problem>(control.session()?.is_under_way()))??;
        let late = longest.is_some_and(|longest| began.elapsed() >= longest);
        if !busy || late {
            let said = match busy {
                true => "not all is sent, or frames are still under way",
                false => "all is sent, and none is under way",
            };
            return Ok(Reply {
                data: json!({ "done": !busy }),
                ..text(said)
            });
        }
        asker.pause(LOOK)?;
    }
}

pub(in super::super) fn sleep(asker: &mut Asker, given: &Given) -> Done {
    asker.pause(seconds(given.get(0))?)?;
    Ok(Reply::default())
}

pub(in super::super) fn delay(asker: &mut Asker, given: &Given) -> Done {
    let time = number("the delay in milliseconds", given.get(0))?;
    asker.pause(Duration::from_millis(time))?;
    Ok(Reply::default())
}

pub(in super::super) fn arp(asker: &mut Asker, given: &Given) -> Done {
    let ports = given.get(0).to_owned();
    let ports = asker
        .control
        .call(move |control| control.ports_of(&ports))??;
    let Some(to) = given.optional(1).map(address).transpose()? else {
        let announce = move |control: &mut Control| {
            let mut ports = ports.iter();
            ports.try_for_each(|&port| control.session()?.arp(port, None).map_err(Problem::from))
        };
        asker.control.call(announce)??;
        return Ok(text("told all neighbours"));
    };
    let mut said = Vec::new();
    let mut data = Vec::new();
    for port in ports {
        let mac = resolve(asker, port, to)?;
        said.push(format!("port {port}: {to} is at {mac}"));
        data.push(json!({ "port": port, "ip": to, "mac": mac }));
    }
    Ok(Reply {
        data: data.into(),
        ..text(said.join("\n"))
    })
}

pub(in super::super) fn ping(asker: &mut Asker, given: &Given) -> Done {
    let name = given.get(0).to_owned();
    let ports = asker
        .control
        .call(move |control| control.ports_of(&name))??;
    let [port] = ports[..] else {
        return Err(Problem::new("several ports to ping from", "name one"));
    };
    let to = address(given.get(1))?;
    let count = given
        .optional(2)
        .map_or(Ok(1), |text| number("the number of echoes", text))?;
    if !(1..=ECHOES).contains(&count) {
        return Err(Problem::new(
            format!("{count} echoes to send"),
            format!("send 1 to {ECHOES}"),
        ));
    }
    resolve(asker, port, to)?;
    let mut said = Vec::new();
    let mut times = Vec::new();
    for at in 0..count {
        if at > 0 {
            asker.pause(BETWEEN)?;
        }
        let send =
            move |control: &mut Control| Ok::<_, Problem>(control.session()?.ping(port, to)?);
        let sequence = asker.control.call(send)??;
        let answered = until(asker, move |control| {
            Ok(control.session()?.echo(port, sequence))
        })?;
        said.push(match answered {
            Some(ns) => format!("echo {sequence}: {:.3} ms", ns as f64 / 1e6),
            None => format!("echo {sequence}: no answer"),
        });
        times.extend(answered);
    }
    said.push(format!("{} of {count} answered", times.len()));
    if times.is_empty() {
        return Err(Problem::new(
            format!("{to} did not answer {count} echoes from port {port}"),
            "see whether it answers others, and whether its way back leads here",
        ));
    }
    Ok(Reply {
        data: json!({ "sent": count, "answered": times.len(), "rtt_ns": times }),
        ..text(said.join("\n"))
    })
}

/// Asks where a neighbour is, and waits for the answer.
fn resolve(asker: &Asker, port: u16, to: IpAddr) -> Result<String, Problem> {
    let ask =
        move |control: &mut Control| Ok::<_, Problem>(control.session()?.arp(port, Some(to))?);
    asker.control.call(ask)??;
    let known = until(asker, move |control| {
        Ok(control.session()?.neighbour(port, to))
    })?;
    known.map(|mac| mac.to_string()).ok_or_else(|| {
        Problem::new(
            format!("nobody at port {port} says that it has {to}"),
            "see whether the link is up, and whether the address is of that network",
        )
    })
}

/// What `look` finds within [`PATIENCE`].
fn until<T: Send + 'static>(
    asker: &Asker,
    look: impl Fn(&mut Control) -> Result<Option<T>, Problem> + Clone + Send + 'static,
) -> Result<Option<T>, Problem> {
    let began = Instant::now();
    loop {
        let found = asker.control.call(look.clone())??;
        if found.is_some() || began.elapsed() >= PATIENCE {
            return Ok(found);
        }
        asker.pause(GLANCE)?;
    }
}

fn address(text: &str) -> Result<IpAddr, Problem> {
    text.parse().map_err(|_| {
        Problem::new(
            format!("`{text}` is no address"),
            "give an IPv4 or IPv6 address, such as 192.0.2.2",
        )
    })
}
