//! The two affinity system calls, without the C library's limit of 1024 CPUs.
#![allow(unsafe_code)]

use std::io;

use super::CpuList;
use super::cpulist::LIMIT;

const WORDS: usize = LIMIT as usize / 64;

/// The CPUs on which the process's main thread may run: its cpuset and its taskset.
///
/// # Errors
/// The error of `sched_getaffinity(2)`.
pub fn allowed() -> io::Result<CpuList> {
    let mut mask = [0u64; WORDS];
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let (len, words) = (size_of_val(&mask), mask.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `len` bytes to `mask`, which lives here and is aligned more
    // strictly than the mask of longs that the call expects.
    let result = unsafe { libc::sched_getaffinity(pid, len, words) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((0..LIMIT)
        .filter(|&cpu| mask[cpu as usize / 64] >> (cpu % 64) & 1 == 1)
        .collect())
}

/// Binds the calling thread to one CPU.
pub(super) fn pin(cpu: u32) -> io::Result<()> {
    if cpu >= LIMIT {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut mask = [0u64; WORDS];
    mask[cpu as usize / 64] = 1 << (cpu % 64);
    // SAFETY: the kernel reads `size_of_val(&mask)` bytes of `mask`, which lives here; pid 0 is the
    // calling thread.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
