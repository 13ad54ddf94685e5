//! A worker that ends: its flows end with it, and nobody waits for it.

use super::*;

#[test]
fn a_worker_that_ends_takes_its_flows_along_and_no_others() {
    let mut plant = Plant::new(Handing::ToEu, 3, nat());
    let mut flows = Vec::new();
    for asks in hosts(protocol::UDP) {
        let sent = plant.exchange(INSIDE, &[datagram(&asks, INSIDE).bytes()]);
        let sent = the_one(sent, OUTSIDE);
        flows.push((asks, ends(&sent.frame), sent.worker));
    }
    let last = plant.workers.len() - 1;
    let (its, others): (Vec<_>, Vec<_>) = flows.into_iter().partition(|flow| flow.2 == last);
    assert!(!its.is_empty() && !others.is_empty());
    drop(plant.workers.pop());
    let go_on = |plant: &mut Plant| {
        for (asks, outside, worker) in &others {
            let sent = plant.exchange(INSIDE, &[datagram(asks, INSIDE).bytes()]);
            assert_eq!(the_one(sent, OUTSIDE).worker, *worker);
            let back = datagram(&outside.reversed(), OUTSIDE);
            let back = the_one(plant.exchange(OUTSIDE, &[back.bytes()]), INSIDE);
            assert_eq!(ends(&back.frame), asks.reversed());
        }
    };
    go_on(&mut plant);
    // What is for the other is dropped, as soon as nothing more fits before it.
    let (_, outside, _) = its[0];
    let frames = vec![datagram(&outside.reversed(), OUTSIDE).bytes(); 64];
    for _ in 0..65 {
        assert!(plant.exchange(OUTSIDE, &frames).is_empty());
    }
    let drops = plant.handles[usize::from(OUTSIDE)].stats().drops();
    let lost: u64 = drops.iter().map(|(_, count)| count).sum();
    assert!(lost >= 64, "{drops:?}");
    go_on(&mut plant);
}
