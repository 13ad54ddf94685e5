//! What only a trial shows: sockets, BPF, limits. Everything opened here is closed again.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Resource, getrlimit};

use crate::env::Tree;

/// The outcome of each trial on the running machine.
#[derive(Debug)]
pub struct Probes {
    /// `socket(AF_PACKET)`.
    pub af_packet: io::Result<()>,
    /// `socket(AF_XDP)`.
    pub af_xdp: io::Result<()>,
    /// An XSKMAP created and a two-instruction XDP program loaded.
    pub bpf: io::Result<()>,
    /// `/dev/net/tun` opened for reading and writing.
    pub tun: io::Result<()>,
    /// `/dev/vfio/vfio` opened for reading and writing.
    pub vfio: io::Result<()>,
    /// RLIMIT_MEMLOCK in bytes; `None` is unlimited.
    pub memlock_bytes: Option<u64>,
    /// The effective capabilities, bit n for capability n.
    pub capabilities: u64,
    /// Whether the process runs as root, so that commands need no sudo.
    pub root: bool,
}

impl Probes {
    /// Tries everything.
    pub fn run() -> Self {
        let raw = |family| {
            socket(family, SocketType::RAW, None)
                .map(drop)
                .map_err(io::Error::from)
        };
        let open = |path| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(path)
                .map(drop)
        };
        Self {
            af_packet: raw(AddressFamily::PACKET),
            af_xdp: raw(AddressFamily::XDP),
            bpf: create_xskmap().and_then(|_| load_xdp_pass()).map(drop),
            tun: open("/dev/net/tun"),
            vfio: open("/dev/vfio/vfio"),
            memlock_bytes: getrlimit(Resource::Memlock).current,
            capabilities: capabilities(&Tree::machine()),
            root: rustix::process::geteuid().is_root(),
        }
    }
}

fn capabilities(tree: &Tree) -> u64 {
    let status = tree.read("proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;

/// The head of `union bpf_attr` for BPF_MAP_CREATE (linux/bpf.h).
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    max_entries: u32,
    flags: u32,
}

/// The head of `union bpf_attr` for BPF_PROG_LOAD (linux/bpf.h).
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kern_version: u32,
    flags: u32,
}

fn create_xskmap() -> io::Result<OwnedFd> {
    let attr = MapCreate {
        map_type: BPF_MAP_TYPE_XSKMAP,
        key_bytes: 4,
        value_bytes: 4,
        max_entries: 1,
        flags: 0,
    };
    // SAFETY: `attr` is the head of a `bpf_attr` for this command, and holds no pointer.
    unsafe { bpf(BPF_MAP_CREATE, &attr) }
}

fn load_xdp_pass() -> io::Result<OwnedFd> {
    // r0 = XDP_PASS; exit. RFC 9669 3: opcode, registers, offset, immediate.
    let insns: [u64; 2] = [0x0000_0002_0000_00b7, 0x0000_0000_0000_0095];
    let license = c"GPL";
    let attr = ProgLoad {
        prog_type: BPF_PROG_TYPE_XDP,
        insn_count: insns.len() as u32,
        insns: insns.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kern_version: 0,
        flags: 0,
    };
    // SAFETY: `attr` is the head of a `bpf_attr` for this command; its two pointers lead to
    // `insn_count` instructions and to a terminated string, both alive until the call returns.
    unsafe { bpf(BPF_PROG_LOAD, &attr) }
}

/// Calls `bpf(2)` with a command that returns a descriptor.
///
/// # Safety
/// `attr` is the head of a `bpf_attr` for `command`, without padding, and its pointers are valid.
unsafe fn bpf<T>(command: libc::c_long, attr: &T) -> io::Result<OwnedFd> {
    let attr: *const T = attr;
    // SAFETY: as the caller promises; the kernel takes the fields beyond `size_of` as zero.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
