//! DPDK's side: where it is, how our C programs are built against it, and how they are run.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::hugepages::Hugepages;
use super::machine::Cpus;
use super::sample::{self, Sample};
use crate::error::TaskError;
use crate::{packages, process};

/// An installed DPDK: the distribution's, or the one below `--dpdk PREFIX`.
pub(super) struct Dpdk {
    prefix: Option<PathBuf>,
    pub(super) version: String,
    cflags: Vec<String>,
    libs: Vec<String>,
    /// Where we build.
    folder: PathBuf,
}

/// Folders below a prefix in which DPDK's build puts its libraries.
const LIB_FOLDERS: &[&str] = &[
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib64",
    "lib",
];

impl Dpdk {
    /// Finds it by pkg-config; the error says how to install it.
    pub(super) fn find(prefix: Option<&Path>) -> Result<Dpdk, TaskError> {
        let prefix = prefix
            .map(std::path::absolute)
            .transpose()
            .map_err(TaskError::file("--dpdk"))?;
        let mut dpdk = Dpdk {
            prefix,
            version: String::new(),
            cflags: Vec::new(),
            libs: Vec::new(),
            folder: process::target_dir().join("compare"),
        };
        let is_there = |folder: PathBuf| folder.join("libdpdk.pc").is_file();
        if dpdk.prefix.is_some() && !dpdk.pkg_config_folders().any(is_there) {
            return Err(dpdk.absent());
        }
        let version = dpdk
            .pkg_config(&["--modversion"])
            .map_err(|_| dpdk.absent())?;
        dpdk.version = version.concat();
        dpdk.cflags = dpdk.pkg_config(&["--cflags"])?;
        dpdk.libs = if dpdk.is_static() {
            linkable(dpdk.pkg_config(&["--static", "--libs"])?)
        } else {
            dpdk.pkg_config(&["--libs"])?
        };
        std::fs::create_dir_all(&dpdk.folder).map_err(TaskError::file(&dpdk.folder))?;
        Ok(dpdk)
    }

    fn absent(&self) -> TaskError {
        match &self.prefix {
            None => {
                let needed = ["gcc", "pkg-config", "dpdk-dev", "libdpdk-dev"];
                let packages: Vec<_> = packages::PACKAGES
                    .iter()
                    .filter(|package| needed.contains(&package.name))
                    .collect();
                TaskError::Missing {
                    what: "pkg-config knows no libdpdk: DPDK is not installed".into(),
                    fix: format!(
                        "{} (as root), or name an installation with --dpdk PREFIX",
                        packages::install_command(&packages)
                    ),
                }
            }
            Some(prefix) => TaskError::Missing {
                what: format!("no libdpdk.pc below {}", prefix.display()),
                fix: "name the prefix that `meson install` was given".into(),
            },
        }
    }

    fn lib_folders(&self) -> Vec<PathBuf> {
        let prefix = self.prefix.iter();
        prefix
            .flat_map(|prefix| LIB_FOLDERS.iter().map(|folder| prefix.join(folder)))
            .collect()
    }

    fn pkg_config_folders(&self) -> impl Iterator<Item = PathBuf> {
        self.lib_folders()
            .into_iter()
            .map(|folder| folder.join("pkgconfig"))
    }

    fn is_static(&self) -> bool {
        let shared = |folder: &PathBuf| folder.join("librte_eal.so").exists();
        self.prefix.is_some() && !self.lib_folders().iter().any(shared)
    }

    fn pkg_config(&self, args: &[&str]) -> Result<Vec<String>, TaskError> {
        let mut command = Command::new("pkg-config");
        command.args(args).arg("libdpdk");
        if self.prefix.is_some() {
            let path = std::env::join_paths(self.pkg_config_folders()).unwrap_or_default();
            command.env("PKG_CONFIG_PATH", path);
        }
        let text = process::read(&mut command)?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    /// Compiles one program the way DPDK's own examples are, but for this machine.
    fn compile(&self, sources: &[PathBuf], program: &str) -> Result<PathBuf, TaskError> {
        self.compile_with(&[], sources, program)
    }

    fn compile_with(
        &self,
        flags: &[String],
        sources: &[PathBuf],
        program: &str,
    ) -> Result<PathBuf, TaskError> {
        let output = self.folder.join(program);
        let mut cc = Command::new("cc");
        // Ours come last: the distribution's flags name its baseline, -march=corei7.
        cc.args(&self.cflags)
            .args(["-O3", "-march=native", "-w"])
            .args(flags)
            .args(sources)
            .arg("-o")
            .arg(&output)
            .args(&self.libs);
        // RPATH, not RUNPATH: DPDK's libraries look for each other there, too.
        cc.arg("-Wl,--disable-new-dtags");
        for folder in self.lib_folders() {
            cc.arg(format!("-Wl,-rpath,{}", folder.display()));
        }
        process::read(&mut cc)?;
        Ok(output)
    }

    /// The peers of one-core and two-core rows.
    pub(super) fn build_micro(&self) -> Result<PathBuf, TaskError> {
        let sources = [
            "main.c",
            "ring.c",
            "pool.c",
            "parse.c",
            "rss.c",
            "exact.c",
            "lpm4.c",
            "lpm6.c",
            "acl.c",
            "flow.c",
            "timers.c",
            "meter.c",
            "pktgen.c",
            "l3fwd.c",
            "reassembly.c",
        ];
        self.compile(&sources.map(source), "peer")
    }

    /// One end of a pair of processes.
    pub(super) fn build_port(&self) -> Result<PathBuf, TaskError> {
        self.compile(&[source("port.c")], "port")
    }

    /// `dpdk-testpmd` of this DPDK.
    pub(super) fn testpmd(&self) -> Result<PathBuf, TaskError> {
        self.program("dpdk-testpmd")
            .ok_or_else(|| match &self.prefix {
                Some(prefix) => TaskError::Missing {
                    what: format!("no bin/dpdk-testpmd below {}", prefix.display()),
                    fix: "build it with the apps enabled (meson -Denable_apps=test-pmd)".into(),
                },
                None => TaskError::Missing {
                    what: "dpdk-testpmd is not in PATH".into(),
                    fix: "apt-get install --no-install-recommends dpdk-dev".into(),
                },
            })
    }

    /// DPDK's l2fwd example: built, or as source; Debian ships neither.
    pub(super) fn l2fwd(&self) -> Result<Option<PathBuf>, TaskError> {
        if let Some(program) = self.program("dpdk-l2fwd") {
            return Ok(Some(program));
        }
        let prefix = self.prefix.as_deref().unwrap_or(Path::new("/usr"));
        let source = prefix.join("share/dpdk/examples/l2fwd/main.c");
        source
            .is_file()
            .then(|| self.compile(&[source], "dpdk-l2fwd"))
            .transpose()
    }

    /// DPDK's l3fwd example: built, or as source; Debian ships neither. Before 23.11 it refuses
    /// ports that check no checksums, as net_pcap.
    pub(super) fn l3fwd(&self) -> Result<Option<PathBuf>, TaskError> {
        let number = |part: &str| part.parse().unwrap_or(0);
        let version: Vec<u32> = self.version.split(['.', '-']).map(number).collect();
        if version < vec![23, 11] {
            return Ok(None);
        }
        if let Some(program) = self.program("dpdk-l3fwd") {
            return Ok(Some(program));
        }
        let prefix = self.prefix.as_deref().unwrap_or(Path::new("/usr"));
        let folder = prefix.join("share/dpdk/examples/l3fwd");
        if !folder.join("main.c").is_file() {
            return Ok(None);
        }
        // Its other sources are included by these.
        let sources = [
            "main.c",
            "l3fwd_acl.c",
            "l3fwd_em.c",
            "l3fwd_event.c",
            "l3fwd_event_generic.c",
            "l3fwd_event_internal_port.c",
            "l3fwd_fib.c",
            "l3fwd_lpm.c",
        ];
        let flags = [
            "-DALLOW_EXPERIMENTAL_API".to_owned(),
            format!("-I{}", folder.join("../common").display()),
        ];
        let sources = sources.map(|name| folder.join(name));
        self.compile_with(&flags, &sources, "dpdk-l3fwd").map(Some)
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        match &self.prefix {
            None => process::find_program(name),
            Some(prefix) => ["bin", "examples"]
                .map(|folder| prefix.join(folder).join(name))
                .into_iter()
                .find(|file| file.is_file()),
        }
    }

    /// The libraries of a prefix, for its own programs.
    pub(super) fn library_path(&self) -> Option<std::ffi::OsString> {
        self.prefix.as_ref()?;
        std::env::join_paths(self.lib_folders()).ok()
    }
}

/// What pkg-config names for a static link, without libraries that the linker does not find: it
/// names those that others' libraries would want if they were static, too (libpcap's libsystemd),
/// and these are shared. One that is needed after all is named by the linker, with what it lacks.
fn linkable(libs: Vec<String>) -> Vec<String> {
    let is_found = |file: &str| {
        let mut cc = Command::new("cc");
        cc.arg(format!("-print-file-name={file}"));
        // It prints a path where it finds one, and otherwise the name.
        process::read(&mut cc).is_ok_and(|path| path.trim() != file)
    };
    let keep = |lib: &String| match lib.strip_prefix("-l") {
        None => true,
        // DPDK's own are in its folder.
        Some(name) if name.starts_with(':') || name.starts_with("rte_") => true,
        Some(name) => ["so", "a"]
            .iter()
            .any(|end| is_found(&format!("lib{name}.{end}"))),
    };
    libs.into_iter().filter(keep).collect()
}

fn source(name: &str) -> PathBuf {
    process::root().join("xtask/peer").join(name)
}

/// The feeder and the dropper of the veth rows; needs no DPDK.
pub(super) fn build_xgen() -> Result<PathBuf, TaskError> {
    build_plain("xgen")
}

/// A program of one file that needs no DPDK.
pub(super) fn build_plain(name: &str) -> Result<PathBuf, TaskError> {
    let folder = process::target_dir().join("compare");
    std::fs::create_dir_all(&folder).map_err(TaskError::file(&folder))?;
    let output = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-w"])
        .arg(source(&format!("{name}.c")))
        .arg("-o")
        .arg(&output);
    process::read(&mut cc)?;
    Ok(output)
}

/// What every DPDK process here is told: no devices, the widest SIMD, the cores that we chose.
pub(super) fn eal(lcores: &str, pages: &Hugepages, prefix: &str, files: bool) -> Vec<String> {
    let mut options: Vec<String> = ["--lcores", lcores, "--main-lcore", "0", "--no-pci"]
        .map(String::from)
        .to_vec();
    options.push(format!("--file-prefix={prefix}"));
    options.push("--force-max-simd-bitwidth=512".into());
    options.extend(pages.eal(files));
    if !files {
        options.push("--no-telemetry".into());
    }
    options
}

/// One run of the C program `peer`.
pub(super) struct Micro<'a> {
    pub(super) row: &'a str,
    pub(super) seconds: f64,
    pub(super) two_cores: bool,
    /// What `linerate bench input` wrote for the row.
    pub(super) input: Option<&'a Path>,
}

/// Runs the C program `peer` for one row.
pub(super) fn micro(
    program: &Path,
    row: &Micro,
    cpus: &Cpus,
    pages: &Hugepages,
) -> Result<Sample, TaskError> {
    let lcores = match cpus.other {
        Some(other) if row.two_cores => format!("0@{},1@{other}", cpus.worker),
        _ => format!("0@{}", cpus.worker),
    };
    let mut command = Command::new(program);
    command.arg(row.row).arg(row.seconds.to_string());
    command.arg(row.input.unwrap_or(Path::new("-")));
    command.args(eal(&lcores, pages, &file_prefix(), false));
    sample::sample(&mut command)
}

/// Run-time files of our DPDK processes carry this name.
pub(super) fn file_prefix() -> String {
    format!("linerate-compare-{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::linkable;

    #[test]
    fn a_static_link_leaves_out_what_only_other_static_libraries_want() {
        let named = [
            "-L/x",
            "-lrte_eal",
            "-l:librte_eal.a",
            "-lm",
            "-lno_such_library",
            "-pthread",
        ];
        let kept = linkable(named.map(String::from).into());
        assert_eq!(
            kept,
            ["-L/x", "-lrte_eal", "-l:librte_eal.a", "-lm", "-pthread"]
        );
    }
}
