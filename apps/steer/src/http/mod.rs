//! HTTP/1.1 (RFC 9110, RFC 9112) over a stack.
//!
//! | file | what |
//! |---|---|
//! | [`site`] | what there is to be had |
//! | `head` | the parts that heads are made of |
//! | [`request`] | heads of requests, and what is wrong with them |
//! | [`body`] | where the body of a message ends |
//! | [`answer`] | heads of responses |
//! | [`server`] | connections of the server |
//! | [`response`] | heads of responses, as they come |
//! | [`client`] | connections of the client, and when requests leave |
//! | [`mod@bench`] | the client as a measurement: `linerate bench http` |

pub mod answer;
pub mod bench;
pub mod body;
pub mod client;
mod head;
pub mod request;
pub mod response;
pub mod server;
pub mod site;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
