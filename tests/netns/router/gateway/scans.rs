//! What a scanner sees through the gateway is what the policy says: nmap, hping3 and thc-ipv6's
//! `firewall6` outside, servers inside.
//!
//! | port inside | policy | seen |
//! |---|---|---|
//! | 22, 443 TCP, 53 UDP: a server | permit | open |
//! | 80 TCP, 5000 UDP: nobody | permit | closed |
//! | 23 TCP: a server | reject | closed, by the gateway |
//! | 123 UDP: a server | reject | filtered, by the gateway |
//! | 21 TCP, 161 UDP: a server; all else | deny | nothing |

use super::outward;
use crate::router::instance::{Router, two_ports};
use crate::router::site::{LEFT4, LEFT6, RIGHT4, RIGHT6, Site, reaches};
use linerate_testkit::Scratch;
use linerate_testkit::has;
use linerate_testkit::netns::Namespace;
use linerate_testkit::{harness::Test, tests};
use std::collections::BTreeMap;
use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![
    nmap_sees_what_the_policy_says,
    hping3_sees_what_the_policy_says,
    #[ignore = "long: firewall6 waits for each packet that is filtered"]
    no_trick_of_firewall6_passes_the_policy,
];

/// What hosts outside may begin.
const POLICY: &str = r#"
[[policy]]
from = "outside"
to = "inside"
rules = [
  { action = "permit", service = ["tcp/22", "tcp/80", "tcp/443", "udp/53", "udp/5000"] },
  { action = "reject", service = ["tcp/23", "udp/123"] },
]
"#;

/// TCP ports of servers inside.
const LISTENS: [u16; 4] = [21, 22, 23, 443];
/// UDP ports of servers inside.
const ANSWERS: [u16; 3] = [53, 123, 161];

/// Both families' addresses of the host inside, with what a scanner calls the family.
const TARGETS: [(&str, &str); 2] = [(LEFT4, ""), (LEFT6, "-6")];

/// Servers inside, of which no connection is ever accepted by the program.
struct Servers {
    listeners: Vec<TcpListener>,
}

impl Servers {
    fn new(host: &Namespace) -> Self {
        let bind = || {
            let of = |address| LISTENS.map(|port| TcpListener::bind((address, port)).unwrap());
            [LEFT4, LEFT6].map(of).into_iter().flatten().collect()
        };
        Self {
            listeners: host.inside(bind),
        }
    }

    /// Whether a connection to one of these ports has come.
    fn has_been_reached(&self, ports: &[u16]) -> bool {
        self.listeners.iter().any(|listener| {
            listener.set_nonblocking(true).unwrap();
            ports.contains(&listener.local_addr().unwrap().port()) && listener.accept().is_ok()
        })
    }
}

/// Does something while servers answer datagrams.
fn while_answering(host: &Namespace, work: impl FnOnce()) {
    let of = |address| ANSWERS.map(|port| UdpSocket::bind((address, port)).unwrap());
    let sockets: Vec<UdpSocket> =
        host.inside(|| [LEFT4, LEFT6].map(of).into_iter().flatten().collect());
    let is_over = AtomicBool::new(false);
    /// Ends the servers, also where the work has failed.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        for socket in &sockets {
            let short = Some(Duration::from_millis(100));
            socket.set_read_timeout(short).unwrap();
            scope.spawn(|| {
                let mut bytes = [0; 2048];
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok((length, from)) = socket.recv_from(&mut bytes) {
                        let _ = socket.send_to(&bytes[..length], from);
                    }
                }
            });
        }
        let _over = Over(&is_over);
        work();
    });
}

/// The ports that nmap names, with the states that it gives them.
#[track_caller]
fn nmap(site: &Site, words: &str) -> BTreeMap<u16, String> {
    // Only so patient with each port, and more than once: the machine may be busy.
    let words = format!("-n -Pn --max-retries 4 --initial-rtt-timeout 1s -oG - {words}");
    let output = site.right.run("nmap", &words);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "nmap {words}: {output:?}");
    let rows = said
        .lines()
        .filter_map(|line| line.split_once("Ports: "))
        .flat_map(|(_, row)| row.split('\t').next().unwrap_or_default().split(", "));
    let mut states = BTreeMap::new();
    for row in rows {
        let mut fields = row.trim().split('/');
        let port = fields.next().unwrap().parse().unwrap();
        states.insert(port, fields.next().unwrap().to_owned());
    }
    states
}

/// nmap gives these states, at the latest when it is asked for the third time: a late answer is
/// none for it. What the policy denies is never seen as anything else.
#[track_caller]
fn sees(site: &Site, gateway: &Router, words: &str, expected: &[(u16, &str)]) {
    let expected: BTreeMap<u16, String> = expected
        .iter()
        .map(|&(port, state)| (port, state.to_owned()))
        .collect();
    let mut seen = BTreeMap::new();
    for _ in 0..3 {
        seen = nmap(site, words);
        if seen == expected {
            return;
        }
        let lies = seen.iter().filter(|(port, state)| {
            !state.contains("filtered") && expected.get(port) != Some(state)
        });
        let lies: Vec<_> = lies.collect();
        assert!(lies.is_empty(), "{words}: {lies:?}, not {expected:?}");
    }
    panic!(
        "{words}: {seen:?}, not {expected:?}\n{}",
        gateway.show("drops")
    );
}

fn nmap_sees_what_the_policy_says() {
    if !has(&["nmap"]) {
        return;
    }
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports("af_packet", "", "") + &outward([4096; 2]) + POLICY;
    let gateway = Router::start_as("gateway", &site.mid, &scratch, &config);
    for outside in [RIGHT4, RIGHT6] {
        reaches(&site.left, outside);
    }
    let servers = Servers::new(&site.left);
    for (target, family) in TARGETS {
        let tcp = "-p 20-24,80,443";
        let of = |rejected| {
            [
                (20, "filtered"),
                (21, "filtered"),
                (22, "open"),
                (23, rejected),
                (24, "filtered"),
                (80, "closed"),
                (443, "open"),
            ]
        };
        sees(
            &site,
            &gateway,
            &format!("{family} -sS {tcp} {target}"),
            &of("closed"),
        );
        // As an application would connect.
        sees(
            &site,
            &gateway,
            &format!("{family} -sT {tcp} {target}"),
            &of("closed"),
        );
        // Segments that belong to no connection reach nobody: no port is told from another.
        let all = |state| of(state).map(|(port, _)| (port, state));
        sees(
            &site,
            &gateway,
            &format!("{family} -sA {tcp} {target}"),
            &all("filtered"),
        );
        for scan in ["-sF", "-sX", "-sN", "-sM"] {
            let words = format!("{family} {scan} {tcp} {target}");
            sees(&site, &gateway, &words, &all("open|filtered"));
        }
        while_answering(&site.left, || {
            let words = format!("{family} -sU -p 53,123,161,5000 {target}");
            let expected = [
                (53, "open"),
                (123, "filtered"),
                (161, "open|filtered"),
                (5000, "closed"),
            ];
            sees(&site, &gateway, &words, &expected);
        });
    }
    assert!(!servers.has_been_reached(&[21, 23]));
    assert!(servers.has_been_reached(&[22]));
    gateway.stop();
}

/// How many of three packets hping3 gets an answer to, with the flags that these must have.
#[track_caller]
fn hping3(site: &Site, words: &str, flags: &str) -> usize {
    let words = format!("-n -c 3 -i u300000 {words} {LEFT4}");
    let output = site.right.run("hping3", &words);
    let said = String::from_utf8_lossy(&output.stdout);
    let is_answer = |line: &&str| line.starts_with("len=") || line.starts_with("ICMP");
    let answers: Vec<&str> = said.lines().filter(is_answer).collect();
    for answer in &answers {
        assert!(
            !flags.is_empty() && answer.contains(flags),
            "hping3 {words}: {answer}, not {flags:?}"
        );
    }
    answers.len()
}

fn hping3_sees_what_the_policy_says() {
    if !has(&["hping3"]) {
        return;
    }
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports("af_packet", "", "") + &outward([4096; 2]) + POLICY;
    let gateway = Router::start_as("gateway", &site.mid, &scratch, &config);
    reaches(&site.left, RIGHT4);
    let servers = Servers::new(&site.left);
    for (words, flags) in [
        ("-S -p 22", "flags=SA"),
        ("-S -p 80", "flags=RA"),
        ("-S -p 23", "flags=RA"),
        // In fragments that have not even a whole header: they are put together and judged.
        ("-S -f -p 22", "flags=SA"),
        ("-S -f -p 80", "flags=RA"),
        ("--udp -p 5000", "Port Unreachable"),
    ] {
        let mut answered = 0;
        linerate_testkit::wait(&format!("hping3 {words} to be answered"), || {
            answered = hping3(&site, words, flags);
            answered > 0
        });
    }
    for words in [
        "-S -p 21",
        "-S -f -p 21",
        "-A -p 22",
        "-A -p 21",
        "-R -p 22",
        "-F -p 22",
        "-SF -p 22",
        "-SR -p 22",
        "-FPU -p 22",
        "-p 22",
        "-SA -p 22",
        "--udp -p 161",
        "--icmp -C 8",
        "--icmp -C 13",
    ] {
        assert_eq!(hping3(&site, words, ""), 0, "{words}");
    }
    assert!(!servers.has_been_reached(&[21, 23]));
    gateway.stop();
}

/// What firewall6 says of its cases against a port, by the number of the case.
#[track_caller]
fn firewall6(site: &Site, port: u16) -> BTreeMap<String, String> {
    let output = site
        .right
        .run("atk6-firewall6", &format!("veth1 {LEFT6} {port}"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Done."), "{output:?}");
    let cases = said.lines().filter_map(|line| {
        let (number, row) = line.strip_prefix("Test")?.split_once(": ")?;
        let result = row.rsplit('\t').next()?;
        Some((number.trim().to_owned(), result.trim().to_owned()))
    });
    cases.collect()
}

fn no_trick_of_firewall6_passes_the_policy() {
    if !has(&["atk6-firewall6"]) {
        return;
    }
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports("af_packet", "", "") + &outward([4096; 2]) + POLICY;
    let gateway = Router::start_as("gateway", &site.mid, &scratch, &config);
    reaches(&site.left, RIGHT6);
    let servers = Servers::new(&site.left);
    let (permitted, denied) = std::thread::scope(|scope| {
        let denied = scope.spawn(|| firewall6(&site, 21));
        (firewall6(&site, 22), denied.join().unwrap())
    });
    // Neither a server nor a host that has none answers from behind a port that is denied.
    for (case, result) in &denied {
        assert!(!result.contains("TCP-"), "case {case}: {result}");
    }
    assert!(!servers.has_been_reached(&[21]));
    // What is whole passes, with harmless headers in front and whatever its source port is.
    for case in ["1", "2", "6", "10", "39a", "39j"] {
        let result = permitted.get(case).map(String::as_str);
        assert_eq!(result, Some("TCP-SYN-ACK received"), "case {case}");
    }
    gateway.stop();
}
