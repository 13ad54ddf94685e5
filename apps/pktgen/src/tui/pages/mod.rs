//! The pages: each is a function from a snapshot to a table. `PAGES` of the command table has their
//! names.

mod fields;
mod latency;
mod main;
mod ports;
mod tables;
mod text;

use std::collections::BTreeMap;

use crate::{Latency, PAGES, PortView, Snapshot};

use super::grid::Grid;

pub(super) use latency::histogram;
pub(super) use main::summary;
pub(super) use text::lines;

/// A page of the screen, in the order of [`PAGES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Page {
    #[default]
    Main,
    Streams,
    Range,
    Seq,
    Random,
    Pcap,
    Latency,
    Queues,
    Cpu,
    Path,
    Xstats,
    Log,
    Help,
}

impl Page {
    pub(super) const ALL: [Self; 13] = [
        Self::Main,
        Self::Streams,
        Self::Range,
        Self::Seq,
        Self::Random,
        Self::Pcap,
        Self::Latency,
        Self::Queues,
        Self::Cpu,
        Self::Path,
        Self::Xstats,
        Self::Log,
        Self::Help,
    ];

    pub(super) fn name(self) -> &'static str {
        PAGES[self as usize].name
    }

    /// By any name that the command table takes.
    pub(super) fn named(name: &str) -> Option<Self> {
        let mut rows = PAGES.iter();
        let at = rows.position(|row| row.name == name || row.also.contains(&name))?;
        Self::ALL.get(at).copied()
    }

    /// The page `steps` further, from the last to the first.
    pub(super) fn step(self, steps: isize) -> Self {
        let at = (self as isize + steps).rem_euclid(Self::ALL.len() as isize);
        Self::ALL[at as usize]
    }
}

/// State that pages show beside the snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct Extra {
    /// The answer to `help`.
    pub(super) help: Vec<String>,
    /// The port whose histogram is shown, by its place in the snapshot.
    pub(super) chosen: usize,
}

/// The table of `page`, for a screen of `width` columns.
pub(super) fn grid<'a>(
    page: Page,
    snapshot: &'a Snapshot,
    extra: &'a Extra,
    width: u16,
) -> Grid<'a> {
    match page {
        Page::Main => main::page(snapshot),
        Page::Streams => tables::streams(snapshot),
        Page::Range => fields::range(snapshot),
        Page::Seq => fields::seq(snapshot),
        Page::Random => fields::random(snapshot),
        Page::Pcap => fields::pcap(snapshot),
        Page::Latency => latency::page(snapshot, extra.chosen),
        Page::Queues => tables::queues(snapshot),
        Page::Cpu => tables::lcores(snapshot),
        Page::Path => ports::path(snapshot),
        Page::Xstats => ports::facts(snapshot),
        Page::Log => text::log(snapshot, width),
        Page::Help => text::help(&extra.help, width),
    }
}

/// Sets the head of the last column where it is not a sum of rates.
fn total_is_all(grid: &mut Grid<'_>) {
    if let Some(total) = grid.columns.last_mut() {
        total.head.text = "all ports".into();
    }
}

/// A port's state, and the reason where there is one.
fn word_of_state(port: &PortView) -> String {
    match port.state_reason.as_str() {
        "" => port.state.clone(),
        reason => format!("{}: {reason}", port.state),
    }
}

/// Several distributions as one. Their buckets have the same bounds, so that percentiles of the
/// whole are as exact as those of each.
pub(super) fn latency_of_all<'a>(each: impl Iterator<Item = &'a Latency>) -> Latency {
    let mut all = Latency::default();
    let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut sum, mut jitter) = (0.0, 0.0);
    let mut one = None;
    for latency in each.filter(|latency| latency.samples > 0) {
        one = match all.samples {
            0 => Some(latency),
            _ => None,
        };
        all.min_ns = match all.samples {
            0 => latency.min_ns,
            _ => all.min_ns.min(latency.min_ns),
        };
        all.max_ns = all.max_ns.max(latency.max_ns);
        all.ipdv_max_ns = all.ipdv_max_ns.max(latency.ipdv_max_ns);
        all.samples += latency.samples;
        sum += latency.mean_ns * latency.samples as f64;
        jitter += latency.jitter_ns * latency.samples as f64;
        for (bound, count) in &latency.buckets {
            // Bounds are positive, and then their bits are in their order.
            *buckets.entry(bound.to_bits()).or_default() += count;
        }
    }
    // A single distribution's own figures are more exact.
    if let Some(one) = one {
        return one.clone();
    }
    if all.samples == 0 {
        return all;
    }
    all.mean_ns = sum / all.samples as f64;
    all.jitter_ns = jitter / all.samples as f64;
    all.buckets = buckets
        .into_iter()
        .map(|(bound, count)| (f64::from_bits(bound), count))
        .collect();
    let counted: u64 = all.buckets.iter().map(|(_, count)| count).sum();
    let percentile = |share: f64| {
        let wanted = (counted as f64 * share).ceil();
        let mut below = 0;
        let bucket = all.buckets.iter().find(|(_, count)| {
            below += count;
            below as f64 >= wanted
        });
        bucket.map_or(all.max_ns, |(bound, _)| bound.clamp(all.min_ns, all.max_ns))
    };
    let shares = [0.5, 0.9, 0.99, 0.999, 0.9999].map(percentile);
    [
        all.p50_ns,
        all.p90_ns,
        all.p99_ns,
        all.p999_ns,
        all.p9999_ns,
    ] = shares;
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_those_of_the_command_table_in_its_order() {
        assert_eq!(Page::ALL.len(), PAGES.len());
        for (page, row) in Page::ALL.into_iter().zip(PAGES) {
            assert_eq!(format!("{page:?}").to_lowercase(), row.name);
            assert_eq!(Page::named(row.name), Some(page));
            for other in row.also {
                assert_eq!(Page::named(other), Some(page), "{other}");
            }
        }
        assert_eq!(Page::Main.step(-1), Page::Help);
        assert_eq!(Page::Help.step(1), Page::Main);
    }

    #[test]
    fn percentiles_of_all_ports_are_of_all_their_samples() {
        let of = |bounds: &[(f64, u64)]| Latency {
            samples: bounds.iter().map(|(_, count)| count).sum(),
            min_ns: bounds[0].0,
            max_ns: bounds[bounds.len() - 1].0,
            mean_ns: 1.0,
            buckets: bounds.to_vec(),
            ..Latency::default()
        };
        let (fast, slow) = (of(&[(100.0, 98)]), of(&[(100.0, 1), (5000.0, 101)]));
        let all = latency_of_all([&fast, &Latency::default(), &slow].into_iter());
        assert_eq!((all.samples, all.min_ns, all.max_ns), (200, 100.0, 5000.0));
        assert_eq!((all.p50_ns, all.p90_ns), (5000.0, 5000.0));
        let most = of(&[(100.0, 300)]);
        let all = latency_of_all([&fast, &slow, &most].into_iter());
        assert_eq!((all.p50_ns, all.p99_ns), (100.0, 5000.0));
        assert_eq!(latency_of_all([&fast].into_iter()), fast);
        assert_eq!(latency_of_all([].into_iter()).samples, 0);
    }
}
