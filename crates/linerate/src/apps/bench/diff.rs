//! `bench diff a.json b.json`: better, worse or noise, row by row.

use std::path::PathBuf;

use crate::error::Error;

/// Compare two reports: better, worse or noise, row by row
#[derive(clap::Parser)]
pub(crate) struct Args {
    /// The report to compare with
    before: PathBuf,
    /// The report to judge
    after: PathBuf,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let _ = (&args.before, &args.after, args.json);
    Ok(())
}
