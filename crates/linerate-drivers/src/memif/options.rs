//! The options of a port, and what they come to.

use super::layout::Shape;
use super::message::SECRET_LEN;
use crate::Opener;
use crate::peer::exposed;
use crate::peer::socket::{UnixAccess, UnixAddress};
use linerate_core::port::{OptionHelp, PortError, Spec};
use linerate_wire::MacAddr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What `linerate ports` shows.
pub(super) const OPTIONS: &[OptionHelp] = &[
    OptionHelp {
        key: "id",
        value: "N",
        help: "the interface's number on the socket; default 0",
    },
    OptionHelp {
        key: "role",
        value: "server|client",
        help: "listen, or connect and make the memory; default server",
    },
    OptionHelp {
        key: "queues",
        value: "N",
        help: "most queues each way, 1 to 64; default 1",
    },
    OptionHelp {
        key: "ring_size",
        value: "N",
        help: "a client's descriptors in each ring, a power of two; default 1024",
    },
    OptionHelp {
        key: "buffer",
        value: "N",
        help: "a client's bytes in each buffer; longer frames go in several; default 2048",
    },
    OptionHelp {
        key: "trust",
        value: "none|full",
        help: "full: a client's packets stay in its pool, which the peer reads and writes; \
               default none: they are copied",
    },
    OptionHelp {
        key: "secret",
        value: "TEXT",
        help: "at most 24 bytes that client and server must share; default none",
    },
    OptionHelp {
        key: "owner",
        value: "USER",
        help: "user that owns a server's socket; default who starts it",
    },
    OptionHelp {
        key: "mode",
        value: "OCTAL",
        help: "permission bits of a server's socket; default as the umask says",
    },
    OptionHelp {
        key: "mac",
        value: "ADDRESS",
        help: "address of the port; default one that follows from socket, id and role",
    },
];

/// Which end of the protocol a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    /// Listens, and maps what the client sends.
    Server,
    /// Connects, and makes the memory.
    Client,
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) port: String,
    pub(super) address: UnixAddress,
    pub(super) id: u32,
    pub(super) role: Role,
    /// Most each way.
    pub(super) queues: u16,
    pub(super) mac: MacAddr,
    pub(super) log2_size: u8,
    pub(super) buffer_bytes: u32,
    /// The peer maps our pools.
    pub(super) trusts: bool,
    pub(super) secret: [u8; SECRET_LEN],
    pub(super) access: UnixAccess,
    pub(super) opener: Arc<dyn Opener>,
    /// What peers are told: program and interface.
    pub(super) program: String,
    pub(super) interface: String,
}

/// What the options of a port say.
///
/// # Errors
/// [`PortError::BadValue`].
pub(super) fn read(spec: &Spec, opener: &Arc<dyn Opener>) -> Result<Settings, PortError> {
    let target = spec.required_target("the path of a socket, or `@name`: `memif:/run/x.sock`")?;
    let address = UnixAddress::parse(target).map_err(|expected| spec.bad("target", expected))?;
    let role = match spec.text("role") {
        None | Some("server") => Role::Server,
        Some("client") => Role::Client,
        Some(_) => return Err(spec.bad("role", "`server` or `client`")),
    };
    let of_role = [
        ("owner", Role::Server),
        ("mode", Role::Server),
        ("ring_size", Role::Client),
        ("buffer", Role::Client),
        ("trust", Role::Client),
    ];
    for (key, of) in of_role {
        if spec.text(key).is_some() && role != of {
            let whose = match of {
                Role::Server => "left out: the socket is the server's",
                Role::Client => "left out: the client makes the memory and says",
            };
            return Err(spec.bad(key, whose));
        }
    }
    let queues = spec.number("queues", 1_u16, 1..=64)?;
    let ring_size = spec.number("ring_size", 1024_u32, 16..=16_384)?;
    if !ring_size.is_power_of_two() {
        let near = ring_size.next_power_of_two();
        return Err(spec.bad("ring_size", format!("a power of two, such as {near}")));
    }
    let shape = Shape {
        to_server: queues,
        to_client: queues,
        log2_size: ring_size.ilog2() as u8,
        buffer_bytes: spec.number("buffer", 2048_u32, 256..=65_536)?,
        has_buffers: true,
    };
    let trusts = exposed::is_full(spec.text("trust")).map_err(|says| spec.bad("trust", says))?;
    if u32::try_from(shape.bytes()).is_err() {
        let expected = "less: all buffers of all queues together have to be below 4 GiB";
        return Err(spec.bad("buffer", expected));
    }
    let text = spec.text("secret").unwrap_or("");
    if text.len() > SECRET_LEN {
        return Err(spec.bad("secret", format!("at most {SECRET_LEN} bytes long")));
    }
    let mut secret = [0; SECRET_LEN];
    secret[..text.len()].copy_from_slice(text.as_bytes());
    let access = UnixAccess {
        owner: access(spec, "owner", "a user's number or name", UnixAccess::user)?,
        mode: access(
            spec,
            "mode",
            "permission bits such as 0660",
            UnixAccess::mode,
        )?,
    };
    let id = spec.number("id", 0_u32, 0..=u32::MAX)?;
    let mac = spec.parsed::<MacAddr>("mac", "an address such as 02:00:00:00:00:01")?;
    if mac.is_some_and(|mac| mac.0[0] & 1 == 1) {
        return Err(spec.bad("mac", "an address of one station: the first byte even"));
    }
    Ok(Settings {
        port: spec.name(),
        mac: mac.unwrap_or_else(|| address_of(&address, id, role)),
        address,
        id,
        role,
        queues,
        log2_size: shape.log2_size,
        buffer_bytes: shape.buffer_bytes,
        trusts,
        secret,
        access,
        opener: opener.clone(),
        program: format!("linerate {}", env!("CARGO_PKG_VERSION")),
        interface: format!("memif {id}"),
    })
}

fn access(
    spec: &Spec,
    key: &str,
    expected: &str,
    read: fn(&str) -> Option<u32>,
) -> Result<Option<u32>, PortError> {
    let text = spec.text(key);
    text.map(|text| read(text).ok_or_else(|| spec.bad(key, expected)))
        .transpose()
}

/// The same address after each start, another for each interface, none of a vendor's.
fn address_of(address: &UnixAddress, id: u32, role: Role) -> MacAddr {
    let mut hash = DefaultHasher::new();
    (address, id, role).hash(&mut hash);
    let [a, b, c, d, ..] = hash.finish().to_ne_bytes();
    MacAddr([0x02, 0xfe, a, b, c, d])
}
