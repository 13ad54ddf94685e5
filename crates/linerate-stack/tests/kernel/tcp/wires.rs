//! Every fault that a wire can have, both ways at once: what the kernel sends to an echo server
//! and what it gets back have the same SHA-256.

use std::process::{Child, Command, Stdio};

use linerate_stack::tcp::config::EcnMode;

use super::*;

/// Faults in the words of `faulty=`. Loss, doubles, order and damage are those of a very bad wire;
/// rates and delays are such that 1 GB takes a minute or two.
const WIRES: [&str; 9] = [
    "loss:0.01",
    // Each packet of a timeout is one of the burst: longer ones would be waited for by minutes.
    "burst:0.001/0.4/0.8",
    "dup:0.05",
    "reorder:0.05",
    "delay:1ms+jitter:500us",
    "flip:0.005",
    "rate:400M+queue:100kB+delay:1ms",
    "rate:400M+queue:200kB+ce:queue@30kB",
    "loss:0.002+dup:0.01+reorder:0.01+flip:0.001+delay:500us+jitter:100us+ce:0.01",
];

/// Bytes that go each way in the short tests.
const SHORT: usize = 20_000_000;
const LONG: usize = 1_000_000_000;

/// The SHA-256 of what is written to it, by coreutils.
struct Sha256(Child);

impl Sha256 {
    fn new() -> Self {
        let mut command = Command::new("sha256sum");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn add(&mut self, bytes: &[u8]) {
        self.0.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn sum(self) -> String {
        let said = self.0.wait_with_output().unwrap();
        assert!(said.status.success());
        String::from_utf8(said.stdout).unwrap()
    }
}

/// Sends random bytes to an echo server: the sums of what was sent and of what came back.
fn sums(stream: &mut TcpStream, total: usize, seed: u64) -> [String; 2] {
    let patience = Some(Duration::from_secs(120));
    stream.set_read_timeout(patience).unwrap();
    stream.set_write_timeout(patience).unwrap();
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        let sent = scope.spawn(move || {
            let (mut random, mut sha) = (Random::new(seed), Sha256::new());
            for begin in (0..total).step_by(1 << 16) {
                let bytes = random.bytes((total - begin).min(1 << 16));
                sha.add(&bytes);
                writer.write_all(&bytes).unwrap();
            }
            writer.shutdown(Shutdown::Write).unwrap();
            sha.sum()
        });
        let (mut sha, mut seen, mut room) = (Sha256::new(), 0, vec![0; 1 << 16]);
        loop {
            let count = read(stream, &mut room, seen);
            if count == 0 {
                break;
            }
            sha.add(&room[..count]);
            seen += count;
        }
        assert_eq!(seen, total);
        [sent.join().unwrap(), sha.sum()]
    })
}

/// Sends so many bytes over each wire in turns, by IPv4 and IPv6 in turns.
fn over_every_wire(total: usize) {
    if !has(&["sha256sum"]) {
        return;
    }
    for (at, faults) in WIRES.into_iter().enumerate() {
        let tcp = Config {
            ecn: EcnMode::Request,
            ..Config::default()
        };
        let spec = format!("{VETH},faulty={faults}+seed:{at}");
        // With offloads the kernel would believe damaged frames: nothing has summed them.
        let Some((namespace, mut server)) = plain_server(&spec, tcp) else {
            return;
        };
        namespace.run("sysctl", "-qw net.ipv4.tcp_ecn=1");
        let start = Instant::now();
        beside(&namespace, &mut server, || {
            let [sent, back] = sums(&mut connect(OURS[at % 2], ECHO), total, at as u64);
            assert_eq!(sent, back, "{faults}");
        });
        server.settle();
        println!("{faults}: {:.1?}", start.elapsed());
    }
}

#[test]
fn bad_wires_change_nothing() {
    over_every_wire(SHORT);
}

#[test]
#[ignore = "long: 1 GB over each of nine bad wires"]
fn bad_wires_change_nothing_of_1_gb() {
    over_every_wire(LONG);
}
