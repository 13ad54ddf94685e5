//! Where urgent data ends (RFC 9293 3.8.5, RFC 6093), of the few connections that have some.
//!
//! A pointer is what all stacks make of it: the sequence number behind the last urgent byte (RFC
//! 6093 3.2 and 4), not that of the byte itself, as RFC 1122 had it. What is kept of it is in an
//! arena of the stack, since nearly no connection ever needs it.

/// Where it ends, in each direction: sequence numbers behind the last byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Urgent {
    /// Of what is sent, until it is acknowledged.
    pub sent: Option<u32>,
    /// Of what is received, until what lies behind it is read.
    pub received: Option<u32>,
    /// The last urgent byte, taken out of the stream for a user who wants it apart.
    pub byte: Option<u8>,
    /// The user has read that byte.
    pub is_taken: bool,
}
