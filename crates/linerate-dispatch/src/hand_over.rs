//! Packets of a burst to the rings of their owners.

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, PoolCache};
use linerate_core::run::Egress;
use linerate_tables::parse::Mask;
use linerate_tables::rewrite::Scatter;

use crate::owners::Owner;

/// The ways from one worker to all owners.
#[derive(Clone, Debug)]
pub struct HandOver {
    /// The outlet that leads to each owner.
    outlets: Vec<u16>,
    scatter: Scatter,
}

impl HandOver {
    /// To owners that `outlets` lead to, by number.
    pub fn new(outlets: Vec<u16>, isa: Isa) -> Self {
        Self {
            outlets,
            scatter: Scatter::new(isa),
        }
    }

    /// Sends the packets at the positions of `mask` to the owners that `owners` says by position,
    /// those of one owner together and in order; the others stay in the burst. `ready` sees each
    /// group before it leaves. An owner that there is no way to is an outlet that drops and counts.
    #[inline(always)]
    pub fn send(
        &self,
        burst: &mut Burst,
        mask: Mask,
        owners: &[u32; Burst::CAPACITY],
        mut ready: impl FnMut(Owner, &mut Burst, &mut PoolCache),
        out: &mut Egress,
    ) {
        self.scatter
            .by_value(burst, mask, owners, |owner, packets| {
                ready(owner as Owner, packets, &mut out.cache);
                out.send(self.outlet(owner as Owner), packets);
            });
    }

    /// The outlet that leads to an owner.
    #[inline]
    pub fn outlet(&self, owner: Owner) -> u16 {
        let outlet = self.outlets.get(usize::from(owner)).copied();
        outlet.unwrap_or(u16::MAX)
    }

    /// Owners that there is a way to, or that it is itself.
    pub fn owners(&self) -> usize {
        self.outlets.len()
    }

    /// Packets that have been sent.
    pub fn sent(&self, egress: &Egress) -> u64 {
        self.outlets.iter().map(|&outlet| egress.sent(outlet)).sum()
    }
}
