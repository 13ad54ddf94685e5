//! Exact match.

use super::Row;
use super::growth::Growth;

pub(super) const ROWS: &[Row] = &[];

pub(super) const GROWTH: &[Growth] = &[];
