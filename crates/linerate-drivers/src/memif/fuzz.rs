//! Any bytes as what a peer says and writes.

use super::exposed::Exposed;
use super::layout::Shape;
use super::message::{LEN, Message};
use super::negotiation::Told;
use super::receive::{RxRing, Slots};
use super::ring::{HEADER_LEN, Regions, Ring};
use super::transmit::TxRing;
use crate::peer::kick::new_eventfd;
use linerate_core::mem::{FileFrom, Untrusted};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{PortConfig, QueueStats};
use rustix::fs::MemfdFlags;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

const MEMORY: &str = "memory for a test";
/// Bytes of every region that is told here.
const REGION: usize = 16_384;

fn memory(bytes: &[u8]) -> OwnedFd {
    let file = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).expect(MEMORY);
    rustix::fs::ftruncate(&file, REGION as u64).expect(MEMORY);
    rustix::io::pwrite(&file, bytes, 0).expect(MEMORY);
    file
}

/// Messages of a client, 128 bytes each, each with the descriptor that its kind needs: what a
/// server is told makes rings inside of regions, or is refused.
///
/// # Panics
/// Where that does not hold, or a message is not written as it was read.
pub(crate) fn messages(input: &[u8]) {
    let (mut told, mut files) = (Told::default(), 0);
    for bytes in input.chunks(LEN) {
        let Some(message) = Message::read(bytes) else {
            continue;
        };
        let again = Message::read(&message.write());
        // A name that fills its field has no room for the 0 that ends it when written.
        assert_eq!(again.map(|again| again.kind()), Some(message.kind()));
        assert!(message.files() <= 1);
        files += message.files();
        if files > 32 {
            return;
        }
        let sound = match message {
            Message::AddRegion { index, bytes } => {
                let file = memory(&[]);
                told.add_region(index, bytes, Some(file)).is_ok()
            }
            Message::AddRing(place) => {
                let file = new_eventfd().expect(MEMORY);
                told.add_ring(place, Some(file), (3, 3)).is_ok()
            }
            _ => true,
        };
        if !sound {
            return;
        }
    }
    let (regions, places) = told.into_parts();
    let regions = Arc::new(Regions(regions));
    for place in places {
        let (region, offset) = (place.region, place.offset);
        if let Ok(ring) = Ring::new(&regions, region, offset, place.log2_size) {
            let bytes = HEADER_LEN + 16 * usize::from(ring.size());
            assert!(offset as usize + bytes <= regions.0[usize::from(region)].len());
            assert!(ring.view().is_some());
        }
    }
}

/// A region of 16 KiB that holds these bytes, with a ring of eight descriptors at its start. The
/// first byte says whose the memory is, which way frames go, and whether a client's slots take the
/// place of buffers; the last bytes change the ring between bursts.
///
/// # Panics
/// Where a packet is longer than its slot, a slot is lost, or a burst does not end.
pub(crate) fn ring(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else {
        return;
    };
    let file = memory(&bytes[..bytes.len().min(REGION)]);
    let mapped = Untrusted::map("fuzz", file.as_fd(), 0, REGION, FileFrom::Peer).expect(MEMORY);
    let regions = Arc::new(Regions(vec![mapped]));
    let shape = Shape {
        to_server: 1,
        to_client: 0,
        log2_size: 3,
        buffer_bytes: 1024,
        has_buffers: true,
    };
    Ring::mark(&regions, 0);
    let ring = Ring::new(&regions, 0, 0, 3).expect("it was just set up");
    let ours = first & 1 == 0;
    let buffers = ours.then(|| shape.buffers(0));
    let trusts = ours && first & 4 != 0;
    let config = PoolConfig {
        exposed: trusts,
        ..PoolConfig::new("fuzz", 256)
    };
    let pools = Pools::new(vec![Pool::new(&config).expect(MEMORY)]);
    let config = PortConfig::default();
    let exposed = trusts.then(|| Exposed::of(&pools, 1024, &config).expect("it was made so"));
    let mut cache = PoolCache::new(pools.as_slice());
    let stats = QueueStats::default();
    let mut burst = Burst::new();
    if first & 2 == 0 {
        let slots = Slots {
            pools: pools.clone(),
            port: 0,
        };
        let mut rx = match &exposed {
            Some(exposed) => RxRing::of_slots(ring.clone(), exposed),
            None => RxRing::new(ring.clone(), buffers),
        };
        rx.lend_first(0);
        for _ in 0..16 {
            // What `new` wrote is the peer's to change.
            rewrite(&file, bytes);
            let received = rx.receive(&mut burst, &mut cache, &slots, &stats);
            assert!(
                burst.len() <= 8,
                "more frames than the ring has descriptors"
            );
            for packet in burst.iter() {
                assert!(packet.headroom() + packet.len() <= packet.slot_bytes());
                std::hint::black_box(packet.data().iter().fold(0_u8, |sum, byte| sum ^ byte));
            }
            cache.free(&mut burst);
            if received.fault.is_some() {
                break;
            }
        }
    } else {
        let mut tx = match &exposed {
            Some(exposed) => TxRing::of_slots(ring.clone(), exposed),
            None => TxRing::new(ring.clone(), buffers),
        };
        for len in [60, 1514, 61, 2000, 1024, 1025, 14, 600] {
            rewrite(&file, bytes);
            let _ = burst.push(cache.copy_of(&vec![0x5a; len]).expect("slots for a burst"));
            let offered = burst.len();
            let sent = tx.send(&mut burst, &mut cache, &stats);
            assert_eq!(sent.taken, offered - burst.len());
            if sent.fault.is_some() || tx.settle(&mut cache).is_err() {
                break;
            }
        }
        cache.free(&mut burst);
    }
    drop(cache);
    let pool = pools.primary().stats();
    assert_eq!(pool.free_shared, pool.slots, "a slot is lost");
}

/// The peer's bytes again, but for the cookie, which counts only at the start.
fn rewrite(file: &OwnedFd, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(REGION)];
    rustix::io::pwrite(file, bytes.get(4..).unwrap_or_default(), 4).expect(MEMORY);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_testkit::Random;

    /// A ring with frames in it, as an honest peer writes it.
    pub(super) fn honest(first: u8) -> Vec<u8> {
        let mut bytes = vec![first];
        bytes.resize(1 + REGION, 0);
        let put = |bytes: &mut Vec<u8>, at: usize, value: &[u8]| {
            bytes[1 + at..1 + at + value.len()].copy_from_slice(value);
        };
        put(&mut bytes, 6, &8_u16.to_ne_bytes());
        let tail = if first & 4 == 0 { first * 4 } else { 4 };
        put(&mut bytes, 64, &u16::from(tail).to_ne_bytes());
        for index in 0..8_usize {
            let at = HEADER_LEN + 16 * index;
            let more = u16::from(index == 3);
            put(&mut bytes, at, &more.to_ne_bytes());
            put(&mut bytes, at + 4, &(60 + 200 * index as u32).to_ne_bytes());
            put(
                &mut bytes,
                at + 8,
                &(1024 + 1536 * index as u32).to_ne_bytes(),
            );
        }
        bytes
    }

    #[test]
    fn changed_rings_stay_in_bounds() {
        let mut random = Random::new(14);
        for round in 0..2000 {
            let mut bytes = honest((round % 8) as u8);
            for _ in 0..random.below(8) {
                let at = match random.below(4) {
                    0 => random.below(bytes.len()),
                    _ => 1 + random.below(HEADER_LEN + 128),
                };
                let any = random.bits() as u8;
                bytes[at] = random.of(&[0, 1, 8, 0xff, any]);
            }
            ring(&bytes);
        }
    }

    #[test]
    fn changed_messages_make_no_ring_outside() {
        let mut random = Random::new(15);
        let shape = Shape {
            to_server: 2,
            to_client: 2,
            log2_size: 4,
            buffer_bytes: 256,
            has_buffers: true,
        };
        for _ in 0..2000 {
            let mut bytes = Message::AddRegion {
                index: 0,
                bytes: REGION as u64,
            }
            .write()
            .to_vec();
            for place in shape.places() {
                bytes.extend(Message::AddRing(place).write());
            }
            for _ in 0..random.below(4) {
                let at = LEN * random.below(5) + random.below(16);
                let any = random.bits() as u8;
                bytes[at] = random.of(&[0, 1, 0xff, any]);
            }
            messages(&bytes);
        }
    }

    /// Writes the first inputs of the corpora where they belong.
    #[test]
    #[ignore = "writes fuzz/corpus/memif_*"]
    fn first_inputs() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
        for (first, name) in [
            (0, "client_rx"),
            (1, "server_rx"),
            (2, "client_tx"),
            (3, "server_tx"),
            (4, "slots_rx"),
            (6, "slots_tx"),
        ] {
            let bytes = &honest(first)[..1 + HEADER_LEN + 128 + 64];
            std::fs::write(format!("{corpus}/memif_ring/{name}"), bytes).unwrap();
        }
        let shape = Shape {
            to_server: 2,
            to_client: 2,
            log2_size: 4,
            buffer_bytes: 256,
            has_buffers: true,
        };
        let region = Message::AddRegion {
            index: 0,
            bytes: REGION as u64,
        };
        let mut bytes = region.write().to_vec();
        for place in shape.places() {
            bytes.extend(Message::AddRing(place).write());
        }
        std::fs::write(format!("{corpus}/memif_messages/rings"), bytes).unwrap();
    }
}
