//! Connections opened from both sides, over all kinds of arrival, that stay or move.

use linerate_dispatch::Owners;
use linerate_tables::rss::{Model, PROFILES, Profile, Reta};
use linerate_testkit::Random;

use super::net::{Net, S, address};
use super::user::{ECHO, PEER};
use crate::steering::plan::{Arrival, Member, Plan, PortPlan, SECRET_BYTES};

/// How packets get to the lcores of a test.
#[derive(Clone, Copy)]
enum Kind {
    /// A distributor that owns nothing.
    Distributor,
    /// One queue, whose lcore owns connections as well.
    OneQueue,
    /// Queues by this NIC.
    Hardware(&'static Profile),
    /// Queues whose hash nobody knows.
    Fanout,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Distributor => f.write_str("a distributor"),
            Self::OneQueue => f.write_str("one queue"),
            Self::Hardware(profile) => write!(f, "hardware {}", profile.name),
            Self::Fanout => f.write_str("fanout"),
        }
    }
}

fn plan(kind: Kind, cores: u8, random: &mut Random) -> (Plan, usize) {
    let secret: [u8; SECRET_BYTES] = std::array::from_fn(|_| random.below(256) as u8);
    let owners = Owners::dealt(cores.into());
    let all: Vec<Member> = (0..cores).collect();
    let software = |arrival| PortPlan::software(&secret, &owners, arrival).unwrap();
    let (port, members) = match kind {
        Kind::Distributor => (software(Arrival::One(cores)), cores + 1),
        Kind::OneQueue => (software(Arrival::One(0)), cores),
        Kind::Fanout => (software(Arrival::Any(all)), cores),
        Kind::Hardware(profile) => {
            let bytes = 0..profile.key_bytes;
            let key: Vec<u8> = bytes.map(|_| random.below(256) as u8).collect();
            let reta = Reta::round_robin(profile.reta_entries, cores.into()).unwrap();
            let nic = Model::new(profile, Some(&key), reta).unwrap();
            (PortPlan::hardware(&nic, &all).unwrap(), cores)
        }
    };
    (Plan::new(vec![port], cores), members.into())
}

/// What a run does.
#[derive(Clone, Copy)]
struct Run {
    connections: usize,
    /// Bytes each way on each.
    total: u64,
    /// Moves at least.
    moves: u64,
    maps: bool,
}

/// Opens connections from both sides, sends, moves, compares, closes, waits; returns the moves.
fn run(kind: Kind, cores: u8, seed: u64, run: Run) -> u64 {
    let of = format!("{kind}, {cores} lcores, seed {seed}");
    let mut random = Random::new(seed);
    let (plan, members) = plan(kind, cores, &mut random);
    let mut net = Net::new(plan, members, run.maps, run.total, seed);
    net.settle();
    for number in 0..run.connections {
        let v6 = number % 4 >= 2;
        if number % 2 == 0 {
            net.open(v6, ECHO);
        } else {
            let at = random.below(usize::from(cores));
            let to = address(1, v6, PEER);
            net.host(at).user.connects.push(to);
        }
    }
    let mut steps = 0_u64;
    let mut asked = 0;
    loop {
        net.step();
        steps += 1;
        if run.moves > asked && steps.is_multiple_of(5) {
            let at = random.below(usize::from(cores));
            let to: Member = random.below(cores);
            if usize::from(to) != at && !net.host(at).user.all.is_empty() {
                net.host(at).user.moves.push_back(to);
                asked += 1;
            }
        }
        if steps.is_multiple_of(64) {
            let is_open = net.checker.opened == run.connections;
            if is_open && net.checker.is_done() && asked >= run.moves {
                break;
            }
        }
        assert!(
            steps < 3_000_000,
            "{of}: {} bytes, {:?} {asked}",
            net.checker.got(),
            net.counts()
        );
    }
    net.pass(S);
    assert_eq!(net.checker.failed, Vec::<String>::new(), "{of}");
    assert_eq!(
        net.checker.got(),
        run.total * run.connections as u64,
        "{of}"
    );
    assert_eq!(net.connections() as usize, run.connections, "{of}");
    let (counts, hosts) = net.counts();
    assert_eq!(
        (counts.misdirected, counts.no_slot, counts.unknown),
        (0, 0, 0),
        "{of}"
    );
    assert_eq!(
        (hosts.lost, hosts.refused, hosts.left),
        (0, 0, hosts.came),
        "{of}"
    );
    // Some are closed by the lcores first, the others by the peer.
    for at in 0..net.owners() {
        net.host(at).user.closes = true;
    }
    net.pass(S);
    net.close_all();
    net.pass(S);
    assert_eq!(net.misdelivered(), 0, "{of}");
    assert_eq!(net.connections(), 0, "{of}");
    net.pass(130 * S);
    if net.entries() != 0 {
        // Messages about them may have met: then owners are asked.
        net.pass(3 * 3600 * S);
    }
    assert_eq!(net.entries(), 0, "{of}");
    for at in 0..net.owners() {
        assert_eq!(net.host(at).user.failed, Vec::<String>::new(), "{of}");
        assert_eq!(net.host(at).stack.lingering(), 0, "{of}");
    }
    net.is_exact(&of);
    hosts.left
}

const STAY: Run = Run {
    connections: 24,
    total: 20_000,
    moves: 0,
    maps: true,
};

const KINDS: [Kind; 3] = [Kind::Distributor, Kind::OneQueue, Kind::Fanout];

#[test]
fn both_directions_of_every_connection_are_on_one_lcore() {
    for (number, kind) in KINDS.into_iter().enumerate() {
        for cores in [1, 2, 3, 8, 16] {
            run(kind, cores, 100 * number as u64 + u64::from(cores), STAY);
        }
    }
}

#[test]
fn so_they_are_behind_every_nic() {
    for (number, profile) in PROFILES.iter().enumerate() {
        let cores = [2, 3, 5, 16][number % 4];
        run(Kind::Hardware(profile), cores, number as u64, STAY);
    }
}

/// Software and hardware modes without maps: ports alone bring answers home.
#[test]
fn connections_without_maps_choose_ports_whose_answers_come_home() {
    let run_of = Run {
        maps: false,
        ..STAY
    };
    for cores in [2, 4, 16] {
        run(Kind::Distributor, cores, 50 + u64::from(cores), run_of);
        run(Kind::OneQueue, cores, 60 + u64::from(cores), run_of);
        run(
            Kind::Hardware(&PROFILES[0]),
            cores,
            70 + u64::from(cores),
            run_of,
        );
    }
}

#[test]
fn connections_move_under_load_and_lose_nothing() {
    let moving = Run {
        connections: 16,
        total: 60_000,
        moves: 200,
        maps: true,
    };
    for (number, kind) in KINDS.into_iter().enumerate() {
        for cores in [2, 3, 16] {
            let seed = 1000 + 100 * number as u64 + u64::from(cores);
            let moves = run(kind, cores, seed, moving);
            assert!(moves > 50, "{kind}: {moves}");
        }
    }
    for (number, profile) in PROFILES.iter().enumerate() {
        let cores = [2, 3, 5, 16][number % 4];
        run(Kind::Hardware(profile), cores, 2000 + number as u64, moving);
    }
}

/// `steer.move.lost`: bytes lost in 10 000 moves under load.
#[test]
fn ten_thousand_moves_under_load_lose_no_byte() {
    let moving = Run {
        connections: 16,
        total: 1_000_000,
        moves: 10_000,
        maps: true,
    };
    let moves = run(Kind::Distributor, 4, 10_000, moving);
    assert!(moves > 5000, "{moves}");
}
