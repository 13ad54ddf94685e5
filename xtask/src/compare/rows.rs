//! The table of what is compared, and the bar for each row. Later work adds its rows here.

use super::bulk::Way;
use super::crossing::Job as Middle;
use super::http::Asking;
use super::lossy::{Beside, Fault, Lossy};
use super::pair::{Job, Joint, Pair};

/// What a row counts, and with it which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Nanoseconds per element (for one-core ring and pool rows: for the pair of in and out).
    Ns,
    /// Million packets per second.
    Mpps,
    /// Gigabits of payload per second.
    Gbps,
    /// Megabits of payload per second.
    Mbps,
    /// Thousand requests per second.
    Krps,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::Mpps => "Mpps",
            Unit::Gbps => "Gb/s",
            Unit::Mbps => "Mb/s",
            Unit::Krps => "K/s",
        }
    }

    /// How many times as fast as the peer we are.
    pub(super) fn ratio(self, ours: f64, peer: f64) -> f64 {
        match self {
            Unit::Ns => peer / ours,
            Unit::Mpps | Unit::Gbps | Unit::Mbps | Unit::Krps => ours / peer,
        }
    }
}

/// What runs on DPDK's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// Our C program in xtask/peer, one core.
    OneCore,
    /// The same, on what `linerate bench input ROW` wrote. `once`: it takes minutes to load that,
    /// so its figure of the first round stands for all.
    OneCoreInput { once: bool },
    /// Our C program in xtask/peer, two cores that must be near.
    TwoCores,
    /// dpdk-testpmd over two net_null ports.
    Null { mode: &'static str },
    /// dpdk-testpmd that generates into one net_null port, in bursts of 64.
    TxOnly,
    /// smoltcp in xtask/peer-smoltcp, one core.
    Smoltcp,
    /// Another of our own rows: what one half of us does, the other half keeps up with.
    Own { row: &'static str },
    /// dpdk-testpmd over two net_ring loops with 256 frames in each.
    Ring { mode: &'static str },
    /// dpdk-l2fwd over two net_pcap ports; the frame's size includes 4 bytes of FCS.
    Pcap { frame_bytes: usize },
    /// dpdk-l3fwd over two net_pcap ports, on what `linerate bench input ROW` wrote; our C program
    /// where DPDK comes without its examples.
    L3fwd { lookup: &'static str },
    /// dpdk-testpmd on one end of a veth pair.
    Veth { driver: Driver, tx: bool },
    /// The kernel's own forwarding between two veth pairs, as router or as firewall.
    Linux(Middle),
    /// The same, of one TCP connection between two hosts. `plain`: without offloads anywhere.
    LinuxTcp { plain: bool },
    /// Linux to Linux over a veth pair; ours is to Linux over a TAP.
    LinuxBulk(Way),
    /// Another sender over a link like ours.
    Lossy(Lossy),
    /// nginx, asked as we are.
    Nginx(Asking),
    /// Open vSwitch's connection tracking, on what `linerate bench input ROW` wrote; `nat`: with
    /// sources translated as ours translates them.
    Conntrack { nat: bool },
    /// Two guests joined by us; the peer are the same ones without checksums and segmentation.
    Guests,
    /// Two processes on two cores that must be near, ours and in turns DPDK's.
    Pair(Pair),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    AfPacket,
    AfXdp,
}

/// One comparison. Ours is `linerate bench micro NAME`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    /// The least ratio that passes; rows without one are shown only.
    pub(super) target: Option<f64>,
    pub(super) peer: Peer,
}

const fn one_core(name: &'static str, target: Option<f64>) -> Row {
    Row {
        name,
        unit: Unit::Ns,
        target,
        peer: Peer::OneCore,
    }
}

const fn smoltcp(name: &'static str, target: f64) -> Row {
    Row {
        name,
        unit: Unit::Ns,
        target: Some(target),
        peer: Peer::Smoltcp,
    }
}

const fn on_input(name: &'static str, target: Option<f64>) -> Row {
    Row {
        name,
        unit: Unit::Ns,
        target,
        peer: Peer::OneCoreInput { once: false },
    }
}

const fn on_input_once(name: &'static str, target: Option<f64>) -> Row {
    Row {
        name,
        unit: Unit::Ns,
        target,
        peer: Peer::OneCoreInput { once: true },
    }
}

const fn two_cores(name: &'static str, target: Option<f64>) -> Row {
    Row {
        name,
        unit: Unit::Ns,
        target,
        peer: Peer::TwoCores,
    }
}

const fn forward(name: &'static str, target: f64, peer: Peer) -> Row {
    Row {
        name,
        unit: Unit::Mpps,
        target: Some(target),
        peer,
    }
}

const fn tcp(name: &'static str, target: f64, plain: bool) -> Row {
    Row {
        name,
        unit: Unit::Gbps,
        target: Some(target),
        peer: Peer::LinuxTcp { plain },
    }
}

const fn bulk(name: &'static str, way: Way) -> Row {
    Row {
        name,
        unit: Unit::Gbps,
        target: Some(0.8),
        peer: Peer::LinuxBulk(way),
    }
}

/// A long thin link, on which 0.95 is where the noise of losses ends.
const fn lossy(name: &'static str, fault: Fault, beside: Beside) -> Row {
    Row {
        name,
        unit: Unit::Mbps,
        target: Some(0.95),
        peer: Peer::Lossy(Lossy { fault, beside }),
    }
}

/// Against another row of ours.
const fn own(name: &'static str, unit: Unit, target: f64, row: &'static str) -> Row {
    Row {
        name,
        unit,
        target: Some(target),
        peer: Peer::Own { row },
    }
}

const fn http(name: &'static str, target: f64, kept: bool, own: bool) -> Row {
    Row {
        name,
        unit: Unit::Krps,
        target: Some(target),
        peer: Peer::Nginx(Asking { kept, own }),
    }
}

/// From one process to the other, in frames of so many bytes on a wire.
const fn one_way(name: &'static str, target: f64, joint: Joint, wire_bytes: usize) -> Row {
    pair(name, target, Job::OneWay, joint, wire_bytes)
}

const fn pair(name: &'static str, target: f64, job: Job, joint: Joint, wire_bytes: usize) -> Row {
    Row {
        name,
        unit: Unit::Mpps,
        target: Some(target),
        peer: Peer::Pair(Pair {
            job,
            frame_bytes: wire_bytes - 4,
            ours: joint,
            peer: joint,
        }),
    }
}

/// A round trip of 60 bytes, against DPDK's over memif.
const fn round_trip(name: &'static str, target: f64, ours: Joint) -> Row {
    Row {
        name,
        unit: Unit::Ns,
        target: Some(target),
        peer: Peer::Pair(Pair {
            job: Job::RoundTrip,
            frame_bytes: 60,
            ours,
            peer: Joint::Memif,
        }),
    }
}

const fn veth(name: &'static str, driver: Driver, tx: bool) -> Row {
    Row {
        name,
        unit: Unit::Mpps,
        target: Some(1.1),
        peer: Peer::Veth { driver, tx },
    }
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    one_core("ring.spsc.1core.single",  None),
    one_core("ring.spsc.1core.bulk8",   None),
    one_core("ring.spsc.1core.bulk32",  Some(1.2)),
    one_core("ring.spsc.1core.bulk256", None),
    two_cores("ring.spsc.2core.single",  None),
    two_cores("ring.spsc.2core.bulk8",   None),
    two_cores("ring.spsc.2core.bulk32",  Some(2.0)),
    two_cores("ring.spsc.2core.bulk256", None),
    one_core("ring.mpmc.1core.single",  None),
    one_core("ring.mpmc.1core.bulk8",   None),
    one_core("ring.mpmc.1core.bulk32",  Some(1.2)),
    one_core("ring.mpmc.1core.bulk256", None),
    two_cores("ring.mpmc.2core.single",  None),
    two_cores("ring.mpmc.2core.bulk8",   None),
    two_cores("ring.mpmc.2core.bulk32",  Some(1.2)),
    two_cores("ring.mpmc.2core.bulk256", None),
    one_core("pool.cache.get_put1",     None),
    one_core("pool.cache.get_put32",    Some(1.5)),
    one_core("pool.beyond.get_put32",   None),
    forward("fwd.null.io.64",      1.3, Peer::Null { mode: "io" }),
    forward("fwd.ring.mac.64",     1.3, Peer::Ring { mode: "mac" }),
    forward("fwd.pcap.l2fwd.64",   1.3, Peer::Pcap { frame_bytes: 64 }),
    forward("fwd.pcap.l2fwd.1518", 1.1, Peer::Pcap { frame_bytes: 1518 }),
    forward("pktgen.tx.fixed.null", 1.5, Peer::TxOnly),
    forward("pktgen.tx.fixed.ring", 1.5, Peer::OneCore),
    forward("pktgen.tx.varied",     1.2, Peer::TxOnly),
    forward("pktgen.rx.checked",    1.0, Peer::Own { row: "pktgen.tx.varied" }),
    forward("l3fwd.lpm.1k", 1.3, Peer::L3fwd { lookup: "lpm" }),
    forward("l3fwd.lpm.1m", 1.3, Peer::OneCoreInput { once: false }),
    forward("l3fwd.em.1k",  1.5, Peer::L3fwd { lookup: "em" }),
    forward("l3fwd.em.4m",  1.3, Peer::OneCoreInput { once: false }),
    forward("gateway.fw.1k", 4.0, Peer::Conntrack { nat: false }),
    forward("gateway.fw.1m", 4.0, Peer::Conntrack { nat: false }),
    forward("gateway.nat44.1k", 6.0, Peer::Conntrack { nat: true }),
    forward("gateway.nat44.1m", 6.0, Peer::Conntrack { nat: true }),
    forward("router.veth.64", 1.0, Peer::Linux(Middle::Route)),
    forward("gateway.veth.est", 1.1, Peer::Linux(Middle::Established)),
    forward("gateway.veth.new", 5.0, Peer::Linux(Middle::New)),
    tcp("router.veth.tcp",       0.7, false),
    tcp("router.veth.tcp.plain", 1.0, true),
    one_core("parse.burst64",           Some(1.5)),
    one_core("parse.checksum.1500",     None),
    one_core("parse.crc32c.1500",       None),
    one_core("rss.toeplitz.12",         Some(1.0)),
    one_core("rss.toeplitz.36",         Some(1.0)),
    one_core("rss.softrss.12",          Some(10.0)),
    one_core("rss.softrss.36",          Some(10.0)),
    one_core("rss.inverse",             Some(20.0)),
    one_core("steer.connect",           Some(10.0)),
    own("steer.talk.64",                Unit::Gbps, 1.0, "steer.talk.64.hardware"),
    own("steer.talk.1448",              Unit::Gbps, 1.0, "steer.talk.1448.hardware"),
    own("epc.attach",                   Unit::Ns, 1.15, "epc.attach.hash"),
    one_core("exact.lookup16.1k",       Some(1.5)),
    one_core("exact.lookup16.4m",       Some(1.5)),
    one_core("exact.miss16.1k",         None),
    one_core("exact.miss16.4m",         None),
    one_core("exact.lookup64.1k",       None),
    one_core("exact.lookup64.4m",       None),
    one_core("exact.insert16",          Some(1.2)),
    one_core("exact.insert16.single",   None),
    one_core("exact.delete16",          None),
    on_input("lpm4.lookup.1m.prefix",   Some(1.3)),
    on_input("lpm4.lookup.1m.host",     Some(1.3)),
    on_input("lpm4.lookup.1m.zipf",     Some(1.3)),
    on_input_once("lpm4.update.1m",     Some(50.0)),
    on_input("lpm6.lookup.160k",        Some(1.3)),
    on_input("lpm6.lookup.160k.host",   None),
    on_input("lpm6.lookup.160k.zipf",   None),
    on_input("lpm6.update.160k",        None),
    on_input("acl.classify.100",        Some(1.5)),
    on_input("acl.classify.1k",         Some(1.5)),
    on_input("acl.classify.10k",        Some(1.5)),
    on_input("acl.classify.1k.fw",      None),
    on_input("acl.classify.10k.fw",     None),
    on_input("acl.update.10k",          Some(100.0)),
    one_core("flow.touch.1k",           None),
    one_core("flow.touch.1m",           None),
    one_core("wheel.rearm.1m",          None),
    one_core("wheel.arm_fire.100k",     None),
    one_core("meter.srtcm.4k",          None),
    one_core("meter.trtcm.4k",          None),
    one_core("meter.rfc4115.4k",        None),
    one_core("meter.srtcm.1m",          None),
    one_core("reassembly.2",            Some(1.3)),
    one_core("reassembly.2.reversed",   Some(1.3)),
    one_core("reassembly.2.interleaved", None),
    one_core("reassembly.8",            Some(1.3)),
    one_core("reassembly.8.reversed",   Some(1.3)),
    one_core("reassembly.8.interleaved", None),
    smoltcp("tcp.rr.1",             1.5),
    smoltcp("tcp.rr.10k",           20.0),
    smoltcp("tcp.bulk.1448",        2.0),
    bulk("tcp.bulk.tap.tx",         Way::Out),
    bulk("tcp.bulk.tap.rx",         Way::In),
    lossy("tcp.lossy.0",            Fault::Nothing,    Beside::Linux),
    lossy("tcp.lossy.01",           Fault::Thousandth, Beside::Linux),
    lossy("tcp.lossy.1",            Fault::Hundredth,  Beside::Linux),
    lossy("tcp.lossy.reorder",      Fault::Reordered,  Beside::Linux),
    lossy("tcp.lossy.0.rack",       Fault::Nothing,    Beside::WithoutRack),
    lossy("tcp.lossy.01.rack",      Fault::Thousandth, Beside::WithoutRack),
    lossy("tcp.lossy.1.rack",       Fault::Hundredth,  Beside::WithoutRack),
    lossy("tcp.lossy.reorder.rack", Fault::Reordered,  Beside::WithoutRack),
    own("tcp.flood.good",           Unit::Krps, 0.7, "tcp.flood.calm"),
    http("http.rr.veth",            1.5, true,  false),
    http("http.rr.veth.own",        3.0, true,  true),
    http("http.conn.veth",          1.5, false, false),
    http("http.conn.veth.own",      3.0, false, true),
    veth("veth.af_packet.rx.64", Driver::AfPacket, false),
    veth("veth.af_packet.tx.64", Driver::AfPacket, true),
    veth("veth.af_xdp.rx.64",    Driver::AfXdp,    false),
    veth("veth.af_xdp.tx.64",    Driver::AfXdp,    true),
    one_way("memif.oneway.64",    1.3, Joint::Memif, 64),
    one_way("memif.oneway.1518",  1.3, Joint::Memif, 1518),
    pair("memif.echo.64",         1.3, Job::Echo,  Joint::Memif, 64),
    pair("memif.mixed.64",        1.0, Job::Mixed, Joint::Memif, 64),
    one_way("memif.zero_copy.64", 1.1, Joint::MemifZeroCopy, 64),
    one_way("vhost.oneway.64",    1.3, Joint::Vhost, 64),
    one_way("vhost.oneway.1518",  1.3, Joint::VhostBest, 1518),
    Row { target: None, ..one_way("vhost.copied.1518", 0.0, Joint::Vhost, 1518) },
    pair("vhost.echo.64",         1.3, Job::Echo,  Joint::Vhost, 64),
    round_trip("shm.rtt.64",      2.0, Joint::Shm),
    Row { name: "vhost.guest.tcp", unit: Unit::Gbps, target: Some(2.0), peer: Peer::Guests },
];

/// What DPDK 26.11 did where it was measured (2 vCPU Zen 5, veth, 64 bytes), in Mpps: used only
/// where the DPDK at hand cannot attach its af_xdp driver, and labelled so.
pub(super) fn published(row: &Row) -> Option<f64> {
    match row.peer {
        Peer::Veth {
            driver: Driver::AfXdp,
            tx,
        } => Some(if tx { 0.94 } else { 3.28 }),
        _ => None,
    }
}

pub(super) const PUBLISHED_BY: &str = "DPDK 26.11 (published figure, another machine)";

/// Whether `--only` asks for `name`: every name without it, else those that begin with one of the
/// prefixes.
pub(super) fn selected(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|prefix| name.starts_with(prefix.as_str()))
}

#[cfg(test)]
mod tests {
    use super::{ROWS, Unit, selected};

    #[test]
    fn names_are_unique_and_selected_by_prefix() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
        let only = ["ring.spsc".to_owned(), "veth".to_owned()];
        assert_eq!(
            ROWS.iter().filter(|row| selected(row.name, &only)).count(),
            12
        );
        assert!(ROWS.iter().all(|row| selected(row.name, &[])));
    }

    #[test]
    fn above_one_means_that_we_are_faster() {
        assert_eq!(Unit::Ns.ratio(1.0, 2.0), 2.0);
        assert_eq!(Unit::Mpps.ratio(2.0, 1.0), 2.0);
    }
}
