//! An access list that one thread changes while others classify.

use std::collections::HashMap;

use linerate_core::MemError;
use linerate_core::publish::{Apply, Publisher, Reader};

use super::rule::{Match, Rule};
use super::table::Acl;
use crate::TableError;

/// A change of a table. It was checked before it was made, see [`AclWriter`].
#[derive(Clone, Copy, Debug)]
pub enum AclChange<const W: usize> {
    /// Add a rule.
    Insert(Rule<W>),
    /// Remove the rule with this match and these categories.
    Remove(Match<W>, u16),
    /// Build the trees anew.
    Rebuild,
}

impl<const W: usize> Apply<AclChange<W>> for Acl<W> {
    fn apply(&mut self, change: &AclChange<W>) {
        let applied = match change {
            AclChange::Insert(rule) => self.insert(rule),
            AclChange::Remove(matching, categories) => self.remove(matching, *categories),
            // Trees that could not be built anew leave the ones that are there: the same rules.
            AclChange::Rebuild => self.rebuild().or(Ok(())),
        };
        if let Err(error) = applied {
            panic!("a change that was checked before cannot be made: {error}");
        }
    }

    fn copy(&self) -> Result<Self, MemError> {
        self.copy()
    }
}

/// The writing side of a published access list. Changes are checked one by one, and become visible
/// together with [`publish`](Self::publish).
///
/// ```
/// use linerate_tables::acl::{Acl4, AclConfig, AclWriter, Match4, PacketKey4, Rule4};
/// let mut writer = AclWriter::new(Acl4::new(AclConfig::default())?)?;
/// let mut reader = writer.reader(); // for another lcore
/// writer.insert(&Rule4::new(1, Match4::ANY, 7))?;
/// assert!(writer.publish());
/// let mut values = [0];
/// let packet = PacketKey4::tuple([1], [2], (3, 4), 6);
/// reader.read().classify(&[packet], &mut values); // once a burst
/// assert_eq!(values, [7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AclWriter<const W: usize> {
    publisher: Publisher<Acl<W>, AclChange<W>>,
    /// Rules whose pending changes leave them there, with their priority, or gone.
    pending: HashMap<(Match<W>, u16), Option<u32>>,
    inserts: usize,
}

impl<const W: usize> AclWriter<W> {
    /// Publishes a table.
    ///
    /// # Errors
    /// If there is no memory for its second copy.
    pub fn new(table: Acl<W>) -> Result<Self, MemError> {
        Ok(Self {
            publisher: Publisher::new(table)?,
            pending: HashMap::new(),
            inserts: 0,
        })
    }

    /// Another reader, for one lcore.
    pub fn reader(&self) -> Reader<Acl<W>> {
        self.publisher.reader()
    }

    /// The table as it was published last.
    pub fn published(&self) -> &Acl<W> {
        self.publisher.newest()
    }

    /// Adds a rule with the next publication.
    ///
    /// # Errors
    /// As [`Acl::insert`], pending changes being taken as made; room is asked for as if each of
    /// them needed the most that one can need.
    pub fn insert(&mut self, rule: &Rule<W>) -> Result<(), TableError> {
        let key = (rule.matching, rule.categories);
        match self.pending.get(&key) {
            Some(Some(other)) => {
                return Err(TableError::AclDuplicate {
                    priority: rule.priority,
                    other: *other,
                });
            }
            // It was there, and so is sound but for its priority and value.
            Some(None) => {}
            None => self.published().check(rule)?,
        }
        self.published().check_room(self.inserts + 1)?;
        self.inserts += 1;
        self.pending.insert(key, Some(rule.priority));
        self.publisher.push(AclChange::Insert(*rule));
        Ok(())
    }

    /// Removes a rule with the next publication.
    ///
    /// # Errors
    /// As [`Acl::remove`], pending changes being taken as made.
    pub fn remove(&mut self, matching: &Match<W>, categories: u16) -> Result<(), TableError> {
        let key = (*matching, categories);
        let there = match self.pending.get(&key) {
            Some(pending) => pending.is_some(),
            None => self.published().find(matching, categories).is_some(),
        };
        if !there {
            return Err(TableError::AclNoSuchRule { categories });
        }
        self.pending.insert(key, None);
        self.publisher
            .push(AclChange::Remove(*matching, categories));
        Ok(())
    }

    /// Builds the trees anew with the next publication; readers are not kept waiting.
    pub fn rebuild(&mut self) {
        self.publisher.push(AclChange::Rebuild);
    }

    /// Makes all pending changes visible at once; `false` if a reader still holds the copy that has
    /// to be written, see [`Publisher::publish`].
    pub fn publish(&mut self) -> bool {
        let published = self.publisher.publish();
        if published {
            self.forget();
        }
        published
    }

    /// As [`publish`](Self::publish), but makes a copy rather than wait for a reader.
    ///
    /// # Errors
    /// If there is no memory for the copy; the changes go on waiting.
    pub fn publish_on_copy(&mut self) -> Result<(), MemError> {
        self.publisher.publish_on_copy()?;
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.pending.clear();
        self.inserts = 0;
    }
}
