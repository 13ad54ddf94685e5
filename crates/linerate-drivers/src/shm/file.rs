//! The shared file: opening, checking or setting it up, and our own block in it.
//!
//! The header is read once, when the file is mapped, and never again. Of what stands behind it each
//! side writes its own parts alone.

use super::layout::{BadHeader, HEADER_BYTES, MAGIC, Memory, SIDE_BYTES, Shape, at, side};
use super::signs::{NO_BOOT_ID, boot_id};
use super::sys;
use crate::Opener;
use crate::peer::UnixAccess;
use linerate_core::mem::{FileFrom, Untrusted};
use linerate_core::port::RingFill;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// What this program is called, for people; zeros behind it.
const NAME: [u8; 32] = {
    let (text, mut name) = (concat!("linerate ", env!("CARGO_PKG_VERSION")), [0; 32]);
    name.split_at_mut(text.len())
        .0
        .copy_from_slice(text.as_bytes());
    name
};

/// Which side of the file a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Makes the file and says its shape.
    Server,
    /// Takes both as they are.
    Client,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::Server => Self::Client,
            Self::Client => Self::Server,
        }
    }

    /// The bytes of the side's block.
    pub(super) fn block(self) -> Range<usize> {
        let start = at::SIDES + SIDE_BYTES * usize::from(self == Self::Client);
        start..start + SIDE_BYTES
    }
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) path: PathBuf,
    pub(super) role: Role,
    /// Of the server's file; of a client's only the number of queues counts.
    pub(super) shape: Shape,
    /// Of a file that the server makes.
    pub(super) access: UnixAccess,
}

/// Why there is no file to use.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It may come: the server has not made it yet.
    NotYet(String),
    /// Somebody has to do something about it.
    Never(String),
}

impl Refusal {
    pub(super) fn into_reason(self) -> String {
        match self {
            Self::NotYet(reason) | Self::Never(reason) => reason,
        }
    }
}

/// The open file, which nobody else has as the same side.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    role: Role,
    /// Device and inode.
    identity: (u64, u64),
    /// Whether the kernel locks ranges of it.
    locks: bool,
}

impl Opened {
    /// Opens the file, as the server makes it where there is none, and locks our side's block.
    pub(super) fn open(wanted: &Wanted, opener: &dyn Opener) -> Result<Self, Refusal> {
        let path = wanted.path.display();
        let make = (wanted.role == Role::Server).then_some(wanted.access);
        let file = opener.shared_file(&wanted.path, make).map_err(|error| {
            match (error.kind(), wanted.role) {
                (io::ErrorKind::NotFound, Role::Client) => {
                    Refusal::NotYet(format!("there is no file `{path}` yet; start the server"))
                }
                (io::ErrorKind::PermissionDenied, _) => Refusal::Never(format!(
                    "cannot open `{path}`: {error}; its server gives access by `owner=` and `mode=`"
                )),
                _ => Refusal::Never(format!("cannot open `{path}`: {error}")),
            }
        })?;
        let failed = |error| Refusal::Never(format!("cannot look at `{path}`: {error}"));
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(Refusal::Never(format!(
                "`{path}` is no file; name one, such as /dev/shm/{}",
                wanted.path.file_name().unwrap_or_default().display()
            )));
        }
        let us = rustix::process::geteuid().as_raw();
        let owners = [Some(us), Some(0), wanted.access.owner];
        if wanted.role == Role::Server && !owners.contains(&Some(found.uid())) {
            let owner = found.uid();
            return Err(Refusal::Never(format!(
                "`{path}` belongs to user {owner}, who would see all frames; remove it, or say \
                 `owner={owner}`"
            )));
        }
        let locks = match sys::lock(file.as_fd(), &wanted.role.block()) {
            Ok(true) => true,
            Ok(false) => {
                let role = wanted.role.name();
                return Err(Refusal::Never(format!(
                    "`{path}` has a {role} already; stop that one, or take another file"
                )));
            }
            Err(_) => false, // then only the heartbeat tells
        };
        Ok(Self {
            file,
            role: wanted.role,
            identity: (found.dev(), found.ino()),
            locks,
        })
    }

    /// Whether the path still leads to this file.
    pub(super) fn is_at(&self, wanted: &Wanted) -> bool {
        match std::fs::metadata(&wanted.path) {
            Ok(found) => (found.dev(), found.ino()) == self.identity,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Checks the file, or sets it up, and maps it.
    pub(super) fn attach(&self, wanted: &Wanted) -> Result<Attached, Refusal> {
        let path = wanted.path.display();
        let failed = |error| Refusal::Never(format!("cannot use `{path}`: {error}"));
        let mut bytes = self.file.metadata().map_err(failed)?.len();
        let server = wanted.role == Role::Server;
        if bytes == 0 && server {
            // As long as QEMU wants the memory behind a device to be.
            bytes = wanted.shape.file_bytes().next_power_of_two();
            self.file.set_len(bytes).map_err(failed)?;
        }
        let not_yet = || Refusal::NotYet(format!("the server has not set `{path}` up yet"));
        if bytes == 0 {
            return Err(not_yet());
        }
        if bytes < HEADER_BYTES as u64 {
            return Err(shrunk(wanted, bytes, HEADER_BYTES as u64));
        }
        let (shape, is_empty) = match Shape::decode(&self.header(wanted)?) {
            Ok(shape) => (shape, false),
            Err(BadHeader::Empty) if server => (wanted.shape, true),
            Err(BadHeader::Empty) => return Err(not_yet()),
            Err(bad) => {
                return Err(Refusal::Never(format!(
                    "`{path}` cannot be used: {bad}; remove it, or take another file"
                )));
            }
        };
        let fits = match wanted.role {
            Role::Server => shape == wanted.shape,
            Role::Client => shape.queues() == wanted.shape.queues(),
        };
        if !fits {
            return Err(another_shape(wanted, &shape));
        }
        if bytes < shape.file_bytes() {
            return Err(shrunk(wanted, bytes, shape.file_bytes()));
        }
        let memory = self.map(wanted, shape.file_bytes())?;
        let mut attached = Attached {
            memory,
            shape,
            role: wanted.role,
            generation: 1,
            boot_id: if self.locks { boot_id() } else { NO_BOOT_ID },
        };
        match is_empty {
            true => attached.set_up(),
            false => {
                let generation = wanted.role.block().start + side::GENERATION;
                let last = attached.memory.load(generation);
                attached.generation = last.wrapping_add(1).max(1);
            }
        }
        Ok(attached)
    }

    fn map(&self, wanted: &Wanted, bytes: u64) -> Result<Untrusted, Refusal> {
        let name = wanted.path.display().to_string();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Untrusted::map(&name, self.file.as_fd(), 0, bytes, FileFrom::User)
            .map_err(|error| Refusal::Never(error.to_string()))
    }

    /// Through a mapping: the file of a device's memory cannot be read otherwise.
    fn header(&self, wanted: &Wanted) -> Result<[u8; HEADER_BYTES], Refusal> {
        Ok(header_of(&self.map(wanted, HEADER_BYTES as u64)?))
    }

    /// Whether somebody has locked the other side's block. `None` where locks tell nothing.
    pub(super) fn peer_is_locked(&self) -> Option<bool> {
        let locked = || sys::is_locked(self.file.as_fd(), &self.role.other().block()).ok();
        self.locks.then(locked).flatten()
    }
}

impl Drop for Opened {
    /// A child that was forked has our descriptors, too, until it runs its program.
    fn drop(&mut self) {
        if self.locks {
            let _ = sys::unlock(self.file.as_fd(), &self.role.block());
        }
    }
}

fn header_of(memory: &Untrusted) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    memory.read(0, &mut header);
    header
}

fn shrunk(wanted: &Wanted, is: u64, needed: u64) -> Refusal {
    let path = wanted.path.display();
    Refusal::Never(format!(
        "`{path}` has {is} bytes, but {needed} are needed; remove it, or make it longer, or ask \
         for less by `queues=`, `size=` and `buffer=`"
    ))
}

fn another_shape(wanted: &Wanted, is: &Shape) -> Refusal {
    let path = wanted.path.display();
    let options = |shape: &Shape| {
        let (queues, slots, bytes) = (shape.queues(), shape.slots(), shape.frame_bytes());
        format!("queues={queues},size={slots},buffer={bytes}")
    };
    Refusal::Never(match wanted.role {
        Role::Server => format!(
            "`{path}` is of another shape: it has {}, asked for is {}; ask for the same, or stop \
             the peer and remove it",
            options(is),
            options(&wanted.shape)
        ),
        Role::Client => format!(
            "`{path}` has {} queues, asked for are {}; say `queues={}`",
            is.queues(),
            wanted.shape.queues(),
            is.queues()
        ),
    })
}

/// The mapped file, checked.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) memory: Untrusted,
    pub(super) shape: Shape,
    pub(super) role: Role,
    generation: u32,
    boot_id: [u8; 16],
}

impl Attached {
    /// Empties all rings and both blocks, and writes the header, its magic last.
    fn set_up(&self) {
        let memory = &self.memory;
        for queue in 0..self.shape.queues() {
            for to_client in [true, false] {
                self.shape.ring(queue, to_client).clear(memory);
            }
        }
        for word in at::SIDES / 4..at::HEADS / 4 {
            memory.store(4 * word, 0);
        }
        self.write_header();
    }

    fn write_header(&self) {
        let header = self.shape.encode();
        let (magic, rest) = header.split_at(MAGIC.len());
        self.memory.write(MAGIC.len(), rest);
        // What was written before is seen by who sees this.
        let (first, last) = magic.split_at(4);
        for (at, word) in [(4, last), (0, first)] {
            let word = word.try_into().map_or(0, u32::from_le_bytes);
            self.memory.store(at, word);
        }
    }

    /// Says that we are there, and writes all that is ours and stays: whatever the peer wrote over
    /// it is gone then. `beat` is a number that was not said just before.
    pub(super) fn beat(&self, beat: u32) {
        let (memory, block) = (&self.memory, self.role.block().start);
        if self.role == Role::Server {
            self.write_header();
        }
        memory.write(block + side::NAME, &NAME);
        memory.write(block + side::BOOT_ID, &self.boot_id);
        memory.store(block + side::PROCESS, std::process::id());
        memory.store(block + side::HEARTBEAT, beat);
        memory.store(block + side::STATE, 1);
        memory.store(block + side::GENERATION, self.generation);
    }

    /// Says that we have left.
    pub(super) fn leave(&self) {
        self.memory.store(self.role.block().start + side::STATE, 0);
    }

    /// Whether frames of this side go to the client.
    pub(super) fn sends_to_client(&self) -> bool {
        self.role == Role::Server
    }

    /// How full each ring is.
    pub(super) fn fill(&self) -> Vec<RingFill> {
        let size = self.shape.slots();
        let mut lengths = vec![0; size as usize];
        let mut fill = Vec::new();
        for (direction, to_client) in [
            ("receive", !self.sends_to_client()),
            ("transmit", self.sends_to_client()),
        ] {
            for queue in 0..self.shape.queues() {
                let ring = self.shape.ring(queue, to_client);
                let receiver = super::layout::Receiver::take_up(&self.memory, ring);
                let waiting = receiver.frames().waiting(&self.memory, &mut lengths).count;
                fill.push(RingFill {
                    direction,
                    queue: queue as u16,
                    waiting: waiting as u32,
                    size,
                });
            }
        }
        fill
    }
}

impl Memory for Untrusted {
    #[inline(always)]
    fn load(&self, at: usize) -> u32 {
        let word = self.u32s(at, 1);
        word.map_or(0, |word| u32::from_le(word[0].load(Ordering::Acquire)))
    }

    #[inline(always)]
    fn store(&self, at: usize, value: u32) {
        if let Some(word) = self.u32s(at, 1) {
            word[0].store(value.to_le(), Ordering::Release);
        }
    }

    #[inline(always)]
    fn read(&self, at: usize, to: &mut [u8]) {
        if let Some(window) = self.window(at, to.len()) {
            window.read(to);
        }
    }

    #[inline(always)]
    fn write(&self, at: usize, from: &[u8]) {
        if let Some(window) = self.window(at, from.len()) {
            window.write(from);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Drivers;
    use linerate_testkit::Scratch;

    /// A child that was forked and has not run its program yet has all our descriptors.
    #[test]
    fn a_side_that_stopped_is_free_at_once_whoever_has_its_descriptor() {
        let folder = Scratch::new();
        let wanted = Wanted {
            path: folder.path().join("ring"),
            role: Role::Server,
            shape: Shape::new(1, 8, 60),
            access: UnixAccess::default(),
        };
        let drivers = Drivers::new();
        let open = || Opened::open(&wanted, &*drivers.opener);
        let first = open().unwrap();
        let inherited = first.file.try_clone().unwrap();
        assert!(first.locks && open().is_err());
        drop(first);
        let second = open().unwrap();
        assert!(second.locks);
        drop(inherited);
        assert!(open().is_err(), "the second one's lock is its own");
    }
}
