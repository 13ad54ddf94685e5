//! Buckets, and the one that the port of a pool's address says.

pub use linerate_dispatch::bucket::{BUCKETS, Bucket, Hash};

/// The bucket that a port of a pool's address says: neighbours of an even and an odd port share
/// one (RTP and RTCP, RFC 4787 4.2.2), and so do all addresses.
#[inline(always)]
pub fn of_port(port: u16) -> Bucket {
    (port >> 1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_port_and_the_next_have_one_bucket_and_all_buckets_as_many() {
        let mut counts = [0; BUCKETS];
        for port in (1024..=u16::MAX).step_by(2) {
            assert_eq!(of_port(port), of_port(port + 1));
            counts[usize::from(of_port(port))] += 2;
        }
        assert!(counts.iter().all(|&count| count == 252));
    }
}
