//! Traces: the stages of the router note more of a packet than that it came by.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};

use linerate_wire::filter::Filter;
use serde_json::Value;

use super::Control;
use super::handle::ControlHandle;
use linerate_appliance::control::taps::Taps;
use linerate_appliance::control::trace::{self, Begun, Record};
use linerate_routing::plane::trace::Trace;
use linerate_routing::worker::{on_fast, on_slow};

/// Ends the trace when it goes.
struct Ends(ControlHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        // Where the router has ended the trace went with it.
        let _ = self.0.call(Control::end_trace);
    }
}

/// Serves one trace.
pub(super) fn serve(
    stream: &mut UnixStream,
    id: Value,
    params: &Value,
    handle: &ControlHandle,
    closing: &AtomicBool,
) -> io::Result<()> {
    trace::serve(stream, id, params, closing, |filter, count| {
        let (records, names) = handle.call(move |control| control.begin_trace(&filter, count))?;
        Ok(Begun {
            records,
            names,
            guard: Ends(handle.clone()),
        })
    })
}

impl Control {
    /// Where packets can be watched: at ports, and at host interfaces that somebody names.
    pub(super) fn taps(&self) -> Taps {
        let host_interfaces = self.host_interfaces.iter();
        let names = host_interfaces
            .map(|host_interface| (host_interface.number, host_interface.wanted.name.clone()));
        self.workers.running.taps().with_others(names.collect())
    }

    /// What is told, and by which interfaces packets come.
    fn begin_trace(
        &mut self,
        filter: &Option<Filter>,
        packets: u32,
    ) -> (Receiver<Record>, Vec<(u16, String)>) {
        // Of each packet what a fast worker knows, and what the slow one adds.
        let (to, records) = mpsc::sync_channel(2 * packets as usize);
        let follower = to.clone();
        // Before anything is handed over to it.
        on_slow(self.workers.slow(), move |slow, _| {
            slow.tracer().set_follower(Some(follower));
        });
        for worker in self.workers.running.handles() {
            let trace = Trace {
                filter: filter.clone(),
                packets,
                to: to.clone(),
                tickets: self.workers.tickets.clone(),
            };
            on_fast(worker, move |fast, _| fast.tracer().set_trace(Some(trace)));
        }
        let interfaces = (0..).zip(&self.settings.interfaces);
        let names = interfaces.map(|(id, interface)| (id, interface.name.clone()));
        (records, names.collect())
    }

    fn end_trace(&mut self) {
        for worker in self.workers.running.handles() {
            on_fast(worker, |fast, _| fast.tracer().set_trace(None));
            on_slow(worker, |slow, _| slow.tracer().set_follower(None));
        }
    }
}
