//! Pools whose slots a peer maps, for it is trusted with them: `trust=full` (ADR 43).

use linerate_core::packet::{Pool, Pools};
use linerate_core::port::PortError;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Pools that the peer maps, in their order.
#[derive(Clone, Debug)]
pub(crate) struct ExposedPools(Vec<Span>);

/// Where a pool's slots lie.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) pool: Pool,
    pub(crate) bounds: Bounds,
}

impl ExposedPools {
    /// Those of the pools that can be mapped, if the first is one of them.
    ///
    /// # Errors
    /// Why not, and what to do about it.
    pub(crate) fn of(pools: &Pools) -> Result<Self, String> {
        let first = pools.primary();
        if first.exposed().is_none() {
            let name = first.name();
            return Err(format!(
                "pool `{name}` is private memory, and `trust=full` gives the pool to the peer: \
                 make it an exposed one (`PoolConfig::exposed`), or leave `trust=` out"
            ));
        }
        let exposed = pools.iter().filter(|pool| pool.exposed().is_some());
        let span = |pool: &Pool| {
            let (start, bytes) = pool.data_span();
            Span {
                pool: pool.clone(),
                bounds: Bounds {
                    start: start.addr(),
                    bytes,
                },
            }
        };
        Ok(Self(exposed.map(span).collect()))
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.0
    }

    /// The pool that ports receive into.
    pub(crate) fn first(&self) -> &Span {
        &self.0[0]
    }

    /// Whether the first pool has enough slots for `needed` to be with the peer.
    ///
    /// # Errors
    /// [`PortError::PoolTooSmall`].
    pub(crate) fn can_lend(&self, port: &str, needed: u32) -> Result<(), PortError> {
        let pool = &self.first().pool;
        if needed < pool.slots() {
            return Ok(());
        }
        Err(PortError::PoolTooSmall {
            port: port.into(),
            pool: pool.name().into(),
            slots: pool.slots(),
            needed,
        })
    }

    /// The files to be sent, in the order of the pools, with their bytes.
    ///
    /// # Errors
    /// The kernel's: too many open files.
    pub(crate) fn files(&self) -> std::io::Result<Vec<(OwnedFd, u64)>> {
        let files = self.0.iter().filter_map(|span| span.pool.exposed());
        let sized = |file: BorrowedFd<'_>| -> std::io::Result<(OwnedFd, u64)> {
            let bytes = rustix::fs::fstat(file)?.st_size.cast_unsigned();
            Ok((file.try_clone_to_owned()?, bytes))
        };
        files.map(sized).collect()
    }

    /// Whether a peer took pages out of one of them.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.iter().any(|span| span.pool.is_lost())
    }

    /// For people: what the peer can read and write.
    pub(crate) fn describe(&self) -> String {
        let pools = self.0.iter();
        let pools: Vec<String> = pools
            .map(|span| format!("`{}` ({} slots)", span.pool.name(), span.pool.slots()))
            .collect();
        let pools = pools.join(", ");
        format!("full: the peer can read and write every packet of pool {pools}")
    }
}

/// Where a pool's slots lie, in registers: what is in memory would be loaded again after each
/// descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    start: usize,
    pub(crate) bytes: usize,
}

impl Bounds {
    /// Where in the pool's file data lies that is a packet's, or a part of it.
    #[inline(always)]
    pub(crate) fn offset(self, data: &[u8]) -> Option<usize> {
        let offset = data.as_ptr().addr().wrapping_sub(self.start);
        (offset < self.bytes).then_some(offset)
    }
}

/// For people, before there is a pool.
pub(crate) const UNSTARTED: &str =
    "full: the peer can read and write every packet of the port's pool";

/// What `trust=` of a port says.
///
/// # Errors
/// What it has to be.
pub(crate) fn is_full(trust: Option<&str>) -> Result<bool, &'static str> {
    match trust {
        None | Some("none") => Ok(false),
        Some("full") => Ok(true),
        Some(_) => Err("`none` or `full`"),
    }
}
