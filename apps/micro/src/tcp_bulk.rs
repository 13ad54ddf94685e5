//! One TCP connection that carries as much as it can, in segments of 1448 bytes.
//!
//! The client fills what there is room for, the server takes what has come where it lies. Neither
//! writes nor reads the bytes, but the stack does: it copies them once, into the frame, and sums
//! them at either end.

use linerate_stack::socket::SocketId;

use super::tcp::{Pair, ends, lost};
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;

pub(super) const ROWS: &[Row] = &[Row {
    name: "tcp.bulk.1448",
    about: "one TCP connection in one direction, a segment of 1448 bytes, client and server on one \
        core",
    run: bulk,
}];

/// Payload bytes of a full segment with time stamps on Ethernet.
const SEGMENT: f64 = 1448.0;
/// Bytes under way at most.
const UNDER_WAY: u32 = 128 << 10;

fn bulk(row: &'static str, run: Run) -> Result<Sample, Error> {
    let mut pair = Pair::new(1, |_| {}, |_| {})?;
    let pages = pair.pages;
    let (local, remote) = ends(0);
    let mut to_server = None;
    pair.client(|client, now_ns| {
        to_server = client.io(now_ns).connect(Some(local), remote).ok();
    });
    pair.server(|_, _| {});
    pair.client(|_, _| {});
    let listener = pair.listeners[0];
    let mut from_client = None;
    pair.server(|server, now_ns| from_client = server.io(now_ns).accept(listener));
    let (Some(to_server), Some((from_client, _))) = (to_server, from_client) else {
        return Err(lost("the connection was not opened"));
    };
    let now_ns = pair.now_ns();
    let _ = pair.client.io(now_ns).set_send_limit(to_server, UNDER_WAY);
    let (pair, ns, bytes, packets) = run.pinned(move |run| {
        let mut bytes = 0;
        let mut packets = 0;
        let mut turn = |pair: &mut Pair| {
            let (count, of_turn) = carry(pair, to_server, from_client);
            packets += of_turn;
            bytes += count;
            count
        };
        run.time_for(run.duration / 10, &mut || turn(&mut pair));
        pair.reset();
        (packets, bytes) = (0, 0);
        let mut turn = |pair: &mut Pair| {
            let (count, of_turn) = carry(pair, to_server, from_client);
            packets += of_turn;
            bytes += count;
            count
        };
        let ns = run.time_for(run.duration, &mut || turn(&mut pair));
        (pair, ns, bytes, packets)
    })?;
    if bytes == 0 {
        return Err(lost("nothing was carried"));
    }
    let segments = bytes as f64 / SEGMENT;
    Ok(Sample::new(row, ns * SEGMENT, "ns", pages)
        .with("gbps", 8.0 / ns)
        .with("client_cycles", pair.client_ticks as f64 / segments)
        .with("server_cycles", pair.server_ticks as f64 / segments)
        .with("packets_per_segment", packets as f64 / segments))
}

/// A turn of each: how many bytes the server has taken, and how many packets came.
fn carry(pair: &mut Pair, to_server: SocketId, from_client: SocketId) -> (u64, usize) {
    let mut packets = pair.client(|client, now_ns| {
        let mut io = client.io(now_ns);
        while io
            .write_rooms(to_server, usize::MAX, |room| room.len())
            .is_ok_and(|written| written > 0)
        {}
    });
    let mut bytes = 0;
    packets += pair.server(|server, now_ns| {
        let mut io = server.io(now_ns);
        while let Ok(Some((packet, span))) = io.take(from_client) {
            bytes += u64::from(span.len);
            io.give(packet);
        }
    });
    (bytes, packets)
}
