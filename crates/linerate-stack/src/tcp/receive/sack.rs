//! Which blocks an acknowledgement reports: selective acknowledgements (RFC 2018), and duplicates
//! (D-SACK, RFC 2883).

use super::pieces::{NIL, Pieces};
use super::queue::{Inserted, RECENT, ReceiveQueue};
use super::seq;

impl ReceiveQueue {
    /// Writes the blocks for the next acknowledgement into `out`, as many as it has room for: an
    /// option holds four, or three beside a time stamp. A block is the sequence number of its first
    /// byte, and the one behind its last. Returns how many there are.
    ///
    /// The first is a duplicate that was not reported yet, if there is one; it is then, and RFC
    /// 2883 4 (2) wants it once. Then come the runs that were touched last, the last one first (RFC
    /// 2018 4), and then others by their sequence numbers.
    pub fn sack_blocks(&mut self, pieces: &Pieces, out: &mut [(u32, u32)]) -> usize {
        let mut count = 0;
        let mut put = |block| match out.get_mut(count) {
            Some(to) => {
                *to = block;
                count += 1;
                true
            }
            None => false,
        };
        if self.duplicate.0 != self.duplicate.1 && put(self.duplicate) {
            self.duplicate = (0, 0);
        }
        let block = |run: u32| (pieces.at(run).seq, pieces.run_end(run));
        for run in self.recent_runs() {
            put(block(run));
        }
        // Some that were touched last are acknowledged by now, and make room for older ones.
        let mut run = self.first_run;
        let others = usize::from(self.runs) - self.recent_runs().count();
        let mut left = others.min(RECENT);
        while left > 0 && run != NIL {
            if !self.recent.contains(&run) {
                left -= 1;
                if !put(block(run)) {
                    break;
                }
            }
            run = pieces.run_next(run);
        }
        count
    }

    /// Whether an acknowledgement has a block to report.
    #[inline]
    pub fn has_sack(&self) -> bool {
        self.first_run != NIL || self.duplicate.0 != self.duplicate.1
    }

    /// Notes that bytes below RCV.NXT have come again, in a segment that was not kept (RFC 2883
    /// 4.1).
    pub fn report_duplicate(&mut self, block: (u32, u32)) {
        self.note_duplicate(block, &mut Inserted::default());
    }

    fn recent_runs(&self) -> impl Iterator<Item = u32> {
        self.recent.into_iter().take_while(|&run| run != NIL)
    }

    /// Notes that bytes have come again. Of an arrival with several such parts the first is
    /// reported (RFC 2883 4.2.2); of several arrivals before an acknowledgement, what is one block.
    pub(super) fn note_duplicate(&mut self, known: (u32, u32), inserted: &mut Inserted) {
        if inserted.duplicate.is_some() {
            return;
        }
        inserted.duplicate = Some(known);
        let (from, to) = self.duplicate;
        if from == to {
            self.duplicate = known;
        } else if seq::le(known.0, to) && seq::le(from, known.1) {
            let until = if seq::lt(to, known.1) { known.1 } else { to };
            self.duplicate = (seq::min(from, known.0), until);
        }
    }

    /// Notes that a run was touched last.
    #[inline]
    pub(super) fn touch(&mut self, run: u32) {
        let at = self.recent.iter().position(|&recent| recent == run);
        self.recent.copy_within(..at.unwrap_or(RECENT - 1), 1);
        self.recent[0] = run;
    }

    /// Notes that a run exists no more, or is part of another.
    #[inline]
    pub(super) fn forget(&mut self, run: u32) {
        if let Some(at) = self.recent.iter().position(|&recent| recent == run) {
            self.recent.copy_within(at + 1.., at);
            self.recent[RECENT - 1] = NIL;
        }
    }

    /// Notes that a run begins with another piece.
    pub(super) fn rename(&mut self, old: u32, new: u32) {
        let recent = self.recent.iter_mut();
        for run in recent.filter(|run| **run == old) {
            *run = new;
        }
        if self.last_run == old {
            self.last_run = new;
        }
    }
}
