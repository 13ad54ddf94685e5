//! Where packets came from and what became of them: two sums that agree when none is under way.
//!
//! Every packet comes by a port, from the kernel by a host interface, or is made here; it leaves by
//! a port, goes to the kernel, is dropped for a reason, or ends here. Whoever looks from outside
//! can add both sides up.

use serde_json::{Value, json};

use super::Control;
use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_routing::plane::counters::Counters;

/// What waits inside of the router: as it was when the workers last answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Packets that wait for the address of a neighbour.
    pub(super) neighbour: u64,
    /// Fragments that wait for the rest of their datagrams.
    pub(super) fragments: u64,
}

/// One summand.
pub(super) struct Entry {
    /// `in` or `out`; `now` of what is inside.
    side: &'static str,
    what: &'static str,
    packets: u64,
    /// What it is, for people.
    is: &'static str,
}

impl Entry {
    fn row(&self) -> Value {
        let Self {
            side,
            what,
            packets,
            is,
        } = self;
        json!({ "side": side, "what": what, "packets": packets, "is": is })
    }
}

impl Control {
    /// Both sides, but for what is [held](Held).
    pub(super) fn balance(&self) -> Vec<Entry> {
        let sum = |read: fn(&Counters) -> u64| -> u64 {
            self.workers
                .counters
                .iter()
                .map(|worker| read(worker))
                .sum()
        };
        // What became of packets is read first: under traffic none seems to have been in two
        // places.
        let lcores = self.workers.running.lcores();
        let drops = lcores.flat_map(|(_, _, stats)| stats.drops());
        let dropped: u64 = drops.map(|(_, count)| count).sum();
        let questions = sum(|worker| worker.answered.read());
        let (fragmented, used) = (
            sum(|worker| worker.fragmented.read()),
            sum(|worker| worker.fragments_used.read()),
        );
        let (host, ports) = (self.host_interfaces.stats(), self.workers.running.stats());
        let lost = |drops: &[(&str, u64)]| -> u64 { drops.iter().map(|(_, count)| count).sum() };
        let side = |side, entries: &[(&'static str, u64, &'static str)]| {
            let entry = move |&(what, packets, is): &(&'static str, u64, &'static str)| Entry {
                side,
                what,
                packets,
                is,
            };
            entries.iter().map(entry).collect::<Vec<_>>()
        };
        let mut all = side(
            "out",
            &[
                ("sent", ports.tx_packets, "left by ports"),
                (
                    "to_host",
                    host.tx_packets,
                    "to the kernel, by host interfaces",
                ),
                ("dropped", dropped, "dropped by lcores: show drops"),
                (
                    "dropped_by_ports",
                    lost(&ports.tx_drops) + lost(&host.tx_drops),
                    "dropped on the way out by ports and host interfaces: show drops",
                ),
                (
                    "neighbour_questions",
                    questions,
                    "ARP and solicitations that were dealt with here",
                ),
                (
                    "fragmented",
                    fragmented,
                    "too long for the next link, and replaced by fragments",
                ),
                (
                    "fragments_used",
                    used,
                    "fragments that became part of datagrams put together here",
                ),
                (
                    "segmented",
                    ports.segmented + host.segmented,
                    "oversized frames that ports replaced by segments",
                ),
            ],
        );
        let received = side(
            "in",
            &[
                ("received", ports.rx_packets, "came by ports"),
                (
                    "from_host",
                    host.rx_packets,
                    "from the kernel, by host interfaces",
                ),
                (
                    "messages",
                    sum(Counters::messages),
                    "ICMP messages and TCP resets of our own",
                ),
                (
                    "neighbour_messages",
                    sum(|worker| worker.neighbour_sent.read()),
                    "ARP and Neighbor Discovery of our own",
                ),
                (
                    "fragments_made",
                    sum(|worker| worker.fragments_made.read()),
                    "fragments of packets that were too long",
                ),
                (
                    "reassembled",
                    sum(|worker| worker.reassembled.read()),
                    "datagrams put together from fragments",
                ),
                (
                    "segments",
                    ports.segments + host.segments,
                    "segments of oversized frames",
                ),
            ],
        );
        all.splice(0..0, received);
        all
    }

    /// The summands as rows.
    pub(super) fn balance_rows(&self) -> Vec<Value> {
        let entries = self.balance();
        entries.iter().map(Entry::row).collect()
    }

    /// Why the sums differ: what is inside now.
    pub(super) fn now(&self) -> Vec<Value> {
        let entries = self.balance();
        let sum = |side| -> u64 {
            let of = entries.iter().filter(|entry| entry.side == side);
            of.map(|entry| entry.packets).sum()
        };
        let Held {
            neighbour,
            fragments,
        } = self.workers.held;
        // Counters are not all read at one moment: while packets pass, this is about so.
        let inside = sum("in").saturating_sub(sum("out"));
        let entry = |what, packets, is| Entry {
            side: "now",
            what,
            packets,
            is,
        };
        let under_way = inside.saturating_sub(neighbour + fragments);
        let rows = [
            entry("held_for_neighbours", neighbour, "wait for an address"),
            entry(
                "held_fragments",
                fragments,
                "wait for the rest of their datagrams",
            ),
            entry(
                "under_way",
                under_way,
                "in the rings between lcores, or just being read",
            ),
        ];
        rows.iter().map(Entry::row).collect()
    }

    /// The same for the metrics page.
    pub(super) fn balance_metrics(&self, page: &mut Exposition) {
        page.family(
            "balance_packets",
            FamilyKind::Counter,
            "packets",
            "Where packets came from (in) and what became of them (out): equal but for those held.",
        );
        for entry in self.balance() {
            let labels = [("side", entry.side), ("what", entry.what)];
            page.sample(&labels, entry.packets);
        }
        page.family(
            "held_packets",
            FamilyKind::Gauge,
            "packets",
            "Packets that wait for a neighbour's address, or for the rest of their datagram.",
        );
        page.sample(&[("for", "neighbour")], self.workers.held.neighbour);
        page.sample(&[("for", "reassembly")], self.workers.held.fragments);
    }
}
