//! The peer's signs of life: its lock on the file, or its heartbeat.

use super::file::{Attached, Opened};
use super::layout::{Memory, side};
use std::time::{Duration, Instant};

/// Of a side whose lock tells nothing.
pub(super) const NO_BOOT_ID: [u8; 16] = [0; 16];

/// What the peer's block said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) generation: u32,
    pub(super) process: u32,
    pub(super) name: String,
    /// How it was seen to live.
    pub(super) sign: &'static str,
}

/// Looks after the peer's signs of life.
#[derive(Debug)]
pub(super) struct Watch {
    heartbeat: u32,
    /// When it changed last; `None`: not since we look.
    changed: Option<Instant>,
    looked: bool,
}

/// A peer that can only be judged by its heartbeat is gone when it has not changed for so long.
const SILENCE: Duration = Duration::from_secs(2);

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            heartbeat: 0,
            changed: None,
            looked: false,
        }
    }

    /// The peer, or why there is none.
    pub(super) fn look(
        &mut self,
        opened: &Opened,
        attached: &Attached,
        now: Instant,
    ) -> Result<Peer, &'static str> {
        let (memory, block) = (&attached.memory, attached.role.other().block().start);
        let heartbeat = memory.load(block + side::HEARTBEAT);
        if self.looked && heartbeat != self.heartbeat {
            self.changed = Some(now);
        }
        (self.heartbeat, self.looked) = (heartbeat, true);
        let generation = memory.load(block + side::GENERATION);
        if generation == 0 {
            return Err("the peer has not come yet");
        }
        if memory.load(block + side::STATE) != 1 {
            return Err("the peer has stopped");
        }
        let mut boot = [0; 16];
        memory.read(block + side::BOOT_ID, &mut boot);
        // A peer in another kernel has its locks there.
        let here = boot != NO_BOOT_ID && boot == boot_id();
        let locked = here.then(|| opened.peer_is_locked()).flatten();
        let beats = self.changed.is_some_and(|changed| now - changed < SILENCE);
        let sign = match locked {
            Some(true) => "its lock on the file",
            Some(false) => return Err("the peer has died"),
            None if beats => "its heartbeat",
            None => return Err("the peer's heartbeat has stopped"),
        };
        let mut name = [0; 32];
        memory.read(block + side::NAME, &mut name);
        let printable = |&&byte: &&u8| byte == b' ' || byte.is_ascii_graphic();
        let name = name.iter().take_while(printable);
        Ok(Peer {
            generation,
            process: memory.load(block + side::PROCESS),
            name: name.map(|&byte| char::from(byte)).collect(),
            sign,
        })
    }
}

/// Names the running kernel: the same in all its containers, another one in a guest.
pub(super) fn boot_id() -> [u8; 16] {
    static BOOT_ID: std::sync::OnceLock<[u8; 16]> = std::sync::OnceLock::new();
    *BOOT_ID.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
    })
}
