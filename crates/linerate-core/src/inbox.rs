//! Messages to the thread that owns something, and the answers to them.
//!
//! For the messages the standard library's channels would do, but each type of them instantiates
//! three kinds of channels. Mail is seldom, so a queue behind a lock and a flag is enough.

use std::any::Any;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pending messages; `None` once the reader was dropped.
struct Post<M> {
    waiting: Mutex<Option<VecDeque<M>>>,
    flagged: AtomicBool,
}

impl<M> Post<M> {
    fn waiting(&self) -> MutexGuard<'_, Option<VecDeque<M>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reader's end, for one thread. Pending messages are dropped with it.
pub struct Inbox<M>(Arc<Post<M>>);

/// The writers' end. Clones reach the same inbox.
pub struct Sender<M>(Arc<Post<M>>);

/// The reader of this inbox was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader of these messages has ended")]
pub struct Closed;

/// An empty inbox and its sender.
pub fn inbox<M>() -> (Inbox<M>, Sender<M>) {
    let post = Arc::new(Post {
        waiting: Mutex::new(Some(VecDeque::new())),
        flagged: AtomicBool::new(false),
    });
    (Inbox(post.clone()), Sender(post))
}

impl<M> Inbox<M> {
    /// Whether something has come since the last [`take`](Self::take). Costs one load: for every
    /// round.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.0.flagged.load(Ordering::SeqCst)
    }

    /// All that waits, in the order in which it was sent.
    pub fn take(&self) -> VecDeque<M> {
        // Cleared before reading: a message sent meanwhile sets it again.
        self.0.flagged.store(false, Ordering::SeqCst);
        self.0
            .waiting()
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }
}

impl<M> Drop for Inbox<M> {
    fn drop(&mut self) {
        // Dropped after the lock is given back: a message may hold the sender of another.
        let left = self.0.waiting().take();
        drop(left);
    }
}

impl<M> Sender<M> {
    /// Adds a message. If the reader has to be woken, the caller does so afterwards.
    ///
    /// # Errors
    /// [`Closed`]: the reader is gone, the message is dropped.
    pub fn send(&self, message: M) -> Result<(), Closed> {
        match self.0.waiting().as_mut() {
            Some(waiting) => waiting.push_back(message),
            None => return Err(Closed),
        }
        self.0.flagged.store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// Work for the thread that owns an `O`.
pub type Job<O> = Box<dyn FnOnce(&mut O) + Send>;

/// Work as a message, and who waits for what it returns. No answer comes when the job is dropped.
pub fn job<O, R: Send + 'static>(
    work: impl FnOnce(&mut O) -> R + Send + 'static,
) -> (Job<O>, Answer<R>) {
    let (reply, answer) = answer();
    (Box::new(move |owner| reply.give(work(owner))), answer)
}

impl<O> Sender<Job<O>> {
    /// Adds work for the reader, and returns the place where its result will be. There is no answer
    /// if the reader was dropped, or is dropped before.
    pub fn ask<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut O) -> R + Send + 'static,
    ) -> Answer<R> {
        let (job, answer) = job(work);
        // What cannot be sent is dropped.
        let _ = self.send(job);
        answer
    }
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The sending side of one answer. Dropped without an answer, it ends the wait.
pub struct Reply<R>(SyncSender<Given>, PhantomData<fn(R)>);

/// A pending answer.
#[derive(Debug)]
pub struct Answer<R>(Receiver<Given>, PhantomData<fn() -> R>);

/// Any answer: all of them go by one type of channel, which is compiled here alone.
type Given = Box<dyn Any + Send>;

/// Both sides of one answer.
pub fn answer<R: Send + 'static>() -> (Reply<R>, Answer<R>) {
    let (reply, answer) = channel();
    (Reply(reply, PhantomData), Answer(answer, PhantomData))
}

impl<R: Send + 'static> Reply<R> {
    /// Sends the answer, which may have no receiver any more.
    pub fn give(self, answer: R) {
        give(&self.0, Box::new(answer));
    }
}

impl<R: Send + 'static> Answer<R> {
    /// Waits for it; `None` if the sending side was dropped.
    pub fn wait(self) -> Option<R> {
        let answer = wait(&self.0)?.downcast().ok()?;
        Some(*answer)
    }
}

fn channel() -> (SyncSender<Given>, Receiver<Given>) {
    mpsc::sync_channel(1)
}

fn give(reply: &SyncSender<Given>, answer: Given) {
    let _ = reply.send(answer);
}

fn wait(answer: &Receiver<Given>) -> Option<Given> {
    answer.recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn messages_come_in_order_and_raise_the_flag() {
        let (inbox, sender) = inbox();
        assert!(!inbox.has_mail());
        (1..=3).for_each(|n| sender.clone().send(n).unwrap());
        assert!(inbox.has_mail());
        assert_eq!(inbox.take(), [1, 2, 3]);
        assert!(!inbox.has_mail());
        assert!(inbox.take().is_empty());
    }

    #[test]
    fn no_message_is_lost_between_threads() {
        let (inbox, sender) = inbox();
        let senders: Vec<_> = (0..4)
            .map(|_| {
                let sender = sender.clone();
                thread::spawn(move || (0..1000).for_each(|n| sender.send(n).unwrap()))
            })
            .collect();
        let mut sum = 0;
        let mut come = 0;
        while come < 4000 {
            if inbox.has_mail() {
                let mail = inbox.take();
                come += mail.len();
                sum += mail.into_iter().sum::<u32>();
            } else {
                thread::yield_now();
            }
        }
        senders
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!((come, sum), (4000, 4 * 999 * 500));
    }

    #[test]
    fn a_reader_that_goes_drops_what_waits_and_takes_no_more() {
        let (inbox, sender) = inbox();
        let (reply, answer) = answer::<()>();
        sender.send(reply).unwrap();
        drop(inbox);
        assert_eq!(answer.wait(), None);
        let (reply, _answer) = super::answer();
        assert_eq!(sender.send(reply), Err(Closed));
    }

    #[test]
    fn work_is_done_by_the_reader_and_answered_unless_it_has_gone() {
        let (inbox, sender) = inbox::<Job<u32>>();
        let asked = [1, 2].map(|n| sender.ask(move |sum| std::mem::replace(sum, n)));
        let mut sum = 7;
        inbox.take().into_iter().for_each(|job| job(&mut sum));
        assert_eq!((asked.map(Answer::wait), sum), ([Some(7), Some(1)], 2));
        drop(inbox);
        assert_eq!(sender.ask(|sum| *sum).wait(), None);
    }

    #[test]
    fn a_waiting_caller_gets_the_answer_or_that_there_is_none() {
        let (reply, asks) = answer();
        let waits = thread::spawn(move || asks.wait());
        reply.give(7);
        assert_eq!(waits.join().unwrap(), Some(7));
        let (reply, asks) = answer::<u8>();
        let waits = thread::spawn(move || asks.wait());
        drop(reply);
        assert_eq!(waits.join().unwrap(), None);
        // Without a receiver nothing happens.
        answer().0.give(1);
    }
}
