//! Attacks by scapy (`attacks.py`) on an echo server: a connection that was there before goes on,
//! new ones are answered, counters tell what came, and memory stays bounded.

use super::{OURS, Stand};
use linerate_testkit::{PATIENCE, wait};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Debian's own Python, which Debian's scapy is for.
const PYTHON: &str = "/usr/bin/python3";
/// Connections that the stack may have.
const CONNECTIONS: u64 = 2048;
/// What it may touch in addition while it is attacked, in bytes.
const GROWTH: u64 = 64 << 20;

/// Where an attack shows.
enum Seen {
    /// In a counter of TCP, so many times at least.
    Tcp(&'static str, u64),
    /// As drops.
    Drop(&'static str, u64),
    /// Only in what the script has got back, which it judges itself.
    Nowhere,
}

use Seen::{Drop, Nowhere, Tcp};

/// The functions of the script, in this order: what comes last fills the table of connections.
const ATTACKS: [(&str, Seen); 12] = [
    // Challenges are limited to one in half a second, as Linux does by default. A SYN outside the
    // window is answered by an ACK of the same limit, and half of these are.
    ("blind_resets", Tcp("challenges", 1)),
    ("blind_syns", Tcp("out_of_window", 50)),
    ("blind_data", Tcp("challenges", 1)),
    ("overlapping_segments", Nowhere),
    ("ack_flood", Tcp("no_connection", 1500)),
    ("fin_flood", Tcp("no_connection", 1500)),
    ("land", Drop("own_source", 100)),
    ("christmas_trees", Tcp("no_connection", 256)),
    ("fragments", Drop("fragment_tiny", 100)),
    ("forged_icmp", Tcp("icmp_errors_ignored", 100)),
    ("syn_flood", Tcp("cookies_sent", 1000)),
    ("sockstress", Tcp("established", 200)),
];

/// A connection to the echo server.
fn connect() -> TcpStream {
    let at = SocketAddr::new(OURS[0].parse().unwrap(), 7);
    let stream = TcpStream::connect_timeout(&at, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// One question and its answer.
fn ask(stream: &mut TcpStream, number: u64) {
    let question = number.to_be_bytes();
    stream.write_all(&question).unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, question);
}

#[test]
#[ignore = "long: half a minute of attacks by scapy"]
fn attacks_change_nothing_for_others() {
    let stanzas = format!(
        "[tcp]\nconnections = {CONNECTIONS}\n\
         [[app]]\nkind = \"echo\"\nlisten = 7\nhalf_open = 512\n"
    );
    let programs = ["scapy", "python3"];
    let Some(stand) = Stand::new("af_packet:d0", &stanzas, &programs) else {
        return;
    };
    let script = stand
        .scratch
        .write("attacks.py", include_str!("attacks.py"));
    let mut old = stand.host.inside(connect);
    let port = old.local_addr().unwrap().port();
    let (answered, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let before = stand.resident_bytes();
    std::thread::scope(|scope| {
        let victim = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                ask(&mut old, answered.fetch_add(1, Ordering::AcqRel));
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        // It ends with the attacks, also where one of them panics.
        let attacks = std::panic::AssertUnwindSafe(|| {
            for (name, seen) in &ATTACKS {
                attack(&stand, (name, seen), &script, port);
                // The old connection goes on, and a new one is answered.
                let count = answered.load(Ordering::Acquire);
                wait("the old connection", || {
                    assert!(!victim.is_finished(), "{name} has ended it");
                    answered.load(Ordering::Acquire) > count + 2
                });
                stand.host.inside(|| ask(&mut connect(), 1));
                let connections = stand.tcp("connections");
                assert!(connections <= CONNECTIONS, "{name}: {connections}");
                let growth = stand.resident_bytes().saturating_sub(before);
                assert!(growth < GROWTH, "{name}: {growth} bytes");
            }
        });
        let result = std::panic::catch_unwind(attacks);
        over.store(true, Ordering::Release);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
        victim.join().unwrap();
    });
    drop(old);
    stand.close();
}

/// Runs one attack, and waits until it shows.
fn attack(stand: &Stand, (name, seen): (&str, &Seen), script: &str, port: u16) {
    let count = || match seen {
        Tcp(counter, _) => stand.tcp(counter),
        Drop(reason, _) => stand.dropped(reason),
        Nowhere => 0,
    };
    let least = match seen {
        Tcp(_, least) | Drop(_, least) => count() + least,
        Nowhere => 0,
    };
    let output = stand.host.run(PYTHON, &format!("{script} {name} {port}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    wait(name, || count() >= least);
}
