//! Targets of `fuzz/` that are private here. Built for fuzzing alone.

/// Takes any bytes as the memory that the kernel shares with an `af_packet` port.
///
/// # Panics
/// Where a frame lies outside of it, or a block is never given back.
pub fn af_packet_ring(input: &[u8]) {
    crate::af_packet::fuzz(input);
}
