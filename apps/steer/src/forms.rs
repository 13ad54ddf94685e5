//! Which lcores receive, have connections, and send.
//!
//! | `mode` (or `over`) | `distributor` | lcores of the role io | of the role eu |
//! |---|---|---|---|
//! | `hardware` | | poll a queue of each port, have connections, send | none |
//! | `software` | none | have connections, send; the first ones poll | none |
//! | `software` | `rx+tx` | poll and send | have connections |
//! | `software` | `rx,tx` | the first polls, the second sends | have connections |

use linerate_appliance::error::Error;
use linerate_appliance::runtime::wiring::{self, PortShape, Share};
use linerate_appliance::runtime::{OpenPort, OpenPorts, Options};
use linerate_core::env::{Placement, Role};
use linerate_dispatch::owners::WORKERS;

use crate::config::{Arrives, Distributor, Mode};
use crate::steering::plan::Member;

/// The lcores in the order of their shares. A plan has one of the role io at least.
pub(crate) struct Lcores<'a> {
    pub(crate) placements: Vec<&'a Placement>,
    /// How many have connections: the last ones.
    pub(crate) owners: usize,
}

/// What the lcores have of the ports.
pub(crate) struct Form {
    pub(crate) shares: Vec<Share>,
    /// By share: its lcore's number in steering, where those with connections come first.
    pub(crate) members: Vec<Member>,
}

/// The lcores of a plan that take part.
///
/// # Errors
/// There are not those that the form takes.
pub(crate) fn lcores<'a>(
    mode: &Mode,
    io: &[&'a Placement],
    eu: &[&'a Placement],
) -> Result<Lcores<'a>, Error> {
    let wrong = |problem: String| {
        Err(Error::Usage {
            problem,
            fix: "change [plan] io and eu, or [steer] distributor".into(),
        })
    };
    let io = match (mode.distributor, io.len()) {
        (None, count) => {
            let owners = count.min(WORKERS);
            let placements = io[..owners].to_vec();
            return Ok(Lcores { placements, owners });
        }
        (Some(Distributor::Two), 2) => [io[1], io[0]].to_vec(),
        (Some(Distributor::Two), count) => {
            return wrong(format!(
                "distributor = \"rx,tx\" takes two io lcores, and there are {count}"
            ));
        }
        (Some(Distributor::Both), _) => io.to_vec(),
    };
    let most = WORKERS.min(usize::from(Member::MAX) - io.len());
    if eu.is_empty() || eu.len() > most {
        let count = eu.len();
        return wrong(format!(
            "a distributor takes 1 to {most} eu lcores, and there are {count}"
        ));
    }
    Ok(Lcores {
        owners: eu.len(),
        placements: [&io[..], eu].concat(),
    })
}

/// The shares of these lcores.
pub(crate) fn form(
    mode: &Mode,
    options: &mut Options,
    opened: &OpenPorts,
    lcores: &Lcores<'_>,
) -> Form {
    let count = lcores.placements.len();
    if mode.arrives == Arrives::Hardware && options.queues == 1 {
        let most = (opened.ports.iter()).map(|port| port.info.max_rx_queues);
        options.queues = most.min().unwrap_or(1).min(count as u16).max(1);
    }
    let queues = match mode.arrives {
        Arrives::Software => 1,
        Arrives::Hardware => options.queues,
    };
    let shape = |port: &OpenPort| PortShape {
        rx_queues: queues,
        max_tx_queues: port.info.max_tx_queues,
        outs: Vec::new(),
    };
    let shapes: Vec<PortShape> = opened.ports.iter().map(shape).collect();
    shares(mode, shapes, count, lcores.owners)
}

fn shares(mode: &Mode, mut shapes: Vec<PortShape>, count: usize, owners: usize) -> Form {
    let first = shapes.len() as u16;
    let distributors = count - owners;
    let mut shares = match mode.distributor {
        None => wiring::poll(&shapes, count),
        Some(Distributor::Both) => wiring::poll(&shapes, distributors),
        Some(Distributor::Two) => {
            // The one that sends comes first: it alone gets the transmit queues.
            shapes.iter_mut().for_each(|shape| shape.max_tx_queues = 1);
            let mut both = vec![Share::default()];
            both.extend(wiring::poll(&shapes, 1));
            both
        }
    };
    // Some have nothing to poll.
    shares.resize(count, Share::default());
    for share in &mut shares[distributors..] {
        share.role = match mode.distributor {
            None => Role::Io,
            Some(_) => Role::Eu,
        };
    }
    let all = 0..shares.len();
    wiring::mesh(&mut shares, first, all.clone(), |_| true);
    wiring::reach(&mut shares, &shapes, |_, _| true);
    let member = |share: usize| match share.checked_sub(distributors) {
        Some(owner) => owner as Member,
        None => (owners + share) as Member,
    };
    Form {
        members: all.map(member).collect(),
        shares,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(distributor: Option<Distributor>, count: usize, owners: usize) -> Form {
        let mode = Mode {
            arrives: Arrives::Software,
            distributor,
            ..Mode::default()
        };
        let shape = PortShape {
            rx_queues: 1,
            max_tx_queues: 4,
            outs: Vec::new(),
        };
        shares(&mode, vec![shape; 2], count, owners)
    }

    fn polls(form: &Form) -> Vec<usize> {
        form.shares.iter().map(|share| share.polls.len()).collect()
    }

    fn sends(form: &Form) -> Vec<usize> {
        form.shares.iter().map(|share| share.sends.len()).collect()
    }

    #[test]
    fn without_distributors_all_have_connections_and_send() {
        let form = of(None, 3, 3);
        assert_eq!(polls(&form), [1, 1, 0]);
        assert_eq!(sends(&form), [2, 2, 2]);
        assert_eq!(form.members, [0, 1, 2]);
    }

    #[test]
    fn one_distributor_receives_and_sends() {
        let form = of(Some(Distributor::Both), 3, 2);
        assert_eq!(polls(&form), [2, 0, 0]);
        assert_eq!(sends(&form), [2, 0, 0]);
        assert_eq!(form.members, [2, 0, 1]);
        let roles = form.shares.iter().map(|share| share.role);
        assert!(roles.eq([Role::Io, Role::Eu, Role::Eu]));
        // Each has a ring to each other one.
        assert!(form.shares.iter().all(|share| share.rings.len() == 2));
    }

    #[test]
    fn of_two_distributors_one_receives_and_the_other_sends() {
        let form = of(Some(Distributor::Two), 5, 3);
        assert_eq!(polls(&form), [0, 2, 0, 0, 0]);
        assert_eq!(sends(&form), [2, 0, 0, 0, 0]);
        assert_eq!(form.members, [3, 4, 0, 1, 2]);
        let by_first = |share: &Share| share.hand_offs.iter().all(|&(_, by)| by == 0);
        assert!(form.shares[1..].iter().all(by_first));
    }
}
