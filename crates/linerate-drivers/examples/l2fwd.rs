//! A forwarder between two ports: `cargo run --example l2fwd -p linerate-drivers -- PORT PORT`,
//! for instance `pcap:rx=in.pcap,tx=back.pcapng pcap:tx=out.pcapng`. README shows what follows.

use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::PortConfig;
use linerate_core::run::{Egress, Inlet, TxPath, Worker};
use linerate_drivers::Drivers;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Memory for packets; and what is done with each burst: it leaves by the other port.
    let pools = Pools::new(vec![Pool::new(&PoolConfig::new("packets", 16384))?]);
    let forward = |burst: &mut Burst, out: &mut Egress| out.send(1 - burst.port, burst);
    // One worker polls both ports, and sends through both.
    let egress = Egress::new(PoolCache::new(pools.as_slice()));
    let (mut worker, _) = Worker::new("l2fwd", forward, egress, Clock::calibrate())?;
    let (mut drivers, mut ports) = (Drivers::new(), Vec::new());
    for (index, spec) in (0..2).zip(std::env::args().skip(1)) {
        let mut port = drivers.open(&spec)?;
        let config = PortConfig {
            index,
            ..PortConfig::default()
        };
        let mut queues = port.start(&config, &pools)?;
        worker.add_inlet(Inlet::queue(index, 0, queues.rx.remove(0)));
        worker.set_outlet(index, Some(TxPath::Queue(queues.tx.remove(0))));
        ports.push(port);
    }
    drop(worker.run(true)); // until nothing more can come: a capture file ends
    ports.iter_mut().try_for_each(|port| port.stop())?;
    Ok(())
}
