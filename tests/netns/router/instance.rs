//! A running `linerate router`, and `linerate ctl`.

use linerate_testkit::Scratch;
use linerate_testkit::cli::binary;
use linerate_testkit::netns::Namespace;
use linerate_testkit::process::Running;
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Output};

/// A running router.
pub(super) struct Router {
    running: Running,
    socket: String,
    file: String,
}

impl Router {
    /// Starts it in a namespace, and waits until it forwards. Lines of the configuration before its
    /// first table belong to `[router]`.
    #[track_caller]
    pub(super) fn start(namespace: &Namespace, scratch: &Scratch, config: &str) -> Self {
        let mut router = Self::begin(namespace, scratch, config);
        router.forwards();
        router
    }

    /// Starts another appliance that is a router with more, by the name of its command.
    #[track_caller]
    pub(super) fn start_as(
        name: &str,
        namespace: &Namespace,
        scratch: &Scratch,
        config: &str,
    ) -> Self {
        let mut command = namespace.command(binary());
        let mut router = Self::begin_as(name, &mut command, scratch, config);
        router.forwards();
        router
    }

    /// Starts it, and waits for nothing.
    #[track_caller]
    pub(super) fn begin(namespace: &Namespace, scratch: &Scratch, config: &str) -> Self {
        Self::begin_by(&mut namespace.command(binary()), scratch, config)
    }

    /// Starts it by a command whose last argument is the program.
    #[track_caller]
    pub(super) fn begin_by(command: &mut Command, scratch: &Scratch, config: &str) -> Self {
        Self::begin_as("router", command, scratch, config)
    }

    /// The same of another appliance, by the name of its command.
    #[track_caller]
    pub(super) fn begin_as(
        name: &str,
        command: &mut Command,
        scratch: &Scratch,
        config: &str,
    ) -> Self {
        let (file, socket) = (scratch.file("router.toml"), scratch.file("router.sock"));
        write(&file, &socket, config);
        let running = Running::start(command.args([name, &file, "--json"]));
        Self {
            running,
            socket,
            file,
        }
    }

    /// Waits until it forwards.
    #[track_caller]
    pub(super) fn forwards(&mut self) {
        self.running.wait("the router to forward", |stdout, _| {
            !stdout.all().is_empty()
        });
    }

    /// What `linerate ctl` answers to these words.
    pub(super) fn try_ctl(&self, words: &str) -> Output {
        let mut command = Command::new(binary());
        command.args(["ctl", "--socket", &self.socket]);
        command.args(words.split_whitespace()).output().unwrap()
    }

    /// The same, which must succeed.
    #[track_caller]
    pub(super) fn ctl(&self, words: &str) -> String {
        let output = self.try_ctl(words);
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            output.status.success(),
            "ctl {words}: {stderr}{stdout}\nrouter: {}",
            self.running.stderr.text()
        );
        stdout.into_owned()
    }

    /// `ctl show` of something, as JSON.
    #[track_caller]
    pub(super) fn show(&self, what: &str) -> Value {
        let text = self.ctl(&format!("show {what} --json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("show {what}: {error}: {text}"))
    }

    /// Waits until `ctl show` of something says something.
    #[track_caller]
    pub(super) fn shows(&mut self, what: &str, mut holds: impl FnMut(&str) -> bool) -> String {
        let mut text = String::new();
        let start = std::time::Instant::now();
        while !holds(&text) {
            assert!(
                start.elapsed() < linerate_testkit::PATIENCE,
                "`ctl show {what}` never says so: {text}"
            );
            assert!(self.running.is_alive(), "{}", self.running.stderr.text());
            std::thread::sleep(std::time::Duration::from_millis(20));
            text = self.ctl(&format!("show {what}"));
        }
        text
    }

    /// Waits until it has printed this text on standard error.
    #[track_caller]
    pub(super) fn says(&mut self, words: &str) {
        let what = format!("the router to say `{words}`");
        self.running
            .wait(&what, |_, stderr| stderr.text().contains(words));
    }

    /// How many packets have been dropped for reasons whose names hold a word.
    #[track_caller]
    pub(super) fn dropped(&self, word: &str) -> u64 {
        sum(&self.show("drops"), word, false)
    }

    /// The sum of all numbers of that name in `ctl show` of something.
    #[track_caller]
    pub(super) fn counted(&self, what: &str, name: &str) -> u64 {
        sum(&self.show(what), name, false)
    }

    /// Writes another configuration, without a reload.
    pub(super) fn rewrite(&self, config: &str) {
        write(&self.file, &self.socket, config);
    }

    /// Gives it another configuration.
    #[track_caller]
    pub(super) fn reload(&self, config: &str) {
        self.rewrite(config);
        self.ctl("reload");
    }

    /// Gives it another configuration, which it may refuse: the answer.
    pub(super) fn try_reload(&self, config: &str) -> Output {
        self.rewrite(config);
        self.try_ctl("reload")
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    /// Its standard error so far.
    pub(super) fn said(&self) -> String {
        self.running.stderr.text()
    }

    /// The process itself.
    pub(super) fn running(&mut self) -> &mut Running {
        &mut self.running
    }

    pub(super) fn is_alive(&mut self) -> bool {
        self.running.is_alive()
    }

    /// Its socket for `linerate ctl` and `linerate capture`.
    pub(super) fn socket(&self) -> &str {
        &self.socket
    }

    /// Kills it with SIGKILL, so that it cannot clean up.
    pub(super) fn kill(self) {
        drop(self);
    }

    /// Ends it as a user would, and returns its last line.
    #[track_caller]
    pub(super) fn stop(self) -> Value {
        self.running.signal(Signal::INT);
        self.ended()
    }

    /// Waits for its end, and returns its last line.
    #[track_caller]
    pub(super) fn ended(mut self) -> Value {
        let status = self.running.end();
        let stderr = self.running.stderr.text();
        assert!(status.success(), "{status}: {stderr}");
        let lines = self.running.stdout.all();
        let last = lines.last().expect("a line of JSON");
        let totals: Value =
            serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {last}"));
        // In every test each lost packet must be accounted for.
        let ledger = &totals["ledger"];
        assert_eq!(ledger["even"], true, "{ledger}: {stderr}");
        totals
    }
}

/// Writes the file, with common settings in front: allocating memory for a million routes would
/// take longer than most tests.
fn write(file: &str, socket: &str, config: &str) {
    let plan = match config.contains("[plan]") {
        true => "",
        false => "[plan]\nio = \"0\"\n\n",
    };
    let mut head = format!("{plan}[router]\ncontrol = \"{socket}\"\nperiod = 0.5\n");
    for (key, most) in [("routes", 20_000), ("neighbours", 4000)] {
        if !config.contains(&format!("{key} = ")) {
            head += &format!("{key} = {most}\n");
        }
    }
    std::fs::write(file, head + config).unwrap();
}

/// The sum of all numbers below a name that contains a word, or beside such a name as its value.
fn sum(value: &Value, word: &str, named: bool) -> u64 {
    match value {
        Value::Number(number) if named => number.as_u64().unwrap_or(0),
        Value::Array(items) => items.iter().map(|item| sum(item, word, named)).sum(),
        Value::Object(fields) => {
            let here = named
                || fields
                    .values()
                    .any(|field| field.as_str().is_some_and(|text| text.contains(word)));
            let field =
                |(key, field): (&String, &Value)| sum(field, word, here || key.contains(word));
            fields.iter().map(field).sum()
        }
        _ => 0,
    }
}

/// A port of the kernel's interface of the same name, with one interface.
pub(super) fn port(kind: &str, name: &str, addresses: &[&str], more: &str) -> String {
    format!(
        "\n[[port]]\nname = \"{name}\"\nspec = \"{kind}:{name}\"\n\n\
         [[interface]]\nname = \"{name}\"\nport = \"{name}\"\naddresses = {addresses:?}\n{more}\n"
    )
}

/// The router of a [`super::site::Site`]: ports `a` and `b`, with more keys for their interfaces.
pub(super) fn two_ports(kind: &str, more_a: &str, more_b: &str) -> String {
    port(kind, "a", &["10.1.0.1/24", "fd00:1::1/64"], more_a)
        + &port(kind, "b", &["10.2.0.1/24", "fd00:2::1/64"], more_b)
}
