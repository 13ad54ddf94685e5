//! Privileges: the router has no capabilities while it forwards, and its privilege helper has only
//! what the ports need. Interfaces that come back are opened again, and when either process is
//! killed, nothing is left.

use super::instance::{Router, port, two_ports};
use super::site::{self, GATE4, GATE6, LEFT4, LEFT6, Site};
use linerate_testkit::Scratch;
use linerate_testkit::cli::public_binary;
use linerate_testkit::netns::Namespace;
use linerate_testkit::wait;
use linerate_testkit::{harness::Test, tests};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::path::Path;

pub(crate) const TESTS: &[Test] = tests![
    forwards_without_privileges_over_af_packet,
    forwards_without_privileges_over_af_xdp,
    the_process_that_reads_packets_is_not_root,
    the_user_is_the_one_that_the_file_names,
    a_user_with_the_units_capabilities_over_af_packet,
    a_user_with_the_units_capabilities_over_af_xdp,
    the_helper_killed,
    the_router_killed,
    the_privilege_helper_ignores_signals,
    host_interfaces_in_a_name_space_that_the_router_cannot_enter,
];

pub(crate) const NET_ADMIN: u64 = 1 << 12;
pub(crate) const NET_RAW: u64 = 1 << 13;
const IPC_LOCK: u64 = 1 << 14;
const SYS_ADMIN: u64 = 1 << 21;
pub(super) const BPF: u64 = 1 << 39;

/// `/proc`'s status of a process, or of one of its threads: field to value.
pub(super) fn status(path: &Path) -> HashMap<String, String> {
    let text = std::fs::read_to_string(path.join("status")).unwrap_or_default();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields
        .map(|(field, value)| (field.into(), value.trim().into()))
        .collect()
}

pub(super) fn proc(pid: Pid) -> std::path::PathBuf {
    format!("/proc/{}", pid.as_raw_nonzero()).into()
}

/// The process that a router has started.
pub(crate) fn helper(router: Pid) -> Pid {
    let parent = router.as_raw_nonzero().to_string();
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let mut children = pids.filter(|entry| status(&entry.path()).get("PPid") == Some(&parent));
    let child = children.next().expect("the privilege helper").file_name();
    Pid::from_raw(child.to_str().unwrap().parse().unwrap()).unwrap()
}

fn number(status: &HashMap<String, String>, field: &str) -> u64 {
    u64::from_str_radix(&status[field], 16).unwrap()
}

/// The capability that an af_xdp port needs if the limit of locked memory cannot be raised here.
fn to_lock_memory(router: &mut Router) -> u64 {
    let limits = proc(router.running().pid()).join("limits");
    let limits = std::fs::read_to_string(limits).unwrap();
    let mut rows = limits
        .lines()
        .filter(|row| row.starts_with("Max locked memory"));
    let unlimited = rows.next().unwrap().contains("unlimited");
    if unlimited { 0 } else { IPC_LOCK }
}

/// Identity of a process or thread: users, groups, and supplementary groups.
fn identity(status: &HashMap<String, String>) -> [Vec<u32>; 3] {
    ["Uid", "Gid", "Groups"].map(|field| {
        let numbers = status[field].split_whitespace();
        numbers.map(|number| number.parse().unwrap()).collect()
    })
}

/// Checks that no thread of the router is root or has or can regain more than `left`, and that the
/// privilege helper has just `kept`.
#[track_caller]
pub(crate) fn is_divided(router: Pid, left: u64, kept: u64) {
    let threads = proc(router).join("task");
    let mut count = 0;
    for thread in std::fs::read_dir(threads).unwrap().flatten() {
        let status = status(&thread.path());
        for (set, expected) in [
            ("CapPrm", left),
            ("CapEff", left),
            ("CapInh", 0),
            ("CapAmb", 0),
        ] {
            let name = &status["Name"];
            assert_eq!(number(&status, set), expected, "{set} of {name}");
        }
        assert_eq!(status["NoNewPrivs"], "1", "{}", status["Name"]);
        let [users, groups, besides] = identity(&status);
        assert!(!users.contains(&0) && !groups.contains(&0), "{status:?}");
        // A service manager lists its own group once more.
        let is_own = |group: &u32| groups.contains(group);
        assert!(besides.iter().all(is_own), "{status:?}");
        count += 1;
    }
    assert!(count > 3, "{count} threads");
    let of_helper = status(&proc(helper(router)));
    for set in ["CapPrm", "CapEff"] {
        assert_eq!(
            number(&of_helper, set),
            kept,
            "{set} of the privilege helper"
        );
    }
    assert_eq!(of_helper["NoNewPrivs"], "1");
    // One more while it is in another name space.
    wait("the privilege helper to have one thread", || {
        status(&proc(helper(router)))["Threads"] == "1"
    });
}

/// The router forwards, its host interfaces mirror, a reload makes another, and an interface that
/// comes back is opened.
fn without_privileges(kind: &str, kept: u64) {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports(kind, "", "mtu = 1400");
    let mut router = Router::start(&site.mid, &scratch, &config);
    site.works();
    let left = if kind == "af_xdp" {
        to_lock_memory(&mut router)
    } else {
        0
    };
    is_divided(router.running().pid(), left, kept);
    wait("the host interface to mirror", || {
        site.mid.ip("addr show lr-a").contains("10.1.0.1/24")
            && site.mid.ip("link show lr-b").contains("mtu 1400")
    });
    site.left.ip("link set veth0 down");
    wait("the host interface's carrier to go", || {
        site.mid.ip("link show lr-a").contains("NO-CARRIER")
    });
    router.reload(
        &(config + "\n[[interface]]\nport = \"a\"\nvlan = 5\naddresses = [\"10.5.0.1/24\"]\n"),
    );
    wait("the host interface of a new interface", || {
        site.mid.has("lr-a.5") && site.mid.ip("addr show lr-a.5").contains("10.5.0.1/24")
    });
    // The interface is deleted, and comes back.
    site.mid.ip("link del dev a");
    router.shows("ports", |text| {
        text.contains("down") || text.contains("no interface")
    });
    site::link(&site.left, "veth0", &site.mid, "a");
    site::host(&site.left, "veth0", LEFT4, LEFT6, GATE4, GATE6);
    site.works();
    is_divided(router.running().pid(), left, kept);
    // A deleted host interface is made again.
    site.mid.ip("link del lr-a");
    wait("the host interface to be made again", || {
        site.mid.has("lr-a")
    });
    let helper = helper(router.running().pid());
    router.stop();
    wait("the privilege helper to end", || !proc(helper).exists());
}

fn forwards_without_privileges_over_af_packet() {
    without_privileges("af_packet", NET_ADMIN | NET_RAW);
}

fn forwards_without_privileges_over_af_xdp() {
    without_privileges("af_xdp", NET_ADMIN | NET_RAW | BPF);
}

/// As the systemd unit starts it: a user of its own, and just the capabilities that it lists. It
/// uses little memory, since the limit of locked memory is unknown here.
fn as_a_user(kind: &str, kept: u64) {
    const CAPABILITIES: &str = "+net_admin,+net_raw,+bpf";
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let binary = public_binary(&scratch);
    let mut command = site.mid.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg("--no-new-privs");
    command.arg(format!("--bounding-set=-all,{CAPABILITIES}"));
    command.arg(format!("--inh-caps={CAPABILITIES}"));
    command.arg(format!("--ambient-caps={CAPABILITIES}"));
    command.args(["--pdeathsig", "KILL"]).arg(&binary);
    let config = "pool_slots = 1024\n".to_owned() + &two_ports(kind, "", "");
    let mut router = Router::begin_by(&mut command, &scratch, &config);
    router.forwards();
    site.works();
    is_divided(router.running().pid(), 0, kept);
    router.stop();
}

/// Whether a process with the identity and capabilities of `pid` can run this command.
fn can(pid: Pid, does: &[&str]) -> bool {
    let [users, groups, _] = identity(&status(&proc(pid)));
    let mut command = std::process::Command::new("setpriv");
    command.arg(format!("--reuid={}", users[1]));
    command.arg(format!("--regid={}", groups[1]));
    command.args(["--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]);
    command.args(["--no-new-privs"]).args(does);
    command.stderr(std::process::Stdio::null());
    command.status().unwrap().success()
}

/// Regular files that a process has open for writing.
fn written(pid: Pid) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(proc(pid).join("fd")).unwrap().flatten() {
        let info = proc(pid).join("fdinfo").join(entry.file_name());
        let info = std::fs::read_to_string(info).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = u32::from_str_radix(flags.unwrap_or("0").trim(), 8).unwrap();
        let is_file = std::fs::metadata(entry.path()).is_ok_and(|found| found.is_file());
        if is_file && flags & 0o3 != 0 {
            files.push(std::fs::read_link(entry.path()).unwrap());
        }
    }
    files
}

/// Started by root, in a folder of root's: the packet process has another user, which cannot write
/// root's files, and gets what it needs of them from its privilege helper.
fn the_process_that_reads_packets_is_not_root() {
    use std::os::unix::fs::PermissionsExt;
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(scratch.path(), private).unwrap();
    let capture = scratch.file("a.pcapng");
    let a = port("af_packet", "a", &["10.1.0.1/24", "fd00:1::1/64"], "");
    let a = a.replace("af_packet:a", &format!("af_packet:a,capture={capture}"));
    let config = a + &port("af_packet", "b", &["10.2.0.1/24", "fd00:2::1/64"], "");
    let file = scratch.file("router.toml");
    let mut router = Router::start(&site.mid, &scratch, &config);
    site.works();
    let pid = router.running().pid();
    is_divided(pid, 0, NET_ADMIN | NET_RAW);
    // It cannot open the file, nor any other of root's.
    assert!(can(pid, &["true"]), "`setpriv` works");
    for path in [&*file, "/etc/passwd", "/proc/sys/net/ipv4/ip_forward"] {
        assert!(!can(pid, &["test", "-w", path]), "{path}");
    }
    assert!(!can(pid, &["test", "-r", &file]));
    assert_eq!(written(pid), [Path::new(&capture)]);
    // It gets its content at a reload, and the file of another capture.
    let later = scratch.file("b.pcapng");
    let more = format!(
        "\n[[port]]\nname = \"c\"\nspec = \"null:,capture={later}\"\n\
         [[interface]]\nport = \"a\"\nvlan = 9\n"
    );
    router.reload(&(config + &more));
    assert!(site.mid.has("lr-a.9") && Path::new(&later).exists());
    let setting = |name: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/arp_ignore");
        let read = || std::fs::read_to_string(path);
        site.mid.inside(read).unwrap().trim().to_string()
    };
    let notes = scratch.file("router.sysctl");
    assert!(setting("a") == "8" && Path::new(&notes).exists());
    let socket = router.socket().to_string();
    router.stop();
    assert_eq!(setting("a"), "0");
    for path in [socket, notes] {
        assert!(!Path::new(&path).exists(), "{path}");
    }
    assert!(std::fs::metadata(&capture).unwrap().len() > 1000);
}

/// The user that the file names; an unknown one is an error.
fn the_user_is_the_one_that_the_file_names() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let ports = two_ports("af_packet", "", "");
    let mut router = Router::start(&site.mid, &scratch, &format!("user = \"12345\"\n{ports}"));
    site.works();
    let found = status(&proc(router.running().pid()));
    assert_eq!(identity(&found), [vec![12345; 4], vec![12345; 4], vec![]]);
    router.stop();
    let mut router = Router::begin(&site.mid, &scratch, &format!("user = \"no-such\"\n{ports}"));
    let status = router.running().end();
    let said = router.said();
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(
        said.contains("router.user: there is no user `no-such`"),
        "{said}"
    );
}

fn a_user_with_the_units_capabilities_over_af_packet() {
    as_a_user("af_packet", NET_ADMIN | NET_RAW);
}

fn a_user_with_the_units_capabilities_over_af_xdp() {
    as_a_user("af_xdp", NET_ADMIN | NET_RAW | BPF);
}

/// Checks that nothing of the router is left in the kernel.
#[track_caller]
fn nothing_is_left(site: &Site) {
    wait("the host interfaces and programs to go", || {
        !site.mid.has("lr-a")
            && !site.mid.has("lr-b")
            && !site.mid.ip("link show a").contains("xdp")
            && !site.mid.ip("link show b").contains("xdp")
    });
}

/// kill -9 of the privilege helper: the router ends, with the reason.
fn the_helper_killed() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports("af_xdp", "", "");
    site.mid.sysctl("ipv4/conf/a/arp_ignore", "1");
    let mut router = Router::start(&site.mid, &scratch, &config);
    assert!(site.mid.ip("link show a").contains("xdp"));
    kill_process(helper(router.running().pid()), Signal::KILL).unwrap();
    let status = router.running().end();
    let said = router.running().stderr.text();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("keeps this one's privileges"), "{said}");
    nothing_is_left(&site);
    // The next start restores what it could not.
    let setting = || {
        site.mid
            .inside(|| std::fs::read_to_string("/proc/sys/net/ipv4/conf/a/arp_ignore"))
    };
    assert_eq!(setting().unwrap().trim(), "8");
    Router::start(&site.mid, &scratch, &config).stop();
    assert_eq!(setting().unwrap().trim(), "1");
}

/// kill -9 of the router: the privilege helper ends, too.
fn the_router_killed() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let mut router = Router::start(&site.mid, &scratch, &two_ports("af_xdp", "", ""));
    let helper = helper(router.running().pid());
    let socket = router.socket().to_string();
    router.kill();
    nothing_is_left(&site);
    wait("the privilege helper to end", || !proc(helper).exists());
    assert!(
        !Path::new(&socket).exists(),
        "the privilege helper tidies up"
    );
}

/// Ctrl-C reaches both; the privilege helper lets the router end in order.
fn the_privilege_helper_ignores_signals() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let mut router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    let helper = helper(router.running().pid());
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        kill_process(helper, signal).unwrap();
    }
    // It still opens new ports.
    let more = port("af_packet", "a", &["10.1.0.1/24"], "")
        + &port("af_packet", "b", &["10.2.0.1/24"], "");
    router.reload(&(more + "\n[[interface]]\nport = \"a\"\nvlan = 7\n"));
    assert!(site.mid.has("lr-a.7"));
    router.stop();
}

/// Host interfaces of a VRF are in a network name space that the router itself cannot enter.
fn host_interfaces_in_a_name_space_that_the_router_cannot_enter() {
    let Some(site) = Site::new() else { return };
    let Some(host_interfaces) = Namespace::with_ipv6("t") else {
        return;
    };
    let scratch = Scratch::new();
    let vrf = format!(
        "\n[[vrf]]\nname = \"blue\"\nnetns = \"{}\"\n",
        host_interfaces.name()
    );
    let config = vrf + &two_ports("af_packet", "vrf = \"blue\"", "vrf = \"blue\"");
    let mut router = Router::start(&site.mid, &scratch, &config);
    is_divided(router.running().pid(), 0, NET_ADMIN | NET_RAW | SYS_ADMIN);
    let mirrors = |name: &str, address: &str| {
        wait(&format!("{name} to have {address}"), || {
            host_interfaces.has(name)
                && host_interfaces
                    .ip(&format!("addr show {name}"))
                    .contains(address)
        });
    };
    mirrors("lr-a", "10.1.0.1/24");
    mirrors("lr-b", "fd00:2::1/64");
    assert!(!site.mid.has("lr-a"));
    // The kernel's routes there are learned, and a host interface deleted there is made again.
    host_interfaces.ip("route add 10.44.0.0/16 via 10.2.0.2 dev lr-b");
    router.shows("routes", |text| text.contains("10.44.0.0/16"));
    host_interfaces.ip("link del lr-a");
    mirrors("lr-a", "10.1.0.1/24");
    let more =
        "\n[[interface]]\nport = \"a\"\nvlan = 5\nvrf = \"blue\"\naddresses = [\"10.5.0.1/24\"]\n";
    router.reload(&(config + more));
    mirrors("lr-a.5", "10.5.0.1/24");
    router.stop();
    wait("the host interfaces to go", || {
        !host_interfaces.has("lr-a") && !host_interfaces.has("lr-a.5")
    });
}
