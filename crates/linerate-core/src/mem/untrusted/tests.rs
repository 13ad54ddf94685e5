use super::*;
use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

fn memfd(bytes: u64) -> OwnedFd {
    let fd = memfd_create("peer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, bytes).unwrap();
    fd
}

fn map(fd: &OwnedFd, offset: u64, bytes: usize) -> Result<Untrusted, MemError> {
    Untrusted::map("test", fd.as_fd(), offset, bytes, FileFrom::Peer)
}

#[test]
#[cfg_attr(miri, ignore = "needs the kernel's memory")]
fn two_mappings_of_a_file_see_each_other() {
    let fd = memfd(64 << 10);
    let (ours, theirs) = (map(&fd, 0, 64 << 10).unwrap(), map(&fd, 5000, 100).unwrap());
    ours.window(5000, 5).unwrap().write(b"hello");
    let mut seen = [0; 5];
    theirs.window(0, 5).unwrap().read(&mut seen);
    assert_eq!(&seen, b"hello");
    ours.u32s(5004, 1).unwrap()[0].store(7, Ordering::Release);
    assert_eq!(theirs.u8s(4, 1).unwrap()[0].load(Ordering::Acquire), 7);
    assert!(!ours.is_sealed() && !ours.is_lost());
}

#[test]
#[cfg_attr(miri, ignore = "needs the kernel's memory")]
fn no_number_leads_outside() {
    let fd = memfd(8192);
    let memory = map(&fd, 0, 8192).unwrap();
    for (at, bytes) in [
        (0, 8193),
        (8192, 1),
        (8193, 0),
        (usize::MAX, 2),
        (1, usize::MAX),
    ] {
        assert!(memory.window(at, bytes).is_none(), "{at} {bytes}");
        assert!(memory.u8s(at, bytes).is_none(), "{at} {bytes}");
    }
    assert!(memory.u64s(8, usize::MAX / 8 + 1).is_none());
    assert!(memory.u64s(8184, 1).is_some() && memory.u64s(8185, 1).is_none());
    assert!(memory.u64s(4, 1).is_none() && memory.u16s(1, 1).is_none());
    assert!(memory.window(8192, 0).unwrap().is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "needs the kernel's memory")]
fn a_file_that_shrinks_turns_into_zeros() {
    let fd = memfd(1 << 20);
    let (memory, other) = (map(&fd, 0, 1 << 20).unwrap(), memfd(4096));
    let beside = map(&other, 0, 4096).unwrap();
    beside.window(0, 3).unwrap().write(b"abc");
    memory.window(0, 3).unwrap().write(b"abc");
    ftruncate(&fd, 0).unwrap();
    let mut seen = [1; 3];
    memory.window(512 << 10, 3).unwrap().read(&mut seen);
    assert_eq!(seen, [0; 3]);
    assert!(memory.is_lost());
    // It goes on as memory of our own.
    memory.u64s(0, 1).unwrap()[0].store(9, Ordering::Relaxed);
    assert_eq!(memory.u64s(0, 1).unwrap()[0].load(Ordering::Relaxed), 9);
    assert!(!beside.is_lost(), "another mapping is as it was");
    beside.window(0, 3).unwrap().read(&mut seen);
    assert_eq!(&seen, b"abc");
}

/// Set where [`shrinks_a_mapping_that_nobody_watches`] is to do so.
const ENDS: &str = "LINERATE_TEST_ENDS_BY_A_SIGNAL";

/// Run by the test below in a process of its own.
#[test]
#[ignore = "ends by a signal: run by the test of other faults"]
fn shrinks_a_mapping_that_nobody_watches() {
    if std::env::var_os(ENDS).is_none() {
        return;
    }
    let (watched, fd) = (memfd(4096), memfd(4096));
    let _handler_is_there = map(&watched, 0, 4096).unwrap();
    // SAFETY: a new mapping.
    let at = unsafe {
        let flags = MapFlags::SHARED;
        rustix::mm::mmap(std::ptr::null_mut(), 4096, READ_WRITE, flags, &fd, 0)
    };
    ftruncate(&fd, 0).unwrap();
    // SAFETY: the page is mapped, though the file has none: SIGBUS.
    unsafe { at.unwrap().cast::<u8>().read_volatile() };
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn another_fault_ends_the_process_as_before() {
    use std::os::unix::process::ExitStatusExt;
    let program = std::env::current_exe().unwrap();
    let name = "mem::untrusted::tests::shrinks_a_mapping_that_nobody_watches";
    let ended = std::process::Command::new(program)
        .args([name, "--exact", "--include-ignored"])
        .env(ENDS, "")
        .output()
        .unwrap();
    // A sanitizer has a handler of its own, which says so and ends the process itself.
    let reported = String::from_utf8_lossy(&ended.stderr).contains("Sanitizer: BUS");
    let by_signal = ended.status.signal() == Some(libc::SIGBUS);
    let by_sanitizer = reported && !ended.status.success();
    assert!(by_signal || by_sanitizer, "{ended:?}");
}

#[test]
#[cfg_attr(miri, ignore = "needs the kernel's memory")]
fn mappings_come_and_go_while_files_shrink() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..200_usize {
                    let fd = memfd(64 << 10);
                    let memory = map(&fd, 0, 64 << 10).unwrap();
                    memory.window(0, 4).unwrap().write(&[1; 4]);
                    if round.is_multiple_of(2) {
                        ftruncate(&fd, 4096).unwrap();
                    }
                    let mut last = [1; 8];
                    memory.window(65_000, 8).unwrap().read(&mut last);
                    assert_eq!(last, [0; 8]);
                    assert_eq!(memory.is_lost(), round.is_multiple_of(2));
                }
            });
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "needs the kernel's memory")]
fn what_is_no_memory_of_the_peers_is_refused_by_name() {
    let fd = memfd(4096);
    let text = |result: Result<Untrusted, MemError>| result.unwrap_err().to_string();
    assert!(text(map(&fd, 0, 4097)).contains("of a file of 4096"));
    assert!(text(map(&fd, u64::MAX, 2)).contains("of a file of 4096"));
    assert!(text(map(&fd, 0, 0)).contains("0 bytes"));
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    let program = File::open(std::env::current_exe().unwrap()).unwrap().into();
    for file in [pipe, program] {
        assert!(text(map(&file, 0, 1)).contains("is no shared memory"));
    }
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    let reader = File::open(path).unwrap().into();
    assert!(text(map(&reader, 0, 1)).contains("not open for reading and writing"));
    fcntl_add_seals(&fd, SealFlags::WRITE).unwrap();
    assert!(text(map(&fd, 0, 1)).contains("mmap"));
    let sealed = memfd(4096);
    fcntl_add_seals(&sealed, SealFlags::SHRINK).unwrap();
    assert!(map(&sealed, 0, 4096).unwrap().is_sealed());
}
