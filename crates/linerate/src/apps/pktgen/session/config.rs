//! What a session is opened with.

use linerate_core::env::PlanSpec;

use crate::apps::pktgen::stream::StreamSpec;
use crate::apps::pktgen::units::Rate;

/// A port as the user asks for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortAsked {
    pub(crate) name: Option<String>,
    pub(crate) spec: String,
    /// What percentages are of, in bit/s.
    pub(crate) speed_bps: Option<f64>,
    /// Receive and transmit queues; where absent, one each, or more where there are lcores for them.
    pub(crate) rx_queues: Option<u16>,
    pub(crate) tx_queues: Option<u16>,
    /// Shared by the port's streams that have no rate, and no count, of their own.
    pub(crate) rate: Option<Rate>,
    pub(crate) count: Option<u64>,
    /// Largest bursts, 1 to 64; default 64.
    pub(crate) tx_burst: Option<u16>,
    pub(crate) rx_burst: Option<u16>,
}

/// What a session is opened with.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionConfig {
    pub(crate) profile: String,
    pub(crate) ports: Vec<PortAsked>,
    pub(crate) streams: Vec<StreamSpec>,
    /// Pktgen's `-m`; where absent, lcores are mapped automatically.
    pub(crate) map: Option<String>,
    /// CPUs for lcores, the n-th for lcore n of the map; where empty, those of the plan, or lcore n is CPU n.
    pub(crate) cpus: Vec<u32>,
    /// Roles and slots, for the automatic map.
    pub(crate) plan: PlanSpec,
    pub(crate) seed: u64,
    /// Slots of the main pool; chosen by the queues where absent.
    pub(crate) pool_slots: Option<u32>,
    /// Slots for frames up to 64 KiB as well, also where no stream needs them yet.
    pub(crate) jumbo: bool,
}
