//! The system calls below `af_xdp`: `bpf(2)`, ring mappings, socket options.
//!
//! Descriptors are taken for what they are, not for what they should be, since they may come from
//! another process: where the kernel reads or writes as much memory as the object behind one says,
//! the object is asked first. So everything here is safe to call with any arguments; what the
//! kernel refuses is an error.
#![allow(unsafe_code)]

use super::program::Insn;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

const MAP_CREATE: c_int = 0;
const MAP_UPDATE_ELEM: c_int = 2;
const MAP_DELETE_ELEM: c_int = 3;
const PROG_LOAD: c_int = 5;
const OBJ_GET_INFO_BY_FD: c_int = 15;
const LINK_CREATE: c_int = 28;
const LINK_DETACH: c_int = 34;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
/// `BPF_XDP`, a `bpf_attach_type`.
const ATTACH_XDP: u32 = 37;
/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE`.
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;

/// A command's part of `union bpf_attr`: plain numbers without padding, zero where unused.
///
/// # Safety
/// Every address in it is that of memory as long as the command needs.
unsafe trait Attr {}

fn bpf<A: Attr>(command: c_int, attr: &mut A) -> io::Result<c_int> {
    // SAFETY: the attribute outlives the call, its size is passed, and its addresses are good.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<A>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as c_int)
    }
}

fn bpf_fd<A: Attr>(command: c_int, attr: &mut A) -> io::Result<OwnedFd> {
    let fd = bpf(command, attr)?;
    // SAFETY: the command made a descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

// SAFETY: no addresses.
unsafe impl Attr for MapCreate {}

/// Makes a map from queue number to AF_XDP socket.
pub(super) fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    let mut attr = MapCreate {
        map_type: MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        max_entries: queues,
    };
    bpf_fd(MAP_CREATE, &mut attr)
}

/// The beginning of `struct bpf_map_info`, and of `bpf_prog_info`, whose sizes are a tag: the
/// kernel writes as much as there is room for.
#[repr(C)]
#[derive(Debug, Default)]
struct Info {
    kind: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
}

#[repr(C)]
#[derive(Default)]
struct ObjectInfo {
    object: u32,
    info_bytes: u32,
    info: u64,
}

// SAFETY: filled in below only, with the address and length of a structure of plain numbers.
unsafe impl Attr for ObjectInfo {}

/// What a map or program is. Types are counted apart: a command that wants the one refuses the
/// other.
fn info(object: BorrowedFd<'_>) -> io::Result<Info> {
    let mut info = Info::default();
    let mut attr = ObjectInfo {
        object: object.as_raw_fd() as u32,
        info_bytes: size_of::<Info>() as u32,
        info: std::ptr::from_mut(&mut info).addr() as u64,
    };
    bpf(OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(info)
}

/// An update reads as many bytes at the addresses of key and value as the *map* says, which may
/// have come from another process: without this, what follows them on the stack would go into that
/// map.
fn check_socket_map(map: BorrowedFd<'_>) -> io::Result<()> {
    let info = info(map)?;
    match (info.kind, info.key_size, info.value_size) {
        (MAP_TYPE_XSKMAP, 4, 4) => Ok(()),
        (kind, key, value) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "this is no map of AF_XDP sockets but of type {kind}, with keys of {key} and \
                 values of {value} bytes"
            ),
        )),
    }
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

// SAFETY: filled in below only, with the addresses of a key and a value that outlive the call and
// have as many bytes as the map, which was asked.
unsafe impl Attr for MapElement {}

/// Sends a queue's frames to a socket.
pub(super) fn map_queue(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = socket.as_raw_fd() as u32;
    element(MAP_UPDATE_ELEM, map, &queue, &value)
}

/// Leaves a queue's frames to the kernel again.
pub(super) fn unmap_queue(map: BorrowedFd<'_>, queue: u32) -> io::Result<()> {
    element(MAP_DELETE_ELEM, map, &queue, &0)
}

fn element(command: c_int, map: BorrowedFd<'_>, key: &u32, value: &u32) -> io::Result<()> {
    check_socket_map(map)?;
    let mut attr = MapElement {
        map: map.as_raw_fd() as u32,
        key: std::ptr::from_ref(key).addr() as u64,
        value: if command == MAP_UPDATE_ELEM {
            std::ptr::from_ref(value).addr() as u64
        } else {
            0
        },
        ..MapElement::default()
    };
    bpf(command, &mut attr).map(drop)
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
}

// SAFETY: filled in below only, with addresses and lengths of live slices.
unsafe impl Attr for ProgLoad {}

/// Loads an XDP program. If the verifier refuses it, its log is the error's text.
pub(super) fn load_program(insns: &[Insn]) -> io::Result<OwnedFd> {
    let mut log = Vec::new();
    let load = |log: &mut [u8]| {
        let mut attr = ProgLoad {
            prog_type: PROG_TYPE_XDP,
            insn_count: insns.len() as u32,
            insns: insns.as_ptr().addr() as u64,
            license: c"Dual MIT/GPL".as_ptr().addr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log_buf: if log.is_empty() {
                0
            } else {
                log.as_mut_ptr().addr() as u64
            },
            prog_name: *b"linerate\0\0\0\0\0\0\0\0",
            attach_type: ATTACH_XDP,
            ..ProgLoad::default()
        };
        bpf_fd(PROG_LOAD, &mut attr)
    };
    match load(&mut log) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied || may_load() => {
            log.resize(256 << 10, 0);
            match load(&mut log) {
                Ok(program) => Ok(program),
                Err(_) if log[0] == 0 => Err(error),
                Err(_) => {
                    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
                    let text = String::from_utf8_lossy(&log[end.saturating_sub(2000)..end]);
                    Err(io::Error::new(
                        error.kind(),
                        format!("{error}; the verifier says: {}", text.trim()),
                    ))
                }
            }
        }
        result => result,
    }
}

/// Whether the process may load programs at all, so that EACCES means the verifier.
fn may_load() -> bool {
    socket_map(1).is_ok()
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
}

// SAFETY: no addresses.
unsafe impl Attr for LinkCreate {}

/// Attaches a program to an interface for as long as the returned descriptor is open.
pub(super) fn attach(program: BorrowedFd<'_>, ifindex: u32, native: bool) -> io::Result<OwnedFd> {
    // For a program of another type the number may be a descriptor of this process
    // (`BPF_PROG_TYPE_EXT`).
    let kind = info(program)?.kind;
    if kind != PROG_TYPE_XDP {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("this is no XDP program but of type {kind}"),
        ));
    }
    let mut attr = LinkCreate {
        program: program.as_raw_fd() as u32,
        ifindex,
        attach_type: ATTACH_XDP,
        flags: if native { FLAG_NATIVE } else { FLAG_GENERIC },
    };
    bpf_fd(LINK_CREATE, &mut attr)
}

#[repr(C)]
#[derive(Default)]
struct LinkDetach {
    link: u32,
}

// SAFETY: no addresses.
unsafe impl Attr for LinkDetach {}

/// Detaches now: a child between fork and exec may hold the descriptor a little longer.
pub(super) fn detach(link: OwnedFd) {
    // On kernels before 5.9, or where the interface is gone, closing has to do.
    let _ = bpf(
        LINK_DETACH,
        &mut LinkDetach {
            link: link.as_raw_fd() as u32,
        },
    );
}

/// A shared ring of the kernel's, mapped; unmapped on drop.
pub(super) struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is memory and a length; `ring` alone looks into it, by atomics.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps one of a socket's rings.
    pub(super) fn of_ring(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        bytes: usize,
    ) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let rw = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, rw, flags, socket, page_offset)
        }?;
        let at =
            NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { at, bytes })
    }

    /// Where a part of it starts, if it lies within.
    pub(super) fn part(&self, offset: u64, bytes: usize) -> io::Result<NonNull<u8>> {
        let end = (offset as usize).checked_add(bytes);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(io::Error::other(
                "the kernel's ring offsets lie outside of the ring",
            ));
        }
        // SAFETY: within the mapping, as was just checked.
        Ok(unsafe { self.at.add(offset as usize) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of_ring`; the ring that looks into it owns it and goes with it.
        let result = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.bytes) };
        debug_assert!(result.is_ok());
    }
}

/// Sets an integer socket option that rustix does not know.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: u32,
) -> io::Result<()> {
    let value = value as c_int;
    let size = size_of::<c_int>() as libc::socklen_t;
    let at = std::ptr::from_ref(&value).cast();
    // SAFETY: the value outlives the call, and its size is passed.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, at, size) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Makes a map of any type, from a number of so many bytes to a value of so many.
#[cfg(test)]
pub(super) fn any_map(map_type: u32, key_size: u32, value_size: u32) -> io::Result<OwnedFd> {
    let mut attr = MapCreate {
        map_type,
        key_size,
        value_size,
        max_entries: 4,
    };
    bpf_fd(MAP_CREATE, &mut attr)
}

/// What a map of at most 256 bytes a value has for a key of four bytes.
#[cfg(test)]
pub(super) fn look_up(map: BorrowedFd<'_>, key: u32) -> io::Result<[u8; 256]> {
    const MAP_LOOKUP_ELEM: c_int = 1;
    let info = info(map)?;
    assert!(info.key_size == 4 && info.value_size <= 256, "{info:?}");
    let mut value = [0; 256];
    let mut attr = MapElement {
        map: map.as_raw_fd() as u32,
        key: std::ptr::from_ref(&key).addr() as u64,
        value: value.as_mut_ptr().addr() as u64,
        ..MapElement::default()
    };
    bpf(MAP_LOOKUP_ELEM, &mut attr)?;
    Ok(value)
}

/// Runs a loaded program once over a frame and returns its verdict.
#[cfg(test)]
pub(super) fn test_run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    repeat: u32,
    flags: u32,
    ctx: &[u32],
) -> io::Result<u32> {
    const PROG_TEST_RUN: c_int = 10;
    #[repr(C)]
    #[derive(Default)]
    struct TestRun {
        program: u32,
        verdict: u32,
        data_len: u32,
        data_room: u32,
        data: u64,
        out: u64,
        repeat: u32,
        duration: u32,
        ctx_len: u32,
        ctx_room: u32,
        ctx: u64,
        ctx_out: u64,
        flags: u32,
        cpu: u32,
        batch: u32,
        pad: u32,
    }
    // SAFETY: filled in below only, with the address and length of live slices.
    unsafe impl Attr for TestRun {}
    let mut attr = TestRun {
        program: program.as_raw_fd() as u32,
        data_len: frame.len() as u32,
        data: frame.as_ptr().addr() as u64,
        ctx_len: size_of_val(ctx) as u32,
        ctx: if ctx.is_empty() {
            0
        } else {
            ctx.as_ptr().addr() as u64
        },
        repeat,
        flags,
        ..TestRun::default()
    };
    bpf(PROG_TEST_RUN, &mut attr)?;
    Ok(attr.verdict)
}
