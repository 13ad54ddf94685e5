//! The session's ports and streams as the user asked for them.

use linerate_wire::ethernet::MacAddr;

use super::streams::OpenStream;
use super::{PortAsked, Session};
use crate::stream::StreamSpec;

impl Session {
    /// Seed of everything random.
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

    /// The value of a port's key, as [`Session::set_port`] takes it; `None` where nothing was set.
    pub fn port_key(&self, port: u16, key: &str) -> Option<String> {
        self.ports.get(usize::from(port))?.asked.get(key)
    }

    /// The MAC addresses of a port's frames where their streams do not set any.
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
