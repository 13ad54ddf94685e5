//! `linerate steer` gives its privileges away: its interface comes back all the same, and it ends
//! with the process that has them.

use crate::router::privileges::{NET_ADMIN, NET_RAW, helper, is_divided};
use linerate_testkit::Scratch;
use linerate_testkit::cli::binary;
use linerate_testkit::netns::Namespace;
use linerate_testkit::wait;
use linerate_testkit::{harness::Test, tests};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![
    without_privileges,
    users_meet_over_queues_of_a_tap,
    users_meet_over_fanout,
    users_meet_behind_a_distributor,
    users_meet_behind_two_distributors,
];

const ECHO: &str = "10.1.0.2:7";

/// Whether a connection to the echo server brings back what was sent.
fn answers(peer: &Namespace) -> bool {
    let talk = || -> std::io::Result<bool> {
        let at: SocketAddr = ECHO.parse().unwrap();
        let mut stream = TcpStream::connect_timeout(&at, Duration::from_millis(500))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"steer")?;
        let mut back = [0; 5];
        stream.read_exact(&mut back)?;
        Ok(&back == b"steer")
    };
    peer.inside(talk).unwrap_or(false)
}

fn without_privileges() {
    let Some(here) = Namespace::new("steer") else {
        return;
    };
    let Some(peer) = Namespace::new("peer") else {
        return;
    };
    let wire = || {
        here.wire("s0", &peer, "p0", "");
        here.plain("s0");
        peer.plain("p0");
        peer.ip("addr add 10.1.0.1/24 dev p0");
    };
    wire();
    let scratch = Scratch::new();
    let (file, socket) = (scratch.file("steer.toml"), scratch.file("ctl.sock"));
    let text = format!(
        "[plan]\nio = \"0\"\n[steer]\ncontrol = \"{socket}\"\n\
         [[port]]\nname = \"lan\"\nspec = \"af_packet:s0\"\n\
         [[interface]]\nport = \"lan\"\naddresses = [\"10.1.0.2/24\"]\n\
         [[app]]\nkind = \"echo\"\nlisten = 7\n"
    );
    std::fs::write(&file, text).unwrap();
    let mut steer = here.start(binary(), &format!("steer {file}"));
    steer.wait("the first line", |stdout, _| !stdout.all().is_empty());
    wait("an answer", || answers(&peer));
    is_divided(steer.pid(), 0, NET_ADMIN | NET_RAW);
    let ctl = here.run(binary(), &format!("ctl --socket {socket} show apps"));
    let shown = String::from_utf8_lossy(&ctl.stdout).into_owned();
    assert!(ctl.status.success() && shown.contains("echo"), "{shown}");
    // Another interface of the same name, which this process may not open.
    here.ip("link del s0");
    wire();
    wait("an answer by the new interface", || answers(&peer));
    kill_process(helper(steer.pid()), Signal::KILL).unwrap();
    let status = steer.end();
    let said = steer.stderr.text();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("keeps this one's privileges"), "{said}");
}

/// Bytes on each connection behind the name of its user.
const BYTES: usize = 150_000;
const USERS: usize = 12;
const EACH: usize = 4;

/// One of a user's connections: its name, then bytes whose echo is compared. It is handed back
/// open.
fn talk(user: usize, number: usize) -> std::io::Result<TcpStream> {
    let at: SocketAddr = ECHO.parse().unwrap();
    let stream = TcpStream::connect_timeout(&at, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut sent = format!("user {user}\n").into_bytes();
    sent.extend((0..BYTES).map(|at| (at * 31 + number * 7 + user) as u8));
    let (mut writer, mut reader) = (stream.try_clone()?, stream.try_clone()?);
    std::thread::scope(|scope| {
        let all = &sent;
        let writing = scope.spawn(move || {
            // The name comes in two pieces, so that it has to be waited for.
            writer.write_all(&all[..3])?;
            std::thread::sleep(Duration::from_millis(5));
            writer.write_all(&all[3..])
        });
        let mut back = vec![0; all.len()];
        reader.read_exact(&mut back)?;
        assert!(&back == all, "user {user}, connection {number}");
        writing.join().unwrap()
    })?;
    Ok(stream)
}

/// Many connections of some users, over ports where packets come anywhere: each byte comes back,
/// and all connections of a user are on one lcore in the end.
fn users_meet(port: &str, is_tap: bool, more: &str, plan: &str) {
    let Some(here) = Namespace::new("steer") else {
        return;
    };
    let Some(peer) = Namespace::new("peer") else {
        return;
    };
    if !is_tap {
        here.wire("s0", &peer, "p0", "");
        here.plain("s0");
        peer.plain("p0");
        peer.ip("addr add 10.1.0.1/24 dev p0");
    }
    let peer = if is_tap { &here } else { &peer };
    let scratch = Scratch::new();
    let (file, socket) = (scratch.file("steer.toml"), scratch.file("ctl.sock"));
    let mac = if is_tap {
        "mac = \"02:00:00:00:00:02\"\n"
    } else {
        ""
    };
    let text = format!(
        "[plan]\n{plan}[steer]\ncontrol = \"{socket}\"\nmode = \"application\"\n{more}\
         [[port]]\nname = \"lan\"\nspec = \"{port}\"\n\
         [[interface]]\nport = \"lan\"\naddresses = [\"10.1.0.2/24\"]\n{mac}\
         [[app]]\nkind = \"echo\"\nlisten = 7\nuser = \"line\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let mut steer = here.start(binary(), &format!("steer {file} --json"));
    steer.wait("the first line", |stdout, _| !stdout.all().is_empty());
    if is_tap {
        here.ip("addr add 10.1.0.1/24 dev s0");
    }
    let all = peer.inside(|| {
        std::thread::scope(|scope| {
            let talks = (0..USERS * EACH).map(|number| {
                let user = number % USERS;
                (user, scope.spawn(move || talk(user, number)))
            });
            let talks: Vec<_> = talks.collect();
            let done = talks.into_iter().map(|(user, talk)| {
                let stream = talk.join().unwrap();
                (
                    user,
                    stream.unwrap_or_else(|error| panic!("user {user}: {error}")),
                )
            });
            done.collect::<Vec<(usize, TcpStream)>>()
        })
    });
    let show = |what: &str| -> Vec<Value> {
        let ctl = here.run(
            binary(),
            &format!("ctl --socket {socket} --json show {what}"),
        );
        let said = String::from_utf8_lossy(&ctl.stdout).into_owned();
        let rows: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        rows["rows"].as_array().unwrap().clone()
    };
    let at: HashMap<String, String> = show("connections")
        .iter()
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            (text("remote"), text("lcore"))
        })
        .collect();
    let mut used = HashSet::new();
    for user in 0..USERS {
        let own = all.iter().filter(|(of, _)| *of == user);
        let lcores: HashSet<&String> = own
            .map(|(_, stream)| &at[&stream.local_addr().unwrap().to_string()])
            .collect();
        assert_eq!(lcores.len(), 1, "user {user}: {lcores:?}");
        used.extend(lcores);
    }
    assert!(used.len() > 1, "users are on several lcores: {used:?}");
    let rows = show("steering");
    let sum = |name: &str| -> u64 { rows.iter().filter_map(|row| row[name].as_u64()).sum() };
    assert!(sum("came") > 0 && sum("left") == sum("came"), "{rows:?}");
    assert_eq!((sum("lost"), sum("stayed")), (0, 0), "{rows:?}");
    for (_, stream) in &all {
        stream.shutdown(Shutdown::Both).unwrap();
    }
    drop(all);
    wait("all to be closed", || show("connections").is_empty());
    steer.signal(Signal::TERM);
    let status = steer.end();
    let said = steer.stdout.text() + &steer.stderr.text();
    assert!(status.success(), "{said}");
    let is_even = said.contains("\"even\":true") && said.contains("\"lost\":[]");
    assert!(is_even, "{said}");
    // Nor does a port take what it has sent itself.
    assert!(!said.contains("not_for_us"), "{said}");
}

fn users_meet_over_queues_of_a_tap() {
    users_meet(
        "tap:s0,queues=3",
        true,
        "over = \"hardware\"\n",
        "io = \"0-2\"\ncpus = \"0,0,0\"\n",
    );
}

fn users_meet_over_fanout() {
    users_meet(
        "af_packet:s0,queues=3",
        false,
        "over = \"hardware\"\n",
        "io = \"0-2\"\ncpus = \"0,0,0\"\n",
    );
}

fn users_meet_behind_a_distributor() {
    users_meet(
        "af_packet:s0",
        false,
        "over = \"software\"\ndistributor = \"rx+tx\"\n",
        "io = \"0\"\neu = \"1-2\"\ncpus = \"0,0,0\"\n",
    );
}

fn users_meet_behind_two_distributors() {
    users_meet(
        "tap:s0",
        true,
        "over = \"software\"\ndistributor = \"rx,tx\"\n",
        "io = \"0-1\"\neu = \"2-3\"\ncpus = \"0,0,0,0\"\n",
    );
}
