//! What goes: heads of responses and their bodies, and the end of a connection.

use linerate_stack::socket::{Io, SocketId, interest};
use linerate_stack::tcp::connection::Error as Ended;

use super::connection::{Connection, Phase, Step};
use super::{LINGER_NS, Life, Server};
use crate::http::answer::{Said, Status, front_of_part, head_len, write_head};
use crate::http::site::{Content, Resource, TEXT};

/// Bytes of a body that are written at a time.
const PIECE: usize = 64 << 10;
/// The part of a body that goes along with its head, in bytes.
pub(super) const FIRST: usize = 16 << 10;
/// An answer of at most so many bytes is written where it is sent from: one segment, one chunk.
const SMALL: usize = 1400;

impl Connection {
    /// It is to be answered by this, with what of a body lies between two places, or by the status'
    /// own words.
    pub(super) fn answers(&mut self, status: Status, part: Option<(u64, u64)>) {
        self.status = status;
        (self.at, self.end) = part.unwrap_or((0, status.line().len() as u64));
        (self.has_head, self.is_timed) = (true, false);
    }

    /// What the head says of the connection (RFC 9112 9.3, 9.6).
    fn said(&self) -> Said {
        match (self.keeps, self.is_1_1) {
            (false, _) => Said::Close,
            (true, false) => Said::KeepAlive,
            (true, true) => Said::Nothing,
        }
    }
}

/// The bytes of an answer's body from `at` on: a resource's, or the words of the status.
fn copy(resource: Option<&Resource>, status: Status, at: u64, to: &mut [u8]) -> usize {
    match resource {
        Some(resource) => resource.content.copy(at, to),
        None => {
            let text = status.line().as_bytes();
            let rest = text.get(at as usize..).unwrap_or(&[]);
            let count = rest.len().min(to.len());
            to[..count].copy_from_slice(&rest[..count]);
            count
        }
    }
}

impl Server {
    /// Writes what there is room for of the answer.
    pub(super) fn answer(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let index = id.index();
        let written = match self.all[index].has_head {
            true => self.first(io, id),
            false => self.more(io, id),
        };
        let count = match written {
            Ok(count) => count as u64,
            Err(Ended::WouldBlock) => 0,
            Err(_) => {
                self.fail(io, id);
                return Step::Gone;
            }
        };
        self.bytes += count;
        let connection = &mut self.all[index];
        if connection.is_written() {
            return self.written(io, id);
        }
        match std::mem::replace(&mut connection.is_timed, true) {
            true => self.progress(index, io.now_ns(), count),
            false => self.due(index, io.now_ns(), self.limits.stall),
        }
        match count {
            0 => Step::Wait(interest::WRITE),
            _ => Step::Next,
        }
    }

    /// All of an answer is.
    fn written(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let index = id.index();
        let connection = &mut self.all[index];
        if connection.keeps && self.life == Life::Replaced {
            self.release(id);
            return Step::Gone;
        }
        if connection.keeps {
            connection.phase = Phase::Head;
            self.due(index, io.now_ns(), self.limits.idle);
            // The end of a connection is told as an event too.
            return match io.readable(id) {
                0 => Step::Wait(interest::READ),
                _ => Step::Next,
            };
        }
        let is_silent = io.readable(id) == 0;
        if is_silent && !connection.lingers {
            // It has said itself that it sends no more (RFC 9112 9.6): the stack does the rest.
            self.end(io, id);
            return Step::Gone;
        }
        connection.phase = Phase::Linger;
        let _ = io.shutdown(id);
        self.due_ns(index, io.now_ns(), LINGER_NS);
        match is_silent {
            true => Step::Wait(interest::READ),
            false => Step::Next,
        }
    }

    /// The head of the answer, and what fits behind it, in one write and so in one segment.
    fn first(&mut self, io: &mut Io<'_>, id: SocketId) -> Result<usize, Ended> {
        let connection = &mut self.all[id.index()];
        let (status, said, at) = (connection.status, connection.said(), connection.at);
        let resource = self.site.get(connection.resource);
        let of_part = match (status, resource) {
            (Status::Partial, Some(resource)) => {
                let part = Some((at, connection.end));
                Some(front_of_part(part, connection.all, resource.media_type))
            }
            (Status::NoSuchRange, _) => Some(front_of_part(None, connection.all, TEXT)),
            _ => None,
        };
        let front = match (&of_part, resource) {
            (Some(front), _) => front,
            (None, Some(resource)) => &resource.front,
            (None, None) => &self.fronts[status as usize],
        };
        let (len, date) = (head_len(front, said), &self.date);
        let left = (connection.end - at).min(FIRST as u64) as usize;
        let is_last = !connection.keeps && at + left as u64 == connection.end;
        if is_last {
            // The FIN goes with the answer: the shutdown that follows takes this back.
            let _ = io.set_cork(id, true);
        }
        let mut written = Ok(0);
        if len + left <= SMALL {
            written = io.write_with(id, len + left, |room| {
                if room.len() < len + left {
                    return 0;
                }
                let (head, behind) = room.split_at_mut(len);
                write_head(front, date, said, head);
                copy(resource, status, at, &mut behind[..left]);
                len + left
            });
        }
        if written == Ok(0) {
            // Of one that has ended, the write says by what.
            written = match io.writable(id) < len {
                true => io.write(id, &[]).and(Err(Ended::WouldBlock)),
                false => {
                    let (head, behind) = self.scratch.split_at_mut(len);
                    write_head(front, date, said, head);
                    let count = copy(resource, status, at, &mut behind[..left]);
                    io.write(id, &self.scratch[..len + count])
                }
            };
        }
        if is_last && written != Ok(len + left) {
            let _ = io.set_cork(id, false);
        }
        let written = written?;
        connection.has_head = false;
        self.by_status[status as usize] += 1;
        if written < len {
            // For want of memory even of the head some may be left: it lies in scratch.
            connection
                .part
                .extend_from_slice(&self.scratch[written..len]);
        }
        connection.at += written.saturating_sub(len) as u64;
        Ok(written)
    }

    /// What follows.
    fn more(&mut self, io: &mut Io<'_>, id: SocketId) -> Result<usize, Ended> {
        let connection = &mut self.all[id.index()];
        if !connection.part.is_empty() {
            let written = io.write(id, &connection.part)?;
            connection.part.drain(..written);
            return Ok(written);
        }
        let left = (connection.end - connection.at).min(PIECE as u64) as usize;
        if left == 0 {
            return Ok(0);
        }
        let (mut from, status) = (connection.at, connection.status);
        let resource = self.site.get(connection.resource);
        let written = match resource.map(|resource| &resource.content) {
            Some(Content::Bytes(bytes)) => {
                let from = from as usize;
                io.write(id, &bytes[from..from + left])?
            }
            _ => io.write_rooms(id, left, |room| {
                let count = copy(resource, status, from, room);
                from += count as u64;
                count
            })?,
        };
        connection.at += written as u64;
        Ok(written)
    }

    /// Discards what still comes, so that no reset takes the answer away from the peer.
    pub(super) fn linger(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let more = match io.readable(id) {
            0 => io.read(id, &mut [0]).map(|_| false),
            _ => io.consume(id, <[u8]>::len).map(|_| true),
        };
        match more {
            Ok(true) => Step::Next,
            Err(Ended::WouldBlock) => Step::Wait(interest::READ),
            // The end, or an error: either way it is over.
            Ok(false) | Err(_) => {
                self.end(io, id);
                Step::Gone
            }
        }
    }
}
