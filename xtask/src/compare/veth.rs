//! A veth pair between two namespaces: `d0` for the side under test, `g0` with an in-kernel feeder
//! or sink.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::error::TaskError;
use crate::process;
use crate::undo::Undo;

/// The interface that the side under test opens, in the namespace that [`Veth::inside`] enters.
pub(super) const PORT: &str = "d0";
const GENERATOR: &str = "g0";

/// Both namespaces; removed with `undo`.
pub(super) struct Veth {
    dut: String,
    generator: String,
    xgen: PathBuf,
    feed_on: Option<usize>,
}

impl Veth {
    /// Makes the namespaces and the pair. `xgen` is the program at the far end: it feeds from CPU
    /// `feed_on`, or without one drops what arrives.
    pub(super) fn create(
        undo: &mut Undo,
        xgen: PathBuf,
        feed_on: Option<usize>,
    ) -> Result<Veth, TaskError> {
        let id = std::process::id();
        let veth = Veth {
            dut: format!("lrdut{id}"),
            generator: format!("lrgen{id}"),
            xgen,
            feed_on,
        };
        for namespace in [&veth.dut, &veth.generator] {
            quiet_namespace(undo, namespace)?;
        }
        ip(&[
            "link",
            "add",
            GENERATOR,
            "netns",
            &veth.generator,
            "type",
            "veth",
            "peer",
            "name",
            PORT,
            "netns",
            &veth.dut,
        ])?;
        ip(&["-n", &veth.generator, "link", "set", GENERATOR, "up"])?;
        ip(&["-n", &veth.dut, "link", "set", PORT, "up"])?;
        // GRO gives d0 a NAPI of its own, without which veth takes no XDP frames.
        process::read(veth.inside("ethtool").args(["-K", PORT, "gro", "on"]))?;
        Ok(veth)
    }

    /// `program` in the namespace of the side under test.
    pub(super) fn inside(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        inside(&self.dut, program)
    }

    /// Starts the feeder (60-byte frames: 64 on a wire) or the sink.
    pub(super) fn far_end(&self) -> Result<FarEnd, TaskError> {
        let cpu = self.feed_on.map(|cpu| cpu.to_string());
        match &cpu {
            Some(cpu) => {
                FarEnd::start(&self.generator, &self.xgen, &["feed", GENERATOR, "60", cpu])
            }
            None => FarEnd::start(&self.generator, &self.xgen, &["drop", GENERATOR]),
        }
    }

    /// Frames that have arrived at the sink since the pair was made: the same judge for both sides.
    pub(super) fn sunk(&self) -> Result<u64, TaskError> {
        let text = ip(&["-n", &self.generator, "-s", "-j", "link", "show", GENERATOR])?;
        let parsed: Option<Value> = serde_json::from_str(&text).ok();
        let packets = parsed
            .as_ref()
            .and_then(|v| v[0]["stats64"]["rx"]["packets"].as_u64());
        packets.ok_or_else(|| TaskError::Unexpected {
            who: "ip -s -j link".into(),
            text,
            expected: "stats64.rx.packets",
        })
    }
}

/// The running feeder or sink; ends when dropped.
pub(super) struct FarEnd {
    child: Child,
}

impl FarEnd {
    /// Starts `xgen` with these words in a namespace, and waits until it is at work.
    pub(super) fn start(namespace: &str, xgen: &Path, words: &[&str]) -> Result<FarEnd, TaskError> {
        let mut command = inside(namespace, xgen);
        command.args(words);
        let name = process::spelled(&command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|source| TaskError::Start {
                program: name.clone(),
                source,
            })?;
        let mut ready = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output)
                .read_line(&mut ready)
                .map_err(TaskError::file("xgen"))?;
        }
        let end = FarEnd { child };
        if ready.is_empty() {
            return Err(TaskError::Missing {
                what: format!("`{name}` did not start (its reason stands above)"),
                fix: "the veth rows need Linux 5.18 and CAP_BPF, CAP_NET_ADMIN".into(),
            });
        }
        Ok(end)
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a namespace in which the kernel itself sends nothing.
pub(super) fn quiet_namespace(undo: &mut Undo, name: &str) -> Result<(), TaskError> {
    if !process::is_root() {
        return Err(TaskError::Missing {
            what: "network namespaces and XDP programs need root".into(),
            fix: "run `cargo xtask compare` as root for the veth rows".into(),
        });
    }
    undo.add(&format!("ip netns del {name}"))?;
    ip(&["netns", "add", name])?;
    // No router solicitations among the frames that are counted.
    let quiet = "net.ipv6.conf.default.disable_ipv6=1";
    process::read(inside(name, "sysctl").args(["-qw", quiet])).map(drop)
}

/// `program` in a namespace.
pub(super) fn inside(namespace: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

pub(super) fn ip(args: &[&str]) -> Result<String, TaskError> {
    process::read(Command::new("ip").args(args))
}
