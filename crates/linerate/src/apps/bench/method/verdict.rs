//! Whether to believe a finished report, and why.

use super::settings::Settings;
use crate::report::bench::{Report, Verdict};

/// The verdict over all that the report holds.
pub(crate) fn verdict(_report: &Report, _settings: &Settings) -> Verdict {
    Verdict::default()
}
