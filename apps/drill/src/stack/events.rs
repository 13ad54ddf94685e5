//! Which sockets are ready: `poll` by what is known of a connection, `epoll` by the stack's own
//! list of those that are.

use super::OwnStack;
use super::calls::{Answer, Datagram, Role, Socket};
use super::errors::number_of;
use crate::call::{Handle, Out, Reply};
use linerate_stack::socket::{Event, ListenerId, Source, interest};
use linerate_stack::tcp::connection::State;

impl OwnStack {
    /// Events of a socket, as `poll` has them.
    pub(super) fn readiness(&mut self, now_ns: u64, handle: Handle) -> u32 {
        let mut io = self.stack.io(now_ns, &mut self.out);
        let events = match self.sockets.get(&handle) {
            None => libc::POLLNVAL,
            Some(Socket::Epoll(_)) => 0,
            Some(Socket::Datagram(Datagram { id, .. })) => {
                let waiting = id.is_some_and(|id| io.udp().0.waiting(id).is_ok_and(|n| n > 0));
                libc::POLLOUT | if waiting { libc::POLLIN } else { 0 }
            }
            Some(Socket::Stream(stream)) => match stream.role {
                Role::Fresh => libc::POLLOUT | libc::POLLHUP,
                Role::Listener(id) => {
                    let is_waiting = io
                        .listeners()
                        .any(|(other, _, _, waiting, _, _)| other == id && waiting > 0);
                    if is_waiting { libc::POLLIN } else { 0 }
                }
                Role::Connection(id) => {
                    let Ok(info) = io.info(id) else {
                        return libc::POLLNVAL as u32;
                    };
                    let is_over = matches!(info.state, State::Closed | State::TimeWait);
                    let is_peer_closed = is_over
                        || matches!(
                            info.state,
                            State::CloseWait | State::LastAck | State::Closing
                        );
                    let has_error = io.error(id).is_some() && !stream.is_error_told;
                    let mut events = 0;
                    if is_peer_closed || info.readable_bytes > 0 {
                        events |= libc::POLLIN;
                    }
                    if is_peer_closed {
                        events |= libc::POLLRDHUP;
                    }
                    if is_over || io.writable(id) > 0 && info.state.is_synchronized() {
                        events |= libc::POLLOUT;
                    }
                    if is_over {
                        events |= libc::POLLHUP;
                    }
                    if has_error {
                        events |= libc::POLLERR;
                    }
                    events
                }
            },
        };
        events as u32
    }

    pub(super) fn watch(
        &mut self,
        now_ns: u64,
        instance: Handle,
        op: i32,
        handle: Handle,
        (events, data): (u32, u64),
    ) -> Answer {
        let role = self.stream(handle)?.role;
        let Some(Socket::Epoll(epoll)) = self.sockets.get_mut(&instance) else {
            return Err(libc::EINVAL);
        };
        let known = epoll.watched.contains_key(&handle);
        let wanted = match (op, known) {
            (libc::EPOLL_CTL_ADD, true) => return Err(libc::EEXIST),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => return Err(libc::ENOENT),
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _) => {
                epoll.watched.insert(handle, (events, data));
                interest_of(events)
            }
            (libc::EPOLL_CTL_DEL, _) => {
                epoll.watched.remove(&handle);
                0
            }
            _ => return Err(libc::EINVAL),
        };
        if let Role::Connection(id) = role {
            let mut io = self.stack.io(now_ns, &mut self.out);
            // The stack's word for it is the handle; the data are this side's.
            let token = u64::from(handle.unsigned_abs());
            io.register(id, wanted, token).map_err(number_of)?;
        }
        Ok(Reply::ok(0))
    }

    pub(super) fn wait(&mut self, now_ns: u64, instance: Handle, most: usize) -> Answer {
        let Some(Socket::Epoll(epoll)) = self.sockets.get(&instance) else {
            return Err(libc::EINVAL);
        };
        let listener_of = |id: ListenerId| {
            let is_it = |handle: &&Handle| {
                matches!(
                    self.sockets.get(*handle),
                    Some(Socket::Stream(stream)) if stream.role == Role::Listener(id)
                )
            };
            epoll.watched.keys().find(is_it).copied()
        };
        let mut ready = Vec::new();
        let mut events = vec![Event::EMPTY; most];
        let count = self
            .stack
            .io(now_ns, &mut self.out)
            .poll(events.as_mut_slice());
        for event in &events[..count] {
            let handle = match event.source {
                Source::Connection(_) => Handle::try_from(event.token).ok(),
                Source::Listener(id) => listener_of(id),
            };
            let Some((_, data)) = handle.and_then(|handle| epoll.watched.get(&handle)) else {
                continue;
            };
            ready.push((*data, events_of(event.ready)));
        }
        Ok(Reply::with(ready.len() as i64, Out::Events(ready)))
    }
}

/// `EPOLL` events as the stack's interest.
fn interest_of(events: u32) -> u8 {
    [
        (libc::EPOLLIN, interest::READ),
        (libc::EPOLLOUT, interest::WRITE),
        (libc::EPOLLRDHUP, interest::HANG_UP),
        (libc::EPOLLPRI, interest::URGENT),
        (libc::EPOLLET, interest::EDGE),
        (libc::EPOLLONESHOT, interest::ONE_SHOT),
    ]
    .into_iter()
    .filter(|(event, _)| events & event.cast_unsigned() != 0)
    .fold(0, |sum, (_, bit)| sum | bit)
}

fn events_of(ready: u8) -> u32 {
    [
        (libc::EPOLLIN, interest::READ),
        (libc::EPOLLOUT, interest::WRITE),
        (libc::EPOLLRDHUP, interest::HANG_UP),
        (libc::EPOLLPRI, interest::URGENT),
        (libc::EPOLLERR, interest::ERROR),
    ]
    .into_iter()
    .filter(|(_, bit)| ready & bit != 0)
    .fold(0, |sum, (event, _)| sum | event.cast_unsigned())
}
