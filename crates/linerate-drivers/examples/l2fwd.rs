//! A forwarder between two ports: `cargo run --example l2fwd -p linerate-drivers -- PORT PORT`,
//! for instance `pcap:rx=in.pcap,tx=back.pcapng pcap:tx=out.pcapng`.

use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::PortConfig;
use linerate_core::run::{Egress, Inlet, Way, Worker};
use linerate_drivers::Drivers;
use linerate_wire::ethernet::{MacAddr, set_macs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let specs: Vec<String> = std::env::args().skip(1).collect();
    let [left, right] = &specs[..] else {
        return Err("give two ports, such as `af_packet:eth0 af_packet:eth1`".into());
    };

    // Memory for packets, and the two devices.
    let pools = Pools::new(vec![Pool::new(&PoolConfig::new("packets", 16384))?]);
    let mut drivers = Drivers::new();
    let mut ports = [drivers.open(left)?, drivers.open(right)?];

    // What happens to each burst: new addresses, and out of the other port.
    let forward = |burst: &mut Burst, out: &mut Egress| {
        let to = 1 - burst.port;
        let (dst, src) = (MacAddr::local(to as u8), MacAddr([2, 0, 0, 0, 1, to as u8]));
        for packet in burst.iter_mut() {
            let _too_short = !set_macs(packet.data_mut(), dst, src);
        }
        out.send(to, burst);
    };

    // One worker has all queues: it polls both ports and sends through both.
    let egress = Egress::new(PoolCache::new(pools.as_slice()));
    let (mut worker, _) = Worker::new("l2fwd", forward, egress, Clock::calibrate())?;
    for (index, port) in (0..).zip(&mut ports) {
        let config = PortConfig {
            index,
            ..PortConfig::default()
        };
        let mut queues = port.start(&config, &pools)?;
        worker.add_inlet(Inlet::queue(index, 0, queues.rx.remove(0)));
        worker.set_outlet(index, Some(Way::Queue(queues.tx.remove(0))));
    }

    // Until nothing more can come: an interface always may bring more, a capture file ends.
    drop(worker.run(true));
    for port in &mut ports {
        let (name, stats) = (port.info().name, port.stats());
        println!(
            "{name}: {} in, {} out, {} dropped",
            stats.rx_packets,
            stats.tx_packets,
            stats.dropped()
        );
        port.stop()?;
    }
    Ok(())
}
