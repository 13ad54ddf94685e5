//! Parse: reads the headers of a whole burst into the context.

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Offload};
use linerate_core::run::{Egress, Stage};
use linerate_tables::parse::Parser;

use super::context::{Context, Tags};

/// The stage, which also counts what came by the interface.
pub struct Parse {
    parser: Parser,
}

impl Parse {
    /// With loops for an instruction set.
    pub fn new(isa: Isa) -> Self {
        Self {
            parser: Parser::new(isa),
        }
    }
}

impl Stage<Context<'_>> for Parse {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        let mac = context.interface().mac;
        let packets = &mut *context.packets;
        let parsed = &mut packets.parsed;
        self.parser.parse_for(burst, parsed, mac);
        // A tag in the metadata, or in the frame.
        if parsed.offloads.intersects(Offload::VLAN) || parsed.class.vlan != 0 {
            return match packets.tags {
                // A second tag, which no interface has.
                Tags::Off => out.drop_burst(context.reasons.unknown_vlan, burst),
                Tags::Unlikely | Tags::Possible => packets.tags = Tags::Possible,
            };
        }
        packets.tags = Tags::Off;
        let counters = &context.installed.counters;
        let is_new = packets.first_whole.is_none();
        if let Some(traffic) = counters.at(packets.interface.0.into()).filter(|_| is_new) {
            traffic.in_packets.add(burst.len() as u64);
            traffic.in_bytes.add(packets.parsed.bytes);
        }
    }
}
