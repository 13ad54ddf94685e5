//! What runs on lcores: [`Sender`]s that keep a schedule, [`Receiver`]s that check, and the
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

pub(crate) use super::signature::{Label, SIGNATURE_BYTES};
pub(crate) use checks::{Checks, Found};
pub(crate) use help::Helper;
pub(crate) use lcore::{Engine, EngineHandle, Load};
pub(crate) use receiver::{Books, Receiver, ReceiverStats};
pub(crate) use replay::{MOST_BYTES, Recording, Replay};
pub(crate) use responder::{Event, PortAddr, Responder, ResponderStats};
pub(crate) use schedule::Pace;
pub(crate) use sender::{Content, GIVE_UP_AFTER, Lane, Sender, SenderStats, StreamSent};
pub(crate) use track::{Boundaries, StreamReceived};
