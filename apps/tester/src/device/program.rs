//! Another program as the device. It ends when this process ends, even by a signal.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_core::env::PrivateFolder;

use super::UnderTest;
use linerate_appliance::error::Error;
use linerate_appliance::netns::Space;

/// How long a program may take to start.
const START: Duration = Duration::from_secs(30);
/// How long it may take to end before it is killed.
const STOP: Duration = Duration::from_secs(5);

/// Runs the arguments, and ends them at the end of standard input: the pipe from us, which closes
/// even if we are killed. $0 is the folder of the log, which is removed then. Ends when the program
/// ends. The program has the same input, since some end without one, and line-buffered output.
const SUPERVISOR: &str = "exec 3<&0; stdbuf -oL \"$@\" <&3 & program=$!; (cat <&3 >/dev/null; kill \
    -TERM $program; rm -rf \"$0\"; sleep 3; kill -KILL $program) 2>/dev/null & exec 3<&-; wait \
    $program";

/// The file in its folder that has its output.
const LOG: &str = "log";

/// A program at work.
pub(super) struct Program {
    name: String,
    supervisor: Child,
    /// Where its output is.
    folder: PrivateFolder,
    /// Where its interfaces are.
    _space: Option<Space>,
}

impl Program {
    /// Starts `program` and waits until its output holds `ready`.
    pub(super) fn start(
        program: &str,
        args: &[String],
        ready: &str,
        fix: &str,
        space: Option<Space>,
    ) -> Result<Self, Error> {
        if find(program).is_none() {
            return Err(Error::Usage {
                problem: format!("there is no `{program}` in PATH"),
                fix: fix.into(),
            });
        }
        let folder = PrivateFolder::new(program)?;
        let log = folder.join(LOG);
        let output = File::create_new(&log).map_err(|source| Error::File {
            path: log.clone(),
            source,
        })?;
        let failed = |source| Error::File {
            path: log.clone(),
            source,
        };
        let also = output.try_clone().map_err(failed)?;
        let mut command = Command::new("sh");
        command
            .args(["-c", SUPERVISOR])
            .arg(folder.path())
            .arg(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(also);
        let supervisor = match &space {
            Some(space) => space.within(|| Ok(command.spawn()?)),
            None => Ok(command.spawn()?),
        };
        let mut program = Self {
            name: program.into(),
            supervisor: supervisor?,
            folder,
            _space: space,
        };
        let deadline = Instant::now() + START;
        while !program.said().contains(ready) {
            program.check()?;
            if Instant::now() > deadline {
                return Err(program.trouble("did not start within 30 s"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(program)
    }

    fn said(&self) -> String {
        let bytes = std::fs::read(self.folder.join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn trouble(&self, what: &str) -> Error {
        let said = self.said();
        let lines: Vec<&str> = said.lines().rev().take(6).collect();
        let last: Vec<&str> = lines.into_iter().rev().collect();
        Error::Usage {
            problem: format!("`{}` {what}:\n{}", self.name, last.join("\n")),
            fix: "run as root, with enough memory; its own output is above".into(),
        }
    }
}

impl UnderTest for Program {
    fn processes(&self) -> Vec<u32> {
        super::stolen::children(self.supervisor.id())
    }

    fn check(&mut self) -> Result<(), Error> {
        match self.supervisor.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.trouble(&format!("has ended ({status})"))),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The end of its input makes the supervisor end the program.
        drop(self.supervisor.stdin.take());
        let deadline = Instant::now() + STOP;
        while matches!(self.supervisor.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
    }
}

/// Where a program is, looked for as a shell does.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sh(script: &str, ready: &str) -> Result<Program, Error> {
        Program::start("sh", &["-c".into(), script.into()], ready, "", None)
    }

    #[test]
    fn a_program_ends_with_its_value() {
        let program = sh("echo $$ ready; exec sleep 100", "ready").unwrap();
        let pid: u32 = program.said().split(' ').next().unwrap().parse().unwrap();
        let there = || PathBuf::from(format!("/proc/{pid}/cmdline")).exists();
        assert!(there());
        let log = program.folder.join(LOG);
        drop(program);
        // Its supervisor waits for it, so it has ended now.
        assert!(!there() && !log.exists());
    }

    #[test]
    fn one_that_fails_is_quoted_and_one_that_is_missing_says_how_to_get_it() {
        let error = sh("echo no such port; exit 3", "ready").err().unwrap();
        assert!(error.to_string().contains("no such port"), "{error}");
        let missing = Program::start("no-such-program", &[], "", "apt-get install it", None);
        let error = missing.err().unwrap();
        assert_eq!(error.fix().unwrap(), "apt-get install it");
    }
}
