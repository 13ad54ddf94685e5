//! The work of lcores: [`Sender`]s that keep a schedule, [`Receiver`]s that check, and the
//! [`Engine`], one lcore's loop over both.
//!
//! Counters have one writer, the lcore, and are read by the session at any time.

mod checks;
mod classify;
mod help;
mod latency;
mod lcore;
mod receiver;
mod replay;
mod responder;
mod schedule;
mod sender;
mod track;

pub use crate::signature::{Label, SIGNATURE_BYTES};
pub use checks::{Checks, Found};
pub use help::Helper;
pub use lcore::{Engine, EngineHandle, Load};
pub use receiver::{Books, Receiver, ReceiverStats};
pub use replay::{MOST_BYTES, Recording, Replay};
pub use responder::{Event, PortAddr, Responder, ResponderStats, announcements, echo_request};
pub use schedule::Pace;
pub use sender::{Content, GIVE_UP_AFTER, ScheduledStream, Sender, SenderStats, StreamSent};
pub use track::{Boundaries, StreamReceived};
