//! The path of a packet through the gateway: a router's stages, and its own among them.
//!
//! ```text
//! receive ─► [vlan] ─► parse ─► validate ─► [reassembly ─► policer ─► acl_in ─► reverse_path]
//!   ─► [dispatch] ─► flows ─► lookup ─► [acl_out] ─► rewrite ─► [exceptions] ─► transmit
//!         │   ▲
//!         ▼   └─ validate ◄─ parse ◄─ rings from other workers
//!       rings to other workers
//! ```
//!
//! What turns behind its flow, from a host inside to the outside of another, is taken to those
//! rings from there.
//!
//! `flows` comes behind all that judges a packet alone, and before the lookup, which goes by the
//! translated destination. The rules for a new stage are those of
//! [`RouterPath`](linerate_routing::plane::RouterPath).

use linerate_core::packet::Burst;
use linerate_core::run::{Egress, NEVER, Named, Point, Stage, WorkerHandle, named};
use linerate_routing::plane::stages::{
    AclIn, AclOut, HandleExceptions, Lookup, Parse, Policer, Reassembly, Receive, ReversePath,
    Rewrite, Transmit, Validate, Vlan,
};
use linerate_routing::plane::{Change, Context, PacketPath, Setup, Tags, ones};
use linerate_routing::worker::{RouterStage, on_fast};

use crate::dispatch::stage::Dispatch;
use crate::stages::flows::Flows;

/// The stages.
pub struct GatewayPath {
    receive: Named<Receive>,
    vlan: Named<Vlan>,
    parse: Named<Parse>,
    validate: Named<Validate>,
    reassembly: Named<Reassembly>,
    policer: Named<Policer>,
    acl_in: Named<AclIn>,
    reverse_path: Named<ReversePath>,
    dispatch: Option<Named<Dispatch>>,
    flows: Named<Flows>,
    lookup: Named<Lookup>,
    acl_out: Named<AclOut>,
    rewrite: Named<Rewrite>,
    exceptions: Named<HandleExceptions>,
    transmit: Named<Transmit>,
}

/// Runs `work` on a worker's path between two bursts; `None` where the worker has ended, or is the
/// slow one.
pub(crate) fn on_path<R: Send + 'static>(
    worker: &WorkerHandle<RouterStage>,
    work: impl FnOnce(&mut GatewayPath, &mut Egress) -> R + Send + 'static,
) -> Option<R> {
    on_fast(worker, move |fast, egress| Some(work(fast.path()?, egress))).flatten()
}

impl GatewayPath {
    /// The path of one worker, with its flows.
    pub fn new(setup: &Setup, flows: Flows) -> Self {
        Self::with(setup, flows, None)
    }

    /// The same where packets are handed to other workers.
    pub fn with(setup: &Setup, flows: Flows, dispatch: Option<Dispatch>) -> Self {
        let isa = setup.isa;
        Self {
            receive: named("receive", Receive),
            vlan: named("vlan", Vlan::default()),
            parse: named("parse", Parse::new(isa)),
            validate: named("validate", Validate::new(isa)),
            reassembly: named("reassembly", Reassembly::default()),
            policer: named("policer", Policer::default()),
            acl_in: named("acl_in", AclIn::default()),
            reverse_path: named("reverse_path", ReversePath),
            dispatch: dispatch.map(|dispatch| named("dispatch", dispatch)),
            flows: named("flows", flows),
            lookup: named("lookup", Lookup::new(setup.clock)),
            acl_out: named("acl_out", AclOut::default()),
            rewrite: named("rewrite", Rewrite::new(isa)),
            exceptions: named("exceptions", HandleExceptions),
            transmit: named("transmit", Transmit::new(isa)),
        }
    }

    /// The stage that knows flows.
    pub fn flows(&mut self) -> &mut Flows {
        self.flows.stage_mut()
    }

    /// The stage that hands packets to other workers, if there is one.
    pub fn dispatch(&mut self) -> Option<&mut Dispatch> {
        self.dispatch.as_mut().map(Named::stage_mut)
    }

    /// All stages, for what is done with every one.
    fn all(&mut self) -> impl Iterator<Item = &mut dyn for<'a> Stage<Context<'a>>> {
        // No `..`: a stage that is missing here would be missing in captures and in the books.
        let Self {
            receive,
            vlan,
            parse,
            validate,
            reassembly,
            policer,
            acl_in,
            reverse_path,
            dispatch,
            flows,
            lookup,
            acl_out,
            rewrite,
            exceptions,
            transmit,
        } = self;
        let before: [&mut dyn for<'a> Stage<Context<'a>>; 8] = [
            receive,
            vlan,
            parse,
            validate,
            reassembly,
            policer,
            acl_in,
            reverse_path,
        ];
        let behind: [&mut dyn for<'a> Stage<Context<'a>>; 6] =
            [flows, lookup, acl_out, rewrite, exceptions, transmit];
        let dispatch = dispatch.iter_mut();
        let dispatch = dispatch.map(|stage| -> &mut dyn for<'a> Stage<Context<'a>> { stage });
        before.into_iter().chain(dispatch).chain(behind)
    }

    /// A burst whose frames have no tags.
    #[inline(always)]
    fn run_untagged(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        self.validate.run(burst, context, out);
        if context.interface().asks {
            self.run_asked(burst, context, out);
        }
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.run(burst, context, out);
        }
        self.run_own(burst, context, out);
        if let Some(dispatch) = &self.dispatch
            && dispatch.stage().has_rest()
        {
            self.run_rest(context, out);
        }
    }

    /// Packets that have turned to this worker itself.
    #[cold]
    fn run_rest(&mut self, context: &mut Context<'_>, out: &mut Egress) {
        let port = self.dispatch.as_ref().and_then(|one| one.stage().port());
        if let Some(port) = port {
            let mut burst = Burst::new();
            burst.port = port;
            self.run_handed(&mut burst, context, out);
        }
    }

    /// Packets that their flows have turn leave the burst.
    #[cold]
    fn turn(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        let turning = self.flows.stage().turning() & burst.mask();
        if let Some(dispatch) = &mut self.dispatch
            && turning != 0
        {
            dispatch.stage_mut().turn(turning);
            dispatch.run(burst, context, out);
        }
    }

    /// Packets whose flows are this worker's, and those that have none.
    #[inline(always)]
    fn run_own(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        if !burst.is_empty() {
            self.flows.run(burst, context, out);
            if self.flows.stage().turning() != 0 {
                self.turn(burst, context, out);
                if burst.is_empty() {
                    return self.transmit.run(burst, context, out);
                }
            }
            self.lookup.run(burst, context, out);
            if context.any_acl_out() {
                self.acl_out.run(burst, context, out);
            }
            self.rewrite.run(burst, context, out);
            if context.has_exceptions(burst) {
                self.exceptions.run(burst, context, out);
            }
        }
        self.transmit.run(burst, context, out);
    }

    /// A burst from another worker, one interface after the other; with an empty one, what has
    /// waited for its bucket.
    pub fn run_handed(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        loop {
            let Some(dispatch) = &mut self.dispatch else {
                return;
            };
            dispatch.run(burst, context, out);
            if burst.is_empty() {
                return;
            }
            let (whole, turned) = (dispatch.stage().whole(), dispatch.stage().turned());
            self.parse.run(burst, context, out);
            self.validate.run(burst, context, out);
            context.packets.marks.whole |= whole;
            self.flows.stage_mut().have_turned(turned.is_some());
            for index in ones(turned.unwrap_or(0) & burst.mask()) {
                context
                    .packets
                    .arrive(index, &mut burst.as_packets_mut()[index]);
            }
            self.run_own(burst, context, out);
            self.flows.stage_mut().have_turned(false);
        }
    }

    /// The stages that only some interfaces ask for.
    #[cold]
    fn run_asked(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        let asked = context.interface().asked;
        if asked.reassembly {
            self.reassembly.run(burst, context, out);
            if context.packets.first_whole.is_some() {
                // A reassembled datagram is parsed and validated like any packet.
                self.parse.run(burst, context, out);
                self.validate.run(burst, context, out);
            }
        }
        if asked.policer {
            self.policer.run(burst, context, out);
        }
        if asked.acl_in {
            self.acl_in.run(burst, context, out);
        }
        if asked.reverse_path {
            self.reverse_path.run(burst, context, out);
        }
    }
}

impl Stage<Context<'_>> for GatewayPath {
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        let dispatch = self.dispatch.as_ref().map(Named::stage);
        if dispatch.is_some_and(|dispatch| dispatch.is_handed(burst.port)) {
            return self.run_handed(burst, context, out);
        }
        self.receive.run(burst, context, out);
        if burst.is_empty() {
            return;
        }
        if context.packets.tags == Tags::Unlikely {
            self.parse.run(burst, context, out);
            if context.packets.tags == Tags::Off {
                return self.run_untagged(burst, context, out);
            }
        }
        // One interface after the other.
        loop {
            self.vlan.run(burst, context, out);
            if burst.is_empty() {
                return;
            }
            self.parse.run(burst, context, out);
            self.run_untagged(burst, context, out);
        }
    }

    /// Ends flows, and gives up on fragments whose datagrams did not become whole in time.
    fn turn(&mut self, now: u64, context: &mut Context<'_>, out: &mut Egress) -> u64 {
        self.flows.turn(now, context, out);
        self.reassembly.turn(now, context, out);
        self.transmit.run(&mut Burst::new(), context, out);
        NEVER
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        self.all().for_each(|stage| stage.points(visit));
    }

    fn held(&self) -> u64 {
        self.reassembly.held() + self.dispatch.as_ref().map_or(0, Stage::held)
    }

    fn held_packets(&self) -> u64 {
        self.reassembly.held_packets() + self.dispatch.as_ref().map_or(0, Stage::held_packets)
    }
}

impl PacketPath for GatewayPath {
    fn install(&mut self, change: &mut Change, egress: &mut Egress) {
        self.reassembly.stage_mut().install(change);
        self.policer.stage_mut().install(change);
        self.acl_in.stage_mut().install(change, egress);
        self.acl_out.stage_mut().install(change, egress);
        self.flows.stage_mut().install(change);
        if let Some(dispatch) = &mut self.dispatch {
            let flows = self.flows.stage();
            dispatch
                .stage_mut()
                .install(flows.classes().clone(), flows.readers());
        }
    }

    fn next_expiry_ns(&self) -> Option<u64> {
        let flows = self.flows.stage().next_expiry_ns();
        let fragments = self.reassembly.stage().next_expiry_ns();
        [flows, fragments].into_iter().flatten().min()
    }

    /// A turn ends a bounded number of flows, so that a burst is not held up: it looks often.
    fn timers_ns(&self) -> u64 {
        1_000_000
    }
}
