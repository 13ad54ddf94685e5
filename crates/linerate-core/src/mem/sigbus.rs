//! Outlives a peer that truncates the file behind a mapping.
//!
//! Touching a page that a file no longer has raises SIGBUS. The handler here looks the address up
//! among the mappings of peers' files; where it finds one, it puts zeroed memory over the whole
//! mapping, marks it as lost, and the access that failed is done again. Any other SIGBUS goes to
//! the handler that was there before.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// Mappings watched at the same time, at most.
const MOST: usize = 4096;

struct Entry {
    taken: AtomicBool,
    /// 0 while it names no mapping.
    start: AtomicUsize,
    bytes: AtomicUsize,
    lost: AtomicBool,
}

static ENTRIES: [Entry; MOST] = [const {
    Entry {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; MOST];

/// The entries from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// An entry of the table, free again on drop.
pub(super) struct Watched(&'static Entry);

/// Takes an entry, and installs the handler with the first.
pub(super) fn watch() -> Result<Watched, String> {
    install()?;
    let (index, entry) = ENTRIES
        .iter()
        .enumerate()
        .find(|(_, entry)| !entry.taken.swap(true, Ordering::AcqRel))
        .ok_or_else(|| format!("{MOST} mappings of peers exist already"))?;
    entry.lost.store(false, Ordering::Relaxed);
    USED.fetch_max(index.saturating_add(1), Ordering::Release);
    Ok(Watched(entry))
}

impl Watched {
    /// From now on the mapping is replaced should its file shrink.
    pub(super) fn begin(&self, start: NonNull<u8>, bytes: usize) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
        self.0.start.store(start.addr().get(), Ordering::Release);
    }

    /// The mapping is about to go: its address range may be another one's next.
    pub(super) fn end(&self) {
        self.0.start.store(0, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.end();
        self.0.taken.store(false, Ordering::Release);
    }
}

/// What SIGBUS did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

fn install() -> Result<(), String> {
    static ONCE: Mutex<bool> = Mutex::new(false);
    let mut installed = ONCE.lock().unwrap_or_else(|broken| broken.into_inner());
    if *installed {
        return Ok(());
    }
    // SAFETY: all zeros are a valid sigaction.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only reads what is installed.
    let rc = unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) };
    let failed = || format!("sigaction: {}", std::io::Error::last_os_error());
    if rc != 0 {
        return Err(failed());
    }
    // Known before the handler is, which may need it at once.
    let _ = BEFORE.set(before);
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    // On the stack that the standard library keeps for faults; other signals wait.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the set is ours.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    // SAFETY: the handler does only what a signal handler may: atomics, and calls of the system.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(failed());
    }
    *installed = true;
    Ok(())
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid one.
    let info_of_fault = unsafe { &*info };
    // SAFETY: for SIGBUS the field is the address of the fault.
    let address = unsafe { info_of_fault.si_addr() };
    if replace(address.addr()) {
        return;
    }
    pass_on(signal, info, context);
}

/// Puts zeros where the mapping of this address was; false if it is none of a peer's.
fn replace(address: usize) -> bool {
    let used = USED.load(Ordering::Acquire);
    for entry in ENTRIES.iter().take(used) {
        let start = entry.start.load(Ordering::Acquire);
        let bytes = entry.bytes.load(Ordering::Relaxed);
        if start == 0 || address.wrapping_sub(start) >= bytes {
            continue;
        }
        entry.lost.store(true, Ordering::Relaxed);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let at = std::ptr::without_provenance_mut(start);
        // SAFETY: the whole range is the mapping of the one value that has this entry, which is
        // alive, since its memory was just touched; atomics and copies find zeros there from now.
        let mapped = unsafe { libc::mmap(at, bytes, access, flags, -1, 0) };
        return mapped != libc::MAP_FAILED;
    }
    false
}

/// What would have happened without the handler.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    type Plain = extern "C" fn(c_int);
    let before = BEFORE.get();
    let action = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if action == libc::SIG_DFL || action == libc::SIG_IGN {
        // A fault cannot be ignored: the access comes again, and then ends the process.
        // SAFETY: all zeros but for the action are a valid sigaction.
        let mut plain: libc::sigaction = unsafe { std::mem::zeroed() };
        plain.sa_sigaction = libc::SIG_DFL;
        // SAFETY: a signal handler may call it.
        unsafe { libc::sigaction(signal, &raw const plain, std::ptr::null_mut()) };
        return;
    }
    let with_info = before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0);
    if with_info {
        // SAFETY: the value was installed as a handler of this form.
        let handler = unsafe { std::mem::transmute::<usize, Handler>(action) };
        handler(signal, info, context);
    } else {
        // SAFETY: likewise.
        let handler = unsafe { std::mem::transmute::<usize, Plain>(action) };
        handler(signal);
    }
}
