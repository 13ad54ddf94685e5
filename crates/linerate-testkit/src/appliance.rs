//! An appliance that runs beside a test, asked by its socket for control.

use std::process::{Command, Output};

use serde_json::Value;

use crate::netns::Namespace;
use crate::process::{Running, interrupt};
use crate::{cli, wait};

/// A `linerate` that runs from a file with a socket for control.
pub struct Appliance {
    /// The program.
    pub linerate: Running,
    socket: String,
}

impl Appliance {
    /// Starts `linerate` with these words in a namespace, and waits until it answers at the socket
    /// that its file names.
    pub fn start(namespace: &Namespace, words: &str, socket: &str) -> Self {
        let mut linerate = namespace.start(cli::binary(), words);
        linerate.wait("the socket for control", |_, _| {
            std::fs::exists(socket).unwrap()
        });
        let socket = socket.to_owned();
        let appliance = Self { linerate, socket };
        wait("an answer", || appliance.show("ports").is_some());
        appliance
    }

    /// What `ctl show` says of something, as JSON.
    pub fn output(&self, what: &str) -> Output {
        let mut command = Command::new(cli::binary());
        command.args(["ctl", "--socket", &self.socket, "show", what, "--json"]);
        command.output().unwrap()
    }

    /// The rows of something to show; `None` where there was no answer.
    pub fn show(&self, what: &str) -> Option<Vec<Value>> {
        let value: Value = serde_json::from_slice(&self.output(what).stdout).ok()?;
        value["rows"].as_array().cloned()
    }

    /// The rows of something that there is.
    #[track_caller]
    pub fn rows(&self, what: &str) -> Vec<Value> {
        let rows = self.show(what);
        rows.unwrap_or_else(|| panic!("no rows of {what}: {:?}", self.output(what)))
    }

    /// What an application has counted, on all lcores.
    #[track_caller]
    pub fn count(&self, app: &str, name: &str) -> u64 {
        self.counts(app, name).iter().sum()
    }

    /// The same by lcore.
    #[track_caller]
    pub fn counts(&self, app: &str, name: &str) -> Vec<u64> {
        let rows = self.rows("apps");
        let of = rows
            .iter()
            .filter(|row| row["app"] == app && row["counts"] == name);
        let values: Vec<u64> = of.map(|row| row["value"].as_u64().unwrap()).collect();
        assert!(!values.is_empty(), "{app} counts no {name}: {rows:?}");
        values
    }

    /// Ends it, which ran with `--json`: it has complained of nothing, and each packet and slot is
    /// accounted for.
    #[track_caller]
    pub fn close(mut self) {
        interrupt(&self.linerate);
        let status = self.linerate.end();
        let complaint = self.linerate.stderr.text();
        assert!(
            status.success() && complaint.is_empty(),
            "{status}: {complaint}"
        );
        let last = self.linerate.stdout.all().pop().unwrap();
        let totals: Value = serde_json::from_str(&last).unwrap();
        assert_eq!(totals["ledger"]["even"], true, "{totals}");
        assert_eq!(totals["ledger"]["missing_slots"], 0, "{totals}");
    }
}
