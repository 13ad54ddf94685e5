//! An application of one's own on a page: a service that says how long it has run, and hangs up.
//! `cargo run -p linerate-steer --example daytime -- tap:t0`, and on the kernel's end of that TAP
//! `ip addr add 192.0.2.2/24 dev t0; nc 192.0.2.1 13`.

use std::error::Error;

use linerate_core::env::Clock;
use linerate_core::packet::{Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_core::port::PortConfig;
use linerate_core::run::{Egress, Inlet, TxPath, Worker};
use linerate_drivers::Drivers;
use linerate_stack::host::InterfaceConfig;
use linerate_stack::socket::{Event, Io, Listen, Source, Stack, StackConfig};
use linerate_steer::app::{self, App, StackStage};
use linerate_wire::MacAddr;

/// Says the time to each who connects.
struct Daytime;

impl App for Daytime {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), app::Error> {
        app::listen(io, Listen::on(13)).map(|_| ())
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            let Source::Listener(listener) = event.source else {
                continue;
            };
            while let Some((id, peer)) = io.accept(listener) {
                let text = format!("{peer}, it is {} s\n", io.now_ns() / 1_000_000_000);
                // A new connection has room for a line; one that has ended needs none.
                let _ = io.write(id, text.as_bytes());
                io.close(id);
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let spec = std::env::args()
        .nth(1)
        .ok_or("name a port, such as tap:t0")?;
    let large = PoolConfig {
        class: SlotClass::Large,
        ..PoolConfig::new("large", 256)
    };
    let pools = Pools::new(vec![
        Pool::new(&PoolConfig::new("packets", 16_384))?,
        Pool::new(&large)?,
    ]);
    let mut port = Drivers::new().open(&spec)?;
    let mut queues = port.start(&PortConfig::default(), &pools)?;
    let clock = Clock::calibrate();
    let now_ns = clock.ns(clock.now());
    let mut out = Egress::new(PoolCache::new(pools.as_slice()));
    let mut stack = Stack::new(&StackConfig::default(), now_ns, &mut out)?;
    let lan = InterfaceConfig {
        mac: MacAddr::local(1),
        addresses: vec![("192.0.2.1".parse()?, 24)],
        tx_offloads: port.info().tx_offloads,
        ..InterfaceConfig::default()
    };
    stack.host().add_interface(lan, now_ns, &mut out)?;
    Daytime.start(&mut stack.io(now_ns, &mut out))?;
    let stage = StackStage::new(stack, Daytime, clock);
    let (mut worker, _handle) = Worker::new("io0", stage, out, clock)?;
    worker
        .egress
        .set_outlet(0, Some(TxPath::Queue(queues.tx.remove(0))));
    worker.add_inlet(Inlet::queue(0, 0, queues.rx.remove(0)));
    worker.run(false);
    Ok(())
}
