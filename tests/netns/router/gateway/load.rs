//! Traffic that goes on across NAT while the file changes, buckets move, FRR restarts and others
//! flood.

use super::three::Three;
use crate::router::frr::{BY_FPM, Frr};
use crate::router::instance::Router;
use crate::router::site::{LEFT4, RIGHT4, iperf3, reaches};
use linerate_testkit::cli::binary;
use linerate_testkit::netns::Namespace;
use linerate_testkit::traffic::{accept, file_to};
use linerate_testkit::{PATIENCE, Scratch, has, wait};
use linerate_testkit::{harness::Test, tests};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = tests![
    a_file_crosses_nat_while_policies_and_pools_change,
    a_file_crosses_nat_while_buckets_move,
    #[ignore = "long: 1 GB, TCP both ways, and FRR restarts"]
    a_large_file_crosses_nat_while_policies_pools_and_routes_change,
    #[ignore = "long: 1 GB, TCP both ways, and FRR restarts"]
    a_large_file_crosses_nat_while_buckets_move_between_balanced_workers,
    #[ignore = "long: 1 GB, TCP both ways, and FRR restarts"]
    a_large_file_crosses_nat_while_buckets_move_behind_dispatchers,
    #[ignore = "long: floods of some seconds"]
    a_transfer_goes_on_through_floods,
];

/// What files and connections go to: behind the right host, by a route of FRR's where it runs.
const FAR: &str = "10.99.0.1";

/// What there is in the middle besides.
#[derive(Clone, Copy, Default)]
struct With {
    /// FRR, which knows the way to [`FAR`].
    frr: bool,
    /// Several workers: the plan, and the mode of dispatch.
    workers: Option<(&'static str, &'static str)>,
}

const BALANCED: (&str, &str) = ("io = \"1-3\"", "balanced");
const DISPATCHER: (&str, &str) = ("io = \"1-2\"\neu = \"3-4\"", "dispatcher");

/// The file of a second: lists of another length, and another pool beside the address in use.
fn config(second: usize, with: With) -> String {
    let rules: String = (0..second % 50)
        .map(|rule| {
            format!(
                "  {{ action = \"deny\", source = \"192.0.2.{rule}\", service = \"tcp/{}\" }},\n",
                second % 1000 + 1
            )
        })
        .collect();
    let rules = format!("rules = [\n{rules}]\ndefault = \"permit\"");
    let pool = ["", ", \"198.51.100.3-198.51.100.9\"", ", \"203.0.113.1\""][second % 3];
    let mut config = match with.frr {
        true => "fpm = \"127.0.0.1:2620\"\n".into(),
        false => String::new(),
    };
    config += &Three::config(4096).replace("default = \"permit\"", &rules);
    config += &format!(
        "[nat]\n[[nat.pool]]\nname = \"pool\"\naddresses = [\"198.51.100.1\"{pool}]\n\
         [[nat.source]]\nfrom = \"inside\"\nto = \"outside\"\npool = \"pool\"\n"
    );
    if let Some((plan, mode)) = with.workers {
        config += &format!(
            "source = \"10.1.0.0/24\"\n[dispatch]\nmode = \"{mode}\"\n\
             [plan]\nbg = \"0\"\n{plan}\n"
        );
    }
    if !with.frr {
        config += &format!("[[route]]\nprefix = \"{FAR}/32\"\nvia = \"{RIGHT4}\"\n");
    }
    config
}

/// The gateway, and FRR beside it, in the middle of three hosts.
struct Middle<'a> {
    three: &'a Three,
    scratch: &'a Scratch,
    with: With,
    gateway: Router,
    frr: Option<Frr>,
    /// How often FRR has been started.
    starts: usize,
    /// How many buckets have moved.
    moved: usize,
}

impl<'a> Middle<'a> {
    #[track_caller]
    fn new(three: &'a Three, scratch: &'a Scratch, with: With) -> Self {
        three.site.right.ip(&format!("addr add {FAR}/32 dev lo"));
        let config = config(0, with);
        let mut middle = Self {
            three,
            scratch,
            with,
            gateway: Router::start_as("gateway", &three.site.mid, scratch, &config),
            frr: None,
            starts: 0,
            moved: 0,
        };
        if with.frr {
            middle.start_frr();
        }
        reaches(&three.site.left, FAR);
        middle
    }

    fn start_frr(&mut self) {
        let daemons = [
            ("zebra", BY_FPM.0, BY_FPM.1.to_owned()),
            ("staticd", "", format!("ip route {FAR}/32 {RIGHT4}\n")),
        ];
        self.starts += 1;
        let name = format!("frr-{}", self.starts);
        let frr = Frr::of(&self.three.site.mid, &name, &daemons, self.scratch);
        self.frr = Some(frr);
    }

    /// Every few seconds: its routes come, and are repeated, in between.
    fn restart_frr(&mut self, second: usize) {
        if second % 6 == 3
            && let Some(frr) = self.frr.take()
        {
            frr.kill();
            self.start_frr();
        }
    }

    /// The bucket that flows of the left host are in.
    #[track_caller]
    fn bucket(&self) -> u64 {
        let flow = format!("{LEFT4}:4000 > {FAR}:80 tcp");
        let mut ctl = Command::new(binary());
        ctl.args(["ctl", "--socket", self.gateway.socket(), "--json"]);
        let output = ctl.args(["explain", &flow, "--in", "inside"]).output();
        let output = output.unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        said["bucket"]
            .as_u64()
            .unwrap_or_else(|| panic!("{output:?}"))
    }

    /// The bucket goes round all the workers that own some.
    #[track_caller]
    fn move_buckets(&mut self) {
        let bucket = self.bucket();
        let workers = self.gateway.show("workers");
        let rows = workers["rows"].as_array().unwrap();
        let owns = |row: &&Value| row["buckets"].as_u64().unwrap() > 0;
        for row in rows.iter().filter(owns) {
            let words = format!("move bucket {bucket} worker {} --json", row["worker"]);
            let said: Value = serde_json::from_str(&self.gateway.ctl(&words)).unwrap();
            self.moved += said["buckets"].as_array().unwrap().len();
        }
    }

    /// What happens in each second.
    fn disturb(&mut self, second: usize) {
        self.gateway.reload(&config(second, self.with));
        if self.with.workers.is_some() {
            self.move_buckets();
        }
        self.restart_frr(second);
    }

    /// Disturbs once a second while work goes on; how often.
    #[track_caller]
    fn disturb_during(&mut self, work: impl FnOnce() + Send) -> usize {
        let mut second = 0;
        std::thread::scope(|scope| {
            let working = scope.spawn(work);
            while !working.is_finished() {
                let start = Instant::now();
                second += 1;
                self.disturb(second);
                std::thread::sleep(Duration::from_secs(1).saturating_sub(start.elapsed()));
            }
            let worked = working.join();
            worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        eprintln!(
            "{second} reloads, FRR started {} times, {} buckets moved",
            self.starts, self.moved
        );
        second
    }
}

fn a_file(with: With) {
    let Some(three) = Three::new() else { return };
    let scratch = Scratch::new();
    let mut middle = Middle::new(&three, &scratch, with);
    let (left, right) = (&three.site.left, &three.site.right);
    middle.disturb_during(|| file_to(left, (right, FAR), 50, &scratch));
    assert_eq!(middle.moved > 0, with.workers.is_some());
    middle.gateway.stop();
}

fn a_file_crosses_nat_while_policies_and_pools_change() {
    a_file(With::default());
}

fn a_file_crosses_nat_while_buckets_move() {
    for workers in [BALANCED, DISPATCHER] {
        a_file(With {
            workers: Some(workers),
            ..With::default()
        });
    }
}

fn a_large_file(workers: Option<(&'static str, &'static str)>) {
    if !has(&["vtysh", "iperf3"]) {
        return;
    }
    let Some(three) = Three::new() else { return };
    let scratch = Scratch::new();
    let with = With { frr: true, workers };
    let mut middle = Middle::new(&three, &scratch, with);
    let (left, right) = (&three.site.left, &three.site.right);
    let times = middle.disturb_during(|| {
        iperf3(left, right, FAR, 10, "");
        iperf3(left, right, FAR, 10, "--reverse");
        iperf3(left, right, FAR, 10, "--bidir");
        file_to(left, (right, FAR), 1000, &scratch);
    });
    assert!(times >= 10 && middle.starts >= 3);
    assert!(middle.moved >= times || workers.is_none());
    let flows = middle.gateway.show("flows tcp");
    let flows = flows["rows"].as_array().unwrap();
    let is_translated = |flow: &Value| {
        let source = flow["becomes_source"].as_str();
        source.is_some_and(|source| source.starts_with("198.51.100.1:"))
    };
    assert!(
        !flows.is_empty() && flows.iter().all(is_translated),
        "{flows:?}"
    );
    middle.gateway.stop();
}

fn a_large_file_crosses_nat_while_policies_pools_and_routes_change() {
    a_large_file(None);
}

fn a_large_file_crosses_nat_while_buckets_move_between_balanced_workers() {
    a_large_file(Some(BALANCED));
}

fn a_large_file_crosses_nat_while_buckets_move_behind_dispatchers() {
    a_large_file(Some(DISPATCHER));
}

/// A TCP connection that carries data until it is ended.
struct Transfer {
    is_over: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<()>,
}

/// Each byte of a stream by its place.
fn byte(place: u64) -> u8 {
    (place % 251) as u8
}

impl Transfer {
    #[track_caller]
    fn start(from: &Namespace, to: &Namespace) -> Self {
        let listener = to.inside(|| TcpListener::bind((FAR, 0)).unwrap());
        listener.set_nonblocking(true).unwrap();
        let server = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&server, PATIENCE).unwrap();
        let mut sending = from.inside(connect);
        sending.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut receiving = accept(&listener);
        let is_over = Arc::new(AtomicBool::new(false));
        let received = Arc::new(AtomicU64::new(0));
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&received));
        let sender = std::thread::spawn(move || {
            let mut sent = 0;
            while !over.load(Ordering::Relaxed) {
                let block: Vec<u8> = (sent..sent + 4096).map(byte).collect();
                sending.write_all(&block).unwrap();
                sent += 4096;
            }
            sent
        });
        let receiver = std::thread::spawn(move || {
            let (mut bytes, mut place) = ([0; 16384], 0);
            loop {
                let length = receiving.read(&mut bytes).unwrap();
                if length == 0 {
                    return;
                }
                let end = place + length as u64;
                assert!((place..end).map(byte).eq(bytes[..length].iter().copied()));
                place = end;
                count.store(place, Ordering::Relaxed);
            }
        });
        Self {
            is_over,
            received,
            sender,
            receiver,
        }
    }

    /// Waits until so many more bytes have arrived.
    #[track_caller]
    fn goes_on(&self, bytes: u64) {
        let goal = self.received.load(Ordering::Relaxed) + bytes;
        wait("the transfer to go on", || {
            self.received.load(Ordering::Relaxed) >= goal
        });
    }

    /// Ends it: all that was sent arrives.
    #[track_caller]
    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        self.receiver.join().unwrap();
        assert_eq!(self.received.load(Ordering::Relaxed), sent);
    }
}

/// Pages that the gateway's processes have in memory, in KiB.
fn memory_kib(gateway: &mut Router) -> u64 {
    let pid = gateway.running().pid().as_raw_nonzero().get();
    let of = |pid: &str| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let row = status.lines().find_map(|row| row.strip_prefix("VmRSS:"));
        row.map_or(0, |row| row.trim().trim_end_matches(" kB").parse().unwrap())
    };
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    of(&pid.to_string()) + children.split_whitespace().map(of).sum::<u64>()
}

/// What hosts may do to others: many times more packets than there is room for flows or ports.
const FLOODS: [(&str, &str); 4] = [
    ("SYNs", "-S -p 80"),
    ("SYNs from everywhere", "-S -p 80 --rand-source"),
    ("datagrams", "--udp -p 9 --rand-source"),
    ("fragments of nothing", "--udp -p 9 -d 64 -x --rand-source"),
];

fn a_transfer_goes_on_through_floods() {
    if !has(&["hping3"]) {
        return;
    }
    let Some(three) = Three::new() else { return };
    let scratch = Scratch::new();
    let mut middle = Middle::new(&three, &scratch, With::default());
    let (left, right) = (&three.site.left, &three.site.right);
    for (name, words) in FLOODS {
        reaches(left, FAR);
        let before = memory_kib(&mut middle.gateway);
        let transfer = Transfer::start(left, right);
        transfer.goes_on(1 << 20);
        let flood = three
            .third
            .start("hping3", &format!("-q -n --flood {words} {FAR}"));
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(5) {
            transfer.goes_on(1);
            std::thread::sleep(Duration::from_millis(100));
        }
        transfer.goes_on(1 << 16);
        let during = memory_kib(&mut middle.gateway);
        drop(flood);
        transfer.end();
        // What was taken at the start is enough.
        assert!(
            during < before + (16 << 10),
            "{name}: {before} KiB, then {during}"
        );
        eprintln!("{name}: {before} KiB, then {during}");
        middle.gateway.ctl("clear flows all");
    }
    middle.gateway.stop();
}
