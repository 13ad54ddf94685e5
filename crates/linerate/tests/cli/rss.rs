//! `linerate bench rss` and `linerate plan --rss` from outside: what they print, refuse and exit
//! with.

use std::path::Path;

use crate::commands::{refused, stdout};
use linerate_testkit::Scratch;
use linerate_testkit::capture::pcap;
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    crate::commands::json(&[args, &["--json"]].concat())
}

/// A UDP frame over IPv4, checksums zero; `flags` are the two bytes of flags and fragment offset.
fn udp(src: [u8; 4], src_port: u16, flags: u16) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12] = 0x08;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
    frame[20..22].copy_from_slice(&flags.to_be_bytes());
    frame[22] = 64;
    frame[23] = 17;
    frame[26..30].copy_from_slice(&src);
    frame[30..34].copy_from_slice(&[192, 0, 2, 1]);
    frame[34..36].copy_from_slice(&src_port.to_be_bytes());
    frame[36..38].copy_from_slice(&53_u16.to_be_bytes());
    frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
    frame
}

fn numbers(rows: &Value, key: &str) -> Vec<u64> {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| row[key].as_u64().unwrap()).collect()
}

#[test]
fn flows_are_spread_over_the_queues_by_weight() {
    let args = [
        "bench",
        "rss",
        "--weights",
        "3,1",
        "--flows",
        "udp,dst_port=53,count=4000",
    ];
    let report = json(&args);
    assert_eq!(report["nic"]["reta_entries"], 128);
    assert_eq!(numbers(&report["queues"], "entries"), [96, 32]);
    assert_eq!(
        numbers(&report["queues"], "packets").iter().sum::<u64>(),
        4000
    );
    let share = report["queues"][0]["packets_share"].as_f64().unwrap();
    assert!((0.70..0.80).contains(&share), "{share}");
    assert_eq!(report["addresses_and_ports"], 4000);
    let text = stdout(&args);
    assert!(
        text.contains("udp,dst_port=53,count=4000\n") && text.contains("of table"),
        "{text}"
    );
    let table = json(&["bench", "rss", "--reta", "0,1,1,5"]);
    assert_eq!(numbers(&table["queues"], "entries"), [1, 2, 0, 0, 0, 1]);
    // The same profile hashes UDP by addresses only on ixgbe.
    let report = json(&[&args[..], &["--profile", "ixgbe"]].concat());
    assert_eq!(report["addresses_only"], 4000);
}

/// Microsoft's verification suite through the whole program.
#[test]
fn a_listed_flow_has_the_hash_of_the_verification_suite() {
    let spec = "tcp,src=66.9.149.187,dst=161.142.100.80,src_port=2794,dst_port=1766,count=1";
    let args = ["bench", "rss", "--list", "--flows", spec];
    let row = &json(&args)["list"][0];
    assert_eq!(row["hash"], 0x51cc_c178_u32);
    assert_eq!(
        (&row["entry"], &row["queue"]),
        (&Value::from(0x78), &Value::from(0))
    );
    let text = stdout(&args);
    assert!(
        text.contains("tcp 66.9.149.187:2794 > 161.142.100.80:1766"),
        "{text}"
    );
    assert!(text.contains("51ccc178    120      0\n"), "{text}");
}

#[test]
fn a_capture_is_spread_with_its_fragments_and_strangers() {
    let mut frames: Vec<_> = (0..40)
        .map(|port| udp([10, 0, 0, 1], 5000 + port, 0))
        .collect();
    frames.push(udp([10, 0, 0, 1], 5000, 0x2000));
    frames.push(udp([10, 0, 0, 1], 5001, 0x2000));
    frames.push(vec![0xff; 60]);
    let scratch = Scratch::new();
    let file = scratch.write("capture.pcap", pcap(&frames));
    let report = json(&["bench", "rss", "--pcap", &file]);
    assert_eq!(
        (&report["packets"], &report["not_hashed"]),
        (&43.into(), &1.into())
    );
    assert_eq!(
        (&report["addresses_and_ports"], &report["addresses_only"]),
        (&40.into(), &2.into())
    );
}

#[test]
fn the_ports_of_all_queues_are_all_ports_and_each_lands_where_it_should() {
    let spec = "tcp,src=198.51.100.7,dst=192.0.2.1,src_port=443,dst_port=1024-65535";
    let mut all = Vec::new();
    for queue in 0..4 {
        let queue = queue.to_string();
        let args = ["bench", "rss", "--flows", spec, "--invert", &queue];
        let report = json(&args);
        let ports = report["ports"].as_array().unwrap();
        assert_eq!(report["count"], ports.len());
        let (first, last) = (&ports[0], &ports[ports.len() - 1]);
        for port in [first, last] {
            let one =
                format!("tcp,src=198.51.100.7,dst=192.0.2.1,src_port=443,dst_port={port},count=1");
            let landed = json(&["bench", "rss", "--list", "--flows", &one]);
            assert_eq!(landed["list"][0]["queue"].to_string(), queue);
        }
        all.extend(ports.iter().map(|port| port.as_u64().unwrap()));
        let text = stdout(&args);
        assert!(
            text.contains(&format!("{} ports land on queue {queue}:", ports.len())),
            "{text}"
        );
        assert!(text.contains("443 > 192.0.2.1:*"), "{text}");
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(1024..=65_535));
}

#[test]
fn ports_are_chosen_by_parity_in_pairs_and_around_the_excluded() {
    let spec = "udp,src=198.51.100.7,dst=192.0.2.1,dst_port=5004,src_port=10000-20000";
    let base = [
        "bench", "rss", "--queues", "3", "--flows", spec, "--invert", "1",
    ];
    let ports = |extra: &[&str]| -> Vec<u64> {
        let report = json(&[&base[..], extra].concat());
        assert_eq!(report["free"], "src_port");
        report["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| port.as_u64().unwrap())
            .collect()
    };
    let all = ports(&[]);
    let odd: Vec<u64> = all.iter().copied().filter(|port| port % 2 == 1).collect();
    assert_eq!(ports(&["--parity", "odd"]), odd);
    let paired = |port: &u64| port.is_multiple_of(2) && all.contains(&(port + 1));
    let pairs: Vec<u64> = all
        .iter()
        .copied()
        .filter(paired)
        .filter(|&port| port < 20_000)
        .collect();
    assert_eq!(
        ports(&["--pairs"])
            .into_iter()
            .filter(|&port| port < 20_000)
            .collect::<Vec<_>>(),
        pairs
    );
    let outside: Vec<u64> = all
        .iter()
        .copied()
        .filter(|port| !(12_000..=19_000).contains(port))
        .collect();
    assert_eq!(ports(&["--exclude", "12000-19000"]), outside);
}

/// Each queue of a `pcap` port plays the whole file, so half of what comes is on the model's queue.
#[test]
fn rss_of_a_port_is_compared_with_the_model() {
    let frames: Vec<_> = (0..64)
        .map(|port| udp([10, 0, 0, 1], 6000 + port, 0))
        .collect();
    let scratch = Scratch::new();
    let file = scratch.write("check.pcap", pcap(&frames));
    let check = |queues: &str| {
        let spec = format!("pcap:rx={file},queues={queues}");
        json(&[
            "bench",
            "rss",
            "--port",
            &spec,
            "--queues",
            queues,
            "--seconds",
            "0.3",
        ])
    };
    let one = check("1");
    assert_eq!(
        (&one["compared"], &one["agreed"]),
        (&64.into(), &64.into()),
        "{one}"
    );
    assert_eq!(one["agreement_percent"], 100.0);
    let two = check("2");
    assert_eq!(
        (&two["compared"], &two["agreed"]),
        (&128.into(), &64.into()),
        "{two}"
    );
    assert_eq!(two["agreement_percent"], 50.0);
    let shown = two["disagreements"].as_array().unwrap();
    assert_eq!(shown.len(), 10);
    assert_ne!(shown[0]["queue"], shown[0]["expected_queue"]);
    let spec = format!("pcap:rx={file},queues=2");
    let text = stdout(&[
        "bench",
        "rss",
        "--port",
        &spec,
        "--queues",
        "2",
        "--seconds",
        "0.3",
    ]);
    assert!(
        text.contains("50.00% of 128 packets") && text.contains("reports no hash"),
        "{text}"
    );
    assert!(text.contains("udp 10.0.0.1:60"), "{text}");
    let (error, fix) = refused(&["bench", "rss", "--port", &spec, "--queues", "3"]);
    assert!(
        error.contains("3 queues, but it has 2") && fix.contains("--queues"),
        "{error}"
    );
}

#[test]
fn a_plan_shows_who_polls_what() {
    let topology =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/topologies/one-socket-14x2");
    let topology = topology.to_str().unwrap();
    let args = [
        "plan",
        "--topology",
        topology,
        "--io",
        "1-3",
        "--eu",
        "4",
        "--rss",
        "--port",
        "null:",
    ];
    let rss = &json(&args)["rss"];
    assert_eq!(rss["nic"]["queues"], 3, "one queue for each io lcore");
    let lcores = rss["lcores"].as_array().unwrap();
    let names: Vec<_> = lcores
        .iter()
        .map(|row| row["lcore"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["io0", "io1", "io2"]);
    let shares: f64 = lcores
        .iter()
        .map(|row| row["packets_share"].as_f64().unwrap())
        .sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    let text = stdout(&[&args[..], &["--queues", "8"]].concat());
    assert!(
        text.contains("io0      1     37.5%") && text.contains("null: 0,3,6\n"),
        "{text}"
    );
    let text = stdout(&[&args[..], &["--queues", "2"]].concat());
    assert!(
        text.contains("warning: no queue for io2; raise --queues"),
        "{text}"
    );
    assert!(
        json(&args[..args.len() - 3])["rss"].is_null(),
        "only when asked"
    );
    let (error, fix) = refused(&["plan", "--topology", topology, "--queues", "2"]);
    assert!(
        error.contains("not --rss") && fix.contains("--rss"),
        "{error}"
    );
}

#[test]
fn errors_name_the_input_and_the_correction() {
    let flow = "tcp,src=10.0.0.1,dst=10.0.0.2,src_port=1";
    let short = "00:".repeat(39) + "00";
    for (args, error_part, fix_part) in [
        (
            &["--reta", "100"][..],
            "RETA of 100 entries",
            "power of two",
        ),
        (&["--reta", "0,1,2"], "RETA of 3 entries", "2 or 4"),
        (
            &["--reta", "0,1", "--queues", "2"],
            "a whole table",
            "leave out --queues",
        ),
        (&["--reta", "0,70000"], "70000 is no queue", "65535"),
        (&["--queues", "0"], "0 queues", "1 to 128"),
        (&["--profile", "e100"], "`e100`", "ixgbe"),
        (
            &["--profile", "virtio"],
            "virtio draws its key",
            "ethtool -x",
        ),
        (&["--profile", "i40e", "--key", &short], "40 bytes", "52"),
        (&["--key", "6d5"], "3 hex digits", "two hex digits"),
        (&["--symmetry", "odd"], "--symmetry odd", "or-xor"),
        (
            &["--flows", "tcp,src=10.0.0.1/8"],
            "host bits",
            "10.0.0.0/8",
        ),
        (&["--flows", flow, "--invert", "9"], "queue 9", "below 4"),
        (
            &["--flows", "tcp,src_port=1", "--invert", "0"],
            "one flow",
            "single addresses",
        ),
        (
            &["--flows", "tcp,src=1.1.1.1,dst=1.1.1.2", "--invert", "0"],
            "both ports are free",
            "one port",
        ),
        (
            &["--flows", flow, "--invert", "0", "--exclude", "9-3"],
            "wrong way round",
            "5060",
        ),
        (
            &["--flows", flow, "--invert", "0", "--parity", "prime"],
            "prime",
            "even or odd",
        ),
        (
            &["--flows", flow, "--invert", "0", "--symmetry", "sorted"],
            "not affine",
            "Toeplitz",
        ),
        (
            &["--flows", flow, "--invert", "3", "--key", &short],
            "queue 3",
            "another key",
        ),
        (
            &["--flows", "icmp,src=1.1.1.1,dst=1.1.1.2,dst_port=3"],
            "icmp has no ports",
            "port",
        ),
        (
            &[
                "--flows",
                "tcp,src=10.0.0.1,dst=10.0.0.2,dst_port=1",
                "--invert",
                "1",
                "--queues",
                "2",
                "--pairs",
            ],
            "no even port and its next",
            "another order",
        ),
        (&["--pcap", "/nowhere.pcap"], "/nowhere.pcap", "path"),
        (&["--port", "af_xdp"], "af_xdp", ""),
    ] {
        let (error, fix) = refused(&[&["bench", "rss"], args].concat());
        assert!(error.contains(error_part), "{args:?}: {error}");
        assert!(fix.contains(fix_part), "{args:?}: {error}, fix: {fix}");
    }
    let (error, _) = refused(&[
        "bench",
        "rss",
        "--profile",
        "ixgbe",
        "--flows",
        "udp,src=1.1.1.1,dst=1.1.1.2,src_port=1",
        "--invert",
        "0",
    ]);
    assert!(
        error.contains("does not hash the ports of protocol 17"),
        "{error}"
    );
}

#[test]
fn a_port_that_knows_its_rss_is_held_against_that() {
    let port = "ring:a,loop=on,queues=3,rss=i40e";
    let args = ["bench", "rss", "--port", port, "--seconds", "0.01"];
    let report = json(&args);
    assert_eq!(report["nic"]["profile"], "i40e");
    assert_eq!(report["nic"]["reta_entries"], 512);
    assert_eq!(report["queues"].as_array().unwrap().len(), 3);
    let report = json(&[&args[..], &["--profile", "mlx5", "--queues", "2"]].concat());
    assert_eq!(report["nic"]["profile"], "mlx5");
}
