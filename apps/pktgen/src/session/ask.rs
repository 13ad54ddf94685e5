//! What a session says of its ports and streams as they were asked for.

use linerate_wire::ethernet::MacAddr;

use super::streams::OpenStream;
use super::{PortAsked, Session};
use crate::stream::StreamSpec;

impl Session {
    /// What everything random begins with.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Names of the ports, by number.
    pub fn port_names(&self) -> Vec<String> {
        self.opened
            .ports
            .iter()
            .map(|open| open.name.clone())
            .collect()
    }

    /// The ports as they are asked for now, by number.
    pub fn ports_asked(&self) -> impl Iterator<Item = &PortAsked> {
        self.ports.iter().map(|port| &port.asked)
    }

    /// The value of a port's key, as [`Session::set_port`] takes it; none where nothing was asked.
    pub fn port_key(&self, port: u16, key: &str) -> Option<String> {
        self.ports.get(usize::from(port))?.asked.get(key)
    }

    /// The addresses that a port's frames have where their streams say nothing of them.
    pub fn macs_of(&self, port: u16) -> (MacAddr, MacAddr) {
        self.macs(port)
    }

    /// Each stream's number, port, and how it is written.
    pub fn streams(&self) -> Vec<(u16, u16, StreamSpec)> {
        let written = |stream: &OpenStream| (stream.id, stream.port, stream.spec.clone());
        let shown = self.streams.iter().filter(|stream| !stream.is_removed);
        shown.map(written).collect()
    }
}
