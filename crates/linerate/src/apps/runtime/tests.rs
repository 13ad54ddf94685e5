//! Shares that an app makes itself: rings between pipelines lose nothing, not even when all ends.
#![allow(clippy::unwrap_used)]

use super::*;
use linerate_core::packet::Burst;

/// Two workers and two null ports: what the first receives goes through the pipeline of the second,
/// which sends it.
#[test]
fn what_is_under_way_in_rings_between_pipelines_is_sent_before_all_ends() {
    const SECOND: u16 = 2;
    let ports = [
        (None, "null:".to_owned()),
        (None, "null:,rx=off".to_owned()),
    ];
    let rig = Rig::open(&ports, Clock::calibrate()).unwrap();
    let shares = vec![
        Share {
            polls: vec![(0, 0)],
            rings: vec![(SECOND, 1)],
            ..Share::default()
        },
        Share {
            polls: vec![(1, 0)],
            sends: vec![(1, 0)],
            background: true,
            ..Share::default()
        },
    ];
    let topology = linerate_core::env::Topology::machine().unwrap();
    let spec = linerate_core::env::PlanSpec {
        io: Some("0-1".into()),
        cpus: Some("0,0".into()),
        ..Default::default()
    };
    let plan = linerate_core::env::Plan::build(&spec, &topology, &[]).unwrap();
    let lcores: Vec<&Placement> = plan.role(linerate_core::env::Role::Io).collect();
    let options = Options {
        queues: 1,
        burst: 64,
        pool_slots: None,
        sleep: true,
        spin: false,
    };
    let running = rig
        .start_shares(shares, &lcores, &options, |worker, _| {
            let to = [SECOND, 1][worker];
            move |burst: &mut Burst, out: &mut Egress| out.send(to, burst)
        })
        .unwrap();
    let first = Sample::take(&running);
    assert_eq!(running.handles().count(), 2);
    // Until the second has seen packets; how many is the machine's business.
    while running.handles().nth(1).unwrap().stats().packets.read() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (last, errors) = running.stop();
    assert!(errors.is_empty(), "{errors:?}");
    let reading = last.since(&first);
    let dropped: u64 = reading
        .lcores
        .iter()
        .flat_map(|lcore| lcore.drops.values())
        .sum();
    let (received, sent) = (reading.ports[0].rx_packets, reading.ports[1].tx_packets);
    assert!(sent > 0);
    assert_eq!(received, sent + dropped);
}
