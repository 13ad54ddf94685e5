//! What a segment costs, by hand: `cargo test --release -p linerate-stack receive -- --ignored
//! --nocapture`. Nothing is asserted of the times.

use std::time::Instant;

use super::*;

/// The least time of a few rounds over 1024 packets, which `work` takes in bursts of 32; getting
/// and freeing their slots is part of it.
fn least_ns(fixture: &mut Fixture, mut work: impl FnMut(&mut Fixture, Vec<Packet>)) -> f64 {
    let rounds = (0..200).map(|_| {
        let mut elapsed = 0;
        for _ in 0..32 {
            let packets = (0..32)
                .map(|_| fixture.cache.copy_of(&[7; 1514]).unwrap())
                .collect();
            let begin = Instant::now();
            work(fixture, packets);
            elapsed += begin.elapsed().as_nanos();
        }
        elapsed as f64 / 1024.0
    });
    rounds.fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "measures"]
fn segments_in_order_and_in_pairs_the_wrong_way_round() {
    for (len, swap) in [(64, 0), (1448, 0), (64, 1), (1448, 1)] {
        let mut fixture = Fixture::new(0);
        let mut out = vec![0; 1448];
        let mut seq = 0_u32;
        let ns = least_ns(&mut fixture, |fixture, packets| {
            let span = Span { start: 66, len };
            fixture.limits.window_end = seq.wrapping_add(1 << 20);
            for (index, packet) in (0_u32..).zip(packets) {
                fixture.give(packet, span, seq.wrapping_add((index ^ swap) * len));
                let out = &mut out[..len as usize];
                while fixture
                    .queue
                    .read(&mut fixture.pieces, &mut fixture.cache, out)
                    > 0
                {}
            }
            seq = seq.wrapping_add(32 * len);
        });
        let order = ["in order", "in pairs"][swap as usize];
        println!("{len:4} bytes, {order}: {ns:5.1} ns to insert and read");
    }
}
