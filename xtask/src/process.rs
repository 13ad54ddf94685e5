//! Other programs, run with one line of code and errors that name them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::error::TaskError;

/// The workspace's root folder; xtask is always run from its own checkout.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// The folder cargo builds into (`CARGO_TARGET_DIR` or `target`).
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// `cargo` of the toolchain that runs us, in the workspace's root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// The same command, which gives way to whatever else wants to run.
pub(crate) fn nice(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program());
    nice.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice
}

/// The first executable called `program` in PATH or the places root's tools live in.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// True for root; the privileged steps need it.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Longer command lines are cut in messages.
const SPELLED_MAX: usize = 400;

/// A command as a user would type it, for messages.
pub(crate) fn spelled(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    if let Some(name) = Path::new(&line).file_name() {
        line = name.to_string_lossy().into_owned();
    }
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    if let Some((cut, _)) = line.char_indices().nth(SPELLED_MAX) {
        line.truncate(cut);
        line.push_str("...");
    }
    line
}

/// Runs to the end with our own terminal; an exit code other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<(), TaskError> {
    let status = command.status().map_err(|source| TaskError::Start {
        program: spelled(command),
        source,
    })?;
    if status.success() {
        return Ok(());
    }
    Err(TaskError::Failed {
        command: spelled(command),
        status,
        said: String::new(),
    })
}

/// Runs to the end, whatever the exit code, and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<Output, TaskError> {
    command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| TaskError::Start {
            program: spelled(command),
            source,
        })
}

/// Runs to the end and returns its standard output; an exit code other than 0 is an error that
/// quotes it.
pub(crate) fn read(command: &mut Command) -> Result<String, TaskError> {
    let output = output(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stdout));
    Err(TaskError::Failed {
        command: spelled(command),
        status: output.status,
        said: last_lines(&said, 8),
    })
}

/// The last `count` lines of `text`, each on an indented line of its own.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..]
        .iter()
        .map(|line| format!("\n    {line}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `nice` without arguments prints its own niceness.
    #[test]
    fn a_nice_command_is_the_same_but_gives_way() {
        let mut command = Command::new("sh");
        command.args(["-c", "nice; echo \"$GIVEN ${TAKEN-unset}\"; pwd"]);
        command.env("GIVEN", "here").env_remove("TAKEN");
        let said = read(&mut nice(command.current_dir("/"))).expect("it runs");
        assert_eq!(said, "19\nhere unset\n/\n");
    }
}
