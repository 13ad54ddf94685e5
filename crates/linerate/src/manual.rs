//! Shell completions and man pages, both from the program's own table of commands, so that they
//! match its options. Packages install both (`cargo xtask package`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use linerate_appliance::error::Error;
use linerate_appliance::output;

#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell, whose script is printed: bash reads it from
    /// /usr/share/bash-completion/completions, zsh (as _linerate) from a folder of $fpath, fish
    /// from ~/.config/fish/completions
    #[arg(value_name = "SHELL")]
    shell: KnownShell,
}

/// Those whose scripts are tested.
#[derive(Clone, Copy, clap::ValueEnum)]
enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// Where the pages are written: linerate.1, and one for each command
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// What the pages say is their date, such as 2026-11-22
    #[arg(long, value_name = "DATE", default_value = "")]
    date: String,
}

/// Prints what completes `command` in a shell.
pub(crate) fn completions(args: &CompletionsArgs, command: Command) -> Result<(), Error> {
    let shell = match args.shell {
        KnownShell::Bash => Shell::Bash,
        KnownShell::Zsh => Shell::Zsh,
        KnownShell::Fish => Shell::Fish,
    };
    // clap_complete offers to bash what `--help` hides.
    let shown = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    let mut shown = Command::new("linerate")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommands(shown.cloned());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown, "linerate", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// Writes the pages of `command` and of all its commands that are not hidden.
pub(crate) fn man(args: &ManArgs, mut command: Command) -> Result<(), Error> {
    command.build();
    fs::create_dir_all(&args.folder)
        .and_then(|()| pages(&command, None, args))
        .map_err(|source| file_error(&args.folder, source))
}

fn file_error(path: &Path, source: io::Error) -> Error {
    Error::File {
        path: path.to_owned(),
        source,
    }
}

/// The page of `command`, and those below it. `above` is the name of the page that leads here.
fn pages(command: &Command, above: Option<&str>, args: &ManArgs) -> io::Result<()> {
    let page = Man::new(command.clone())
        .source(concat!("linerate ", env!("CARGO_PKG_VERSION")))
        .manual("linerate manual")
        .date(&args.date);
    let mut out = Vec::new();
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    synopsis(command).to_writer(&mut out)?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    let shown = || {
        command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
    };
    if shown().next().is_some() {
        page.render_subcommands_section(&mut out)?;
    }
    see_also(above).to_writer(&mut out)?;
    // An empty line is a paragraph of its own, beside which mandoc wants no `.br`.
    let text = String::from_utf8_lossy(&out);
    let text = text
        .replace("\n.br\n\n.br\n", "\n.sp\n")
        .replace("\n\n.br\n", "\n");
    fs::write(args.folder.join(page.get_filename()), text)?;
    let name = command.get_display_name().unwrap_or(command.get_name());
    shown().try_for_each(|below| pages(below, Some(name), args))
}

/// The line of `--help`: clap_mangen's own names every option, without its value.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for (number, line) in usage.lines().map(str::trim).enumerate() {
        if number > 0 {
            roff.control("br", []);
        }
        let rest = line.strip_prefix(name).unwrap_or(line);
        roff.text([bold(name), roman(rest)]);
    }
    roff
}

fn see_also(above: Option<&str>) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    if let Some(above) = above {
        roff.text([bold(above), roman("(1)")]);
        roff.control("PP", []);
    }
    roff.text([roman(
        "The guides are in /usr/share/doc/linerate where a package has installed them, \
         else in the folder docs of the source.",
    )]);
    roff
}
