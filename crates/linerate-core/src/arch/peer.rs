//! Copies from and to memory that a peer changes meanwhile.
//!
//! For `memcpy` that would be a race, which the language leaves undefined. On x86-64 the bytes go
//! through moves in inline assembly, which stand for a relaxed load or store of each byte (see
//! [`crate::arch`]); elsewhere, and under tools that look at each access, for what they say.
#![allow(unsafe_code)]

/// Copies `len` bytes. What the peer writes meanwhile may arrive in parts.
///
/// # Safety
/// `from` is valid for reading and `to` for writing `len` bytes; they do not overlap; at most one
/// of the two is memory that somebody else changes.
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { bytes::copy(to, from, len) }
}

/// As [`copy`], to memory that the peer's core has read: long ones by the processor's own copy,
/// which asks for the lines beside each other, where stores wait for each in turn.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
pub(crate) unsafe fn copy_to_peer(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { bytes::copy_to_peer(to, from, len) }
}

/// Loads 8 bytes, the first lowest, which need not be aligned.
///
/// # Safety
/// `from` is valid for reading 8 bytes.
#[inline(always)]
pub(crate) unsafe fn load_u64(from: *const u8) -> u64 {
    // SAFETY: the caller's promise.
    u64::from_le(unsafe { bytes::load_u64(from) })
}

/// Loads 4 bytes likewise.
///
/// # Safety
/// `from` is valid for reading 4 bytes.
#[inline(always)]
pub(crate) unsafe fn load_u32(from: *const u8) -> u32 {
    // SAFETY: the caller's promise.
    u32::from_le(unsafe { bytes::load_u32(from) })
}

#[cfg(all(target_arch = "x86_64", not(loom), not(tsan), not(miri)))]
mod bytes {
    use crate::arch::blocks::{copy_16_bytes, copy_64_bytes};
    use std::arch::asm;

    #[inline(always)]
    pub(super) unsafe fn load_u64(from: *const u8) -> u64 {
        let word;
        // SAFETY: the caller's promise.
        unsafe {
            asm!("mov {word}, [{from}]", from = in(reg) from, word = lateout(reg) word,
                options(nostack, readonly, preserves_flags));
        }
        word
    }

    #[inline(always)]
    pub(super) unsafe fn load_u32(from: *const u8) -> u32 {
        let word;
        // SAFETY: the caller's promise.
        unsafe {
            asm!("mov {word:e}, [{from}]", from = in(reg) from, word = lateout(reg) word,
                options(nostack, readonly, preserves_flags));
        }
        word
    }

    #[inline(always)]
    pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
        if len >= 16 {
            let last = len - 16;
            if len >= WIDE && std::arch::is_x86_feature_detected!("avx512f") {
                // SAFETY: the caller's promise; the processor has AVX-512F.
                return unsafe { copy_wide(to, from, len) };
            }
            if len > 64 {
                // SAFETY: the caller's promise.
                return unsafe { copy_long(to, from, len) };
            }
            // SAFETY: the first and the last 16 bytes, which overlap below 32.
            unsafe { copy_16_bytes(to.cast(), from.cast()) };
            // SAFETY: as above.
            unsafe { copy_16_bytes(to.wrapping_add(last).cast(), from.wrapping_add(last).cast()) };
            if len > 32 {
                // SAFETY: up to 48 bytes, and 16 before the last.
                unsafe { copy_16_bytes(to.wrapping_add(16).cast(), from.wrapping_add(16).cast()) };
                // SAFETY: as above; from 16 on at least, since `len` is more than 32.
                unsafe {
                    copy_16_bytes(
                        to.wrapping_add(last - 16).cast(),
                        from.wrapping_add(last - 16).cast(),
                    )
                };
            }
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { copy_short(to, from, len) }
    }

    /// Bytes from which on `rep movsb` is worth its start.
    const LONG: usize = 1024;

    #[inline(always)]
    pub(super) unsafe fn copy_to_peer(to: *mut u8, from: *const u8, len: usize) {
        if len >= LONG && std::arch::is_x86_feature_detected!("ermsb") {
            // SAFETY: the caller's promise; the direction flag is clear, as everywhere.
            return unsafe {
                asm!("rep movsb", inout("rcx") len => _, inout("rsi") from => _,
                    inout("rdi") to => _, options(nostack, preserves_flags));
            };
        }
        // SAFETY: the caller's promise.
        unsafe { copy(to, from, len) }
    }

    /// Bytes from which on 64-byte moves are worth a call.
    const WIDE: usize = 256;

    /// At least [`WIDE`] bytes. Registers above 15 leave the upper halves of the others clean.
    ///
    /// # Safety
    /// As for [`copy`], and AVX-512F.
    #[target_feature(enable = "avx512f")]
    unsafe fn copy_wide(to: *mut u8, from: *const u8, len: usize) {
        let last = len - 64;
        let mut done = 0;
        while done + 256 <= last {
            let (to, from) = (to.wrapping_add(done), from.wrapping_add(done));
            // SAFETY: 256 bytes from `done` on are inside.
            unsafe {
                asm!(
                    "vmovdqu64 zmm16, [{from}]",
                    "vmovdqu64 zmm17, [{from} + 64]",
                    "vmovdqu64 zmm18, [{from} + 128]",
                    "vmovdqu64 zmm19, [{from} + 192]",
                    "vmovdqu64 [{to}], zmm16",
                    "vmovdqu64 [{to} + 64], zmm17",
                    "vmovdqu64 [{to} + 128], zmm18",
                    "vmovdqu64 [{to} + 192], zmm19",
                    from = in(reg) from,
                    to = in(reg) to,
                    out("zmm16") _,
                    out("zmm17") _,
                    out("zmm18") _,
                    out("zmm19") _,
                    options(nostack, preserves_flags),
                );
            }
            done += 256;
        }
        while done < last {
            // SAFETY: 64 bytes from `done` on are inside.
            unsafe { move_64(to.wrapping_add(done), from.wrapping_add(done)) };
            done += 64;
        }
        // SAFETY: the last 64, of which some may have been copied before.
        unsafe { move_64(to.wrapping_add(last), from.wrapping_add(last)) };
    }

    /// # Safety
    /// As for [`copy_wide`], for 64 bytes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn move_64(to: *mut u8, from: *const u8) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "vmovdqu64 zmm16, [{from}]",
                "vmovdqu64 [{to}], zmm16",
                from = in(reg) from,
                to = in(reg) to,
                out("zmm16") _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// More than 64 bytes.
    #[inline]
    unsafe fn copy_long(to: *mut u8, from: *const u8, len: usize) {
        let last = len - 64;
        let mut done = 0;
        while done < last {
            // SAFETY: 64 bytes from `done` on are inside.
            unsafe { copy_64_bytes(to.wrapping_add(done).cast(), from.wrapping_add(done).cast()) };
            done += 64;
        }
        // SAFETY: the last 64, of which some may have been copied before.
        unsafe { copy_64_bytes(to.wrapping_add(last).cast(), from.wrapping_add(last).cast()) };
    }

    /// Fewer than 16 bytes.
    #[inline]
    unsafe fn copy_short(to: *mut u8, from: *const u8, len: usize) {
        let mut done = 0;
        if len & 8 != 0 {
            // SAFETY: 8 bytes at least.
            unsafe {
                asm!("mov {a}, [{from}]", "mov [{to}], {a}", from = in(reg) from, to = in(reg) to,
                    a = out(reg) _, options(nostack, preserves_flags));
            }
            done = 8;
        }
        if len & 4 != 0 {
            // SAFETY: 4 bytes more.
            unsafe {
                asm!("mov {a:e}, [{from} + {done}]", "mov [{to} + {done}], {a:e}",
                    from = in(reg) from, to = in(reg) to, done = in(reg) done,
                    a = out(reg) _, options(nostack, preserves_flags));
            }
            done += 4;
        }
        while done < len {
            // SAFETY: a byte inside.
            unsafe {
                asm!("mov {a}, [{from} + {done}]", "mov [{to} + {done}], {a}",
                    from = in(reg) from, to = in(reg) to, done = in(reg) done,
                    a = out(reg_byte) _, options(nostack, preserves_flags));
            }
            done += 1;
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(loom), not(tsan), not(miri))))]
mod bytes {
    use std::sync::atomic::{AtomicU8, Ordering};

    pub(super) unsafe fn copy_to_peer(to: *mut u8, from: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { copy(to, from, len) }
    }

    pub(super) unsafe fn load_u64(from: *const u8) -> u64 {
        let mut word = [0; 8];
        // SAFETY: the caller's promise.
        unsafe { copy(word.as_mut_ptr(), from, word.len()) };
        u64::from_ne_bytes(word)
    }

    pub(super) unsafe fn load_u32(from: *const u8) -> u32 {
        let mut word = [0; 4];
        // SAFETY: the caller's promise.
        unsafe { copy(word.as_mut_ptr(), from, word.len()) };
        u32::from_ne_bytes(word)
    }

    pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
        for index in 0..len {
            // SAFETY: a byte inside, which somebody else touches by atomics at most.
            let source = unsafe { &*from.wrapping_add(index).cast::<AtomicU8>() };
            // SAFETY: likewise.
            let target = unsafe { &*to.wrapping_add(index).cast::<AtomicU8>() };
            target.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{copy, copy_to_peer};

    type Way = unsafe fn(*mut u8, *const u8, usize);
    const WAYS: [Way; 2] = [copy, copy_to_peer];

    #[test]
    fn each_length_is_copied_and_nothing_beside_it() {
        let from: Vec<u8> = (0..4096).map(|i| (i % 251) as u8).collect();
        for len in (0..300).chain([511, 512, 1023, 1024, 1500, 4000]) {
            for (shift_to, shift_from) in [(1, 0), (7, 3), (16, 16), (33, 31)] {
                let mut to = vec![0xa5; 4200];
                let source = &from[shift_from..];
                for way in WAYS {
                    to.fill(0xa5);
                    // SAFETY: both have `len` bytes from there on.
                    unsafe { way(to[shift_to..].as_mut_ptr(), source.as_ptr(), len) };
                    assert_eq!(to[shift_to..shift_to + len], source[..len], "{len}");
                    assert!(to[..shift_to].iter().all(|&byte| byte == 0xa5), "{len}");
                    let behind = &to[shift_to + len..];
                    assert!(behind.iter().all(|&byte| byte == 0xa5), "{len}");
                }
            }
        }
    }
}
