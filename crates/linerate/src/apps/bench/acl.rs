//! Access lists.

use super::growth::Growth;
use super::{Input, Row};

pub(super) const ROWS: &[Row] = &[];

/// What DPDK's side works on too.
pub(super) const INPUTS: &[Input] = &[];

pub(super) const GROWTH: &[Growth] = &[];
