//! Open vSwitch with DPDK between two of our ports, or between ours and another process': a switch
//! of the test's own, in a scratch folder and a name space without interfaces, without huge pages.

mod features;

use crate::End;
use crate::booked::{Booked, Rest};
use linerate_core::packet::Burst;
use linerate_core::port::Link;
use linerate_testkit::process::Running;
use linerate_testkit::{Random, Scratch, has, skip, wait};
use rustix::process::{Signal, getppid};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Debian's, which no `$PATH` has.
const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Frames under way between two ports: fewer than a ring of [`RING`] entries holds, for the switch
/// drops what finds no room. Many: where switch and test have no CPU at a time, a turn takes
/// as many as are under way.
const WINDOW: u64 = 2048;
const RING: usize = 4096;
/// Names its port to the other process.
const SPEC: &str = "LINERATE_TEST_OVS";

/// One switch, or guest, after the other: each keeps a CPU busy.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a port of the switch meets one of ours.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    /// `dpdkvhostuserclient`: ours listens.
    Client,
    /// `dpdkvhostuser`: the switch listens.
    Server,
}

/// The switch: what comes in on port 1 goes out on port 2 and the other way, likewise 3 and 4.
struct Switch {
    folder: Scratch,
    ports: Vec<Side>,
    _database: Running,
    daemon: Option<Running>,
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.as_ref().filter(|_| std::thread::panicking()) {
            eprintln!("the switch said: {}", daemon.stderr.text());
        }
    }
}

/// What has to end well.
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

impl Switch {
    /// `None`, and a skipped test, where there is none to be had.
    fn new(ports: &[Side]) -> Option<Self> {
        Self::with(ports, &[])
    }

    /// The same with settings of its own, such as `other_config:...=...`.
    fn with(ports: &[Side], settings: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("Open vSwitch with DPDK wants to be root");
            return None;
        }
        let programs = ["ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-ofctl"];
        if !has(&programs) || !has(&["unshare"]) {
            return None;
        }
        if !std::path::Path::new(DAEMON).exists() {
            skip("needs openvswitch-switch-dpdk");
            return None;
        }
        let folder = Scratch::new();
        let (data, socket) = (folder.file("conf.db"), folder.file("db"));
        done(Command::new("ovsdb-tool").args(["create", &data, SCHEMA]));
        let mut command = Command::new("ovsdb-server");
        command.arg(&data).arg(format!("--remote=punix:{socket}"));
        command.arg(format!("--unixctl={}", folder.file("db.ctl")));
        let database = Running::start(&mut command);
        wait("the switch's database", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        let mut switch = Self {
            folder,
            ports: ports.into(),
            _database: database,
            daemon: None,
        };
        switch.configure(settings);
        switch.start();
        Some(switch)
    }

    /// Port `number`'s socket.
    fn socket(&self, number: usize) -> String {
        self.folder.file(&format!("p{number}"))
    }

    fn configure(&self, settings: &[&str]) {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut command = Command::new("ovs-vsctl");
        command.arg(format!("--db=unix:{}", self.folder.file("db")));
        command.args(["--no-wait", "init", "--", "set", "Open_vSwitch", "."]);
        command.args([
            "other_config:dpdk-init=true",
            "other_config:per-port-memory=true",
            "other_config:dpdk-lcore-mask=0x1",
            // Likewise: us in a round that finds little.
            "other_config:pmd-maxsleep=50",
        ]);
        // `--in-memory`, which is its own choice, does not go with `--no-huge`.
        let memory = "--no-huge --legacy-mem -m 512 --no-pci --no-shconf --no-telemetry";
        let prefix = format!("lr{}-{}", std::process::id(), linerate_testkit::number());
        command.arg(format!(
            "other_config:dpdk-extra={memory} --file-prefix={prefix}"
        ));
        command.arg(format!("other_config:pmd-cpu-mask={:#x}", cpus.min(2)));
        command.args(settings);
        command.args(["--", "add-br", "br0", "--", "set", "Bridge", "br0"]);
        command.args(["datapath_type=netdev", "fail_mode=secure"]);
        for (number, side) in (1..).zip(&self.ports) {
            let name = format!("p{number}");
            command.args(["--", "add-port", "br0", &name]);
            command.args(["--", "set", "Interface", &name]);
            command.arg(format!("ofport_request={number}"));
            match side {
                Side::Server => command.arg("type=dpdkvhostuser"),
                Side::Client => command
                    .arg("type=dpdkvhostuserclient")
                    .arg(format!("options:vhost-server-path={}", self.socket(number))),
            };
        }
        done(&mut command);
    }

    /// Starts the daemon, and waits until it forwards.
    fn start(&mut self) {
        for (number, side) in (1..).zip(&self.ports) {
            if *side == Side::Server {
                // It does not take over what a killed one has left.
                let _ = std::fs::remove_file(self.socket(number));
            }
        }
        let folder = self.folder.path();
        let database = format!("unix:{}", self.folder.file("db"));
        // In a name space of its own: it makes an interface for each bridge.
        let mut command = Command::new("unshare");
        command.args(["--net", DAEMON, &database]);
        command.arg(format!("--unixctl={}", self.folder.file("ctl")));
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(name, folder);
        }
        let mut daemon = Running::start(&mut command);
        let bridge = format!("unix:{}", self.folder.file("br0.mgmt"));
        daemon.wait("Open vSwitch to forward", |_, _| {
            let pairs = [(1, 2), (2, 1), (3, 4), (4, 3)];
            pairs.iter().all(|(from, to)| {
                let flow = format!("in_port={from},actions=output:{to}");
                let mut command = Command::new("ovs-ofctl");
                let output = command.args(["add-flow", &bridge, &flow]).output();
                output.unwrap().status.success()
            })
        });
        self.daemon = Some(daemon);
    }

    fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.signal(Signal::KILL);
            daemon.end();
        }
    }

    /// Our end of port `number`.
    fn spec(&self, number: usize, options: &str) -> String {
        let role = match self.ports[number - 1] {
            Side::Client => "server",
            Side::Server => "client",
        };
        let socket = self.socket(number);
        format!("virtio_user:{socket},role={role},size={RING},{options}")
    }
}

/// Frames of two ports that the switch joins: there and back.
struct Stream {
    from: Booked,
    to: Booked,
    sent: u64,
    /// Next numbers: at `to`, and back at `from`.
    next: [u64; 2],
    /// Arrived at `to`, and not on their way back yet.
    turned: Burst,
    rest: Rest,
}

impl Stream {
    fn new(from: Booked, to: Booked) -> Self {
        Self {
            from,
            to,
            sent: 0,
            next: [0; 2],
            turned: Burst::with_room(32),
            rest: Rest::default(),
        }
    }

    /// Until frames pass both ways: the switch drops what comes before it has taken up both ports.
    fn wait_up(&mut self) {
        self.from.end.wait_up();
        self.to.end.wait_up();
        let mut back = Burst::with_room(32);
        let mut last = None;
        wait("Open vSwitch to forward both ways", || {
            if last.is_none() {
                self.sent += self.from.send_new(self.sent, 1);
            }
            self.to.receive(&mut self.turned);
            self.to.send(&mut self.turned);
            last = self.from.receive(&mut back).last().copied().or(last);
            self.from.end.cache.free(&mut back);
            last.is_some_and(|last| last + 1 == self.sent)
        });
        self.forget();
    }

    /// One turn of both ports, with no more frames than `until`. Each comes to the other end and
    /// back, once, in order and whole.
    fn turn(&mut self, until: u64) {
        let before = (self.sent, self.next);
        let room = WINDOW - (self.sent - self.next[1]);
        let count = room.min(until - self.sent).min(32) as usize;
        if count > 0 {
            self.sent += self.from.send_new(self.sent, count);
        }
        if self.turned.is_empty() {
            for number in self.to.receive(&mut self.turned) {
                assert_eq!(number, self.next[0], "there: once, in order");
                self.next[0] += 1;
            }
        }
        self.to.send(&mut self.turned);
        let mut back = Burst::with_room(32);
        for number in self.from.receive(&mut back) {
            assert_eq!(number, self.next[1], "back: once, in order");
            self.next[1] += 1;
        }
        self.from.end.cache.free(&mut back);
        self.rest.after((self.sent, self.next) != before);
    }

    fn exchange(&mut self, frames: u64) {
        let until = self.sent + frames;
        let (mut moved, mut last) = (Instant::now(), self.next);
        while self.next[1] < until {
            (0..100).for_each(|_| self.turn(until));
            if self.next != last {
                (moved, last) = (Instant::now(), self.next);
            }
            assert!(
                moved.elapsed() < linerate_testkit::PATIENCE,
                "{} of {until} sent, {last:?} arrived: {:?} {:?}",
                self.sent,
                self.from.end.port.stats(),
                self.to.end.port.stats()
            );
        }
    }

    /// What was under way is gone: both go on with the next.
    fn forget(&mut self) {
        let mut burst = Burst::with_room(32);
        for end in [&mut self.from, &mut self.to] {
            while !end.receive(&mut burst).is_empty() {
                end.end.cache.free(&mut burst);
            }
        }
        self.to.end.cache.free(&mut self.turned);
        self.next = [self.sent; 2];
    }

    fn finish(mut self) {
        self.to.end.cache.free(&mut self.turned);
        self.from.finish();
        self.to.finish();
    }
}

fn stream(switch: &Switch, numbers: [usize; 2], options: [&str; 2]) -> Stream {
    let [from, to] = [0, 1].map(|at| Booked::new(&switch.spec(numbers[at], options[at])));
    let mut stream = Stream::new(from, to);
    stream.wait_up();
    stream
}

#[test]
#[ignore = "long: ten million frames through Open vSwitch, there and back"]
fn open_vswitch_moves_ten_million_frames() {
    let _turn = turn();
    let Some(switch) = Switch::new(&[Side::Client; 2]) else {
        return;
    };
    let mut stream = stream(&switch, [1, 2], ["packed=on", "packed=off"]);
    stream.exchange(10_000_000);
    stream.finish();
}

#[test]
#[ignore = "long: Open vSwitch as the server, and every kind of ring"]
fn open_vswitch_takes_every_kind_of_ring() {
    let _turn = turn();
    let Some(switch) = Switch::new(&[Side::Server, Side::Client]) else {
        return;
    };
    for [from, to] in [
        ["packed=on,in_order=off", "packed=off,in_order=on"],
        ["packed=off,in_order=off", "packed=on,in_order=on"],
        ["packed=off,mergeable=off", "packed=on,mergeable=off"],
        ["packed=on,offloads=off", "packed=off,offloads=off"],
    ] {
        let mut stream = stream(&switch, [1, 2], [from, to]);
        stream.exchange(200_000);
        stream.finish();
    }
}

/// The other process: sends back what comes, until its parent is gone.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn other_echoes() {
    let Ok(spec) = std::env::var(SPEC) else {
        return;
    };
    let (parent, mut booked) = (getppid(), Booked::new(&spec));
    let (mut burst, mut rest) = (Burst::with_room(32), Rest::default());
    while getppid() == parent {
        for _ in 0..1000 {
            rest.after(!booked.receive(&mut burst).is_empty());
            while !burst.is_empty() && booked.end.port.link() == Link::Up {
                booked.send(&mut burst);
            }
            booked.end.cache.free(&mut burst);
        }
    }
}

fn other(spec: &str) -> Running {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["ovs::other_echoes", "--exact", "--include-ignored"]);
    Running::start(program.env(SPEC, spec))
}

/// Behind the same switch: of one pair of ports one end is killed again and again, the other pair
/// loses nothing.
#[test]
#[ignore = "long: a hundred processes come and go behind Open vSwitch"]
fn behind_open_vswitch_a_hundred_kills_harm_nobody_else() {
    let _turn = turn();
    let Some(switch) = Switch::new(&[Side::Client; 4]) else {
        return;
    };
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);
    let mut neighbours = stream(&switch, [3, 4], ["packed=on", "packed=off"]);
    let mut alone = Booked::new(&switch.spec(1, "packed=off"));
    alone.end.wait_up();
    let (mut sent, mut back) = (0_u64, 0_u64);
    let mut burst = Burst::with_room(32);
    for kill in 0..100 {
        let spec = switch.spec(
            2,
            if kill % 2 == 0 {
                "packed=on"
            } else {
                "packed=off"
            },
        );
        let (began, came) = (Instant::now(), back);
        let mut peer = other(&spec);
        let mut dies: Option<Instant> = None;
        // Some time after its first frame.
        while dies.is_none_or(|dies| Instant::now() < dies) {
            sent += alone.send_new(sent, 1 + random.below(32));
            for number in alone.receive(&mut burst) {
                assert!((back..sent).contains(&number), "{number} after {back}");
                back = number + 1;
            }
            alone.end.cache.free(&mut burst);
            neighbours.turn(u64::MAX);
            if back > came && dies.is_none() {
                let life = Duration::from_micros(random.below(30_000));
                dies = Some(Instant::now() + life);
            }
            assert!(
                peer.is_alive() && began.elapsed() < linerate_testkit::PATIENCE,
                "kill {kill}: {sent} sent, up to {back} back: {}{}",
                peer.stdout.text(),
                peer.stderr.text()
            );
        }
        peer.signal(Signal::KILL);
        peer.end();
    }
    neighbours.exchange(0);
    let beside = neighbours.sent;
    eprintln!("{beside} frames of the neighbours, {sent} of the other");
    alone.finish();
    neighbours.finish();
}

#[test]
#[ignore = "long: Open vSwitch is killed again and again"]
fn kills_of_open_vswitch_lose_only_frames_in_its_rings() {
    let _turn = turn();
    let Some(mut switch) = Switch::new(&[Side::Client, Side::Server]) else {
        return;
    };
    let mut stream = stream(&switch, [1, 2], ["packed=on", "packed=off"]);
    let mut random = Random::new(u64::from(std::process::id()));
    for _ in 0..100 {
        stream.exchange(random.below(20_000));
        for _ in 0..random.below(100_u32) {
            stream.turn(u64::MAX);
        }
        switch.kill();
        stream.from.end.wait_down();
        stream.to.end.wait_down();
        stream.forget();
        switch.start();
        stream.wait_up();
    }
    stream.exchange(20_000);
    stream.finish();
}
