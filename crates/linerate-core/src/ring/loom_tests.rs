//! Loom models of the rings.
