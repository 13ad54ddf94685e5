//! `save` and `load`.

use std::path::Path;

use super::{plural, text};
use crate::control::connection::Asker;
use crate::control::owner::Control;
use crate::control::protocol::Problem;
use crate::control::runfile::{PortEntry, RunFile, RunStanza, Script, is_toml};
use crate::control::table::{Done, Given, expanded, parse};
use linerate_appliance::config::{ConfigError, Wrong};
use linerate_appliance::error::Error;

/// How deep files may load files.
const DEEPEST: u32 = 8;

pub(in super::super) fn save(control: &mut Control, given: &Given) -> Done {
    let path = Path::new(given.get(0));
    let file = control.as_file()?;
    let said = if is_toml(path) {
        file.toml()?
    } else {
        file.commands()
    };
    std::fs::write(path, said).map_err(|source| Error::File {
        path: path.into(),
        source,
    })?;
    let streams = plural(file.stream.len(), "stream");
    let ports = plural(file.port.len(), "port");
    Ok(text(format!("{}: {ports}, {streams}", path.display())))
}

pub(in super::super) fn load(asker: &mut Asker, given: &Given) -> Done {
    let path = Path::new(given.get(0));
    match Script::read(path)? {
        Script::Run(file) => {
            let name = path.display().to_string();
            let commands = file.run.commands.clone();
            let streams = file.stream.len();
            asker
                .control
                .call(move |control| control.take_file(*file, name))??;
            run_lines(asker, path, (1..).zip(commands))?;
            Ok(text(format!(
                "{}: {}",
                path.display(),
                plural(streams, "stream")
            )))
        }
        Script::Commands(lines) => {
            let count = run_lines(asker, path, lines)?;
            Ok(text(format!(
                "{}: {}",
                path.display(),
                plural(count, "command")
            )))
        }
    }
}

/// Runs the commands of a file, one after the other, up to the first that fails; returns how many.
pub(in super::super) fn run_lines(
    asker: &mut Asker,
    path: &Path,
    lines: impl IntoIterator<Item = (usize, String)>,
) -> Result<usize, Problem> {
    if asker.depth == DEEPEST {
        return Err(Problem::new(
            format!(
                "{}: files that load files, more than {DEEPEST} deep",
                path.display()
            ),
            "take out the `load` that goes round in a circle",
        ));
    }
    let lines: Vec<(usize, String)> = lines.into_iter().collect();
    check(path, &lines)?;
    asker.depth += 1;
    let mut count = 0;
    let mut result = Ok(());
    for (number, line) in lines {
        match asker.command(&line) {
            Ok(_) => count += usize::from(!line.trim().is_empty()),
            Err(mut problem) => {
                problem.problem = format!("{}:{number}: {}", path.display(), problem.problem);
                result = Err(problem);
                break;
            }
        }
    }
    asker.depth -= 1;
    result.map(|()| count)
}

/// Checks that all lines are commands with their arguments, before the first is run; values are
/// checked when a command runs.
fn check(path: &Path, lines: &[(usize, String)]) -> Result<(), Problem> {
    let (mut errors, mut nearest) = (Vec::new(), Vec::new());
    for (number, line) in lines {
        let line = expanded(line);
        if let (false, Err(wrong)) = (line.is_empty(), parse(&line)) {
            nearest.extend(wrong.nearest);
            errors.push(ConfigError {
                line: *number,
                key: String::new(),
                problem: wrong.problem,
                legal: wrong.fix,
            });
        }
    }
    let mut all = Wrong::default();
    all.add(path.display(), errors);
    all.result().map_err(|error| Problem {
        nearest,
        ..error.into()
    })
}

impl Control {
    /// Ports and streams as a run file.
    pub(in super::super) fn as_file(&mut self) -> Result<RunFile, Problem> {
        let port = self.session()?.ports_asked().map(PortEntry::of).collect();
        let stream = self.specs()?.into_iter().map(|(_, _, spec)| spec).collect();
        let seed = Some(self.session()?.seed());
        Ok(RunFile {
            run: RunStanza {
                seed,
                ..RunStanza::default()
            },
            plan: None,
            port,
            stream,
        })
    }

    /// Takes the streams, and the keys of ports, of a run file for the same ports.
    fn take_file(&mut self, file: RunFile, name: String) -> Result<(), Problem> {
        let open: Vec<String> = self
            .session()?
            .ports_asked()
            .map(|port| port.spec.clone())
            .collect();
        let wanted: Vec<String> = file.port.iter().map(|port| port.spec.clone()).collect();
        if !wanted.is_empty() && wanted != open {
            return Err(Problem::new(
                format!(
                    "{name} is for ports {}, open are {}",
                    wanted.join(" "),
                    open.join(" ")
                ),
                format!("end this session and start `linerate pktgen -f {name}`"),
            ));
        }
        let before: Vec<u16> = self.specs()?.iter().map(|(id, _, _)| *id).collect();
        // New ones first: where one is wrong, those before stay as they are.
        self.add_streams(file.stream)?;
        self.remove_streams(&before)?;
        for (number, port) in (0u16..).zip(&file.port) {
            let keys = [
                ("speed", port.speed.clone()),
                ("rate", port.rate.map(|rate| rate.to_string())),
                ("count", port.count.map(|count| count.to_string())),
            ];
            for (key, value) in keys {
                if let Some(value) = value {
                    self.session()?.set_port(number, key, &value)?;
                }
            }
        }
        self.profile = name;
        Ok(())
    }
}
