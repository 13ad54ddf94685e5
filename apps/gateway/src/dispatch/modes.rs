//! Which modes of dispatch a plan of lcores can have, and what of NAT each can do. A plan has an
//! lcore of each role at least.

use linerate_appliance::error::Error;

use crate::config::{Mode, Stanzas};
use crate::nat::rules::Action;

/// Checks stanzas against the number of lcores of the role io.
pub(crate) fn check(stanzas: &Stanzas, io: usize) -> Result<(), Error> {
    match stanzas.dispatch {
        Mode::None if io > 1 => Err(Error::Usage {
            problem: format!(
                "[plan] io has {io} lcores, and each would know only its own flows: the two \
                 directions of a flow come in by different ports, so by different workers"
            ),
            fix: "give the role io one slot; or say [dispatch] mode = \"balanced\", by which each \
                  hands the packets of others' flows over"
                .into(),
        }),
        Mode::Rss if io > 1 => rss(stanzas),
        _ => Ok(()),
    }
}

/// Receive queues alone say the worker.
fn rss(stanzas: &Stanzas) -> Result<(), Error> {
    let mut services = stanzas.balance.services.iter();
    if let Some(service) = services.find(|service| !service.form.is_direct()) {
        return Err(Error::Usage {
            problem: format!(
                "[dispatch] mode = \"rss\": balancer `{}` translates, so what its backends answer \
                 comes into another queue than what clients ask",
                service.name
            ),
            fix: "say form = \"ipip\" or \"gue\", or [dispatch] mode = \"balanced\"".into(),
        });
    }
    if stanzas.nat.is_empty() {
        return Ok(());
    }
    let pools = &stanzas.nat.pools;
    let used = stanzas
        .nat
        .sources
        .iter()
        .filter_map(|rule| match rule.action {
            Action::Pool(pool) => pools.get(usize::from(pool)),
            Action::Keep => None,
        });
    let mut used = used.chain(pools);
    let problem = match used.find(|pool| pool.is_independent) {
        Some(pool) => format!(
            "[dispatch] mode = \"rss\": pool `{}` has mapping = \"independent\": answers to a \
             mapping come from anyone, and the hash of a port goes by who sends, so they come into \
             any queue",
            pool.name
        ),
        None => {
            "[dispatch] mode = \"rss\" and [nat]: answers to another address come into another \
                 queue, and no port says the key of its hash"
                .into()
        }
    };
    Err(Error::Usage {
        problem,
        fix: "say [dispatch] mode = \"balanced\", or give the role io one slot".into(),
    })
}
