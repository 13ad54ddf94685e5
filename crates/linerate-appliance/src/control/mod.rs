//! How a running appliance is asked and told: clients of its control socket and of its metrics page
//! each have a thread; what they ask is done by the one thread that owns what they ask about, and
//! reaches it by its [`mailbox`].
//!
//! [`acceptor`] takes clients, for every kind of socket; [`server`] speaks requests and answers,
//! lines of JSON, and [`http`] serves the metrics that [`exposition`] writes. [`answers`] is what
//! every appliance is asked, and [`of_run`] one that has nothing of its own to say. [`show`] is
//! what tables are, [`tables`] and [`metrics`] what every run of workers says in them of its ports,
//! lcores and drops, of its stages by [`path`], and of where its packets are by [`ledger`];
//! [`cleared`] has counters shown from 0. [`capture`] and [`trace`] show packets as they pass the
//! points at which [`taps`] are set. [`reload`] takes changed files over.

pub mod acceptor;
pub mod answers;
pub mod capture;
pub mod cleared;
pub mod exposition;
pub mod http;
pub mod ledger;
pub mod mailbox;
pub mod metrics;
pub mod of_run;
pub mod path;
pub mod reload;
pub mod server;
pub mod show;
mod stream;
pub mod tables;
pub mod taps;
pub mod trace;

#[cfg(any(test, feature = "fuzz"))]
pub use stream::fuzz_params;
