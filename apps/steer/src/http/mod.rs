//! HTTP/1.1 (RFC 9110, RFC 9112) over a stack.
//!
//! | file | what |
//! |---|---|
//! | [`site`] | what there is to be had |
//! | [`request`] | heads of requests, and what is wrong with them |
//! | [`body`] | where the body of a message ends |
//! | [`answer`] | heads of responses |
//! | [`server`] | connections of the server |

pub mod answer;
pub mod body;
pub mod request;
pub mod server;
pub mod site;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
