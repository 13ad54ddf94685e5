//! A TCP stack behind steering: the lcore that has connections, as a host of [`steering`].
//!
//! | file | what |
//! |---|---|
//! | [`host`] | a stack and its user, as steering's [`Host`](crate::steering::Host) |
//! | [`post`] | connections on their way from lcore to lcore |
//! | [`rule`] | the local ports of connections that begin here |
//!
//! Every lcore has a [`Steered`](crate::steering::Steered) around a [`StackHost`]: steering brings
//! its packets, the stack has its connections, the [`User`] serves them. Nothing of it is shared
//! but rings.
//!
//! # How a connection moves
//!
//! Its user says [`move_to`](linerate_stack::socket::Io::move_to). When the user's call is over,
//! the connection is taken out of the stack with all that is under way and put into a ring of its
//! own kind ([`post`]), and a message behind it into the ring of packets. The new lcore looks into
//! the former before it takes anything out of the latter, so the connection is there before any
//! packet that follows it, even if the message found no room. What the user had in mind for the
//! connection goes as its token; bytes that were not read go along.
//!
//! [`steering`]: crate::steering

pub mod host;
pub mod post;
pub mod rule;
#[cfg(test)]
mod tests;

pub use host::{HostCounts, StackHost, User};
pub use post::{Post, mesh};
