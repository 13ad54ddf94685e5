//! The screen of `linerate pktgen` in a real terminal: tmux runs it on a server of its own, types,
//! and captures what is seen. Skipped, saying so, where there is no tmux.
//!
//! What depends on time is masked before it is compared with `screens/`; what was sent and received
//! is not. `UPDATE_SCREENS=1` writes those files anew.

use linerate_core::env::PrivateFolder;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Two ports that hear themselves: 1000 and 500 frames, then nothing more to send.
const SESSION: &[&str] = &[
    "-p",
    "ring:a,loop=on",
    "-p",
    "ring:b,loop=on",
    "-s",
    "name=small port=0 size=64 count=1000 rate=max",
    "-s",
    "name=large port=1 size=512 dport=1000-1999 count=500 rate=max",
    "--seed",
    "7",
    "--no-start",
];

/// Longest that anything is waited for; far more than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with one program in it. Dropping it ends both.
struct Terminal {
    /// Name of the tmux server, and folder for all that is written.
    name: String,
    home: PrivateFolder,
}

impl Terminal {
    /// None where there is no tmux.
    fn start(test: &str, width: u16, height: u16, args: &[&str]) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            linerate_testkit::skip("tmux is not installed; `apt-get install tmux` has it");
            return None;
        }
        let name = format!("linerate-{}-{test}", std::process::id());
        let home = PrivateFolder::new(test).unwrap();
        let quoted: Vec<String> = args.iter().map(|word| format!("'{word}'")).collect();
        // The shell stays, so that what is printed at the end can be read.
        let line = format!(
            "'{}' pktgen {}; echo \"exit code $?\"; read -r line",
            env!("CARGO_BIN_EXE_linerate"),
            quoted.join(" ")
        );
        let terminal = Self { name, home };
        let size = [width.to_string(), height.to_string()];
        let state = terminal.home.path().to_string_lossy().into_owned();
        let output = Command::new("tmux")
            .args([
                "-u",
                "-L",
                &terminal.name,
                "-f",
                "/dev/null",
                "new-session",
                "-d",
            ])
            .args(["-x", &size[0], "-y", &size[1], "sh", "-c", &line])
            .env("HOME", &state)
            // The server's socket is removed with the folder.
            .env("TMUX_TMPDIR", &state)
            .env("XDG_STATE_HOME", &state)
            .env("LC_ALL", "C.UTF-8")
            .env_remove("NO_COLOR")
            .env_remove("TMUX")
            .output()
            .unwrap();
        assert!(output.status.success(), "tmux: {output:?}");
        Some(terminal)
    }

    fn tmux(&self, args: &[&str]) -> Output {
        Command::new("tmux")
            .env("TMUX_TMPDIR", self.home.path())
            .args(["-u", "-L", &self.name])
            .args(args)
            .output()
            .unwrap()
    }

    fn lines(&self) -> Vec<String> {
        let output = self.tmux(&["capture-pane", "-p"]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    fn key(&self, key: &str) {
        assert!(self.tmux(&["send-keys", key]).status.success());
    }

    fn type_in(&self, text: &str) {
        assert!(self.tmux(&["send-keys", "-l", text]).status.success());
    }

    /// Types a command, sees it, and gives it.
    fn command(&self, text: &str) {
        self.type_in(text);
        let wanted = format!("linerate> {text}");
        self.wait(&wanted, |lines| lines.contains(&wanted));
        self.key("Enter");
    }

    /// Leaves a command, and candidates before it. Two escapes that are read at once are one key,
    /// and so is one with what follows it: the prompt is seen empty before anything else is typed.
    fn leave(&self) {
        let deadline = Instant::now() + PATIENCE;
        let is_empty = || self.lines().last().is_some_and(|line| line == "linerate>");
        while !is_empty() {
            assert!(Instant::now() < deadline, "{}", self.lines().join("\n"));
            self.key("Escape");
            let again = Instant::now() + Duration::from_secs(1);
            while !is_empty() && Instant::now() < again {
                std::thread::sleep(Duration::from_millis(30));
            }
        }
    }

    fn resize(&self, width: u16, height: u16) {
        let (width, height) = (width.to_string(), height.to_string());
        let output = self.tmux(&["resize-window", "-x", &width, "-y", &height]);
        assert!(output.status.success(), "{output:?}");
    }

    /// Waits until what is seen is as `wanted` says.
    fn wait(&self, what: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lines = self.lines();
            if wanted(&lines) {
                return lines;
            }
            assert!(
                Instant::now() < deadline,
                "no {what:?}; seen is\n{}",
                lines.join("\n")
            );
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Waits for a text anywhere.
    fn see(&self, text: &str) -> Vec<String> {
        self.wait(text, |lines| lines.iter().any(|line| line.contains(text)))
    }

    /// Waits until the screen, masked, is as `screens/NAME.txt` says. What is drawn may still be on
    /// its way.
    fn compare(&self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/cli/screens")
            .join(format!("{name}.txt"));
        let masked = |lines: &[String]| mask(lines).join("\n") + "\n";
        if std::env::var_os("UPDATE_SCREENS").is_some() {
            // Time to settle; this is done by hand only, and looked at.
            std::thread::sleep(Duration::from_secs(1));
            std::fs::write(&path, masked(&self.lines())).unwrap();
        }
        let wanted = std::fs::read_to_string(&path).unwrap_or_default();
        let what = format!(
            "{} (UPDATE_SCREENS=1 rewrites it)\n{wanted}",
            path.display()
        );
        self.wait(&what, |lines| masked(lines) == wanted);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Its own server only; it may have ended by itself.
        let _ = self.tmux(&["kill-server"]);
    }
}

/// Rows whose numbers are the same in each run, once all is sent.
const COUNTED: &[&str] = &[
    "  64 Bytes",
    "  512-1023 Bytes",
    "Runts/Jumbos",
    "Errors Rx/Tx",
    "Total Rx Pkts",
    "      Tx Pkts",
    "      Rx/Tx MB",
    "Tx Count/Rate",
    "Size/Tx:Rx Burst",
    "Src/Dest Port",
    "Pkt Type:VLAN ID",
    "Dst ",
    "Src ",
    "Test Pkts Rx",
    "Earlier Pkts Rx",
    "Foreign Pkts Rx",
    "Lost ",
    "Reordered Pkts",
    "Duplicate Pkts",
    "Sent ",
    "Received Pkts",
    "  Test Pkts",
    "  Foreign Pkts",
    "       samples",
];

/// What is not [`COUNTED`] has `#` for each number, at its right end: numbers are aligned there,
/// and so the picture does not depend on how many digits one has.
fn mask(lines: &[String]) -> Vec<String> {
    let mut masked = Vec::new();
    for (nth, line) in lines.iter().enumerate() {
        // Rates come and go in the summary, and the latency as there is room; losses stay.
        if let (1, Some((_, faults))) = (nth, line.split_once("  lost ")) {
            let end = faults.find("  p99").or(faults.find("  latency"));
            masked.push(format!("lost {}", &faults[..end.unwrap_or(faults.len())]));
            continue;
        }
        if COUNTED.iter().any(|label| line.starts_with(label)) {
            masked.push(line.clone());
            continue;
        }
        let mut text = String::new();
        let mut word = String::new();
        for letter in line.chars().chain([' ']) {
            match letter {
                ' ' => {
                    text.push_str(&mask_word(&word));
                    word.clear();
                    text.push(' ');
                }
                letter => word.push(letter),
            }
        }
        // The mark in the title turns.
        if nth == 0 && text.starts_with(['\\', '|', '/', '-']) {
            text.replace_range(..1, "#");
        }
        masked.push(text.trim_end().to_owned());
    }
    masked
}

fn mask_word(word: &str) -> String {
    let part = |part: &str| {
        let number = part.trim_start_matches(['!', '-']);
        let is_number = number.starts_with(|letter: char| letter.is_ascii_digit())
            && number
                .chars()
                .all(|letter| letter.is_ascii_digit() || ",.:".contains(letter));
        is_number.then(|| "#".to_owned())
    };
    let parts: Option<Vec<String>> = word.split('/').map(part).collect();
    match parts {
        Some(parts) => format!("{:>1$}", parts.join("/"), word.chars().count()),
        None => word.into(),
    }
}

#[test]
fn masks_hide_digits_and_keep_columns() {
    let masked = |line: &str| mask(&[String::new(), line.into()])[1].clone();
    assert_eq!(
        masked("Rate   1,234.5/22   !7 a1 -3"),
        "Rate          #/#    # a1  #"
    );
    assert_eq!(masked("Lost Pkts   12"), "Lost Pkts   12");
    assert_eq!(masked("p50 - ring:a 00:00:12"), "p50 - ring:a        #");
    let top = mask(&["| Ports", "Tx 7 pps  lost 2  unsent 0  p99 12.3 us"].map(String::from));
    assert_eq!(top, ["# Ports", "lost 2  unsent 0"]);
}

/// Starts to send, and waits until all is sent and received.
fn send_all(terminal: &Terminal) {
    terminal.command("start all");
    terminal.wait("1,500 frames sent and received", |lines| {
        let row = |label: &str| {
            let mut rows = lines.iter().filter(|line| line.starts_with(label));
            rows.next().is_some_and(|line| line.ends_with(" 1,500"))
        };
        row("Total Rx Pkts") && row("      Tx Pkts")
    });
}

#[test]
fn pages_at_80x24_are_as_committed() {
    let Some(terminal) = Terminal::start("small", 80, 24, &with_screen(SESSION)) else {
        return;
    };
    terminal.see("<main>");
    send_all(&terminal);
    terminal.command("page streams");
    terminal.see("<streams>");
    terminal.key("F1");
    terminal.see("<main>");
    terminal.key("Escape");
    terminal.compare("main-80x24");
    terminal.key("End");
    terminal.see(" ^");
    terminal.compare("main-end-80x24");
    for (key, page) in [("F2", "streams"), ("F3", "range"), ("F10", "path")] {
        terminal.key(key);
        terminal.see(&format!("<{page}>"));
        terminal.compare(&format!("{page}-80x24"));
    }
    // Each page is shown in its turn.
    for page in [
        "xstats", "log", "help", "main", "streams", "range", "seq", "random", "pcap",
    ] {
        terminal.key("Tab");
        terminal.see(&format!("<{page}>"));
    }
    for page in ["latency", "queues", "cpu", "path"] {
        terminal.key("Tab");
        terminal.see(&format!("<{page}>"));
        if page == "latency" {
            terminal.see("1,000 frames by latency");
        }
    }
    terminal.key("q");
    let lines = terminal.see("exit code 0");
    assert!(
        !lines.iter().any(|line| line.contains("<path>")),
        "{lines:?}"
    );
}

#[test]
fn the_main_page_at_200x60_is_as_committed() {
    let Some(terminal) = Terminal::start("large", 200, 60, &with_screen(SESSION)) else {
        return;
    };
    terminal.see("<main>");
    send_all(&terminal);
    terminal.key("Escape");
    terminal.compare("main-200x60");
    terminal.key("C-c");
    terminal.see("exit code 0");
}

#[test]
fn commands_are_completed_corrected_and_remembered() {
    let Some(terminal) = Terminal::start("type", 80, 24, &with_screen(SESSION)) else {
        return;
    };
    terminal.see("<main>");
    terminal.command("strat all");
    let lines = terminal.see("error: ");
    let text = lines.join("\n");
    assert!(text.contains("start"), "{text}");
    terminal.type_in("sto");
    terminal.see("linerate> sto");
    terminal.key("Tab");
    terminal.see("linerate> stop");
    terminal.leave();
    terminal.type_in(":");
    terminal.key("Up");
    terminal.see("linerate> strat all");
    terminal.leave();
    terminal.type_in("s");
    terminal.key("Tab");
    // Several ways to go on are shown with what they mean.
    terminal.wait("candidates", |lines| {
        let begins = |word: &str| lines.iter().any(|line| line.trim_start().starts_with(word));
        begins("start ") && begins("stop ")
    });
    terminal.leave();
    for theme in ["light", "safe", "mono", "dark"] {
        terminal.command(&format!("theme {theme}"));
        terminal.wait("an empty prompt", |lines| {
            lines.last().is_some_and(|line| line == "linerate>")
        });
    }
    terminal.type_in(":");
    terminal.command("quit");
    terminal.see("exit code 0");
}

#[test]
fn a_terminal_may_change_its_size() {
    let Some(terminal) = Terminal::start("resize", 80, 24, &with_screen(SESSION)) else {
        return;
    };
    terminal.see("<main>");
    terminal.resize(60, 20);
    let lines = terminal.see("needs 80 columns and 24 lines");
    assert!(lines.join(" ").contains("60 and 20"), "{lines:?}");
    terminal.resize(132, 42);
    let lines = terminal.see("<main>");
    assert!(
        lines[0].chars().count() > 80 || lines.len() > 24,
        "{lines:?}"
    );
    terminal.wait("a prompt below", |lines| {
        lines.len() == 42 && lines.last().is_some_and(|line| line == "linerate>")
    });
    terminal.resize(80, 24);
    terminal.wait("a prompt below", |lines| {
        lines.len() == 24 && lines.last().is_some_and(|line| line == "linerate>")
    });
    terminal.key("q");
    terminal.see("exit code 0");
}

/// A session without a screen. Dropping it ends it.
struct Headless(Child);

impl Drop for Headless {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_screen_reports_the_end_of_a_session_and_restores_the_terminal() {
    let folder = PrivateFolder::new("session").unwrap();
    let socket = folder.join("socket");
    let socket_text = socket.to_str().unwrap();
    let session = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["pktgen", "--headless", "--listen", socket_text])
        .args(SESSION)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let session = Headless(session);
    let deadline = Instant::now() + PATIENCE;
    while !socket.exists() {
        assert!(Instant::now() < deadline, "the session does not listen");
        std::thread::sleep(Duration::from_millis(30));
    }
    let terminal = Terminal::start("gone", 80, 24, &["--connect", socket_text, "--tui"]);
    if let Some(terminal) = terminal {
        terminal.see("<main>");
        drop(session);
        let lines = terminal.see("exit code 1");
        let text = lines.join("\n");
        assert!(text.contains("error: the session has ended"), "{text}");
        assert!(text.contains("fix: "), "{text}");
        assert!(!text.contains("<main>"), "{text}");
    }
}

#[test]
fn without_a_terminal_the_screen_is_refused_with_a_fix() {
    let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .arg("pktgen")
        .args(with_screen(SESSION))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.starts_with("error: ") && text.contains("terminal"),
        "{text}"
    );
    assert!(text.contains("--headless"), "{text}");
}

fn with_screen<'a>(args: &[&'a str]) -> Vec<&'a str> {
    ["--tui"].iter().chain(args).copied().collect()
}
