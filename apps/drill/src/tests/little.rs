//! A TCP of one connection, for tests of the runner: no options but MSS, no congestion control, a
//! fixed timeout that doubles.

use crate::call::{Call, Handle, OptionValue, Out, Reply};
use crate::endpoint::Endpoint;
use crate::packet::{Layer4, Segment, TcpOption, build, flag, read};
use crate::script::IpSpec;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const RTO_NS: u64 = 200_000_000;
const ISN: u32 = 0xffff_fff0; // so that numbers wrap
const LISTENER: Handle = 30;
const CONNECTION: Handle = 40;

#[derive(Default)]
pub(super) struct Little {
    out: VecDeque<Vec<u8>>,
    ends: Option<(SocketAddr, SocketAddr)>,
    established: bool,
    accepted: bool,
    una: u32,
    next: u32,
    rcv_next: u32,
    unacked: Vec<u8>,
    received: Vec<u8>,
    fin_received: bool,
    error: i32,
    timer_ns: Option<u64>,
    rto_ns: u64,
    /// At most so many bytes are taken from one write.
    pub(super) room: usize,
    /// Times to live of the segments to come, in turn.
    pub(super) ttls: VecDeque<u8>,
    /// What it sends, and what is read, has other bytes than what was written and received.
    pub(super) garbles: bool,
    /// Each segment has a wrong checksum.
    pub(super) corrupts: bool,
    pub(super) settings: Vec<(String, String)>,
}

impl Little {
    pub(super) fn new() -> Self {
        Self {
            room: usize::MAX,
            rto_ns: RTO_NS,
            ..Self::default()
        }
    }

    fn send(&mut self, flags: u16, seq: u32, payload: &[u8]) {
        let Some((local, remote)) = self.ends else {
            return;
        };
        let syn = flags & flag::SYN != 0;
        let segment = Segment {
            src_port: local.port(),
            dst_port: remote.port(),
            flags,
            seq,
            ack: if flags & flag::ACK != 0 {
                self.rcv_next
            } else {
                0
            },
            window: 65_535,
            urgent: 0,
            options: if syn {
                vec![TcpOption::Mss(1460)]
            } else {
                Vec::new()
            },
            payload: self.garbled(payload),
        };
        let ip = IpSpec {
            ttl: self.ttls.pop_front(),
            ..IpSpec::default()
        };
        let mut packet = build::segment(&ip, local, remote, &segment);
        if self.corrupts {
            packet[36] ^= 1;
        }
        self.out.push_back(packet);
    }

    fn garbled(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if self.garbles
            && let Some(last) = bytes.last_mut()
        {
            *last ^= 1;
        }
        bytes
    }

    fn transmit(&mut self, now_ns: u64) {
        if self.established {
            let data = self.unacked.clone();
            self.send(flag::PSH | flag::ACK, self.una, &data);
        } else {
            self.send(flag::SYN, ISN, &[]);
        }
        self.timer_ns = Some(now_ns + self.rto_ns);
    }

    fn segment(&mut self, now_ns: u64, segment: &Segment) {
        if segment.flags & flag::RST != 0 {
            self.error = libc::ECONNRESET;
            return;
        }
        if segment.flags & flag::SYN != 0 {
            self.rcv_next = segment.seq.wrapping_add(1);
            (self.una, self.next) = (ISN.wrapping_add(1), ISN.wrapping_add(1));
            if segment.flags & flag::ACK != 0 {
                (self.established, self.timer_ns) = (true, None);
                self.send(flag::ACK, self.next, &[]);
            } else {
                self.send(flag::SYN | flag::ACK, ISN, &[]);
            }
            return;
        }
        self.established = true;
        let acked = segment.ack.wrapping_sub(self.una) as usize;
        if acked > 0 && acked <= self.unacked.len() {
            self.unacked.drain(..acked);
            self.una = segment.ack;
            self.rto_ns = RTO_NS;
            self.timer_ns = (!self.unacked.is_empty()).then_some(now_ns + RTO_NS);
        }
        let fin = segment.flags & flag::FIN != 0;
        if segment.payload.is_empty() && !fin {
            return;
        }
        if segment.seq == self.rcv_next {
            self.received.extend(&segment.payload);
            self.fin_received |= fin;
            let len = segment.payload.len() as u32 + u32::from(fin);
            self.rcv_next = self.rcv_next.wrapping_add(len);
        }
        self.send(flag::ACK, self.next, &[]);
    }

    fn write(&mut self, now_ns: u64, data: &[u8]) -> Reply {
        let data = &data[..data.len().min(self.room.saturating_sub(self.unacked.len()))];
        if data.is_empty() {
            return Reply::error(libc::EAGAIN);
        }
        let seq = self.next;
        for (index, chunk) in data.chunks(1000).enumerate() {
            let last = (index + 1) * 1000 >= data.len();
            let push = if last { flag::PSH } else { 0 };
            self.send(
                flag::ACK | push,
                seq.wrapping_add(index as u32 * 1000),
                chunk,
            );
        }
        self.unacked.extend(data);
        self.next = seq.wrapping_add(data.len() as u32);
        self.timer_ns = Some(now_ns + self.rto_ns);
        Reply::ok(data.len() as i64)
    }

    fn readable(&self) -> bool {
        !self.received.is_empty() || self.fin_received || self.error != 0
    }
}

impl Endpoint for Little {
    fn address(&self, _: bool) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, 1).into()
    }

    fn configure(&mut self, name: &str, value: &str) -> Result<(), String> {
        if name == "tcp_unknown" {
            return Err("it has no such setting".into());
        }
        self.settings.push((name.into(), value.into()));
        Ok(())
    }

    fn inject(&mut self, now_ns: u64, packet: &[u8]) {
        let seen = read(packet, false).unwrap();
        let (remote, local) = seen.ends();
        self.ends.get_or_insert((local, remote));
        if let Layer4::Tcp(segment) = &seen.layer4 {
            self.segment(now_ns, segment);
        }
    }

    fn poll_output(&mut self, _: u64) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        self.timer_ns
    }

    fn advance(&mut self, now_ns: u64) {
        if self.timer_ns.is_some_and(|timer| timer <= now_ns) {
            self.rto_ns *= 2;
            self.transmit(now_ns);
        }
    }

    fn call(&mut self, now_ns: u64, call: &Call) -> Reply {
        match call {
            Call::Socket { .. } => Reply::ok(i64::from(LISTENER)),
            Call::Accept(LISTENER) if self.established && !self.accepted => {
                self.accepted = true;
                Reply::ok(i64::from(CONNECTION))
            }
            Call::Accept(LISTENER) => Reply::error(libc::EAGAIN),
            Call::Connect(LISTENER, Some(remote)) => {
                let local = SocketAddr::new(self.address(false), 5555);
                self.ends = Some((local, *remote));
                self.transmit(now_ns);
                Reply::error(libc::EINPROGRESS)
            }
            Call::Read(_, bytes, _) => {
                if self.error != 0 {
                    return Reply::error(std::mem::take(&mut self.error));
                }
                if self.received.is_empty() && !self.fin_received {
                    return Reply::error(libc::EAGAIN);
                }
                let bytes = (*bytes).min(self.received.len());
                let data: Vec<u8> = self.received.drain(..bytes).collect();
                Reply::with(bytes as i64, Out::Bytes(self.garbled(&data)))
            }
            Call::Write(_, data, _, _) => self.write(now_ns, data),
            Call::Poll(handles, _) => {
                let readable = if self.readable() { libc::POLLIN } else { 0 };
                let writable = if self.established { libc::POLLOUT } else { 0 };
                let ready = (readable | writable) as u32;
                let events: Vec<_> = handles
                    .iter()
                    .map(|(_, wanted)| (0, wanted & ready))
                    .collect();
                let count = events.iter().filter(|(_, events)| *events != 0).count();
                Reply::with(count as i64, Out::Events(events))
            }
            Call::GetOption(..) => Reply::with(0, Out::Value(OptionValue::Int(self.error))),
            Call::Info(_) => {
                let unacked = self.unacked.len().div_ceil(1000) as u64;
                Reply::with(0, Out::Info(vec![("tcpi_unacked", unacked)]))
            }
            Call::Bind(..) | Call::Listen(..) | Call::SetOption(..) | Call::SetNonblocking(..) => {
                Reply::ok(0)
            }
            Call::Close(CONNECTION) => {
                self.send(flag::FIN | flag::ACK, self.next, &[]);
                Reply::ok(0)
            }
            _ => Reply::error(libc::EBADF),
        }
    }
}
