//! A stand-in for FRR's zebra: the stream of `dplane_fpm_nl`, and the routing table that reads it.
//!
//! On connecting it sends next-hop objects, then a route for each prefix, each by one of the
//! objects. Ours comes over a real connection from a thread of its own.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linerate_tables::lpm::Prefix4;
use linerate_wire::fpm::{self, header};
use linerate_wire::rtnetlink::build::{Builder, CREATE, REPLACE, REQUEST};
use linerate_wire::rtnetlink::{attribute, family, kind};
use rustix::process::geteuid;

use super::router;
use linerate_appliance::error::Error;
use linerate_routing::fpm::Fpm;
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::settings::Settings;
use linerate_routing::rib::{self, Rib};

/// `RT_TABLE_MAIN`, and the number of the first interface's host interface as the stream has it;
/// the other's is the next.
const TABLE: u8 = 254;
const HOST_INTERFACE: u32 = 11;
const BGP: u8 = 186;
/// Time between two parts of a slow stream.
const APART: Duration = Duration::from_millis(10);

/// The address of next hop `number`: even ones are on 10.0.0.0/9, odd ones on 10.128.0.0/9.
pub(super) fn gateway(number: u32) -> [u8; 4] {
    let [_, _, high, low] = number.to_be_bytes();
    [10, high | (low & 1) << 7, low, 2]
}

/// Two interfaces, on which the next hops are.
pub(super) fn settings() -> Settings {
    router::settings([[10, 0, 0, 1], [10, 128, 0, 1]], 9)
}

/// The bytes of a stream.
#[derive(Default)]
pub(super) struct Stream(pub(super) Vec<u8>);

impl Stream {
    /// A whole table by that many next hops.
    pub(super) fn of(routes: &[(Prefix4, u32)], next_hops: u32) -> Self {
        let mut table = Self::default();
        (0..next_hops).for_each(|number| table.next_hop(number));
        let routes = routes.iter();
        routes.for_each(|&(prefix, number)| table.route(prefix, number));
        table
    }

    fn frame(&mut self, message: &[u8]) {
        let header: [u8; fpm::HEADER_LEN] =
            header(message.len()).expect("messages of a hundred bytes");
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(message);
    }

    /// Next hop `number` is an object of its own.
    fn next_hop(&mut self, number: u32) {
        let message = Builder::new(kind::NEW_NEXTHOP, REQUEST | CREATE | REPLACE)
            .fixed(&[family::INET, 0, BGP, 0, 0, 0, 0, 0])
            .u32(attribute::nexthop::ID, number + 1)
            .address(attribute::nexthop::GATEWAY, gateway(number).into())
            .u32(attribute::nexthop::OIF, HOST_INTERFACE + (number & 1));
        self.frame(&message.finish(0));
    }

    /// The route to a prefix, from now on by that next hop.
    pub(super) fn route(&mut self, prefix: Prefix4, number: u32) {
        let first = prefix.first().to_be_bytes();
        let message = Builder::new(kind::NEW_ROUTE, REQUEST | CREATE | REPLACE)
            .fixed(&[family::INET, prefix.len(), 0, 0, TABLE, BGP, 0, 1])
            .fixed(&[0; 4])
            .address(attribute::route::DST, first.into())
            .u32(attribute::route::PRIORITY, 20)
            .u32(attribute::route::NH_ID, number + 1);
        self.frame(&message.finish(0));
    }
}

/// A routing table with both interfaces, and its FPM listener, which wakes the calling thread.
pub(super) fn stand(settings: &Settings) -> Result<(Rib, Fpm), Error> {
    let mut rib = Rib::new(&rib::Config::default())?;
    let loopback = "127.0.0.1:0".parse().expect("an address");
    let control = thread::current();
    let own = vec![geteuid().as_raw()];
    let graceful = Duration::from_secs(60);
    let mut fpm = Fpm::listen(loopback, own, graceful, move || control.unpark())?;
    fpm.feed.set_tables([(TABLE.into(), 0)]);
    for (number, interface) in (0..).zip(&settings.interfaces) {
        let id = InterfaceId(number);
        rib.set_interface(id, Some(interface));
        rib.interface_state(id, true);
        rib.addresses(id, &interface.addresses);
        fpm.feed
            .set_interface(&mut rib, HOST_INTERFACE + u32::from(number), Some(id));
    }
    Ok((rib, fpm))
}

/// A thread with a connection to the router.
pub(super) struct Zebra {
    /// Messages to send; `None` at the end.
    wanted: Option<Sender<Vec<Vec<u8>>>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Zebra {
    pub(super) fn connect(fpm: &Fpm) -> Self {
        let address = fpm.address();
        let (wanted, says) = channel::<Vec<Vec<u8>>>();
        let speak = move || {
            let mut socket = TcpStream::connect(address)?;
            for parts in says {
                let began = Instant::now();
                for (number, part) in (0..).zip(parts) {
                    let due = began + APART * number;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    socket.write_all(&part)?;
                }
            }
            Ok(())
        };
        Self {
            wanted: Some(wanted),
            thread: Some(thread::spawn(speak)),
        }
    }

    /// Sends the parts, one every 10 ms, from now on.
    ///
    /// # Errors
    /// The connection has broken.
    pub(super) fn say(&self, parts: Vec<Vec<u8>>) -> Result<(), Error> {
        let said = self.wanted.as_ref().map(|wanted| wanted.send(parts));
        match said {
            Some(Ok(())) => Ok(()),
            _ => Err(Error::Usage {
                problem: "the connection to itself broke".into(),
                fix: "see that 127.0.0.1 is up".into(),
            }),
        }
    }
}

impl Drop for Zebra {
    fn drop(&mut self) {
        drop(self.wanted.take());
        if let Some(thread) = self.thread.take() {
            // The stream has ended, and its reader is gone.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_next_hop_is_on_the_network_of_its_interface_and_has_an_address_of_its_own() {
        let settings = settings();
        let mut all = std::collections::HashSet::new();
        for number in 0..1000 {
            let address = gateway(number).into();
            assert!(all.insert(address));
            let on = &settings.interfaces[number as usize & 1].addresses[0];
            assert!(on.network().contains(address), "{address}");
        }
    }
}
