//! System calls: from a [`Reply`] to a verdict, and what the runner remembers of it.

use super::calls::on_wire;
use super::written::Offer;
use super::{Runner, World};
use crate::call::{Call, Handle, OptionValue, Out, Reply, SocketKind};
use crate::fault::{At, Fault};
use crate::names::{error_name, error_number};
use std::net::SocketAddr;

/// What a call should answer.
pub(super) struct Expected {
    pub(super) at: At,
    pub(super) name: String,
    /// `None`: anything.
    pub(super) result: Option<i64>,
    /// By name.
    pub(super) error: Option<String>,
    pub(super) effect: Effect,
}

/// What else to check of an answer, and what it changes.
pub(super) enum Effect {
    Nothing,
    /// The result is a new descriptor; with or without `O_NONBLOCK`.
    Opens {
        nonblocking: bool,
        /// None: it is no socket.
        kind: Option<SocketKind>,
        /// It is of `accept`: from this address, or from any.
        accepted: Option<Option<SocketAddr>>,
    },
    /// The script's descriptor is gone.
    Closes(i64),
    /// `O_NONBLOCK` is now this.
    Blocks(Handle, bool),
    /// The bytes read are these, or begin so.
    Reads(Vec<u8>, Length),
    /// They are the beginning of these.
    Fills(Vec<u8>),
    /// They are zeros, as all that scripts send is.
    ReadsZeros,
    /// What is written to a stream.
    Writes(Offer),
    /// A datagram is sent.
    Sends(Vec<u8>),
    /// The option has this value.
    Value(OptionValue),
    /// Events: `poll`'s `revents`, or data and events of `epoll_wait`.
    Events(Vec<(Option<u64>, u32)>),
}

/// How long what is read has to be.
pub(super) enum Length {
    Exact,
    Longer,
}

impl<W: World> Runner<'_, W> {
    pub(super) fn check_reply(&mut self, expected: Expected, reply: Reply) -> Result<(), Fault> {
        let Expected {
            at,
            name,
            result,
            error,
            effect,
        } = expected;
        let wrong = |problem: String| Err(Fault::mismatch(at, format!("{name} {problem}")));
        if let Effect::Writes(offer) = &effect {
            let taken = reply.result.unwrap_or(0);
            self.written
                .took(offer, usize::try_from(taken).unwrap_or(0));
        }
        let value = match reply.result {
            // `= -1` without a name is any error.
            Err(number) if result.is_none_or(|result| result == -1) => {
                return match error {
                    Some(error) if error_number(&error) != Some(number) => {
                        wrong(format!("failed with {}, not {error}", error_name(number)))
                    }
                    _ => Ok(()),
                };
            }
            Err(number) => {
                let result = result.unwrap_or(0);
                return wrong(format!(
                    "failed with {}; {result} was expected",
                    error_name(number)
                ));
            }
            Ok(value) => value,
        };
        if let Some(error) = error {
            return wrong(format!("returned {value}, and did not fail with {error}"));
        }
        match effect {
            Effect::Opens {
                nonblocking,
                kind,
                accepted,
            } => {
                let Ok(handle) = Handle::try_from(value) else {
                    return wrong(format!("returned {value}, which is no descriptor"));
                };
                let Some(script) = result.filter(|script| *script >= 0) else {
                    return wrong("succeeded".into());
                };
                self.handles.insert(script, handle);
                self.nonblocking.insert(handle, nonblocking);
                match kind {
                    Some(kind) => self.kinds.insert(handle, kind),
                    None => self.kinds.remove(&handle),
                };
                let stream = self.written.open(handle);
                if let Some(expected) = accepted {
                    self.subject = Some(handle);
                    let peer = match reply.out {
                        Out::Peer(peer) => Some(peer),
                        _ => None,
                    };
                    if expected.is_some() && expected.map(on_wire) != peer.map(on_wire) {
                        return wrong(format!("accepted {peer:?}, not {expected:?}"));
                    }
                    self.flows.accept(peer.map(on_wire), stream);
                }
                if nonblocking {
                    let call = Call::SetNonblocking(handle, true);
                    let problem = |problem| Fault::mismatch(at, problem);
                    self.world.call(call).map_err(problem)?;
                }
                return Ok(());
            }
            Effect::Closes(script) => {
                let closed = self.handles.remove(&script);
                if self.subject == closed {
                    self.subject = None;
                }
            }
            Effect::Blocks(handle, on) => {
                self.nonblocking.insert(handle, on);
            }
            _ => {}
        }
        if let Some(result) = result
            && value != result
        {
            return wrong(format!("returned {value}, not {result}"));
        }
        match (effect, reply.out) {
            (Effect::Reads(text, length), Out::Bytes(bytes)) => {
                let is_long = bytes.len() > text.len() && matches!(length, Length::Exact);
                match bytes.starts_with(&text) && !is_long {
                    true => Ok(()),
                    false => wrong(format!("read {:?}", String::from_utf8_lossy(&bytes))),
                }
            }
            (Effect::Fills(data), Out::Bytes(bytes)) if !data.starts_with(&bytes) => {
                wrong(format!("read {:?}", String::from_utf8_lossy(&bytes)))
            }
            (Effect::ReadsZeros, Out::Bytes(bytes)) => {
                match bytes.iter().position(|byte| *byte != 0) {
                    None => Ok(()),
                    Some(at) => wrong(format!("read other bytes than were sent, from {at} on")),
                }
            }
            (Effect::Sends(data), _) => {
                self.written.datagram(data);
                Ok(())
            }
            (Effect::Value(expected), Out::Value(found)) if !same(&expected, &found) => {
                wrong(format!("answered {found:?}, not {expected:?}"))
            }
            (Effect::Events(expected), Out::Events(found)) => {
                // Scripts write one empty event where none is expected.
                let expected = expected.iter().take(found.len().max(value as usize));
                let matches = expected.clone().count() == found.len()
                    && expected
                        .zip(&found)
                        .all(|((data, events), (found_data, found_events))| {
                            events == found_events && data.is_none_or(|data| data == *found_data)
                        });
                match matches {
                    true => Ok(()),
                    false => wrong(format!("answered with the events {found:x?}")),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Texts are compared as strings of C: up to the first zero.
fn same(expected: &OptionValue, found: &OptionValue) -> bool {
    let until_zero = |bytes: &[u8]| bytes.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
    match (expected, found) {
        (OptionValue::Bytes(a), OptionValue::Bytes(b)) => until_zero(a) == until_zero(b),
        _ => expected == found,
    }
}
