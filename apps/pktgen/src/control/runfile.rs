//! Run files: ports, streams and the run itself in TOML, and the same as a file of commands. What
//! `save` writes, `load`, `-f` and `--headless` read.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use super::protocol::Problem;
use crate::session::{PORT_KEYS, PortAsked};
use crate::stream::StreamSpec;
use crate::units::{Rate, parse_speed};
use linerate_appliance::config::{self, At, PlanStanza, PortStanza, Section};
use linerate_appliance::error::Error;

/// A run file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct RunFile {
    #[serde(skip_serializing_if = "RunStanza::is_empty")]
    pub(crate) run: RunStanza,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<PlanStanza>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) port: Vec<PortEntry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stream: Vec<StreamSpec>,
}

/// `[run]`: duration, limits, and commands.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct RunStanza {
    /// Seconds to send; absent: until all counts are reached, or Ctrl-C.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration: Option<f64>,
    /// Of everything random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u64>,
    /// Whether to send at once; default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<bool>,
    /// Pktgen's `-m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) map: Option<String>,
    /// More lost frames per million sent make the run fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_loss_ppm: Option<f64>,
    /// More unsent frames per million due make the run invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_unsent_ppm: Option<f64>,
    /// Done after the ports are open, before anything is sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) commands: Vec<String>,
}

impl RunStanza {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn read(section: &Section<'_>) -> Self {
        let ppm = |key| {
            let share = section.decimal(key, "frames of a million, such as 10 or 0.5");
            share.map(|at| at.value)
        };
        let command = |text: &str| Ok(text.to_owned());
        let run = Self {
            duration: section.seconds("duration").map(|at| at.value.as_secs_f64()),
            seed: section
                .number("seed", 0..=i64::MAX as u64)
                .map(|at| at.value),
            start: section.switch("start").map(|at| at.value),
            map: (section.text("map", "a text such as \"[1:2].0\"")).map(|at| at.value),
            max_loss_ppm: ppm("max_loss_ppm"),
            max_unsent_ppm: ppm("max_unsent_ppm"),
            commands: section
                .texts("commands", "a list of commands, each a text", command)
                .into_iter()
                .map(|at| at.value)
                .collect(),
        };
        section.end();
        run
    }
}

/// `[[port]]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub spec: String,
    /// The line rate that percentages are of: `10G`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<String>,
    /// Shared by the port's streams that have none of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_queues: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_queues: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_burst: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_burst: Option<u16>,
    /// Addresses that the port answers for: `192.0.2.1/24`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addr: Vec<String>,
    /// Whether the port answers for its addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<bool>,
    /// How late a frame may be: `10ms`, `never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub give_up: Option<String>,
    /// Whether checksums of received frames are checked, and flows counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<bool>,
}

impl PortEntry {
    /// What `--port` says: `[NAME=]KIND:TARGET[,key=value...]`, where keys of the port may be among
    /// those of the driver.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let kind = text.find([':', ',']).unwrap_or(text.len());
        let (name, spec) = match text[..kind].split_once('=') {
            Some((name, _)) => (Some(name.to_owned()), &text[name.len() + 1..]),
            None => (None, text),
        };
        let mut entry = Self {
            name,
            ..Self::default()
        };
        let mut words = Vec::new();
        for (index, word) in spec.split(',').enumerate() {
            match word.split_once('=') {
                Some((key, value)) if index > 0 && entry.take(key, value)? => {}
                _ => words.push(word),
            }
        }
        entry.spec = words.join(",");
        Ok(entry)
    }

    /// One `[[port]]` of a run file, which comes after `others`.
    fn read(section: &Section<'_>, others: &[At<PortStanza>]) -> (At<PortStanza>, Self) {
        let port = config::port(section, others);
        let mut entry = Self {
            name: port.value.name.clone(),
            spec: port.value.spec.clone(),
            rx_queues: section.number("rx_queues", 1..=u16::MAX).map(|at| at.value),
            tx_queues: section.number("tx_queues", 1..=u16::MAX).map(|at| at.value),
            ..Self::default()
        };
        for &(key, form, help) in PORT_KEYS {
            let legal = format!("{form}: {help}");
            let Some(At { value, line }) = section.scalar(key, &legal) else {
                continue;
            };
            // Errors of keys in the specification are reported here, not when the port is opened.
            let taken = match key {
                "speed" => parse_speed(&value).map(|_| entry.speed = Some(value)),
                _ => PortAsked::default()
                    .set(key, &value)
                    .map(|()| _ = entry.take(key, &value)),
            };
            if let Err(problem) = taken {
                section.wrong(line, key, problem, legal);
            }
        }
        section.end();
        (port, entry)
    }

    /// Takes a key of the port; false for a key of the driver.
    fn take(&mut self, key: &str, value: &str) -> Result<bool, Error> {
        let bad = |problem: String| Error::Usage {
            problem: format!("{key}={value}: {problem}"),
            fix: "write such as speed=10G, rate=1Mpps, count=1000, addr=192.0.2.1/24, give_up=1s"
                .into(),
        };
        if key == "speed" {
            self.speed = Some(value.into());
            return Ok(true);
        }
        if !PORT_KEYS.iter().any(|known| known.0 == key) {
            return Ok(false);
        }
        let mut asked = PortAsked::default();
        asked.set(key, value).map_err(bad)?;
        let taken = Self::of(&asked);
        match key {
            "rate" => self.rate = taken.rate,
            "count" => self.count = taken.count,
            "addr" => self.addr.extend(taken.addr),
            "process" => self.process = taken.process,
            "give_up" => self.give_up = taken.give_up,
            "tx_burst" => self.tx_burst = taken.tx_burst,
            "rx_burst" => self.rx_burst = taken.rx_burst,
            _ => self.verify = taken.verify,
        }
        Ok(true)
    }

    /// Converts to the session's form.
    pub fn asked(&self) -> Result<PortAsked, Error> {
        let speed = self.speed.as_deref().map(parse_speed).transpose();
        let speed_bps = speed.map_err(|problem| Error::Usage {
            problem: format!("port {}: {problem}", self.spec),
            fix: "write speed = \"10G\"".into(),
        })?;
        let mut asked = PortAsked {
            name: self.name.clone(),
            spec: self.spec.clone(),
            speed_bps,
            rx_queues: self.rx_queues,
            tx_queues: self.tx_queues,
            rate: self.rate,
            count: self.count,
            tx_burst: self.tx_burst,
            rx_burst: self.rx_burst,
            process: self.process,
            verify: self.verify.unwrap_or(false),
            ..PortAsked::default()
        };
        let addrs = (!self.addr.is_empty()).then(|| self.addr.join(","));
        for (key, value) in [("addr", addrs), ("give_up", self.give_up.clone())] {
            let set = value.map(|value| asked.set(key, &value)).transpose();
            set.map_err(|problem| Error::Usage {
                problem: format!("port {}: {problem}", self.spec),
                fix: "write addr = [\"192.0.2.1/24\"], give_up = \"10ms\"".into(),
            })?;
        }
        Ok(asked)
    }

    /// Converts from the session's form.
    pub(crate) fn of(asked: &PortAsked) -> Self {
        Self {
            name: asked.name.clone(),
            spec: asked.spec.clone(),
            speed: asked.speed_bps.map(write_speed),
            rate: asked.rate,
            count: asked.count,
            rx_queues: asked.rx_queues,
            tx_queues: asked.tx_queues,
            rx_burst: asked.rx_burst,
            tx_burst: asked.tx_burst,
            addr: asked.addrs.iter().map(ToString::to_string).collect(),
            process: asked.process,
            give_up: asked.get("give_up"),
            verify: asked.verify.then_some(true),
        }
    }
}

/// `10G`, which [`parse_speed`] reads again.
fn write_speed(bps: f64) -> String {
    match bps {
        bps if bps >= 1e9 => format!("{}G", bps / 1e9),
        bps => format!("{}M", bps / 1e6),
    }
}

/// The content of a file, by its name: a run file where it ends in `.toml`, else lines of commands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Script {
    Run(Box<RunFile>),
    /// Each with its number.
    Commands(Vec<(usize, String)>),
}

impl Script {
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        if is_toml(path) {
            return Ok(Self::Run(Box::new(RunFile::read(path)?)));
        }
        let text = std::fs::read_to_string(path).map_err(|source| Error::File {
            path: path.into(),
            source,
        })?;
        let lines = text.lines().map(str::to_owned);
        Ok(Self::Commands((1..).zip(lines).collect()))
    }
}

/// Whether a file is a run file by its name.
pub(super) fn is_toml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "toml")
}

impl RunFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read; or all that is wrong with it.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        config::read(path, Self::of)
    }

    /// Reads what is right in a file; what is wrong is collected as errors.
    pub(crate) fn of(file: &Section<'_>) -> Self {
        let run = file.table("run", "run", "a table: [run]");
        let (mut stanzas, mut port) = (Vec::new(), Vec::new());
        for section in file.tables("port", "tables: [[port]] with name and spec") {
            let (stanza, entry) = PortEntry::read(&section, &stanzas);
            stanzas.push(stanza);
            port.push(entry);
        }
        let streams = file.tables("stream", "tables: [[stream]]");
        let plan = config::plan(file);
        let is_default = plan == PlanStanza::default();
        let all = Self {
            run: run.map_or_else(RunStanza::default, |run| RunStanza::read(&run)),
            plan: (!is_default).then_some(plan),
            port,
            stream: streams.iter().map(StreamSpec::read).collect(),
        };
        file.end();
        all
    }

    /// As a run file.
    pub(crate) fn toml(&self) -> Result<String, Problem> {
        toml::to_string(self).map_err(|error| {
            Problem::new(
                format!("this cannot be written as TOML: {error}"),
                "save it as commands",
            )
        })
    }

    /// As commands, for a session that has these ports open.
    pub(crate) fn commands(&self) -> String {
        let mut text =
            String::from("# linerate pktgen, commands; load with -f FILE or `load FILE`\n");
        for (number, port) in self.port.iter().enumerate() {
            let _ = writeln!(text, "# port {number}: {}", port.spec);
        }
        text.push_str("stream remove all\n");
        for (number, port) in self.port.iter().enumerate() {
            // It came from a session, so it is valid.
            let asked = port.asked().unwrap_or_default();
            for (key, _, _) in PORT_KEYS {
                if let Some(value) = asked.get(key) {
                    let _ = writeln!(text, "set {number} {key} {value}");
                }
            }
        }
        for stream in &self.stream {
            let _ = writeln!(text, "stream add {stream}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> RunFile {
        RunFile {
            run: RunStanza {
                duration: Some(2.5),
                seed: Some(7),
                start: Some(false),
                map: Some("[1:2].0".into()),
                max_loss_ppm: Some(10.0),
                max_unsent_ppm: Some(0.0),
                commands: vec!["arp 0".into()],
            },
            plan: Some(PlanStanza {
                io: Some("1-2".into()),
                ..PlanStanza::default()
            }),
            port: vec![
                PortEntry::parse("wan=ring:a,loop=on,speed=10G,rate=99%,count=5").unwrap(),
                PortEntry::parse("ring:b").unwrap(),
                PortEntry::parse(
                    "ring:c,addr=192.0.2.1/24,addr=2001:db8::1/64,process=off,give_up=never,\
                     rx_burst=8,tx_burst=4,verify=on",
                )
                .unwrap(),
            ],
            stream: vec![
                "udp size=imix dst=198.19.0.1-198.19.0.9".parse().unwrap(),
                "tcp name=\"two words\" flags=S enabled=off"
                    .parse()
                    .unwrap(),
            ],
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for file in [full(), RunFile::default()] {
            let text = file.toml().unwrap();
            let parsed = config::parse(&text, RunFile::of);
            assert_eq!((parsed.value, parsed.errors), (file, Vec::new()), "{text}");
        }
    }

    #[test]
    fn ports_keep_the_drivers_keys_and_give_up_their_own() {
        let port = &full().port[0];
        assert_eq!(port.spec, "ring:a,loop=on");
        assert_eq!(port.name.as_deref(), Some("wan"));
        assert_eq!(port.asked().unwrap().speed_bps, Some(10e9));
        assert_eq!(PortEntry::of(&port.asked().unwrap()), *port);
        let file = PortEntry::parse("pcap:rx=in.pcap,tx=out.pcap").unwrap();
        assert_eq!(
            (file.name, file.spec.as_str()),
            (None, "pcap:rx=in.pcap,tx=out.pcap")
        );
        let plain = PortEntry::parse("null,size=60").unwrap();
        assert_eq!((plain.name, plain.spec.as_str()), (None, "null,size=60"));
        assert!(PortEntry::parse("ring:a,rate=fast").is_err());
        for bad in [
            "addr=224.0.0.1",
            "give_up=soon",
            "tx_burst=65",
            "rx_burst=0",
            "verify=maybe",
        ] {
            assert!(PortEntry::parse(&format!("ring:a,{bad}")).is_err(), "{bad}");
        }
        let port = &full().port[2];
        assert_eq!(port.addr, ["192.0.2.1/24", "2001:db8::1/64"]);
        assert_eq!(port.spec, "ring:c");
        assert_eq!(PortEntry::of(&port.asked().unwrap()), *port);
        let saved = full().commands();
        for line in [
            "set 2 addr 192.0.2.1/24,2001:db8::1/64",
            "set 2 give_up never",
            "set 2 process off",
        ] {
            assert!(saved.contains(line), "{saved}");
        }
        let speed = PortEntry::parse("ring:a,speed=fast").unwrap();
        assert!(speed.asked().is_err());
    }

    #[test]
    fn all_errors_of_a_file_are_reported_with_line_key_and_legal_values() {
        let text = "[run]\nlength = 3\nduration = -1\n[[port]]\nspec = \"ring:a\"\n\
                    sped = \"10G\"\nrate = \"fast\"\naddr = [\"224.0.0.1\"]\n\
                    [[stream]]\nsise = 64\nsize = 1\nproto = true\n[pport]\n";
        let errors = config::parse(text, RunFile::of).errors;
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let begins = [
            "2: run.length: there is no such key; one of duration, seed",
            "3: run.duration: this is no such number; a number of seconds",
            "6: port.sped: there is no such key; perhaps speed or spec",
            "7: port.rate: ",
            "8: port.addr: ",
            "10: stream.sise: there is no such key; perhaps size",
            "11: stream.size: size=1",
            "12: stream.proto: proto=on",
            "13: pport: there is no such key; perhaps port",
        ];
        assert_eq!(told.len(), begins.len(), "{told:#?}");
        for (told, begin) in told.iter().zip(begins) {
            assert!(told.starts_with(begin), "{told}\nnot\n{begin}");
        }
    }
}
