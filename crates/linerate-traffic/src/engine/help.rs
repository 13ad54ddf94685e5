//! Between a receive queue and the port's [`Responder`]: which frames it sees, and where its
//! answers go.
//!
//! A reply is written into the slot of the frame that it answers, and leaves through a ring to the
//! lcore that sends on the port, which takes it out with [`Replies`]. Events go to the session.
//! Both queues are bounded, and what does not fit is dropped and counted, so that a receiver never
//! waits.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Mailbox, SyncSender, sync_channel};

use linerate_core::packet::{Burst, Offload, Packet, PoolCache};
use linerate_core::port::TxQueue;
use linerate_core::ring::{Pop, Push, spsc};

use super::lcore::Waker;
use super::responder::{Event, Responder, ResponderStats};

/// Replies that may wait for the sender.
const REPLIES: usize = 256;
/// Events that may wait for the session.
const EVENTS: usize = 1024;

/// A receiver's half.
pub struct Helper {
    responder: Responder,
    replies: spsc::Producer<Packet>,
    /// Wakes the lcore that sends.
    waker: Waker,
    events: SyncSender<(u64, Event)>,
}

/// The sender's half: replies on their way to the port's transmit queue.
pub struct Replies(spsc::Consumer<Packet>);

impl Helper {
    /// Returns the receiver's half, the sender's, and the session's: events with their tick of
    /// receipt.
    pub fn new(responder: Responder, waker: Waker) -> (Self, Replies, Mailbox<(u64, Event)>) {
        let (replies, taker) = spsc::ring(REPLIES);
        let (events, mailbox) = sync_channel(EVENTS);
        let helper = Self {
            responder,
            replies,
            waker,
            events,
        };
        (helper, Replies(taker), mailbox)
    }

    /// A request for `to`, whose answer becomes an event here; see [`Responder::who_has`].
    pub fn who_has(&mut self, to: IpAddr) -> Option<Vec<u8>> {
        self.responder.who_has(to)
    }

    /// The responder's counters.
    pub fn stats(&self) -> Arc<ResponderStats> {
        self.responder.stats.clone()
    }

    /// Shows the responder the frames of the burst whose bits are set in `candidates`, received at
    /// tick `now`; those that it answers leave the burst.
    #[cold]
    pub(super) fn help(
        &mut self,
        burst: &mut Burst,
        mut candidates: u64,
        now: u64,
        cache: &mut PoolCache,
    ) {
        let stats = self.stats();
        let mut answered = 0u64;
        while candidates != 0 {
            let index = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            let packet = &mut burst.as_packets_mut()[index];
            match self.responder.handle(now, packet.data()) {
                None => {}
                Some(reply) if packet.set_data(reply) => {
                    // Of the received frame's metadata only the tag is valid for the reply.
                    let offload = &mut packet.meta_mut().offload;
                    offload.remove(Offload::CSUM_PARTIAL | Offload::CSUM_VALID | Offload::GSO);
                    answered |= 1 << index;
                }
                Some(_) => stats.dropped.add(1),
            }
            for event in self.responder.events.drain(..) {
                let is_full = self.events.try_send((now, event)).is_err();
                stats.dropped.add(is_full.into());
            }
        }
        if answered == 0 {
            return;
        }
        let mut replies = Burst::new();
        let mut bits = !answered;
        burst.retain(&mut replies, |_| {
            let stays = bits & 1 != 0;
            bits >>= 1;
            stays
        });
        self.replies.push_burst(&mut replies);
        self.waker.wake();
        stats.dropped.add(replies.len() as u64);
        cache.free(&mut replies);
    }
}

impl Replies {
    /// Number of waiting replies.
    pub(super) fn waiting(&self) -> usize {
        self.0.meter().read().occupancy
    }

    /// Shows waiting replies to taps and sends them; what the queue does not take is dropped.
    /// Returns how many frames went.
    pub fn send(
        &mut self,
        tx: &mut dyn TxQueue,
        cache: &mut PoolCache,
        see: impl FnOnce(&Burst),
    ) -> usize {
        let mut burst = Burst::new();
        if self.0.pop_burst(&mut burst, Burst::CAPACITY) == 0 {
            return 0;
        }
        see(&burst);
        let sent = tx.tx_burst(&mut burst, cache);
        cache.free(&mut burst);
        sent
    }
}
