//! Which lcore polls which queues: computed from the ports and the plan, or written in Pktgen's
//! notation.
//!
//! ```text
//! MAP    := ENTRY { "," ENTRY }                      "[1:2].0, [3/5:4].1"
//! ENTRY  := LCORES "." PORTS
//! LCORES := LIST | LIST ":" LIST                     both ways | receive ":" transmit
//! PORTS  := LIST | LIST ":" LIST                     likewise
//! LIST   := RANGE { ("/" | ",") RANGE }              "," within brackets
//! RANGE  := NUMBER [ "-" NUMBER ]
//! ```
//!
//! Each part may stand in `[]` or `{}`. The n-th lcore named for a direction of a port gets its
//! n-th queue. Unlike in Pktgen one lcore may poll many ports, and lcore 0 too, since the screen
//! sleeps.

use std::collections::BTreeMap;
use std::fmt::Write;

use linerate_core::env::CpuList;

use linerate_appliance::error::Error;

/// The largest number in a map; no machine has so many CPUs, no session so many ports.
const MOST: u32 = 8191;

/// What a map needs to know of a port.
#[derive(Clone, Debug)]
pub struct PortShape {
    pub name: String,
    /// Most queues that it has.
    pub max_rx: u16,
    pub max_tx: u16,
    /// Queues as asked for.
    pub rx: Option<u16>,
    pub tx: Option<u16>,
}

/// One lcore and its queues, each as port and queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub name: String,
    pub cpu: Option<u32>,
    pub rx: Vec<(u16, u16)>,
    pub tx: Vec<(u16, u16)>,
}

impl Share {
    /// `rx 0.0, tx 1.0`.
    pub fn work(&self) -> String {
        let side = |direction: &'static str, queues: &[(u16, u16)]| -> Vec<String> {
            let word = |(port, queue)| format!("{direction} {port}.{queue}");
            queues.iter().copied().map(word).collect()
        };
        [side("rx", &self.rx), side("tx", &self.tx)]
            .concat()
            .join(", ")
    }
}

/// Which lcore polls which queues. Every port has at least a receive and a transmit queue, and
/// every lcore has work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    pub lcores: Vec<Share>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Map {
    /// Spreads the ports over `places` (name and CPU). With two lcores or more receiving and
    /// sending are apart, so that a full receive ring makes no frame late.
    pub fn automatic(ports: &[PortShape], places: &[(String, Option<u32>)]) -> Self {
        let mut lcores: Vec<Share> = places
            .iter()
            .map(|(name, cpu)| Share {
                name: name.clone(),
                cpu: *cpu,
                ..Share::default()
            })
            .collect();
        let senders = lcores.len().div_ceil(2);
        let receivers = (lcores.len() - senders).max(1);
        let first_receiver = if lcores.len() > 1 { senders } else { 0 };
        let queues = |asked: Option<u16>, most: u16, lcores: usize| {
            let natural = (lcores / ports.len().max(1)).clamp(1, most.max(1).into());
            asked.unwrap_or(natural as u16).max(1)
        };
        let (mut next_tx, mut next_rx) = (0, 0);
        for (number, port) in (0u16..).zip(ports) {
            for queue in 0..queues(port.tx, port.max_tx, senders) {
                lcores[next_tx % senders].tx.push((number, queue));
                next_tx += 1;
            }
            for queue in 0..queues(port.rx, port.max_rx, receivers) {
                let lcore = first_receiver + next_rx % receivers;
                lcores[lcore].rx.push((number, queue));
                next_rx += 1;
            }
        }
        lcores.retain(|share| !share.rx.is_empty() || !share.tx.is_empty());
        let mut map = Self {
            lcores,
            notes: Vec::new(),
        };
        map.note_shared_cpus();
        map
    }

    /// Reads Pktgen's notation. `cpus`: the CPU behind each lcore, the n-th for lcore n.
    ///
    /// # Errors
    /// Names the part of the text, what is wrong with it, and what would be right.
    pub fn parse(
        text: &str,
        ports: &[PortShape],
        cpus: &BTreeMap<u32, u32>,
    ) -> Result<Self, Error> {
        let mut shares: BTreeMap<u32, Share> = BTreeMap::new();
        let mut queues = vec![(0u16, 0u16); ports.len()];
        for part in entries(text)? {
            let entry = Entry::parse(part)?;
            for &lcore in entry.rx_lcores.iter().chain(&entry.tx_lcores) {
                if !cpus.contains_key(&lcore) {
                    return Err(unknown_lcore(part, lcore, cpus));
                }
            }
            for &port in entry.rx_ports.iter().chain(&entry.tx_ports) {
                if port as usize >= ports.len() {
                    return Err(unknown_port(part, port, ports));
                }
            }
            let name = |lcore: &u32| Share {
                name: format!("lcore{lcore}"),
                cpu: cpus.get(lcore).copied(),
                ..Share::default()
            };
            for &port in &entry.rx_ports {
                for lcore in &entry.rx_lcores {
                    let share = shares.entry(*lcore).or_insert_with(|| name(lcore));
                    let next = &mut queues[port as usize].0;
                    give(part, "receives from", *lcore, &mut share.rx, port, next)?;
                }
            }
            for &port in &entry.tx_ports {
                for lcore in &entry.tx_lcores {
                    let share = shares.entry(*lcore).or_insert_with(|| name(lcore));
                    let next = &mut queues[port as usize].1;
                    give(part, "sends to", *lcore, &mut share.tx, port, next)?;
                }
            }
        }
        check_queues(text, ports, &queues)?;
        let mut map = Self {
            notes: Vec::new(),
            lcores: shares.into_values().collect(),
        };
        if map.lcores.iter().any(|share| share.name == "lcore0") {
            map.notes.push(
                "lcore0 polls ports; Pktgen keeps its first lcore for the display, here the \
                 display sleeps between two frames, but what it does may show as gaps in lcore0"
                    .into(),
            );
        }
        map.note_shared_cpus();
        Ok(map)
    }

    /// Receive and transmit queues of a port.
    pub fn queues(&self, port: u16) -> (u16, u16) {
        let count = |queues: &[(u16, u16)]| queues.iter().filter(|queue| queue.0 == port).count();
        let sum = |side: fn(&Share) -> &[(u16, u16)]| -> usize {
            self.lcores.iter().map(|share| count(side(share))).sum()
        };
        (sum(|share| &share.rx) as u16, sum(|share| &share.tx) as u16)
    }

    /// The queues of each lcore, a line each, and the notes.
    pub fn explain(&self, ports: &[PortShape]) -> String {
        let list = |queues: &[(u16, u16)]| -> String {
            let name = |port: u16| ports.get(usize::from(port)).map_or("?", |port| &port.name);
            let word =
                |&(port, queue): &(u16, u16)| format!("port {port} ({}) queue {queue}", name(port));
            queues.iter().map(word).collect::<Vec<_>>().join(", ")
        };
        let mut text = String::new();
        for share in &self.lcores {
            let cpu = match share.cpu {
                Some(cpu) => format!("CPU {cpu}"),
                None => "any CPU".into(),
            };
            let mut work = Vec::new();
            if !share.rx.is_empty() {
                work.push(format!("receives from {}", list(&share.rx)));
            }
            if !share.tx.is_empty() {
                work.push(format!("sends to {}", list(&share.tx)));
            }
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} on {cpu}: {}", share.name, work.join("; "));
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    fn note_shared_cpus(&mut self) {
        let mut by_cpu: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for share in &self.lcores {
            if let Some(cpu) = share.cpu {
                by_cpu.entry(cpu).or_default().push(&share.name);
            }
        }
        let crowded = by_cpu.iter().filter(|(_, names)| names.len() > 1);
        let notes: Vec<String> = crowded
            .map(|(cpu, names)| {
                format!(
                    "{} share CPU {cpu}: each waits while another runs",
                    names.join(", ")
                )
            })
            .collect();
        self.notes.extend(notes);
    }
}

/// One `lcores.ports`.
struct Entry {
    rx_lcores: Vec<u32>,
    tx_lcores: Vec<u32>,
    rx_ports: Vec<u32>,
    tx_ports: Vec<u32>,
}

impl Entry {
    fn parse(part: &str) -> Result<Self, Error> {
        let Some((lcores, ports)) = part.rsplit_once('.') else {
            return Err(wrong(part, "it names no port"));
        };
        let (rx_lcores, tx_lcores) = sides(part, "lcore", lcores)?;
        let (rx_ports, tx_ports) = sides(part, "port", ports)?;
        Ok(Self {
            rx_lcores,
            tx_lcores,
            rx_ports,
            tx_ports,
        })
    }
}

/// Splits at the commas outside of brackets.
fn entries(text: &str) -> Result<Vec<&str>, Error> {
    let mut open = Vec::new();
    let (mut parts, mut from) = (Vec::new(), 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' | '{' => open.push(letter),
            ']' | '}' => {
                let wanted = if letter == ']' { '[' } else { '{' };
                if open.pop() != Some(wanted) {
                    let part = &text[from..at + 1];
                    return Err(wrong(part.trim(), &format!("`{letter}` closes nothing")));
                }
            }
            ',' if open.is_empty() => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    let last = text[from..].trim();
    if let Some(letter) = open.pop() {
        return Err(wrong(last, &format!("`{letter}` is never closed")));
    }
    parts.push(last);
    match parts.iter().any(|part| part.is_empty()) {
        true if text.trim().is_empty() => Err(wrong(text, "it is empty")),
        true => Err(wrong(text, "a part between two commas is empty")),
        false => Ok(parts),
    }
}

/// `rx:tx`, or one list for both.
fn sides(part: &str, what: &str, text: &str) -> Result<(Vec<u32>, Vec<u32>), Error> {
    let text = bare(text);
    match text.split_once(':') {
        None => {
            let both = list(part, what, text)?;
            Ok((both.clone(), both))
        }
        Some((rx, tx)) => Ok((list(part, what, rx)?, list(part, what, tx)?)),
    }
}

/// Without the brackets around it.
fn bare(text: &str) -> &str {
    let mut text = text.trim();
    loop {
        let inner = match text.as_bytes() {
            [b'[', .., b']'] | [b'{', .., b'}'] => &text[1..text.len() - 1],
            _ => return text,
        };
        // `[1]:[2]` begins and ends with brackets, but not with one pair.
        let mut depth = 0i32;
        let closes_within = inner.bytes().any(|byte| {
            depth += match byte {
                b'[' | b'{' => 1,
                b']' | b'}' => -1,
                _ => 0,
            };
            depth < 0
        });
        if closes_within {
            return text;
        }
        text = inner.trim();
    }
}

/// `1`, `1-3`, `1/3-4`.
fn list(part: &str, what: &str, text: &str) -> Result<Vec<u32>, Error> {
    let number = |digits: &str| -> Result<u32, Error> {
        let digits = digits.trim();
        let reason = match digits {
            "" => format!("the number of a {what} is missing"),
            _ => match digits.parse::<u32>() {
                Ok(number) if number <= MOST => return Ok(number),
                Ok(_) => format!("{what} {digits} is above {MOST}"),
                Err(_) => format!("`{digits}` is no number of a {what}"),
            },
        };
        Err(wrong(part, &reason))
    };
    let mut numbers = Vec::new();
    for range in bare(text).split(['/', ',']) {
        let range = bare(range);
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(range)?, number(range)?),
        };
        if first > last {
            return Err(wrong(part, &format!("`{range}` runs backwards")));
        }
        for number in first..=last {
            if numbers.contains(&number) {
                return Err(wrong(part, &format!("{what} {number} is in a list twice")));
            }
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// Gives the next queue of a port to an lcore.
fn give(
    part: &str,
    verb: &str,
    lcore: u32,
    queues: &mut Vec<(u16, u16)>,
    port: u32,
    next: &mut u16,
) -> Result<(), Error> {
    let port = port as u16;
    if queues.iter().any(|queue| queue.0 == port) {
        let twice = format!("lcore {lcore} {verb} port {port} already");
        return Err(wrong(part, &twice));
    }
    queues.push((port, *next));
    *next += 1;
    Ok(())
}

/// Each port has queues for its lcores, and lcores for both directions.
fn check_queues(text: &str, ports: &[PortShape], queues: &[(u16, u16)]) -> Result<(), Error> {
    for ((number, port), &(rx, tx)) in (0..).zip(ports).zip(queues) {
        let name = &port.name;
        let directions = [
            ("receive from", "receive", rx, port.max_rx),
            ("send to", "transmit", tx, port.max_tx),
        ];
        for (verb, direction, lcores, most) in directions {
            if lcores == 0 {
                return Err(Error::Usage {
                    problem: format!(
                        "map `{text}`: there is no lcore to {verb} port {number} (`{name}`)"
                    ),
                    fix: format!("add it, such as `[1:2].{number}`, or leave the port out"),
                });
            }
            if lcores > most {
                return Err(Error::Usage {
                    problem: format!(
                        "map `{text}`: {lcores} lcores {verb} port {number} (`{name}`), which has \
                         {most} {direction} queues"
                    ),
                    fix: format!(
                        "name at most {most}, or open the port with more queues \
                         (`queues={lcores}` where its kind takes that)"
                    ),
                });
            }
        }
    }
    Ok(())
}

/// A part of the map is wrong.
fn wrong(part: &str, reason: &str) -> Error {
    Error::Usage {
        problem: format!("map: `{part}`: {reason}"),
        fix:
            "write `[RX:TX].PORT,...`, such as `[1:2].0,[3-4:5/7].1`, or `LCORE.PORT` for both ways"
                .into(),
    }
}

fn unknown_lcore(part: &str, lcore: u32, cpus: &BTreeMap<u32, u32>) -> Error {
    let known: CpuList = cpus.keys().copied().collect();
    Error::Usage {
        problem: format!("map: `{part}`: there is no lcore {lcore}; there are {known}"),
        fix: format!(
            "name one of {known}, or say which CPU is behind each lcore: `--cpus 0,1,1` puts \
             lcores 1 and 2 on CPU 1"
        ),
    }
}

fn unknown_port(part: &str, port: u32, ports: &[PortShape]) -> Error {
    let fix = match ports.len() {
        0 => "open a port: `--port ring:a`".into(),
        1 => "the only port is 0".into(),
        count => format!("the ports are 0-{}", count - 1),
    };
    Error::Usage {
        problem: format!("map: `{part}`: there is no port {port}"),
        fix,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
