//! What moves with a bucket: the flows of a worker's path, and what they hold of NAT.

use linerate_core::packet::Burst;
use linerate_core::run::Egress;
use linerate_dispatch::{Sharded, Sorter};
use linerate_routing::worker::RouterStage;

use super::handed::Handed;
use crate::nat::bits::Bits;
use crate::path::GatewayPath;
use crate::stages::flows::buckets::Part;

/// The path of a worker, if it is a gateway's.
fn path(stage: &mut RouterStage) -> Option<&mut GatewayPath> {
    match stage {
        RouterStage::Fast(fast) => fast.path(),
        RouterStage::Slow(_) => None,
    }
}

impl Sharded<Part> for RouterStage {
    type Mark = Handed;

    fn sorter(&mut self) -> Option<&mut Sorter<Handed>> {
        Some(path(self)?.dispatch()?.sorter())
    }

    fn take(&mut self, buckets: &Bits) -> (Part, bool) {
        match path(self) {
            Some(path) => path.flows().take_part(buckets),
            None => (Part::Nat(Vec::new()), true),
        }
    }

    fn put(&mut self, part: Part, _: &mut Egress) {
        if let Self::Fast(fast) = self {
            fast.with_path(|path: &mut GatewayPath, context| {
                path.flows().put_part(part, context.now_ns());
            });
        }
    }

    fn release(&mut self, buckets: &Bits, out: &mut Egress) {
        if let Self::Fast(fast) = self {
            fast.with_path(|path: &mut GatewayPath, context| {
                let Some(dispatch) = path.dispatch() else {
                    return;
                };
                dispatch.release(buckets);
                let mut burst = Burst::new();
                if let Some(port) = dispatch.port() {
                    burst.port = port;
                    path.run_handed(&mut burst, context, out);
                }
            });
        }
    }
}
