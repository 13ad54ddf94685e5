//! Giving privileges away for ever.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
};

use super::successor::Successor;
use crate::error::Error;

/// Gives away all capabilities but `wanted`, and with the bounding set and `no_new_privs` the ways
/// to get them back. Of `wanted`, this keeps what there is. With a `user`, this process is that
/// one's from now on.
///
/// # Errors
/// There are other threads already, which would keep theirs; or the kernel refuses.
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
        // Without CAP_SETPCAP it is not ours to shrink, nor does it matter: `no_new_privs` stands
        // before it.
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
