//! The command table: one row for each command, from which parsing, completion, help and the guide come.

/// A page of the screen.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    /// Other names that are taken.
    pub(crate) also: &'static [&'static str],
    pub(crate) help: &'static str,
}

const fn named(name: &'static str, also: &'static [&'static str], help: &'static str) -> Named {
    Named { name, also, help }
}

/// Pages of the screen.
pub(crate) const PAGES: &[Named] = &[
    named(
        "main",
        &["0"],
        "ports: rates, totals, loss, latency, template",
    ),
    named(
        "streams",
        &[],
        "each stream: asked, sent, received, lost, latency",
    ),
    named("range", &[], "fields that vary, and how"),
    named("seq", &["sequence"], "templates sent in turn"),
    named("random", &["rnd"], "fields that are random, and the seed"),
    named("pcap", &[], "captures that are replayed"),
    named("latency", &["lat"], "percentiles and a live histogram"),
    named(
        "queues",
        &["qstats"],
        "each queue: packets, refused, no slot",
    ),
    named("cpu", &["sys"], "lcores: work, busy share, gaps"),
    named(
        "path",
        &["stats"],
        "drops by reason, and where frames were lost",
    ),
    named("xstats", &["facts"], "what drivers say of their ports"),
    named("log", &[], "what happened"),
    named("help", &[], "commands and keys"),
];

/// Colours of the screen.
pub(crate) const THEMES: &[Named] = &[
    named("dark", &["default"], "for a dark terminal"),
    named("light", &[], "for a light terminal"),
    named(
        "safe",
        &["colour-blind"],
        "blue and orange, no red against green",
    ),
    named("mono", &["none", "off"], "no colours"),
];
