//! What the service manager hears (sd_notify(3)): that packets are forwarded, that a reload is
//! under way, that all ends, and, where it asks for that, that this process is alive.
//!
//! Each is one datagram of lines `NAME=value` to the socket that `$NOTIFY_SOCKET` names. Nobody
//! answers.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Longest status, in characters: systemd ignores datagrams of more than 4096 bytes.
const STATUS_CHARS: usize = 800;
/// Longest time that a manager which does not read is waited for.
const PATIENCE: Duration = Duration::from_millis(100);

/// The service manager; or nobody, where none started this process or it does not want to hear.
#[derive(Debug, Default)]
pub struct Notify {
    manager: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that this process is alive, and when it is to hear so next.
    watchdog: Option<(Duration, Instant)>,
    is_warned: bool,
}

impl Notify {
    /// The one that started this process, by what it has put into the environment.
    pub fn from_environment() -> Self {
        Self::by(|name| std::env::var_os(name), Instant::now())
    }

    fn by(variable: impl Fn(&str) -> Option<OsString>, now: Instant) -> Self {
        let Some(name) = variable("NOTIFY_SOCKET") else {
            return Self::default();
        };
        let open = || -> io::Result<_> {
            let socket = UnixDatagram::unbound()?;
            socket.set_write_timeout(Some(PATIENCE))?;
            let address = address(&name)?;
            // Now, as the user who was started: later this one may not get to the socket.
            socket.connect_addr(&address)?;
            Ok((socket, address))
        };
        let mut notify = Self::default();
        match open() {
            Ok(manager) => notify.manager = Some(manager),
            Err(error) => notify.warn(&error),
        }
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        // The variables are inherited: they may have been meant for somebody else.
        let meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        notify.watchdog = number("WATCHDOG_USEC")
            .filter(|&time| meant && time > 0)
            .map(|time| (Duration::from_micros(time) / 2, now));
        notify
    }

    /// Packets are forwarded, by the newest configuration; in a line, how it is.
    pub fn ready(&mut self, status: &str) {
        let status: String = status.chars().take(STATUS_CHARS).collect();
        let status = status.replace('\n', "; ");
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// A reload has begun; [`Notify::ready`] ends it.
    pub fn reloading(&mut self) {
        let now = clock_gettime(ClockId::Monotonic);
        let now_us = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
    }

    /// All ends.
    pub fn stopping(&mut self) {
        self.tell("STOPPING=1");
    }

    /// This process is alive at this time.
    pub fn alive(&mut self, now: Instant) {
        if let Some((time, due)) = &mut self.watchdog
            && now >= *due
        {
            *due = now + *time;
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&mut self, text: &str) {
        let Some((socket, address)) = &self.manager else {
            return;
        };
        // A manager that began anew has another socket of that name.
        let told = socket.send(text.as_bytes());
        let told = told.or_else(|_| socket.send_to_addr(text.as_bytes(), address));
        if let Err(error) = told {
            self.warn(&error);
        }
    }

    fn warn(&mut self, error: &io::Error) {
        if !self.is_warned {
            eprintln!(
                "warning: the service manager cannot be told how this process is: {error}\n\
                 fix: let NOTIFY_SOCKET name a socket that this user may write to, or unset it"
            );
        }
        self.is_warned = true;
    }
}

/// A path, or behind an @ a name without a file.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{}` is no path and no @name", name.display()),
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A manager, and the environment that it makes for who it starts.
    fn manager(name: &str, more: &[(&str, &str)]) -> (UnixDatagram, Notify, Instant) {
        let name = format!("@linerate-notify-{}-{name}", std::process::id());
        let socket = UnixDatagram::bind_addr(&address(name.as_ref()).unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let now = Instant::now();
        let notify = Notify::by(
            |wanted| match wanted {
                "NOTIFY_SOCKET" => Some((&name).into()),
                _ => Some(more.iter().find(|(name, _)| *name == wanted)?.1.into()),
            },
            now,
        );
        (socket, notify, now)
    }

    fn heard(socket: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 8192];
        let length = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    #[test]
    fn each_message_is_one_datagram() {
        let (socket, mut notify, now) = manager("each", &[]);
        notify.ready("refused:\nmany");
        assert_eq!(heard(&socket).unwrap(), "READY=1\nSTATUS=refused:; many");
        notify.ready(&"\u{2026}".repeat(5000));
        assert!(heard(&socket).unwrap().len() < 4096);
        notify.reloading();
        let said = heard(&socket).unwrap();
        let time = said.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(time.parse::<u64>().unwrap() > 0);
        notify.stopping();
        assert_eq!(heard(&socket).unwrap(), "STOPPING=1");
        // Nobody asked for it.
        notify.alive(now + Duration::from_secs(60));
        assert_eq!(heard(&socket), None);
    }

    #[test]
    fn who_asks_hears_of_life_twice_in_that_time() {
        let (socket, mut notify, now) = manager("life", &[("WATCHDOG_USEC", "10000000")]);
        for (seconds, hears) in [(0, true), (4, false), (5, true), (9, false), (100, true)] {
            notify.alive(now + Duration::from_secs(seconds));
            assert_eq!(heard(&socket).is_some(), hears, "{seconds} s");
        }
        let others = [("WATCHDOG_USEC", "10000000"), ("WATCHDOG_PID", "1")];
        let (socket, mut notify, now) = manager("others", &others);
        notify.alive(now + Duration::from_secs(60));
        assert_eq!(heard(&socket), None);
    }

    #[test]
    fn without_systemd_nothing_is_sent_and_its_end_is_reported_once() {
        let mut nobody = Notify::by(|_| None, Instant::now());
        nobody.ready("");
        assert!(nobody.manager.is_none() && !nobody.is_warned);
        let (socket, mut notify, _) = manager("gone", &[]);
        drop(socket);
        notify.ready("");
        assert!(notify.is_warned);
        assert!(address(OsStr::new("vsock:2:1")).is_err());
    }
}
