//! `linerate steer` gives its privileges away: its interface comes back all the same, and it ends
//! with the process that has them.

use crate::router::privileges::{NET_ADMIN, NET_RAW, helper, is_divided};
use linerate_testkit::Scratch;
use linerate_testkit::cli::binary;
use linerate_testkit::netns::Namespace;
use linerate_testkit::wait;
use linerate_testkit::{harness::Test, tests};
use rustix::process::{Signal, kill_process};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![without_privileges];

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
