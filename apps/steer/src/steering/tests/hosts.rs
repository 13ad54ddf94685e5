//! A host for tests: connections that count what comes.

use std::collections::HashMap;

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::Egress;
use linerate_testkit::frame::{V4, V6, ethernet, summed};
use linerate_wire::tcp::{self, flag};
use linerate_wire::{FlowKey, parse};

use crate::steering::map::Segment;
use crate::steering::note::{MESSAGE_BYTES, read_key, write_key};
use crate::steering::plan::Member;
use crate::steering::{Host, Steering};

/// A connection: how often it has moved, and the sequence numbers that have come.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Connection {
    pub(super) moves: u16,
    pub(super) came: Vec<u32>,
}

#[derive(Default)]
pub(super) struct TestHost {
    pub(super) connections: HashMap<FlowKey, Connection>,
    /// TCP packets of no connection: a stack would send resets.
    pub(super) strays: Vec<FlowKey>,
    /// What ICMP errors were about.
    pub(super) errors: Vec<FlowKey>,
    pub(super) refused: Vec<FlowKey>,
    /// Other packets.
    pub(super) others: u64,
    /// Only tests of floods do not accept.
    pub(super) deaf: bool,
}

impl TestHost {
    fn came(&mut self, packet: &Packet) {
        let data = packet.data();
        let Ok(headers) = parse(data) else {
            return self.others += 1;
        };
        if let Ok(Some(quoted)) = headers.quoted(data) {
            let key = quoted.flow_key(data).unwrap().reversed();
            return self.errors.push(key);
        }
        if headers.protocol != Some(linerate_wire::protocol::TCP) {
            return self.others += 1;
        }
        let key = headers.flow_key(data).unwrap();
        // A fragment is whole here, and of TCP; so is its header.
        let segment = Segment::read(&data[headers.l4.unwrap()..headers.end]).unwrap();
        let is_syn = segment.flags & (flag::SYN | flag::ACK) == flag::SYN;
        if is_syn && !self.deaf {
            self.connections.entry(key).or_default();
        }
        match self.connections.get_mut(&key) {
            Some(connection) => connection.came.push(segment.end),
            None => self.strays.push(key),
        }
    }

    /// A connection goes to another lcore, with what it knows.
    pub(super) fn give(
        &mut self,
        key: &FlowKey,
        to: Member,
        now_ns: u64,
        steering: &mut Steering,
        out: &mut Egress,
    ) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        if !steering.give(0, key, to, now_ns) {
            return;
        }
        let mut bytes = [0; MESSAGE_BYTES];
        let len = write_key(key, &mut bytes);
        let mut parcel = bytes[..len].to_vec();
        parcel.extend((connection.moves.wrapping_add(1)).to_be_bytes());
        connection
            .came
            .iter()
            .for_each(|came| parcel.extend(came.to_be_bytes()));
        let packet = out.cache.copy_of(&parcel).unwrap();
        out.made(1);
        steering.send_parcel(to, len as u16, packet, out);
        self.connections.remove(key);
    }
}

impl Host for TestHost {
    fn receive(&mut self, burst: &mut Burst, _: &mut Steering, out: &mut Egress) {
        for packet in burst.drain() {
            self.came(&packet);
            out.consume_one(packet);
        }
    }

    fn has(&mut self, key: &FlowKey) -> Option<(u16, u16)> {
        let connection = self.connections.get(key)?;
        Some((0, connection.moves))
    }

    fn refused(&mut self, key: &FlowKey, _: &mut Egress) {
        self.refused.push(*key);
    }

    fn parcel(
        &mut self,
        _: Member,
        kind: u16,
        packet: Packet,
        steering: &mut Steering,
        out: &mut Egress,
    ) {
        let (key, rest) = packet.data().split_at(kind.into());
        let key = read_key(key).unwrap();
        let (moves, came) = rest.split_at(2);
        let moves = u16::from_be_bytes(moves.try_into().unwrap());
        let came = came
            .chunks(4)
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()));
        let came = came.collect();
        self.connections.insert(key, Connection { moves, came });
        out.consume_one(packet);
        let now_ns = steering.clock.ns(steering.clock.now());
        steering.keep(0, &key, moves, now_ns, out);
    }
}

/// A TCP frame with this 4-tuple, and `len` bytes.
pub(super) fn frame(key: &FlowKey, flags: u8, (seq, ack): (u32, u32), len: usize) -> Vec<u8> {
    let (src_port, dst_port) = match key {
        FlowKey::V4(key) => (key.src_port(), key.dst_port()),
        FlowKey::V6(key) => (key.src_port(), key.dst_port()),
    };
    let mut segment = tcp::header(src_port, dst_port, seq, ack, flags).to_vec();
    segment.resize(segment.len() + len, 0x5a);
    ip(key, 6, |pseudo| summed(pseudo, 6, segment.clone(), 16))
}

/// An IP frame with these addresses.
pub(super) fn ip(key: &FlowKey, protocol: u8, payload: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    match key {
        FlowKey::V4(key) => {
            let header = V4::new(&key.src().to_string(), &key.dst().to_string(), protocol);
            let packet = header.packet(&payload(&header.pseudo()));
            ethernet([2; 6], [4; 6], 0x0800, &packet)
        }
        FlowKey::V6(key) => {
            let header = V6::new(&key.src().to_string(), &key.dst().to_string(), protocol);
            let packet = header.packet(&payload(&header.pseudo()));
            ethernet([2; 6], [4; 6], 0x86dd, &packet)
        }
    }
}
