//! The Debian packages that tests and `compare` use, and how they are installed.

use std::io::{IsTerminal, Write};
use std::process::Command;

use crate::error::TaskError;
use crate::process;

/// One package of Debian 12 (and Ubuntu), and what is skipped without it.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// A program or pkg-config module that shows it is there, on any distribution.
    probe: Probe,
    pub(crate) used_for: &'static str,
}

enum Probe {
    Program(&'static str),
    PkgConfig(&'static str),
}

const fn program(name: &'static str, program: &'static str, used_for: &'static str) -> Package {
    Package {
        name,
        probe: Probe::Program(program),
        used_for,
    }
}

/// The one table: a test that shells out to a new program adds its row here.
#[rustfmt::skip]
pub(crate) const PACKAGES: &[Package] = &[
    program("iproute2",    "ip",           "network namespaces, veth pairs and bridges of the scenario tests"),
    program("iputils-ping","ping",         "reachability in the scenario tests"),
    program("ethtool",     "ethtool",      "offload settings of veth in the scenario tests"),
    program("iperf3",      "iperf3",       "TCP through linerate in the long scenarios"),
    program("tcpdump",     "tcpdump",      "the second opinion on our counters and captures"),
    program("tshark",      "tshark",       "reading back the pcapng files and test frames we write"),
    program("frr",         "vtysh",        "BGP and OSPF through the router in the long scenarios"),
    program("python3-scapy","scapy",      "fragments of every shape through the router"),
    program("traceroute",  "traceroute",   "whether the router shows itself"),
    program("systemd",     "systemd-analyze", "whether the router's unit is right, and how little it may do"),
    program("tmux",        "tmux",         "the screen of pktgen in a real terminal"),
    program("nftables",    "nft",          "the kernel's firewall as a device under test"),
    program("gcc",         "gcc",          "the C peers of `cargo xtask compare`"),
    program("pkg-config",  "pkg-config",   "finding DPDK"),
    program("dpdk",        "dpdk-testpmd", "interoperation with DPDK, and the forwarding peers of `compare`"),
    Package { name: "libdpdk-dev", probe: Probe::PkgConfig("libdpdk"), used_for: "the ring and pool peers of `compare`" },
];

impl Package {
    fn is_installed(&self) -> bool {
        match self.probe {
            Probe::Program(name) => process::find_program(name).is_some(),
            Probe::PkgConfig(module) => {
                process::output(Command::new("pkg-config").args(["--exists", module]))
                    .is_ok_and(|output| output.status.success())
            }
        }
    }
}

/// The packages this machine lacks.
pub(crate) fn missing() -> Vec<&'static Package> {
    PACKAGES
        .iter()
        .filter(|package| !package.is_installed())
        .collect()
}

/// How to get `packages`, as a user would type it.
pub(crate) fn install_command(packages: &[&Package]) -> String {
    let names: Vec<&str> = packages.iter().map(|package| package.name).collect();
    format!(
        "apt-get install --no-install-recommends {}",
        names.join(" ")
    )
}

/// Whether the user wants apt-get run: `Some` when decided by options, else the terminal is asked.
pub(crate) fn consent(packages: &[&Package], decided: Option<bool>) -> bool {
    if let Some(decided) = decided {
        return decided;
    }
    if !std::io::stdin().is_terminal() {
        return false;
    }
    eprintln!("Some tests use Debian packages that are not here:");
    for package in packages {
        eprintln!("  {:13} {}", package.name, package.used_for);
    }
    eprint!("Install them now? ({}) [y/N] ", install_command(packages));
    let mut answer = String::new();
    let _ = std::io::stderr().flush();
    std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Services stay stopped (policy-rc.d, put there only if there is none, gone afterwards) and nothing asks.
const INSTALL: &str = r#"
set -e
guard=/usr/sbin/policy-rc.d
if [ ! -e "$guard" ]; then
  trap 'rm -f "$guard"' EXIT
  trap 'exit 1' INT TERM HUP
  printf '#!/bin/sh\nexit 101\n' > "$guard"
  chmod 755 "$guard"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -q -o DPkg::Lock::Timeout=120 update
apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@"
"#;

/// Installs `packages` with apt-get; through sudo when we are not root.
pub(crate) fn install(packages: &[&Package]) -> Result<(), TaskError> {
    if process::find_program("apt-get").is_none() {
        return Err(TaskError::Missing {
            what: "there is no apt-get here".into(),
            fix: format!(
                "install what `{}` would, the way this system does",
                install_command(packages)
            ),
        });
    }
    let mut command = if process::is_root() {
        Command::new("sh")
    } else {
        let mut sudo = Command::new("sudo");
        if !std::io::stdin().is_terminal() {
            sudo.arg("-n");
        }
        sudo.arg("sh");
        sudo
    };
    command.args(["-c", INSTALL, "install-packages"]);
    command.args(packages.iter().map(|package| package.name));
    process::run(&mut command).map_err(|error| match error {
        TaskError::Failed { status, said, .. } => TaskError::Failed {
            command: install_command(packages),
            status,
            said,
        },
        other => other,
    })
}
