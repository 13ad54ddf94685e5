//! All nodes of an EPC, run from files: attach, data both ways, idle, paging, service request,
//! detach, on one lcore and on several.

mod net;

use std::net::Ipv4Addr;

use linerate_epc::Cores;
use linerate_epc::tunnels::AddressPool;
use linerate_wire::tcp::flag;
use net::{Net, SECOND, echo_request, numbered, segment};

const USERS: u64 = 40;
const HSS: &str = "[[app]]\nkind = \"epc-hss\"\nname = \"hss\"\naddress = \"10.0.0.4\"\n\
    first = \"001010000000001\"\nusers = 1000\noperator = 99\n";
const MME: &str = "[[app]]\nkind = \"epc-mme\"\nname = \"mme\"\naddress = \"10.0.0.1\"\n\
    hss = \"10.0.0.4\"\nsgw = \"10.0.0.2\"\npgw = \"10.0.0.3\"\nusers = 1000\nstations = 8\n";
const SGW: &str = "[[app]]\nkind = \"epc-sgw\"\nname = \"sgw\"\naddress = \"10.0.0.2\"\n\
    sessions = 1000\n";
const PGW: &str = "[[app]]\nkind = \"epc-pgw\"\nname = \"pgw\"\naddress = \"10.0.0.3\"\n\
    sessions = 1000\npool = \"100.64.0.0/10\"\n";
const BEYOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

fn interface(port: u8, addresses: &str) -> String {
    format!("[[interface]]\nport = \"p{port}\"\naddresses = [{addresses}]\n")
}

/// Base stations whose users do as `profile` says.
fn ran(profile: &str) -> String {
    let stations = (1..=4).map(|number| format!("\"10.0.1.{number}/16\""));
    let stations: Vec<String> = stations.collect();
    interface(0, &stations.join(", "))
        + &format!(
            "[[app]]\nkind = \"epc-ran\"\nname = \"ran\"\naddress = \"10.0.1.1\"\nstations = 4\n\
             mme = \"10.0.0.1\"\nfirst = \"001010000000001\"\nusers = {USERS}\noperator = 99\n\
             to = \"{BEYOND}\"\nattaches_per_second = 20\n{profile}"
        )
}

/// The network beyond: a host that answers, and knows where users are.
fn beyond() -> String {
    interface(0, "\"192.0.2.2/24\"") + "[[route]]\nto = \"100.64.0.0/10\"\nvia = \"192.0.2.1\"\n"
}

/// Starts machines with so many lcores and users who do as a profile says; the PGW's number.
type Start = fn(&mut Net, usize, &str) -> usize;

/// Three machines: base stations, all of the core, the network beyond; the number of the second.
fn together(net: &mut Net, lcores: usize, profile: &str) -> usize {
    let core = interface(
        0,
        "\"10.0.0.1/16\", \"10.0.0.2/16\", \"10.0.0.3/16\", \"10.0.0.4/16\"",
    ) + &interface(1, "\"192.0.2.1/24\"");
    let number = net.start("core", lcores, &[0, 1], &(core + HSS + MME + SGW + PGW));
    net.start("ran", lcores, &[0], &ran(profile));
    net.start("beyond", 1, &[1], &beyond());
    number
}

/// Six machines: each node has its own; the number of the PGW.
fn apart(net: &mut Net, lcores: usize, profile: &str) -> usize {
    for (name, address, app) in [
        ("hss", "\"10.0.0.4/16\"", HSS),
        ("mme", "\"10.0.0.1/16\"", MME),
        ("sgw", "\"10.0.0.2/16\"", SGW),
    ] {
        net.start(name, lcores, &[0], &(interface(0, address) + app));
    }
    let pgw = interface(0, "\"10.0.0.3/16\"") + &interface(1, "\"192.0.2.1/24\"") + PGW;
    let number = net.start("pgw", lcores, &[0, 1], &pgw);
    net.start("ran", lcores, &[0], &ran(profile));
    net.start("beyond", 1, &[1], &beyond());
    number
}

/// Users attach, send, are idle, ask for their bearer, and go.
const LIFE: &str = "connected = 1.0\npackets = 5\nidle = 2.0\nrounds = 2\naway = 1000.0\n";

/// Each gateway passes all packets that find their user connected on in bursts.
fn assert_passed_in_bursts(net: &mut Net) {
    let all = net.all_counts();
    for app in ["sgw", "pgw"] {
        let passed = net.count(app, "up_packets") + net.count(app, "down_packets");
        assert_eq!(net.count(app, "in_bursts"), passed, "{app}\n{all}");
    }
}

fn assert_lived(net: &mut Net) {
    assert_passed_in_bursts(net);
    let all = net.all_counts();
    for (app, name, value) in [
        ("ran", "attached", USERS),
        ("ran", "idled", USERS),
        ("ran", "services", USERS),
        ("ran", "detached", USERS),
        ("ran", "up_packets", USERS * 10),
        ("ran", "down_packets", USERS * 10),
        ("ran", "late", 0),
        ("ran", "dropped", 0),
        ("ran", "timeouts", 0),
        ("mme", "attached", USERS),
        ("mme", "detached", USERS),
        ("mme", "users", 0),
        ("hss", "users", 0),
        ("hss", "located", USERS),
        ("sgw", "created", USERS),
        ("sgw", "sessions", 0),
        ("sgw", "waiting", 0),
        ("pgw", "up_packets", USERS * 10),
        ("pgw", "down_packets", USERS * 10),
        ("pgw", "sessions", 0),
        ("ran", "unsent", 0),
        ("mme", "unsent", 0),
        ("hss", "unsent", 0),
        ("sgw", "unsent", 0),
        ("pgw", "unsent", 0),
    ] {
        assert_eq!(net.count(app, name), value, "{app} {name}\n{all}");
    }
}

#[test]
fn users_live_on_one_lcore() {
    let mut net = Net::new(1);
    together(&mut net, 1, LIFE);
    net.pass(20 * SECOND);
    assert_lived(&mut net);
    assert_eq!(net.count("mme", "handed") + net.count("mme", "relayed"), 0);
    net.assert_exact();
}

#[test]
fn users_live_on_two_lcores_that_share_nothing() {
    let mut net = Net::new(2);
    together(&mut net, 2, LIFE);
    net.pass(20 * SECOND);
    assert_lived(&mut net);
    // Both have users, and messages went between them, packets never: those came to their owners.
    assert!(net.by_lcore("pgw", "up_packets").iter().all(|&n| n > 0));
    assert!(net.count("mme", "handed") > 0 && net.count("mme", "relayed") > 0);
    net.assert_exact();
}

#[test]
fn nodes_live_on_machines_of_their_own_with_three_lcores() {
    let mut net = Net::new(3);
    apart(&mut net, 3, LIFE);
    net.pass(20 * SECOND);
    assert_lived(&mut net);
    for app in ["sgw", "pgw"] {
        // What names a user was brought to its lcore before any socket had it.
        assert_eq!(net.count(app, "handed"), 0, "{}", net.all_counts());
        assert!(net.by_lcore(app, "up_packets").iter().all(|&n| n > 0));
    }
    net.assert_exact();
}

#[test]
fn idle_users_are_paged_for_what_comes_for_them() {
    const IDLE: &str = "connected = 0.5\npackets = 1\nidle = 1000.0\nrounds = 0\n";
    // On one machine, too, the SGW's slow path has what the PGW hands to it.
    for (start, lcores) in [
        (apart as Start, 1),
        (apart, 2),
        (together, 1),
        (together, 2),
    ] {
        let mut net = Net::new(4);
        let pgw = start(&mut net, lcores, IDLE);
        net.pass(10 * SECOND);
        assert_eq!(
            net.count("ran", "users_idle"),
            USERS,
            "{}",
            net.all_counts()
        );
        let before = net.count("ran", "down_packets");
        let pool = (Ipv4Addr::new(100, 64, 0, 0), 10);
        let cores = Cores::new(lcores).unwrap();
        let pool = AddressPool::new(pool.0, pool.1, cores, 1000).unwrap();
        let part = (1 << 22) / lcores.next_power_of_two() as u32;
        for core in 0..lcores as u32 {
            for place in 0..USERS as u32 {
                let first = u32::from(Ipv4Addr::new(100, 64, 0, 0)) + core * part;
                let to = Ipv4Addr::from(first + 1 + place);
                assert_eq!(pool.owner(to.octets()), Some(core as u8));
                net.inject(pgw, 1, &echo_request(BEYOND, to));
            }
        }
        net.pass(SECOND / 5);
        let all = net.all_counts();
        assert_eq!(net.count("ran", "paged"), USERS, "{all}");
        assert_eq!(net.count("ran", "down_packets"), before + USERS, "{all}");
        assert_eq!(net.count("mme", "pagings"), USERS, "{all}");
        assert_eq!(net.count("sgw", "buffered"), USERS, "{all}");
        // Addresses that nobody has.
        let unknown = lcores as u64 * USERS - USERS;
        assert_eq!(net.count("pgw", "packets_unknown"), unknown, "{all}");
        net.assert_exact();
    }
}

#[test]
fn ts_29_272_5_2_1_2_users_who_come_to_another_mme_leave_the_first() {
    const STAY: &str = "connected = 1000.0\npackets = 0\nrounds = 0\n";
    // They try again, about each second.
    const COME: &str = "connected = 1000.0\npackets = 1000\nrounds = 0\n";
    for lcores in [1, 2] {
        let mut net = Net::new(7);
        together(&mut net, lcores, STAY);
        net.pass(5 * SECOND);
        // The first of each lcore came before its base station was there, and stays away.
        let users = USERS - lcores as u64;
        assert_eq!(net.count("mme", "users_connected"), users);
        // The same users at other base stations, of another MME.
        let mme = MME.replace("\"mme\"", "\"mme2\"");
        let mme = mme.replace("address = \"10.0.0.1\"", "address = \"10.0.0.5\"");
        let mme = interface(0, "\"10.0.0.5/16\"") + &mme;
        net.start("mme2", lcores, &[0], &mme);
        let ran = ran(COME).replace("10.0.1.", "10.0.2.");
        let ran = ran.replace("\"ran\"", "\"ran2\"");
        let ran = ran.replace("mme = \"10.0.0.1\"", "mme = \"10.0.0.5\"");
        net.start("ran2", lcores, &[0], &ran);
        net.pass(10 * SECOND);
        let all = net.all_counts();
        for (app, name, value) in [
            ("mme2", "users_connected", USERS),
            ("hss", "cancelled", users),
            ("hss", "unreachable", 0),
            ("mme", "superseded", users),
            ("mme", "users", 0),
            ("ran", "dropped", users),
            ("ran2", "dropped", 0),
            ("sgw", "sessions", USERS),
            ("pgw", "sessions", USERS),
        ] {
            assert_eq!(net.count(app, name), value, "{app} {name}\n{all}");
        }
        net.assert_exact();
    }
}

#[test]
fn rfc_3539_3_4_1_a_diameter_peer_that_says_nothing_is_left_and_asked_again() {
    for lcores in [1, 2] {
        let mut net = Net::new(8);
        let mute = "[[app]]\nkind = \"sink\"\nname = \"hss\"\nlisten = \"10.0.0.4:3868\"\n";
        net.start("hss", 1, &[0], &(interface(0, "\"10.0.0.4/16\"") + mute));
        net.start("sgw", 1, &[0], &(interface(0, "\"10.0.0.2/16\"") + SGW));
        net.start(
            "mme",
            lcores,
            &[0],
            &(interface(0, "\"10.0.0.1/16\"") + MME),
        );
        // Each time it is given up after half a minute, and a second later comes another.
        net.pass(100 * SECOND);
        let all = net.all_counts();
        assert_eq!(net.count("hss", "opened"), 4 * lcores as u64, "{all}");
        assert_eq!(net.count("mme", "connections"), lcores as u64, "{all}");
        net.assert_exact();
    }
}

#[test]
fn rfc_2644_users_send_no_broadcast_to_the_network_beyond() {
    let mut net = Net::new(5);
    together(&mut net, 1, LIFE);
    let broadcast = Ipv4Addr::new(192, 0, 2, 255);
    let users = ran(LIFE).replace(&BEYOND.to_string(), &broadcast.to_string());
    // Other users than those of the first base stations.
    let users = users.replace("10.0.1.", "10.0.2.");
    let users = users.replace("001010000000001", "001010000000101");
    net.start(
        "broadcasters",
        1,
        &[0],
        &users.replace("\"ran\"", "\"others\""),
    );
    net.pass(20 * SECOND);
    let all = net.all_counts();
    for (app, name, value) in [
        ("others", "up_packets", USERS * 10),
        ("others", "down_packets", 0),
        ("ran", "down_packets", USERS * 10),
        ("pgw", "up_packets", USERS * 20),
        ("pgw", "unsent", USERS * 10),
        ("pgw", "to_own", 0),
    ] {
        assert_eq!(net.count(app, name), value, "{app} {name}\n{all}");
    }
    let to = |frame: &Vec<u8>| frame.get(30..34) == Some(&broadcast.octets()[..]);
    assert!(!net.beyond.iter().any(to));
    net.assert_exact();
}

#[test]
fn users_segments_pass_a_gateway_that_steers_its_own_connections() {
    const SGW: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const PGW: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
    let mut net = Net::new(6);
    net.has_maps = true;
    let profile = "connected = 1.0\npackets = 5\nidle = 1000.0\nrounds = 0\n";
    let pgw = apart(&mut net, 2, profile);
    net.pass(8 * SECOND);
    // Tunnels of users, with their addresses: from the G-PDUs between the gateways.
    let mut users: Vec<([u8; 4], Ipv4Addr)> = Vec::new();
    for frame in &net.access {
        let is_up = frame.get(23) == Some(&17)
            && frame.get(30..34) == Some(&PGW.octets()[..])
            && frame.get(36..38) == Some(&[8, 0x68][..]);
        let field = |at: usize| <[u8; 4]>::try_from(frame.get(at..at + 4)?).ok();
        if let (true, Some(teid), Some(user)) = (is_up, field(46), field(62)) {
            users.push((teid, user.into()));
        }
    }
    users.sort();
    users.dedup();
    assert_eq!(users.len() as u64, USERS);
    let singly = |net: &mut Net| {
        let all = net.count("pgw", "up_packets") + net.count("pgw", "down_packets");
        all - net.count("pgw", "in_bursts")
    };
    let entered = net.entered();
    assert_eq!(singly(&mut net), 0);
    let kinds = [flag::SYN, flag::FIN | flag::ACK];
    for &(teid, user) in &users {
        for flags in kinds {
            let segment = segment(user, BEYOND, flags);
            net.inject(pgw, 0, &numbered(SGW, PGW, teid, &segment));
        }
    }
    net.pass(SECOND / 10);
    let all = net.all_counts();
    assert_eq!(singly(&mut net), 2 * USERS, "{all}");
    assert_eq!(net.count("pgw", "unsent"), 0, "{all}");
    for flags in kinds {
        let is_this = |frame: &&Vec<u8>| {
            frame.get(23) == Some(&6)
                && frame.get(30..34) == Some(&BEYOND.octets()[..])
                && frame.get(47) == Some(&flags)
        };
        assert_eq!(net.beyond.iter().filter(is_this).count() as u64, USERS);
    }
    // The host beyond answers with resets, which go to users: none of it is a connection here.
    assert_eq!(net.entered(), entered, "{all}");
    net.assert_exact();
}
