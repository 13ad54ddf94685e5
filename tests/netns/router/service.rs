//! The router as its unit has systemd run it: in a guest, whose first process is systemd and whose
//! own network namespace has the ports. `../../vm` boots that guest; this is the test inside.

use super::instance::port;
use super::privileges::{BPF, NET_ADMIN, NET_RAW, helper, is_divided, proc, status};
use super::site::{FAR_GATE6, GATE4, RIGHT4, RIGHT6, Site, reaches};
use linerate_testkit::cli::binary;
use linerate_testkit::process::Running;
use linerate_testkit::wait;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

const UNIT: &str = include_str!("../../../packaging/linerate-router.service");
const FILE: &str = "/etc/linerate/router.toml";
const ROUTE: &str = "\n[[route]]\nprefix = \"10.88.0.0/16\"\nvia = \"10.2.0.2\"\n";

/// Two ports, one of each kind, and all that listens. The socket is at its usual place.
fn config() -> String {
    let head = "[plan]\nio = \"0\"\n\n[router]\nmetrics = \"127.0.0.1:9108\"\n\
        fpm = \"127.0.0.1:2620\"\npool_slots = 1024\nperiod = 0\n";
    let ports = port("af_packet", "a", &["10.1.0.1/24", "fd00:1::1/64"], "")
        + &port("af_xdp", "b", &["10.2.0.1/24", "fd00:2::1/64"], "");
    let captured = "\"af_packet:a,capture=/var/lib/linerate/a.pcapng\"";
    head.to_owned() + &ports.replace("\"af_packet:a\"", captured)
}

/// Output of a command, of both streams.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs `systemctl` for the unit: whether it succeeds, and its output.
fn try_systemctl(verb: &str) -> (bool, String) {
    let mut command = Command::new("systemctl");
    let output = command.args([verb, "linerate-router"]).output().unwrap();
    (output.status.success(), said(&output))
}

#[track_caller]
fn systemctl(verb: &str) {
    let (succeeds, text) = try_systemctl(verb);
    assert!(succeeds, "systemctl {verb}: {text}\n{}", journal());
}

/// The journal of the unit.
fn journal() -> String {
    let mut command = Command::new("journalctl");
    let words = ["-u", "linerate-router", "-o", "cat", "--no-pager"];
    said(&command.args(words).output().unwrap())
}

fn property(name: &str) -> String {
    let mut command = Command::new("systemctl");
    let words = ["show", "--value", "-p", name, "linerate-router"];
    let text = said(&command.args(words).output().unwrap());
    text.trim().into()
}

fn router() -> Pid {
    let pid = property("MainPID").parse().ok().and_then(Pid::from_raw);
    pid.unwrap_or_else(|| panic!("it does not run\n{}", journal()))
}

/// `linerate` with these words: whether it succeeds, and its output, run by root as in a login.
fn try_linerate(words: &str) -> (bool, String) {
    let mut command = Command::new(binary());
    command.env("XDG_RUNTIME_DIR", "/run/user/0");
    let output = command.args(words.split_whitespace()).output().unwrap();
    (output.status.success(), said(&output))
}

#[track_caller]
fn ctl(words: &str) -> String {
    let (succeeds, text) = try_linerate(&format!("ctl {words}"));
    assert!(succeeds, "ctl {words}: {text}\n{}", journal());
    text
}

/// Waits until systemd has restarted it with another process number, and it forwards.
#[track_caller]
fn is_back(site: &Site, before: Pid) {
    let number = before.as_raw_nonzero().to_string();
    wait("systemd to start the router again", || {
        property("MainPID") != number && property("ActiveState") == "active"
    });
    wait("what the one before had to go", || !proc(before).exists());
    reaches(&site.left, RIGHT4);
    assert!(site.mid.ip("link show b").contains("xdp"));
    assert_eq!(site.mid.ip("link show").matches(": lr-").count(), 2);
}

/// A number of `/proc/meminfo`.
fn huge_pages(what: &str) -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let row = memory.lines().find_map(|row| row.strip_prefix(what));
    let number = row.and_then(|row| row.strip_prefix(':')?.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no {what}: {memory}"))
}

/// Sysctls of the ports' interfaces that the router changes and restores.
fn settings() -> [String; 2] {
    ["ipv4/conf/a/rp_filter", "ipv6/conf/b/disable_ipv6"].map(|setting| {
        let value = fs::read_to_string(format!("/proc/sys/net/{setting}")).unwrap();
        value.trim().into()
    })
}

/// Checks everything that the unit promises.
pub(crate) fn as_the_unit_says() {
    let Some(site) = Site::of_the_guest() else {
        return;
    };
    site.mid.sysctl("ipv4/conf/a/rp_filter", "2");
    fs::create_dir_all("/etc/linerate").unwrap();
    fs::write("/etc/systemd/system/linerate-router.service", UNIT).unwrap();
    fs::write(FILE, config()).unwrap();

    // The unit is active when the router forwards.
    systemctl("start");
    for expected in [("ActiveState", "active"), ("Type", "notify")] {
        assert_eq!(property(expected.0), expected.1, "{}", journal());
    }
    assert!(property("StatusText").starts_with("forwarding"));
    for address in [RIGHT4, RIGHT6, GATE4, FAR_GATE6] {
        reaches(&site.left, address);
    }
    assert!(!journal().contains("warning"), "{}", journal());
    assert_eq!(settings(), ["1", "1"]);
    is_confined();
    all_doors_are_open(&site);

    // `systemctl reload` returns when the reload is done; a refused one changes nothing, and gives
    // the reason.
    fs::write(FILE, config() + ROUTE).unwrap();
    systemctl("reload");
    assert!(ctl("show routes").contains("10.88.0.0/16"));
    assert!(property("StatusText").ends_with("last reload: changed: 1 route"));
    fs::write(FILE, config() + "\n[[route]]\nprefix = \"10.0.0.0/33\"\n").unwrap();
    let (succeeds, _) = try_systemctl("reload");
    let (_, shown) = try_systemctl("status");
    assert!(!succeeds && shown.contains("10.0.0.0/33"), "{shown}");
    assert_eq!(property("ActiveState"), "active");
    assert!(ctl("show routes").contains("10.88.0.0/16"));
    fs::write(FILE, config()).unwrap();

    // The router and its privilege helper are killed; with huge pages this time, if there are
    // enough.
    let _ = fs::write("/proc/sys/vm/nr_hugepages", "24");
    let before = router();
    kill_process(before, Signal::KILL).unwrap();
    is_back(&site, before);
    let [total, free] = ["HugePages_Total", "HugePages_Free"].map(huge_pages);
    assert!(total < 24 || free < total, "{free} of {total} are free");
    let before = router();
    kill_process(helper(before), Signal::KILL).unwrap();
    is_back(&site, before);
    assert_eq!(property("NRestarts"), "2");
    is_confined();
    // Stuck.
    let more = "/run/systemd/system/linerate-router.service.d";
    fs::create_dir_all(more).unwrap();
    fs::write(format!("{more}/time.conf"), "[Service]\nWatchdogSec=8\n").unwrap();
    let reload = Command::new("systemctl").arg("daemon-reload").output();
    assert!(reload.unwrap().status.success());
    systemctl("restart");
    let before = router();
    kill_process(before, Signal::STOP).unwrap();
    is_back(&site, before);
    assert!(journal().contains("Watchdog timeout"), "{}", journal());

    // An invalid file: no restarts, and the status shows the error.
    fs::write(FILE, config().replace("fpm =", "fpn =")).unwrap();
    let (succeeds, _) = try_systemctl("restart");
    let (_, shown) = try_systemctl("status");
    for part in ["router.fpn: there is no such key", "fix: ", "78/CONFIG"] {
        assert!(!succeeds && shown.contains(part), "no `{part}`: {shown}");
    }
    assert_eq!(property("ActiveState"), "failed");
    fs::write(FILE, config()).unwrap();
    systemctl("start");
    reaches(&site.left, GATE4);
    systemctl("stop");
    assert_eq!(property("Result"), "success");
    let links = site.mid.ip("link show");
    assert!(
        !links.contains(": lr-") && !links.contains("xdp"),
        "{links}"
    );
    // Three killed runs could not restore this: the state was kept for the next one.
    assert_eq!(settings(), ["2", "0"]);
    assert!(!Path::new("/run/linerate/router.sock").exists());
    let captured = fs::metadata("/var/lib/linerate/a.pcapng").unwrap();
    assert!(
        captured.len() > 200,
        "{} bytes of a capture",
        captured.len()
    );
}

/// Neither process has more than the unit allows.
#[track_caller]
fn is_confined() {
    let router = router();
    is_divided(router, 0, NET_ADMIN | NET_RAW | BPF);
    for process in [router, helper(router)] {
        let status = status(&proc(process));
        assert_eq!(status["Seccomp"], "2");
        assert!(!status["Uid"].starts_with("0\t"), "{}", status["Uid"]);
        // Only paths that the unit names are writable, and only the TAP device exists.
        let within = |path: &str| proc(process).join("root").join(path);
        assert!(within("dev/net/tun").exists() && !within("dev/kmsg").exists());
        let mounts = fs::read_to_string(proc(process).join("mounts")).unwrap();
        let root = mounts.lines().find(|mount| mount.contains(" / "));
        assert!(root.unwrap().contains(" ro,"), "{mounts}");
    }
}

/// Sockets and written files work under the unit's restrictions.
#[track_caller]
fn all_doors_are_open(site: &Site) {
    assert!(ctl("show interfaces").contains("lr-b"));
    let mut metrics = TcpStream::connect("127.0.0.1:9108").unwrap();
    metrics
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut page = String::new();
    metrics.read_to_string(&mut page).unwrap();
    assert!(page.contains("linerate_"), "{page}");
    drop(TcpStream::connect("127.0.0.1:2620").unwrap());
    site.mid.ip("route add 10.99.0.0/16 via 10.2.0.2 dev lr-b");
    wait("the router to hear the kernel", || {
        ctl("show routes").contains("10.99.0.0/16")
    });
    // A capture by a client.
    let file = "/tmp/icmp.pcapng";
    let mut capture = Running::start(Command::new(binary()).args([
        "capture", "--port", "b", "--filter", "icmp", "--count", "2", "-w", file,
    ]));
    wait("what is captured", || {
        reaches(&site.left, RIGHT4);
        !capture.is_alive()
    });
    assert!(capture.end().success(), "{}", capture.stderr.text());
    assert!(fs::metadata(file).unwrap().len() > 200);
}
