//! Spreads the queues of all ports over the workers, before anything is opened.
//!
//! For every port it is known to which ports its packets may go. A worker that sends to a port gets
//! a transmit queue of it while there are any; the others hand their packets to a worker that has
//! one.
//!
//! [`spread`] is all that most apps need, and [`by_role`] those with pipelines on eu lcores. One
//! with workers of other kinds spreads the receive queues with [`poll`], adds shares of its own,
//! lets [`mesh`] join them by rings, and [`reach`] give each its outlets.

use std::ops::Range;

use linerate_core::env::Role;

/// A port as the wiring needs it.
#[derive(Clone, Debug)]
pub struct PortShape {
    /// Receive queues to poll.
    pub rx_queues: u16,
    /// Transmit queues that the port can have.
    pub max_tx_queues: u16,
    /// The ports that its packets may go to.
    pub outs: Vec<u16>,
}

/// One worker's share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Receive queues that it polls: port and queue.
    pub polls: Vec<(u16, u16)>,
    /// Transmit queues that it owns: port and queue.
    pub sends: Vec<(u16, u16)>,
    /// Ports that it reaches through another worker: port and worker.
    pub hand_offs: Vec<(u16, usize)>,
    /// Rings into the pipeline of another worker: the number that it sends to as to a port, and the
    /// worker. There a burst from it has that number as its port. Take the numbers right behind
    /// those of the ports: a worker keeps an outlet for each number up to the highest.
    pub rings: Vec<(u16, usize)>,
    /// The role of its worker. One of [`Role::Eu`] owns transmit queues only where no other kind of
    /// worker sends to the port. One of [`Role::Bg`] sleeps whenever it has nothing to do, even
    /// where the others never do, and polls no port that is added later.
    pub role: Role,
}

/// Spreads the queues over up to `workers` shares; none of them is empty.
pub fn spread(ports: &[PortShape], workers: usize) -> Vec<Share> {
    let mut shares = poll(ports, workers);
    let feeds: Vec<Vec<bool>> = shares
        .iter()
        .map(|share| {
            let mut feeds = vec![false; ports.len()];
            for &(from, _) in &share.polls {
                // The stage drops packets without an output port.
                for &out in &ports[usize::from(from)].outs {
                    if let Some(feeds) = feeds.get_mut(usize::from(out)) {
                        *feeds = true;
                    }
                }
            }
            feeds
        })
        .collect();
    reach(&mut shares, ports, |worker, port| {
        feeds[worker][usize::from(port)]
    });
    shares
}

/// As [`spread`], but every worker can send to every port.
pub fn spread_all(ports: &[PortShape], workers: usize) -> Vec<Share> {
    let mut shares = poll(ports, workers);
    reach(&mut shares, ports, |_, _| true);
    shares
}

/// Spreads the receive queues alone: up to `workers` shares, none of them empty, without outlets.
pub fn poll(ports: &[PortShape], workers: usize) -> Vec<Share> {
    let queues: usize = ports.iter().map(|port| usize::from(port.rx_queues)).sum();
    let mut shares = vec![Share::default(); workers.clamp(1, queues.max(1))];
    let workers = shares.len();
    for (port, shape) in (0..).zip(ports) {
        for queue in 0..shape.rx_queues {
            // Neighbouring ports and neighbouring queues both start on different workers.
            shares[(usize::from(port) + usize::from(queue)) % workers]
                .polls
                .push((port, queue));
        }
    }
    match shares.iter().position(|share| share.polls.is_empty()) {
        // More workers than the pattern reaches; without queues there is one, with nothing to do.
        Some(reached) if reached > 0 => poll(ports, reached),
        _ => shares,
    }
}

/// Shares of two kinds. `io` workers, or fewer where there are not so many queues, poll the ports;
/// behind them stand `eu` workers, each with a ring from every one of the first, which they know by
/// the numbers [`eus`]. All can send to every port, the eu ones by rings to io ones that own the
/// transmit queues.
pub fn by_role(ports: &[PortShape], io: usize, eu: usize) -> Vec<Share> {
    let mut shares = poll(ports, io);
    let polling = shares.len();
    let fed = Share {
        role: Role::Eu,
        ..Share::default()
    };
    shares.resize(polling + eu, fed);
    let first = eus(ports.len(), eu).start;
    mesh(&mut shares, first, polling..polling + eu, |from| {
        from < polling
    });
    reach(&mut shares, ports, |_, _| true);
    shares
}

/// The numbers by which io workers send to `eu` workers of [`by_role`], as to ports: right behind
/// those of the ports.
pub fn eus(ports: usize, eu: usize) -> Range<u16> {
    ports as u16..(ports + eu) as u16
}

/// Gives each worker that `sends` a ring into the pipeline of each worker of `to`, but for itself:
/// the k-th of those is the number `first` + k to all, and a packet that a worker sends to itself
/// is dropped as `no_outlet`. Of `0..shares.len()` that is a mesh of them all. An SPSC ring for
/// each pair: so a worker that waits for its CPU does not block others.
///
/// # Panics
/// If a number is that of another ring of the share.
pub fn mesh(shares: &mut [Share], first: u16, to: Range<usize>, sends: impl Fn(usize) -> bool) {
    for (number, to) in (first..).zip(to) {
        let others = (0..).zip(shares.iter_mut()).filter(|&(from, _)| from != to);
        for (_, share) in others.filter(|&(from, _)| sends(from)) {
            assert!(
                share.rings.iter().all(|&(known, _)| known != number),
                "two rings of one number: {number}"
            );
            share.rings.push((number, to));
        }
    }
}

/// Gives the shares their outlets to the ports: `wants` returns which worker sends to which port.
/// The first of them get a transmit queue each, while the port has some; the others, and those of
/// [`Role::Eu`] wherever another kind sends to the port, hand over to those in turn.
pub fn reach(shares: &mut [Share], ports: &[PortShape], wants: impl Fn(usize, u16) -> bool) {
    for (port, shape) in (0..).zip(ports) {
        let mut senders: Vec<usize> = (0..shares.len())
            .filter(|&worker| wants(worker, port))
            .collect();
        senders.sort_by_key(|&worker| shares[worker].role == Role::Eu);
        let others = senders.partition_point(|&worker| shares[worker].role != Role::Eu);
        let able = if others > 0 { others } else { senders.len() };
        let owners = able.min(usize::from(shape.max_tx_queues.max(1)));
        for (index, &worker) in senders.iter().enumerate() {
            if index < owners {
                shares[worker].sends.push((port, index as u16));
            } else {
                shares[worker]
                    .hand_offs
                    .push((port, senders[index % owners]));
            }
        }
    }
}

/// Transmit queues that a port is started with.
pub fn tx_queues(shares: &[Share], port: u16) -> u16 {
    let of_port = |share: &&Share| share.sends.iter().any(|&(to, _)| to == port);
    shares.iter().filter(of_port).count() as u16
}

/// Receive queues that a port is started with.
pub fn rx_queues(shares: &[Share], port: u16) -> u16 {
    let polled = shares.iter().flat_map(|share| &share.polls);
    polled.filter(|&&(from, _)| from == port).count() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(rx_queues: u16, max_tx_queues: u16) -> [PortShape; 2] {
        [1, 0].map(|out| PortShape {
            rx_queues,
            max_tx_queues,
            outs: vec![out],
        })
    }

    #[test]
    fn one_worker_has_everything() {
        let shares = spread(&pair(2, 1), 1);
        assert_eq!(shares.len(), 1);
        assert_eq!(shares[0].polls, [(0, 0), (0, 1), (1, 0), (1, 1)]);
        assert_eq!(shares[0].sends, [(0, 0), (1, 0)]);
        assert!(shares[0].hand_offs.is_empty());
    }

    #[test]
    fn each_worker_gets_a_port_and_the_way_out_of_the_other() {
        let shares = spread(&pair(1, 1), 2);
        assert_eq!(
            (&*shares[0].polls, &*shares[0].sends),
            (&[(0, 0)][..], &[(1, 0)][..])
        );
        assert_eq!(
            (&*shares[1].polls, &*shares[1].sends),
            (&[(1, 0)][..], &[(0, 0)][..])
        );
    }

    #[test]
    fn a_worker_without_a_transmit_queue_hands_packets_to_an_owner() {
        let shares = spread(&pair(2, 1), 2);
        assert_eq!(shares[0].sends, [(0, 0), (1, 0)]);
        assert_eq!(shares[1].sends, []);
        assert_eq!(shares[1].hand_offs, [(0, 0), (1, 0)]);
        assert_eq!(tx_queues(&shares, 0), 1);
        assert_eq!(tx_queues(&spread(&pair(2, 8), 2), 1), 2);
    }

    #[test]
    fn a_port_with_several_outs_reaches_all_of_them() {
        let shape = |outs: &[u16]| PortShape {
            rx_queues: 1,
            max_tx_queues: 1,
            outs: outs.to_vec(),
        };
        let shapes = [shape(&[1, 2]), shape(&[0]), shape(&[])];
        let shares = spread(&shapes, 3);
        assert_eq!(shares[0].sends, [(1, 0), (2, 0)]);
        assert_eq!(shares[1].sends, [(0, 0)]);
        assert_eq!(
            (&*shares[2].sends, &*shares[2].hand_offs),
            (&[][..], &[][..])
        );
    }

    #[test]
    fn every_worker_has_a_way_to_every_port() {
        for (ports, queues, tx, workers) in [(2, 1, 1, 2), (3, 2, 2, 4), (2, 4, 8, 3), (1, 1, 1, 1)]
        {
            let shape = PortShape {
                rx_queues: queues,
                max_tx_queues: tx,
                outs: Vec::new(),
            };
            let shares = spread_all(&vec![shape; ports], workers);
            for (worker, share) in shares.iter().enumerate() {
                let mut paths: Vec<u16> = share.sends.iter().map(|hand_off| hand_off.0).collect();
                paths.extend(share.hand_offs.iter().map(|hand_off| hand_off.0));
                paths.sort_unstable();
                assert_eq!(
                    paths,
                    (0..ports as u16).collect::<Vec<_>>(),
                    "worker {worker}"
                );
                for &(port, owner) in &share.hand_offs {
                    assert!(
                        shares[owner]
                            .sends
                            .iter()
                            .any(|hand_off| hand_off.0 == port)
                    );
                }
            }
            for port in 0..ports as u16 {
                assert_eq!(tx_queues(&shares, port), tx.min(shares.len() as u16));
                assert_eq!(rx_queues(&shares, port), queues);
            }
        }
    }

    /// The worker that the ring of that number leads to.
    fn ring(share: &Share, number: u16) -> Option<usize> {
        let mut rings = share.rings.iter();
        rings.find(|ring| ring.0 == number).map(|ring| ring.1)
    }

    #[test]
    fn io_workers_feed_eu_workers_which_send_through_them() {
        for (ports, queues, tx, io, eu) in [(2, 1, 1, 1, 1), (2, 2, 8, 2, 3), (4, 1, 2, 3, 2)] {
            let shape = PortShape {
                rx_queues: queues,
                max_tx_queues: tx,
                outs: Vec::new(),
            };
            let shares = by_role(&vec![shape; ports], io, eu);
            assert_eq!(shares.len(), io + eu);
            let (first, second) = shares.split_at(io);
            for share in first {
                assert!(share.role == Role::Io && !share.polls.is_empty());
                for (k, number) in eus(ports, eu).enumerate() {
                    assert_eq!(ring(share, number), Some(io + k));
                }
                assert_eq!(share.sends.len() + share.hand_offs.len(), ports);
            }
            for share in second {
                assert_eq!((share.role, share.rings.len()), (Role::Eu, 0));
                assert!(share.polls.is_empty() && share.sends.is_empty());
                let reached: Vec<u16> = share.hand_offs.iter().map(|path| path.0).collect();
                assert_eq!(reached, (0..ports as u16).collect::<Vec<_>>());
                assert!(share.hand_offs.iter().all(|path| path.1 < io));
            }
        }
    }

    #[test]
    fn fewer_queues_than_io_workers_leave_some_out_but_no_eu_worker() {
        let shares = by_role(&pair(1, 1)[..1], 3, 2);
        let roles: Vec<Role> = shares.iter().map(|share| share.role).collect();
        assert_eq!(roles, [Role::Io, Role::Eu, Role::Eu]);
        assert_eq!(shares[0].rings, [(1, 1), (2, 2)]);
    }

    #[test]
    fn eu_workers_own_queues_of_ports_that_only_they_send_to() {
        let mut shares = by_role(&pair(1, 4), 1, 2);
        for share in &mut shares {
            share.sends.clear();
            share.hand_offs.clear();
        }
        reach(&mut shares, &pair(1, 4), |worker, _| worker > 0);
        assert_eq!(shares[1].sends, [(0, 0), (1, 0)]);
        assert_eq!(shares[2].sends, [(0, 1), (1, 1)]);
    }

    #[test]
    fn a_mesh_has_a_ring_from_each_worker_to_each_other() {
        let mut shares = vec![Share::default(); 4];
        mesh(&mut shares, 10, 0..4, |_| true);
        for (from, share) in shares.iter().enumerate() {
            for to in 0..4 {
                let expected = (from != to).then_some(to);
                assert_eq!(ring(share, 10 + to as u16), expected, "{from} to {to}");
            }
        }
    }

    #[test]
    fn a_share_of_ones_own_gets_the_ways_that_it_wants() {
        let user = PortShape {
            rx_queues: 1,
            max_tx_queues: 1,
            outs: Vec::new(),
        };
        // Two ports for users, and one that a background worker alone polls and sends to.
        let shapes = [user.clone(), user.clone(), user];
        let mut shares = poll(&shapes[..2], 1);
        shares.push(Share {
            polls: vec![(2, 0)],
            ..Share::default()
        });
        reach(&mut shares, &shapes, |worker, port| worker == 1 || port < 2);
        assert_eq!(shares[0].sends, [(0, 0), (1, 0)]);
        assert_eq!(shares[1].sends, [(2, 0)]);
        assert_eq!(shares[1].hand_offs, [(0, 0), (1, 0)]);
    }

    #[test]
    fn no_worker_is_without_a_queue_and_no_queue_without_a_worker() {
        for (ports, queues, workers) in [
            (1, 1, 4),
            (2, 3, 3),
            (2, 2, 4),
            (4, 1, 3),
            (3, 5, 16),
            (2, 8, 5),
        ] {
            let shapes: Vec<_> = (0..ports)
                .map(|port| PortShape {
                    rx_queues: queues,
                    max_tx_queues: 1,
                    outs: vec![port ^ 1],
                })
                .collect();
            let shares = spread(&shapes, workers);
            assert!(shares.iter().all(|share| !share.polls.is_empty()));
            let mut polled: Vec<_> = shares
                .iter()
                .flat_map(|share| share.polls.clone())
                .collect();
            polled.sort_unstable();
            let all: Vec<_> = (0..ports)
                .flat_map(|port| (0..queues).map(move |queue| (port, queue)))
                .collect();
            assert_eq!(
                polled, all,
                "{ports} ports, {queues} queues, {workers} workers"
            );
        }
    }
}
