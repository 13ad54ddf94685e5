//! Maglev consistent hashing with weights.
