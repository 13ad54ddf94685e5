//! iperf3 through the proxy: client and server are the kernel's, and each connection of theirs is
//! two of ours.

use super::{HOSTS, OURS, SPECS, Stand};
use linerate_testkit::wait;
use serde_json::Value;

/// Bytes of a transfer, all streams together.
const TOTAL: u64 = 20 << 20;

/// Runs iperf3 with these words through the proxies to IPv4 and IPv6.
fn through(spec: &str, words: &str, streams: usize) {
    let stanzas = format!(
        "[[app]]\nkind = \"proxy\"\nname = \"four\"\nlisten = 5201\nto = \"{}:5300\"\n\
         [[app]]\nkind = \"proxy\"\nname = \"six\"\nlisten = 5202\nto = \"[{}]:5300\"\n",
        HOSTS[0], HOSTS[1]
    );
    let Some(stand) = Stand::new(spec, &stanzas, &["iperf3"]) else {
        return;
    };
    let mut server = stand.host.start("iperf3", "-s -p 5300 --forceflush");
    server.wait("iperf3 to listen", |stdout, _| {
        stdout.text().contains("Server listening")
    });
    // Either way from one family to the other.
    for (ours, port, proxy) in [(OURS[1], 5201, "four"), (OURS[0], 5202, "six")] {
        let words = format!("-c {ours} -p {port} -n {TOTAL} -J {words}");
        let output = stand.host.run("iperf3", &words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{spec} {words}: {said}");
        let report: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(report["error"], Value::Null, "{said}");
        let sent = report["end"]["sum_sent"]["bytes"].as_u64().unwrap();
        let received = report["end"]["sum_received"]["bytes"].as_u64().unwrap();
        // It ends when all is written, and does not wait for the rest to be read.
        assert!(sent >= TOTAL && received > 0, "{words}: {said}");
        let found = report["end"]["streams"].as_array().unwrap().len();
        assert_eq!(found, streams, "{words}: {said}");
        wait("the proxy to be rid of all", || {
            stand.app(proxy, "open") == 0
        });
        // The streams and the one by which both ends agree.
        assert_eq!(stand.app(proxy, "accepted"), streams as u64 + 1);
        assert_eq!(stand.app(proxy, "refused"), 0);
        assert!(stand.app(proxy, "bytes") >= received);
    }
    assert_eq!(stand.tcp("no_room"), 0);
    drop(server);
    stand.close();
}

#[test]
fn iperf3_sends_through_the_proxy() {
    SPECS.iter().for_each(|spec| through(spec, "", 1));
}

#[test]
fn iperf3_receives_through_the_proxy() {
    SPECS.iter().for_each(|spec| through(spec, "-R", 1));
}

#[test]
fn iperf3_sends_eight_streams_through_the_proxy() {
    SPECS.iter().for_each(|spec| through(spec, "-P 8", 8));
}

#[test]
fn iperf3_receives_eight_streams_through_the_proxy() {
    SPECS.iter().for_each(|spec| through(spec, "-P 8 -R", 8));
}
