//! Access lists: ordered rules over several fields.

mod arena;
pub(crate) mod block;
mod build;
pub mod generate;
pub(crate) mod key;
mod rule;
mod rules;
mod table;
pub(crate) mod tree;
pub(crate) mod window;

pub use key::{FRAGMENT, HAS_ICMP, HAS_PORTS, LATER, PacketKey, PacketKey4, PacketKey6, words6};
pub use rule::{
    Bits, Field, Fragment, Match, Match4, Match6, Prefix, Range, Rule, Rule4, Rule6, RuleError,
    TAGGED,
};
pub use table::{Acl, Acl4, Acl6, AclConfig};
