//! Our client and proxy before nginx, haproxy before our server.

use super::{HOSTS, OURS, SPECS, Stand, bytes};
use linerate_testkit::harness::Test;
use linerate_testkit::netns::Namespace;
use linerate_testkit::process::Running;
use linerate_testkit::{Scratch, cli, tests, wait};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = tests![
    nginx_answers_our_client_over_af_xdp,
    nginx_answers_our_client_over_af_packet,
    nginx_answers_our_client_over_tap,
    nginx_is_behind_our_proxy,
    haproxy_is_before_our_server,
    bench_http_asks_nginx_by_a_schedule,
];

/// Bytes of the file that nginx has.
const FILE: usize = 100_000;

/// nginx on the host: a file, by length and in chunks, connections that end after 50 requests. It
/// ends with the value.
fn nginx(host: &Namespace, scratch: &Scratch) -> Running {
    let root = scratch.file("nginx");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(format!("{root}/file"), bytes(FILE)).unwrap();
    std::fs::write(format!("{root}/page.html"), bytes(FILE)).unwrap();
    let text = format!(
        "daemon off;\nmaster_process off;\npid {root}/pid;\nerror_log stderr error;\n\
         events {{ worker_connections 512; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 50;\n  \
         client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f; \
         uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n  \
         gzip on; gzip_types *; gzip_min_length 1;\n  server {{\n    \
         listen 192.0.2.2:8000;\n    listen [2001:db8::2]:8000;\n    root {root};\n    \
         location /chunked {{ ssi on; ssi_types *; alias {root}/file; }}\n  }}\n}}\n"
    );
    let file = format!("{root}/conf");
    std::fs::write(&file, text).unwrap();
    let running = host.start("nginx", &format!("-e stderr -c {file}"));
    wait("nginx", || {
        let to = std::net::SocketAddr::from(([192, 0, 2, 2], 8000));
        host.inside(|| std::net::TcpStream::connect(to).is_ok())
    });
    running
}

fn nginx_answers_our_client_over_af_xdp() {
    client(SPECS[0]);
}

fn nginx_answers_our_client_over_af_packet() {
    client(SPECS[1]);
}

fn nginx_answers_our_client_over_tap() {
    client(SPECS[2]);
}

/// Requests of each client.
const REQUESTS: u64 = 400;

fn client(spec: &str) {
    let mut server = None;
    let mut apps = String::new();
    for (family, host) in HOSTS.iter().enumerate() {
        for (kind, keys) in [
            ("kept", "connections = 8\n"),
            ("closed", "connections = 8\nkeep = false\n"),
            (
                "rate",
                "connections = 8\nrate = 1000\narrivals = \"poisson\"\n",
            ),
            ("chunked", "connections = 2\npaths = [\"/chunked\"]\n"),
            (
                "missing",
                "connections = 1\npaths = [\"/nothing\", \"/neither\"]\n",
            ),
        ] {
            let paths = match kind {
                "chunked" | "missing" => "",
                _ => "paths = [\"/file\", \"/file?again\"]\n",
            };
            apps += &format!(
                "[[app]]\nkind = \"http-client\"\nname = \"{kind}{family}\"\n\
                 connect = \"{host}:8000\"\nrequests = {REQUESTS}\nexpect = \"FOLDER/expected\"\n\
                 {paths}{keys}"
            );
        }
    }
    let is_tap = spec.starts_with("tap");
    let made = Stand::with(spec, &apps, &["nginx"], |host, scratch| {
        std::fs::write(Stand::file(scratch, "expected"), bytes(FILE)).unwrap();
        if !is_tap {
            server = Some(nginx(host, scratch));
        }
    });
    let Some(stand) = made else { return };
    if is_tap {
        // Its addresses came with linerate, whose clients have been refused until now.
        server = Some(nginx(&stand.host, &stand.scratch));
    }
    for family in 0..2 {
        for kind in ["kept", "closed", "rate", "chunked", "missing"] {
            let app = format!("{kind}{family}");
            let count = |name: &str| stand.count(&app, name);
            wait(&format!("the end of {app} over {spec}"), || {
                let done = count("answers") + count("failed") + count("timed_out");
                done == REQUESTS && count("open") == 0
            });
            // Before there was a server some may have failed, one connection after the other.
            let failed = count("failed");
            assert!(is_tap || failed == 0, "{app} over {spec}: {failed} failed");
            let answers = REQUESTS - failed;
            let wanted = match kind {
                "missing" => (0, answers),
                _ => (answers, 0),
            };
            assert_eq!((count("2xx"), count("4xx")), wanted, "{app} over {spec}");
            for nothing in ["wrong", "timed_out", "unasked"] {
                assert_eq!(count(nothing), 0, "{nothing} of {app} over {spec}");
            }
            if kind != "missing" {
                assert_eq!(count("bytes"), answers * FILE as u64, "{app} over {spec}");
            }
            let (opened, again) = (count("opened"), count("again"));
            match kind {
                "closed" => assert_eq!(opened, REQUESTS, "{app} over {spec}"),
                // nginx ends a connection after 50 requests, and says so.
                _ => assert!(
                    (REQUESTS.div_ceil(50)..=REQUESTS / 50 + 8 + again + failed).contains(&opened),
                    "{app} over {spec}: {opened} connections"
                ),
            }
        }
    }
    drop(server);
    stand.close(&[]);
}

fn nginx_is_behind_our_proxy() {
    for spec in SPECS {
        let mut apps = String::new();
        for (port, host) in (8080..).zip(HOSTS) {
            apps += &format!(
                "[[app]]\nkind = \"proxy\"\nname = \"to{port}\"\nlisten = {port}\n\
                 to = \"{host}:8000\"\n"
            );
        }
        let Some(stand) = Stand::new(spec, &apps, &["nginx", "curl", "wrk"]) else {
            return;
        };
        let _server = nginx(&stand.host, &stand.scratch);
        for (ours, port) in OURS.iter().zip([8080, 8081]) {
            let url = format!("http://{ours}:{port}/file");
            assert!(stand.body(&url) == bytes(FILE), "{url} over {spec}");
            let said = stand.run("wrk", &format!("-t 1 -c 16 -d 1s {url}"));
            assert!(
                !said.contains("Socket errors") && !said.contains("Non-2xx"),
                "{said}"
            );
        }
        stand.close(&[]);
    }
}

fn haproxy_is_before_our_server() {
    let site = "[[app]]\nkind = \"http\"\nname = \"www\"\nlisten = 80\nfiles = \"FOLDER\"\n";
    for spec in SPECS {
        let made = Stand::with(
            spec,
            site,
            &["haproxy", "curl", "wrk", "ab"],
            |_, scratch| {
                std::fs::write(Stand::file(scratch, "file"), bytes(FILE)).unwrap();
                std::fs::write(Stand::file(scratch, "small"), bytes(100)).unwrap();
            },
        );
        let Some(stand) = made else { return };
        let text = "global\n  maxconn 500\ndefaults\n  mode http\n  timeout connect 5s\n  \
            timeout client 30s\n  timeout server 30s\nfrontend f\n  bind 127.0.0.1:8000\n  \
            default_backend b\nbackend b\n  option httpchk GET /small\n  http-reuse always\n  \
            server v4 192.0.2.1:80 check inter 200ms\n  \
            server v6 [2001:db8::1]:80 check inter 200ms\n";
        let file = stand.scratch.file("haproxy.cfg");
        std::fs::write(&file, text).unwrap();
        let _haproxy = stand.host.start("haproxy", &format!("-db -f {file}"));
        wait("haproxy", || {
            let words = "-s -f -o /dev/null http://127.0.0.1:8000/small";
            stand.host.run("curl", words).status.success()
        });
        for _ in 0..4 {
            // Either server in turns.
            assert!(
                stand.body("http://127.0.0.1:8000/file") == bytes(FILE),
                "{spec}"
            );
        }
        let said = stand.run("wrk", "-t 1 -c 32 -d 1s http://127.0.0.1:8000/small");
        assert!(
            !said.contains("Socket errors") && !said.contains("Non-2xx"),
            "{said}"
        );
        let said = stand.run("ab", "-n 1000 -c 8 http://127.0.0.1:8000/small");
        assert!(said.contains("Failed requests:        0"), "{said}");
        assert_eq!(stand.count("www", "404"), 0);
        drop(_haproxy);
        stand.close(&["www"]);
    }
}

fn bench_http_asks_nginx_by_a_schedule() {
    let Some(stand) = Stand::new(SPECS[1], "", &["nginx"]) else {
        return;
    };
    let Stand {
        host,
        linerate,
        scratch,
        _dut: dut,
        ..
    } = stand;
    // It makes place for the measurement.
    drop(linerate);
    let _server = nginx(&host, &scratch);
    let expected = format!("{}/file", scratch.file("nginx"));
    for (ours, theirs) in [("192.0.2.1/24", HOSTS[0]), ("2001:db8::1/64", HOSTS[1])] {
        let words = format!(
            "bench http --json --port af_packet:d0 --address {ours} --rate 300 --connections 10 \
             --seconds 2 --warmup 0.5 --expect {expected} http://{theirs}:8000/file"
        );
        let output = dut.run(cli::binary(), &words);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {complaint}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let count = |name: &str| report[name].as_u64().unwrap();
        assert_eq!(count("2xx"), count("answers"), "{report}");
        assert!(count("answers") > 0 && count("wrong") == 0, "{report}");
        assert_eq!((count("failed"), count("timed_out")), (0, 0), "{report}");
        // What is read while they come: an answer may be counted and not yet in its bucket, at
        // either end of the time that is measured.
        let samples = report["latency_ns"]["samples"].as_u64().unwrap();
        assert!(samples.abs_diff(count("answers")) <= 2, "{report}");
        // The schedule does not wait for answers: each that was due has left or waits, and what
        // waited when the warm-up was over is among them.
        let due = 300.0 * report["seconds"].as_f64().unwrap();
        let begun = (count("requests") + count("waiting")) as f64;
        assert!(begun > due - 20.0, "{begun} of {due}: {report}");
        let latency = |name: &str| report["latency_ns"][name].as_u64().unwrap();
        assert!(
            latency("min") <= latency("p50") && latency("p50") <= latency("max"),
            "{report}"
        );
    }
    // Nobody listens there.
    let words = "bench http --port af_packet:d0 --address 192.0.2.1/24 --seconds 0.3 --warmup 0 \
        http://192.0.2.2:9/";
    let output = dut.run(cli::binary(), words);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && complaint.contains("no answer has come"),
        "{complaint}"
    );
}
