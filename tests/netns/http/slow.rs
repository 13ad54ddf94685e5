//! Peers that take their time on purpose: the server leaves them, and serves others meanwhile.

use super::{SPECS, Stand};
use linerate_testkit::harness::Test;
use linerate_testkit::{PATIENCE, tests, wait};
use std::time::Instant;

pub(crate) const TESTS: &[Test] = tests![
    slow_heads_keep_nobody_away,
    slow_bodies_keep_nobody_away,
    slow_readers_keep_nobody_away,
    many_ranges_keep_nobody_away,
];

const SITE: &str = "[[app]]\nkind = \"http\"\nname = \"www\"\nlisten = 80\nbacklog = 4096\n\
    bodies = [\"/64=64\", \"/big=1000000\"]\nhead_timeout = 2\nstall_timeout = 2\n\
    idle_timeout = 5\n";

/// slowhttptest attacks with 300 connections, while others ask.
fn attacked(words: &str, refused_by: &[&str]) {
    let Some(stand) = Stand::new(SPECS[1], SITE, &["slowhttptest", "curl"]) else {
        return;
    };
    let words = format!("{words} -c 300 -r 150 -l 8 -p 3");
    let mut attack = stand.host.start("slowhttptest", &words);
    let began = Instant::now();
    let mut served = 0;
    while attack.is_alive() {
        assert!(began.elapsed() < PATIENCE, "it does not end");
        assert_eq!(stand.body("http://192.0.2.1/64").len(), 64);
        served += 1;
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    attack.end();
    let said = attack.stdout.text();
    assert!(served > 5, "{served}: {said}");
    // Its own connection that looks whether the server is there.
    assert!(!said.contains("service available:   NO"), "{said}");
    // Those that have taken too long were left, each in its way.
    let refused = || {
        refused_by
            .iter()
            .map(|name| stand.count("www", name))
            .sum::<u64>()
    };
    wait("all attackers to be left", || {
        stand.count("www", "open") == 0
    });
    assert!(refused() > 0, "{refused_by:?}: {said}");
    stand.close(&["www"]);
}

fn slow_heads_keep_nobody_away() {
    attacked("-H -i 1 -u http://192.0.2.1/64", &["408"]);
}

fn slow_bodies_keep_nobody_away() {
    attacked("-B -i 1 -s 100000 -u http://192.0.2.1/64", &["408", "405"]);
}

fn slow_readers_keep_nobody_away() {
    attacked(
        "-X -w 1 -y 64 -n 1 -z 5 -k 3 -u http://192.0.2.1/big",
        &["timed_out"],
    );
}

fn many_ranges_keep_nobody_away() {
    // Many at once are answered with everything (RFC 9110 14.2, 17.15).
    attacked("-R -a 1 -b 3000 -t GET -u http://192.0.2.1/64", &["200"]);
}
