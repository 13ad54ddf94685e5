//! The `linerate` binary: [`linerate::main`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    linerate::main()
}
