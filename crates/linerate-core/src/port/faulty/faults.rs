//! What a bad wire does, and how it is written: `rate:100M+delay:20ms+queue:500kB+rx.loss:0.001`.
//!
//! Parts are joined by `+`, each `KEY:VALUE`. `rx.KEY` and `tx.KEY` are for one direction, a plain
//! key for both. What users call each key stands in [`KEYS`], once.

use std::fmt;
use std::str::FromStr;

/// The keys, for messages and help.
const KEYS: &str = "loss, burst, dup, reorder, flip, ce, rate, queue, delay, delay_ns, jitter, \
    order, keep, on, seed";
/// Most of a time, one hour: sums with it stay far from the end of 64 bits.
const MOST_NS: u64 = 3_600_000_000_000;
/// Frames that wait before a link at most, where nobody said: Linux' `txqueuelen`, and netem's
/// `limit`.
const DEFAULT_QUEUE: Length = Length::Pkts(1000);

/// The faults of both directions of a port.
///
/// ```
/// use linerate_core::port::faulty::Length;
/// use linerate_core::port::Faults;
/// let faults: Faults = "rate:100M+delay:20ms+queue:500kB+rx.loss:0.001+seed:7".parse()?;
/// assert_eq!((faults.rx.loss, faults.tx.loss, faults.seed), (0.001, 0.0, 7));
/// assert_eq!((faults.tx.rate_bps, faults.tx.delay_ns), (100_000_000, 20_000_000));
/// assert_eq!(faults.tx.queue, Length::Bytes(500_000));
/// assert!("loss:2".parse::<Faults>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// What befalls packets that are received.
    pub rx: LineFaults,
    /// What befalls packets that are sent.
    pub tx: LineFaults,
    /// What is received suffers.
    pub on_rx: bool,
    /// What is sent suffers.
    pub on_tx: bool,
    /// The same seed does the same to the same packets, queue by queue.
    pub seed: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            rx: LineFaults::default(),
            tx: LineFaults::default(),
            on_rx: true,
            on_tx: true,
            seed: 1,
        }
    }
}

/// What befalls packets in one direction; probabilities are from 0 to 1. A packet meets the faults
/// in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineFaults {
    /// The packet is dropped, and counted as `injected`.
    pub loss: f64,
    /// Besides, losses in bursts.
    pub burst: Option<LossBursts>,
    /// One bit of it flips: what a checksum finds hardest.
    pub flip: f64,
    /// It comes twice.
    pub dup: f64,
    /// When "congestion experienced" is written into the IP headers of packets that are capable of
    /// ECN (RFC 3168 5). Others are left as they are.
    pub ce: Ce,
    /// Bits a second of a link that sends one packet after the other, counted as the bytes of the
    /// frame without frame check sequence, preamble and gap; 0: none.
    pub rate_bps: u64,
    /// What may wait before that link. A packet for which there is no room is dropped, and counted
    /// as `injected`.
    pub queue: Length,
    /// It comes so many nanoseconds after it has left the link.
    pub delay_ns: u64,
    /// By how much the delay varies, in nanoseconds.
    pub jitter_ns: u64,
    /// How it varies.
    pub jitter: Jitter,
    /// Packets do not overtake each other, however their delays vary.
    pub keep_order: bool,
    /// It changes places with the one behind it, or, with `reorder_ns`, comes so much later.
    pub reorder: f64,
    /// How much later a reordered packet comes, in nanoseconds; 0: behind the next one.
    pub reorder_ns: u64,
    /// It comes after so many later ones have come in. At the end so many stay behind.
    pub delay_pkts: usize,
    /// Packets that a queue of the port keeps at most; 0: as many as [`LineFaults::most_kept`]
    /// finds.
    pub keep: usize,
}

impl Default for LineFaults {
    fn default() -> Self {
        Self {
            loss: 0.0,
            burst: None,
            flip: 0.0,
            dup: 0.0,
            ce: Ce::Never,
            rate_bps: 0,
            queue: DEFAULT_QUEUE,
            delay_ns: 0,
            jitter_ns: 0,
            jitter: Jitter::Uniform,
            keep_order: false,
            reorder: 0.0,
            reorder_ns: 0,
            delay_pkts: 0,
            keep: 0,
        }
    }
}

/// Losses in bursts: a chain of a good and a bad state, in which a packet may be lost (E. N.
/// Gilbert, "Capacity of a burst-noise channel", 1960). A burst is `1 / leave` packets long on
/// average, and a share of `enter / (enter + leave)` of all packets falls into one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossBursts {
    /// Probability that a packet in the good state begins a bad one.
    pub enter: f64,
    /// Probability that a packet in the bad state ends it.
    pub leave: f64,
    /// Probability of loss in the bad state.
    pub loss: f64,
}

/// How a delay varies around its mean. What would be below zero is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Evenly, from less by the jitter to more by it.
    Uniform,
    /// By a normal distribution whose standard deviation is the jitter, at most six of them.
    Normal,
}

/// The length of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// In packets.
    Pkts(u64),
    /// In bytes of their frames.
    Bytes(u64),
}

/// When packets are marked "congestion experienced".
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ce {
    /// Not at all.
    Never,
    /// With this probability.
    Chance(f64),
    /// When the queue before the link is longer than this as the packet comes.
    QueueAbove(Length),
}

/// Packets that a queue keeps at most, besides those that its faults need, and all that it keeps
/// where they only delay: nothing says then how many are under way at once.
const KEPT: usize = 4096;
/// Shortest frame that Ethernet has, without frame check sequence: no more of them are under way.
const MIN_FRAME_BYTES: u64 = 60;

impl LineFaults {
    /// Packets that a queue has to keep: what [`keep`](Self::keep) says, or 4096 and what waits
    /// before the link or is under way behind it, if all are shortest frames. With a rate that
    /// follows from the bandwidth-delay product: 100 Mb/s and 20 ms are 4,167 frames of 60 bytes.
    /// The packets lie in the slots of the application's pool, so that is what bounds memory: a
    /// port never keeps more than half of it.
    pub fn most_kept(&self) -> usize {
        if self.keep > 0 {
            return self.keep;
        }
        let waiting = match self.queue {
            _ if self.rate_bps == 0 => 0,
            Length::Pkts(packets) => packets,
            Length::Bytes(bytes) => bytes / MIN_FRAME_BYTES + 1,
        };
        let longest_ns = self.delay_ns + 6 * self.jitter_ns + self.reorder_ns;
        let bits = u128::from(self.rate_bps) * u128::from(longest_ns) / 1_000_000_000;
        let flying = bits / u128::from(8 * MIN_FRAME_BYTES);
        let flying = u64::try_from(flying).unwrap_or(u64::MAX);
        let all = waiting.saturating_add(flying);
        let all = usize::try_from(all).unwrap_or(usize::MAX);
        all.saturating_add(KEPT).saturating_add(self.delay_pkts)
    }

    /// Whether the time matters.
    pub(super) fn is_timed(&self) -> bool {
        self.rate_bps > 0 || self.delay_ns > 0 || self.jitter_ns > 0 || self.reorder_ns > 0
    }

    /// Sets one key; `None` where there is none of that name.
    fn set(&mut self, key: &str, value: &str) -> Option<Result<(), String>> {
        let result = match key {
            "loss" => chance(key, value).map(|chance| self.loss = chance),
            "dup" => chance(key, value).map(|chance| self.dup = chance),
            "flip" => chance(key, value).map(|chance| self.flip = chance),
            "burst" => bursts(value).map(|bursts| self.burst = Some(bursts)),
            "ce" => ce(value).map(|ce| self.ce = ce),
            "rate" => rate(value).map(|rate| self.rate_bps = rate),
            "queue" => length(key, value).map(|queue| self.queue = queue),
            "reorder" => {
                let (part, time) = value.split_once('@').unwrap_or((value, "0ns"));
                chance(key, part).and_then(|chance| {
                    let late = time_ns(key, time)?;
                    (self.reorder, self.reorder_ns) = (chance, late);
                    Ok(())
                })
            }
            // A number alone is one of packets, as ever.
            "delay" => match count::<u32>(key, value) {
                Ok(packets) => {
                    self.delay_pkts = packets as usize;
                    Ok(())
                }
                Err(_) => time_ns(key, value)
                    .map(|delay| self.delay_ns = delay)
                    .map_err(|reason| format!("{reason}, or a whole number of packets")),
            },
            "delay_ns" => count(key, value).and_then(|delay| {
                self.delay_ns = within_hour(key, delay)?;
                Ok(())
            }),
            "jitter" => {
                let (how, time) = match value.split_once('@') {
                    None => (Ok(Jitter::Uniform), value),
                    Some(("uniform", time)) => (Ok(Jitter::Uniform), time),
                    Some(("normal", time)) => (Ok(Jitter::Normal), time),
                    Some((how, time)) => (
                        Err(format!("jitter is uniform@ or normal@, not `{how}@`")),
                        time,
                    ),
                };
                how.and_then(|how| {
                    (self.jitter, self.jitter_ns) = (how, time_ns(key, time)?);
                    Ok(())
                })
            }
            "order" => match value {
                "keep" => {
                    self.keep_order = true;
                    Ok(())
                }
                _ => Err(format!("order takes keep, not `{value}`")),
            },
            "keep" => count::<u32>(key, value).and_then(|kept| {
                self.keep = kept as usize;
                match kept {
                    0 => Err("keep takes at least one packet".into()),
                    _ => Ok(()),
                }
            }),
            _ => return None,
        };
        Some(result)
    }

    /// What differs from no faults, as it is written.
    fn parts(&self) -> Vec<String> {
        let none = Self::default();
        let mut parts = Vec::new();
        let mut part = |is_set: bool, text: String| {
            if is_set {
                parts.push(text);
            }
        };
        part(self.loss > 0.0, format!("loss:{}", self.loss));
        if let Some(LossBursts { enter, leave, loss }) = self.burst {
            part(true, format!("burst:{enter}/{leave}/{loss}"));
        }
        part(self.flip > 0.0, format!("flip:{}", self.flip));
        part(self.dup > 0.0, format!("dup:{}", self.dup));
        match self.ce {
            Ce::Never => {}
            Ce::Chance(chance) => part(true, format!("ce:{chance}")),
            Ce::QueueAbove(length) => part(true, format!("ce:queue@{length}")),
        }
        part(self.rate_bps > 0, format!("rate:{}", self.rate_bps));
        part(self.queue != none.queue, format!("queue:{}", self.queue));
        part(self.delay_ns > 0, format!("delay_ns:{}", self.delay_ns));
        let how = match self.jitter {
            Jitter::Uniform => "",
            Jitter::Normal => "normal@",
        };
        part(
            self.jitter_ns > 0,
            format!("jitter:{how}{}ns", self.jitter_ns),
        );
        part(self.keep_order, "order:keep".into());
        let late = match self.reorder_ns {
            0 => String::new(),
            late => format!("@{late}ns"),
        };
        part(
            self.reorder > 0.0,
            format!("reorder:{}{late}", self.reorder),
        );
        part(self.delay_pkts > 0, format!("delay:{}", self.delay_pkts));
        part(self.keep > 0, format!("keep:{}", self.keep));
        parts
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        for part in text.split('+').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once(':').unwrap_or((part, ""));
            match (key, value) {
                ("seed", _) => faults.seed = count(key, value)?,
                ("on", "rx") => (faults.on_rx, faults.on_tx) = (true, false),
                ("on", "tx") => (faults.on_rx, faults.on_tx) = (false, true),
                ("on", "both") => (faults.on_rx, faults.on_tx) = (true, true),
                ("on", _) => return Err(format!("on takes rx, tx or both, not `{value}`")),
                _ => {
                    let (rx, tx, name) = match key.split_once('.') {
                        Some(("rx", name)) => (true, false, name),
                        Some(("tx", name)) => (false, true, name),
                        _ => (true, true, key),
                    };
                    let lines = [(rx, &mut faults.rx), (tx, &mut faults.tx)];
                    for (_, line) in lines.into_iter().filter(|(is_meant, _)| *is_meant) {
                        let known = line.set(name, value);
                        known.unwrap_or_else(|| Err(format!("`{key}` is none of {KEYS}")))?;
                    }
                }
            }
        }
        for line in [&faults.rx, &faults.tx] {
            if matches!(line.ce, Ce::QueueAbove(_)) && line.rate_bps == 0 {
                return Err("ce:queue@ needs a rate, for there is no queue without".into());
            }
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rx, tx) = (self.rx.parts(), self.tx.parts());
        let mut all: Vec<String> = rx
            .iter()
            .filter(|part| tx.contains(part))
            .cloned()
            .collect();
        let (rx, tx) = [("rx", &rx), ("tx", &tx)]
            .map(|(way, parts)| {
                let own = parts.iter().filter(|part| !all.contains(part));
                own.map(|part| format!("{way}.{part}")).collect::<Vec<_>>()
            })
            .into();
        all.extend::<Vec<String>>(rx);
        all.extend::<Vec<String>>(tx);
        match (self.on_rx, self.on_tx) {
            (true, false) => all.push("on:rx".into()),
            (false, true) => all.push("on:tx".into()),
            _ => {}
        }
        all.push(format!("seed:{}", self.seed));
        f.write_str(&all.join("+"))
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pkts(packets) => write!(f, "{packets}"),
            Self::Bytes(bytes) => write!(f, "{bytes}B"),
        }
    }
}

fn chance(key: &str, value: &str) -> Result<f64, String> {
    let chance = value.parse().ok();
    let chance = chance.filter(|chance| (0.0..=1.0).contains(chance));
    chance.ok_or_else(|| format!("{key} takes a probability from 0 to 1, not `{value}`"))
}

fn count<N: FromStr>(key: &str, value: &str) -> Result<N, String> {
    let number = value.parse();
    number.map_err(|_| format!("{key} takes a whole number, not `{value}`"))
}

/// `ENTER/LEAVE[/LOSS]`.
fn bursts(value: &str) -> Result<LossBursts, String> {
    let parts: Result<Vec<f64>, String> =
        value.split('/').map(|part| chance("burst", part)).collect();
    match parts?[..] {
        [_, 0.0, ..] => Err("burst never ends with a probability of 0 to leave it".into()),
        [enter, leave] => Ok(LossBursts {
            enter,
            leave,
            loss: 1.0,
        }),
        [enter, leave, loss] => Ok(LossBursts { enter, leave, loss }),
        _ => Err(format!(
            "burst takes ENTER/LEAVE or ENTER/LEAVE/LOSS, not `{value}`"
        )),
    }
}

fn ce(value: &str) -> Result<Ce, String> {
    match value.strip_prefix("queue@") {
        Some(above) => length("ce", above).map(Ce::QueueAbove),
        None => chance("ce", value)
            .map(Ce::Chance)
            .map_err(|reason| format!("{reason}, or queue@N")),
    }
}

/// Bits a second: `100M`.
fn rate(value: &str) -> Result<u64, String> {
    let units = [("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("", 1.0)];
    let rate = scaled(value, &units).filter(|rate| (1..=1_000_000_000_000).contains(rate));
    rate.ok_or_else(|| format!("rate takes bits a second such as 64k, 100M or 2.5G, not `{value}`"))
}

/// `100` packets, `100p`, or bytes: `1500B`, `64kB`, `1MB`.
fn length(key: &str, value: &str) -> Result<Length, String> {
    let units = [
        ("kB", 1e3),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("B", 1.0),
    ];
    if value.ends_with('B') {
        let bytes = scaled(value, &units).map(Length::Bytes);
        return bytes.ok_or_else(|| format!("{key} takes bytes such as 64kB, not `{value}`"));
    }
    let packets = value.strip_suffix('p').unwrap_or(value).parse();
    let packets = packets.map(Length::Pkts);
    packets.map_err(|_| format!("{key} takes packets or bytes (100, 64kB), not `{value}`"))
}

/// `20ms`.
fn time_ns(key: &str, value: &str) -> Result<u64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let time = scaled(value, &units);
    let time = time.ok_or_else(|| {
        format!("{key} takes a time such as 20ms, 50us, 100ns or 1s, not `{value}`")
    })?;
    within_hour(key, time)
}

fn within_hour(key: &str, time_ns: u64) -> Result<u64, String> {
    match time_ns {
        0..=MOST_NS => Ok(time_ns),
        _ => Err(format!("{key} takes an hour at most")),
    }
}

/// A number with one of these units, the first that fits; `None` where it is none, or too large.
fn scaled(value: &str, units: &[(&str, f64)]) -> Option<u64> {
    let found = units.iter().find_map(|&(unit, factor)| {
        let number: f64 = value.strip_suffix(unit)?.parse().ok()?;
        Some(number * factor)
    });
    let most = (1_u64 << 53) as f64;
    found
        .filter(|number| (0.0..most).contains(number))
        .map(|number| number.round() as u64)
}
