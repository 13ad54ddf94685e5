//! The user that a process started by root becomes.

use std::io;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::error::Error;
use crate::users::{NOBODY, User};

/// The user of its own that the package makes (`packaging/linerate.sysusers`).
const USUAL: &str = "linerate";
/// `nobody`'s number, where there is no list of users.
const NOBODYS_NUMBER: &str = "65534";

/// Another user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Successor {
    user: User,
    /// Whether the file names the user: then the change is mandatory.
    named: bool,
}

impl Successor {
    /// The user that this process is to become; `None`: it keeps its user.
    ///
    /// # Errors
    /// It is to become another one, and is not root.
    pub(super) fn of(named: Option<&User>) -> Result<Option<Self>, Error> {
        let own = geteuid();
        match named {
            Some(user) if user.uid == own.as_raw() => Ok(None),
            Some(user) if !own.is_root() => Err(Error::Usage {
                problem: format!(
                    "user: only root may become `{}`, and this is user {own}",
                    user.name
                ),
                fix: "leave the key out, or start as root".into(),
            }),
            None if !own.is_root() => Ok(None),
            _ => {
                let usual = || {
                    [USUAL, NOBODY, NOBODYS_NUMBER]
                        .into_iter()
                        .find_map(User::find)
                };
                let user = named.cloned().or_else(usual);
                let named = named.is_some();
                Ok(user.map(|user| Self { user, named }))
            }
        }
    }

    /// Becomes this user, in this thread. If the file does not name a user, a container may forbid
    /// the change.
    ///
    /// # Errors
    /// The kernel does not let it.
    pub(super) fn become_it(&self) -> Result<(), Error> {
        let (uid, gid) = (Uid::from_raw(self.user.uid), Gid::from_raw(self.user.gid));
        let change = || {
            set_thread_groups(&[])?;
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(uid, uid, uid)
        };
        let Err(error) = change() else { return Ok(()) };
        let name = &self.user.name;
        let problem = format!("root may not become `{name}`: {}", io::Error::from(error));
        let fix = "give it CAP_SETUID and CAP_SETGID, and in a user name space a number for that \
                   user; or say `user = \"root\"` in its file";
        if self.named {
            let fix = fix.into();
            return Err(Error::Usage { problem, fix });
        }
        eprintln!("warning: this process stays root: {problem}\nfix: {fix}");
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn root_becomes_another_and_others_stay() {
        let own = geteuid();
        let own_user = User::find(&own.as_raw().to_string()).unwrap();
        assert_eq!(Successor::of(Some(&own_user)).unwrap(), None);
        let other = User::find("12345").unwrap();
        if own.is_root() {
            let usual = Successor::of(None).unwrap().unwrap();
            assert!(usual.user.uid != 0 && !usual.named, "{usual:?}");
            let named = Successor::of(Some(&other)).unwrap().unwrap();
            assert!(named.user.uid == 12345 && named.named, "{named:?}");
        } else {
            assert_eq!(Successor::of(None).unwrap(), None);
            let refused = Successor::of(Some(&other)).unwrap_err();
            assert!(refused.to_string().contains("only root"), "{refused}");
        }
    }
}
