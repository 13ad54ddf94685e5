//! Traces: the stages of the router note more of a packet than that it came by.

use std::sync::mpsc;

use linerate_core::run::WorkerHandle;
use linerate_wire::filter::Filter;

use super::Control;
use linerate_appliance::control::trace::Begun;
use linerate_routing::plane::trace::Trace;
use linerate_routing::worker::{RouterStage, on_fast, on_slow};

/// Ends the trace when it goes, where workers have not ended before.
struct Ends(Vec<WorkerHandle<RouterStage>>);

impl Drop for Ends {
    fn drop(&mut self) {
        for worker in &self.0 {
            on_fast(worker, |fast, _| fast.tracer().set_trace(None));
            on_slow(worker, |slow, _| slow.tracer().set_follower(None));
        }
    }
}

impl Control {
    /// Has workers tell of the next packets that match.
    pub(super) fn begin_trace(&mut self, filter: &Option<Filter>, packets: u32) -> Begun {
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
        Begun {
            records,
            names: names.collect(),
            guard: Box::new(Ends(self.workers.running.handles().cloned().collect())),
        }
    }
}
