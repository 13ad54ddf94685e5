//! How other threads reach the one that owns what they ask about: jobs, which it does in turn.

use std::sync::mpsc::{self, Receiver, Sender};

use linerate_core::inbox;
pub use linerate_core::inbox::Job;

use crate::socket::Problem;

/// Takes jobs to the owner's thread. Clones take them to the same one.
pub struct Mailbox<O> {
    jobs: Sender<Job<O>>,
    /// What has ended when nobody does jobs any more: `router`.
    name: &'static str,
}

impl<O> Clone for Mailbox<O> {
    fn clone(&self) -> Self {
        Self {
            jobs: self.jobs.clone(),
            name: self.name,
        }
    }
}

impl<O> Mailbox<O> {
    /// A mailbox, and where its jobs arrive. Once that is dropped all who wait hear that what goes
    /// by `name` has ended.
    pub fn new(name: &'static str) -> (Self, Receiver<Job<O>>) {
        let (jobs, arrived) = mpsc::channel();
        (Self { jobs, name }, arrived)
    }

    /// Has `work` done on the owner's thread and returns what it returns. One caller has one job
    /// under way, so there are never more jobs than there are callers.
    ///
    /// # Errors
    /// The owner has gone, or goes before it has done it.
    pub fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut O) -> R + Send + 'static,
    ) -> Result<R, Problem> {
        let (job, answer) = inbox::job(work);
        // What cannot be sent is dropped.
        let _ = self.jobs.send(job);
        answer.wait().ok_or_else(|| self.ended())
    }

    /// Has `work` done some time; an owner that has gone needs it no more.
    pub fn tell(&self, work: impl FnOnce(&mut O) + Send + 'static) {
        let _ = self.jobs.send(Box::new(work));
    }

    /// That the owner has gone.
    pub fn ended(&self) -> Problem {
        Problem::new(format!("the {} has ended", self.name), "start it again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    struct Sum(u64);

    #[test]
    fn jobs_are_done_in_turn_and_answered() {
        let (mailbox, jobs) = Mailbox::<Sum>::new("sum");
        let owner = thread::spawn(move || {
            let mut sum = Sum(0);
            jobs.iter().take(3).for_each(|job| job(&mut sum));
        });
        mailbox.tell(|sum| sum.0 += 5);
        assert_eq!(mailbox.call(|sum| std::mem::replace(&mut sum.0, 7)), Ok(5));
        assert_eq!(mailbox.call(|sum| sum.0), Ok(7));
        owner.join().unwrap();
        assert_eq!(mailbox.call(|sum| sum.0), Err(mailbox.ended()));
    }

    #[test]
    fn a_call_fails_when_the_owner_ends_before_it_answers() {
        let (mailbox, jobs) = Mailbox::<Sum>::new("sum");
        let waits = mailbox.clone();
        let caller = thread::spawn(move || waits.call(|sum| sum.0));
        // Its job has come, and nobody does it.
        let job = jobs.recv().unwrap();
        drop((job, jobs));
        let told = caller.join().unwrap().unwrap_err();
        assert_eq!(told.to_string(), "the sum has ended");
    }
}
