//! Which pages of a guest's memory were written to: the log of a live migration, one bit a page.
//!
//! The front end reads and clears the bits while we set them. They lie in memory of its own,
//! reached as all such memory is.

use super::Violation;
use linerate_core::mem::Untrusted;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// `VHOST_LOG_PAGE`.
const PAGE: u64 = 4096;

/// The bits: page `p` is bit `p % 8` of byte `p / 8`.
#[derive(Clone, Debug)]
pub(crate) struct Log(Arc<Untrusted>);

impl Log {
    pub(crate) fn new(mapped: Untrusted) -> Self {
        Self(Arc::new(mapped))
    }

    /// Whether it has bits for all pages of a range.
    pub(crate) fn covers(&self, guest: u64, bytes: u64) -> bool {
        let last = guest.checked_add(bytes.saturating_sub(1));
        last.is_some_and(|last| last / PAGE / 8 < self.0.len() as u64)
    }

    /// Says that a range was written to, after it was.
    pub(crate) fn mark(&self, guest: u64, bytes: u64) -> Result<(), Violation> {
        if bytes == 0 {
            return Ok(());
        }
        let last = guest.checked_add(bytes - 1).ok_or(Violation::LogOutside)?;
        for page in guest / PAGE..=last / PAGE {
            let byte = usize::try_from(page / 8).ok();
            let byte = byte.and_then(|byte| self.0.u8s(byte, 1)?.first());
            let byte = byte.ok_or(Violation::LogOutside)?;
            byte.fetch_or(1 << (page % 8), Ordering::Relaxed);
        }
        Ok(())
    }

    /// What it lies in.
    pub(super) fn file(&self) -> &Arc<Untrusted> {
        &self.0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::memory::tests::mapped;
    use super::*;

    #[test]
    fn a_range_marks_the_pages_that_it_touches_and_no_others() {
        let bits = mapped(4096);
        let log = Log(bits.clone());
        let marked = || {
            let bytes = bits.u8s(0, 4096).unwrap().iter().enumerate();
            let bits = bytes.flat_map(|(at, byte)| (0..8).map(move |bit| (at, byte, bit)));
            let set = bits.filter(|(_, byte, bit)| byte.load(Ordering::Relaxed) >> bit & 1 == 1);
            set.map(|(at, _, bit)| 8 * at + bit).collect::<Vec<_>>()
        };
        log.mark(5 * PAGE + 7, 0).unwrap();
        assert!(marked().is_empty());
        log.mark(PAGE - 1, 1).unwrap();
        log.mark(3 * PAGE - 1, 2).unwrap();
        log.mark(9 * PAGE, PAGE).unwrap();
        assert_eq!(marked(), [0, 2, 3, 9]);
        let end = 8 * 4096 * PAGE;
        assert!(log.covers(end - 1, 1) && !log.covers(end - 1, 2) && !log.covers(u64::MAX, 2));
        assert_eq!(log.mark(end - 1, 2), Err(Violation::LogOutside));
        assert_eq!(log.mark(u64::MAX, 2), Err(Violation::LogOutside));
    }
}
