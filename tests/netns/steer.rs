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
    connections_live_on_across_a_reload,
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

/// A reload's file: what is not the same in all.
fn reload_file(socket: &str, more: &str) -> String {
    format!(
        "[plan]\nio = \"0-1\"\ncpus = \"0,0\"\n[steer]\ncontrol = \"{socket}\"\n\
         [[port]]\nname = \"lan\"\nspec = \"tap:s0,queues=2\"\n\
         [[interface]]\nport = \"lan\"\naddresses = [\"10.1.0.2/24\"]\n\
         mac = \"02:00:00:00:00:02\"\n{more}"
    )
}

/// Asks for a path on a connection that is kept, and reads so much of a body of made-up bytes.
fn get(stream: &mut TcpStream, path: &str) -> std::io::Result<usize> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
    body_len(stream)
}

/// The length that the head of an answer says.
fn body_len(stream: &mut TcpStream) -> std::io::Result<usize> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let len = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        (name == "Content-Length").then(|| value.parse().unwrap())
    });
    Ok(len.unwrap_or_else(|| panic!("{head}")))
}

/// An address comes and goes, settings of TCP change, and a drain has an end. `file` is as `next`
/// says before and after.
fn addresses_settings_and_drains(
    here: &Namespace,
    next: &str,
    file: &str,
    ctl: &dyn Fn(&str) -> (Option<i32>, String),
) {
    let reload = |text: &str, expected: &str| {
        std::fs::write(file, text).unwrap();
        let (code, said) = ctl("reload");
        assert!(code == Some(0) && said.contains(expected), "{said}");
    };
    let open = |last: u8| {
        let at = SocketAddr::from(([10, 1, 0, last], 9));
        here.inside(|| {
            let stream = TcpStream::connect_timeout(&at, Duration::from_secs(10))?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            std::io::Result::Ok(stream)
        })
    };
    let is_reset = |stream: &mut TcpStream| {
        let read = stream.read(&mut [0]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    };
    let more = next.replace("10.1.0.2/24\"", "10.1.0.2/24\", \"10.1.0.9/24\"")
        + "[tcp]\ncongestion = \"reno\"\nttl = 33\nkeep_idle = 60\n";
    let mut old = open(2).unwrap();
    reload(&more, "changed: 3 [tcp] keys, 1 interface");
    // Several, so that both lcores have some; the neighbour may have to be found first.
    wait("the new address", || open(9).is_ok());
    let mut new: Vec<TcpStream> = (0..8).map(|_| open(9).unwrap()).collect();
    let (_, shown) = ctl("--json show connections");
    assert!(shown.contains("10.1.0.9:9"), "{shown}");
    assert!(
        shown.contains("\"reno\"") && shown.contains("\"cubic\""),
        "{shown}"
    );
    reload(next, "changed: 3 [tcp] keys, 1 interface");
    assert!(new.iter_mut().all(is_reset), "connections of it end");
    assert!(here.run("ping", "-c 1 -W 1 10.1.0.9").status.code() != Some(0));
    old.write_all(b"still here").unwrap();
    // An interface as a whole may go, and come back.
    let (before, rest) = next.split_once("[[interface]]").unwrap();
    let rest = rest.split_once("[[").unwrap().1;
    let route = rest.find("[[route]]").unwrap();
    reload(
        &format!("{before}[[{}", &rest[..route]),
        "changed: 1 interface removed, 1 route removed",
    );
    assert!(is_reset(&mut old));
    reload(next, "changed: 1 interface added, 1 route added");
    wait("the interface to be there again", || open(2).is_ok());
    // A drain: those that the sink has when it goes.
    let mut left: Vec<TcpStream> = (0..4).map(|_| open(2).unwrap()).collect();
    let (sink, drain) = (
        next.find("[[app]]\nname = \"sink\"").unwrap(),
        "drain_timeout = 1\n",
    );
    let (end, _) = next[sink + 7..].match_indices("[[").next().unwrap();
    let without = format!("{}{}", &next[..sink], &next[sink + 7 + end..]);
    let without = without.replace("[steer]\n", &format!("[steer]\n{drain}"));
    reload(&without, "1 application removed");
    left[0].write_all(b"for a while").unwrap();
    wait("the drain to end", || !ctl("show apps").1.contains("sink~"));
    assert!(left.iter_mut().all(is_reset));
    let (_, shown) = ctl("--json show tcp");
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let mut rows = shown["rows"].as_array().unwrap().iter();
    let aborted = rows.find(|row| row["what"] == "drain_aborted").unwrap();
    assert_eq!(aborted["value"], 4);
    reload(next, "1 application added");
}

/// Connections of applications that stay, change and go live on across reloads; those that are to
/// be refused change nothing.
fn connections_live_on_across_a_reload() {
    const MANY: usize = 20_000_000;
    let Some(here) = Namespace::new("steer") else {
        return;
    };
    let scratch = Scratch::new();
    let (file, socket) = (scratch.file("steer.toml"), scratch.file("ctl.sock"));
    let web = |len: usize| {
        let bodies = format!("bodies = [\"/few={len}\", \"/many={MANY}\"]");
        format!("[[app]]\nname = \"web\"\nkind = \"http\"\nlisten = 80\n{bodies}\n")
    };
    let echo = "[[app]]\nname = \"echo\"\nkind = \"echo\"\nlisten = 7\n";
    let sink = "[[app]]\nname = \"sink\"\nkind = \"sink\"\nlisten = 9\n";
    std::fs::write(&file, reload_file(&socket, &(web(10) + echo))).unwrap();
    let mut steer = here.start(binary(), &format!("steer {file} --json"));
    steer.wait("the first line", |stdout, _| !stdout.all().is_empty());
    here.ip("addr add 10.1.0.1/24 dev s0");
    let open = |port: u16| {
        let at = SocketAddr::from(([10, 1, 0, 2], port));
        here.inside(|| {
            let stream = TcpStream::connect_timeout(&at, Duration::from_secs(10))?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            std::io::Result::Ok(stream)
        })
    };
    wait("an echo", || answers(&here));
    let echoes = |stream: &mut TcpStream| {
        let mut back = [0; 5];
        let said = stream.write_all(b"hello");
        said.and_then(|()| stream.read_exact(&mut back))
            .is_ok_and(|()| &back == b"hello")
    };
    let ctl = |words: &str| {
        let output = here.run(binary(), &format!("ctl --socket {socket} {words}"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout) + &text(&output.stderr),
        )
    };
    // Several of each, so that both lcores have some.
    let mut old_echoes: Vec<TcpStream> = (0..8).map(|_| open(7).unwrap()).collect();
    let mut kept: Vec<TcpStream> = (0..8).map(|_| open(80).unwrap()).collect();
    assert!(old_echoes.iter_mut().all(echoes));
    for stream in &mut kept {
        assert_eq!(get(stream, "/few").unwrap(), 10);
        stream.read_exact(&mut [0; 10]).unwrap();
    }
    let mut slow = open(80).unwrap();
    assert_eq!(get(&mut slow, "/many").unwrap(), MANY);
    // The answers of one change, another one goes, a third comes, a route too.
    let route = "[[route]]\nto = \"10.9.0.0/16\"\nvia = \"10.1.0.1\"\n";
    let next = reload_file(&socket, &(web(20) + sink + route));
    std::fs::write(&file, &next).unwrap();
    let (code, said) = ctl("reload");
    assert_eq!(code, Some(0), "{said}");
    let expected = "changed: 1 application added, 1 application, 1 application removed, \
                    1 route added";
    assert!(said.contains(expected), "{said}");
    assert!(old_echoes.iter_mut().all(echoes), "they go on");
    assert!(open(7).is_err(), "nobody listens any more");
    for stream in &mut kept {
        assert_eq!(get(stream, "/few").unwrap(), 20, "the same connection");
        stream.read_exact(&mut [0; 20]).unwrap();
    }
    let (_, shown) = ctl("show apps");
    assert!(
        shown.contains("echo~1") && shown.contains("web~0"),
        "{shown}"
    );
    // What had begun goes on to its end, and its connection to the new one.
    let mut body = vec![0; MANY];
    slow.read_exact(&mut body).unwrap();
    // It repeats after a prime number of bytes: any that is lost or repeated shows.
    assert!(body.iter().skip(65_521).eq(&body[..MANY - 65_521]));
    assert_eq!(get(&mut slow, "/few").unwrap(), 20);
    drop(old_echoes);
    wait("those that were replaced to end", || {
        !ctl("show apps").1.contains('~')
    });
    // Refused, by the names of the keys; all is as it was.
    for (wrong, key) in [
        (
            next.replace("[steer]", "[steer]\nmode = \"software\""),
            "steer.mode is another",
        ),
        (
            next.clone() + "[tcp]\nconnections = 99\n",
            "tcp.connections is another",
        ),
        (
            next.replace("[[interface]]\n", "[[interface]]\nmtu = 1400\n"),
            "interface.mtu is another",
        ),
        (next.replace("00:02", "00:03"), "interface.mac is another"),
        (next.replace("queues=2", "queues=1"), "[[port]] is another"),
        (next.replace("listen = 9", "listen = 80"), "the same port"),
    ] {
        std::fs::write(&file, wrong).unwrap();
        let (code, said) = ctl("reload");
        assert!(
            code == Some(1) && said.contains(key),
            "{key}: {code:?} {said}"
        );
    }
    assert!(open(9).is_ok());
    // As systemd may ask; ports are exchanged between applications.
    std::fs::write(&file, reload_file(&socket, &(web(30) + echo))).unwrap();
    assert_eq!(ctl("reload").0, Some(0));
    let (web_at_7, echo_at_80) = (web(30).replace("= 80", "= 7"), echo.replace("= 7", "= 80"));
    std::fs::write(&file, reload_file(&socket, &(web_at_7 + &echo_at_80))).unwrap();
    steer.signal(Signal::HUP);
    wait("an answer of the other one", || {
        open(80).is_ok_and(|mut stream| echoes(&mut stream))
    });
    assert_eq!(get(&mut open(7).unwrap(), "/few").unwrap(), 30);
    for stream in &mut kept {
        assert_eq!(get(stream, "/few").unwrap(), 30, "connections go along");
        stream.read_exact(&mut [0; 30]).unwrap();
    }
    drop((kept, slow));
    wait("all to be closed", || {
        !ctl("--json show connections").1.contains("remote\":")
    });
    std::fs::write(&file, &next).unwrap();
    assert_eq!(ctl("reload").0, Some(0));
    addresses_settings_and_drains(&here, &next, &file, &ctl);
    steer.signal(Signal::TERM);
    let status = steer.end();
    let said = steer.stdout.text() + &steer.stderr.text();
    assert!(status.success(), "{said}");
    assert!(
        said.contains("\"even\":true") && said.contains("\"lost\":[]"),
        "{said}"
    );
}
