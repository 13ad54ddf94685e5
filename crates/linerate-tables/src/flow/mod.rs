//! Flow tables: what is known of a flow, and how it ages.

#[cfg(test)]
pub(crate) mod testing;
