//! A Diameter connection: capabilities first, watchdogs while nothing is said, a polite end
//! (RFC 6733 5.3 to 5.5, RFC 3539).
//!
//! It belongs to the core that has its stream. Messages of the application are for the caller, and
//! only on a connection that is open.

use super::{APPLICATION, Identity, ROOM, VENDOR};
use crate::link::{Link, MS, Notice, Sink};
use linerate_wire::diameter::{Diameter, Flags, Writer, avp, command, result};

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// There is none.
    #[default]
    Closed,
    /// We asked for capabilities, or wait to be asked.
    Waiting,
    /// Both know that the other speaks S6a.
    Open,
    /// We asked to disconnect.
    Closing,
}

/// One connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connection {
    state: State,
    /// When the peer said something last.
    heard_ms: u64,
    /// A watchdog request is under way.
    is_asked: bool,
    number: u32,
}

/// Requests of the connection itself have these numbers, those of users have 24 bits.
const OWN_NUMBERS: u32 = 0x8000_0000;

impl Connection {
    /// How far it is.
    pub fn state(&self) -> State {
        self.state
    }

    /// The stream is there. Who opened it asks for capabilities (RFC 6733 5.3).
    pub fn opened(
        &mut self,
        now_ns: u64,
        link: Link,
        who: &Identity,
        is_ours: bool,
        out: &mut impl Sink,
    ) {
        *self = Self {
            state: State::Waiting,
            heard_ms: now_ns / MS,
            ..Self::default()
        };
        if is_ours {
            self.ask(link, command::CAPABILITIES_EXCHANGE, who, out, |to| {
                capabilities(to, who);
            });
        }
    }

    /// The stream is gone.
    pub fn closed(&mut self) {
        self.state = State::Closed;
    }

    /// Asks to disconnect (RFC 6733 5.4): the node goes down.
    pub fn disconnect(&mut self, link: Link, who: &Identity, out: &mut impl Sink) {
        if self.state == State::Open {
            self.ask(link, command::DISCONNECT_PEER, who, out, |to| {
                to.u32(avp::DISCONNECT_CAUSE, None, 0); // rebooting
            });
            self.state = State::Closing;
        }
    }

    fn ask(
        &mut self,
        link: Link,
        command: u32,
        who: &Identity,
        out: &mut impl Sink,
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        self.number = self.number.wrapping_add(1) | OWN_NUMBERS;
        let (mut room, number) = ([0; ROOM], self.number);
        let mut to = Writer::new(&mut room, Flags::REQUEST, command, 0, number, number);
        origin(&mut to, who);
        fill(&mut to);
        out.send(link, to.finish().expect("no message here is longer"));
    }

    /// Takes a message: true if it is one of the application, which the caller handles.
    pub fn take(
        &mut self,
        now_ns: u64,
        link: Link,
        message: &Diameter<&[u8]>,
        who: &Identity,
        out: &mut impl Sink,
    ) -> bool {
        if self.state == State::Closed {
            return false; // what comes after the end
        }
        (self.heard_ms, self.is_asked) = (now_ns / MS, false);
        if message.application() != 0 {
            return self.state == State::Open;
        }
        match (message.command(), message.is_request()) {
            (command::CAPABILITIES_EXCHANGE, true) => {
                let is_common = speaks_s6a(message);
                let code = match is_common {
                    true => result::SUCCESS,
                    false => result::NO_COMMON_APPLICATION,
                };
                answer(link, message, who, code, out, |to| capabilities(to, who));
                if is_common {
                    self.state = State::Open;
                } else {
                    self.close(link, out);
                }
            }
            (command::CAPABILITIES_EXCHANGE, false) if self.state == State::Waiting => {
                let code = message.avps().flatten();
                let code = code.filter(|avp| avp.is(avp::RESULT_CODE, None)).last();
                let code = code.and_then(|code| code.u32());
                if code.is_some_and(result::is_success) && speaks_s6a(message) {
                    self.state = State::Open;
                } else {
                    self.close(link, out);
                }
            }
            (command::DEVICE_WATCHDOG, true) => {
                answer(link, message, who, result::SUCCESS, out, |_| {});
            }
            (command::DISCONNECT_PEER, true) => {
                answer(link, message, who, result::SUCCESS, out, |_| {});
                self.close(link, out);
            }
            (command::DISCONNECT_PEER, false) => self.close(link, out),
            (_, false) => {}
            (_, true) => {
                let code = result::COMMAND_UNSUPPORTED;
                answer(link, message, who, code, out, |_| {});
            }
        }
        false
    }

    fn close(&mut self, link: Link, out: &mut impl Sink) {
        self.state = State::Closed;
        out.tell(Notice::Closed(link));
    }

    /// Watches: after `silence_ms` (Tw of RFC 3539, 30 s by default) without a word, the peer is
    /// asked; after that again, it counts as gone. Returns when to be called again, in ns.
    pub fn poll(
        &mut self,
        now_ns: u64,
        link: Link,
        who: &Identity,
        silence_ms: u64,
        out: &mut impl Sink,
    ) -> Option<u64> {
        if self.state == State::Closed {
            return None;
        }
        if now_ns / MS >= self.heard_ms + silence_ms {
            if self.is_asked || self.state != State::Open {
                self.close(link, out);
                return None;
            }
            self.ask(link, command::DEVICE_WATCHDOG, who, out, |_| {});
            (self.is_asked, self.heard_ms) = (true, now_ns / MS);
        }
        Some((self.heard_ms + silence_ms) * MS)
    }
}

fn origin(to: &mut Writer<'_>, who: &Identity) {
    to.avp(avp::ORIGIN_HOST, None, who.host.as_bytes());
    to.avp(avp::ORIGIN_REALM, None, who.realm.as_bytes());
}

fn capabilities(to: &mut Writer<'_>, who: &Identity) {
    let [a, b, c, d] = who.address.octets();
    to.avp(avp::HOST_IP_ADDRESS, None, &[0, 1, a, b, c, d]);
    to.u32(avp::VENDOR_ID, None, 0);
    to.optional(avp::PRODUCT_NAME, None, b"linerate");
    to.u32(avp::ORIGIN_STATE_ID, None, who.restarts);
    to.u32(avp::SUPPORTED_VENDOR_ID, None, VENDOR);
    super::application(to);
}

/// Whether a message names S6a among its applications.
fn speaks_s6a(message: &Diameter<&[u8]>) -> bool {
    const RELAY: u32 = 0xffff_ffff;
    let is_it = |id: Option<u32>| matches!(id, Some(APPLICATION | RELAY));
    message.avps().flatten().any(|avp| match avp.code {
        avp::AUTH_APPLICATION_ID => is_it(avp.u32()),
        avp::VENDOR_SPECIFIC_APPLICATION_ID => avp
            .avps()
            .flatten()
            .any(|inside| inside.is(avp::AUTH_APPLICATION_ID, None) && is_it(inside.u32())),
        _ => false,
    })
}

fn answer(
    link: Link,
    to: &Diameter<&[u8]>,
    who: &Identity,
    code: u32,
    out: &mut impl Sink,
    fill: impl FnOnce(&mut Writer<'_>),
) {
    let mut room = [0; ROOM];
    // RFC 6733 7.1.3: the E bit is set for what breaks the protocol.
    let flags = match code {
        3000..=3999 => Flags::ERROR,
        _ => Flags(0),
    };
    let (hop, end) = (to.hop_by_hop(), to.end_to_end());
    let mut writer = Writer::new(&mut room, flags, to.command(), to.application(), hop, end);
    writer.u32(avp::RESULT_CODE, None, code);
    origin(&mut writer, who);
    fill(&mut writer);
    out.send(link, writer.finish().expect("no message here is longer"));
}
