//! Poll-mode drivers: one folder per kind of port, one row for each in [`KINDS`].
//!
//! [`Drivers`] turns a port as the user writes it (`ring:a,size=1024`) into a
//! [`Port`]. It is a plain value, for there are no globals: the two ends
//! of an in-process ring find each other through the `Drivers` that opened both.
//!
//! ```
//! use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
//! use linerate_core::port::{Link, PortConfig};
//!
//! let mut drivers = linerate_drivers::Drivers::new();
//! let mut left = drivers.open("ring:a,size=256")?;
//! let mut right = drivers.open("ring:a")?;
//! let pools = Pools::new(vec![Pool::new(&PoolConfig::new("packets", 1024))?]);
//! let mut from = left.start(&PortConfig::default(), &pools)?;
//! let mut to = right.start(&PortConfig::default(), &pools)?;
//! assert_eq!(left.link(), Link::Up);
//!
//! let mut cache = PoolCache::new(pools.as_slice());
//! let mut burst = Burst::new();
//! cache.fill(pools.primary(), &mut burst, 32);
//! assert_eq!(from.tx[0].tx_burst(&mut burst, &mut cache), 32);
//! assert_eq!(to.rx[0].rx_burst(&mut burst, &mut cache), 32);
//! # Ok::<(), linerate_core::port::PortError>(())
//! ```

pub mod af_packet;
pub mod af_xdp;
mod counters;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod link;
pub mod memif;
pub mod null;
pub mod offload;
mod opener;
mod pace;
pub mod pcap;
mod peer;
pub mod ring;
pub mod shm;
pub mod sockopt;
pub mod tap;
pub mod vhost;
pub mod virtio_user;
mod virtqueue;
mod vnet;
mod wrap;

pub use counters::Counters;
pub use opener::{Opener, Own, TapChange, XdpProgram};
pub use peer::{UnixAccess, UnixAddress, UnixKind};
pub use wrap::COMMON_OPTIONS;

use linerate_core::port::{MakeRssHash, OptionHelp, Port, PortError, Spec};
use std::sync::Arc;

/// One kind of port, as `linerate ports` shows it.
#[derive(Clone, Copy)]
pub struct PortKind {
    /// What stands before the colon.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// A port of the kind, as one would write it.
    pub example: &'static str,
    /// The options it takes besides [`COMMON_OPTIONS`].
    pub options: &'static [OptionHelp],
    /// Makes a port; the options' names are checked already.
    pub open: Open,
}

/// Makes a port from its spec.
pub type Open = fn(&Spec, &mut Drivers) -> Result<Box<dyn Port>, PortError>;

/// Every kind of port: one row per driver.
pub const KINDS: &[PortKind] = &[
    null::KIND,
    pcap::KIND,
    ring::KIND,
    shm::KIND,
    tap::KIND,
    af_packet::KIND,
    af_xdp::KIND,
    memif::KIND,
    vhost::KIND,
    virtio_user::KIND,
];

/// Opens ports by name, and knows what they share: in-process rings, and sockets that listen.
#[derive(Debug)]
pub struct Drivers {
    pub(crate) rings: ring::Registry,
    pub(crate) memifs: memif::Listeners,
    pub(crate) opener: Arc<dyn Opener>,
    /// Whether ports join TCP segments where their options do not say.
    pub(crate) joins: bool,
    /// Makes the hashes of the NICs that ring ports play.
    pub(crate) rss_hash: Option<MakeRssHash>,
}

impl Default for Drivers {
    fn default() -> Self {
        Self::opened_by(Arc::new(Own))
    }
}

impl Drivers {
    /// No port is open yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, with somebody else to open what takes privileges.
    pub fn opened_by(opener: Arc<dyn Opener>) -> Self {
        Self {
            rings: ring::Registry::default(),
            memifs: memif::Listeners::default(),
            opener,
            joins: false,
            rss_hash: None,
        }
    }

    /// The same for who forwards: ports on virtual interfaces join TCP segments before they send
    /// them, unless their options say otherwise.
    #[must_use]
    pub fn joining_segments(self) -> Self {
        Self {
            joins: true,
            ..self
        }
    }

    /// The same for who knows NICs: ring ports may play one (`rss=`), whose hash `make` makes.
    #[must_use]
    pub fn playing_nics(self, make: MakeRssHash) -> Self {
        Self {
            rss_hash: Some(make),
            ..self
        }
    }

    /// Every kind of port.
    pub fn kinds() -> &'static [PortKind] {
        KINDS
    }

    /// Opens a port written `KIND:TARGET[,key=value...]`. It is not started, and where a driver can
    /// tell already, what it needs was checked.
    ///
    /// # Errors
    /// [`PortError`] names the port, what is wrong with it, and what would be right.
    pub fn open(&mut self, spec: &str) -> Result<Box<dyn Port>, PortError> {
        let spec: Spec = spec.parse()?;
        let Some(kind) = KINDS.iter().find(|kind| kind.name == spec.kind()) else {
            let known = KINDS
                .iter()
                .map(|kind| kind.name)
                .collect::<Vec<_>>()
                .join(", ");
            return Err(PortError::UnknownKind {
                kind: spec.kind().into(),
                known,
            });
        };
        spec.check_keys(&[kind.options, COMMON_OPTIONS].concat())?;
        wrap::wrap(&spec, (kind.open)(&spec, self)?, &*self.opener)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
