//! A run whose process gives its privileges away before it meets a packet.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use linerate_drivers::Drivers;
use linerate_tables::rss::FrameHash;

use crate::config::PortStanza;
use crate::control::answers::Places;
use crate::error::Error;
use crate::notify::Notify;
use crate::privilege::{self, Named, Privileged};
use crate::socket::unix::UnixDoor;
use crate::socket::usual_socket;
use crate::users::User;

/// What was opened with privileges that this process has no more, and who has them now.
#[derive(Clone)]
pub struct Separation {
    /// The socket of `linerate ctl`, where there is one.
    pub(super) door: Option<Arc<UnixDoor>>,
    /// The service manager, whose socket may be its user's alone.
    manager: Arc<Mutex<Notify>>,
    privileged: Arc<dyn Privileged>,
}

impl fmt::Debug for Separation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Separation")
            .field("door", &self.door)
            .finish_non_exhaustive()
    }
}

impl Separation {
    /// Gives privileges away as [`privilege::split`] does, to open the `ports` of the file at
    /// `path`; to be called while this process has one thread. The socket of `linerate ctl` is
    /// opened before that.
    ///
    /// # Errors
    /// The socket is another process's, or those of [`privilege::split`].
    pub fn make(
        path: &Path,
        ports: &[PortStanza],
        places: &Places,
        user: Option<User>,
    ) -> Result<Self, Error> {
        let door = places.door()?.map(Arc::new);
        let manager = Arc::new(Mutex::new(Notify::from_environment()));
        let named = Self::named(ports, places, user);
        let privileged = privilege::split(path, &named)?;
        Ok(Self {
            door,
            manager,
            privileged,
        })
    }

    /// What a run with these ports needs privileges for.
    pub fn named(ports: &[PortStanza], places: &Places, user: Option<User>) -> Named {
        Named {
            ports: ports.iter().map(|port| port.spec.clone()).collect(),
            host_interfaces: Vec::new(),
            control: places.control.clone().unwrap_or_else(usual_socket),
            user,
        }
    }

    /// The text of the file at `path`, which the process with the privileges reads.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn configuration(&self, path: &Path) -> Result<String, Error> {
        let text = self.privileged.configuration(path);
        text.map_err(|source| Error::File {
            path: path.into(),
            source,
        })
    }

    /// Drivers that open ports by who has the privileges.
    pub fn drivers(&self) -> Drivers {
        Drivers::opened_by(self.privileged.clone()).playing_nics(FrameHash::make)
    }

    /// The service manager, once.
    pub(super) fn take_manager(&self) -> Notify {
        let mut manager = self.manager.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *manager)
    }

    /// Refuses to go on without the process that has the privileges.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.privileged.is_alive() {
            true => Ok(()),
            false => Err(privilege::ended()),
        }
    }
}
