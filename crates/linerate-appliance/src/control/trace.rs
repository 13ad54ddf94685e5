//! Traces: what became of the next packets that match, stage by stage.
//!
//! [`serve`] tells a client of [`Record`]s. Where they come from is the appliance's: [`of_points`]
//! follows packets past the named points of any pipeline, and says where they are seen and how
//! they have changed; one whose stages have more to say makes records of its own.

use std::any::Any;
use std::fmt::Write;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linerate_core::run::{Passing, Tap};
use linerate_wire::ethernet::Ethernet;
use linerate_wire::filter::Filter;
use linerate_wire::{FlowKey, Headers, ipv4::Ipv4, ipv6::Ipv6, protocol};
use serde::Deserialize;
use serde_json::{Value, json};

use super::server::{say, write_line};
use super::stream::{LOOK, filter, has_gone, read};
use super::taps::Taps;
use crate::socket::Problem;

/// How long a trace waits for packets that match.
const PATIENCE: Duration = Duration::from_secs(60);
/// Packets of one trace at most.
const MOST: u32 = 10_000;

/// What a client wants to trace.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default)]
    pub(super) filter: String,
    count: u32,
}

/// What became of one packet: all of it, or the part of one worker. What the first worker knows
/// comes first, without an end, and what the second one adds has the same ticket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// 0 where this is all.
    pub ticket: u64,
    /// By which it came: the number of a port, or of an interface where an appliance has such.
    pub from: u16,
    /// Length of the frame in bytes.
    pub bytes: usize,
    /// Its addresses, ports and protocol in a few words, read from all of it: a parser takes a
    /// packet that was cut for malformed.
    pub summary: String,
    /// What was noted at each stage, in order.
    pub steps: Vec<(&'static str, String)>,
    /// Where it went, or why it was dropped.
    pub end: String,
}

/// A trace that has begun.
pub struct Begun {
    /// What is told.
    pub records: Receiver<Record>,
    /// What packets come by, by number.
    pub names: Vec<(u16, String)>,
    /// Ends the trace when it is dropped.
    pub guard: Box<dyn Any + Send>,
}

/// Sends what became of the next packets that match, one line each, and then the answer. `begin` is
/// given the filter and how many packets are wanted.
///
/// # Errors
/// The client does not read, or has gone.
pub fn serve(
    stream: &mut UnixStream,
    id: Value,
    params: &Value,
    closing: &AtomicBool,
    begin: impl FnOnce(Option<Filter>, u32) -> Result<Begun, Problem>,
) -> io::Result<()> {
    let begun = read::<Asked>(params).and_then(|asked| {
        let count = asked.count.clamp(1, MOST);
        Ok((begin(filter(&asked.filter)?, count)?, count))
    });
    let (begun, count) = match begun {
        Ok(begun) => begun,
        Err(problem) => return say(stream, id, Err(problem)),
    };
    let told = tell(stream, &id, &begun.records, &begun.names, count, closing);
    drop(begun.guard);
    let told = told?;
    let text = match told == count {
        true => format!("{told} packets"),
        false => format!(
            "{told} packets; no more matched in {} s",
            PATIENCE.as_secs()
        ),
    };
    say(stream, id, Ok(json!({ "text": text, "packets": told })))
}

fn tell(
    stream: &mut UnixStream,
    id: &Value,
    records: &Receiver<Record>,
    names: &[(u16, String)],
    count: u32,
    closing: &AtomicBool,
) -> io::Result<u32> {
    let end = Instant::now() + PATIENCE;
    let mut told = 0;
    // Those that the second worker still has.
    let mut halves: Vec<Record> = Vec::new();
    let say = |stream: &mut UnixStream, record: &Record| {
        let result = story(record, names);
        write_line(
            stream,
            &json!({ "id": id, "event": "trace", "result": result }),
        )
    };
    while told < count && Instant::now() < end && !closing.load(Ordering::SeqCst) {
        match records.recv_timeout(LOOK) {
            Ok(record) if record.ticket == 0 => {
                told += 1;
                say(stream, &record)?;
            }
            Ok(record) if record.end.is_empty() => halves.push(record),
            Ok(record) => {
                let first = halves.iter().position(|half| half.ticket == record.ticket);
                let Some(first) = first else { continue };
                told += 1;
                let whole = Record {
                    end: record.end,
                    ..halves.swap_remove(first)
                };
                say(stream, &whole)?;
            }
            Err(RecvTimeoutError::Timeout) => {
                if has_gone(stream)? {
                    break;
                }
            }
            // Every worker has told all that it was asked for.
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    for mut half in halves.into_iter().take((count - told) as usize) {
        half.end = "not known yet".into();
        told += 1;
        say(stream, &half)?;
    }
    Ok(told)
}

/// What became of one packet, in words.
fn story(record: &Record, names: &[(u16, String)]) -> Value {
    let from = name_of(names, record.from);
    let mut steps: Vec<String> = record
        .steps
        .iter()
        .map(|(stage, text)| format!("{stage}: {text}"))
        .collect();
    steps.push(record.end.clone());
    json!({
        "from": from,
        "bytes": record.bytes,
        "packet": format!("{} by {from}, {} bytes", record.summary, record.bytes),
        "steps": steps,
        "end": record.end,
    })
}

fn name_of(names: &[(u16, String)], number: u16) -> &str {
    let known = names.iter().find(|(known, _)| *known == number);
    known.map_or("?", |(_, name)| name)
}

/// Follows packets past the points of all workers.
pub fn of_points(taps: Taps, filter: &Option<Filter>, count: u32) -> Result<Begun, Problem> {
    let names = taps.ports(&[])?;
    let (to, records) = mpsc::sync_channel(count as usize);
    let follower = || Follower {
        filter: filter.clone(),
        left: count,
        to: Some(to.clone()),
        under_way: Vec::new(),
        names: names.clone(),
    };
    let followers: Vec<Arc<Mutex<Follower>>> = (0..taps.workers())
        .map(|_| Arc::new(Mutex::new(follower())))
        .collect();
    drop(to);
    taps.set(|worker, _| {
        let follower = followers[worker].clone();
        let see = move |passing: &Passing<'_>| {
            let mut follower = follower.lock().unwrap_or_else(PoisonError::into_inner);
            follower.see(passing);
        };
        Some(Box::new(see) as Tap)
    });
    Ok(Begun {
        records,
        names,
        guard: Box::new(taps),
    })
}

/// Follows packets of one worker.
struct Follower {
    filter: Option<Filter>,
    /// How many are still to be followed.
    left: u32,
    /// Who is told; nobody once all was.
    to: Option<SyncSender<Record>>,
    under_way: Vec<Followed>,
    names: Vec<(u16, String)>,
}

struct Followed {
    /// The packet's [number](linerate_core::packet::Packet::number).
    number: u32,
    record: Record,
    /// What it looked like when it was last seen.
    looks: String,
}

impl Follower {
    fn see(&mut self, passing: &Passing<'_>) {
        if self.to.is_none() {
            return;
        }
        let number = passing.packet.number();
        let at = self.under_way.iter().position(|one| one.number == number);
        match (passing.stage, at) {
            ("pipeline", at) => {
                if let Some(at) = at {
                    // Its slot has come back by another way.
                    self.end(at, "not seen to leave".into());
                }
                self.begin(passing);
            }
            ("sent", Some(at)) => {
                let by = name_of(&self.names, passing.port);
                let by = match by {
                    "?" => format!("handed on by ring {}", passing.port),
                    name => format!("sent by {name}"),
                };
                let end = match self.under_way[at].change(passing.packet.data()) {
                    Some(looks) => format!("{by} as {looks}"),
                    None => by,
                };
                self.end(at, end);
            }
            ("drop", Some(at)) => self.end(at, format!("dropped: {}", passing.reason)),
            (stage, Some(at)) => {
                let change = self.under_way[at].change(passing.packet.data());
                let text = change.unwrap_or_else(|| "unchanged".into());
                self.under_way[at].record.steps.push((stage, text));
            }
            (_, None) => {}
        }
    }

    fn begin(&mut self, passing: &Passing<'_>) {
        let frame = passing.packet.data();
        let matches = |filter: &Filter| filter.matches(frame);
        if self.left == 0 || !self.filter.as_ref().is_none_or(matches) {
            return;
        }
        self.left -= 1;
        let record = Record {
            from: passing.port,
            bytes: frame.len(),
            summary: summary(frame),
            ..Record::default()
        };
        self.under_way.push(Followed {
            number: passing.packet.number(),
            record,
            looks: looks(frame),
        });
    }

    fn end(&mut self, at: usize, end: String) {
        let Followed { record, .. } = self.under_way.swap_remove(at);
        let heard = self
            .to
            .as_ref()
            .map(|to| to.try_send(Record { end, ..record }));
        let is_gone = matches!(heard, Some(Err(mpsc::TrySendError::Disconnected(_))));
        if is_gone || self.left == 0 && self.under_way.is_empty() {
            self.to = None;
        }
    }
}

impl Followed {
    /// What it looks like now, where that is something else than before.
    fn change(&mut self, frame: &[u8]) -> Option<String> {
        let now = looks(frame);
        if now == self.looks {
            return None;
        }
        self.looks = now;
        Some(self.looks.clone())
    }
}

/// A packet with all that forwarders change of it:
/// `02:00:00:00:00:01 > 02:00:00:00:00:02, 192.0.2.9:4000 > 10.1.2.3:53 udp, hops 63, 60 bytes`.
fn looks(frame: &[u8]) -> String {
    let mut text = String::new();
    if let Ok(ethernet) = Ethernet::new_checked(frame) {
        let _ = write!(text, "{} > {}, ", ethernet.src(), ethernet.dst());
    }
    text += &summary(frame);
    if let Ok(Headers { l3, .. }) = linerate_wire::parse(frame) {
        let packet = &frame[l3..];
        let v4 = Ipv4::new_checked(packet).ok().map(|ip| ip.ttl());
        let v6 = || Ipv6::new_checked(packet).ok().map(|ip| ip.hop_limit());
        if let Some(hops) = v4.or_else(v6) {
            let _ = write!(text, ", hops {hops}");
        }
    }
    let _ = write!(text, ", {} bytes", frame.len());
    text
}

/// A packet in a few words: `192.0.2.9:4000 > 10.1.2.3:53 udp`.
pub fn summary(frame: &[u8]) -> String {
    let headers = linerate_wire::parse(frame);
    let key = headers
        .as_ref()
        .ok()
        .and_then(|headers| headers.flow_key(frame));
    let (src, dst, protocol, ports) = match &key {
        Some(FlowKey::V4(key)) => (
            key.src().to_string(),
            key.dst().to_string(),
            key.protocol(),
            (key.src_port(), key.dst_port()),
        ),
        Some(FlowKey::V6(key)) => (
            format!("[{}]", key.src()),
            format!("[{}]", key.dst()),
            key.protocol(),
            (key.src_port(), key.dst_port()),
        ),
        None => {
            return match headers {
                Ok(headers) => format!("{:?}", headers.ethertype),
                Err(malformed) => format!("malformed: {malformed}"),
            };
        }
    };
    let name = match protocol {
        protocol::TCP => "tcp".into(),
        protocol::UDP => "udp".into(),
        protocol::ICMP => "icmp".into(),
        protocol::ICMPV6 => "icmp6".into(),
        other => format!("protocol {other}"),
    };
    match ports {
        (0, 0) => format!("{src} > {dst} {name}"),
        (from, to) => format!("{src}:{from} > {dst}:{to} {name}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use linerate_core::packet::{Packet, Pool, PoolCache, PoolConfig};

    use super::*;

    #[test]
    fn packets_are_followed_to_their_ends() {
        let pool = Pool::new(&PoolConfig::new("trace", 64)).unwrap();
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let (to, records) = mpsc::sync_channel(4);
        let mut follower = Follower {
            filter: filter("ip").unwrap(),
            left: 3,
            to: Some(to),
            under_way: Vec::new(),
            names: vec![(7, "lan".into())],
        };
        let mut packets: Vec<Packet> = (0..4).map(|_| cache.get(&pool).unwrap()).collect();
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[8, 6]);
        packets[0].set_data(&frame); // does not match
        frame[12..14].copy_from_slice(&[8, 0]);
        for packet in &mut packets[1..] {
            packet.set_data(&frame);
        }
        let mut see = |stage, reason, packet: &Packet| {
            let port = 7;
            follower.see(&Passing {
                stage,
                port,
                reason,
                packet,
            });
        };
        for packet in &packets {
            see("pipeline", "", packet);
            see("look", "", packet);
        }
        frame[0] = 2;
        packets[1].set_data(&frame);
        see("drop", "short", &packets[2]);
        see("sent", "", &packets[1]);
        // One that never left, and whose slot comes again, with nobody left to ask for it.
        see("pipeline", "", &packets[3]);
        let told: Vec<Record> = records.iter().collect();
        let ends: Vec<&str> = told.iter().map(|record| &*record.end).collect();
        assert_eq!((ends[0], ends[2]), ("dropped: short", "not seen to leave"));
        let sent = "sent by lan as 00:00:00:00:00:00 > 02:00:00:00:00:00, ";
        assert!(ends[1].starts_with(sent), "{}", ends[1]);
        assert_eq!(told[0].steps, [("look", "unchanged".to_string())]);
        assert_eq!((told[0].from, told[0].bytes), (7, 60));
        packets
            .into_iter()
            .for_each(|packet| cache.free_one(packet));
    }
}
