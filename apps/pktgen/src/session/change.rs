//! Streams and ports that change while they run: a change is checked first, then each sender gets
//! it between two frames. Numbers and counters continue.

use std::path::Path;
use std::sync::Arc;

use super::config::PORT_KEYS;
use super::streams::{self, Load, Loads, OpenStream, Order, Shard, weight};
use super::{Session, room_for};
use crate::engine::{Content, Engine, MOST_BYTES, Pace, Recording, StreamSent};
use crate::stream::StreamSpec;
use crate::units::FCS_BYTES;
use linerate_appliance::error::Error;

impl Session {
    /// Adds a stream; its frames go out with the next start, or at once where its port sends.
    /// Returns its number.
    ///
    /// # Errors
    /// What is wrong with it; then nothing has changed.
    pub fn add_stream(&mut self, spec: StreamSpec) -> Result<u16, Error> {
        let port = self.port_by_name(spec.port.as_deref().unwrap_or("0"))?;
        let of_port = self.of_port(port).count();
        self.add_among(spec, port, of_port, of_port + 1)
    }

    /// As [`Session::add_stream`], the `index`-th of `count` streams of its port.
    pub(super) fn add_among(
        &mut self,
        spec: StreamSpec,
        port: u16,
        index: usize,
        count: usize,
    ) -> Result<u16, Error> {
        let id = self.next_id;
        let next_id = id.checked_add(1).ok_or_else(too_many_streams)?;
        let (shards, compiled) = self.new_shards(&spec, port, index, count)?;
        self.streams.push(OpenStream {
            id,
            port,
            is_removed: false,
            template: compiled[0].view(),
            mean_frame_bytes: compiled[0].mean_frame_bytes(),
            spec,
            shards,
        });
        let loads = self.loads(port).inspect_err(|_| {
            self.streams.pop();
        })?;
        self.next_id = next_id;
        self.next_wire += compiled.len() as u16;
        self.make_room();
        self.install_shards(self.streams.len() - 1, compiled);
        self.apply(port, &loads, Some(id))?;
        Ok(id)
    }

    /// Shards of a stream with new numbers, and their streams. Nothing has changed yet.
    fn new_shards(
        &mut self,
        spec: &StreamSpec,
        port: u16,
        index: usize,
        count: usize,
    ) -> Result<(Vec<Shard>, Vec<Content>), Error> {
        let tx_queues = self.ports[usize::from(port)].senders.len() as u16;
        let mut queues = streams::queues_of(index, count, tx_queues);
        if streams::is_of_one_queue(spec) {
            queues.truncate(1);
        }
        if self.next_wire.checked_add(queues.len() as u16).is_none() {
            return Err(too_many_streams());
        }
        let mut shards = Vec::new();
        let mut compiled = Vec::new();
        for (wire, queue) in (self.next_wire..).zip(queues) {
            compiled.push(self.compile(spec, port, wire)?);
            shards.push(Shard {
                wire,
                port,
                queue,
                scheduled: 0,
                sent: Arc::<StreamSent>::default(),
                order: Order::default(),
            });
        }
        Ok((shards, compiled))
    }

    fn compile(&mut self, spec: &StreamSpec, port: u16, wire: u16) -> Result<Content, Error> {
        let limits = self.limits(port);
        let recording = match &spec.pcap {
            None => None,
            Some(path) => Some(self.recording(path, limits.max_frame_bytes - FCS_BYTES)?),
        };
        let macs = self.macs(port);
        let seed = self.seed;
        let mut content = streams::compile(spec, recording.as_ref(), wire, macs, seed, &limits)?;
        content.set_session(self.number);
        Ok(content)
    }

    /// A capture file, read once; again after [`set_stream`](Self::set_stream) has named it.
    fn recording(&mut self, path: &str, longest_bytes: usize) -> Result<Arc<Recording>, Error> {
        if let Some(known) = self.recordings.get(path) {
            return Ok(known.clone());
        }
        let loaded = Recording::load(Path::new(path), MOST_BYTES, longest_bytes)?;
        let loaded = Arc::new(loaded);
        self.recordings.insert(path.into(), loaded.clone());
        Ok(loaded)
    }

    /// Gives the last shards of a stream, one for each of `compiled`, disabled scheduled streams at
    /// their senders.
    fn install_shards(&mut self, stream: usize, compiled: Vec<Content>) {
        let OpenStream { spec, shards, .. } = &mut self.streams[stream];
        let first = shards.len() - compiled.len();
        for (shard, compiled) in shards[first..].iter_mut().zip(compiled) {
            let (lcore, sender) =
                self.ports[usize::from(shard.port)].senders[usize::from(shard.queue)];
            let member = &mut self.lcores[lcore];
            Arc::make_mut(&mut member.books)
                .sent
                .push((shard.wire, shard.sent.clone()));
            let scheduled = streams::schedule(spec, compiled, self.seed, shard);
            let clock = self.clock;
            let placed = member
                .handle
                .call(move |engine| engine.senders[sender].add(scheduled, clock.now()));
            // A scheduled stream without an order fits any other; a dead lcore sends nothing, so
            // the position does not matter.
            shard.scheduled = placed.and_then(Result::ok).unwrap_or(0);
        }
    }

    /// Gives receivers room for all numbers on the wire.
    fn make_room(&mut self) {
        if usize::from(self.next_wire) > self.boundaries.streams() {
            let grown = self.boundaries.grown(room_for(self.next_wire.into()));
            self.install_books(Arc::new(grown), true);
        }
    }

    /// Sets one key of a stream, as its one-line form has it; its counters and numbers go on.
    ///
    /// # Errors
    /// An unknown stream or key, an invalid value, an impossible rate; then nothing has changed.
    pub fn set_stream(&mut self, id: u16, key: &str, value: &str) -> Result<(), Error> {
        let index = self.stream_index(id)?;
        let mut spec = self.streams[index].spec.clone();
        spec.set(key, value).map_err(streams::usage)?;
        if key == "pcap" {
            self.recordings.remove(value);
        }
        let to = self.port_by_name(spec.port.as_deref().unwrap_or("0"))?;
        let from = self.streams[index].port;
        if to != from {
            return self.move_stream(index, spec, to);
        }
        let wires: Vec<u16> = self.streams[index]
            .shards_at_work()
            .map(|shard| shard.wire)
            .collect();
        // Everything is checked before anything is changed.
        let compiled = self.compile(&spec, from, wires[0])?;
        let stream = &mut self.streams[index];
        let before = (
            std::mem::replace(&mut stream.spec, spec),
            std::mem::replace(&mut stream.template, compiled.view()),
            std::mem::replace(&mut stream.mean_frame_bytes, compiled.mean_frame_bytes()),
        );
        let loads = self.loads(from).inspect_err(|_| {
            let stream = &mut self.streams[index];
            (stream.spec, stream.template, stream.mean_frame_bytes) = before;
        })?;
        self.apply(from, &loads, Some(id))
    }

    /// Gives a stream to another port, under new numbers on the wire.
    fn move_stream(&mut self, index: usize, spec: StreamSpec, to: u16) -> Result<(), Error> {
        let of_port = self.of_port(to).count();
        let (shards, compiled) = self.new_shards(&spec, to, of_port, of_port + 1)?;
        let (id, from) = (self.streams[index].id, self.streams[index].port);
        let added = compiled.len();
        let stream = &mut self.streams[index];
        let before = std::mem::replace(&mut stream.spec, spec);
        let mean = std::mem::replace(&mut stream.mean_frame_bytes, compiled[0].mean_frame_bytes());
        stream.port = to;
        stream.shards.extend(shards);
        let (here, there) = (self.loads(from), self.loads(to));
        let (here, there) = match (here, there) {
            (Ok(here), Ok(there)) => (here, there),
            (Err(error), _) | (_, Err(error)) => {
                let stream = &mut self.streams[index];
                (stream.spec, stream.mean_frame_bytes, stream.port) = (before, mean, from);
                stream.shards.truncate(stream.shards.len() - added);
                return Err(error);
            }
        };
        self.streams[index].template = compiled[0].view();
        self.next_wire += added as u16;
        self.make_room();
        self.install_shards(index, compiled);
        self.retire(index, from)?;
        self.apply(from, &here, None)?;
        self.apply(to, &there, Some(id))
    }

    /// Removes a stream. What it sent still counts for its port.
    ///
    /// # Errors
    /// There is no stream with that number.
    pub fn remove_stream(&mut self, id: u16) -> Result<(), Error> {
        let index = self.stream_index(id)?;
        let port = self.streams[index].port;
        self.streams[index].is_removed = true;
        self.retire(index, port)?;
        let loads = self.loads(port)?;
        self.apply(port, &loads, None)
    }

    /// Disables a stream's scheduled streams at one port.
    fn retire(&mut self, index: usize, port: u16) -> Result<(), Error> {
        for shard in 0..self.streams[index].shards.len() {
            if self.streams[index].shards[shard].port == port {
                self.tell(index, shard, Order::default())?;
            }
        }
        Ok(())
    }

    /// Sets one of [`PORT_KEYS`].
    ///
    /// # Errors
    /// An unknown key, an invalid value, or an impossible rate; then nothing has changed.
    pub fn set_port(&mut self, port: u16, key: &str, value: &str) -> Result<(), Error> {
        self.check_port(port)?;
        let Some((_, takes, help)) = PORT_KEYS.iter().find(|row| row.0 == key) else {
            let known: Vec<_> = PORT_KEYS.iter().map(|row| row.0).collect();
            return Err(Error::Usage {
                problem: format!("a port has no key `{key}`"),
                fix: format!("its keys are {}", known.join(", ")),
            });
        };
        let bad = |problem: String| Error::Usage {
            problem,
            fix: format!("{key} takes {takes}: {help}"),
        };
        let mut asked = self.ports[usize::from(port)].asked.clone();
        asked.set(key, value).map_err(bad)?;
        let state = &mut self.ports[usize::from(port)];
        let before = std::mem::replace(&mut state.asked, asked);
        let loads = self.loads(port).inspect_err(|_| {
            self.ports[usize::from(port)].asked = before;
        })?;
        match key {
            "rate" | "count" | "speed" => self.apply(port, &loads, None)?,
            "addr" | "process" => self.fit_help(port)?,
            "verify" => self.install_books(self.boundaries.clone(), true),
            _ => self.fit_queues(port),
        }
        Ok(())
    }

    /// Applies a port's settings to its senders and receivers.
    fn fit_queues(&mut self, port: u16) {
        let state = &self.ports[usize::from(port)];
        for &(lcore, sender) in &state.senders {
            let asked = state.asked.clone();
            let fit = move |engine: &mut Engine| asked.fit_sender(&mut engine.senders[sender]);
            self.lcores[lcore].handle.call(fit);
        }
        for &(lcore, receiver) in &state.receivers {
            let asked = state.asked.clone();
            let fit =
                move |engine: &mut Engine| asked.fit_receiver(&mut engine.receivers[receiver]);
            self.lcores[lcore].handle.call(fit);
        }
    }

    /// What a port's enabled streams are to do.
    fn loads(&self, port: u16) -> Result<Loads, Error> {
        let streams: Vec<&OpenStream> = self
            .of_port(port)
            .filter(|stream| stream.is_enabled())
            .collect();
        let asked = &self.ports[usize::from(port)].asked;
        streams::loads(asked, &self.limits(port), &streams)
    }

    /// Sends a port's senders their changes; the stream `changed` is sent in any case.
    fn apply(&mut self, port: u16, loads: &Loads, changed: Option<u16>) -> Result<(), Error> {
        let state = &mut self.ports[usize::from(port)];
        (state.asked_pps, state.count) = (loads.pps.unwrap_or(0.0), loads.count.unwrap_or(0));
        let mut next_load = loads.streams.iter();
        // The weight of scheduled streams without a rate at each transmit queue.
        let mut weights = vec![0.0; self.ports[usize::from(port)].senders.len()];
        for index in 0..self.streams.len() {
            if self.streams[index].port != port {
                continue;
            }
            let stream = &self.streams[index];
            let load = match stream.is_enabled() {
                true => next_load.next().copied(),
                false => None,
            };
            let parts = stream.shards_at_work().count();
            let at_work = |shard: &&usize| stream.shards[**shard].port == port;
            let shards: Vec<usize> = (0..stream.shards.len()).collect();
            let shards: Vec<usize> = shards.iter().filter(at_work).copied().collect();
            for (part, shard) in shards.into_iter().enumerate() {
                let stream = &self.streams[index];
                let Load { pps, count } = match load {
                    Some(load) => load.part(part, parts),
                    None => Load {
                        pps: None,
                        count: None,
                    },
                };
                let order = Order {
                    is_enabled: load.is_some(),
                    pps,
                    count,
                    weight: stream.spec.weight.unwrap_or(1),
                };
                if load.is_some() && streams::shares(&stream.spec, pps) {
                    let queue = usize::from(stream.shards[shard].queue);
                    weights[queue] += weight(&stream.spec) / parts as f64;
                }
                if Some(stream.id) == changed || stream.shards[shard].order != order {
                    self.tell(index, shard, order)?;
                }
            }
        }
        self.share_out(port, loads.shared_pps, &weights);
        self.start_pace(port);
        Ok(())
    }

    /// Puts a new scheduled stream in the place of a shard's.
    fn tell(&mut self, index: usize, shard: usize, order: Order) -> Result<(), Error> {
        let stream = &self.streams[index];
        let (wire, port) = (stream.shards[shard].wire, stream.shards[shard].port);
        let spec = stream.spec.clone();
        let compiled = self.compile(&spec, port, wire)?;
        let stream = &mut self.streams[index];
        let shard = &mut stream.shards[shard];
        shard.order = order;
        let scheduled = streams::schedule(&stream.spec, compiled, self.seed, shard);
        let (lcore, sender) = self.ports[usize::from(port)].senders[usize::from(shard.queue)];
        let (place, clock) = (shard.scheduled, self.clock);
        let replaced = self.lcores[lcore]
            .handle
            .call(move |engine| engine.senders[sender].replace(place, scheduled, clock.now()));
        replaced.unwrap_or(Ok(()))
    }

    /// Gives each transmit queue its part of the rate that streams without one share.
    fn share_out(&mut self, port: u16, shared_pps: Option<f64>, weights: &[f64]) {
        let all: f64 = weights.iter().sum();
        let clock = self.clock;
        let state = &mut self.ports[usize::from(port)];
        state.shares.resize(state.senders.len(), None);
        for (queue, &(lcore, sender)) in state.senders.iter().enumerate() {
            let share = streams::share_of(shared_pps, weights[queue], all);
            // A queue without such scheduled streams has nothing to share.
            if weights[queue] == 0.0 || state.shares[queue] == share {
                continue;
            }
            state.shares[queue] = share;
            self.lcores[lcore].handle.call(move |engine| {
                engine.senders[sender].share(Pace::even(share), clock.now());
            });
        }
    }

    /// The stream of that number.
    fn stream_index(&self, id: u16) -> Result<usize, Error> {
        let known = |stream: &OpenStream| stream.id == id && !stream.is_removed;
        self.streams.iter().position(known).ok_or_else(|| {
            let ids = self.streams.iter().filter(|stream| !stream.is_removed);
            let ids: linerate_core::env::CpuList = ids.map(|stream| u32::from(stream.id)).collect();
            Error::Usage {
                problem: format!("there is no stream {id}"),
                fix: format!("streams: {ids}"),
            }
        })
    }

    pub(super) fn of_port(&self, port: u16) -> impl Iterator<Item = &OpenStream> {
        let mine = move |stream: &&OpenStream| stream.port == port && !stream.is_removed;
        self.streams.iter().filter(mine)
    }
}

fn too_many_streams() -> Error {
    Error::Usage {
        problem: "65535 streams, over all that this session ever had".into(),
        fix: "begin a new session".into(),
    }
}
