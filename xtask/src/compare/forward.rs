//! The peers of the forwarding rows: DPDK's own applications, their rates read over telemetry.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::hugepages::Hugepages;
use super::machine::Cpus;
use super::peer::{self, Dpdk};
use super::rows::{Driver, Peer, Row};
use super::sample::Sample;
use super::testpmd::{self, App, Counter};
use super::veth::{self, Veth};
use crate::error::TaskError;
use crate::process;

/// Frames in each ring loop (in bursts of 32) and in each pcap file.
const RING_BURSTS: usize = 8;
const PCAP_FRAMES: u16 = 1024;

/// Everything that a forwarding peer needs besides its row.
pub(super) struct Setting<'a> {
    pub(super) dpdk: &'a Dpdk,
    pub(super) cpus: &'a Cpus,
    pub(super) pages: &'a Hugepages,
    pub(super) veth: Option<&'a Veth>,
    /// What `linerate bench input` wrote for the row.
    pub(super) input: Option<&'a Path>,
    pub(super) seconds: f64,
}

impl Setting<'_> {
    /// Starts the row's application, measures, ends it.
    pub(super) fn run(&self, row: &Row) -> Result<Sample, TaskError> {
        match row.peer {
            Peer::Null { mode } => {
                let vdevs = [0, 1].map(|port| format!("net_null{port},size=64"));
                self.testpmd(&vdevs, mode, "", Counter::Sent)
            }
            Peer::TxOnly => {
                // 60 bytes in memory, as ours. Its bursts are 32 by default; 64 are as fast or
                // faster.
                let vdevs = ["net_null0,size=60".to_owned()];
                let more = ["--burst=64", "--txpkts=60"].map(String::from);
                self.testpmd_with(&vdevs, "txonly", &more, "", Counter::Sent)
            }
            Peer::Ring { mode } => {
                let vdevs = [0, 1].map(|port| format!("net_ring{port}"));
                let typed = format!("start tx_first {RING_BURSTS}\n");
                self.testpmd(&vdevs, mode, &typed, Counter::Sent)
            }
            Peer::Pcap { frame_bytes } => self.pcap(frame_bytes),
            Peer::Veth { driver, tx } => {
                let vdev = match driver {
                    Driver::AfPacket => format!("net_af_packet0,iface={}", veth::PORT),
                    Driver::AfXdp => format!("net_af_xdp0,iface={}", veth::PORT),
                };
                let (mode, counter) = if tx {
                    ("txonly", Counter::Sent)
                } else {
                    ("rxonly", Counter::Received)
                };
                self.testpmd(&[vdev], mode, "", counter)
            }
            Peer::L3fwd { lookup } => self.l3fwd(lookup),
            Peer::OneCore
            | Peer::OneCoreInput { .. }
            | Peer::TwoCores
            | Peer::Own { .. }
            | Peer::Smoltcp
            | Peer::Linux(_)
            | Peer::LinuxTcp { .. }
            | Peer::LinuxBulk(_)
            | Peer::Lossy(_)
            | Peer::Nginx(_)
            | Peer::Guests
            | Peer::Conntrack { .. }
            | Peer::Pair(_) => {
                unreachable!("peer::micro, linerate, pair, conntrack and the kernel run these")
            }
        }
    }

    fn testpmd(
        &self,
        vdevs: &[String],
        mode: &str,
        typed: &str,
        counter: Counter,
    ) -> Result<Sample, TaskError> {
        self.testpmd_with(vdevs, mode, &[], typed, counter)
    }

    fn testpmd_with(
        &self,
        vdevs: &[String],
        mode: &str,
        more: &[String],
        typed: &str,
        counter: Counter,
    ) -> Result<Sample, TaskError> {
        let mut arguments = vec!["--nb-cores=1".to_owned(), format!("--forward-mode={mode}")];
        arguments.extend_from_slice(more);
        // As fast as with the default of 155456, but up in half a second.
        arguments.push("--total-num-mbufs=16384".into());
        if !typed.is_empty() {
            arguments.push("--interactive".into());
        }
        self.application(
            &self.dpdk.testpmd()?,
            &self.main_and_worker(),
            vdevs,
            &arguments,
            typed,
            counter,
        )
        .map(|mut sample| {
            sample.peer_name += &format!(" testpmd {mode}");
            sample
        })
    }

    /// Both ports of l2fwd on one core. Where DPDK comes without its examples, testpmd's mac mode
    /// does the same job (and a little faster).
    fn pcap(&self, frame_bytes: usize) -> Result<Sample, TaskError> {
        let file = write_pcap(frame_bytes)?;
        let vdevs =
            [0, 1].map(|port| format!("net_pcap{port},rx_pcap={},infinite_rx=1", file.display()));
        let Some(l2fwd) = self.dpdk.l2fwd()? else {
            let mut sample = self.testpmd(&vdevs, "mac", "", Counter::Sent)?;
            sample.peer_name += " (no l2fwd installed)";
            return Ok(sample);
        };
        let lcores = format!("0@{}", self.cpus.worker);
        let arguments = ["-p", "3", "-q", "2", "-T", "0"].map(String::from);
        self.application(&l2fwd, &lcores, &vdevs, &arguments, "", Counter::Sent)
            .map(|mut sample| {
                sample.peer_name += " l2fwd";
                sample
            })
    }

    /// Both ports of DPDK's l3fwd on one core, each playing its capture.
    fn l3fwd(&self, lookup: &str) -> Result<Sample, TaskError> {
        let program = self.dpdk.l3fwd()?.expect("the caller has found it");
        let input = self.input.expect("written for these rows").display();
        let vdevs =
            [0, 1].map(|port| format!("net_pcap{port},rx_pcap={input}.{port}.pcap,infinite_rx=1"));
        let lcores = format!("0@{}", self.cpus.worker);
        let arguments = [
            "-p",
            "3",
            "-P",
            "--config=(0,0,0),(1,0,0)",
            "--parse-ptype",
            "--relax-rx-offload",
            &format!("--lookup={lookup}"),
            &format!("--rule_ipv4={input}"),
            &format!("--rule_ipv6={input}.v6"),
        ]
        .map(String::from);
        self.application(&program, &lcores, &vdevs, &arguments, "", Counter::Sent)
            .map(|mut sample| {
                sample.peer_name += &format!(" l3fwd {lookup}");
                sample
            })
    }

    fn main_and_worker(&self) -> String {
        format!(
            "0@{},1@{}",
            self.cpus.other.unwrap_or(self.cpus.worker),
            self.cpus.worker
        )
    }

    fn application(
        &self,
        program: &Path,
        lcores: &str,
        vdevs: &[String],
        arguments: &[String],
        typed: &str,
        counter: Counter,
    ) -> Result<Sample, TaskError> {
        let mut command = match self.veth {
            Some(veth) => veth.inside(program),
            None => Command::new(program),
        };
        if let Some(path) = self.dpdk.library_path() {
            command.env("LD_LIBRARY_PATH", path);
        }
        let prefix = peer::file_prefix();
        command.args(peer::eal(lcores, self.pages, &prefix, true));
        command.args(vdevs.iter().map(|vdev| format!("--vdev={vdev}")));
        command.arg("--").args(arguments);
        let app = App::start(command, &prefix, vdevs.len(), typed)?;
        // Only now: its start must not compete with the feeder for the CPU.
        let _far_end = self.veth.map(Veth::far_end).transpose()?;
        let rate = match (counter, self.veth) {
            // What the sink saw is the same judge for both sides.
            (Counter::Sent, Some(veth)) => testpmd::rate(|| veth.sunk(), self.seconds),
            _ => testpmd::rate(|| app.count(counter), self.seconds),
        };
        app.stop()?;
        Ok(Sample {
            value: rate?,
            pages: match self.pages {
                Hugepages::Mounted(_) => "2 MiB".into(),
                Hugepages::Absent(_) => "4 KiB".into(),
            },
            peer_name: format!("DPDK {}", self.dpdk.version),
            detail: Default::default(),
            note: None,
        })
    }
}

/// A classic pcap of [`PCAP_FRAMES`] UDP frames that differ in their ports; the FCS is not in it.
fn write_pcap(frame_bytes: usize) -> Result<PathBuf, TaskError> {
    let path = process::target_dir().join(format!("compare/frames-{frame_bytes}.pcap"));
    let mut file = Vec::new();
    // pcap-savefile(5): magic, version 2.4, zone, sigfigs, snap length, Ethernet
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for number in 0..PCAP_FRAMES {
        let frame = udp_frame(frame_bytes - 4, number);
        let length = frame.len() as u32;
        for word in [u32::from(number), 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    let mut output = std::fs::File::create(&path).map_err(TaskError::file(&path))?;
    output.write_all(&file).map_err(TaskError::file(&path))?;
    Ok(path)
}

/// 198.18.0.1 to 198.18.0.2 (RFC 2544 appendix C.2.2), UDP without a checksum.
fn udp_frame(bytes: usize, number: u16) -> Vec<u8> {
    let ip_bytes = (bytes - 14) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    let mut ip = vec![0x45, 0];
    ip.extend(ip_bytes.to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2]);
    let sum: u32 = ip
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(ip);
    frame.extend((1024 + number).to_be_bytes());
    frame.extend(2000u16.to_be_bytes());
    frame.extend((ip_bytes - 20).to_be_bytes());
    frame.resize(bytes, 0);
    frame
}

#[cfg(test)]
mod tests {
    use super::udp_frame;

    #[test]
    fn frames_have_the_length_and_a_sound_ip_header() {
        for bytes in [60, 1514] {
            let frame = udp_frame(bytes, 1023);
            assert_eq!(frame.len(), bytes);
            let words = frame[14..34]
                .chunks(2)
                .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
            let sum: u32 = words.sum();
            assert_eq!(
                (sum & 0xffff) + (sum >> 16),
                0xffff,
                "RFC 1071: a sound header sums to all ones"
            );
        }
    }
}
