//! Traffic through linerate: ping, iperf3, and a file over the kernel's own TCP.

use crate::Scratch;
use crate::netns::{Namespace, RIGHT, Stand};
use crate::{PATIENCE, Random};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// Pings the right host from the left, and loses nothing.
#[track_caller]
pub fn ping(stand: &Stand, count: u32) {
    ping_sized(stand, count, 56);
}

/// The same with so many bytes of payload. The kernel counts the replies: ping itself gives up on
/// the last ones soon, which on a busy machine are only late. If the kernel counted a loss, the
/// round does not count.
#[track_caller]
pub fn ping_sized(stand: &Stand, count: u32, bytes: u32) {
    for _ in 0..ROUNDS {
        let (drops, replies) = (stand.kernel_drops(), echo_replies(&stand.left));
        let words = format!("-q -n -c {count} -i 0.01 -s {bytes} {RIGHT}");
        let output = stand.left.run("ping", &words);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.contains(&format!("{count} packets transmitted")),
            "{said}"
        );
        let start = Instant::now();
        let replied = || echo_replies(&stand.left) - replies;
        let dropped = || stand.kernel_drops() - drops;
        while replied() + dropped() < u64::from(count) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        if dropped() == 0 {
            assert_eq!(replied(), u64::from(count), "{said}\n{}", counters(stand));
            return;
        }
        let lost = u64::from(count).saturating_sub(replied() + dropped());
        assert_eq!(
            lost,
            0,
            "not even the kernel's doing: {said}\n{}",
            counters(stand)
        );
    }
    panic!(
        "the kernel lost frames in each of {ROUNDS} rounds\n{}",
        counters(stand)
    );
}

/// How often to try before the kernel's own losses are an error.
pub const ROUNDS: u32 = 10;

/// Replies to pings that have come to a host (RFC 4293, icmpMsgStatsInPkts of type 0).
fn echo_replies(host: &Namespace) -> u64 {
    let text = host.inside(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let mut lines = text.lines().filter(|line| line.starts_with("Icmp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut columns = names.split(' ').zip(values.split(' '));
    let column = columns.find(|(name, _)| *name == "InEchoReps").unwrap();
    column.1.parse().unwrap()
}

/// Where frames went, by the kernel's own counters.
fn counters(stand: &Stand) -> String {
    [&stand.left, &stand.mid, &stand.right]
        .map(|end| end.ip("-s link show type veth"))
        .join("\n")
}

/// Whether one ping comes back within so many seconds.
pub fn reaches(from: &Namespace, address: &str, seconds: u32) -> bool {
    let words = format!("-q -n -c 1 -W {seconds} {address}");
    from.run("ping", &words).status.success()
}

/// TCP from the left host for so many seconds, or to it with `-R`: the connection lives to the end
/// and carries data.
#[track_caller]
pub fn iperf3(stand: &Stand, seconds: u32, options: &str) {
    let mut server = stand
        .right
        .start("iperf3", "--server --one-off --forceflush");
    server.wait("iperf3 to listen", |stdout, _| {
        stdout.text().contains("Server listening")
    });
    let output = stand.left.run(
        "iperf3",
        &format!("--client {RIGHT} --time {seconds} --json {options}"),
    );
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "iperf3 {options}: {said}");
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    let received = report["end"]["sum_received"]["bytes"].as_u64().unwrap();
    assert!(
        received > 1 << 20,
        "iperf3 {options}: {received} bytes in {seconds} s\n{said}"
    );
    server.end();
}

/// Sends a file of so many MB from left to right; both ends have the same SHA-256.
#[track_caller]
pub fn file(stand: &Stand, megabytes: usize, scratch: &Scratch) {
    file_to(&stand.left, (&stand.right, RIGHT), megabytes, scratch);
}

/// The same from any host to another's address.
#[track_caller]
pub fn file_to(
    from: &Namespace,
    (to, address): (&Namespace, &str),
    megabytes: usize,
    scratch: &Scratch,
) {
    let (sent, received) = (scratch.file("sent"), scratch.file("received"));
    let mut noise = noise(1_000_000);
    let mut file = std::fs::File::create(&sent).unwrap();
    for number in 0..megabytes {
        // No two megabytes are the same.
        noise[..8].copy_from_slice(&(number as u64).to_be_bytes());
        file.write_all(&noise).unwrap();
    }
    drop(file);
    let listener = to.inside(|| TcpListener::bind((address, 0)).unwrap());
    let server = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::scope(|scope| {
        // Sockets stay in the namespace that they were made in.
        let receiver = scope.spawn(|| {
            let mut stream = accept(&listener);
            let mut file = std::fs::File::create(&received).unwrap();
            copy(&mut stream, &mut file)
        });
        let mut stream = from.inside(|| TcpStream::connect_timeout(&server, PATIENCE).unwrap());
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let count = copy(&mut std::fs::File::open(&sent).unwrap(), &mut stream);
        drop(stream);
        assert_eq!(receiver.join().unwrap(), count);
    });
    assert_eq!(
        sha256(&sent),
        sha256(&received),
        "the file to {address} arrived changed"
    );
}

/// The next connection, before long.
pub fn accept(listener: &TcpListener) -> TcpStream {
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) => assert!(start.elapsed() < PATIENCE, "no client connected: {error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn copy(from: &mut impl Read, to: &mut impl Write) -> u64 {
    std::io::copy(from, to).expect("the connection stalled or broke")
}

fn sha256(file: &str) -> String {
    let output = Command::new("sha256sum").arg(file).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned()
}

/// Bytes without a pattern, the same in every run.
pub fn noise(len: usize) -> Vec<u8> {
    Random::new(1).bytes(len)
}
