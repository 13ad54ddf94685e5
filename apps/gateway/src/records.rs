//! Records of translation, on their way from workers to whom they are for.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use linerate_control::AtWork;

use crate::nat::writer::Writer;
use crate::path::on_path;

/// Takes what workers have recorded, and hands it over to be written. Each worker gets memory for
/// `most` records that come next.
pub(crate) fn take(log: &Arc<Writer>, most: usize, at_work: &AtWork<'_>) {
    let clock = at_work.running.clock();
    for worker in at_work.running.handles() {
        let room = log.room(most);
        let Some(records) = on_path(worker, move |path, _| path.flows().take_records(room)) else {
            continue;
        };
        if records.is_empty() {
            log.give_back(records);
            continue;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let day_ms = since.map_or(0, |since| since.as_millis() as u64);
        let began_ms = day_ms.saturating_sub(clock.ns(clock.now()) / 1_000_000);
        log.write(records, began_ms);
    }
}
