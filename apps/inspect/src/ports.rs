//! `linerate ports`: the kinds of port with their options, and the interfaces of this machine.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use linerate_core::port::OptionHelp;
use linerate_drivers::{COMMON_OPTIONS, Drivers, PortKind};
use serde::Serialize;

use linerate_appliance::error::Error;
use linerate_appliance::output::{self, Cell, Column, Table, Tone};

/// Where the kernel lists its interfaces.
const INTERFACES: &str = "/sys/class/net";

#[derive(clap::Args)]
pub struct Args {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    kinds: Vec<KindRow>,
    common_options: Vec<OptionRow>,
    interfaces: Vec<Interface>,
}

#[derive(Serialize)]
struct KindRow {
    name: &'static str,
    summary: &'static str,
    example: &'static str,
    options: Vec<OptionRow>,
}

#[derive(Serialize)]
struct OptionRow {
    key: &'static str,
    value: &'static str,
    help: &'static str,
}

/// One interface; facts that the kernel does not report are absent.
#[derive(Serialize)]
struct Interface {
    name: String,
    state: Option<String>,
    mac: Option<String>,
    mtu: Option<u32>,
    driver: Option<String>,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let interfaces = interfaces(Path::new(INTERFACES))?;
    if args.json {
        return output::print_json(&Report {
            kinds: Drivers::kinds().iter().map(KindRow::from).collect(),
            common_options: rows(COMMON_OPTIONS),
            interfaces,
        });
    }
    output::print(&text(&interfaces, output::colour()))
}

fn text(interfaces: &[Interface], colour: bool) -> String {
    let mut text = String::from("A port is written KIND:TARGET[,key=value...].\n");
    for kind in Drivers::kinds() {
        let name = Tone::Good.paint(kind.name, colour);
        let _ = writeln!(text, "\n{name}: {}, as in `{}`", kind.summary, kind.example);
        text += &options(kind.options);
    }
    let _ = writeln!(text, "\n{}", Tone::Good.paint("every port", colour));
    text += &options(COMMON_OPTIONS);
    let mut table = Table::new([
        Column::text("interface"),
        Column::text("state"),
        Column::text("mac"),
        Column::number("mtu"),
        Column::text("driver"),
    ]);
    let or_dash = |value: &Option<String>| Cell::new(value.as_deref().unwrap_or("-"));
    for interface in interfaces {
        let tone = if interface.state.as_deref() == Some("up") {
            Tone::Good
        } else {
            Tone::Plain
        };
        table.row([
            Cell::new(&interface.name),
            or_dash(&interface.state).tone(tone),
            or_dash(&interface.mac),
            Cell::new(interface.mtu.map_or("-".into(), |mtu| mtu.to_string())),
            or_dash(&interface.driver),
        ]);
    }
    let _ = write!(text, "\n{}", table.render(colour));
    text
}

/// Keys with their values, indented, and what they mean in a column.
fn options(options: &[OptionHelp]) -> String {
    let left = |option: &OptionHelp| format!("{}={}", option.key, option.value);
    let width = options.iter().map(|option| left(option).len()).max();
    let width = width.unwrap_or(0);
    let line = |option| format!("  {:width$}  {}\n", left(option), option.help);
    options.iter().map(line).collect()
}

/// The interfaces below `sys`, by name.
fn interfaces(sys: &Path) -> Result<Vec<Interface>, Error> {
    let failed = |source| Error::File {
        path: sys.into(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(sys).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A file such as bonding_masters is not an interface.
        if entry.path().is_dir() {
            found.push(Interface::read(&entry.path()));
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

impl Interface {
    fn read(path: &Path) -> Self {
        let value = |file: &str| {
            let text = fs::read_to_string(path.join(file)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let file_name = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
        let driver = fs::canonicalize(path.join("device/driver")).ok();
        Self {
            name: file_name(path).unwrap_or_default(),
            state: value("operstate"),
            mac: value("address"),
            mtu: value("mtu").and_then(|mtu| mtu.parse().ok()),
            driver: driver.as_deref().and_then(file_name),
        }
    }
}

impl From<&PortKind> for KindRow {
    fn from(kind: &PortKind) -> Self {
        Self {
            name: kind.name,
            summary: kind.summary,
            example: kind.example,
            options: rows(kind.options),
        }
    }
}

fn rows(options: &[OptionHelp]) -> Vec<OptionRow> {
    let row = |&OptionHelp { key, value, help }: &OptionHelp| OptionRow { key, value, help };
    options.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_core::env::PrivateFolder;

    #[test]
    fn interfaces_are_read_from_any_folder() {
        let folder = PrivateFolder::new("ports").unwrap();
        let sys = folder.path();
        let (eth, driver) = (sys.join("eth9"), sys.join("drivers/e1000"));
        for folder in [eth.join("device"), driver.clone(), sys.join("aaa")] {
            fs::create_dir_all(folder).unwrap();
        }
        for (file, text) in [
            ("operstate", "up\n"),
            ("address", "02:00:00:00:00:01\n"),
            ("mtu", "9000\n"),
        ] {
            fs::write(eth.join(file), text).unwrap();
        }
        fs::write(sys.join("bonding_masters"), "").unwrap();
        std::os::unix::fs::symlink(&driver, eth.join("device/driver")).unwrap();
        let found = interfaces(sys).unwrap();
        let names: Vec<_> = found.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["aaa", "drivers", "eth9"]);
        assert_eq!(
            (found[2].mtu, found[2].driver.as_deref()),
            (Some(9000), Some("e1000"))
        );
        assert_eq!(found[0].state, None);
    }

    #[test]
    fn every_kind_and_option_is_shown() {
        let text = text(&[], false);
        for kind in Drivers::kinds() {
            assert!(text.contains(kind.example), "{}", kind.name);
            assert!(kind.options.iter().all(|option| text.contains(option.help)));
        }
        assert!(text.contains("faulty=") && text.contains("capture_filter="));
    }
}
