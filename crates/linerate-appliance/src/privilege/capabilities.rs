//! Drops privileges permanently.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
};

use super::successor::Successor;
use crate::error::Error;

/// Drops all capabilities except `wanted`, and with the bounding set and `no_new_privs` the ways to
/// regain them. Of `wanted` it keeps those that it has. With a `user`, this process runs as that
/// user from now on.
///
/// # Errors
/// There are other threads already, which would keep their capabilities; or the kernel refuses.
pub(super) fn keep(wanted: CapabilitySet, user: Option<&Successor>) -> Result<(), Error> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(Error::Usage {
            problem: format!("{threads} threads would keep their privileges"),
            fix: "please report this: privileges are given away before there are threads".into(),
        });
    }
    let had = capabilities(None).map_err(io::Error::from)?.permitted;
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        // Without CAP_SETPCAP it cannot be reduced, nor need it be: `no_new_privs` prevents its
        // use.
        if !wanted.contains(capability) && remove_capability_from_bounding_set(capability).is_err()
        {
            break;
        }
    }
    // Linux before 4.3 has no such set.
    let _ = clear_ambient_capability_set();
    if let Some(user) = user {
        // What is kept outlives the change of the user; `effective` is set below.
        set_keep_capabilities(true).map_err(io::Error::from)?;
        user.become_it()?;
        set_keep_capabilities(false).map_err(io::Error::from)?;
    }
    let kept = had & wanted;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(io::Error::from)?;
    set_no_new_privs(true).map_err(io::Error::from)?;
    Ok(())
}
