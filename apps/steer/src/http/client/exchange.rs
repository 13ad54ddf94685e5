//! A request and its answer on a connection.

use linerate_stack::socket::{Io, SocketId, interest};
use linerate_stack::tcp::connection::Error as Ended;

use super::known::read_head;
use super::{AGAIN_NS, ANSWER, Ask, Client};
use crate::http::body::{Body, Malformed};
use crate::http::site::Content;

/// Steps of one connection in a round: heads and pieces of bodies.
const STEPS: usize = 32;

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has no request.
    #[default]
    Idle,
    /// The head of an answer is waited for, or under way; the request may be, too.
    Head,
    /// The body of an answer is under way.
    Body,
    /// All has come; the server ends the connection, so that the time in which its addresses are
    /// not used again is the server's (RFC 9293 3.6.1).
    Closing,
}

/// What a step has left to do.
enum Step {
    Next,
    Wait,
    Gone,
}

#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) id: Option<SocketId>,
    pub(super) phase: Phase,
    pub(super) wanted: u8,
    pub(super) deadline_ns: u64,
    ask: Ask,
    /// Bytes of the request that are written.
    written: usize,
    /// Whether an answer has come before: then the server may end it at any time.
    is_used: bool,
    /// Whether a byte of this answer has come.
    is_begun: bool,
    code: u16,
    keeps: bool,
    body: Option<Body>,
    /// Bytes of the body so far, and whether they are the ones expected.
    at: u64,
    is_right: bool,
    /// The beginning of a head that came in parts.
    part: Vec<u8>,
}

impl Connection {
    /// A new one; the room for parts is kept.
    pub(super) fn begin(&mut self, id: SocketId) {
        let mut part = std::mem::take(&mut self.part);
        part.clear();
        *self = Self {
            id: Some(id),
            part,
            ..Self::default()
        };
    }

    pub(super) fn end(&mut self) {
        (self.id, self.phase) = (None, Phase::Idle);
        // A head of many parts does not keep its memory.
        self.part.shrink_to(1024);
    }
}

/// Whether these are the bytes of a content from `at` on.
fn is_at(content: &Content, at: u64, bytes: &[u8]) -> bool {
    match content {
        Content::Bytes(all) => {
            let rest = usize::try_from(at).ok().and_then(|at| all.get(at..));
            rest.is_some_and(|rest| rest.starts_with(bytes))
        }
        Content::Pattern(len) => at + bytes.len() as u64 <= *len && crate::pattern::is(at, bytes),
    }
}

impl Client {
    /// Sends a request.
    pub(super) fn ask(&mut self, io: &mut Io<'_>, id: SocketId, ask: Ask) {
        let index = id.index();
        let connection = &mut self.all[index];
        connection.ask = ask;
        (connection.written, connection.is_begun) = (0, false);
        connection.phase = Phase::Head;
        self.due_in(index, io.now_ns(), self.job.timeout);
        self.write(io, id);
    }

    /// Writes what there is room for of the request.
    fn write(&mut self, io: &mut Io<'_>, id: SocketId) {
        let connection = &mut self.all[id.index()];
        let text = &self.texts[connection.ask.path as usize];
        let rest = &text[connection.written..];
        match io.write(id, rest) {
            Ok(count) if count == rest.len() => {
                connection.written += count;
                self.wait(io, id, ANSWER);
            }
            Ok(count) => {
                connection.written += count;
                self.wait(io, id, ANSWER | interest::WRITE);
            }
            Err(Ended::WouldBlock) => self.wait(io, id, ANSWER | interest::WRITE),
            // What has ended it is found by who reads: an answer may have come before.
            Err(_) => self.wait(io, id, ANSWER),
        }
    }

    /// Does what can be done for a connection.
    pub(super) fn serve(&mut self, io: &mut Io<'_>, id: SocketId) {
        let index = id.index();
        let connection = &self.all[index];
        let text_bytes = self.texts[connection.ask.path as usize].len();
        if connection.phase == Phase::Head && connection.written < text_bytes {
            self.write(io, id);
        }
        for _ in 0..STEPS {
            let step = match self.all[index].phase {
                Phase::Idle | Phase::Closing => self.rest(io, id),
                Phase::Head => self.head(io, id),
                Phase::Body => self.body(io, id),
            };
            match step {
                Step::Next => {}
                Step::Wait | Step::Gone => return,
            }
        }
    }

    /// Nothing is to come but the end.
    fn rest(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        if io.readable(id) > 0 {
            // An answer that nobody asked for: who knows what the next one would answer.
            self.meter.unasked.add(1);
            io.abort(id);
            self.forget(id);
            return Step::Gone;
        }
        match io.read(id, &mut [0]) {
            Err(Ended::WouldBlock) => Step::Wait,
            Ok(_) | Err(_) => self.close(io, id),
        }
    }

    fn head(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let connection = &mut self.all[id.index()];
        let (part, known) = (&mut connection.part, &mut self.known);
        let (mut found, mut is_end, mut begun) = (None, true, None);
        let expects = self.job.expects.as_ref();
        let read = io.consume(id, |bytes| {
            is_end = false;
            let head = read_head(bytes, part, known, &mut found);
            // What comes with it of the body: all of one that is short.
            let rest = bytes.get(head..).filter(|rest| !rest.is_empty());
            let (Some(Ok(response)), Some(rest)) = (found, rest) else {
                return head;
            };
            if response.is_interim() || response.body.is_done() {
                return head;
            }
            let (mut body, mut at, mut is_right) = (response.body, 0, true);
            let expects = expects.filter(|_| response.code == 200);
            let (done, result) = take(&mut body, rest, |content| {
                if let Some(expects) = expects {
                    is_right = is_right && is_at(expects, at, content);
                }
                at += content.len() as u64;
            });
            begun = Some((body, at, is_right, result));
            head + done
        });
        match (read, found) {
            (Err(Ended::WouldBlock), _) => return Step::Wait,
            (Err(_), _) => return self.ended(io, id),
            (Ok(_), _) if is_end => return self.ended(io, id),
            (Ok(_), None) => connection.is_begun = true,
            (Ok(_), Some(Err(_))) => return self.fail(io, id),
            // 100, 103: the answer itself follows.
            (Ok(_), Some(Ok(response))) if response.is_interim() => connection.is_begun = true,
            (Ok(_), Some(Ok(response))) => {
                connection.is_begun = true;
                connection.code = response.code;
                connection.keeps = response.keeps && self.job.keeps;
                let usual = (response.body, 0, true, Ok(()));
                let (body, at, is_right, result) = begun.unwrap_or(usual);
                connection.body = Some(body);
                (connection.at, connection.is_right) = (at, is_right);
                connection.phase = Phase::Body;
                if result.is_err() {
                    return self.fail(io, id);
                }
                self.meter.bytes.add(at);
                if body.is_done() {
                    return self.answered(io, id);
                }
            }
        }
        Step::Next
    }

    fn body(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let connection = &mut self.all[id.index()];
        let expects = self.job.expects.as_ref().filter(|_| connection.code == 200);
        let Some(mut body) = connection.body else {
            return self.fail(io, id);
        };
        let mut taken = None;
        let (before, mut is_right) = (connection.at, connection.is_right);
        let mut at = before;
        let read = io.consume(id, |bytes| {
            let (done, result) = take(&mut body, bytes, |content| {
                if let Some(expects) = expects {
                    is_right = is_right && is_at(expects, at, content);
                }
                at += content.len() as u64;
            });
            taken = Some(result);
            done
        });
        match (read, taken) {
            (Err(Ended::WouldBlock), _) => return Step::Wait,
            // The end is that of the body, if the connection has ended well.
            (Ok(_), None) if body == Body::UntilEnd => return self.answered(io, id),
            (Err(_), _) | (Ok(_), None) => return self.ended(io, id),
            (Ok(_), Some(Err(_))) => return self.fail(io, id),
            (Ok(_), Some(Ok(()))) => {}
        }
        self.meter.bytes.add(at - before);
        (connection.at, connection.is_right) = (at, is_right);
        connection.body = Some(body);
        match body.is_done() {
            true => self.answered(io, id),
            false => Step::Next,
        }
    }

    /// All of an answer has come.
    fn answered(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let now_ns = io.now_ns();
        let connection = &mut self.all[id.index()];
        let (code, at) = (connection.code, connection.at);
        self.meter
            .answered(code, now_ns.saturating_sub(connection.ask.intended_ns));
        if let (200, Some(expects)) = (code, &self.job.expects)
            && !(connection.is_right && at == expects.len())
        {
            self.meter.wrong.add(1);
        }
        // An answer before all of the request has left: the rest would be taken for another one.
        let is_asked = connection.written == self.texts[connection.ask.path as usize].len();
        connection.is_used = true;
        if !(connection.keeps && is_asked) {
            connection.phase = Phase::Closing;
            self.due_in(id.index(), now_ns, self.job.timeout);
            return Step::Next;
        }
        connection.phase = Phase::Idle;
        match self.due(now_ns) {
            Ok(ask) => {
                // Where others wait for longer, they are first.
                match self.take_idle() {
                    Some(first) => {
                        self.put_idle(id);
                        self.leaves();
                        self.ask(io, first, ask);
                    }
                    None => {
                        self.leaves();
                        self.ask(io, id, ask);
                        return self.after_ask(io, id);
                    }
                }
            }
            // There is nothing more to ask for.
            Err(linerate_core::run::NEVER) => return self.close(io, id),
            Err(_) => self.put_idle(id),
        }
        self.after_ask(io, id)
    }

    /// What may have come already.
    fn after_ask(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        match io.readable(id) {
            // Its end is told as an event.
            0 => Step::Wait,
            _ => Step::Next,
        }
    }

    /// The connection has ended before the answer was whole.
    fn ended(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let connection = &self.all[id.index()];
        // RFC 9112 9.3.1, 9.5: a server may end a kept connection just as a request leaves; a GET
        // may be asked again. On a new connection it would be the same once more.
        if !connection.is_used || connection.is_begun {
            return self.fail(io, id);
        }
        self.again.push_back(connection.ask);
        self.meter.again.add(1);
        self.close(io, id)
    }

    fn fail(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        let connection = &self.all[id.index()];
        let is_new = !(connection.is_used || connection.is_begun);
        self.meter.failed.add(1);
        io.abort(id);
        self.forget(id);
        if is_new && self.open == 0 {
            // Nobody gets through: perhaps there is no server.
            self.next_connect_ns = io.now_ns() + AGAIN_NS;
        }
        Step::Gone
    }

    fn close(&mut self, io: &mut Io<'_>, id: SocketId) -> Step {
        io.close(id);
        self.forget(id);
        Step::Gone
    }
}

/// Takes the pieces of a body from the front of `bytes`, and shows `see` those that are content;
/// how many bytes are done with.
fn take(
    body: &mut Body,
    bytes: &[u8],
    mut see: impl FnMut(&[u8]),
) -> (usize, Result<(), Malformed>) {
    let mut at = 0;
    while at < bytes.len() && !body.is_done() {
        match body.next(&bytes[at..]) {
            Ok((framing, content)) => {
                let from = at + framing;
                at = from + content;
                see(&bytes[from..at]);
            }
            Err(malformed) => return (bytes.len(), Err(malformed)),
        }
    }
    (at, Ok(()))
}
