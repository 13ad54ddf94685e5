//! Peers that are killed: the `l2fwd` that a guest is at, and the guest's QEMU. Beside each there
//! is a stream whose peers live.

use super::*;

/// Of the stream through what is killed: a book of all its frames.
///
/// Frames that were under way at a kill may be lost, and where a guest goes on they may come late,
/// or again: those of its rings that the new peer takes over. All others come once, in order.
struct Killed {
    echo: Echo,
    /// Numbers from here on were sent after the last kill.
    epoch: u64,
    /// Whether one of those has come back, so that all others will.
    is_up: bool,
    probed: Instant,
    lost: u64,
    again: u64,
    came: u64,
}

impl Killed {
    fn new(spec: &str) -> Self {
        Self {
            echo: Echo::new(spec, FEW),
            epoch: 0,
            is_up: false,
            probed: Instant::now(),
            lost: 0,
            again: 0,
            came: 0,
        }
    }

    fn turn(&mut self) {
        let echo = &mut self.echo;
        let mut taken = 0;
        if self.is_up {
            taken = echo.send(u64::MAX);
        } else if self.probed.elapsed() > Duration::from_millis(5) {
            // One at a time, for those before the first that comes are lost.
            taken = echo.port.send_new(echo.sent, 1);
            echo.sent += taken;
            self.probed = Instant::now();
        }
        let mut burst = Burst::with_room(32);
        let numbers = echo.port.receive(&mut burst);
        echo.port.end.cache.free(&mut burst);
        for &number in &numbers {
            assert!(number < echo.sent, "{number} of {}", echo.sent);
            match number {
                // What the new peer has found in the rings.
                number if number < echo.next => {
                    assert!(
                        !self.is_up && number + FEW >= echo.next,
                        "{number} comes again, after {}",
                        echo.next
                    );
                    self.again += 1;
                    continue;
                }
                number if self.is_up => assert_eq!(number, echo.next, "once, in order"),
                number => self.lost += number - echo.next,
            }
            self.is_up |= number >= self.epoch;
            echo.next = number + 1;
            self.came += 1;
        }
        echo.rest.after(taken > 0 || !numbers.is_empty());
    }

    /// The peer has been killed: frames that are under way may be lost.
    fn cut(&mut self) {
        (self.epoch, self.is_up) = (self.echo.sent, false);
    }

    /// The books add up.
    fn finish(self) {
        let Self {
            echo,
            came,
            lost,
            again,
            ..
        } = self;
        eprintln!(
            "{} sent: {came} came, {lost} lost, {again} again",
            echo.sent
        );
        assert_eq!(came + lost, echo.next);
        echo.port.finish();
    }
}

/// A moment to be killed at: most often some time after frames pass; also before that.
struct Life {
    began: Instant,
    /// From the beginning.
    in_all: Option<Duration>,
    /// From when frames pass.
    passing: Duration,
    passes: Option<Instant>,
}

impl Life {
    fn new(random: &mut Random, longest_ms: u64) -> Self {
        let early = random.one_in(4);
        Self {
            began: Instant::now(),
            in_all: early.then(|| Duration::from_millis(random.below(longest_ms))),
            passing: Duration::from_micros(random.below(200_000)),
            passes: None,
        }
    }

    /// Whether it is over, of one whose frames pass or not.
    fn is_over(&mut self, is_up: bool) -> bool {
        if is_up && self.passes.is_none() {
            self.passes = Some(Instant::now());
        }
        let passed = self.passes.is_some_and(|at| at.elapsed() > self.passing);
        let lived = self.in_all.is_some_and(|all| self.began.elapsed() > all);
        assert!(self.began.elapsed() < PATIENCE, "no frame passes");
        passed || lived
    }
}

fn random() -> Random {
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    Random::new(seed)
}

/// How many, where nobody says otherwise.
fn kills() -> u32 {
    let said = std::env::var("LINERATE_GUEST_KILLS").ok();
    said.map_or(100, |said| said.parse().expect("a number of kills"))
}

/// A guest has one interface at an `l2fwd` that is killed, and one at another that is not.
#[test]
#[ignore = "long: a hundred kills of what an emulated guest is at"]
fn a_guest_survives_a_hundred_kills_of_its_peer() {
    let Some(lab) = Lab::new(BRIDGES) else { return };
    let mut random = random();
    let victim = || lab.l2fwd(&[["vhost", "ours"], ["vhost", "a"]]);
    let mut l2fwd = victim();
    let beside = lab.l2fwd(&[["vhost", "ours2"], ["vhost", "b"]]);
    let ours = |name: &str| format!("virtio_user:{},size=1024", lab.socket(name));
    let mut killed = Killed::new(&ours("ours"));
    let mut neighbour = Echo::new(&ours("ours2"), FEW);
    let mut guest = lab.boot("g", &["a", "b"], LONG, &[]);
    neighbour.wait_up(&mut [&mut guest]);
    let before = neighbour.sent;
    for _ in 0..kills() {
        let mut life = Life::new(&mut random, 2000);
        while !life.is_over(killed.is_up) {
            killed.turn();
            neighbour.turn(u64::MAX);
        }
        l2fwd.kill();
        killed.cut();
        l2fwd = victim();
        guest.lives();
    }
    neighbour.exchange(20_000);
    let last = Instant::now();
    while !killed.is_up {
        killed.turn();
        assert!(last.elapsed() < PATIENCE, "no frame passes");
    }
    let next = killed.echo.next;
    killed.echo.exchange(20_000);
    killed.came += killed.echo.next - next;
    drop(guest);
    ends_well(l2fwd);
    let (_, drops) = ends_well(beside);
    eprintln!("{} frames of the neighbour", neighbour.sent);
    assert!(drops <= before);
    killed.finish();
    neighbour.port.finish();
}

/// Two guests are at one `l2fwd`. One of them is killed again and again, with its QEMU, and goes on
/// where it was when its state was saved, which takes less than to boot.
#[test]
#[ignore = "long: a hundred kills of an emulated guest"]
fn a_hundred_kills_of_a_guest_harm_nobody_else() {
    let Some(lab) = Lab::new(BRIDGES) else { return };
    let mut random = random();
    let l2fwd = lab.l2fwd(&[
        ["vhost", "ours"],
        ["vhost", "a"],
        ["vhost", "ours2"],
        ["vhost", "b"],
    ]);
    let ours = |name: &str| format!("virtio_user:{},size=1024", lab.socket(name));
    let mut killed = Killed::new(&ours("ours"));
    let mut neighbour = Echo::new(&ours("ours2"), FEW);
    let mut beside = lab.boot("b", &["b"], LONG, &[]);
    let mut guest = lab.boot("a", &["a"], LONG, &[]);
    neighbour.wait_up(&mut [&mut beside, &mut guest]);
    killed.echo.wait_up(&mut [&mut beside, &mut guest]);
    killed.echo.exchange(10_000);
    // It runs until it is saved: what was told to stop would stay so.
    let saved = lab.socket("saved");
    guest.migrate(&format!("exec:cat > {saved}"));
    while !guest.migrated().contains("\"status\": \"completed\"") {
        neighbour.turn(u64::MAX);
    }
    let before = neighbour.sent;
    killed.came = killed.echo.next;
    for kill in 0..kills() {
        guest.qemu.signal(Signal::KILL);
        killed.cut();
        guest.qemu.end();
        let from = format!("exec:cat {saved}");
        guest = lab.boot("a", &["a"], LONG, &["-incoming", &from]);
        let mut life = Life::new(&mut random, 3000);
        while !life.is_over(killed.is_up) {
            killed.turn();
            neighbour.turn(u64::MAX);
        }
        guest.lives();
        beside.lives();
        eprintln!("kill {kill}: {} came, {} lost", killed.came, killed.lost);
    }
    guest.qemu.signal(Signal::KILL);
    guest.qemu.end();
    killed.cut();
    neighbour.exchange(20_000);
    eprintln!(
        "{} frames of the neighbour, {before} before",
        neighbour.sent
    );
    drop(beside);
    let (totals, drops) = ends_well(l2fwd);
    eprintln!("{drops} dropped: {:?}", totals.drops());
    assert_eq!(killed.again, 0, "a new guest knows of no frame");
    killed.echo.port.others = 0;
    neighbour.port.finish();
    killed.finish();
}
