//! The path of a packet through the router: its stages, in the order in which packets pass.
//!
//! Each stage is in the file of its name, has its own state, and reads and fills the
//! [`Context`](super::context::Context). A new one is:
//!
//! - a field, a line in `new` and a line in `all` (which does not compile without);
//! - a line where it runs: in `run_untagged` for all packets, in `run_asked` for interfaces whose
//!   settings ask for it ([`Asked`](super::interface::Asked) says which do);
//! - if control configures it, a line in `install`;
//! - if it has timers or keeps packets between bursts, a line in `turn`, `next_expiry_ns`, `held`.
//!
//! A stage that rewrites destinations updates them in `packets.parsed`, too: the lookup reads that.
//! Sources there stay the sender's, which later stages check.
//!
//! Another appliance has a path of its own, made of these stages and others: a [`PacketPath`].

use linerate_core::env::{Clock, Isa};
use linerate_core::packet::Burst;
use linerate_core::run::{Egress, NEVER, Named, Point, Stage, named};

use super::acl_in::AclIn;
use super::acl_out::AclOut;
use super::change::Change;
use super::context::{Context, Tags};
use super::exceptions::HandleExceptions;
use super::lookup::Lookup;
use super::packet_path::PacketPath;
use super::parse::Parse;
use super::policer::Policer;
use super::reassembly::Reassembly;
use super::receive::Receive;
use super::reverse_path::ReversePath;
use super::rewrite::Rewrite;
use super::transmit::Transmit;
use super::validate::Validate;
use super::vlan::Vlan;

/// The stages.
pub struct RouterPath {
    receive: Named<Receive>,
    vlan: Named<Vlan>,
    parse: Named<Parse>,
    validate: Named<Validate>,
    reassembly: Named<Reassembly>,
    policer: Named<Policer>,
    acl_in: Named<AclIn>,
    reverse_path: Named<ReversePath>,
    lookup: Named<Lookup>,
    acl_out: Named<AclOut>,
    rewrite: Named<Rewrite>,
    exceptions: Named<HandleExceptions>,
    transmit: Named<Transmit>,
}

impl RouterPath {
    /// The path of one worker.
    pub fn new(clock: Clock, isa: Isa) -> Self {
        Self {
            receive: named("receive", Receive),
            vlan: named("vlan", Vlan::default()),
            parse: named("parse", Parse::new(isa)),
            validate: named("validate", Validate::new(isa)),
            reassembly: named("reassembly", Reassembly::default()),
            policer: named("policer", Policer::default()),
            acl_in: named("acl_in", AclIn::default()),
            reverse_path: named("reverse_path", ReversePath),
            lookup: named("lookup", Lookup::new(clock)),
            acl_out: named("acl_out", AclOut::default()),
            rewrite: named("rewrite", Rewrite::new(isa)),
            exceptions: named("exceptions", HandleExceptions),
            transmit: named("transmit", Transmit::new(isa)),
        }
    }

    /// All stages, for what is done with every one.
    fn all(&mut self) -> [&mut dyn for<'a> Stage<Context<'a>>; 13] {
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
            lookup,
            acl_out,
            rewrite,
            exceptions,
            transmit,
        } = self;
        [
            receive,
            vlan,
            parse,
            validate,
            reassembly,
            policer,
            acl_in,
            reverse_path,
            lookup,
            acl_out,
            rewrite,
            exceptions,
            transmit,
        ]
    }

    /// A burst whose frames have no tags.
    #[inline(always)]
    fn run_untagged(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        self.validate.run(burst, context, out);
        if context.interface().asks {
            self.run_asked(burst, context, out);
        }
        if !burst.is_empty() {
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

    /// A burst whose frames may have tags, one interface after the other.
    #[cold]
    fn run_tagged(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        loop {
            self.vlan.run(burst, context, out);
            if burst.is_empty() {
                return;
            }
            self.parse.run(burst, context, out);
            self.run_untagged(burst, context, out);
        }
    }
}

impl Stage<Context<'_>> for RouterPath {
    // Not inlined: it is called by its table alone, and has to be compiled here, in a crate with
    // full optimisation.
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        self.receive.run(burst, context, out);
        if burst.is_empty() {
            return;
        }
        // On a port without VLANs the parser looks for tags, since it reads each frame anyway: the
        // VLAN stage would read all frames once more (ADR 33).
        if context.packets.tags == Tags::Unlikely {
            self.parse.run(burst, context, out);
        }
        match context.packets.tags {
            Tags::Off => self.run_untagged(burst, context, out),
            Tags::Unlikely | Tags::Possible => self.run_tagged(burst, context, out),
        }
    }

    /// Gives up on fragments whose datagrams did not become whole in time.
    fn turn(&mut self, now: u64, context: &mut Context<'_>, out: &mut Egress) -> u64 {
        self.reassembly.turn(now, context, out);
        self.transmit.run(&mut Burst::new(), context, out);
        NEVER
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        self.all().into_iter().for_each(|stage| stage.points(visit));
    }

    fn held(&self) -> u64 {
        self.reassembly.held()
    }

    fn held_packets(&self) -> u64 {
        self.reassembly.held_packets()
    }
}

impl PacketPath for RouterPath {
    fn install(&mut self, change: &mut Change, egress: &mut Egress) {
        self.reassembly.stage_mut().install(change);
        self.policer.stage_mut().install(change);
        self.acl_in.stage_mut().install(change, egress);
        self.acl_out.stage_mut().install(change, egress);
    }

    fn next_expiry_ns(&self) -> Option<u64> {
        self.reassembly.stage().next_expiry_ns()
    }
}
