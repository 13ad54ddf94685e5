//! 2 MiB pages for the time of the comparison: reserved and mounted if we may, and given back
//! after.

use std::path::{Path, PathBuf};

use crate::error::TaskError;
use crate::process;
use crate::undo::Undo;

const KNOBS: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
/// What DPDK's applications here need at most, with room for both sides' leftovers.
/// (The tables of a million entries want the most.)
const WANTED: usize = 1536;
/// With fewer free pages than this nothing starts.
const ENOUGH: usize = 1024;

/// Where DPDK finds huge pages, or why it has to do without.
pub(super) enum Hugepages {
    Mounted(PathBuf),
    Absent(String),
}

impl Hugepages {
    /// Reserves and mounts what is missing. Errors turn into `Absent` with the reason.
    pub(super) fn provide(undo: &mut Undo) -> Hugepages {
        match reserve(undo).and_then(|()| mounted(undo)) {
            Ok(folder) => Hugepages::Mounted(folder),
            Err(error) => Hugepages::Absent(format!(
                "no 2 MiB pages ({error}): DPDK runs with --no-huge, on 4 KiB pages"
            )),
        }
    }

    /// One line for the machine's facts.
    pub(super) fn describe(&self) -> String {
        match self {
            Hugepages::Mounted(folder) => format!("2 MiB pages at {}", folder.display()),
            Hugepages::Absent(reason) => reason.clone(),
        }
    }

    /// EAL's options for them. `files` is true where the process keeps its run-time files
    /// (telemetry).
    pub(super) fn eal(&self, files: bool) -> Vec<String> {
        match self {
            Hugepages::Mounted(folder) => {
                let mut options = vec!["--huge-dir".into(), folder.display().to_string()];
                options.push(
                    if files {
                        "--huge-unlink"
                    } else {
                        "--in-memory"
                    }
                    .into(),
                );
                options
            }
            Hugepages::Absent(_) => ["--no-huge", "-m", "1024"].map(String::from).to_vec(),
        }
    }
}

fn knob(name: &str) -> Result<usize, TaskError> {
    let path = Path::new(KNOBS).join(name);
    let text = std::fs::read_to_string(&path).map_err(TaskError::file(&path))?;
    text.trim().parse().map_err(|_| TaskError::Unexpected {
        who: path.display().to_string(),
        text,
        expected: "a number of pages",
    })
}

fn reserve(undo: &mut Undo) -> Result<(), TaskError> {
    if knob("free_hugepages")? >= ENOUGH {
        return Ok(());
    }
    let path = Path::new(KNOBS).join("nr_hugepages");
    let before = knob("nr_hugepages")?;
    undo.add(&format!("echo {before} > {}", path.display()))?;
    std::fs::write(&path, (before + WANTED).to_string()).map_err(TaskError::file(&path))?;
    let free = knob("free_hugepages")?;
    if free < ENOUGH {
        return Err(TaskError::Missing {
            what: format!("the kernel found only {free} free 2 MiB pages of {WANTED}"),
            fix: "free some memory or reboot".into(),
        });
    }
    Ok(())
}

/// The folder where 2 MiB pages are mounted already, or one of our own.
fn mounted(undo: &mut Undo) -> Result<PathBuf, TaskError> {
    let mounts = Path::new("/proc/mounts");
    let text = std::fs::read_to_string(mounts).map_err(TaskError::file(mounts))?;
    if let Some(folder) = find_mount(&text) {
        return Ok(folder);
    }
    let folder = PathBuf::from(format!("/run/linerate-compare-{}", std::process::id()));
    undo.add(&format!("rmdir {}", folder.display()))?;
    std::fs::create_dir(&folder).map_err(TaskError::file(&folder))?;
    undo.add(&format!("umount -l {}", folder.display()))?;
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "hugetlbfs", "-o", "pagesize=2M", "hugetlbfs"]);
    process::read(mount.arg(&folder))?;
    Ok(folder)
}

fn find_mount(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (folder, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let is_ours =
            kind == "hugetlbfs" && options.split(',').any(|option| option == "pagesize=2M");
        is_ours.then(|| PathBuf::from(folder))
    })
}

#[cfg(test)]
mod tests {
    use super::find_mount;

    #[test]
    fn finds_the_two_megabyte_mount() {
        let mounts = "proc /proc proc rw 0 0\nhugetlbfs /dev/huge1G hugetlbfs rw,pagesize=1024M 0 \
            0\n\
            hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n";
        assert_eq!(find_mount(mounts).unwrap().to_str(), Some("/dev/hugepages"));
        assert_eq!(find_mount("proc /proc proc rw 0 0\n"), None);
    }
}
