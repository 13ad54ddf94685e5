//! `linerate router`: an IPv4 and IPv6 router with the kernel and FRR as its control plane.

pub(crate) mod config;
pub(crate) mod feed;
pub(crate) mod fpm;
pub(crate) mod model;
pub(crate) mod netlink;
pub(crate) mod plane;
pub(crate) mod rib;

use std::path::PathBuf;

use crate::socket::unix;

/// The usual place of the socket of `linerate ctl`.
pub(crate) fn usual_socket() -> PathBuf {
    unix::usual("router.sock")
}
