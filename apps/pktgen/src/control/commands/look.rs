//! Commands that show something, and those of the screen.

use std::fmt::Write;

use serde_json::Value;

use super::{number, text};
use crate::control::connection::to_value;
use crate::control::owner::Control;
use crate::control::protocol::{Reply, ScreenAction};
use crate::control::table::{Done, Given, PAGES, THEMES, named_in, rows};
use crate::{LcoreView, PortView, Snapshot};

/// Lines of the log that are shown where no number is given.
const LOG_LINES: usize = 20;

pub(in super::super) fn map(control: &mut Control, _: &Given) -> Done {
    let said = control.session()?.explain_map();
    Ok(shown(said, Value::Null))
}

pub(in super::super) fn explain(control: &mut Control, given: &Given) -> Done {
    let ports = control.ports_of(given.get(0))?;
    let snapshot = control.snapshot()?;
    let said: Vec<String> = snapshot
        .ports
        .iter()
        .filter(|port| ports.contains(&port.number))
        .map(|port| explained(port, &snapshot))
        .collect();
    Ok(shown(said.join("\n"), Value::Null))
}

/// What a port does, and what holds it back.
fn explained(port: &PortView, snapshot: &Snapshot) -> String {
    let mut said = format!(
        "port {} ({}, {}): {}",
        port.number, port.name, port.device, port.state
    );
    if !port.state_reason.is_empty() {
        let _ = write!(said, ", {}", port.state_reason);
    }
    said.push('\n');
    let streams = snapshot
        .streams
        .iter()
        .filter(|stream| stream.port == port.number);
    let (on, off): (Vec<_>, Vec<_>) = streams.partition(|stream| stream.enabled);
    let _ = writeln!(said, "  streams: {} sent, {} left out", on.len(), off.len());
    let asked = match port.asked_pps {
        0.0 => "as many frames as go".into(),
        pps => format!("{pps:.0} frames/s ({})", port.rate),
    };
    let _ = writeln!(said, "  asked: {asked}; now {:.0} frames/s", port.tx.pps);
    if let Some(error) = port.rate_error_ppm {
        let _ = writeln!(
            said,
            "  off the asked rate by {error:+.0} ppm, {} frames unsent",
            port.unsent
        );
    }
    match port.speed_bps {
        Some(speed) => {
            let share = port.tx.l1_bps / speed * 100.0;
            let _ = writeln!(
                said,
                "  line: {} Gbit/s, {share:.2}% of it in use (L1)",
                speed / 1e9
            );
        }
        None => {
            let _ = writeln!(
                said,
                "  line: none of a known speed; `set {} speed 10G` gives it one",
                port.number
            );
        }
    }
    let limits = limits(port, &snapshot.lcores);
    let _ = writeln!(said, "  held back by: {}", limits.join("; "));
    said
}

/// What limits a port's sending, by its counters.
fn limits(port: &PortView, lcores: &[LcoreView]) -> Vec<String> {
    let mut limits = Vec::new();
    if !port.link_up {
        limits.push(format!("the link is down: {}", port.link_reason));
    }
    let tx: Vec<_> = port
        .queues
        .iter()
        .filter(|queue| queue.direction == "tx")
        .collect();
    let refused: u64 = tx.iter().map(|queue| queue.refused).sum();
    if refused > 0 {
        limits.push(format!(
            "the device, which took less than it was given {refused} times"
        ));
    }
    let no_slot: u64 = tx.iter().map(|queue| queue.no_slot).sum();
    if no_slot > 0 {
        limits.push(format!("the pool, which had no slot {no_slot} times"));
    }
    for lcore in lcores
        .iter()
        .filter(|lcore| tx.iter().any(|queue| queue.lcore == lcore.name))
    {
        if lcore.busy_share > 0.95 {
            limits.push(format!(
                "lcore {}, busy {:.0}% of its time",
                lcore.name,
                lcore.busy_share * 100.0
            ));
        }
        if lcore.gaps > 0 {
            limits.push(format!(
                "others on the CPU of lcore {}: {} gaps, {:.1} ms in all",
                lcore.name,
                lcore.gaps,
                lcore.gaps_ns as f64 / 1e6
            ));
        }
    }
    if limits.is_empty() {
        limits.push("nothing".into());
    }
    limits
}

pub(in super::super) fn log(control: &mut Control, given: &Given) -> Done {
    let count = given
        .optional(0)
        .map_or(Ok(LOG_LINES), |text| number("the number of lines", text))?;
    let log = control.snapshot()?.log;
    let newest = &log[log.len().saturating_sub(count)..];
    let line = |line: &crate::LogLine| format!("{:>9.3}  {}", line.at_ms as f64 / 1e3, line.text);
    let lines: Vec<String> = newest.iter().map(line).collect();
    Ok(shown(lines.join("\n"), to_value(newest)))
}

pub(in super::super) fn page(_: &mut Control, given: &Given) -> Done {
    let page = named_in("page", PAGES, given.get(0))?;
    Ok(Reply {
        screen: Some(ScreenAction::Page(page.into())),
        ..text("")
    })
}

pub(in super::super) fn theme(_: &mut Control, given: &Given) -> Done {
    let theme = named_in("theme", THEMES, given.get(0))?;
    Ok(Reply {
        screen: Some(ScreenAction::Theme(theme.into())),
        ..text("")
    })
}

pub(in super::super) fn help(_: &mut Control, given: &Given) -> Done {
    let rows = rows(given.get(0))?;
    let mut said = String::new();
    if let [row] = rows.as_slice() {
        let _ = write!(
            said,
            "{}\n  {}\n  such as: {}",
            row.usage(),
            row.help,
            row.example
        );
        let takes_keys = row.args.iter().any(|arg| arg.takes_keys());
        if takes_keys {
            let _ = write!(said, "\nkeys:");
            for (key, value, help) in super::super::complete::all_keys() {
                let _ = write!(said, "\n  {key:<14} {value:<16} {help}");
            }
        }
    } else {
        let lines = rows
            .iter()
            .map(|row| format!("{:<44} {}", row.usage(), row.help));
        said = lines.collect::<Vec<_>>().join("\n");
    }
    Ok(shown(said, Value::Null))
}

pub(in super::super) fn quit(control: &mut Control, _: &Given) -> Done {
    control.quitting = true;
    Ok(Reply {
        screen: Some(ScreenAction::Quit),
        ..text("the session ends")
    })
}

/// Several lines, which the screen shows until a key is pressed.
pub(super) fn shown(said: String, data: Value) -> Reply {
    Reply {
        screen: Some(ScreenAction::Show(said.clone())),
        text: said,
        data,
    }
}

pub(in super::super) fn dump(control: &mut Control, given: &Given) -> Done {
    let frames = given
        .optional(1)
        .map_or(Ok(1), |text| number("the number of frames", text))?;
    let mut said = String::new();
    for port in control.ports_of(given.get(0))? {
        said += &super::super::dump::text(control, Some(port), frames)?;
    }
    Ok(shown(said, Value::Null))
}
