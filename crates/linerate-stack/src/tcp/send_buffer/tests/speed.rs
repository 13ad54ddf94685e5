//! What each step costs, by hand: `cargo test --release -p linerate-stack send_buffer -- --ignored
//! --nocapture`. Nothing is asserted of the times.

use std::hint::black_box;
use std::time::Instant;

use super::*;

/// The least time of a few rounds of `work`, divided by `per`: others use the CPU, too.
fn least_ns(per: usize, mut work: impl FnMut()) -> f64 {
    let rounds = (0..15).map(|_| {
        let begin = Instant::now();
        work();
        begin.elapsed().as_nanos() as f64 / per as f64
    });
    rounds.fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "measures"]
fn a_question_on_each_of_many_connections() {
    for count in [100, 10_000, 100_000] {
        let mut chunks = Chunks::new(count).unwrap();
        let mut buffers: Vec<_> = (0..count).map(|_| SendBuffer::new()).collect();
        let question = pattern(0, 64);
        let mut out = [0; 64];
        let times = (200_000 / count).max(1);
        // All write, then all send, then all are acknowledged: as many chunks as connections.
        let ns = least_ns((times * count) as usize, || {
            for _ in 0..times {
                for buffer in &mut buffers {
                    buffer.write(&mut chunks, &question, LIMIT);
                }
                for buffer in &mut buffers {
                    black_box(buffer.copy_out(&chunks, 0, &mut out));
                }
                for buffer in &mut buffers {
                    buffer.discard(&mut chunks, 64);
                }
            }
        });
        println!("{CHUNK_BYTES} byte chunks, {count:6} connections: {ns:6.1} ns for 64 bytes");
    }
}

#[test]
#[ignore = "measures"]
fn a_flow_in_bulk() {
    for len in [1448, 65_160] {
        const FLIGHT: usize = 1 << 20;
        let mut chunks = Chunks::new(2000).unwrap();
        let mut buffer = SendBuffer::new();
        let data = pattern(0, len);
        let mut out = vec![0; len];
        while (buffer.len() as usize) < FLIGHT {
            buffer.write(&mut chunks, &data, 2 * FLIGHT as u32);
        }
        let ns = least_ns(100_000_000 / len, || {
            for _ in 0..100_000_000 / len {
                buffer.write(&mut chunks, &data, 2 * FLIGHT as u32);
                let at = buffer.len() - len as u32;
                black_box(buffer.copy_out(&chunks, at, &mut out));
                buffer.discard(&mut chunks, len as u32);
            }
        });
        let rate = len as f64 / ns;
        println!("{CHUNK_BYTES} byte chunks, {len:5} bytes: {ns:8.1} ns, {rate:.1} GB/s");
    }
}
