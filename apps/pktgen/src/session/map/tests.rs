use proptest::prelude::*;

use super::*;

fn ports(count: usize, queues: u16) -> Vec<PortShape> {
    let port = |number| PortShape {
        name: format!("ring:{number}"),
        max_rx: queues,
        max_tx: queues,
        rx: None,
        tx: None,
    };
    (0..count).map(port).collect()
}

/// Lcores 0-15, each on the CPU of its number.
fn cpus() -> BTreeMap<u32, u32> {
    (0..16).map(|cpu| (cpu, cpu)).collect()
}

/// The map in short: `1:rx 0.0, tx 0.0`.
fn read(text: &str, count: usize) -> Vec<String> {
    let map = Map::parse(text, &ports(count, 8), &cpus()).unwrap();
    let line = |share: &Share| format!("{}:{}", share.cpu.unwrap(), share.work());
    map.lcores.iter().map(line).collect()
}

fn problem(text: &str, count: usize, queues: u16) -> String {
    match Map::parse(text, &ports(count, queues), &cpus()) {
        Err(Error::Usage { problem, fix }) => {
            assert!(!fix.is_empty(), "{text}");
            problem
        }
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn pktgens_own_examples_mean_what_they_mean_there() {
    assert_eq!(
        read("1.0, 2.1, 3.2", 3),
        ["1:rx 0.0, tx 0.0", "2:rx 1.0, tx 1.0", "3:rx 2.0, tx 2.0"]
    );
    assert_eq!(
        read("[0-1].0, [2/4-5].1", 2),
        [
            "0:rx 0.0, tx 0.0",
            "1:rx 0.1, tx 0.1",
            "2:rx 1.0, tx 1.0",
            "4:rx 1.1, tx 1.1",
            "5:rx 1.2, tx 1.2"
        ]
    );
    assert_eq!(
        read("[1:2].0, [4:6].1", 2),
        ["1:rx 0.0", "2:tx 0.0", "4:rx 1.0", "6:tx 1.0"]
    );
    assert_eq!(
        read("[1:2-3].0, [4:5-6].1", 2),
        [
            "1:rx 0.0", "2:tx 0.0", "3:tx 0.1", "4:rx 1.0", "5:tx 1.0", "6:tx 1.1"
        ]
    );
    assert_eq!(
        read("[1-2:3-5].0,[6-7:8/10].1", 2),
        [
            "1:rx 0.0",
            "2:rx 0.1",
            "3:tx 0.0",
            "4:tx 0.1",
            "5:tx 0.2",
            "6:rx 1.0",
            "7:rx 1.1",
            "8:tx 1.0",
            "10:tx 1.1"
        ]
    );
    // Braces and brackets are equivalent, around each part or around all.
    for text in ["{1:2}.0", "[[1]:{2}].[0]", " [ 1 : 2 ] . 0 ", "[1:2].{0}"] {
        assert_eq!(read(text, 1), ["1:rx 0.0", "2:tx 0.0"], "{text}");
    }
    // Older versions took lists of ports.
    assert_eq!(
        read("[1:2].[0-1]", 2),
        ["1:rx 0.0, rx 1.0", "2:tx 0.0, tx 1.0"]
    );
    assert_eq!(
        read("[1:2].[0:0-1], [3:4].[1:0-1]", 2),
        [
            "1:rx 0.0",
            "2:tx 0.0, tx 1.0",
            "3:rx 1.0",
            "4:tx 0.1, tx 1.1"
        ]
    );
}

#[test]
fn an_lcore_polls_many_ports_and_the_first_lcore_is_no_taboo() {
    assert_eq!(read("0.0,0.1", 2), ["0:rx 0.0, rx 1.0, tx 0.0, tx 1.0"]);
    let map = Map::parse("0.0", &ports(1, 1), &cpus()).unwrap();
    let text = map.explain(&ports(1, 1));
    assert!(
        text.contains("lcore0 on CPU 0: receives from port 0 (ring:0) queue 0; sends to port 0"),
        "{text}"
    );
    assert!(
        text.contains("note: lcore0 polls ports; Pktgen keeps"),
        "{text}"
    );
    let shared = BTreeMap::from([(1, 3), (2, 3)]);
    let map = Map::parse("[1:2].0", &ports(1, 1), &shared).unwrap();
    assert_eq!(
        map.notes,
        ["lcore1, lcore2 share CPU 3: each waits while another runs"]
    );
}

#[test]
fn errors_name_the_part_and_the_reason() {
    for (text, count, queues, wanted) in [
        ("", 1, 1, "map: ``: it is empty"),
        ("1.0,,2.1", 2, 1, "a part between two commas is empty"),
        ("[1:2]", 1, 1, "map: `[1:2]`: it names no port"),
        ("[1:2.0", 1, 1, "map: `[1:2.0`: `[` is never closed"),
        ("1:2].0", 1, 1, "map: `1:2]`: `]` closes nothing"),
        ("[1:2}.0", 1, 1, "map: `[1:2}`: `}` closes nothing"),
        (
            "[1:2].x",
            1,
            1,
            "map: `[1:2].x`: `x` is no number of a port",
        ),
        (
            "[a:2].0",
            1,
            1,
            "map: `[a:2].0`: `a` is no number of a lcore",
        ),
        (
            "[:2].0",
            1,
            1,
            "map: `[:2].0`: the number of a lcore is missing",
        ),
        (
            "[1:2].",
            1,
            1,
            "map: `[1:2].`: the number of a port is missing",
        ),
        ("[3-1:4].0", 1, 1, "map: `[3-1:4].0`: `3-1` runs backwards"),
        (
            "[1/1:2].0",
            1,
            1,
            "map: `[1/1:2].0`: lcore 1 is in a list twice",
        ),
        (
            "[1:2:3].0",
            1,
            1,
            "map: `[1:2:3].0`: `2:3` is no number of a lcore",
        ),
        ("99999.0", 1, 1, "map: `99999.0`: lcore 99999 is above 8191"),
        (
            "99999999999.0",
            1,
            1,
            "`99999999999` is no number of a lcore",
        ),
        (
            "[1:40].0",
            1,
            1,
            "map: `[1:40].0`: there is no lcore 40; there are 0-15",
        ),
        ("[1:2].7", 2, 1, "map: `[1:2].7`: there is no port 7"),
        (
            "1.0",
            2,
            1,
            "map `1.0`: there is no lcore to receive from port 1 (`ring:1`)",
        ),
        (
            "[1:2].[0-1:0]",
            2,
            1,
            "no lcore to send to port 1 (`ring:1`)",
        ),
        (
            "1.0,1.0",
            1,
            8,
            "map: `1.0`: lcore 1 receives from port 0 already",
        ),
        (
            "[1-3:4].0",
            1,
            2,
            "3 lcores receive from port 0 (`ring:0`), which has 2 receive queues",
        ),
        ("1.2.0", 1, 1, "map: `1.2.0`: `1.2` is no number of a lcore"),
        (
            "-1.0",
            1,
            1,
            "map: `-1.0`: the number of a lcore is missing",
        ),
    ] {
        let problem = problem(text, count, queues);
        assert!(problem.contains(wanted), "{text}: {problem}");
    }
    // Sixty-seven million queues are refused before they are allocated.
    assert!(problem("[0-8191].[0-8191]", 1, 1).contains("there is no lcore"));
}

/// Invariants of every map.
fn check(map: &Map, shapes: &[PortShape]) {
    for (number, shape) in (0u16..).zip(shapes) {
        let queues = |side: fn(&Share) -> &[(u16, u16)]| -> Vec<u16> {
            let all = map.lcores.iter().flat_map(side);
            let mut queues: Vec<u16> = all
                .filter(|queue| queue.0 == number)
                .map(|queue| queue.1)
                .collect();
            queues.sort_unstable();
            queues
        };
        for (queues, most) in [
            (queues(|share| &share.rx), shape.max_rx),
            (queues(|share| &share.tx), shape.max_tx),
        ] {
            assert!(!queues.is_empty() && queues.len() <= usize::from(most));
            assert_eq!(queues, (0..queues.len() as u16).collect::<Vec<_>>());
        }
    }
    assert!(map.lcores.iter().all(|share| !share.work().is_empty()));
}

#[test]
fn the_automatic_map_leaves_no_queue_and_no_lcore_without_the_other() {
    for lcores in 1..12 {
        for count in 1..6 {
            for queues in [1, 2, 8] {
                let shapes = ports(count, queues);
                let places: Vec<_> = (0..lcores)
                    .map(|cpu| (format!("io{cpu}"), Some(cpu)))
                    .collect();
                let map = Map::automatic(&shapes, &places);
                check(&map, &shapes);
                let alone = |share: &Share| share.rx.is_empty() != share.tx.is_empty();
                assert!(lcores == 1 || map.lcores.iter().all(alone), "{map:?}");
            }
        }
    }
    let asked = PortShape {
        rx: Some(2),
        tx: Some(3),
        ..ports(1, 8).remove(0)
    };
    let map = Map::automatic(&[asked], &[("io0".into(), None)]);
    assert_eq!(map.queues(0), (2, 3));
}

proptest! {
    #[test]
    fn any_text_is_a_map_or_an_error(text in "[0-9:./,\\-\\[\\]{} ]{0,40}") {
        let shapes = ports(2, 4);
        if let Ok(map) = Map::parse(&text, &shapes, &cpus()) {
            check(&map, &shapes);
            map.explain(&shapes);
        }
    }

    #[test]
    fn whatever_is_typed_is_answered(text in "\\PC{0,60}") {
        let _ = Map::parse(&text, &ports(1, 1), &cpus());
    }

    /// Maps written by the grammar are read back the same.
    #[test]
    fn what_is_written_is_read(
        rx in prop::collection::btree_set(0u32..8, 1..4),
        tx in prop::collection::btree_set(8u32..16, 1..4),
        slash in any::<bool>(),
    ) {
        let list = |set: &std::collections::BTreeSet<u32>| {
            let words: Vec<_> = set.iter().map(u32::to_string).collect();
            words.join(if slash { "/" } else { "," })
        };
        let text = format!("[{}:{}].0", list(&rx), list(&tx));
        let map = Map::parse(&text, &ports(1, 8), &cpus()).unwrap();
        check(&map, &ports(1, 8));
        prop_assert_eq!(map.queues(0), (rx.len() as u16, tx.len() as u16));
    }
}
