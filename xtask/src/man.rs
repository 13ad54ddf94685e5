//! `cargo xtask man`: the man pages, by `linerate man`, dated as the last commit.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;

use crate::error::TaskError;
use crate::package::Commit;
use crate::process;

#[derive(Args)]
pub(crate) struct Options {
    /// Where they are written; default: target/man
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Builds the program and has it write them.
pub(crate) fn run(options: &Options) -> Result<ExitCode, TaskError> {
    process::run(&mut process::cargo(&["build", "--package", "linerate"]))?;
    let folder = options.folder.clone();
    let folder = folder.unwrap_or_else(|| process::target_dir().join("man"));
    write(&process::target_dir().join("debug/linerate"), &folder)?;
    println!("{}; to read one: man -l {0}/linerate.1", folder.display());
    Ok(ExitCode::SUCCESS)
}

/// The pages of `program`.
pub(crate) fn write(program: &Path, folder: &Path) -> Result<(), TaskError> {
    let mut man = Command::new(program);
    man.arg("man").arg(folder);
    process::read(man.args(["--date", &Commit::read().day])).map(drop)
}
