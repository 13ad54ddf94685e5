//! Workers: how an lcore runs, sleeps and wakes.
//!
//! A [`Worker`] owns [`Inlet`]s, a pipeline of [`Stage`]s and an [`Egress`]; a [`WorkerHandle`]
//! talks to it between bursts. Read [`worker`](Worker) first, then [`stage`](Stage), then
//! [`point`](Point): what is counted, shown and measured at each stage by its name.

mod by_role;
pub mod doorbell;
mod egress;
mod histogram;
mod idle;
pub mod ledger;
#[cfg(all(test, loom))]
mod loom_tests;
mod point;
mod stage;
#[cfg(all(test, not(loom)))]
mod tests;
mod worker;

pub use by_role::ByRole;
pub use egress::{DropCount, DropId, Egress, Handed, TxPath};
pub use histogram::{Histogram, HistogramSnapshot, bucket_count, bucket_of, bucket_upper};
pub use idle::{Idle, WAKE_UP, nap_on};
pub use point::{Named, Passing, Point, Tap, named};
pub use stage::{Branch, BurstContext, Exits, NEVER, Stage, StageExt, Then, WithContext};
pub use worker::{Inlet, Source, Worker, WorkerGone, WorkerHandle, WorkerStats, move_inlet};
