//! Exact match: fixed-size keys.
