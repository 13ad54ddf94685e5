//! Against a model of the kernel's buffer pool with a device that takes zero copy: there is none
//! here. The model is net/xdp/xsk_buff_pool.c and xsk_queue.h, as far as they decide about an
//! entry.

use super::*;
use linerate_core::packet::{Burst, Layout, Pool, PoolCache, PoolConfig};

const PAGE: u64 = 4096;

/// A registered pool as the kernel sees it.
struct Umem {
    chunk: u64,
    bytes: u64,
    unaligned: bool,
    /// By page: whether the next one follows it in the device's addresses.
    contiguous: Vec<bool>,
    /// Entries that were taken, and come back in no way.
    invalid: usize,
}

impl Umem {
    /// Pages as a machine without an IOMMU has them: some follow each other.
    fn new(pool: &Pool, is_contiguous: impl Fn(usize) -> bool) -> Self {
        let (_, bytes) = pool.data_span();
        let pages = bytes.div_ceil(PAGE as usize);
        Self {
            chunk: pool.slot_bytes() as u64,
            bytes: bytes as u64,
            unaligned: !is_aligned(pool.slot_bytes()),
            contiguous: (0..pages).map(is_contiguous).collect(),
            invalid: 0,
        }
    }

    /// `xp_desc_crosses_non_contig_pg`.
    fn crosses(&self, address: u64, len: u64) -> bool {
        let crosses = address % PAGE + len > PAGE;
        crosses && !self.contiguous[(address / PAGE) as usize]
    }

    /// `__xp_alloc`: the chunk of an entry of the fill ring.
    fn fill(&mut self, address: u64) -> Option<u64> {
        let sound = match self.unaligned {
            true => address + self.chunk <= self.bytes && !self.crosses(address, self.chunk),
            false => address < self.bytes,
        };
        self.invalid += usize::from(!sound);
        sound.then(|| match self.unaligned {
            true => address,
            false => address & !(self.chunk - 1),
        })
    }

    /// `xskq_cons_is_valid_desc`: whether an entry of the transmit ring is sent, and so completed.
    fn transmit(&mut self, address: u64, len: u64) -> bool {
        let sound = match self.unaligned {
            true => address + len <= self.bytes && !self.crosses(address, len),
            false => address / self.chunk == (address + len - 1) / self.chunk,
        };
        self.invalid += usize::from(!sound);
        sound
    }
}

fn pool(layout: Layout) -> Pool {
    let config = PoolConfig {
        layout,
        ..PoolConfig::new("model", 256)
    };
    Pool::new(&config).unwrap()
}

/// Gives every slot to the device, half of them each way: how many do not come back.
fn lost(pool: &Pool, umem: &mut Umem) -> usize {
    let mut cache = PoolCache::new(std::slice::from_ref(pool));
    let [mut rx, mut tx] = [Lent::new(pool.clone()), Lent::new(pool.clone())];
    let (mut back, mut given) = (Vec::new(), 0);
    for _ in 0..pool.slots() / 32 {
        let mut burst = Burst::new();
        given += cache.fill(pool, &mut burst, 32);
        for (number, mut packet) in burst.drain().enumerate() {
            packet.set_data(&[0; 1514]);
            let start = packet.headroom() as u64;
            if number % 2 == 0 {
                let address = rx.give(packet).unwrap();
                let chunk = umem.fill(address);
                back.extend(chunk.and_then(|chunk| rx.take_back(chunk + 256)));
            } else {
                let address = tx.give(packet).unwrap() + start;
                let sent = umem.transmit(address, 1514);
                back.extend(sent.then(|| tx.take_back(address)).flatten());
            }
        }
    }
    assert_eq!(rx.count() + tx.count(), umem.invalid);
    assert_eq!(back.len() + umem.invalid, given);
    assert!(given > 200, "{given}");
    let lost = umem.invalid;
    rx.reclaim();
    tx.reclaim();
    lost
}

#[test]
fn no_slot_is_lost_with_what_may_be_zero_copy() {
    let staggered = pool(Layout::Staggered);
    let aligned = pool(Layout::Aligned);
    let scattered = |_| false;
    let huge = |page: usize| page % 512 != 511;
    // What was bound before, where the driver takes unaligned chunks.
    let mut umem = Umem::new(&staggered, scattered);
    assert!(lost(&staggered, &mut umem) > 64, "the model finds nothing");
    for pool in [&staggered, &aligned] {
        for copy in [Choice::Auto, Choice::On, Choice::Off] {
            for native in [true, false] {
                let Some(flags) = flags(copy, native, pool.slot_bytes()) else {
                    assert!(copy == Choice::Off && !is_aligned(pool.slot_bytes()));
                    continue;
                };
                if flags.contains(SocketAddrXdpFlags::XDP_COPY) {
                    assert!(copy != Choice::Off);
                    continue;
                }
                for pages in [scattered, huge] {
                    assert_eq!(lost(pool, &mut Umem::new(pool, pages)), 0);
                }
            }
        }
    }
    // It is still available.
    let bytes = aligned.slot_bytes();
    assert_eq!(
        flags(Choice::Auto, true, bytes),
        Some(SocketAddrXdpFlags::empty())
    );
}

/// Slots of a device that has not stopped are not reused.
#[test]
fn slots_come_back_when_the_device_has_stopped_and_not_before() {
    let pool = pool(Layout::Aligned);
    let free = |pool: &Pool| pool.stats().free_shared;
    let lend = || {
        let mut lent = Lent::new(pool.clone());
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let mut burst = Burst::new();
        cache.fill(&pool, &mut burst, 64);
        burst.drain().for_each(|packet| drop(lent.give(packet)));
        vec![lent]
    };
    let all = free(&pool);
    // The work queue comes to it at the fourth look.
    let mut looks = 0;
    let stopped = || {
        looks += 1;
        assert!(
            free(&pool) <= all - 64,
            "a slot is free while the device has it"
        );
        Ok(looks == 4)
    };
    assert!(take_back(lend(), true, Duration::from_secs(60), stopped));
    assert_eq!((looks, free(&pool)), (4, all));
    // A copy is over when the call is.
    let asked = || panic!("the device need not be queried");
    assert!(take_back(lend(), false, Duration::ZERO, asked));
    assert_eq!(free(&pool), all);
    // Never, or unknown.
    for answer in [|| Ok(false), || Err(io::ErrorKind::PermissionDenied.into())] {
        let before = free(&pool);
        assert!(!take_back(lend(), true, Duration::from_millis(10), answer));
        assert!(free(&pool) <= before - 64);
    }
}
