//! Our server: curl, wrk, ab and h2load ask it, and a client that does not wait for answers.

use super::{OURS, SPECS, Stand, bare, bytes};
use linerate_testkit::harness::Test;
use linerate_testkit::{has, tests};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

pub(crate) const TESTS: &[Test] = tests![
    curl_gets_every_byte_over_af_xdp,
    curl_gets_every_byte_over_af_packet,
    curl_gets_every_byte_over_tap,
    load_over_af_xdp,
    load_over_af_packet,
    load_over_tap,
    requests_that_do_not_wait_are_answered_in_order,
    two_lcores_share_the_connections,
    #[ignore = "long: 1 GB over each kind of port"]
    a_gigabyte_has_the_same_sha256,
];

const SITE: &str = "[[app]]\nkind = \"http\"\nname = \"www\"\nlisten = 80\nfiles = \"FOLDER\"\n\
    bodies = [\"/64=64\", \"/1k=1024\", \"/16k=16384\"]\n";

fn curl_gets_every_byte_over_af_xdp() {
    curl(SPECS[0]);
}

fn curl_gets_every_byte_over_af_packet() {
    curl(SPECS[1]);
}

fn curl_gets_every_byte_over_tap() {
    curl(SPECS[2]);
}

/// Files and their lengths: around a segment, a head's, a window's.
const LENGTHS: [usize; 7] = [0, 1, 1447, 1448, 16_384, 65_537, 5_000_000];

fn curl(spec: &str) {
    let all = bytes(LENGTHS[6]);
    let made = Stand::with(spec, SITE, &["curl"], |_, scratch| {
        for len in LENGTHS {
            std::fs::write(Stand::file(scratch, &len.to_string()), &all[..len]).unwrap();
        }
        std::fs::write(Stand::file(scratch, "index.html"), "<p>hello").unwrap();
    });
    let Some(stand) = made else { return };
    let mut good = 0;
    for ours in OURS {
        for len in LENGTHS {
            let url = format!("http://{ours}/{len}");
            assert!(stand.body(&url) == all[..len], "{url} over {spec}");
            // The same as of an older client, whose connection ends.
            assert!(
                stand.body(&format!("--http1.0 {url}")) == all[..len],
                "{url}, 1.0"
            );
            good += 2;
        }
        assert_eq!(stand.body(&format!("http://{ours}/")), b"<p>hello");
        // One connection has them all.
        let urls = format!("http://{ours}/1 http://{ours}/1447 http://{ours}/64");
        let said = stand.run(
            "curl",
            &format!(
                "-s -S -g -o /dev/null -w %{{num_connects}} {urls} \
            -o /dev/null -o /dev/null"
            ),
        );
        assert_eq!(said, "100", "connections for each of three");
        good += 4;
        let head = stand.run("curl", &format!("-s -S -g -I http://{ours}/5000000"));
        assert!(
            head.contains("200 OK") && head.contains("Content-Length: 5000000"),
            "{head}"
        );
        good += 1;
        let status = |words: &str| {
            let words = format!("-s -S -g -o /dev/null -w %{{http_code}} {words}");
            stand.run("curl", &words)
        };
        assert_eq!(status(&format!("http://{ours}/nothing")), "404");
        // Parts of a body, and more of it than there is.
        for (range, part) in [
            ("0-0", &all[..1]),
            ("100-60000", &all[100..60_001]),
            ("-1500", &all[all.len() - 1500..]),
        ] {
            let got = stand.body(&format!("-r {range} http://{ours}/5000000"));
            assert!(got == part, "{range} over {spec}");
        }
        assert_eq!(status(&format!("-r 5000000- http://{ours}/5000000")), "416");
        // A body is taken, whatever becomes of the request, and in chunks as well.
        let sent = Stand::file(&stand.scratch, "65537");
        assert_eq!(
            status(&format!("--data-binary @{sent} http://{ours}/64")),
            "405"
        );
        let chunked = "-H Transfer-Encoding:chunked";
        assert_eq!(
            status(&format!("{chunked} --data-binary @{sent} http://{ours}/64")),
            "405"
        );
        assert_eq!(
            status(&format!("-H A:{} http://{ours}/64", "b".repeat(9000))),
            "431"
        );
    }
    assert_eq!(stand.count("www", "200"), good);
    assert_eq!(
        (stand.count("www", "404"), stand.count("www", "405")),
        (2, 4)
    );
    assert_eq!(
        (stand.count("www", "431"), stand.count("www", "failed")),
        (2, 0)
    );
    stand.close(&["www"]);
}

fn load_over_af_xdp() {
    load(SPECS[0]);
}

fn load_over_af_packet() {
    load(SPECS[1]);
}

fn load_over_tap() {
    load(SPECS[2]);
}

/// A number that stands behind some words.
#[track_caller]
fn number(text: &str, before: &str) -> u64 {
    let rest = text.split_once(before).map(|(_, rest)| rest.trim_start());
    let digits = rest.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    let number = digits.and_then(|digits| digits.parse().ok());
    number.unwrap_or_else(|| panic!("no number behind {before:?} in {text}"))
}

fn load(spec: &str) {
    let Some(stand) = Stand::new(spec, SITE, &["wrk", "ab", "h2load"]) else {
        return;
    };
    let answered = || stand.count("www", "200");
    for ours in OURS {
        for path in ["64", "16k"] {
            let before = answered();
            let said = stand.run("wrk", &format!("-t 1 -c 32 -d 1s http://{ours}/{path}"));
            assert!(
                !said.contains("Socket errors") && !said.contains("Non-2xx"),
                "{said}"
            );
            // What was under way at wrk's end may have been answered too.
            let (theirs, count) = (wrk_requests(&said), answered() - before);
            assert!((theirs..=theirs + 32).contains(&count), "{count}: {said}");
        }
        for keep in ["", "-k "] {
            let before = answered();
            let said = stand.run("ab", &format!("{keep}-n 2000 -c 16 http://{ours}/1k"));
            assert_eq!(number(&said, "Complete requests:"), 2000, "{said}");
            assert_eq!(number(&said, "Failed requests:"), 0, "{said}");
            assert!(
                said.contains("Document Length:        1024 bytes"),
                "{said}"
            );
            let extra = answered() - before - 2000;
            // ab may have begun more connections than it counts.
            assert!(extra <= 16, "{extra}: {said}");
        }
        let before = answered();
        let said = stand.run("h2load", &format!("--h1 -n 2000 -c 16 http://{ours}/1k"));
        assert!(
            said.contains("2000 succeeded, 0 failed, 0 errored"),
            "{said}"
        );
        assert_eq!(answered() - before, 2000);
    }
    assert_eq!(
        (stand.count("www", "404"), stand.count("www", "timed_out")),
        (0, 0)
    );
    stand.close(&["www"]);
}

/// `  12345 requests in 1.00s, 2.00MB read`.
#[track_caller]
fn wrk_requests(said: &str) -> u64 {
    let line = said.lines().find(|line| line.contains(" requests in "));
    let count = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    count.unwrap_or_else(|| panic!("{said}"))
}

/// RFC 9112 9.3.2: a client may send requests before it has the answers to those before.
fn requests_that_do_not_wait_are_answered_in_order() {
    let names: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
    let made = Stand::with(SPECS[1], SITE, &[], |_, scratch| {
        for name in &names {
            std::fs::write(Stand::file(scratch, name), name.repeat(50)).unwrap();
        }
    });
    let Some(stand) = made else { return };
    for ours in OURS {
        let to = SocketAddr::new(bare(ours).parse().unwrap(), 80);
        let got = stand.host.inside(|| {
            let mut stream = TcpStream::connect(to).unwrap();
            let last = "GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            let ask = |name: &String| format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n");
            let asked: String = names.iter().map(ask).collect();
            // Cut where it happens to be.
            for piece in (asked + last).as_bytes().chunks(977) {
                stream.write_all(piece).unwrap();
            }
            let mut got = String::new();
            stream.read_to_string(&mut got).unwrap();
            got
        });
        let bodies: Vec<&str> = got.split("HTTP/1.1 ").skip(1).collect();
        assert_eq!(bodies.len(), 101, "{ours}");
        for (body, name) in bodies.iter().zip(&names) {
            assert!(
                body.ends_with(&format!("\r\n\r\n{}", name.repeat(50))),
                "{name}: {body}"
            );
        }
        assert!(bodies[100].starts_with("404 "), "{}", bodies[100]);
    }
    stand.close(&["www"]);
}

/// Each connection is one lcore's, whichever brings its packets, and all are served.
fn two_lcores_share_the_connections() {
    for (spec, mode) in [
        ("af_packet:d0", "hardware"),
        ("tap:t0", "hardware"),
        ("af_xdp:d0", "software"),
    ] {
        let all = bytes(LENGTHS[5]);
        let programs = ["wrk", "ab", "curl"];
        let made = Stand::with_lcores(("0-1", mode), spec, SITE, &programs, |_, scratch| {
            std::fs::write(Stand::file(scratch, "file"), &all).unwrap();
        });
        let Some(stand) = made else { return };
        for ours in OURS {
            for _ in 0..8 {
                // Their ports differ, and so may their lcores.
                assert!(
                    stand.body(&format!("http://{ours}/file")) == all,
                    "{ours} over {spec}"
                );
            }
            let said = stand.run("wrk", &format!("-t 1 -c 32 -d 1s http://{ours}/64"));
            assert!(
                !said.contains("Socket errors") && !said.contains("Non-2xx"),
                "{said}"
            );
            let said = stand.run("ab", &format!("-n 1000 -c 16 http://{ours}/1k"));
            assert_eq!(number(&said, "Complete requests:"), 1000, "{said}");
            assert_eq!(number(&said, "Failed requests:"), 0, "{said}");
        }
        let accepted = stand.linerate.counts("www", "accepted");
        assert_eq!(accepted.len(), 2, "{accepted:?}");
        assert!(
            accepted.iter().all(|&count| count > 100),
            "{accepted:?} over {spec}"
        );
        stand.close(&["www"]);
    }
}

fn a_gigabyte_has_the_same_sha256() {
    if !has(&["sha256sum", "bash"]) {
        return;
    }
    let piece = bytes(1 << 20);
    for spec in SPECS {
        let made = Stand::with(spec, SITE, &["curl"], |_, scratch| {
            let mut file = std::fs::File::create(Stand::file(scratch, "1g")).unwrap();
            for number in 0..1024_u64 {
                // No two pieces are the same.
                file.write_all(&number.to_le_bytes()).unwrap();
                file.write_all(&piece[8..]).unwrap();
            }
        });
        let Some(stand) = made else { return };
        let sum = |text: String| text.split_whitespace().next().unwrap().to_owned();
        let whole = sum(stand.run("sha256sum", &Stand::file(&stand.scratch, "1g")));
        for ours in OURS {
            let mut command = stand.host.command("bash");
            let words = format!("set -o pipefail; curl -s -S -g http://{ours}/1g | sha256sum");
            let output = command.args(["-c", &words]).output().unwrap();
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{ours} over {spec}: {complaint}");
            let got = sum(String::from_utf8(output.stdout).unwrap());
            assert_eq!(got, whole, "{ours} over {spec}");
        }
        stand.close(&["www"]);
    }
}
