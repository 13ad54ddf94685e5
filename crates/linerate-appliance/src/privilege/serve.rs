//! `linerate privilege-helper`: the process that keeps the privileges. `linerate router` starts it,
//! with its end of the socket as standard input.
//!
//! It does not trust the router: the configuration file, which it reads itself, determines the
//! permitted requests. A request for something that the file did not name makes it read the file
//! again, since a reload may have changed it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linerate_drivers::{Opener, Own};
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use rustix::thread::set_name;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::permits::{Permits, ReadNamed};
use super::protocol::{Received, Refusal, Request, receive, send};
use super::{Privileged, capabilities, notes_beside};
use crate::address::Cidr;
use crate::error::Error;
use crate::files;
use crate::socket::unix;

/// Arguments of the process that keeps privileges.
#[derive(clap::Args)]
pub struct Args {
    /// Configuration file of the router
    config: PathBuf,
}

/// Serves until the router has ended.
pub fn run(args: &Args, read: ReadNamed) -> Result<(), Error> {
    let stdin = io::stdin();
    let socket = stdin.as_fd();
    if socket_type(socket) != Ok(SocketType::SEQPACKET) {
        return Err(Error::Usage {
            problem: "privilege-helper: its standard input is no socket of a router".into(),
            fix: "run `linerate router CONF.toml`, which starts this".into(),
        });
    }
    // The name of its file is `exe`, since it was started by /proc/self/exe.
    let _ = set_name(c"priv-helper");
    // Ctrl-C and systemd tell every process of a service; the router ends this one when it is done.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let named = read(&args.config)?;
    let permits = Permits::of(&named);
    capabilities::keep(permits.capabilities(), None)?;
    let places = Places {
        config: args.config.clone(),
        notes: notes_beside(&named.control),
    };
    let served = serve(socket, permits, &places, read);
    // The router may not do this in a folder of root's, and a killed one has not done it.
    unix::take_away(&named.control);
    served
}

/// The router's own files, independent of its ports.
pub(super) struct Places {
    pub(super) config: PathBuf,
    /// The saved settings of interfaces.
    pub(super) notes: PathBuf,
}

/// Answers one request after the other, until the socket closes.
pub(super) fn serve(
    socket: BorrowedFd<'_>,
    mut permits: Permits,
    places: &Places,
    read: ReadNamed,
) -> Result<(), Error> {
    loop {
        let outcome = match receive::<Request>(socket)? {
            Received::Closed => return Ok(()),
            Received::Nonsense(what) => {
                Err(Refusal::new(what, "ask as this program's router does"))
            }
            Received::Message(request, descriptors) => {
                look(&mut permits, read, &places.config, &request)
                    .and_then(|()| perform(&request, &descriptors, places))
            }
        };
        let (reply, opened) = match outcome {
            Ok(opened) => (Ok(()), opened),
            Err(refusal) => (Err(refusal), Vec::new()),
        };
        let opened: Vec<BorrowedFd<'_>> = opened.iter().map(AsFd::as_fd).collect();
        match send(socket, &reply, &opened) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            sent => sent?,
        }
    }
}

/// Refuses what the configuration does not name.
fn look(
    permits: &mut Permits,
    read: ReadNamed,
    path: &Path,
    request: &Request,
) -> Result<(), Refusal> {
    if !permits.allow(request)
        && let Ok(named) = read(path)
    {
        permits.add(Permits::of(&named));
    }
    match permits.allow(request) {
        true => Ok(()),
        false => Err(Refusal::new(
            format!("{} does not name what is asked for", path.display()),
            "name it in that file, which must be readable, and reload",
        )),
    }
}

/// Runs a request, and returns the opened descriptors.
fn perform(
    request: &Request,
    descriptors: &[OwnedFd],
    places: &Places,
) -> Result<Vec<OwnedFd>, Refusal> {
    let given = |index: usize| {
        let lacking = || Refusal::new("a descriptor is missing", "pass it beside the request");
        descriptors.get(index).map(AsFd::as_fd).ok_or_else(lacking)
    };
    match request {
        Request::ControlSocket { netns } => Ok(vec![Own.control_socket(netns)?]),
        Request::PacketSocket { name } => Ok(vec![Own.packet_socket(name)?]),
        Request::XdpSocket { name, busy_poll_us } => Ok(vec![Own.xdp_socket(name, *busy_poll_us)?]),
        Request::XdpProgram { name, filter } => {
            let loaded = Own.xdp_program(name, filter)?;
            Ok(vec![loaded.map, loaded.program])
        }
        Request::XdpAttach { name, native } => {
            Ok(vec![Own.xdp_attach(name, given(0)?, *native)?])
        }
        Request::XdpMap { name, queue } => {
            Own.xdp_map(name, given(0)?, *queue, given(1).ok())?;
            Ok(Vec::new())
        }
        Request::Tap {
            netns,
            name,
            several,
        } => Ok(vec![Own.tap(netns.as_deref(), name, *several)?]),
        Request::ChangeTap {
            netns,
            name,
            change,
        } => {
            Own.change_tap(netns.as_deref(), name, (*change).into())?;
            Ok(Vec::new())
        }
        Request::Netlink { netns, room } => Ok(vec![Own.netlink(netns.as_deref(), *room)?]),
        Request::MakeAlike {
            netns,
            name,
            like,
            carrier,
        } => {
            Own.make_alike(netns.as_deref(), name, &like.clone().into(), *carrier)?;
            Ok(Vec::new())
        }
        Request::RemoveAddress {
            netns,
            name,
            address: (address, len),
        } => {
            let (address, len) = (*address, *len);
            Own.remove_address(netns.as_deref(), name, Cidr { address, len })?;
            Ok(Vec::new())
        }
        Request::Set { setting, value } => {
            Own.set(setting, value)?;
            Ok(Vec::new())
        }
        Request::Configuration => Ok(vec![File::open(&places.config)?.into()]),
        Request::Notes => Ok(vec![files::open_own(&places.notes)?.into()]),
        Request::Note { text } => {
            Own.note(&places.notes, text)?;
            Ok(Vec::new())
        }
        Request::ReadFile { path } => Ok(vec![Own.read_file(path)?.into()]),
        Request::WriteFile { path, add } => Ok(vec![Own.write_file(path, *add)?.into()]),
    }
}
