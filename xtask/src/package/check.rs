//! A package in a clean Debian, and lintian's opinion of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::TaskError;
use crate::process;

/// Why the package cannot be tried here.
pub(super) fn cannot_run() -> Option<String> {
    if !process::is_root() {
        return Some("only root makes a clean Debian to install in".into());
    }
    let missing = ["dpkg-deb", "mmdebstrap", "lintian"]
        .into_iter()
        .find(|program| process::find_program(program).is_none());
    missing.map(|program| format!("needs the program {program}"))
}

/// Errors and warnings of lintian are ours.
pub(super) fn lint(package: &Path) -> Result<(), TaskError> {
    if process::find_program("lintian").is_none() {
        return Err(missing("lintian"));
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    process::read(lintian.arg(package)).map(drop)
}

fn missing(program: &str) -> TaskError {
    TaskError::Missing {
        what: format!("the program {program} is not here"),
        fix: format!("apt-get install {program}"),
    }
}

/// The smallest Debian with systemd and man, kept from run to run.
fn clean_root() -> Result<PathBuf, TaskError> {
    let root = process::target_dir().join("package/root.tar");
    if !root.is_file() {
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=minbase", "--format=tar"])
            .args(["--include=systemd,man-db,bash-completion", &suite()])
            .arg(&root);
        process::run(&mut make).inspect_err(|_| {
            let _ = std::fs::remove_file(&root);
        })?;
    }
    Ok(root)
}

/// Of the machine: its C library is what the program was built with.
fn suite() -> String {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.unwrap_or("stable").into()
}

/// What happens in the clean root, all of it with a private view of mounts and processes.
const IN_ROOT: &str = r#"
set -e
root=$1 package=$2 base=$3
exec 2>&1
trap 'umount -q "$root/proc" "$root/dev/null"; rm -rf --one-file-system "$root"' EXIT
mkdir -p "$root"
tar -C "$root" -xf "$base"
cp "$package" "$root/tmp/linerate.deb"
mount -t proc proc "$root/proc"
mount --bind /dev/null "$root/dev/null"
chroot "$root" /bin/sh -e -c "$4"
"#;

/// The life of a package: installed, used, installed again, removed, purged.
const LIFE: &str = r#"
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
say() { echo "package: $*"; }
dpkg --install /tmp/linerate.deb
[ -z "$(dpkg --verify linerate)" ]
say user
getent passwd linerate
say program
linerate --version
su -s /bin/sh linerate -c 'linerate demo --frames 64 --seconds-per-size 0.1 > /dev/null'
say examples
cd /usr/share/doc/linerate/examples
linerate router router.toml --check=file > /dev/null
linerate gateway gateway.toml --check=file > /dev/null
linerate steer --print example | cmp - steer.toml
linerate pktgen -f pktgen.toml --dump 1 > /dev/null
say units
for unit in linerate-router.service linerate-gateway.service linerate-steer.service; do
  systemd-analyze verify "$unit"
  systemctl enable "$unit"
  [ -L "/etc/systemd/system/multi-user.target.wants/$unit" ]
done
say pages and completions
man --where linerate linerate-router > /dev/null
man linerate-router | grep -q CONF.toml
bash -c '. /usr/share/bash-completion/bash_completion
_completion_loader linerate || :
complete -p linerate'
say again
dpkg --install /tmp/linerate.deb
say removal
dpkg --remove linerate
[ ! -e /usr/bin/linerate ]
left=$(ls /etc/systemd/system/multi-user.target.wants/linerate-* 2> /dev/null) || :
[ -z "$left" ] || { say "still enabled: $left"; exit 1; }
dpkg --purge linerate
! dpkg --status linerate 2> /dev/null
left=$(find / -xdev \( -path /proc -o -path /tmp -o -path /var/cache \) -prune \
  -o -name '*linerate*' -print)
[ -z "$left" ] || { say "left behind: $left"; exit 1; }
"#;

/// Installs and removes it there.
pub(super) fn install(package: &Path) -> Result<(), TaskError> {
    if let Some(reason) = cannot_run() {
        return Err(TaskError::Missing {
            what: format!("the package was not tried: {reason}"),
            fix: "as root: apt-get install mmdebstrap lintian".into(),
        });
    }
    let base = clean_root()?;
    let root = base.with_file_name(format!("root-{}", std::process::id()));
    let mut life = Command::new("unshare");
    life.args(["--mount", "--pid", "--fork", "--kill-child", "--"])
        .args(["sh", "-c", IN_ROOT, "clean-root"])
        .args([root.as_path(), package, base.as_path()])
        .arg(LIFE);
    match process::read(&mut life) {
        Ok(said) => {
            let steps = said.lines().filter(|line| line.starts_with("package: "));
            steps.for_each(|line| println!("{line}"));
            Ok(())
        }
        Err(TaskError::Failed { status, said, .. }) => Err(TaskError::Failed {
            command: format!("{} in a clean root", package.display()),
            status,
            said,
        }),
        Err(error) => Err(error),
    }
}
