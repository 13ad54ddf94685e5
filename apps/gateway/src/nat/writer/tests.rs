use super::*;
use crate::nat::log::Event;
use crate::nat::mapping::Inside;
use crate::nat::{Endpoint, Protocol};
use linerate_testkit::Scratch;

fn record(time_ms: u64) -> Record {
    let inside = Inside {
        endpoint: Endpoint::new([10, 0, 0, 1], 4000),
        protocol: Protocol::Tcp,
        zone: 2,
        pool: 0,
    };
    let outside = Endpoint::new([198, 51, 100, 1], 1024);
    Record::session(time_ms, 3, Event::MappingBegins, &inside, outside, None)
}

/// A writer, and what it tells.
fn writer(to: To) -> (Writer, Arc<Mutex<Vec<String>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let all = told.clone();
    (Writer::new(to, move |line| locked(&all).push(line)), told)
}

/// Until that many records were written or lost.
fn settled(writer: &Writer, count: u64) -> (u64, u64) {
    for _ in 0..1000 {
        let (written, lost) = writer.counts();
        if written + lost >= count {
            return (written, lost);
        }
        thread::sleep(Duration::from_millis(10));
    }
    writer.counts()
}

#[test]
fn records_are_lines_of_a_file_that_may_be_moved() {
    let scratch = Scratch::new();
    let (path, moved) = (scratch.path().join("nat.jsonl"), scratch.path().join("old"));
    let (writer, told) = writer(To::File(path.clone()));
    writer.write(vec![record(1), record(2)], 0);
    assert_eq!(settled(&writer, 2), (2, 0));
    fs::rename(&path, &moved).unwrap();
    writer.write(vec![record(3)], 0);
    assert_eq!(settled(&writer, 3), (3, 0));
    writer.reopen();
    writer.write((0..2 * AT_ONCE as u64).map(record).collect(), 0);
    // What was handed over is written before the end.
    drop(writer);
    let lines = |path| fs::read_to_string(path).unwrap().lines().count();
    assert_eq!((lines(&moved), lines(&path)), (3, 2 * AT_ONCE));
    let first = fs::read_to_string(&moved).unwrap();
    assert!(first.starts_with("{\"time\":\"1970-01-01T00:00:00.001Z\""));
    assert!(locked(&told).is_empty(), "{:?}", locked(&told));
}

#[test]
fn a_full_disk_is_told_of_once_and_its_records_are_counted() {
    let (writer, told) = writer(To::File("/dev/full".into()));
    for _ in 0..5 {
        writer.write(vec![record(1), record(2)], 0);
    }
    assert_eq!(settled(&writer, 10), (0, 10));
    let told = locked(&told);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("nat.log: /dev/full: No space left"),
        "{told:?}"
    );
}

#[test]
fn a_file_that_cannot_be_opened_is_told_of_before_a_record_is_lost() {
    let (writer, told) = writer(To::File("/nowhere/nat.jsonl".into()));
    writer.write(vec![record(1)], 0);
    assert_eq!(settled(&writer, 1), (0, 1));
    assert_eq!(locked(&told).len(), 1);
}

#[test]
fn rfc_5424_messages_go_to_a_socket_and_to_the_one_after_it() {
    let scratch = Scratch::new();
    let path = scratch.path().join("log");
    let daemon = UnixDatagram::bind(&path).unwrap();
    let (writer, _) = writer(To::Unix(path.clone()));
    writer.write(vec![record(1), record(2)], 0);
    let mut bytes = [0; 2000];
    for _ in 0..2 {
        let len = daemon.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..len]).unwrap();
        assert!(text.starts_with("<134>1 1970-01-01T00:00:00.00"), "{text}");
        assert!(text.ends_with('}'), "{text}");
    }
    // Nobody is there, then somebody else.
    drop(daemon);
    fs::remove_file(&path).unwrap();
    writer.write(vec![record(3)], 0);
    assert_eq!(settled(&writer, 3), (2, 1));
    let daemon = UnixDatagram::bind(&path).unwrap();
    writer.write(vec![record(4)], 0);
    assert_eq!(settled(&writer, 4), (3, 1));
    assert!(daemon.recv(&mut bytes).unwrap() > 0);
}

#[test]
fn rfc_5426_messages_go_over_udp() {
    let daemon = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (writer, _) = writer(To::Udp(daemon.local_addr().unwrap()));
    writer.write(vec![record(1)], 0);
    let mut bytes = [0; 2000];
    let len = daemon.recv(&mut bytes).unwrap();
    assert!(bytes[..len].starts_with(b"<134>1 "));
    assert_eq!(settled(&writer, 1), (1, 0));
}

#[test]
fn memory_of_records_is_used_again() {
    let scratch = Scratch::new();
    let (writer, _) = writer(To::File(scratch.path().join("log")));
    let mut room = writer.room(100);
    assert!(room.is_empty() && room.capacity() >= 100);
    room.push(record(1));
    let at = room.as_ptr();
    writer.write(room, 0);
    settled(&writer, 1);
    let again = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(10));
        let room = writer.room(100);
        let is_it = room.as_ptr() == at && room.is_empty();
        writer.give_back(room);
        is_it
    });
    assert!(again);
}

#[test]
fn a_socket_that_holds_few_messages_gets_all_and_one_that_nobody_reads_stops_nothing() {
    let scratch = Scratch::new();
    let path = scratch.path().join("log");
    let daemon = UnixDatagram::bind(&path).unwrap();
    let (writer, told) = writer(To::Unix(path));
    let many = 1000;
    writer.write((0..many).map(record).collect(), 0);
    let mut bytes = [0; 2000];
    for _ in 0..many {
        daemon.recv(&mut bytes).unwrap();
    }
    assert_eq!(settled(&writer, many), (many, 0));
    // What fits is written, and the rest is not waited for one by one.
    writer.write((0..many).map(record).collect(), 0);
    let (written, lost) = settled(&writer, 2 * many);
    assert_eq!((written + lost, lost > 0), (2 * many, true));
    assert_eq!(locked(&told).len(), 1);
}
