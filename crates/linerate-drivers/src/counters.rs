//! What the ports of this crate do alike: count per queue, and refuse queues that they do not have.

use linerate_core::port::{PortConfig, PortError, PortInfo, PortStats, QueueStats};
use std::sync::Arc;

/// The counters of a port's queues: one set for each queue ever started, kept over restarts.
#[derive(Debug, Default)]
pub struct Counters {
    rx: Vec<Arc<QueueStats>>,
    tx: Vec<Arc<QueueStats>>,
}

impl Counters {
    /// Checks a start: as many queues as the port has, and none of an earlier start left.
    ///
    /// # Errors
    /// [`PortError::TooManyQueues`], or [`PortError::Unsupported`] while queues are alive.
    pub fn check_start(&self, info: &PortInfo, config: &PortConfig) -> Result<(), PortError> {
        let check = |direction, asked, max| {
            let fix =
                format!("start it with at most {max}, or give it more (see `linerate ports`)");
            let error = PortError::TooManyQueues {
                port: info.name.clone(),
                direction,
                asked,
                max,
                fix,
            };
            if asked > max { Err(error) } else { Ok(()) }
        };
        check("receive", config.rx_queues, info.max_rx_queues)?;
        check("transmit", config.tx_queues, info.max_tx_queues)?;
        self.check_stop(&info.name)
    }

    /// Checks that the queues are gone, as they must be before a port stops.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] with their number.
    pub fn check_stop(&self, port: &str) -> Result<(), PortError> {
        let alive = self
            .rx
            .iter()
            .chain(&self.tx)
            .filter(|queue| Arc::strong_count(queue) > 1)
            .count();
        let reason = format!(
            "{alive} of its queues are still in use; drop them before it stops or starts again"
        );
        if alive > 0 {
            Err(PortError::Unsupported {
                port: port.into(),
                reason,
            })
        } else {
            Ok(())
        }
    }

    /// The counters of receive queue `index`, for that queue to write.
    pub fn rx(&mut self, index: usize) -> Arc<QueueStats> {
        queue(&mut self.rx, index)
    }

    /// The counters of transmit queue `index`, for that queue to write.
    pub fn tx(&mut self, index: usize) -> Arc<QueueStats> {
        queue(&mut self.tx, index)
    }

    /// Sums over all queues and starts.
    pub fn sum(&self) -> PortStats {
        PortStats::sum(&self.rx, &self.tx)
    }
}

fn queue(all: &mut Vec<Arc<QueueStats>>, index: usize) -> Arc<QueueStats> {
    if index >= all.len() {
        all.resize_with(index + 1, QueueStats::new);
    }
    all[index].clone()
}
