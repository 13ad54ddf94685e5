//! Hierarchical timing wheel.
