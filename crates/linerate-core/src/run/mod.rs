//! Workers: how an lcore runs, sleeps and wakes.
//!
//! A [`Worker`] owns [`Inlet`]s, a pipeline of [`Stage`]s and an [`Egress`]; a [`WorkerHandle`]
//! talks to it between bursts. Read [`worker`](Worker) first, then [`stage`](Stage).

pub mod doorbell;
mod egress;
mod histogram;
mod idle;
pub mod ledger;
mod stage;
#[cfg(all(test, not(loom)))]
mod tests;
mod worker;

pub use egress::{DropCount, DropId, Egress, Way};
pub use histogram::{Histogram, HistogramSnapshot, bucket_count, bucket_of, bucket_upper};
pub use idle::{Idle, nap_on};
pub use stage::{Branch, Exits, Named, Point, Stage, StageExt, Tap, Then, named};
pub use worker::{Inlet, Source, Worker, WorkerGone, WorkerHandle, WorkerStats, move_inlet};
