//! What comes: heads of requests and their bodies.

use linerate_stack::socket::{Io, SocketId, interest};
use linerate_stack::tcp::connection::Error as Ended;

use super::connection::{Phase, Step};
use super::{Life, Limits, NONE, Server};
use crate::http::answer::Status;
use crate::http::request::{self, Method, Request, Wrong};
use crate::http::site::Site;

impl Server {
    /// Reads the head of a request.
    pub(super) fn head(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let index = id.index();
        let (limits, site) = (&self.limits, &self.site);
        let part = &mut self.all[index].part;
        let was_empty = part.is_empty();
        let mut found = None;
        let mut is_end = true;
        let read = io.consume(id, |bytes| {
            is_end = false;
            read_head(bytes, part, limits, site, &mut found)
        });
        match (read, found) {
            (Err(Ended::WouldBlock), _) => Step::Wait(interest::READ),
            (Err(_), _) => {
                self.fail(io, id);
                Step::Gone
            }
            // The peer sends no more, and nobody waits for an answer.
            (Ok(_), None) if is_end => {
                self.end(io, id);
                Step::Gone
            }
            (Ok(_), None) => {
                if was_empty {
                    self.due(index, io.now_ns(), self.limits.head);
                }
                Step::Next
            }
            (Ok(_), Some(Err(wrong))) => {
                self.refuse(index, io.now_ns(), wrong.into());
                Step::Next
            }
            (Ok(_), Some(Ok((request, resource)))) => self.asked(io, id, &request, resource),
        }
    }

    /// A head is there.
    fn asked(&mut self, io: &mut Io<'_>, id: SocketId, request: &Request, resource: u32) -> Step {
        let index = id.index();
        let resource_of = self.site.get(resource);
        let (status, part) = match (resource_of, request.method, request.range) {
            (None, ..) => (Status::NotFound, None),
            (Some(_), Method::Other, _) => (Status::NotAllowed, None),
            (Some(resource), _, None) => (Status::Ok, Some((0, resource.content.len()))),
            (Some(resource), _, Some(range)) => match range.of(resource.content.len()) {
                None => (Status::NoSuchRange, None),
                part => (Status::Partial, part),
            },
        };
        let connection = &mut self.all[index];
        let keeps = request.keeps && self.life != Life::Ends;
        (connection.keeps, connection.lingers) = (keeps, request.keeps != keeps);
        connection.is_1_1 = request.is_1_1;
        connection.answers(status, part);
        connection.resource = match status {
            Status::Ok | Status::Partial => resource,
            _ => NONE,
        };
        if request.range.is_some() {
            connection.all = resource_of.map_or(0, |resource| resource.content.len());
        }
        if request.method == Method::Head {
            // Its length is said, and nothing sent (RFC 9110 9.3.2).
            connection.at = connection.end;
        }
        if request.body.is_done() {
            // Its deadline is set where the answer does not leave at once.
            connection.phase = Phase::Answer;
            return Step::Next;
        }
        connection.body = request.body;
        connection.body_left = self.limits.body_bytes;
        connection.phase = Phase::Body;
        self.due(index, io.now_ns(), self.limits.stall);
        if request.expects {
            const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
            // There is room for it in an empty buffer; where there is not, the peer goes on
            // without it after a while (RFC 9110 10.1.1).
            if io.writable(id) >= CONTINUE.len() {
                let _ = io.write(id, CONTINUE);
            }
        }
        Step::Next
    }

    /// What came is no request that can be answered otherwise: the connection ends after this.
    pub(super) fn refuse(&mut self, index: usize, now_ns: u64, status: Status) {
        let connection = &mut self.all[index];
        connection.part.clear();
        connection.phase = Phase::Answer;
        (connection.keeps, connection.lingers) = (false, true);
        connection.is_1_1 = true;
        connection.answers(status, None);
        connection.resource = NONE;
        connection.is_timed = true;
        self.due(index, now_ns, self.limits.stall);
    }

    /// Discards the body of a request.
    pub(super) fn body(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let index = id.index();
        let mut body = self.all[index].body;
        let mut taken = None;
        let read = io.consume(id, |bytes| {
            let result = body.take(bytes);
            taken = Some(result);
            result.map_or(bytes.len(), |(count, _)| count)
        });
        let count = match (read, taken) {
            (Err(Ended::WouldBlock), _) => return Step::Wait(interest::READ),
            // The end, before that of the body.
            (Err(_), _) | (Ok(_), None) => {
                self.fail(io, id);
                return Step::Gone;
            }
            (Ok(_), Some(Err(_))) => {
                self.refuse(index, io.now_ns(), Status::BadRequest);
                return Step::Next;
            }
            (Ok(count), Some(Ok((_, content)))) => {
                let left = &mut self.all[index].body_left;
                if content > *left {
                    self.refuse(index, io.now_ns(), Status::BodyTooLarge);
                    return Step::Next;
                }
                *left -= content;
                count as u64
            }
        };
        self.all[index].body = body;
        if body.is_done() {
            self.all[index].phase = Phase::Answer;
        } else {
            self.progress(index, io.now_ns(), count);
        }
        Step::Next
    }
}

/// What a head says: itself and the number of its resource.
type Found = Option<Result<(Request, u32), Wrong>>;

/// Reads a head from `bytes`, or from `part` and them; returns how many of them are done with.
fn read_head(
    bytes: &[u8],
    part: &mut Vec<u8>,
    limits: &Limits,
    site: &Site,
    found: &mut Found,
) -> usize {
    let before = part.len();
    let taken = bytes.len().min(limits.head_bytes.saturating_sub(before));
    let whole = match before {
        0 => &bytes[..taken],
        _ => {
            part.extend_from_slice(&bytes[..taken]);
            // Without an end of line a head has no end: it need not be read again.
            if !bytes[..taken].contains(&b'\n') && part.len() < limits.head_bytes {
                return taken;
            }
            &part[..]
        }
    };
    match request::read(whole, limits.body_bytes) {
        Ok(Some((len, request, target))) => {
            let resource = site.find(target).unwrap_or(NONE);
            *found = Some(Ok((request, resource)));
            part.clear();
            // It was not whole without some of these bytes.
            len.saturating_sub(before)
        }
        Ok(None) if whole.len() >= limits.head_bytes => {
            *found = Some(Err(Wrong::TooLarge));
            bytes.len()
        }
        Ok(None) => {
            if before == 0 {
                part.extend_from_slice(bytes);
            }
            taken
        }
        Err(wrong) => {
            *found = Some(Err(wrong));
            bytes.len()
        }
    }
}
