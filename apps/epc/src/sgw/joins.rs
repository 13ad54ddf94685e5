//! The peers' ends of sessions' tunnels, which is all of a session that a packet needs: half a
//! cache line each, where a session's record is two lines.

use crate::EpcError;
use crate::ids::IdSpace;
use crate::s1::Tunnel;
use linerate_core::arch::prefetch_read;
use linerate_core::mem::HugeArray;

/// Both ends of a session that is there, whole.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
pub(super) struct Join {
    /// The session; 0: the place is free.
    id: u32,
    /// The PGW's end of S5-U.
    s5u: Tunnel,
    /// The base station's end of S1-U; 0 while the user is idle.
    s1u: Tunnel,
}

const _: () = assert!(size_of::<Join>() == 32);

impl Join {
    /// Where packets go, to the user or from there.
    #[inline]
    pub(super) fn to(&self, is_down: bool) -> Tunnel {
        match is_down {
            true => self.s1u,
            false => self.s5u,
        }
    }
}

/// Those of one core, at the places of its sessions.
pub(super) struct Joins {
    space: IdSpace,
    entries: HugeArray<Join>,
}

impl Joins {
    /// Room for as many as `space` has places for sessions: `capacity`.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(space: IdSpace, capacity: usize) -> Result<Self, EpcError> {
        let entries = HugeArray::filled("sgw tunnels", capacity, Join::default())?;
        Ok(Self { space, entries })
    }

    /// Asks for the memory of one that is looked at soon.
    #[inline]
    pub(super) fn prefetch(&self, id: u32) {
        if let Some(join) = self.entries.get(self.space.index(id) as usize) {
            prefetch_read(join);
        }
    }

    /// That of a session that the PGW has accepted.
    #[inline]
    pub(super) fn get(&self, id: u32) -> Option<&Join> {
        let join = self.entries.get(self.space.index(id) as usize)?;
        (join.id == id && id != 0).then_some(join)
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut Join> {
        let join = self.entries.get_mut(self.space.index(id) as usize)?;
        (join.id == id && id != 0).then_some(join)
    }

    /// The PGW's end of a session is known; its user is idle.
    pub(super) fn open(&mut self, id: u32, s5u: Tunnel) {
        if let Some(join) = self.entries.get_mut(self.space.index(id) as usize) {
            let s1u = Tunnel::default();
            *join = Join { id, s5u, s1u };
        }
    }

    /// The base station's end of a session is known.
    pub(super) fn connect(&mut self, id: u32, s1u: Tunnel) {
        if let Some(join) = self.get_mut(id) {
            join.s1u = s1u;
        }
    }

    /// The user is idle; returns the base station's end, 0 if that was so before.
    pub(super) fn disconnect(&mut self, id: u32) -> Tunnel {
        let join = self.get_mut(id);
        join.map_or_else(Tunnel::default, |join| std::mem::take(&mut join.s1u))
    }

    /// The session is over.
    pub(super) fn close(&mut self, id: u32) {
        if let Some(join) = self.get_mut(id) {
            *join = Join::default();
        }
    }
}
