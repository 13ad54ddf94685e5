//! How other threads reach the control thread, and how a reload comes to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::Control;
use crate::config::Config;
use linerate_appliance::control::mailbox::Mailbox;
use linerate_appliance::control::reload::Reload;
use linerate_appliance::privilege::Privileged;
use linerate_appliance::socket::Problem;

/// Asks the control thread. Clones ask the same one.
#[derive(Clone)]
pub(crate) struct ControlHandle {
    pub(super) mailbox: Mailbox<Control>,
    /// Of the configuration file.
    pub(super) reload: Reload,
}

impl ControlHandle {
    /// A reload reads `file`, as whoever is `privileged` may, on the thread that asks, and has
    /// control take it over.
    pub(super) fn new(
        mailbox: Mailbox<Control>,
        file: &Path,
        privileged: Arc<dyn Privileged>,
    ) -> Self {
        let (file, control): (PathBuf, _) = (file.into(), mailbox.clone());
        let reload = Reload::new(move || {
            let config = Config::of(&file, privileged.configuration(&file));
            control.call(move |control| control.reload(config))?
        });
        Self { mailbox, reload }
    }

    /// Tells it something; nobody is left to tell where it has ended.
    pub(super) fn tell(&self, what: impl FnOnce(&mut Control) + Send + 'static) {
        self.mailbox.tell(what);
    }

    /// Has `work` done on the control thread and returns what it returns.
    ///
    /// # Errors
    /// The router has ended.
    pub(super) fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Control) -> R + Send + 'static,
    ) -> Result<R, Problem> {
        self.mailbox.call(work)
    }

    /// Reloads; returns what has changed.
    ///
    /// # Errors
    /// Nothing has: the file is wrong, or asks for what cannot be.
    pub(super) fn reload(&self) -> Result<Value, Problem> {
        self.reload.now()
    }
}
