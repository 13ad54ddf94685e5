//! The router as a service: its unit checked by systemd, messages to the service manager and its
//! folders, and the files that come with the program. `tests/vm` runs all of it under a real
//! systemd.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use linerate_testkit::Scratch;
use rustix::process::{Pid, Signal, kill_process};

const UNIT: &str = include_str!("../../../../packaging/linerate-router.service");
const SYSUSERS: &str = include_str!("../../../../packaging/linerate.sysusers");
/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);

fn linerate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_linerate"))
}

/// What a command that must succeed prints.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Values of a key of the unit.
fn values(key: &str) -> Vec<&'static str> {
    let lines = UNIT.lines().filter_map(|line| line.split_once('='));
    lines
        .filter(|(name, _)| *name == key)
        .map(|(_, value)| value)
        .collect()
}

/// `systemd-analyze` of the unit, with our program in it; or what is missing.
fn analyze(scratch: &Scratch, words: &[&str]) -> Option<Output> {
    analyze_unit(scratch, UNIT, "linerate-router", words)
}

/// The same of another unit, by its name.
fn analyze_unit(scratch: &Scratch, unit: &str, name: &str, words: &[&str]) -> Option<Output> {
    let ours = format!("={} ", env!("CARGO_BIN_EXE_linerate"));
    let unit = unit.replace("=linerate ", &ours);
    let file = scratch.write(&format!("{name}.service"), unit);
    let mut command = Command::new("systemd-analyze");
    let output = command.args(words).arg(&file).output();
    if output.is_err() {
        linerate_testkit::skip("needs the program systemd-analyze");
    }
    output.ok()
}

#[test]
fn systemd_accepts_the_unit() {
    for key in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        assert_eq!(values(key), ["CAP_NET_ADMIN CAP_NET_RAW CAP_BPF"], "{key}");
    }
    let Some(verified) = analyze(&Scratch::new(), &["verify", "--man=no"]) else {
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(!said.contains("linerate-router.service"), "{said}");
}

/// At most 2.1 of 10: most of that is for the network, which a router is about.
#[test]
fn systemd_rates_the_units_exposure_low() {
    let words = ["security", "--offline=true", "--no-pager", "--threshold=21"];
    let Some(security) = analyze(&Scratch::new(), &words) else {
        return;
    };
    let said =
        String::from_utf8_lossy(&security.stdout) + String::from_utf8_lossy(&security.stderr);
    if said.contains("unrecognized option") {
        linerate_testkit::skip("needs systemd 250 or later");
        return;
    }
    assert!(security.status.success(), "{said}");
}

/// The program's files equal those in the repository, and the example is valid.
#[test]
fn the_files_that_come_with_it() {
    let print = |what: &str| said(linerate().args(["router", "--print", what]));
    assert_eq!(print("unit"), UNIT);
    assert!(print("dashboard").contains("linerate_"));
    // The user of the unit, which is that of a router started by root.
    assert!(values("User") == ["linerate"] && print("sysusers").contains("\nu     linerate "));
    let scratch = Scratch::new();
    let file = scratch.write("router.toml", print("example"));
    let explained = said(linerate().args(["router", &file, "--check=file"]));
    assert!(explained.contains("is sound"), "{explained}");
    let both = linerate()
        .args(["router", &file, "--print", "unit"])
        .output();
    assert_eq!(both.unwrap().status.code(), Some(2));
    // Where the unit looks for it.
    let [start] = values("ExecStart")[..] else {
        panic!("one ExecStart");
    };
    assert_eq!(start, "linerate router /etc/linerate/router.toml");
}

/// systemd makes a user of it.
#[test]
fn the_user_that_comes_with_it() {
    let scratch = Scratch::new();
    let file = scratch.write("linerate.conf", SYSUSERS);
    std::fs::create_dir(scratch.file("etc")).unwrap();
    let mut command = Command::new("systemd-sysusers");
    command
        .arg(format!("--root={}", scratch.file("")))
        .arg(&file);
    let Ok(output) = command.output() else {
        linerate_testkit::skip("needs the program systemd-sysusers");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let users = std::fs::read_to_string(scratch.file("etc/passwd")).unwrap();
    assert!(users.contains("linerate:x:"), "{users}");
}

/// What the guide shows can be taken as it stands.
#[test]
fn the_files_in_the_guide() {
    let guide = include_str!("../../../../docs/router.md");
    let scratch = Scratch::new();
    let blocks: Vec<&str> = guide.split("```toml\n").skip(1).collect();
    assert!(!blocks.is_empty());
    let texts = blocks
        .iter()
        .map(|block| block.split_once("```").unwrap().0);
    let mut whole = String::new();
    for text in texts {
        // The first is a file of its own; the others are added to it.
        whole += text;
        let file = scratch.write("router.toml", &whole);
        said(linerate().args(["router", &file, "--check=file"]));
    }
    let paths = guide.split('`').filter(|word| {
        word.starts_with("docs/") || word.starts_with("packaging/") || word.starts_with("tests/")
    });
    for path in paths {
        let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
        assert!(std::path::Path::new(&path).exists(), "{path}");
    }
}

/// The same of `steer`, whose unit systemd accepts, too.
#[test]
fn the_files_that_come_with_steer() {
    let print = |what: &str| said(linerate().args(["steer", "--print", what]));
    let unit = print("unit");
    assert_eq!(
        unit,
        include_str!("../../../../packaging/linerate-steer.service")
    );
    assert!(unit.contains("\nExecStart=linerate steer /etc/linerate/steer.toml\n"));
    assert!(print("sysusers").contains("\nu     linerate "));
    let scratch = Scratch::new();
    let file = scratch.write("steer.toml", print("example"));
    let planned = said(linerate().args(["steer", &file, "--check"]));
    assert!(planned.contains("-> http0, proxy1"), "{planned}");
    if let Some(verified) = analyze_unit(&scratch, &unit, "linerate-steer", &["verify", "--man=no"])
    {
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(!said.contains("linerate-steer.service"), "{said}");
    }
}

/// A stack tells the manager that it runs, that it lives, and that it ends; what its dashboard asks
/// for is on its page.
#[test]
fn steer_as_a_service() {
    let config = "[plan]\nio = \"0\"\ncpus = \"0\"\n[steer]\nperiod = 0\n\
        metrics = \"127.0.0.1:0\"\n\
        [[port]]\nname = \"lan\"\nspec = \"ring:lan\"\n\
        [[interface]]\nport = \"lan\"\naddresses = [\"192.0.2.1/24\"]\n\
        [[app]]\nkind = \"sink\"\nlisten = 9\n";
    let mut service = Service::start("steer", config);
    assert_eq!(service.any(), "READY=1\nSTATUS=running, ports: 1");
    while service.any() != "WATCHDOG=1" {}
    let mut lines = BufReader::new(service.child.stderr.take().unwrap()).lines();
    let line = lines.find_map(|line| {
        let line = line.unwrap();
        Some(line.strip_prefix("metrics at http://")?.to_owned())
    });
    let address = line.expect("where the page is");
    let mut page = String::new();
    let mut stream = TcpStream::connect(address.trim_end_matches("/metrics")).unwrap();
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    stream.read_to_string(&mut page).unwrap();
    let dashboard = said(linerate().args(["steer", "--print", "dashboard"]));
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = dashboard.split(|c| !is_word(c));
    let families: Vec<&str> = words.filter(|word| word.starts_with("linerate_")).collect();
    assert!(families.len() > 15);
    for family in families {
        let family = family.strip_suffix("_total").unwrap_or(family);
        let there = page.contains(&format!("# TYPE {family} "));
        assert!(there, "no {family} on the page\n{page}");
    }
    // And the events that it draws: names between quotes, joined by bars.
    for events in dashboard.split("event=~\\\"").skip(1) {
        let events = events.split_once("\\\"").unwrap().0;
        for event in events.split('|') {
            assert!(page.contains(&format!("event=\"{event}\"")), "{event}");
        }
    }
    service.signal(Signal::HUP);
    service.reloads("last reload: nothing changed");
    std::fs::write(&service.file, config.replace("listen = 9", "listen = 10")).unwrap();
    service.signal(Signal::HUP);
    service.reloads("last reload: changed: 1 application");
    let config = config.replace("192.0.2.1", "192.0.2.2");
    std::fs::write(&service.file, &config).unwrap();
    service.signal(Signal::HUP);
    service.reloads("last reload: changed: 1 application, 1 interface");
    let longer = config.replace("addresses", "mtu = 1400\naddresses");
    std::fs::write(&service.file, longer).unwrap();
    service.signal(Signal::HUP);
    service.reloads("not while steer runs: interface.mtu is another");
    service.ends();
}

/// An appliance that a service manager has started. It is killed with the test.
struct Service {
    child: Child,
    manager: UnixDatagram,
    scratch: Scratch,
    file: String,
}

const CONFIG: &str = "[plan]\nbg = \"0\"\nio = \"1\"\ncpus = \"0,0\"\n\
    [router]\nkernel = false\nperiod = 0\n\
    [[port]]\nname = \"wan\"\nspec = \"ring:wan\"\n";

impl Service {
    /// `appliance` with a file of this text.
    fn start(appliance: &str, text: &str) -> Self {
        let scratch = Scratch::new();
        // Nobody else may write there: a socket is the user's own.
        std::fs::create_dir(scratch.file("run")).unwrap();
        let manager = UnixDatagram::bind(scratch.file("notify")).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let file = scratch.write(&format!("{appliance}.toml"), text);
        let child = linerate()
            .args([appliance, &file])
            .env("NOTIFY_SOCKET", scratch.file("notify"))
            .env("WATCHDOG_USEC", "1000000")
            .env("RUNTIME_DIRECTORY", scratch.file("run"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            child,
            manager,
            scratch,
            file,
        }
    }

    /// The next message but those that it is alive.
    fn next(&self) -> String {
        loop {
            let heard = self.any();
            if heard != "WATCHDOG=1" {
                return heard;
            }
        }
    }

    fn any(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.manager.recv(&mut bytes).expect("it speaks");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[track_caller]
    fn reloads(&self, outcome: &str) {
        let began = self.next();
        let time = began.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        assert!(time.unwrap().parse::<u64>().unwrap() > 0, "{began}");
        let ended = self.next();
        assert!(
            ended.starts_with("READY=1\nSTATUS=") && ended.contains(outcome),
            "{ended}"
        );
    }

    fn ctl(&self, words: &[&str]) -> Output {
        let mut command = linerate();
        command.arg("ctl").args(words);
        command.env("RUNTIME_DIRECTORY", self.scratch.file("run"));
        command.output().unwrap()
    }

    /// It ends when it is told to, and says so.
    fn ends(&mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.next(), "STOPPING=1");
        assert!(self.child.wait().unwrap().success());
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn systemd_is_notified_of_the_routers_state() {
    let mut service = Service::start("router", CONFIG);
    let ready = service.next();
    assert!(
        ready.starts_with("READY=1\nSTATUS=forwarding") && ready.ends_with("ports: 1"),
        "{ready}"
    );
    while service.any() != "WATCHDOG=1" {}
    // Its usual place is where the manager wants it.
    assert!(service.ctl(&["reload"]).status.success());
    service.reloads("last reload: nothing changed");
    let route = "[[route]]\nprefix = \"10.0.0.0/8\"\nblackhole = true\n";
    std::fs::write(&service.file, CONFIG.to_owned() + route).unwrap();
    service.signal(Signal::HUP);
    service.reloads("last reload: changed: 1 route");
    std::fs::write(&service.file, CONFIG.replace("spec", "spek")).unwrap();
    assert_eq!(service.ctl(&["reload"]).status.code(), Some(1));
    service.reloads("last reload: refused: ");
    service.ends();
}
