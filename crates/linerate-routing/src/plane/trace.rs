//! Traces: the path of a packet, stage by stage.
//!
//! Without a trace they cost one branch for each burst. A [`Trace`] takes the next packets that
//! match a filter out of the loops over the burst, records every step with the name of its stage,
//! and sends a [`Record`] of each; a complete trace is dropped, and with it the sending end of its
//! channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use linerate_appliance::control::trace::{Record, summary};
use linerate_core::packet::Burst;
use linerate_tables::parse::Mask;
use linerate_wire::filter::Filter;

use super::punt::Reason;
use crate::model::InterfaceId;

/// Which packets to trace, and where to send the records.
pub struct Trace {
    /// Only packets that match; `None`: all.
    pub filter: Option<Filter>,
    /// How many.
    pub packets: u32,
    /// Where records go. Records that do not fit are lost.
    pub to: SyncSender<Record>,
    /// The last ticket that any worker in any trace has given to a packet.
    pub tickets: Arc<AtomicU64>,
}

/// The trace of one worker.
#[derive(Default)]
pub struct Tracer {
    trace: Option<Trace>,
    /// Of the slow worker: where the last steps of packets go that fast workers have traced.
    follower: Option<SyncSender<Record>>,
    /// Which packets of the burst are traced, and what was noted of each.
    traced: Mask,
    records: Vec<(usize, Record)>,
}

impl Tracer {
    /// Begins a trace, or ends the one that runs.
    pub fn set_trace(&mut self, trace: Option<Trace>) {
        self.trace = trace.filter(|trace| trace.packets > 0);
    }

    /// Starts or ends reports on packets whose traces fast workers hand over.
    pub fn set_follower(&mut self, follower: Option<SyncSender<Record>>) {
        self.follower = follower;
    }

    /// Ends the trace of a packet with a ticket.
    #[inline(always)]
    pub(super) fn follow(&self, ticket: u64, end: impl FnOnce() -> String) {
        if let Some(to) = self.follower.as_ref().filter(|_| ticket != 0) {
            // What does not fit is lost.
            let _ = to.try_send(Record {
                ticket,
                end: end(),
                ..Record::default()
            });
        }
    }

    /// Begins to trace what matches in a burst; returns which packets.
    #[inline(always)]
    pub(super) fn begin(&mut self, interface: InterfaceId, burst: &Burst) -> Mask {
        match self.trace {
            None => 0,
            Some(_) => self.match_all(interface, burst),
        }
    }

    #[cold]
    fn match_all(&mut self, interface: InterfaceId, burst: &Burst) -> Mask {
        // A trace that has not ended is of a fragment that waits for the rest of its datagram.
        while let Some(&(index, _)) = self.records.first() {
            self.tell(index, "held for reassembly".into());
        }
        let Some(trace) = &mut self.trace else {
            return 0;
        };
        for (index, packet) in burst.iter().enumerate() {
            let frame = packet.data();
            let matches = |filter: &Filter| filter.matches(frame);
            if trace.packets == 0 || !trace.filter.as_ref().is_none_or(matches) {
                continue;
            }
            trace.packets -= 1;
            self.traced |= 1 << index;
            let record = Record {
                from: interface.0,
                bytes: frame.len(),
                summary: summary(frame),
                ..Record::default()
            };
            self.records.push((index, record));
        }
        self.traced
    }

    /// Which packets of the burst are traced.
    #[inline(always)]
    pub(super) fn traced(&self) -> Mask {
        self.traced
    }

    /// Whether the packet at `index` of the burst is traced.
    #[inline(always)]
    pub(super) fn is_traced(&self, index: usize) -> bool {
        self.traced != 0 && index < Burst::CAPACITY && self.traced >> index & 1 != 0
    }

    /// Whether any packet of the burst is traced.
    #[inline(always)]
    pub(super) fn is_any_traced(&self) -> bool {
        self.traced != 0
    }

    /// The packets at these places are the burst now, the others have left it.
    #[cold]
    pub(super) fn close_up(&mut self, places: &[usize]) {
        self.traced = 0;
        for (index, _) in &mut self.records {
            if let Some(to) = places.iter().position(|from| from == index) {
                *index = to;
                self.traced |= 1 << to;
            }
        }
    }

    /// Notes a step.
    #[cold]
    pub(super) fn note(&mut self, index: usize, stage: &'static str, text: String) {
        if let Some((_, record)) = self.records.iter_mut().find(|(at, _)| *at == index) {
            record.steps.push((stage, text));
        }
    }

    /// Leaves the rest of a packet's trace to the slow worker; returns its ticket there.
    #[inline(always)]
    pub(super) fn hand_over(&mut self, index: usize, reason: Reason) -> u64 {
        match self.is_traced(index) {
            true => self.hand(index, reason),
            false => 0,
        }
    }

    #[cold]
    fn hand(&mut self, index: usize, reason: Reason) -> u64 {
        let Some(trace) = &self.trace else { return 0 };
        let ticket = trace.tickets.fetch_add(1, Ordering::Relaxed) + 1;
        self.note(index, "punt", reason.name().into());
        if let Some((_, record)) = self.records.iter_mut().find(|(at, _)| *at == index) {
            record.ticket = ticket;
        }
        self.tell(index, String::new());
        ticket
    }

    /// Ends the trace of a packet, and sends its record.
    #[inline(always)]
    pub(super) fn end(&mut self, index: usize, text: impl FnOnce() -> String) {
        if self.is_traced(index) {
            self.tell(index, text());
        }
    }

    #[cold]
    fn tell(&mut self, index: usize, end: String) {
        self.traced &= !(1 << index);
        let Some(at) = self.records.iter().position(|(at, _)| *at == index) else {
            return;
        };
        let (_, record) = self.records.swap_remove(at);
        let Some(trace) = &self.trace else { return };
        let is_heard = trace.to.try_send(Record { end, ..record });
        let is_gone = matches!(
            is_heard,
            Err(std::sync::mpsc::TrySendError::Disconnected(_))
        );
        if is_gone || trace.packets == 0 && self.traced == 0 {
            self.trace = None;
            self.traced = 0;
        }
    }
}
