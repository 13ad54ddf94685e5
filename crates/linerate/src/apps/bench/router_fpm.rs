//! A full table from FRR, as zebra would send it, until packets follow all of it.
//!
//! The stream is what `dplane_fpm_nl` sends after it has connected: the next-hop objects, then a route
//! for each of the prefixes that the `lpm4` rows work on. It comes over a real connection from another
//! thread, and a worker looks for every publication. Then changes, in batches.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::publish::Reader;
use linerate_tables::lpm::synth::{Spec, routes4};
use linerate_tables::lpm::{Fib4, Prefix4};
use linerate_wire::fpm::header;
use linerate_wire::rtnetlink::build::{Builder, CREATE, REPLACE, REQUEST};
use linerate_wire::rtnetlink::{attribute, family, kind};
use linerate_wire::{MacAddr, fpm};
use rustix::time::{ClockId, clock_gettime};

use super::{Row, Run, Sample};
use crate::apps::router::fpm::Fpm;
use crate::apps::router::model::{Cidr, InterfaceId};
use crate::apps::router::plane::settings::{Interface, Urpf};
use crate::apps::router::rib::{self, Progress, Rib};
use crate::error::Error;

pub(super) const ROWS: &[Row] = &[Row {
    name: "router.fpm.1m",
    about: "a million routes from an FPM stream until all are published; changes beside",
    run,
}];

const ROUTES: usize = 1_000_000;
const NEXT_HOPS: u32 = 1000;
/// Changes that are timed, and how many are published together.
const CHANGES: usize = 10_000;
const BATCH: usize = 100;
/// `RT_TABLE_MAIN`, and the number of the twin as the stream has it.
const TABLE: u8 = 254;
const TWIN: u32 = 11;
const BGP: u8 = 186;

/// The bytes of a stream.
#[derive(Default)]
struct Sent(Vec<u8>);

impl Sent {
    fn frame(&mut self, message: &[u8]) {
        let header: [u8; fpm::HEADER_LEN] =
            header(message.len()).expect("messages of a hundred bytes");
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(message);
    }

    /// Next hop `number` is an object of its own, 10.x.y.2.
    fn next_hop(&mut self, number: u32) {
        let [_, _, high, low] = number.to_be_bytes();
        let message = Builder::new(kind::NEW_NEXTHOP, REQUEST | CREATE | REPLACE)
            .fixed(&[family::INET, 0, BGP, 0, 0, 0, 0, 0])
            .u32(attribute::nexthop::ID, number + 1)
            .address(attribute::nexthop::GATEWAY, [10, high, low, 2].into())
            .u32(attribute::nexthop::OIF, TWIN);
        self.frame(&message.finish(0));
    }

    fn route(&mut self, prefix: Prefix4, number: u32) {
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

/// A routing table with one interface, and FRR's door to it.
fn stand() -> Result<(Rib, Fpm), Error> {
    let mut rib = Rib::new(&rib::Config::default())?;
    let wan = InterfaceId(0);
    let address = Cidr {
        address: [10, 0, 0, 1].into(),
        len: 8,
    };
    let interface = Interface {
        name: "wan".into(),
        port: 0,
        vlan: None,
        vrf: 0,
        mac: MacAddr::local(1),
        mtu: 1500,
        addresses: vec![address],
        twin: None,
        urpf: Urpf::Off,
        proxy: false,
        redirects: false,
        reassemble: false,
        acl_in: None,
        acl_out: None,
        policer: None,
        advertise: None,
    };
    rib.set_interface(wan, Some(&interface));
    rib.interface_state(wan, true);
    rib.addresses(wan, &interface.addresses);
    let loopback = "127.0.0.1:0".parse().expect("an address");
    let control = thread::current();
    let mut fpm = Fpm::listen(loopback, Duration::from_secs(60), move || control.unpark())?;
    fpm.feed.set_tables([(TABLE.into(), 0)]);
    fpm.feed.set_interface(&mut rib, TWIN, Some(wan));
    Ok((rib, fpm))
}

/// Control's turn: takes what has come, and publishes it. The worker looks after each publication.
fn turn(rib: &mut Rib, fpm: &mut Fpm, worker: &mut Reader<Fib4>, others: &mut impl FnMut()) {
    let mut news = Vec::new();
    let more = fpm.poll(rib, Instant::now(), &mut news);
    let progress = rib.commit();
    worker.read();
    others();
    if !more && progress == Progress::Done {
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// CPU time of this thread, which is control's: waiting costs nobody anything.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn run(row: &'static str, run: Run) -> Result<Sample, Error> {
    let spec = Spec {
        next_hops: NEXT_HOPS,
        ..Spec::new(ROUTES, 1)
    };
    let routes = routes4(&spec);
    let mut table = Sent::default();
    (0..NEXT_HOPS).for_each(|number| table.next_hop(number));
    routes
        .iter()
        .for_each(|&(prefix, number)| table.route(prefix, number));
    let stream_bytes = table.0.len();
    let changes: Vec<Vec<u8>> = routes
        .chunks(routes.len() / CHANGES)
        .take(CHANGES)
        .map(|chunk| {
            let mut sent = Sent::default();
            sent.route(chunk[0].0, (chunk[0].1 + 1) % NEXT_HOPS);
            sent.0
        })
        .collect();
    let batches: Vec<Vec<u8>> = changes.chunks(BATCH).map(<[Vec<u8>]>::concat).collect();
    let (first_frames, all) = (u64::from(NEXT_HOPS) + routes.len() as u64, routes.len());
    let timed = run.pinned(move |_| -> Result<_, Error> {
        let (mut rib, mut fpm) = stand()?;
        let (mut worker, mut fib6, mut hops) = rib.readers();
        let mut others = move || {
            fib6.read();
            hops.read();
        };
        while rib.commit() != Progress::Done {
            worker.read();
            others();
        }
        let memory_before = rib.counts().memory_bytes;
        let address = fpm.address();
        let (go, gone) = std::sync::mpsc::channel::<Vec<u8>>();
        // zebra. It ends when there is nothing more to send.
        let peer = thread::spawn(move || -> std::io::Result<()> {
            let mut socket = TcpStream::connect(address)?;
            for bytes in gone {
                socket.write_all(&bytes)?;
            }
            Ok(())
        });
        let broken = |_| Error::Usage {
            problem: "the connection to itself broke".into(),
            fix: "see that 127.0.0.1 is up".into(),
        };
        let began = Instant::now();
        go.send(table.0).map_err(broken)?;
        loop {
            turn(&mut rib, &mut fpm, &mut worker, &mut others);
            if fpm.counts.frames == first_frames && rib.commit() == Progress::Done {
                break;
            }
            worker.read();
        }
        let seconds = began.elapsed().as_secs_f64();
        // Packets follow the last as well as the first.
        let fib = worker.read();
        let followed = routes
            .iter()
            .filter(|(prefix, _)| fib.lookup(0, prefix.first()).is_some())
            .count();
        let counts = rib.counts();
        let began = cpu_seconds();
        for (sent, batch) in (1..).zip(batches) {
            go.send(batch).map_err(broken)?;
            let frames = first_frames + sent * BATCH as u64;
            while fpm.counts.frames < frames || rib.commit() != Progress::Done {
                turn(&mut rib, &mut fpm, &mut worker, &mut others);
            }
        }
        let change_us = (cpu_seconds() - began) * 1e6 / CHANGES as f64;
        drop(go);
        drop(fpm);
        // It has nothing more to say, and nobody to say it to.
        let _ = peer.join();
        Ok((seconds, followed, change_us, counts, memory_before))
    })?;
    let (seconds, followed, change_us, counts, memory_before) = timed?;
    Ok(Sample::new(row, seconds, "s", "")
        .with("routes", all)
        .with("followed", followed)
        .with("next_hops", NEXT_HOPS)
        .with("stream_bytes", stream_bytes)
        .with("change_us", change_us)
        .with("hops", counts.hops)
        .with("memory_bytes", counts.memory_bytes)
        .with("memory_before_bytes", memory_before))
}
