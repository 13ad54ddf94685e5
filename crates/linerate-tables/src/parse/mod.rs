//! Bursts to offsets, keys and checksum verdicts.
