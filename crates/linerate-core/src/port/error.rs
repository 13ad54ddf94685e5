//! Why a port could not be opened, started or stopped.

use std::io;

/// Names the port, the reason and the fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// No driver of that kind.
    #[error("unknown port kind `{kind}`; known kinds: {known} (see `linerate ports`)")]
    UnknownKind {
        /// As written.
        kind: String,
        /// The legal ones, joined by commas.
        known: String,
    },
    /// The driver has no such option.
    #[error("port `{spec}`: unknown option `{key}`; `{kind}` takes: {known}")]
    UnknownKey {
        /// The whole port as written.
        spec: String,
        /// Kind of port.
        kind: String,
        /// The option.
        key: String,
        /// The legal ones, joined by commas.
        known: String,
    },
    /// An option's value, or the target, makes no sense.
    #[error("port `{spec}`: {key} is `{value}`, but should be {expected}")]
    BadValue {
        /// The whole port as written.
        spec: String,
        /// The option, or `target`.
        key: String,
        /// As written.
        value: String,
        /// What would be legal.
        expected: String,
    },
    /// The operating system has no such interface.
    #[error("port `{port}`: no interface `{interface}`; {fix}")]
    NoInterface {
        /// The port.
        port: String,
        /// The interface.
        interface: String,
        /// What to do about it.
        fix: String,
    },
    /// A privilege is missing.
    #[error("port `{port}`: no permission to {action}: needs {capability}; {fix}")]
    Permission {
        /// The port.
        port: String,
        /// What was tried.
        action: String,
        /// The capability.
        capability: &'static str,
        /// The command that gives it.
        fix: String,
    },
    /// More queues than the device or driver has.
    #[error("port `{port}`: {asked} {direction} queues asked for, it has {max}; {fix}")]
    TooManyQueues {
        /// The port.
        port: String,
        /// `receive` or `transmit`.
        direction: &'static str,
        /// As asked.
        asked: u16,
        /// As there are.
        max: u16,
        /// What to do about it.
        fix: String,
    },
    /// The MTU cannot be had.
    #[error("port `{port}`: MTU {mtu} is not supported: {reason}")]
    Mtu {
        /// The port.
        port: String,
        /// As requested, in bytes.
        mtu: u32,
        /// Why, and what would be.
        reason: String,
    },
    /// The pool cannot keep the queues filled.
    #[error(
        "port `{port}`: pool `{pool}` has {slots} slots, but the queues alone hold {needed}; give \
         it at least {}, for packets under way too", .needed * 2
    )]
    PoolTooSmall {
        /// The port.
        port: String,
        /// The pool.
        pool: String,
        /// Slots it has.
        slots: u32,
        /// Slots that the queues hold at rest.
        needed: u32,
    },
    /// A file could not be read or written.
    #[error("port `{port}`: cannot {action} `{path}`: {source}")]
    File {
        /// The port.
        port: String,
        /// What was tried.
        action: &'static str,
        /// The file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("port `{port}`: cannot {action}: {source}; {fix}")]
    System {
        /// The port.
        port: String,
        /// What was tried.
        action: String,
        /// The system's error.
        source: io::Error,
        /// What to do about it.
        fix: String,
    },
    /// Anything else that the port cannot do.
    #[error("port `{port}`: {reason}")]
    Unsupported {
        /// The port.
        port: String,
        /// Why, and what would work.
        reason: String,
    },
    /// Memory for the port.
    #[error(transparent)]
    Memory(#[from] crate::MemError),
}
