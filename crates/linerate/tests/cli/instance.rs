//! A running command, and `linerate ctl` for it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// It is killed with this, unless it has ended.
pub(crate) struct Instance {
    child: Child,
    said: BufReader<ChildStderr>,
    socket: String,
}

impl Instance {
    /// Starts a command that listens at `socket`, and waits until it answers.
    pub(crate) fn start(args: &[&str], socket: &str) -> Self {
        let told = ["--period", "0", "--json", "--control", socket];
        Self::listening(&[args, &told].concat(), socket)
    }

    /// The same of a command that has been told of `socket`, and to speak JSON.
    pub(crate) fn listening(args: &[&str], socket: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_linerate"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        let mut instance = Self {
            child,
            said,
            socket: socket.into(),
        };
        while instance.ctl(&["show", "ports"]).is_err() {
            let ended = instance.child.try_wait().unwrap();
            assert!(ended.is_none(), "{args:?}: {ended:?}: {}", instance.heard());
            std::thread::sleep(Duration::from_millis(20));
        }
        instance
    }

    /// What `linerate ctl` prints: an answer, or on standard error why there is none.
    pub(crate) fn ctl(&self, what: &[&str]) -> Result<String, String> {
        self.ask("ctl", what)
    }

    /// What `linerate` prints when it is to do `verb` with this instance: an answer, or on standard
    /// error why there is none.
    pub(crate) fn ask(&self, verb: &str, what: &[&str]) -> Result<String, String> {
        let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
            .args([verb, "--socket", &self.socket])
            .args(what)
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        match output.status.success() {
            true => Ok(text(output.stdout)),
            false => Err(text(output.stderr)),
        }
    }

    /// What `linerate ctl show` answers.
    pub(crate) fn show(&self, words: &[&str]) -> Value {
        let text = self.ctl(&[&["show"], words, &["--json"]].concat()).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The page of metrics.
    pub(crate) fn metrics(&self) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(b"{\"method\": \"metrics\"}\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        let page = answer["result"]["text"].as_str();
        page.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Sends SIGHUP; returns the line that it prints.
    pub(crate) fn hang_up(&mut self) -> String {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-HUP", &id]).status().unwrap();
        assert!(sent.success());
        self.heard()
    }

    /// The next line on standard error.
    pub(crate) fn heard(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Ends it; all output must have been read; returns its totals.
    pub(crate) fn totals(mut self) -> Value {
        self.ctl(&["stop"]).unwrap();
        let mut stdout = self.child.stdout.take().unwrap();
        let text = std::io::read_to_string(&mut stdout).unwrap();
        assert_eq!(self.heard(), "");
        assert!(self.child.wait().unwrap().success());
        let values = serde_json::Deserializer::from_str(&text).into_iter();
        values.last().unwrap().unwrap()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and need not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
