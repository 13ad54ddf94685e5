//! Targets of `fuzz/` that are private here. Built for fuzzing alone.

/// Takes any bytes as the memory that the kernel shares with an `af_packet` port.
///
/// # Panics
/// Where a frame lies outside of it, or a block is never given back.
pub fn af_packet_ring(input: &[u8]) {
    crate::af_packet::fuzz(input);
}

/// Any bytes as the messages that a client of a `memif` server sends.
///
/// # Panics
/// Where a ring comes to lie outside of its region.
pub fn memif_messages(input: &[u8]) {
    crate::memif::fuzz::messages(input);
}

/// Any bytes as the memory that a `memif` port shares with its peer.
///
/// # Panics
/// Where a packet is longer than its slot, or a slot is lost.
pub fn memif_ring(input: &[u8]) {
    crate::memif::fuzz::ring(input);
}

/// Any bytes as the header of a shared file, and as what a peer does to its rings.
///
/// # Panics
/// Where an end of a ring leaves the file, or does not recover.
pub fn shm_ring(input: &[u8]) {
    crate::shm::fuzz::check(input);
}

/// Any bytes as the rings of a virtqueue, of either kind, for either side.
///
/// # Panics
/// Where a packet is longer than its slot.
pub fn virtqueue(input: &[u8]) {
    crate::virtqueue::fuzz::run(input);
}

/// Any bytes as the record of what a virtqueue's device has in flight, of either kind.
///
/// # Panics
/// Where a packet is longer than its slot, or what is another queue's was written to.
pub fn inflight_record(input: &[u8]) {
    crate::virtqueue::fuzz::run_record(input);
}

/// Any bytes as what a vhost-user front end sends, with descriptors.
pub fn vhost_messages(input: &[u8]) {
    crate::vhost::fuzz::run(input);
}
