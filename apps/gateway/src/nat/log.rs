//! What NAT does, for those who have to know afterwards (RFC 6888 REQ-12, RFC 8158): records of
//! sessions, mappings and blocks.
//!
//! A worker puts them into its [`Log`], which has a fixed size; background takes them out and
//! writes [`Record::json`] or [`Record::syslog`]. If it does not come in time, records are lost,
//! and counted: traffic never waits.

use std::fmt::{self, Write};
use std::net::IpAddr;

use super::mapping::Inside;
use super::ports::{Block, STEP};
use super::subscribers::Who;
use super::{Endpoint, Protocol};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    SessionBegins,
    SessionEnds,
    MappingBegins,
    MappingEnds,
    BlockBegins,
    BlockEnds,
}

impl Event {
    /// Its name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SessionBegins => "nat_session_begin",
            Self::SessionEnds => "nat_session_end",
            Self::MappingBegins => "nat_mapping_begin",
            Self::MappingEnds => "nat_mapping_end",
            Self::BlockBegins => "nat_block_begin",
            Self::BlockEnds => "nat_block_end",
        }
    }
}

/// One of them: 96 bytes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, by the worker's clock, in ms.
    pub time_ms: u64,
    pub worker: u16,
    pub event: Event,
    /// The zone of the inside.
    pub zone: u16,
    pub inside: Endpoint,
    pub outside: Endpoint,
    pub about: About,
}

/// What belongs to some kinds of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Whom a session is with.
    Session(Protocol, Endpoint),
    Mapping(Protocol),
    /// Ports of a block: its outside's port is the first.
    Block {
        ports: u16,
    },
}

const _: () = assert!(size_of::<Record>() <= 96);

impl Record {
    pub(super) fn session(
        time_ms: u64,
        worker: u16,
        event: Event,
        inside: &Inside,
        outside: Endpoint,
        remote: Option<Endpoint>,
    ) -> Self {
        let protocol = inside.protocol;
        Self {
            time_ms,
            worker,
            event,
            zone: inside.zone,
            inside: inside.endpoint,
            outside,
            about: match remote {
                Some(remote) => About::Session(protocol, remote),
                None => About::Mapping(protocol),
            },
        }
    }

    pub(super) fn block(
        time_ms: u64,
        worker: u16,
        event: Event,
        who: &Who,
        outside: IpAddr,
        block: &Block,
    ) -> Self {
        Self {
            time_ms,
            worker,
            event,
            zone: who.zone,
            inside: Endpoint::new(who.address, 0),
            outside: Endpoint::new(outside, block.first()),
            about: About::Block { ports: block.len },
        }
    }

    /// One line of JSON, without its end. `began_ms` is the time of day, in ms since 1970, at which
    /// the worker's clock was 0.
    pub fn json(&self, began_ms: u64) -> String {
        let mut out = String::with_capacity(200);
        // Writing to a text does not fail.
        let _ = self.write_json(&mut out, began_ms);
        out
    }

    fn write_json(&self, out: &mut String, began_ms: u64) -> fmt::Result {
        let time = Time(began_ms + self.time_ms);
        let (event, worker) = (self.event.name(), self.worker);
        write!(
            out,
            "{{\"time\":\"{time}\",\"event\":\"{event}\",\"worker\":{worker}"
        )?;
        write!(out, ",\"zone\":{}", self.zone)?;
        match self.about {
            About::Session(protocol, remote) => {
                let (inside, outside, name) = (self.inside, self.outside, protocol.name());
                write!(out, ",\"protocol\":\"{name}\",\"inside\":\"{inside}\"")?;
                write!(out, ",\"outside\":\"{outside}\",\"remote\":\"{remote}\"")?;
            }
            About::Mapping(protocol) => {
                let (inside, outside, name) = (self.inside, self.outside, protocol.name());
                write!(out, ",\"protocol\":\"{name}\",\"inside\":\"{inside}\"")?;
                write!(out, ",\"outside\":\"{outside}\"")?;
            }
            About::Block { ports } => {
                let (inside, outside) = (self.inside.address, self.outside.address);
                let first = self.outside.port;
                write!(out, ",\"inside\":\"{inside}\",\"outside\":\"{outside}\"")?;
                // Two ports, even and odd, at each step.
                write!(
                    out,
                    ",\"first_port\":{first},\"step\":{STEP},\"ports\":{ports}"
                )?;
            }
        }
        out.write_char('}')
    }

    /// One message of syslog (RFC 5424), of facility local0 and severity informational.
    pub fn syslog(&self, began_ms: u64, host: &str) -> String {
        let time = Time(began_ms + self.time_ms);
        let json = self.json(began_ms);
        format!(
            "<134>1 {time} {host} linerate - {} - {json}",
            self.event.name()
        )
    }
}

/// Milliseconds since 1970 as RFC 3339 has them, in UTC.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, ms) = (self.0 / 86_400_000, self.0 % 86_400_000);
        // Years begin in March, so that the day that is added in some comes last; 400 years are
        // 146,097 days, and the first begin 719,468 days before 1970.
        let day = days + 719_468;
        let (era, day) = (day / 146_097, day % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, later) = if month < 10 {
            (month + 3, 0)
        } else {
            (month - 9, 1)
        };
        let year = year + 400 * era + later;
        let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
        let (second, ms) = (ms / 1000 % 60, ms % 1000);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
        )
    }
}

/// Records that wait to be written, as many as there is room for.
#[derive(Debug)]
pub struct Log {
    records: Vec<Record>,
    most: usize,
    lost: u64,
}

impl Log {
    /// Room for so many records.
    pub fn new(most: usize) -> Self {
        Self {
            records: Vec::with_capacity(most),
            most,
            lost: 0,
        }
    }

    /// Adds a record, or counts it as lost.
    pub fn push(&mut self, record: Record) {
        match self.records.len() < self.most {
            true => self.records.push(record),
            false => self.lost += 1,
        }
    }

    /// How many records wait at most.
    pub fn most(&self) -> usize {
        self.most
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Takes out all records, in order, for `empty`, whose memory is used from now on: it should
    /// have room for as many.
    pub fn take(&mut self, mut empty: Vec<Record>) -> Vec<Record> {
        empty.clear();
        std::mem::replace(&mut self.records, empty)
    }

    /// Records for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside() -> Inside {
        Inside {
            endpoint: Endpoint::new([10, 0, 0, 1], 4000),
            protocol: Protocol::Tcp,
            zone: 2,
            pool: 0,
        }
    }

    #[test]
    fn records_are_lines_of_json_and_of_syslog() {
        let outside = Endpoint::new([198, 51, 100, 1], 1024);
        let remote = Some(Endpoint::new([192, 0, 2, 1], 80));
        let begins = Event::SessionBegins;
        let record = Record::session(500, 3, begins, &inside(), outside, remote);
        // 2026-11-23 12:00:00 UTC.
        let began = 1_795_435_200_000;
        let json = concat!(
            "{\"time\":\"2026-11-23T12:00:00.500Z\",\"event\":\"nat_session_begin\",\"worker\":3,",
            "\"zone\":2,\"protocol\":\"tcp\",\"inside\":\"10.0.0.1:4000\",",
            "\"outside\":\"198.51.100.1:1024\",\"remote\":\"192.0.2.1:80\"}"
        );
        assert_eq!(record.json(began), json);
        let syslog = record.syslog(began, "gw1");
        let head = "<134>1 2026-11-23T12:00:00.500Z gw1 linerate - nat_session_begin - {";
        assert!(syslog.starts_with(head), "{syslog}");
        let ends = Record::session(500, 3, Event::MappingEnds, &inside(), outside, None);
        assert!(
            ends.json(began)
                .ends_with("\"outside\":\"198.51.100.1:1024\"}")
        );
    }

    #[test]
    fn times_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(Time(seconds * 1000).to_string(), date);
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let mut log = Log::new(3);
        let outside = Endpoint::new([198, 51, 100, 1], 1024);
        for time in 0..5 {
            log.push(Record::session(
                time,
                0,
                Event::MappingBegins,
                &inside(),
                outside,
                None,
            ));
        }
        let taken = log.take(Vec::new());
        assert_eq!((taken.len(), taken[2].time_ms, log.lost()), (3, 2, 2));
        log.push(taken[0]);
        assert_eq!((log.take(taken).len(), log.memory_bytes() > 0), (1, true));
    }
}
