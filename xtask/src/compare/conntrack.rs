//! Open vSwitch with DPDK as a stateful firewall, or one that translates sources: its own
//! connection tracking, between the same two looping captures that ours works on, one polling
//! thread.
//!
//! Debian's build and the DPDK that it comes with: there is no other in a package. The switch runs
//! in a name space of its own, from a scratch folder; nothing of the machine's is touched.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::hugepages::Hugepages;
use super::machine::Cpus;
use super::sample::Sample;
use crate::error::TaskError;
use crate::process;

/// Debian's, which no `$PATH` has.
const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const START: Duration = Duration::from_secs(30);
/// Until all connections are known: the first packets go to a thread that is no polling one.
const SETTLE: Duration = Duration::from_secs(2);
/// Rules for packets that begin a connection; the last permits.
const RULES: usize = 1000;

/// A process that ends with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            // It has ended, where there is none.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// The switch.
struct Switch {
    folder: PathBuf,
    _daemon: Process,
    _database: Process,
}

/// Millions of packets a second through the switch, whose ports play the captures that
/// `linerate bench input` wrote beside `input`. `nat`: it translates the sources of those inside.
pub(super) fn measure(
    pages: &Hugepages,
    cpus: &Cpus,
    (input, nat): (&Path, bool),
    seconds: f64,
) -> Result<Sample, TaskError> {
    let switch = Switch::start(pages, cpus, (input, nat))?;
    std::thread::sleep(SETTLE);
    switch.appctl("dpif-netdev/pmd-stats-clear")?;
    let start = Instant::now();
    std::thread::sleep(Duration::from_secs_f64(seconds.max(1.0)));
    let text = switch.appctl("dpif-netdev/pmd-stats-show")?;
    let elapsed = start.elapsed().as_secs_f64();
    let connections = switch.appctl("dpctl/ct-stats-show")?;
    let number = |text: &str, key: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.trim().starts_with(key))?;
        let value = line.split(':').nth(1)?.split_whitespace().next()?;
        value.parse().ok()
    };
    // The main thread has a paragraph of its own, behind the polling threads'.
    let found = (
        number(&text, "packets received"),
        number(&text, "avg cycles per packet"),
        number(&connections, "Total"),
    );
    let (Some(packets), Some(cycles), Some(connections)) = found else {
        return Err(TaskError::Unexpected {
            who: "ovs-appctl dpif-netdev/pmd-stats-show".into(),
            text: process::last_lines(&text, 20),
            expected: "packets received and avg cycles per packet of a polling thread",
        });
    };
    // Both directions, as far as the switch has said so yet.
    let established = switch.established()?;
    if established.iter().any(|&count| count < packets / 4.0) {
        return Err(TaskError::Unexpected {
            who: "ovs-ofctl dump-flows".into(),
            text: format!("{packets} packets, of which established by port: {established:?}"),
            expected: "nearly all packets of established connections, both ways",
        });
    }
    let mut detail = serde_json::Map::new();
    detail.insert("cycles".into(), cycles.into());
    detail.insert("connections".into(), connections.into());
    let version = process::read(Command::new(DAEMON).arg("--version"))?;
    let version = version.split_whitespace().nth(3).unwrap_or("?").to_owned();
    Ok(Sample {
        value: packets / elapsed / 1e6,
        pages: pages.describe(),
        peer_name: format!(
            "Open vSwitch {version} with DPDK, {} over two net_pcap ports",
            if nat { "ct(commit,nat)" } else { "ct(commit)" }
        ),
        detail,
        note: None,
    })
}

impl Switch {
    fn start(
        pages: &Hugepages,
        cpus: &Cpus,
        (input, nat): (&Path, bool),
    ) -> Result<Self, TaskError> {
        if !Path::new(DAEMON).exists() {
            return Err(TaskError::Missing {
                what: format!("there is no {DAEMON}"),
                fix: "`apt-get install openvswitch-switch-dpdk`, or `cargo xtask test --all`, \
                      which offers to"
                    .into(),
            });
        }
        let folder = process::target_dir().join("compare").join("ovs");
        // What another run has left.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(TaskError::file(&folder))?;
        let at = |name: &str| folder.join(name).display().to_string();
        let mut command = Command::new("ovsdb-tool");
        process::run(command.args(["create", &at("conf.db"), SCHEMA]))?;
        let mut command = Command::new("ovsdb-server");
        command.arg(at("conf.db"));
        command.arg(format!("--remote=punix:{}", at("db")));
        command.arg(format!("--unixctl={}", at("db.ctl")));
        let database = spawn(&mut command)?;
        until(&folder.join("db"))?;

        let eal = match pages {
            Hugepages::Mounted(huge) => {
                format!("--legacy-mem -m 800 --huge-dir {}", huge.display())
            }
            Hugepages::Absent(_) => "--no-huge --legacy-mem -m 800".into(),
        };
        let mut command = Command::new("ovs-vsctl");
        command.arg(format!("--db=unix:{}", at("db")));
        command.args(["--no-wait", "init", "--", "set", "Open_vSwitch", "."]);
        command.args([
            "other_config:dpdk-init=true",
            "other_config:per-port-memory=true",
        ]);
        let other = cpus.other.unwrap_or(cpus.worker);
        command.arg(format!(
            "other_config:dpdk-lcore-mask={:#x}",
            1_u64 << other
        ));
        command.arg(format!(
            "other_config:pmd-cpu-mask={:#x}",
            1_u64 << cpus.worker
        ));
        command.arg(format!(
            "other_config:dpdk-extra=--no-pci --no-telemetry --force-max-simd-bitwidth=512 \
             --file-prefix=lrct{} {eal}",
            std::process::id()
        ));
        command.args(["--", "add-br", "br0", "--", "set", "Bridge", "br0"]);
        command.args(["datapath_type=netdev", "fail_mode=secure"]);
        for number in [1, 2] {
            let capture = format!("{}.{}.pcap", input.display(), number - 1);
            command.args(["--", "add-port", "br0", &format!("p{number}")]);
            command.args(["--", "set", "Interface", &format!("p{number}"), "type=dpdk"]);
            command.arg(format!(
                "options:dpdk-devargs=net_pcap{number},rx_pcap={capture},infinite_rx=1"
            ));
            command.arg(format!("ofport_request={number}"));
        }
        process::run(&mut command)?;
        // In a name space of its own: it makes an interface for each bridge.
        let mut command = Command::new("unshare");
        command.args(["--net", DAEMON, &format!("unix:{}", at("db"))]);
        command.arg(format!("--unixctl={}", at("ctl")));
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(name, &folder);
        }
        let daemon = spawn(&mut command)?;
        until(&folder.join("br0.mgmt"))?;
        let rules = folder.join("rules");
        std::fs::write(&rules, rules_text(nat)).map_err(TaskError::file(&rules))?;
        let bridge = format!("unix:{}", at("br0.mgmt"));
        let rules = rules.display().to_string();
        process::run(Command::new("ovs-ofctl").args(["add-flows", &bridge, &rules]))?;
        Ok(Self {
            folder,
            _daemon: daemon,
            _database: database,
        })
    }

    /// Packets of established connections, by the port that they came by.
    fn established(&self) -> Result<[f64; 2], TaskError> {
        let bridge = format!("unix:{}", self.folder.join("br0.mgmt").display());
        let mut command = Command::new("ovs-ofctl");
        let text = process::read(command.args(["dump-flows", &bridge, "table=1"]))?;
        let of = |port: u8| {
            let marks = ["+est", &format!("in_port={port}")].map(str::to_owned);
            let mut lines = text.lines();
            let line = lines.find(|line| marks.iter().all(|mark| line.contains(mark)))?;
            let count = line.split("n_packets=").nth(1)?.split(',').next()?;
            count.parse().ok()
        };
        Ok([1, 2].map(|port| of(port).unwrap_or(0.0)))
    }

    fn appctl(&self, what: &str) -> Result<String, TaskError> {
        let socket = self.folder.join("ctl").display().to_string();
        process::read(Command::new("ovs-appctl").args(["--target", &socket, what]))
    }
}

/// Established connections pass both ways; of new ones the last of the rules permits those from
/// inside, port 1. With `nat` there are as many last ones as outside addresses: 198.18.0.0 for
/// 10.0.0.0/12, and so on; ports are kept where they are free.
fn rules_text(nat: bool) -> String {
    let known = if nat { "nat," } else { "" };
    let mut text = format!("table=0,priority=10,ip,ct_state=-trk,actions=ct({known}table=1)\n");
    for (from, to) in [(1, 2), (2, 1)] {
        let _ = writeln!(
            text,
            "table=1,priority=2000,ip,ct_state=+trk+est,in_port={from},actions=output:{to}"
        );
    }
    for number in 1..RULES {
        let (high, low) = (number / 256, number % 256);
        let _ = writeln!(
            text,
            "table=1,priority={},udp,ct_state=+trk+new,in_port=1,nw_src=172.16.{high}.{low},\
             actions=ct(commit),output:2",
            RULES + 999 - number
        );
    }
    let mut last = |from: &str, how: &str| {
        let _ = writeln!(
            text,
            "table=1,priority=10,udp,ct_state=+trk+new,in_port=1,nw_src={from},\
             actions=ct({how}),output:2"
        );
    };
    match nat {
        false => last("10.0.0.0/8", "commit"),
        true => (0..16).for_each(|number| {
            let outside = format!("commit,nat(src=198.18.0.{number})");
            last(&format!("10.{}.0.0/12", 16 * number), &outside);
        }),
    }
    text
}

fn spawn(command: &mut Command) -> Result<Process, TaskError> {
    let program = process::spelled(command);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::null()).spawn();
    child
        .map(Process)
        .map_err(|source| TaskError::Start { program, source })
}

/// Waits for a socket.
fn until(socket: &Path) -> Result<(), TaskError> {
    let start = Instant::now();
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        if start.elapsed() > START {
            return Err(TaskError::Missing {
                what: format!("nobody listens at {}", socket.display()),
                fix: "read the log beside it".into(),
            });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_are_as_many_rules_as_ours_has() {
        for (nat, last) in [(false, 1), (true, 16)] {
            let text = super::rules_text(nat);
            let new = text.lines().filter(|line| line.contains("+new")).count();
            assert_eq!((new, text.lines().count()), (999 + last, 1002 + last));
        }
    }
}
