//! What can be wrong with a message.

use core::fmt;

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The length of a message is less than a header, or more than the buffer has.
    Length {
        /// What it says, in bytes.
        says: u32,
        /// What there is.
        has: usize,
    },
    /// The fixed part of a message of this type is not all there.
    Short {
        /// The message's type.
        kind: u16,
        /// Its bytes behind the header.
        has: usize,
    },
    /// The length of an attribute is less than its header, or more than the message has.
    AttributeLength {
        /// The attribute's type.
        attribute: u16,
        /// What it says, in bytes.
        says: u16,
        /// What there is.
        has: usize,
    },
    /// An attribute's value has not the size of its type.
    Value {
        /// The message's type.
        kind: u16,
        /// The attribute's type.
        attribute: u16,
        /// Bytes of the value.
        has: usize,
    },
    /// A prefix is longer than an address.
    Prefix {
        /// Its length in bits.
        len: u8,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { says, has } => {
                write!(f, "a netlink message says it has {says} bytes, of {has}")
            }
            Self::Short { kind, has } => {
                write!(f, "netlink message {kind} ends after {has} bytes")
            }
            Self::AttributeLength {
                attribute,
                says,
                has,
            } => write!(
                f,
                "netlink attribute {attribute} says it has {says} bytes, of {has}"
            ),
            Self::Value {
                kind,
                attribute,
                has,
            } => write!(
                f,
                "attribute {attribute} of netlink message {kind} has a value of {has} bytes"
            ),
            Self::Prefix { len } => write!(f, "a prefix of {len} bits"),
        }
    }
}

impl core::error::Error for Flaw {}
