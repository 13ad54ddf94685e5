//! The layout by itself, over memory of our own, and the port's files: what is taken, what is
//! refused and how it is told.

use super::fuzz::Plain;
use super::layout::{
    BYTE_ORDER, BadHeader, HEADER_BYTES, Memory, Receiver, Ring, RingFault, Sender, Shape, VERSION,
    at, side,
};
use crate::Drivers;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Link, Port, PortConfig, PortError, Queues, RingFill};
use linerate_testkit::{Random, Scratch};
use std::path::Path;
use std::time::{Duration, Instant};

fn shape() -> Shape {
    Shape::new(1, 8, 60)
}

/// Sends frames of these bytes, all in one burst; how many went.
fn send(sender: &mut Sender, memory: &Plain, frames: &[Vec<u8>]) -> usize {
    let room = sender.room(memory, frames.len() as u32).unwrap() as usize;
    let count = frames.len().min(room);
    sender.send(memory, count as u32, |number| &frames[number as usize]);
    count
}

/// Receives all that waits.
fn receive(receiver: &mut Receiver, memory: &Plain) -> Vec<Vec<u8>> {
    let mut lengths = [0; 64];
    let count = receiver.frames().waiting(memory, &mut lengths).count;
    let frames = (0..count).map(|number| {
        let mut frame = vec![0; lengths[number].into()];
        receiver.frames().read(memory, number as u32, &mut frame);
        frame
    });
    let frames = frames.collect();
    receiver.release(memory, count as u32);
    frames
}

fn frames(numbers: std::ops::Range<u8>) -> Vec<Vec<u8>> {
    numbers
        .map(|number| vec![number; 20 + usize::from(number) % 40])
        .collect()
}

fn ends(memory: &Plain, ring: Ring) -> (Sender, Receiver) {
    (
        Sender::take_up(memory, ring),
        Receiver::take_up(memory, ring),
    )
}

#[test]
fn the_offsets_are_those_of_the_page() {
    let page = include_str!("../../../../docs/shm.md");
    let row = |at: usize, name: &str| {
        let found = page.lines().any(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            cells.next() == Some(&at.to_string()) && line.contains(&format!("`{name}`"))
        });
        assert!(found, "docs/shm.md has no row `{name}` at {at}");
    };
    for (at, name) in [
        (0, "magic"),
        (at::VERSION, "version"),
        (at::BYTE_ORDER, "byte_order"),
        (at::RINGS, "rings_at"),
        (at::QUEUES, "queues"),
        (at::SLOTS, "slots"),
        (at::SLOT_BYTES, "slot_bytes"),
        (at::SIDES, "server"),
        (at::SIDES + super::layout::SIDE_BYTES, "client"),
        (at::HEADS, "heads"),
        (side::GENERATION, "generation"),
        (side::STATE, "state"),
        (side::HEARTBEAT, "heartbeat"),
        (side::PROCESS, "process"),
        (side::BOOT_ID, "boot_id"),
        (side::NAME, "name"),
    ] {
        row(at, name);
    }
}

/// What a program without an operating system takes.
#[test]
fn the_layout_needs_nothing_but_core() {
    let folder = Scratch::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/shm/layout/mod.rs");
    let program = format!("#![no_std]\n#[path = {path:?}]\npub mod layout;\n");
    std::fs::write(folder.path().join("lib.rs"), program).unwrap();
    let mut rustc = std::process::Command::new("rustc");
    rustc.args([
        "--edition=2024",
        "--crate-type=lib",
        "--emit=metadata",
        "lib.rs",
    ]);
    let Ok(done) = rustc.current_dir(folder.path()).output() else {
        linerate_testkit::skip("needs rustc");
        return;
    };
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn each_wrong_header_has_a_reason_of_its_own() {
    let header = shape().encode();
    assert_eq!(Shape::decode(&header), Ok(shape()));
    assert_eq!(Shape::decode(&[0; HEADER_BYTES]), Err(BadHeader::Empty));
    let with = |at: usize, value: u32| {
        let mut changed = header;
        changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
        Shape::decode(&changed)
    };
    let mut begun = header;
    begun[..8].fill(0);
    assert_eq!(
        Shape::decode(&begun),
        Err(BadHeader::Empty),
        "its magic comes last"
    );
    assert_eq!(with(4, 7), Err(BadHeader::Magic));
    assert_eq!(with(at::VERSION, 2), Err(BadHeader::Version(2)));
    let swapped = BYTE_ORDER.swap_bytes();
    assert_eq!(
        with(at::BYTE_ORDER, swapped),
        Err(BadHeader::ByteOrder(swapped))
    );
    for queues in [0, 65, u32::MAX] {
        assert_eq!(with(at::QUEUES, queues), Err(BadHeader::Queues(queues)));
    }
    for slots in [0, 3, 1 << 16, u32::MAX] {
        assert_eq!(with(at::SLOTS, slots), Err(BadHeader::Slots(slots)));
    }
    for bytes in [0, 63, 65, 65_664, u32::MAX] {
        assert_eq!(
            with(at::SLOT_BYTES, bytes),
            Err(BadHeader::SlotBytes(bytes))
        );
    }
    for at_byte in [0, 512, 767, 769] {
        assert_eq!(with(at::RINGS, at_byte), Err(BadHeader::RingsAt(at_byte)));
    }
    // Numbers of any size make no sum that wraps.
    assert!(with(at::RINGS, u32::MAX - 63).unwrap().file_bytes() > u64::from(u32::MAX));
    assert_eq!(VERSION, 1, "docs/shm.md names the version");
}

#[test]
fn a_shape_is_brought_into_what_is_possible() {
    for (asked, is) in [
        ((0, 0, 0), (1, 1, 60)),
        ((3, 1000, 2048), (3, 1024, 2108)),
        ((1, 1024, 60), (1, 1024, 60)),
        ((1, 1024, 61), (1, 1024, 188)),
        ((u32::MAX, u32::MAX, usize::MAX), (64, 1 << 15, 65_535)),
    ] {
        let shape = Shape::new(asked.0, asked.1, asked.2);
        assert_eq!((shape.queues(), shape.slots(), shape.frame_bytes()), is);
        assert_eq!(Shape::decode(&shape.encode()), Ok(shape));
    }
}

#[test]
fn a_ring_keeps_order_and_takes_no_more_than_its_slots() {
    let shape = shape();
    let (memory, ring) = (Plain::of(&shape), shape.ring(0, true));
    let (mut sender, mut receiver) = ends(&memory, ring);
    for _ in 0..100 {
        assert_eq!(send(&mut sender, &memory, &frames(0..5)), 5);
        assert_eq!(send(&mut sender, &memory, &frames(5..10)), 3);
        assert_eq!(send(&mut sender, &memory, &frames(0..1)), 0);
        assert_eq!(receive(&mut receiver, &memory), frames(0..8));
        assert_eq!(receive(&mut receiver, &memory), frames(0..0));
    }
    assert_eq!(sender.under_way(), 8, "as was seen last");
}

#[test]
fn numbers_and_laps_wrap_round() {
    for slots in [1, 8, 1 << 15] {
        let shape = Shape::new(1, slots, 60);
        let (memory, ring) = (Plain::of(&shape), shape.ring(0, false));
        memory.store(at::HEADS + super::layout::HEAD_STRIDE, u32::MAX - 20);
        let (mut sender, mut receiver) = ends(&memory, ring);
        for number in 0..60 {
            assert_eq!(send(&mut sender, &memory, &frames(number..number + 1)), 1);
            assert_eq!(receive(&mut receiver, &memory), frames(number..number + 1));
        }
    }
}

/// The sender dies after each of the slots that it writes for a burst.
#[test]
fn a_burst_that_was_not_finished_never_arrives() {
    for written in 0..4 {
        let shape = shape();
        let (memory, ring) = (Plain::of(&shape), shape.ring(0, true));
        let (mut sender, mut receiver) = ends(&memory, ring);
        send(&mut sender, &memory, &frames(0..3));
        assert_eq!(receive(&mut receiver, &memory), frames(0..3));
        send(&mut sender, &memory, &frames(3..5));
        let before = memory.0.borrow().clone();
        send(&mut sender, &memory, &frames(10..14));
        let after = memory.0.replace(before);
        // Frames 6, 7, 8 of the ring, and last 5, which stays away here.
        for number in (6..9).take(written) {
            let at = 4096 + number % 8 * 64;
            memory.write(at, &after[at..at + 64]);
        }
        let mut returned = Sender::take_up(&memory, ring);
        send(&mut returned, &memory, &frames(20..22));
        let expected = [frames(3..5), frames(20..22)].concat();
        assert_eq!(
            receive(&mut receiver, &memory),
            expected,
            "after {written} slots"
        );
    }
}

#[test]
fn a_receiver_that_returns_goes_on_where_it_was() {
    let shape = shape();
    let (memory, ring) = (Plain::of(&shape), shape.ring(0, true));
    let (mut sender, mut receiver) = ends(&memory, ring);
    for round in 0..20 {
        send(&mut sender, &memory, &frames(0..5));
        assert_eq!(
            receive(&mut receiver, &memory),
            frames(0..5),
            "round {round}"
        );
        send(&mut sender, &memory, &frames(5..8));
        receiver = Receiver::take_up(&memory, ring);
        assert_eq!(receive(&mut receiver, &memory), frames(5..8));
        sender = Sender::take_up(&memory, ring);
    }
}

#[test]
fn an_impossible_head_is_a_fault_and_no_room() {
    let shape = shape();
    let (memory, ring) = (Plain::of(&shape), shape.ring(0, true));
    let (mut sender, mut receiver) = ends(&memory, ring);
    send(&mut sender, &memory, &frames(0..8));
    for lie in [1_u32 << 31, 9, u32::MAX] {
        memory.store(at::HEADS, lie);
        let fault = RingFault::HeadOutside { head: lie, tail: 8 };
        assert_eq!(sender.room(&memory, 1), Err(fault));
    }
    // The receiver's next look puts it right, and so does taking up the ring anew.
    receive(&mut receiver, &memory);
    assert_eq!(sender.room(&memory, 1), Ok(8));
    memory.store(at::HEADS, 77);
    sender = Sender::take_up(&memory, ring);
    receiver = Receiver::take_up(&memory, ring);
    send(&mut sender, &memory, &frames(0..4));
    assert_eq!(receive(&mut receiver, &memory), frames(0..4));
}

/// Somebody writes over the frame that comes next, or over the head, between an honest sender and
/// an honest receiver: which would wait for each other for ever.
#[test]
fn what_somebody_wrote_over_is_found_by_the_sender() {
    let shape = shape();
    let (memory, ring) = (Plain::of(&shape), shape.ring(0, true));
    let (mut sender, mut receiver) = ends(&memory, ring);
    assert_eq!(sender.check(&memory), Ok(()), "nothing was sent");
    for (round, word) in [0, 1, 0x1_0000, u32::MAX].into_iter().enumerate() {
        let head = 5 * round as u32;
        assert_eq!(memory.load(at::HEADS), head);
        send(&mut sender, &memory, &frames(0..3));
        assert_eq!(sender.check(&memory), Ok(()));
        assert_eq!(receive(&mut receiver, &memory), frames(0..3));
        assert_eq!(sender.check(&memory), Ok(()), "all were received");
        send(&mut sender, &memory, &frames(3..8));
        let head = head + 3;
        memory.store(4096 + head as usize % 8 * 64, word);
        assert_eq!(receive(&mut receiver, &memory), frames(0..0), "it waits");
        let fault = RingFault::FrameGone { head, word };
        assert_eq!(sender.check(&memory), Err(fault));
        sender = Sender::take_up(&memory, ring);
        send(&mut sender, &memory, &frames(8..10));
        assert_eq!(receive(&mut receiver, &memory), frames(8..10));
    }
    // A head that could be: slots are written that were not read.
    send(&mut sender, &memory, &frames(0..8));
    memory.store(at::HEADS, 24);
    send(&mut sender, &memory, &frames(8..12));
    assert_eq!(receive(&mut receiver, &memory), frames(0..0), "it waits");
    let fault = RingFault::HeadOutside { head: 20, tail: 32 };
    assert_eq!(sender.check(&memory), Err(fault));
    sender = Sender::take_up(&memory, ring);
    send(&mut sender, &memory, &frames(0..2));
    assert_eq!(receive(&mut receiver, &memory), frames(0..2));
}

/// The fuzz target, on steps of no pattern.
#[test]
fn any_steps_end_with_a_ring_that_works() {
    let mut random = Random::new(41);
    for _ in 0..3000 {
        let len = random.below(400);
        super::fuzz::check(&random.bytes(len));
    }
}

// ---- files ----

fn open(folder: &Scratch, options: &str) -> Box<dyn Port> {
    let spec = format!("shm:{}{options}", folder.path().join("ring").display());
    Drivers::new().open(&spec).unwrap()
}

fn pools() -> Pools {
    Pools::new(vec![Pool::new(&PoolConfig::new("test", 2048)).unwrap()])
}

fn start(port: &mut Box<dyn Port>) -> Result<Queues, PortError> {
    port.start(&PortConfig::default(), &pools())
}

fn reason(result: Result<Queues, PortError>) -> String {
    result.err().expect("a refusal").to_string()
}

fn wait(mut until: impl FnMut() -> bool) {
    let start = Instant::now();
    while !until() {
        assert!(start.elapsed() < Duration::from_secs(10), "waited in vain");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn why_down(port: &dyn Port) -> String {
    match port.link() {
        Link::Up => String::new(),
        Link::Down(reason) => reason,
    }
}

#[test]
fn options_are_checked_when_the_port_is_opened() {
    for (options, named) in [
        ("", "a file: `shm:/dev/shm/NAME`"),
        ("x,role=master", "`server` or `client`"),
        ("x,role=client,size=64", "left out"),
        ("x,role=client,mode=0600", "left out"),
        ("x,queues=65", "from 1 to 64"),
        ("x,size=0", "from 1 to 32768"),
        ("x,buffer=59", "from 60 to 65535"),
        ("x,mode=999", "permission bits"),
        ("x,owner=lr-nobody", "a user's name or number"),
    ] {
        let opened = Drivers::new().open(&format!("shm:{options}"));
        let error = opened.err().expect(options).to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn a_client_waits_for_its_server_and_takes_its_shape() {
    let folder = Scratch::new();
    let mut client = open(&folder, ",role=client");
    let _queues = start(&mut client).unwrap();
    assert!(
        why_down(&*client).contains("start the server"),
        "{}",
        why_down(&*client)
    );
    let mut server = open(&folder, ",size=100,buffer=9000");
    let _theirs = start(&mut server).unwrap();
    wait(|| client.link() == Link::Up && server.link() == Link::Up);
    assert_eq!(client.info().max_frame_bytes, server.info().max_frame_bytes);
    let facts = client.info().facts;
    let fact = |key| {
        facts
            .iter()
            .find(|(name, _)| *name == key)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(
        (fact("role"), fact("ring slots")),
        ("client".into(), "128".into())
    );
    assert!(fact("peer").starts_with("linerate ") && fact("peer known by").contains("lock"));
    let rings = client.stats().rings;
    let fill = |ring: &RingFill| (ring.direction, ring.queue, ring.waiting, ring.size);
    assert_eq!(
        rings.iter().map(fill).collect::<Vec<_>>(),
        [("receive", 0, 0, 128), ("transmit", 0, 0, 128)]
    );
}

#[test]
fn one_side_is_one_port_and_a_dead_ones_file_is_taken_over() {
    let folder = Scratch::new();
    let mut server = open(&folder, "");
    let queues = start(&mut server).unwrap();
    let error = reason(start(&mut open(&folder, "")));
    assert!(error.contains("has a server already"), "{error}");
    drop((queues, server));
    let _queues = start(&mut open(&folder, "")).unwrap();
}

#[test]
fn files_of_another_kind_version_or_shape_are_refused_with_the_fix() {
    let folder = Scratch::new();
    let path = folder.path().join("ring");
    start(&mut open(&folder, ",size=64")).map(drop).unwrap();
    for (options, named) in [
        (
            "",
            "it has queues=1,size=64,buffer=2108, asked for is queues=1,size=1024",
        ),
        (",role=client,queues=2", "say `queues=1`"),
    ] {
        let error = reason(start(&mut open(&folder, options)));
        assert!(error.contains(named), "{error}");
    }
    let good = std::fs::read(&path).unwrap();
    for (at, value, named) in [
        (0, 0x55, "something else"),
        (at::VERSION, 2, "of version 2, this is version 1"),
        (at::BYTE_ORDER, 1, "byte order mark"),
        (at::SLOTS, 65, "65 slots, no power of two"),
        (at::SLOT_BYTES, 1, "its slots have 1 bytes"),
        (at::QUEUES, 99, "99 queues"),
        (at::RINGS, 64, "begin at byte 64"),
    ] {
        let mut bad = good.clone();
        bad[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
        std::fs::write(&path, bad).unwrap();
        for role in ["server,size=64", "client"] {
            let error = reason(start(&mut open(&folder, &format!(",role={role}"))));
            assert!(
                error.contains(named) && error.contains("remove it"),
                "{error}"
            );
        }
    }
    for bytes in [20, 4096, good.len() / 4] {
        std::fs::write(&path, &good[..bytes]).unwrap();
        let error = reason(start(&mut open(&folder, ",role=client")));
        assert!(
            error.contains(&format!("has {bytes} bytes, but ")),
            "{error}"
        );
    }
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = Scratch::new();
    let path = folder.path().join("ring");
    std::fs::create_dir(&path).unwrap();
    assert!(reason(start(&mut open(&folder, ""))).contains("cannot open"));
    std::fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    assert!(
        reason(start(&mut open(&folder, ""))).contains("cannot open"),
        "a link"
    );
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        &path,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .unwrap();
    let error = reason(start(&mut open(&folder, "")));
    assert!(error.contains("is no file; name one"), "{error}");
}

#[test]
fn mode_and_owner_are_those_of_a_file_that_is_made() {
    use std::os::unix::fs::MetadataExt;
    let folder = Scratch::new();
    let path = folder.path().join("ring");
    let found = |options: &str| {
        start(&mut open(&folder, options)).map(drop).unwrap();
        let found = std::fs::metadata(&path).unwrap();
        (found.mode() & 0o777, found.uid(), found.len())
    };
    let us = rustix::process::geteuid().as_raw();
    assert_eq!(found(""), (0o600, us, 8 << 20), "a power of two, for QEMU");
    assert_eq!(found(",mode=0666").0, 0o600, "as it is");
    std::fs::remove_file(&path).unwrap();
    if us != 0 {
        return linerate_testkit::skip("needs root to give a file away");
    }
    assert_eq!(found(",mode=0660,owner=12345"), (0o660, 12345, 8 << 20));
    let error = reason(start(&mut open(&folder, "")));
    assert!(
        error.contains("belongs to user 12345") && error.contains("owner=12345"),
        "{error}"
    );
}

/// Sends and receives a frame over started ports whose queues these are.
fn passes(from: &mut Queues, to: &mut Queues, pools: &Pools) -> bool {
    let mut cache = PoolCache::new(pools.as_slice());
    let mut burst = Burst::new();
    burst.push(cache.copy_of(&[7; 60]).unwrap()).unwrap();
    from.tx[0].tx_burst(&mut burst, &mut cache);
    cache.free(&mut burst);
    let count = to.rx[0].rx_burst(&mut burst, &mut cache);
    cache.free(&mut burst);
    count > 0
}

fn pair(folder: &Scratch, pools: &Pools) -> (Box<dyn Port>, Queues, Box<dyn Port>, Queues) {
    let (mut server, mut client) = (open(folder, ""), open(folder, ",role=client"));
    let ours = server.start(&PortConfig::default(), pools).unwrap();
    let theirs = client.start(&PortConfig::default(), pools).unwrap();
    wait(|| client.link() == Link::Up && server.link() == Link::Up);
    (server, ours, client, theirs)
}

/// A length of 0 says that there is no frame: the receiver would wait for it for ever.
#[test]
fn an_empty_frame_holds_nothing_up() {
    let (folder, pools) = (Scratch::new(), pools());
    let (server, mut ours, _client, mut theirs) = pair(&folder, &pools);
    let mut cache = PoolCache::new(pools.as_slice());
    let mut burst = Burst::new();
    for len in [60, 0, 61] {
        let mut packet = cache.copy_of(&[7; 61]).unwrap();
        assert!(packet.set_len(len));
        burst.push(packet).unwrap();
    }
    assert_eq!(ours.tx[0].tx_burst(&mut burst, &mut cache), 3);
    assert_eq!(server.stats().tx_drops, [("malformed", 1)]);
    theirs.rx[0].rx_burst(&mut burst, &mut cache);
    let lengths: Vec<usize> = burst.iter().map(|packet| packet.len()).collect();
    assert_eq!(lengths, [60, 61]);
    cache.free(&mut burst);
}

/// Between two honest sides, whose ring it stops until the sender's next look.
#[test]
fn a_third_party_in_the_file_stops_a_ring_for_a_moment() {
    let (folder, pools) = (Scratch::new(), pools());
    let (server, mut ours, client, mut theirs) = pair(&folder, &pools);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(folder.path().join("ring"))
        .unwrap();
    let mut cache = PoolCache::new(pools.as_slice());
    for round in 1..=3 {
        wait(|| passes(&mut ours, &mut theirs, &pools));
        wait(|| theirs.rx[0].rx_burst(&mut Burst::with_room(1), &mut cache) == 0);
        let mut burst = Burst::new();
        burst.push(cache.copy_of(&[7; 60]).unwrap()).unwrap();
        assert_eq!(ours.tx[0].tx_burst(&mut burst, &mut cache), 1);
        // Each slot's word.
        for slot in 0..1024 {
            let at = 4096 + slot * 2112;
            std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4], at).unwrap();
        }
        assert_eq!(theirs.rx[0].rx_burst(&mut burst, &mut cache), 0, "it waits");
        // Nothing more is sent: the worker's rounds suffice.
        wait(|| {
            ours.tx[0].flush(&mut cache);
            server.stats().violations == [("descriptor_index", round)]
        });
    }
    wait(|| passes(&mut ours, &mut theirs, &pools) && passes(&mut theirs, &mut ours, &pools));
    assert_eq!(client.stats().violations, []);
}

#[test]
fn a_file_that_is_cut_short_or_removed_is_made_anew() {
    let (folder, pools) = (Scratch::new(), pools());
    let path = folder.path().join("ring");
    let (server, mut ours, client, mut theirs) = pair(&folder, &pools);
    assert!(passes(&mut ours, &mut theirs, &pools));
    for round in 0..3 {
        match round {
            // Last: frames pass in the removed file until the new one is found.
            2 => std::fs::remove_file(&path).unwrap(),
            _ => std::fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(0)
                .unwrap(),
        }
        // Both ways, and whatever is lost meanwhile is counted.
        wait(|| path.exists() && client.link() == Link::Up && server.link() == Link::Up);
        wait(|| passes(&mut ours, &mut theirs, &pools) && passes(&mut theirs, &mut ours, &pools));
    }
    let violations = server.stats().violations;
    assert!(violations.contains(&("memory_lost", 2)), "{violations:?}");
}

/// A peer in another kernel: no lock of its own is seen, its heartbeat is.
#[test]
fn a_peer_without_a_lock_lives_by_its_heartbeat() {
    use std::os::unix::fs::FileExt;
    let (folder, pools) = (Scratch::new(), pools());
    let mut server = open(&folder, "");
    let _queues = server.start(&PortConfig::default(), &pools).unwrap();
    let path = folder.path().join("ring");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let client = at::SIDES + super::layout::SIDE_BYTES;
    let write = |at: usize, value: u32| {
        file.write_all_at(&value.to_le_bytes(), (client + at) as u64)
            .unwrap();
    };
    assert!(why_down(&*server).contains("not come yet"));
    write(side::GENERATION, 1);
    write(side::STATE, 1);
    wait(|| why_down(&*server).contains("heartbeat has stopped"));
    let mut beats = 0;
    wait(|| {
        beats += 1;
        write(side::HEARTBEAT, beats);
        server.link() == Link::Up
    });
    assert!(
        server
            .info()
            .facts
            .contains(&("peer known by", "its heartbeat".into()))
    );
    wait(|| why_down(&*server).contains("heartbeat has stopped"));
    write(side::STATE, 0);
    wait(|| why_down(&*server).contains("has stopped"));
}
