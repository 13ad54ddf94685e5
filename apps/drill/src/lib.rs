//! `linerate drill`: packetdrill's language against Linux, and in virtual time against a stack.
//!
//! A script says what goes over the wire, what the application does, and when. [`parse`] reads it.
//! The runner plays the remote host and the application: [`run_virtual`] against an [`Endpoint`], a
//! stack without a clock, such as linerate's own with [`stack::run`]; [`linux::run`] against the
//! kernel of this machine. The same script proves both. docs/drill.md has the language.
#![forbid(unsafe_code)]

mod call;
mod code;
mod command;
mod endpoint;
mod fault;
mod lex;
pub mod linux;
mod names;
mod packet;
mod parse;
mod run;
mod script;
mod settings;
pub mod stack;
#[cfg(test)]
mod tests;
mod virtual_time;

pub use call::{Call, Handle, Info, OptionForm, OptionValue, Out, Reply, SocketKind};
pub use code::{Code, Variables};
pub use command::{Args, run};
pub use endpoint::Endpoint;
pub use fault::{At, Fault, Kind};
pub use names::{constant, error_name, error_number};
pub use packet::{Layer4, MAX_OPTION_BYTES, Seen, Segment, TcpOption, flag, read};
pub use parse::{parse, parse_with};
pub use run::{Config, IpVersion, Outcome};
pub use script::{
    Action, Body, CallSpec, Event, Expr, IcmpSpec, IpSpec, PacketSpec, Quoted, Script, TcpSpec,
    TosSpec, When,
};
pub use settings::DEFAULTS;

/// Runs a script in virtual time. Nothing sleeps, and the same script and stack give the same
/// outcome every time.
///
/// # Panics
/// If the stack asks for one and the same time ten thousand times in a row.
pub fn run_virtual(script: &Script, config: &Config, stack: &mut dyn Endpoint) -> Outcome {
    let mut world = virtual_time::VirtualTime::new(stack);
    run::Runner::new(&mut world, config).run(script)
}
