//! How a running appliance is asked and told: clients of its control socket and of its metrics page
//! each have a thread; what they ask is done by the one thread that owns what they ask about, and
//! reaches it by its [`mailbox`].
//!
//! [`acceptor`] takes clients, for every kind of socket; [`server`] speaks requests and answers,
//! lines of JSON, and [`http`] serves the metrics that [`exposition`] writes. [`show`] and
//! [`metrics`] are what every appliance can say of its ports, lcores and drops, [`path`] of its
//! stages, [`ledger`] of where its packets are. [`capture`] and [`trace`] show packets as they pass
//! the points at which [`taps`] are set. [`answers`] is all of it for an appliance that has nothing
//! else to say, [`of_run`] what the [run](crate::runtime::watch()) of workers answers. [`reload`]
//! takes changed files over.

pub mod acceptor;
pub mod answers;
pub mod capture;
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
pub mod taps;
pub mod trace;

#[cfg(any(test, feature = "fuzz"))]
pub use stream::fuzz_params;
