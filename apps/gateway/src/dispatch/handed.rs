//! What packets that workers hand to each other carry with them.

use linerate_core::packet::UserData;
use linerate_dispatch::Mark;
use linerate_tables::parse::Mask;

use super::bucket::Bucket;

/// What a packet that is handed over carries with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// The interface that it came by.
    pub interface: u16,
    /// Its bucket, as the worker said that received it.
    pub bucket: Bucket,
    /// Whether it was put together from fragments.
    pub is_whole: bool,
    /// Whether it has turned: it comes from inside with an outside source.
    pub has_turned: bool,
    /// Whether the headers that its sender wrote lie behind it.
    pub has_original: bool,
}

/// What is known of the packets of a burst that is sorted, besides their buckets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sorted {
    /// Those that are sorted at all.
    pub mask: Mask,
    /// Those that were put together from fragments.
    pub whole: Mask,
    /// Whether they have turned.
    pub turned: bool,
    /// Those whose original headers lie behind them.
    pub originals: Mask,
}

impl UserData for Handed {
    #[inline(always)]
    fn from_words([first, _]: [u64; 2]) -> Self {
        Self {
            interface: first as u16,
            bucket: (first >> 16) as u8,
            is_whole: first >> 24 & 1 != 0,
            has_turned: first >> 25 & 1 != 0,
            has_original: first >> 26 & 1 != 0,
        }
    }

    #[inline(always)]
    fn into_words(self) -> [u64; 2] {
        let bucket = u64::from(self.bucket) << 16;
        let first = u64::from(self.interface) | bucket | u64::from(self.is_whole) << 24;
        let turned = u64::from(self.has_turned) << 25 | u64::from(self.has_original) << 26;
        [first | turned, 0]
    }
}

impl Mark for Handed {
    #[inline(always)]
    fn bucket(&self) -> Bucket {
        self.bucket
    }
}

impl Sorted {
    /// What the packet at a position carries with it.
    #[inline(always)]
    pub fn handed(&self, index: usize, interface: u16, bucket: Bucket) -> Handed {
        Handed {
            interface,
            bucket,
            is_whole: self.whole >> index & 1 != 0,
            has_turned: self.turned,
            has_original: self.originals >> index & 1 != 0,
        }
    }
}
