//! Pages with a column for each port: the path of frames, and facts of drivers.

use super::main::{checked_rows, drop_rows};
use super::word_of_state;
use crate::tui::grid::Grid;
use crate::tui::sheet::Sheet;
use crate::{PortView, Snapshot};

/// `0 ring:a`; the device in short, for it has a row on the main page.
fn head(port: &PortView) -> String {
    format!("{} {}", port.number, port.name)
}

/// The path of frames: sent or not, received, test or foreign frames, and drop reasons.
pub(super) fn path(snapshot: &Snapshot) -> Grid<'_> {
    let mut sheet = Sheet::new(&snapshot.ports);
    sheet.text("State", word_of_state);
    sheet.count("Sent Pkts", |port| port.tx.packets);
    sheet.fault("Unsent Pkts", |port| port.unsent);
    let queues = |of: fn(&crate::QueueView) -> u64| {
        move |port: &PortView| port.queues.iter().map(of).sum::<u64>()
    };
    sheet.count("  Tx queue full", queues(|queue| queue.refused));
    sheet.count("  No pool slot", queues(|queue| queue.no_slot));
    sheet.count("Received Pkts", |port| port.rx.packets);
    sheet.count("  Test Pkts", |port| port.tally.received);
    sheet.count("  Earlier Pkts", |port| port.earlier);
    sheet.count("  Foreign Pkts", |port| port.foreign);
    checked_rows(&mut sheet);
    sheet.heading("of test frames that should have come");
    sheet.count("Sent to here", |port| port.tally.sent);
    sheet.fault("Lost Pkts", |port| port.tally.lost);
    sheet.fault("Reordered Pkts", |port| port.tally.reordered);
    sheet.fault("Duplicate Pkts", |port| port.tally.duplicates);
    sheet.heading("dropped, by reason");
    drop_rows(&mut sheet, &snapshot.ports);
    let mut grid = sheet.grid("Port", head);
    super::total_is_all(&mut grid);
    grid
}

/// Facts that drivers report of their ports.
pub(super) fn facts(snapshot: &Snapshot) -> Grid<'_> {
    let mut sheet = Sheet::new(&snapshot.ports);
    sheet.text("device", |port| port.device.clone());
    sheet.text("driver", |port| port.kind.clone());
    sheet.text("NUMA node", |port| {
        port.numa_node.map_or("any".into(), |node| node.to_string())
    });
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in snapshot.ports.iter().flat_map(|port| &port.facts) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    for name in names {
        sheet.text(name, |port| {
            let found = port.facts.iter().find(|(other, _)| other == name);
            found.map_or("-".into(), |(_, fact)| fact.clone())
        });
    }
    let mut grid = sheet.grid("Port", head);
    // Facts have no sum.
    grid.columns.pop();
    grid.total = false;
    grid
}
