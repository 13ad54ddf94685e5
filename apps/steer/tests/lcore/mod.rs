//! An lcore without its thread: a stage behind a port of the machine, which a test lets work.

use std::net::IpAddr;
use std::time::Duration;

use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_core::port::{Port, PortConfig, RxQueue};
use linerate_core::run::{Egress, Stage, TxPath};
use linerate_drivers::Drivers;
use linerate_stack::host::InterfaceConfig;
use linerate_wire::MacAddr;

/// How long it sleeps where there is nothing to do.
const PAUSE: Duration = Duration::from_micros(100);

/// An lcore with one port, whose number is 0.
pub(crate) struct Lcore<S> {
    pub(crate) stage: S,
    pub(crate) port: Box<dyn Port>,
    pub(crate) out: Egress,
    rx: Box<dyn RxQueue>,
    clock: Clock,
}

impl<S: Stage> Lcore<S> {
    /// Behind a port with slots of both sizes, which is started; `make` makes the stage.
    pub(crate) fn new(spec: &str, make: impl FnOnce(&dyn Port, Clock, &mut Egress) -> S) -> Self {
        let small = Pool::new(&PoolConfig::new("rx", 16_384)).unwrap();
        let large = PoolConfig {
            class: SlotClass::Large,
            ..PoolConfig::new("large", 256)
        };
        let pools = Pools::new(vec![small, Pool::new(&large).unwrap()]);
        let mut port = Drivers::new().open(spec).unwrap();
        let mut queues = port.start(&PortConfig::default(), &pools).unwrap();
        let mut out = Egress::new(PoolCache::new(pools.as_slice()));
        out.set_outlet(0, Some(TxPath::Queue(queues.tx.remove(0))));
        let clock = Clock::monotonic("a test");
        Self {
            stage: make(&*port, clock, &mut out),
            port,
            out,
            rx: queues.rx.remove(0),
            clock,
        }
    }

    /// A burst and a turn.
    pub(crate) fn round(&mut self) {
        let mut burst = Burst::new();
        burst.now = self.clock.now();
        let came = self.rx.rx_burst(&mut burst, &mut self.out.cache);
        if came > 0 {
            self.stage.run(&mut burst, &mut (), &mut self.out);
        }
        let now = self.clock.now();
        let next = self.stage.turn(now, &mut (), &mut self.out);
        self.out.flush();
        // What a wire with delays keeps leaves when it is due, and slots that the kernel has done
        // with come back, whatever else is sent.
        self.out.reclaim();
        if came == 0 && next > now {
            std::thread::sleep(PAUSE);
        }
    }
}

/// An interface on the port.
pub(crate) fn interface(
    port: &dyn Port,
    mac: MacAddr,
    addresses: &[(IpAddr, u8)],
) -> InterfaceConfig {
    InterfaceConfig {
        mac,
        addresses: addresses.into(),
        tx_offloads: port.info().tx_offloads,
        ..InterfaceConfig::default()
    }
}
