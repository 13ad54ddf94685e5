//! Where memory comes from: one reserved address range, regions of pages in it, and typed arrays.
//!
//! `space` owns the range (the process's only static), [`Region`] owns mapped pages and gives
//! them back on drop, [`HugeArray`] is a region seen as `[T]` for tables, and [`Untrusted`] is
//! memory that a peer writes to.

// Sizes come from callers, and release builds wrap.
#![warn(clippy::arithmetic_side_effects)]

mod array;
mod region;
mod sigbus;
pub(crate) mod space;
#[cfg_attr(miri, path = "sys_miri.rs")]
mod sys;
mod untrusted;

pub use array::HugeArray;
pub use region::{PageKind, PagePolicy, Region, RegionConfig};
pub use untrusted::{CHECKED, FileFrom, Untrusted, Window, chunk_at};
