//! Writes what fuzzing begins with: what nodes say in a user's life.

use crate::hostile::receiver;
use crate::world::{ByApplication, Kind, MME, NET, PGW, SECOND, SGW, World, packet};
use linerate_epc::Link;
use linerate_epc::ran::State;
use linerate_wire::gtpc::Gtpc;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let folder = corpus.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
#[ignore = "writes fuzz/corpus/{gtpc,diameter,s1_control,epc_nodes}"]
fn writes_the_corpora() {
    let mut world = World::<ByApplication>::unconnected(60, 1, 4);
    world.record = Some(Vec::new());
    world.connect_hss();
    world.connect_stations();
    world.run(SECOND);
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out)
    });
    for id in world.ids() {
        let address = world
            .user(id, |ran, _, _| ran.address(id))
            .unwrap()
            .octets();
        let up = packet(address, NET, 1);
        world.user(id, |ran, now, out| ran.send(now, id, &up, out));
    }
    world.drive(State::Idle, |ran, now, id, out| ran.go_idle(now, id, out));
    for id in world.ids() {
        let address = world
            .user(id, |ran, _, _| ran.address(id))
            .unwrap()
            .octets();
        world.deliver(Kind::Pgw, Link::Sgi, packet(NET, address, 2));
    }
    world.run(10 * SECOND);
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));

    let record = world.record.take().unwrap();
    let mut kinds = BTreeMap::new();
    let (mut diameter, mut s1, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    for said in &record {
        match said.link {
            Link::Gtpc(_) => {
                let kind = Gtpc::new_checked(&said.bytes).unwrap().message();
                kinds.entry(kind).or_insert_with(|| said.bytes.clone());
            }
            Link::S6a(_) => diameter.extend_from_slice(&said.bytes),
            Link::S1(_) => s1.extend_from_slice(&said.bytes),
            _ => {}
        }
        let Some((to, link)) = receiver(said) else {
            continue;
        };
        let node = match to {
            Kind::Mme => 0,
            Kind::Hss => 1,
            Kind::Sgw => 2,
            Kind::Pgw => 3,
            Kind::Ran => continue,
        };
        let peer = match *said.source.ip() {
            MME => 0,
            SGW => 1,
            PGW => 2,
            _ => 3,
        };
        let (kind, number) = match link {
            Link::Gtpc(_) => (0, 0),
            Link::Gtpu(_) => (2, 0),
            Link::S6a(number) => (4, number),
            Link::S1(number) => (5, number),
            _ => (3, 0),
        };
        // Of the four users' base stations two are there.
        if number < 2 {
            nodes.push(node | peer << 2 | kind << 4 | (number as u8) << 7);
            nodes.extend_from_slice(&(said.bytes.len() as u16).to_be_bytes());
            nodes.extend_from_slice(&said.bytes);
        }
    }
    for (kind, bytes) in kinds {
        std::fs::write(folder("gtpc").join(format!("message-{kind}")), bytes).unwrap();
    }
    std::fs::write(folder("diameter").join("life"), diameter).unwrap();
    std::fs::write(folder("s1_control").join("life"), s1).unwrap();
    std::fs::write(folder("epc_nodes").join("life"), nodes).unwrap();
}
