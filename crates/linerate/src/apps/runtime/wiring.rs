//! Who polls what: spreads the queues of all ports over the workers, before anything is opened.
//!
//! Every port has one port that its packets go to. A worker that sends to a port gets a transmit
//! queue of it while there are any; the others hand their packets to a worker that has one.

/// What there is to spread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortShape {
    /// Receive queues to poll.
    pub(crate) rx_queues: u16,
    /// Transmit queues that the port can have.
    pub(crate) max_tx_queues: u16,
    /// The port that its packets go to.
    pub(crate) out: u16,
}

/// One worker's share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Receive queues that it polls: port and queue.
    pub(crate) polls: Vec<(u16, u16)>,
    /// Transmit queues that it owns: port and queue.
    pub(crate) sends: Vec<(u16, u16)>,
    /// Ports that it reaches through another worker: port and worker.
    pub(crate) hands: Vec<(u16, usize)>,
}

/// Spreads the queues over up to `workers` shares; none of them is empty.
pub(crate) fn spread(ports: &[PortShape], workers: usize) -> Vec<Share> {
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
    if let Some(reached) = shares.iter().position(|share| share.polls.is_empty()) {
        // More workers than the pattern reaches.
        return spread(ports, reached);
    }
    for (port, shape) in (0..).zip(ports) {
        let feeds = |share: &Share| {
            share
                .polls
                .iter()
                .any(|&(from, _)| ports[usize::from(from)].out == port)
        };
        let senders: Vec<usize> = (0..workers)
            .filter(|&worker| feeds(&shares[worker]))
            .collect();
        let owners = senders.len().min(usize::from(shape.max_tx_queues.max(1)));
        for (index, &worker) in senders.iter().enumerate() {
            if index < owners {
                shares[worker].sends.push((port, index as u16));
            } else {
                shares[worker].hands.push((port, senders[index % owners]));
            }
        }
    }
    shares
}

/// Transmit queues that a port is started with.
pub(crate) fn tx_queues(shares: &[Share], port: u16) -> u16 {
    let of_port = |share: &&Share| share.sends.iter().any(|&(to, _)| to == port);
    shares.iter().filter(of_port).count() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(rx_queues: u16, max_tx_queues: u16) -> [PortShape; 2] {
        [1, 0].map(|out| PortShape {
            rx_queues,
            max_tx_queues,
            out,
        })
    }

    #[test]
    fn one_worker_has_everything() {
        let shares = spread(&pair(2, 1), 1);
        assert_eq!(shares.len(), 1);
        assert_eq!(shares[0].polls, [(0, 0), (0, 1), (1, 0), (1, 1)]);
        assert_eq!(shares[0].sends, [(0, 0), (1, 0)]);
        assert!(shares[0].hands.is_empty());
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
    fn who_finds_no_transmit_queue_hands_over_to_an_owner() {
        let shares = spread(&pair(2, 1), 2);
        assert_eq!(shares[0].sends, [(0, 0), (1, 0)]);
        assert_eq!(shares[1].sends, []);
        assert_eq!(shares[1].hands, [(0, 0), (1, 0)]);
        assert_eq!(tx_queues(&shares, 0), 1);
        assert_eq!(tx_queues(&spread(&pair(2, 8), 2), 1), 2);
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
                    out: port ^ 1,
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
