//! `cargo xtask package`: a Debian package of the release build, by `dpkg-deb` alone. What is in it
//! stands in one table, [`FILES`] and [`place_made`]; `packaging/debian` has the texts.
//!
//! `--check` installs it in a clean Debian, made for that, and asks lintian.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;

use crate::error::TaskError;
use crate::process;

mod check;

#[derive(Args)]
pub(crate) struct Options {
    /// Try the package in a clean root of this Debian, as root, and have lintian look at it
    #[arg(long)]
    check: bool,
    /// Package a development build, which is made faster
    #[arg(long)]
    dev: bool,
}

/// Debian's revision of this version.
const REVISION: &str = "1";
const DOC: &str = "usr/share/doc/linerate";

/// Files of the repository, and where they go; folders as they are.
#[rustfmt::skip]
const FILES: &[(&str, &str)] = &[
    ("packaging/linerate-router.service",        "usr/lib/systemd/system/linerate-router.service"),
    ("packaging/linerate-gateway.service",       "usr/lib/systemd/system/linerate-gateway.service"),
    ("packaging/linerate-steer.service",         "usr/lib/systemd/system/linerate-steer.service"),
    ("packaging/linerate.sysusers",              "usr/lib/sysusers.d/linerate.conf"),
    ("packaging/router.toml",                    "usr/share/doc/linerate/examples/router.toml"),
    ("packaging/gateway.toml",                   "usr/share/doc/linerate/examples/gateway.toml"),
    ("packaging/steer.toml",                     "usr/share/doc/linerate/examples/steer.toml"),
    ("packaging/pktgen.toml",                    "usr/share/doc/linerate/examples/pktgen.toml"),
    ("docs/grafana/router.json", "usr/share/doc/linerate/examples/grafana-router.json"),
    ("docs/grafana/gateway.json", "usr/share/doc/linerate/examples/grafana-gateway.json"),
    ("docs/grafana/steer.json", "usr/share/doc/linerate/examples/grafana-steer.json"),
    ("packaging/debian/lintian-overrides",       "usr/share/lintian/overrides/linerate"),
    ("apps/pktgen/python/linerate_pktgen.py", "usr/lib/python3/dist-packages/linerate_pktgen.py"),
    ("apps/pktgen/python/example.ipynb",     "usr/share/doc/linerate/examples/pktgen.ipynb"),
];

/// Makes the package, and checks it where that is wanted.
pub(crate) fn run(options: &Options) -> Result<ExitCode, TaskError> {
    let package = build(options.dev)?;
    println!("{}", package.display());
    if options.check {
        check::lint(&package)?;
        check::install(&package)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the program and everything around it; returns the package's path.
fn build(dev: bool) -> Result<PathBuf, TaskError> {
    if process::find_program("dpkg-deb").is_none() {
        return Err(TaskError::Missing {
            what: "there is no dpkg-deb here".into(),
            fix: "run this on Debian or Ubuntu, or install the package `dpkg`".into(),
        });
    }
    let mut cargo = process::cargo(&["build", "--package", "linerate"]);
    if !dev {
        cargo.arg("--release");
    }
    process::run(&mut cargo)?;
    let program = process::target_dir()
        .join(if dev { "debug" } else { "release" })
        .join("linerate");
    let folder = process::target_dir().join("package");
    let tree = Tree::new(folder.join("linerate"))?;
    place_files(&tree)?;
    place_made(&tree, &program)?;
    let made = Built::look(&program)?;
    place_control(&tree, &made)?;
    let package = folder.join(format!(
        "linerate_{}_{}.deb",
        made.version, made.architecture
    ));
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "--build"])
        .arg(&tree.root)
        .arg(&package)
        .env("SOURCE_DATE_EPOCH", made.commit.seconds.to_string());
    process::read(&mut pack)?;
    Ok(package)
}

/// The package's files before they are packed.
struct Tree {
    root: PathBuf,
}

impl Tree {
    /// An empty one, in place of what is there.
    fn new(root: PathBuf) -> Result<Self, TaskError> {
        if root.exists() {
            fs::remove_dir_all(&root).map_err(TaskError::file(&root))?;
        }
        Ok(Self { root })
    }

    /// Readable for all; executable where `mode` says so.
    fn write(&self, path: &str, content: impl AsRef<[u8]>, mode: u32) -> Result<(), TaskError> {
        let path = self.made(path)?;
        fs::write(&path, content).map_err(TaskError::file(&path))?;
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(&path, mode).map_err(TaskError::file(&path))
    }

    /// The path of a file whose folder is there.
    fn made(&self, path: &str) -> Result<PathBuf, TaskError> {
        let path = self.root.join(path);
        let mut folder = self.root.clone();
        let below = path.strip_prefix(&self.root).ok().and_then(Path::parent);
        // Each is set explicitly, so that the user's umask does not matter.
        for part in [None]
            .into_iter()
            .chain(below.into_iter().flatten().map(Some))
        {
            folder.extend(part);
            fs::create_dir_all(&folder).map_err(TaskError::file(&folder))?;
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&folder, mode).map_err(TaskError::file(&folder))?;
        }
        Ok(path)
    }

    /// Debian's policy wants its documents compressed, without the time at which that was done.
    fn compress(&self, path: &str) -> Result<(), TaskError> {
        let path = self.root.join(path);
        process::read(Command::new("gzip").args(["-9n"]).arg(path)).map(drop)
    }
}

fn read(path: &Path) -> Result<String, TaskError> {
    fs::read_to_string(path).map_err(TaskError::file(path))
}

/// What is copied.
fn place_files(tree: &Tree) -> Result<(), TaskError> {
    for (from, to) in FILES {
        let from = process::root().join(from);
        tree.write(to, read(&from)?, 0o644)?;
    }
    let docs = process::root().join("docs");
    for entry in docs.read_dir().map_err(TaskError::file(&docs))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            tree.write(&format!("{DOC}/{name}"), read(&entry.path())?, 0o644)?;
        }
    }
    Ok(())
}

/// What the program and others write.
fn place_made(tree: &Tree, program: &Path) -> Result<(), TaskError> {
    let installed = tree.made("usr/bin/linerate")?;
    fs::copy(program, &installed).map_err(TaskError::file(program))?;
    let mut strip = Command::new("strip");
    strip.args(["--strip-unneeded", "--remove-section=.comment"]);
    process::read(strip.arg(&installed))?;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&installed, mode).map_err(TaskError::file(&installed))?;
    let said = |words: &[&str]| process::read(Command::new(program).args(words));
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/linerate"),
        ("zsh", "usr/share/zsh/vendor-completions/_linerate"),
        ("fish", "usr/share/fish/vendor_completions.d/linerate.fish"),
    ] {
        tree.write(path, said(&["completions", shell])?, 0o644)?;
    }
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    tree.write(
        &format!("usr/lib/{multiarch}/wireshark/plugins/linerate.lua"),
        said(&["pktgen", "--print", "dissector"])?,
        0o644,
    )?;
    let folder = tree.made("usr/share/man/man1/page")?.with_file_name("");
    crate::man::write(program, &folder)?;
    for page in folder
        .read_dir()
        .map_err(TaskError::file(&folder))?
        .flatten()
    {
        let path = page.path();
        let mode = fs::Permissions::from_mode(0o644);
        fs::set_permissions(&path, mode).map_err(TaskError::file(&path))?;
        process::read(Command::new("gzip").arg("-9n").arg(&path))?;
    }
    let mut crates = process::cargo(&["tree", "--package", "linerate", "--edges", "normal"]);
    crates.args(["--prefix", "none", "--no-dedupe", "--format", "{p} {l}"]);
    let crates = process::read(&mut crates)?;
    // Ours are the package; of each other one a line, without where this machine has it.
    let mut crates: Vec<&str> = crates
        .lines()
        .filter(|line| !line.contains(" (/"))
        .collect();
    crates.sort_unstable();
    crates.dedup();
    tree.write(
        &format!("{DOC}/crates.txt"),
        crates.join("\n") + "\n",
        0o644,
    )
}

/// Who this is, for dpkg: control data, scripts, sums, and the documents that policy wants.
fn place_control(tree: &Tree, made: &Built) -> Result<(), TaskError> {
    let debian = process::root().join("packaging/debian");
    let license = read(&process::root().join("LICENSE-MIT"))?;
    let license: Vec<String> = license
        .lines()
        .map(|line| format!(" {}", if line.is_empty() { "." } else { line }))
        .collect();
    let copyright = read(&debian.join("copyright"))?.replace("@mit@", &license.join("\n"));
    tree.write(&format!("{DOC}/copyright"), copyright, 0o644)?;
    let changelog = read(&process::root().join("CHANGELOG.md"))?;
    tree.write(&format!("{DOC}/changelog"), changelog, 0o644)?;
    tree.compress(&format!("{DOC}/changelog"))?;
    let control = read(&debian.join("control"))?;
    let maintainer = control
        .lines()
        .find_map(|line| line.strip_prefix("Maintainer: "));
    let entry = format!(
        "linerate ({}) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- {}  {}\n",
        made.version,
        maintainer.unwrap_or_default(),
        made.commit.date
    );
    tree.write(&format!("{DOC}/changelog.Debian"), entry, 0o644)?;
    tree.compress(&format!("{DOC}/changelog.Debian"))?;

    let (mut sums, mut bytes) = (String::new(), 0);
    let mut files = Vec::new();
    below(&tree.root, &mut files)?;
    files.sort();
    for file in &files {
        let name = file.strip_prefix(&tree.root).unwrap_or(file);
        let sum = process::read(Command::new("md5sum").arg("--").arg(file))?;
        let sum = sum.split_whitespace().next().unwrap_or_default();
        sums += &format!("{sum}  {}\n", name.display());
        bytes += fs::metadata(file).map_err(TaskError::file(file))?.len();
    }
    let control = control
        .replace("@version@", &made.version)
        .replace("@architecture@", &made.architecture)
        .replace("@libc@", &made.libc)
        .replace("@kilobytes@", &bytes.div_ceil(1024).to_string());
    tree.write("DEBIAN/control", control, 0o644)?;
    tree.write("DEBIAN/md5sums", sums, 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        tree.write(
            &format!("DEBIAN/{script}"),
            read(&debian.join(script))?,
            0o755,
        )?;
    }
    Ok(())
}

/// All files below a folder.
fn below(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), TaskError> {
    for entry in folder
        .read_dir()
        .map_err(TaskError::file(folder))?
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            below(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// What the control data say of a build.
struct Built {
    version: String,
    architecture: String,
    /// The oldest C library that has all that the program asks for.
    libc: String,
    commit: Commit,
}

impl Built {
    fn look(program: &Path) -> Result<Self, TaskError> {
        let said = process::read(Command::new(program).arg("--version"))?;
        let version = said.split_whitespace().next_back().unwrap_or_default();
        let architecture = process::read(Command::new("dpkg").arg("--print-architecture"))?;
        let bytes = fs::read(program).map_err(TaskError::file(program))?;
        Ok(Self {
            version: format!("{version}-{REVISION}"),
            architecture: architecture.trim().into(),
            libc: newest_symbol(&bytes),
            commit: Commit::read(),
        })
    }
}

/// Of the versions of symbols that an executable asks the C library for, the newest one.
fn newest_symbol(program: &[u8]) -> String {
    const NAME: &[u8] = b"GLIBC_2.";
    let versions = program.windows(NAME.len() + 3).filter_map(|bytes| {
        let digits = bytes.strip_prefix(NAME)?;
        let digits: String = digits
            .iter()
            .map_while(|byte| byte.is_ascii_digit().then_some(char::from(*byte)))
            .collect();
        digits.parse::<u32>().ok()
    });
    format!("2.{}", versions.max().unwrap_or(0))
}

/// When what is packaged was committed: the same source makes the same package.
pub(crate) struct Commit {
    seconds: u64,
    /// As RFC 5322 has it.
    date: String,
    /// 2026-11-22
    pub(crate) day: String,
}

impl Commit {
    /// Of source without its history the year 1970.
    pub(crate) fn read() -> Self {
        let mut git = Command::new("git");
        git.args(["log", "-1", "--format=%ct%n%cD%n%cs"]);
        let said = process::read(git.current_dir(process::root())).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        let [seconds, date, day] = lines[..] else {
            return Self {
                seconds: 0,
                date: "Thu, 01 Jan 1970 00:00:00 +0000".into(),
                day: "1970-01-01".into(),
            };
        };
        Self {
            seconds: seconds.parse().unwrap_or(0),
            date: date.into(),
            day: day.into(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_counts() {
        let program = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0";
        assert_eq!(newest_symbol(program), "2.34");
        assert_eq!(newest_symbol(b"nothing"), "2.0");
    }

    #[test]
    fn what_is_packaged_is_there() {
        for (from, _) in FILES {
            assert!(process::root().join(from).is_file(), "{from}");
        }
    }

    #[test]
    #[ignore = "long: makes a Debian of its own"]
    fn the_package_in_a_clean_root() {
        if let Some(reason) = check::cannot_run() {
            println!("SKIP {reason}");
            return;
        }
        let package = build(true).unwrap();
        check::lint(&package).unwrap();
        check::install(&package).unwrap();
    }
}
