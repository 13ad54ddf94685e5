//! shm: both sides of a file in one process, with one queue and with three.

use crate::suite::{Pair, Wire};
use linerate_core::port::Port;
use linerate_drivers::Drivers;
use linerate_testkit::Scratch;

fn over_file(options: &'static str, queues: u16) -> impl Fn() -> Result<Pair, String> {
    move || {
        let folder = Scratch::new();
        let path = folder.path().join("ring");
        let open = |options: String| -> Box<dyn Port> {
            let spec = format!("shm:{},queues={queues}{options}", path.display());
            Drivers::new().open(&spec).unwrap()
        };
        let (a, b) = (
            open(format!(",role=server{options}")),
            open(",role=client".into()),
        );
        Ok(Pair {
            a,
            b,
            guard: Box::new(folder),
        })
    }
}

#[test]
fn shm_conforms() {
    Wire::new("shm", over_file("", 1)).conforms();
    let wire = |name, options, queues| Wire {
        queues,
        ..Wire::new(name, over_file(options, queues))
    };
    wire("shm, 3 queues", ",buffer=9000", 3).conforms();
    Wire {
        window: 4,
        ..wire("shm, a small ring", ",size=4,buffer=1514", 1)
    }
    .conforms();
}
