//! What whoever traces packets is told, and how it is put together.
//!
//! A fast worker tells of a packet once, when it is done with it. Where that is because it hands the
//! packet to the slow worker, the packet carries a [`Mark`] there, by which the slow worker goes on to
//! tell: what a packet waits for may take seconds. Nothing is shared but the channel, and nothing is looked
//! at in packets that nobody traces but that they have no mark.

use std::num::NonZeroU32;

use super::trace::{Record, Stage};

/// Which packet it is, among all that are traced while the router runs.
pub(crate) type Mark = NonZeroU32;

/// A part of what became of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// What the fast worker did with it; that is all unless there is a mark.
    Fast(Record, Option<Mark>),
    /// What the slow worker did with it.
    Slow(Mark, String),
    /// Where it went from there, or why it was dropped.
    End(Mark, String),
}

/// Packets that the slow worker has more to tell of.
#[derive(Debug, Default)]
pub(crate) struct Unfinished(Vec<(Mark, Record)>);

impl Unfinished {
    /// Takes a part; the whole, if it was the last one. What is told of nothing known is another trace's.
    pub(crate) fn take(&mut self, told: Told) -> Option<Record> {
        let mark = match &told {
            Told::Fast(_, None) => None,
            Told::Fast(_, mark) => *mark,
            Told::Slow(mark, _) | Told::End(mark, _) => Some(*mark),
        };
        let known = self.0.iter().position(|(known, _)| Some(*known) == mark);
        match (told, known) {
            (Told::Fast(record, None), _) => Some(record),
            (Told::Fast(record, Some(mark)), _) => {
                self.0.push((mark, record));
                None
            }
            (Told::Slow(_, text), Some(at)) => {
                let record = &mut self.0[at].1;
                record.steps.push((Stage::Slow, text));
                None
            }
            (Told::End(_, end), Some(at)) => {
                let (_, mut record) = self.0.remove(at);
                record.end = end;
                Some(record)
            }
            (_, None) => None,
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// What is known of them.
    pub(crate) fn into_records(self) -> impl Iterator<Item = Record> {
        self.0.into_iter().map(|(_, record)| record)
    }
}
