//! Commands for what is sent. Each changes all that it names, or nothing.

use serde_json::json;

use super::{plural, text};
use crate::control::names::unknown;
use crate::control::owner::Control;
use crate::control::pktgen;
use crate::control::protocol::{Problem, Reply};
use crate::control::table::{Done, Given};
use crate::session::PORT_KEYS;
use crate::stream::{KEYS, StreamSpec};
use crate::units::parse_speed;

/// Keys that apply to the port where a port is named: its streams share them.
const SHARED: [&str; 2] = ["rate", "count"];

/// The stream of a port without any: UDP frames of 64 bytes.
pub(in super::super) fn default_stream(port: impl ToString) -> StreamSpec {
    let mut spec = StreamSpec::default();
    spec.port = Some(port.to_string());
    spec
}

pub(in super::super) fn set(control: &mut Control, given: &Given) -> Done {
    let (key, value) = pktgen::set(given.get(1), given.get(2))
        .unwrap_or_else(|| (given.get(1).into(), given.get(2).into()));
    set_key(control, given.get(0), &key, &value)
}

fn set_key(control: &mut Control, ports: &str, key: &str, value: &str) -> Done {
    let ports = control.ports_of(ports)?;
    let of_stream = KEYS.iter().any(|known| known.key == key);
    let of_port = PORT_KEYS.iter().any(|known| known.0 == key);
    // A capture has a `speed` as well, as a factor.
    let is_speed = value == "none" || parse_speed(value).is_ok();
    if of_port && (!of_stream || SHARED.contains(&key) || is_speed) {
        control.set_ports(&ports, key, value, SHARED.contains(&key))?;
        return Ok(text(format!(
            "{key} {value} on {}",
            plural(ports.len(), "port")
        )));
    }
    if !of_stream {
        let of_ports = PORT_KEYS.iter().map(|known| known.0);
        let keys = KEYS.iter().map(|known| known.key).chain(of_ports);
        return Err(unknown("key", key, keys));
    }
    if key == "port" {
        return Err(Problem::new(
            "`port` says which port sends a stream",
            "write `stream set STREAMS port PORT`",
        ));
    }
    let specs = control.specs()?;
    let sends = |port: u16| specs.iter().any(|(_, of, _)| *of == port);
    // As in Pktgen, `set` gives a port without streams one.
    let mut new = Vec::new();
    for &port in ports.iter().filter(|&&port| !sends(port)) {
        let mut spec = default_stream(port);
        spec.set(key, value)?;
        new.push(spec);
    }
    let changed: Vec<u16> = specs
        .iter()
        .filter(|(_, port, _)| ports.contains(port))
        .map(|(id, _, _)| *id)
        .collect();
    let count = changed.len() + new.len();
    let added = control.add_streams(new)?;
    if let Err(problem) = control.set_streams(&changed, key, value) {
        control.remove_streams(&added)?;
        return Err(problem);
    }
    Ok(text(format!(
        "{key} {value} in {}",
        plural(count, "stream")
    )))
}

pub(in super::super) fn stream_set(control: &mut Control, given: &Given) -> Done {
    let wanted = control.streams_of(given.get(0))?;
    let (key, value) = pktgen::set(given.get(1), given.get(2))
        .unwrap_or_else(|| (given.get(1).into(), given.get(2).into()));
    control.set_streams(&wanted, &key, &value)?;
    Ok(text(format!(
        "{key} {value} in {}",
        plural(wanted.len(), "stream")
    )))
}

pub(in super::super) fn stream_add(control: &mut Control, given: &Given) -> Done {
    let spec: StreamSpec = given.get(0).parse()?;
    if let Some(name) = &spec.name {
        let taken = control
            .specs()?
            .iter()
            .any(|(_, _, other)| other.name.as_ref() == Some(name));
        if taken {
            return Err(Problem::new(
                format!("there is a stream `{name}` already"),
                format!("call it otherwise, or change that one: `stream set {name} KEY VALUE`"),
            ));
        }
    }
    let id = control.session()?.add_stream(spec)?;
    Ok(Reply {
        data: json!({ "id": id }),
        ..text(format!("stream {id}"))
    })
}

pub(in super::super) fn stream_remove(control: &mut Control, given: &Given) -> Done {
    let wanted = control.streams_of(given.get(0))?;
    control.remove_streams(&wanted)?;
    Ok(text(format!("{} less", plural(wanted.len(), "stream"))))
}

pub(in super::super) fn stream_enable(control: &mut Control, given: &Given) -> Done {
    switch(control, given, "on")
}

pub(in super::super) fn stream_disable(control: &mut Control, given: &Given) -> Done {
    switch(control, given, "off")
}

fn switch(control: &mut Control, given: &Given, value: &str) -> Done {
    let wanted = control.streams_of(given.get(0))?;
    control.set_streams(&wanted, "enabled", value)?;
    Ok(text(format!("{}: {value}", plural(wanted.len(), "stream"))))
}

pub(in super::super) fn stream_list(control: &mut Control, given: &Given) -> Done {
    let ports = control.ports_of(given.optional(0).unwrap_or("all"))?;
    let mut specs = control.specs()?;
    specs.retain(|(_, port, _)| ports.contains(port));
    let lines: Vec<String> = specs
        .iter()
        .map(|(id, port, spec)| format!("{id}: port {port}: {spec}"))
        .collect();
    let data = specs.iter().map(|(id, port, spec)| {
        json!({
            "id": id,
            "name": spec.name,
            "port": port,
            "enabled": spec.is_enabled(),
            "line": spec.to_string(),
        })
    });
    Ok(super::look::shown(lines.join("\n"), data.collect()))
}

pub(in super::super) fn range(control: &mut Control, given: &Given) -> Done {
    let (ports, key, value) = (given.get(0), given.get(1), given.get(2));
    let Some((key, parts)) = pktgen::range(key, value) else {
        return set_key(control, ports, key, value);
    };
    let numbers = control.ports_of(ports)?;
    let mut said = Vec::new();
    for port in numbers {
        let known = control.ranges.entry((port, key.clone())).or_default();
        let mut tried = known.clone();
        tried.add(parts)?;
        let field = tried.field();
        *known = tried;
        match field {
            Some(field) => said.push(set_key(control, &port.to_string(), &key, &field)?.text),
            None => said.push(format!("{key} of port {port} once min and max are known")),
        }
    }
    Ok(text(said.join("\n")))
}

pub(in super::super) fn random(control: &mut Control, given: &Given) -> Done {
    let value = match given.optional(2) {
        None => "random".into(),
        Some(range) if range.starts_with("random") => range.into(),
        Some(range) => format!("random:{range}"),
    };
    set_key(control, given.get(0), given.get(1), &value)
}

pub(in super::super) fn seq(control: &mut Control, given: &Given) -> Done {
    let number: u32 = super::number("the number of the template", given.get(0))?;
    let ports = control.ports_of(given.get(1))?;
    let mut new = Vec::new();
    let mut before = Vec::new();
    for &port in &ports {
        let mut spec: StreamSpec = given.optional(2).unwrap_or_default().parse()?;
        if spec.port.is_some() || spec.name.is_some() {
            return Err(Problem::new(
                "a template of a sequence has its port and name by its place",
                "leave out port= and name=",
            ));
        }
        // Names are unique in the session, so the port is part of them.
        let name = format!("seq{number}.{port}");
        let called = |(_, _, spec): &&(u16, u16, StreamSpec)| spec.name.as_ref() == Some(&name);
        before.extend(control.specs()?.iter().filter(called).map(|(id, _, _)| *id));
        spec.name = Some(name);
        spec.port = Some(port.to_string());
        new.push(spec);
    }
    // New ones are added first: where one is wrong, the old ones stay.
    control.add_streams(new)?;
    control.remove_streams(&before)?;
    Ok(text(format!(
        "seq{number} on {}",
        plural(ports.len(), "port")
    )))
}

pub(in super::super) fn pcap_load(control: &mut Control, given: &Given) -> Done {
    let ports = control.ports_of(given.get(0))?;
    let mut new = Vec::new();
    for &port in &ports {
        let mut spec: StreamSpec = given.optional(2).unwrap_or_default().parse()?;
        spec.set("pcap", given.get(1))?;
        spec.port = Some(port.to_string());
        new.push(spec);
    }
    let specs = control.specs()?;
    let before: Vec<u16> = specs
        .iter()
        .filter(|(_, port, _)| ports.contains(port))
        .map(|(id, _, _)| *id)
        .collect();
    // The capture first: where it cannot be read, the streams stay.
    control.add_streams(new)?;
    control.remove_streams(&before)?;
    Ok(text(format!(
        "{} on {}",
        given.get(1),
        plural(ports.len(), "port")
    )))
}

pub(in super::super) fn pcap_start(control: &mut Control, given: &Given) -> Done {
    let ports = control.ports_of(given.get(0))?;
    let specs = control.specs()?;
    for port in ports {
        let loaded = |(_, of, spec): &(u16, u16, StreamSpec)| *of == port && spec.pcap.is_some();
        if !specs.iter().any(loaded) {
            return Err(Problem::new(
                format!("port {port} has no capture to replay"),
                format!("load one: `pcap load {port} FILE`"),
            ));
        }
    }
    super::start(control, given)
}
