//! The sessions of a gateway, as SGW and PGW alike have them: one for each user, found by
//! identifier and by IMSI, and the search for those whose peers have restarted (TS 23.007 18).

use super::Refusal;
use super::paths::Paths;
use crate::ids::IdSpace;
use crate::records::{Records, Search};
use crate::{Cores, EpcError};
use linerate_tables::exact::{Exact, ExactConfig, Seed};
use linerate_wire::gtpc::ie::{Cause, cause};

/// A session of a user.
pub(crate) trait Session: Copy + Default {
    /// Whose it is.
    fn imsi(&self) -> [u8; 8];

    /// Whether its peers have not restarted since it was made.
    fn stands(&self, paths: &Paths) -> bool;
}

/// The sessions of one core.
pub(crate) struct Sessions<S> {
    records: Records<S>,
    by_imsi: Exact<8, [u8; 4]>,
    /// For sessions of peers that restarted.
    search: Search,
}

impl<S: Session> Sessions<S> {
    /// Room for `count` sessions on `core`; `name` is for errors.
    ///
    /// # Errors
    /// As [`Records::new`].
    pub(crate) fn new(
        name: &str,
        count: usize,
        cores: Cores,
        core: u8,
        secret: u64,
    ) -> Result<Self, EpcError> {
        Ok(Self {
            records: Records::new(name, count, cores, core, secret)?,
            by_imsi: Exact::new(&ExactConfig::new(name, count, Seed::random()))?,
            search: Search::new(count),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is nothing in any table.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.by_imsi.is_empty()
    }

    /// How identifiers are made.
    pub(crate) fn space(&self) -> IdSpace {
        self.records.space()
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&S> {
        self.records.get(id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut S> {
        self.records.get_mut(id)
    }

    /// The session of a user.
    pub(crate) fn of_user(&self, imsi: &[u8; 8]) -> Option<u32> {
        self.by_imsi.lookup(imsi).map(u32::from_be_bytes)
    }

    /// Adds the session of a user who has none.
    ///
    /// # Errors
    /// No Resources Available, with every place taken.
    pub(crate) fn insert(&mut self, session: S) -> Result<u32, Refusal> {
        let full = Cause::new(cause::NO_RESOURCES);
        let id = self.records.insert(session).ok_or(full)?;
        match self.by_imsi.insert(&session.imsi(), id.to_be_bytes()) {
            Ok(_) => Ok(id),
            Err(_) => {
                self.records.remove(id);
                Err(full)
            }
        }
    }

    /// Forgets a session; returns what it was.
    pub(crate) fn remove(&mut self, id: u32) -> Option<S> {
        let session = self.records.remove(id)?;
        if self.of_user(&session.imsi()) == Some(id) {
            self.by_imsi.remove(&session.imsi());
        }
        Some(session)
    }

    /// A peer has restarted: all sessions are to be looked at.
    pub(crate) fn doubt(&mut self) {
        self.search.begin();
    }

    /// Whether some are to be looked at yet.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.search.is_under_way()
    }

    /// The next session of a peer that has restarted, which the caller removes. Looks at as many
    /// places as `budget` says, and takes them off it.
    pub(crate) fn next_lost(&mut self, paths: &Paths, budget: &mut usize) -> Option<u32> {
        while *budget > 0 {
            let at = self.search.step()?;
            *budget -= 1;
            let known = self.records.at(at);
            if let Some((id, _)) = known.filter(|(_, session)| !session.stands(paths)) {
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

    #[derive(Clone, Copy, Default)]
    struct Made([u8; 8], u16);

    impl Session for Made {
        fn imsi(&self) -> [u8; 8] {
            self.0
        }

        fn stands(&self, paths: &Paths) -> bool {
            paths.is_current(PEER, self.1)
        }
    }

    #[test]
    fn ts_23_007_sessions_of_a_peer_that_restarted_are_found_within_the_budget() {
        let cores = Cores::new(2).unwrap();
        let mut sessions = Sessions::new("test", 10, cores, 1, 7).unwrap();
        let mut paths = Paths::new(4, None);
        let old = paths.epoch(0, PEER).unwrap();
        paths.heard(PEER, 1);
        let old_ids: Vec<u32> = (0..4)
            .map(|n| sessions.insert(Made([n; 8], old)).unwrap())
            .collect();
        paths.heard(PEER, 2);
        let new = paths.epoch(0, PEER).unwrap();
        assert_ne!(old, new);
        let kept = sessions.insert(Made([9; 8], new)).unwrap();
        assert_eq!(sessions.next_lost(&paths, &mut 10), None, "nobody doubts");
        sessions.doubt();
        let (mut found, mut looks) = (Vec::new(), 0);
        while sessions.is_in_doubt() {
            looks += 1;
            let mut budget = 3;
            while let Some(id) = sessions.next_lost(&paths, &mut budget) {
                sessions.remove(id);
                found.push(id);
            }
            // Of ten places the fourth look has one left.
            assert_eq!(budget, if looks == 4 { 2 } else { 0 });
        }
        assert_eq!((found, looks), (old_ids, 4));
        assert_eq!((sessions.len(), sessions.of_user(&[9; 8])), (1, Some(kept)));
        sessions.remove(kept);
        assert!(sessions.is_empty());
    }

    #[test]
    fn ts_23_007_sessions_are_found_while_more_and_more_peers_restart() {
        let cores = Cores::new(1).unwrap();
        let mut sessions = Sessions::new("test", 10, cores, 0, 7).unwrap();
        let mut paths = Paths::new(4, None);
        let epoch = paths.epoch(0, PEER).unwrap();
        let ids: Vec<u32> = (0..10)
            .map(|n| {
                sessions
                    .insert(Made([n; 8], epoch + u16::from(n == 8)))
                    .unwrap()
            })
            .collect();
        let mut found = None;
        for _ in 0..4 {
            sessions.doubt();
            found = found.or(sessions.next_lost(&paths, &mut 3));
        }
        assert_eq!(found, Some(ids[8]));
        // Where it is at the end it goes on at the start.
        sessions.doubt();
        assert_eq!(sessions.next_lost(&paths, &mut 10), Some(ids[8]));
    }

    #[test]
    fn one_too_many_is_refused_and_leaves_nothing() {
        let cores = Cores::new(1).unwrap();
        let mut sessions = Sessions::new("test", 1, cores, 0, 7).unwrap();
        let id = sessions.insert(Made([1; 8], 0)).unwrap();
        let full = Cause::new(cause::NO_RESOURCES);
        assert_eq!(sessions.insert(Made([2; 8], 0)), Err(full));
        assert_eq!(sessions.of_user(&[2; 8]), None);
        assert!(sessions.remove(id).is_some() && sessions.remove(id).is_none());
        assert!(sessions.is_empty());
    }
}
