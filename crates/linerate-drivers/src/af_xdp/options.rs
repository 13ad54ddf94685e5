//! A port's options, parsed, and the errors that name the port.

use linerate_core::port::{OptionHelp, PortError, Spec};
use linerate_wire::filter::Filter;
use std::io;

/// What `linerate ports` shows.
pub const OPTIONS: &[OptionHelp] = &[
    OptionHelp {
        key: "queues",
        value: "N",
        help: "queues of the interface to use; default: all from start_queue on",
    },
    OptionHelp {
        key: "start_queue",
        value: "N",
        help: "first of them; default 0",
    },
    OptionHelp {
        key: "mode",
        value: "auto|native|generic",
        help: "XDP in the driver or above it; default auto: native if it is to be had",
    },
    OptionHelp {
        key: "copy",
        value: "auto|on|off",
        help: "off requires zero-copy; default auto: zero-copy if the driver has it",
    },
    OptionHelp {
        key: "wakeup",
        value: "on|off",
        help: "system calls only when the kernel asks for them; default on",
    },
    OptionHelp {
        key: "ring",
        value: "N",
        help: "entries of each ring, a power of two; default 2048, less with a small pool",
    },
    OptionHelp {
        key: "filter",
        value: "EXPRESSION",
        help: "only these frames come here, the kernel keeps the rest: `udp port 53 or arp`",
    },
    OptionHelp {
        key: "csum",
        value: "auto|on|off",
        help: "finish checksums that a local sender left unfinished; default auto: on virtual \
            interfaces",
    },
    OptionHelp {
        key: "gro",
        value: "on|off",
        help: "join TCP segments before sending; default: on for a router's virtual interfaces",
    },
    OptionHelp {
        key: "busy_poll",
        value: "US",
        help: "drive the interface from the polling lcore, for so many microseconds (a NIC's \
            latency gains, a veth loses); default 0: off",
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Auto,
    Native,
    Generic,
}

/// Three-valued options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Auto,
    On,
    Off,
}

#[derive(Clone)]
pub(super) struct Options {
    /// The port's name, for messages.
    pub(super) port: String,
    pub(super) interface: String,
    pub(super) queues: Option<u16>,
    pub(super) start_queue: u16,
    pub(super) mode: Mode,
    pub(super) copy: Choice,
    pub(super) wakeup: bool,
    pub(super) ring: Option<u32>,
    pub(super) filter: Filter,
    pub(super) filter_text: Option<String>,
    pub(super) csum: Choice,
    /// TCP segments are joined.
    pub(super) joins: bool,
    pub(super) busy_poll_us: u32,
}

impl Options {
    /// `joins`: whether TCP segments are joined by default.
    pub(super) fn parse(spec: &Spec, joins: bool) -> Result<Self, PortError> {
        let mode = match spec.text("mode") {
            None | Some("auto") => Mode::Auto,
            Some("native") => Mode::Native,
            Some("generic") => Mode::Generic,
            Some(_) => return Err(spec.bad("mode", "`auto`, `native` or `generic`")),
        };
        let copy = choice(spec, "copy")?;
        if mode == Mode::Generic && copy == Choice::Off {
            return Err(spec.bad(
                "copy",
                "`auto` or `on` with mode=generic, which always copies",
            ));
        }
        let ring: Option<u32> = match spec.text("ring") {
            None => None,
            Some(_) => Some(spec.number("ring", 2048, 64..=32768)?),
        };
        if ring.is_some_and(|ring| !ring.is_power_of_two()) {
            return Err(spec.bad("ring", "a power of two from 64 to 32768"));
        }
        let queues = match spec.text("queues") {
            None => None,
            Some(_) => Some(spec.number("queues", 1, 1..=256)?),
        };
        let filter_text = spec
            .text("filter")
            .map(|text| text.trim_matches('"').to_string());
        let filter = match filter_text.as_deref().unwrap_or("").parse() {
            Ok(filter) => filter,
            Err(error) => {
                return Err(spec.bad(
                    "filter",
                    format!("an expression such as `udp port 53 or arp`: {error}"),
                ));
            }
        };
        Ok(Self {
            port: spec.name(),
            interface: spec.target().into(),
            queues,
            start_queue: spec.number("start_queue", 0, 0..=255)?,
            mode,
            copy,
            wakeup: spec.switch("wakeup", true)?,
            ring,
            filter,
            filter_text,
            csum: choice(spec, "csum")?,
            joins: spec.switch("gro", joins)?,
            busy_poll_us: spec.number("busy_poll", 0, 0..=10_000)?,
        })
    }

    pub(super) fn system(&self, action: &str, source: io::Error, fix: &str) -> PortError {
        PortError::System {
            port: self.port.clone(),
            action: action.into(),
            source,
            fix: fix.into(),
        }
    }

    pub(super) fn permission(&self, action: &str, capability: &'static str) -> PortError {
        let fix = "run as root, or give them to the program: \
                   `sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep FILE`";
        PortError::Permission {
            port: self.port.clone(),
            action: action.into(),
            capability,
            fix: fix.into(),
        }
    }

    pub(super) fn unsupported(&self, reason: String) -> PortError {
        PortError::Unsupported {
            port: self.port.clone(),
            reason,
        }
    }
}

fn choice(spec: &Spec, key: &str) -> Result<Choice, PortError> {
    match spec.text(key) {
        None | Some("auto") => Ok(Choice::Auto),
        Some("on") => Ok(Choice::On),
        Some("off") => Ok(Choice::Off),
        Some(_) => Err(spec.bad(key, "`auto`, `on` or `off`")),
    }
}
