//! The Debian packages that tests and `compare` use, and how they are installed.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::TaskError;
use crate::process;

/// One package of Debian 12 (and Ubuntu), and what is skipped without it.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// A program, pkg-config module or file that shows it is there.
    probe: Probe,
    pub(crate) used_for: &'static str,
    /// Only `cargo xtask test --all` needs it.
    long: bool,
}

enum Probe {
    Program(&'static str),
    PkgConfig(&'static str),
    File(&'static str),
    /// Not installed, but unpacked into [`guest_dir`], where this file shows it.
    Unpacked(&'static str),
}

const fn program(name: &'static str, program: &'static str, used_for: &'static str) -> Package {
    Package {
        name,
        probe: Probe::Program(program),
        used_for,
        long: false,
    }
}

/// For long scenarios only.
const fn guest(name: &'static str, probe: Probe, used_for: &'static str) -> Package {
    Package {
        name,
        probe,
        used_for,
        long: true,
    }
}

/// Where the kernel of guests is, and what they start with; `tests/vm` looks here.
fn guest_dir() -> PathBuf {
    process::target_dir().join("guest")
}

/// The one table: a test that shells out to a new program adds its row here.
#[rustfmt::skip]
pub(crate) const PACKAGES: &[Package] = &[
    program("iproute2",    "ip",           "network namespaces, veth pairs and bridges of the \
        scenario tests"),
    program("iputils-ping","ping",         "reachability in the scenario tests"),
    program("procps",      "sysctl",       "settings of the name spaces that tests of drivers \
        make"),
    program("ethtool",     "ethtool",      "offload settings of veth in the scenario tests"),
    program("iperf3",      "iperf3",       "TCP through linerate in the long scenarios"),
    program("tcpdump",     "tcpdump",      "the second opinion on our counters and captures"),
    program("tshark",      "tshark",       "reading back the pcapng files and test frames we \
        write"),
    program("frr",         "vtysh",        "BGP and OSPF through the router in the long scenarios"),
    program("python3-scapy","scapy",      "fragments of every shape, and what the RFCs ask of a \
        NAT"),
    program("python3",     "python3",      "web servers behind a balancer"),
    Package { name: "python3-prometheus-client", probe: Probe::File("/usr/lib/python3/\
        dist-packages/prometheus_client/openmetrics/parser.py"), used_for: "whether \
        Prometheus reads the router's metrics", long: false },
    program("coturn",      "turnserver",   "which mapping and filtering a stranger finds"),
    program("traceroute",  "traceroute",   "whether the router shows itself"),
    program("systemd",     "systemd-analyze", "whether the router's unit is right, and how little \
        it may do"),
    program("tmux",        "tmux",         "the screen of pktgen in a real terminal"),
    program("nftables",    "nft",          "the kernel's firewall as a device under test"),
    program("conntrack",   "conntrack",    "what the kernel knows of flows, beside what the gateway \
        does"),
    program("nmap",        "nmap",         "which ports a scanner sees through the gateway"),
    program("hping3",      "hping3",       "segments that no host sends, and floods"),
    program("thc-ipv6",    "atk6-firewall6", "the ways around a firewall by IPv6's headers, in the \
        long scenarios"),
    guest("tayga",         Probe::Program("tayga"), "a translator without state on the other side \
        of NAT64, in the long scenarios"),
    program("gcc",         "gcc",          "the C peers of `cargo xtask compare`"),
    program("pkg-config",  "pkg-config",   "finding DPDK"),
    program("dpdk-dev",    "dpdk-testpmd", "interoperation with DPDK, and the forwarding peers of \
        `compare`"),
    Package { name: "libdpdk-dev", probe: Probe::PkgConfig("libdpdk"), used_for: "the ring and \
        pool peers of `compare`", long: false },
    program("curl",        "curl",         "bodies that our web server sends"),
    program("wrk",         "wrk",          "load on our web server, and on nginx in `compare`"),
    program("apache2-utils", "ab",         "load on our web server, a connection a request"),
    program("nghttp2-client", "h2load",    "load on our web server"),
    program("nginx",       "nginx",        "an origin for our web client and proxy, and the peer of \
        `compare`"),
    program("haproxy",     "haproxy",      "a balancer in front of our web server"),
    program("slowhttptest","slowhttptest", "attacks by slowness on our web server"),
    program("mandoc",      "mandoc",       "a second opinion on the man pages"),
    program("man-db",      "man",          "whether the man pages are right"),
    program("fish",        "fish",         "completion in fish"),
    program("zsh",         "zsh",          "completion in zsh"),
    guest("openvswitch-switch-dpdk", Probe::File("/usr/lib/openvswitch-switch-dpdk/\
        ovs-vswitchd-dpdk"), "a switch between ports of ours, in the long scenarios"),
    guest("lintian",           Probe::Program("lintian"),    "Debian's opinion of our package, in \
        the long scenarios"),
    guest("mmdebstrap",        Probe::Program("mmdebstrap"), "a clean Debian to install our \
        package in, in the long scenarios"),
    guest("qemu-system-x86",   Probe::Program("qemu-system-x86_64"), "guests whose kernel can what \
        this one cannot, in the long scenarios"),
    guest("linux-image-amd64", Probe::Unpacked("modules/virtio_net.ko"), "the kernel of these \
        guests; only unpacked, into target/guest"),
    guest("busybox-static",    Probe::Unpacked("busybox"), "what these guests start with; only \
        unpacked, into target/guest"),
];

impl Package {
    fn is_installed(&self) -> bool {
        match self.probe {
            Probe::Program(name) => process::find_program(name).is_some(),
            Probe::PkgConfig(module) => {
                process::output(Command::new("pkg-config").args(["--exists", module]))
                    .is_ok_and(|output| output.status.success())
            }
            Probe::File(path) => Path::new(path).is_file(),
            Probe::Unpacked(file) => guest_dir().join(file).is_file(),
        }
    }

    fn is_unpacked(&self) -> bool {
        matches!(self.probe, Probe::Unpacked(_))
    }
}

/// The packages this machine lacks, those for long scenarios only if `all` is wanted.
pub(crate) fn missing(all: bool) -> Vec<&'static Package> {
    PACKAGES
        .iter()
        .filter(|package| (all || !package.long) && !package.is_installed())
        .collect()
}

/// How to get `packages`, as a user would type it.
pub(crate) fn install_command(packages: &[&Package]) -> String {
    let (unpacked, installed): (Vec<&Package>, Vec<&Package>) =
        packages.iter().partition(|package| package.is_unpacked());
    let mut command = String::new();
    if !installed.is_empty() {
        let names: Vec<&str> = installed.iter().map(|package| package.name).collect();
        command = format!(
            "apt-get install --no-install-recommends {}",
            names.join(" ")
        );
    }
    if !unpacked.is_empty() {
        let before = if command.is_empty() { "" } else { "; " };
        command += before;
        command += "cargo xtask test --all --yes";
    }
    command
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
        eprintln!("  {:17} {}", package.name, package.used_for);
    }
    eprint!("Install them now? ({}) [y/N] ", install_command(packages));
    let mut answer = String::new();
    let _ = std::io::stderr().flush();
    std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Services stay stopped (policy-rc.d, put there only if there is none, gone afterwards) and
/// nothing prompts.
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

/// Unpacks packages into a folder: of a kernel what a guest on virtual wires needs, and all modules
/// in one place. Replaces the folder when all is there.
const UNPACK: &str = r#"
set -e
into=$1
shift
mkdir -p "$(dirname "$into")"
work=$(mktemp -d "$into.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
chmod 755 "$work"
cd "$work"
for package in "$@"; do
  # A kernel's own name has its version in it.
  named=$(apt-cache depends "$package" |
    sed -n 's/^ *Depends: \(linux-image-.*\)$/\1/p' | head -n 1)
  apt-get -q -o APT::Sandbox::User=root download "${named:-$package}"
done
for package in *.deb; do
  # tar complains of what is in another of the packages; what is missing is seen below.
  dpkg-deb --fsys-tarfile "$package" | tar -x --wildcards \
    '*/busybox' '*/vmlinuz-*' '*/kernel/net/*' \
    '*/kernel/fs/9p/*' '*/kernel/fs/netfs/*' '*/kernel/fs/fscache/*' '*/kernel/fs/overlayfs/*' \
    '*/kernel/drivers/virtio/*' \
    '*/kernel/drivers/net/tun.ko*' '*/kernel/drivers/net/veth.ko*' '*/kernel/drivers/net/vrf.ko*' \
    '*/kernel/drivers/net/virtio_net.ko*' '*/kernel/drivers/net/net_failover.ko*' \
    2> /dev/null || true
done
mkdir modules
find . -path ./modules -prune -o -name '*.ko*' -exec mv -t modules {} +
for packed in modules/*.xz; do [ ! -e "$packed" ] || xz -d "$packed"; done
for packed in modules/*.zst; do [ ! -e "$packed" ] || zstd -q -d --rm "$packed"; done
find . -type f -name 'vmlinuz-*' -exec mv {} vmlinuz ';'
find . -type f -path '*/bin/busybox' -exec mv {} busybox ';'
chmod 644 vmlinuz
find . -mindepth 1 -maxdepth 1 ! -name modules ! -name vmlinuz ! -name busybox -exec rm -rf {} +
rm -rf "$into"
mv "$work" "$into"
trap - EXIT
"#;

/// Installs `packages` with apt-get, through sudo when we are not root, and unpacks those that are
/// only unpacked.
pub(crate) fn install(packages: &[&Package]) -> Result<(), TaskError> {
    let (unpacked, installed): (Vec<&Package>, Vec<&Package>) =
        packages.iter().partition(|package| package.is_unpacked());
    if !installed.is_empty() {
        install_all(&installed)?;
    }
    if unpacked.is_empty() {
        return Ok(());
    }
    let mut command = Command::new("sh");
    command
        .args(["-c", UNPACK, "unpack-packages"])
        .arg(guest_dir());
    // The folder is replaced as a whole.
    let whole = PACKAGES.iter().filter(|package| package.is_unpacked());
    command.args(whole.map(|package| package.name));
    process::run(&mut command)
}

fn install_all(packages: &[&Package]) -> Result<(), TaskError> {
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
