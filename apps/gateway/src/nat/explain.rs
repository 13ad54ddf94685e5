//! What becomes of a first packet, as far as rules alone say. Ports are taken when it comes, so
//! which of them it gets, and who has which, stays open here.

use super::rules::{Action, Aim, At, Pool, Rules};
use super::{Endpoint, Tuple};

impl Rules {
    /// What its destination is before it is routed, the pool that its source then becomes an
    /// address of, and by what; `None` where its destination stays.
    pub fn explain_destination(
        &self,
        tuple: &Tuple,
        from: At,
    ) -> (Tuple, Option<u16>, Option<String>) {
        let becomes = |to: Tuple, by: &str| format!("{by}: the destination becomes {}", to.dst);
        match self.aim(tuple, from) {
            Aim::Other => (*tuple, None, None),
            Aim::Static(inside) => {
                let to = tuple.with_dst(Endpoint::new(inside, tuple.dst.port));
                (to, None, Some(becomes(to, "[[nat.static]]")))
            }
            Aim::Forward(inside, pool) => {
                let to = tuple.with_dst(inside);
                (to, pool, Some(becomes(to, "[[nat.forward]]")))
            }
            Aim::Nat64(address, pool) => {
                let to = tuple.with_dst(Endpoint::new(address, tuple.dst.port));
                (to, Some(pool), Some(becomes(to, "[[nat.nat64]]")))
            }
            Aim::Pool(id) => {
                let pool = self.pool_of(id);
                let otherwise = match pool.is_some_and(|pool| pool.is_interface) {
                    true => "it is for the gateway itself",
                    false => "nat_no_mapping",
                };
                let text = format!(
                    "{}: the host inside that has this port, as far as it lets the sender in; \
                     nobody: {otherwise}",
                    named(pool)
                );
                (*tuple, None, Some(text))
            }
        }
    }

    /// What its source becomes on its way out there, and by what; `None` where it stays. `aim` and
    /// `pool` are what was said of its destination.
    pub fn explain_source(
        &self,
        first: &Tuple,
        (aim, pool): (&Tuple, Option<u16>),
        from: At,
        to: At,
    ) -> Option<String> {
        let of_pool = |by: &str, pool: u16| {
            let name = named(self.config.pools.get(usize::from(pool)));
            format!("{by}: the source becomes an address of {name}")
        };
        if let Some(pool) = pool {
            return Some(of_pool("its pool", pool));
        }
        let turns = aim != first;
        if let Some(fixed) = self.static_source(aim.src.address, from, to, turns) {
            return Some(format!("[[nat.static]]: the source becomes {fixed}"));
        }
        let hairpin = turns.then(|| self.hairpin(first, from)).flatten();
        if let Some(pool) = hairpin {
            return Some(of_pool("as if it came from outside", pool));
        }
        let at = self.source_at(aim, from, to)?;
        let by = format!("[[nat.source]] {}", at + 1);
        match self.config.sources[at].action {
            Action::Pool(pool) => Some(of_pool(&by, pool)),
            Action::Keep => Some(format!("{by}: the source stays")),
        }
    }
}

/// A pool for people; those of interfaces have their names.
fn named(pool: Option<&Pool>) -> String {
    match pool {
        Some(pool) if pool.is_interface => pool.name.clone(),
        Some(pool) => format!("pool {}", pool.name),
        None => "?".into(),
    }
}
