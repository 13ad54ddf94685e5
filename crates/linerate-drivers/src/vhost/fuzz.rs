//! Any bytes as what a front end sends. Built for fuzzing alone.

use super::control::{Shared, Side};
use super::message::Channel;
use super::session::{Backend, Offer};
use crate::peer::kick;
use crate::peer::socket;
use crate::virtqueue::queue::{Receiver, Sender};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{QueueStats, RxQueue, TxQueue};
use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

const REGION: u64 = 64 << 10;

fn region() -> OwnedFd {
    let file = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&file, REGION).expect("its length");
    file
}

/// Parts, each of a byte that says how long it is and one that says which descriptors come with it:
/// none, memory, an eventfd, or both. Workers poll after each.
pub(crate) fn run(input: &[u8]) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let (ours, theirs) = pair.expect("a pair of sockets");
    let mut channel = Channel::new(ours);
    let shared = Arc::new(Shared::new(2, Arc::default(), Arc::default()).expect("descriptors"));
    let offer = Offer {
        pairs: 2,
        offloads: true,
        large: true,
    };
    let mut side = Backend::new("fuzz", offer, shared.clone());
    if side.connected(&mut channel).is_err() {
        return;
    }
    let pools = Pools::new(vec![
        Pool::new(&PoolConfig::new("fuzz", 256)).expect("a pool"),
    ]);
    let mut cache = PoolCache::new(pools.as_slice());
    let stats = QueueStats::new();
    let (queue, wakeups) = (shared.queues[1].clone(), shared.wakeups[0].clone());
    let mut receiver = Receiver::new(queue, wakeups, 0, (&pools, false), stats.clone());
    let queues = vec![shared.queues[0].clone(), shared.queues[2].clone()];
    let mut sender = Sender::new(queues, 1, 9018, (&pools, false), stats);
    let (memory, bell) = (region(), kick::new_eventfd().expect("an eventfd"));
    let mut rest = input;
    while let Some((&[len, files], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(after.len().min(len.into()));
        rest = after;
        let both = [memory.as_fd(), bell.as_fd()];
        let with: &[_] = match files % 4 {
            0 => &[],
            1 => &both[..1],
            2 => &both[1..],
            _ => &both,
        };
        if bytes.is_empty() || socket::send(theirs.as_fd(), bytes, with).is_err() {
            continue;
        }
        loop {
            match channel.receive() {
                Ok(None) => break,
                Ok(Some(message)) => {
                    if side.message(&mut channel, message).is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
        let mut answers = [0; 4096];
        let _ = socket::receive(theirs.as_fd(), &mut answers, 0);
        let mut burst = Burst::new();
        receiver.rx_burst(&mut burst, &mut cache);
        cache.free(&mut burst);
        cache.fill(pools.primary(), &mut burst, 2);
        sender.tx_burst(&mut burst, &mut cache);
        cache.free(&mut burst);
    }
}
