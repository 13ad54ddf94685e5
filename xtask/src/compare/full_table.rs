//! `router.frr.1m`: a million routes from a BGP neighbour, through FRR and its FPM, until the
//! router has them.
//!
//! ```text
//! a BGP speaker of ours, AS 65001, veth0 ---- a :middle: linerate router, host interface lr-a: zebra, bgpd, AS 65000
//! ```
//!
//! The whole way, as a user has it: TCP to the host interface, bgpd, zebra, the kernel's table,
//! FPM, ours. Nearly all of the time is FRR's; `router.fpm.1m` is our part. Some prefixes, the last
//! one said among them, are asked for until each of them is there by FPM.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use super::crossing::Forwarder;
use super::machine::Cpus;
use super::ours::Linerate;
use super::progress;
use super::veth::{self, ip};
use crate::error::TaskError;
use crate::private_folder::PrivateFolder;
use crate::process;
use crate::undo::Undo;

/// Where Debian's package has the daemons.
const DAEMONS: &str = "/usr/lib/frr";
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// Next hops, from [`NEIGHBOUR`] on.
const NEXT_HOPS: usize = 100;
/// Prefixes that are asked for.
const ASKED: usize = 100;
/// For FRR to come up, and for the whole table.
const START: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(240);

/// Seconds from the first route said to the last one there.
pub(super) fn frr(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let linerate = linerate.ok_or_else(|| TaskError::Missing {
        what: "this row has no peer side".into(),
        fix: "leave out --peer-only".into(),
    })?;
    if !Path::new(DAEMONS).join("bgpd").is_file() {
        return Err(TaskError::Missing {
            what: format!("there is no {DAEMONS}/bgpd"),
            fix: "apt-get install --no-install-recommends frr".into(),
        });
    }
    let row = if linerate.is_quick() {
        "l3fwd.lpm.1k"
    } else {
        "l3fwd.lpm.1m"
    };
    let prefixes = prefixes(&fs::read_to_string(linerate.input(row)?).unwrap_or_default());
    let mut undo = Undo::new()?;
    let id = std::process::id();
    let [far, middle] = ["far", "frr"].map(|name| format!("lr{name}{id}"));
    let private = PrivateFolder::new("compare");
    let private = private.map_err(TaskError::file(&std::env::temp_dir()))?;
    let folder = private.path().to_owned();
    undo.add(&format!("rm -rf '{}'", folder.display()))?;
    wire(&mut undo, &far, &middle)?;
    // FRR's own user writes there. What others put there is theirs alone, as in /tmp.
    let open = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(&folder, open).map_err(TaskError::file(&folder))?;

    let (file, socket) = (folder.join("router.toml"), folder.join("router.sock"));
    let text = configuration(&socket, [cpus.other.unwrap_or(cpus.worker), cpus.worker]);
    fs::write(&file, text).map_err(TaskError::file(&file))?;
    let mut router = veth::inside(&middle, linerate.program());
    router.arg("router").arg(&file);
    let mut router = Forwarder::start(router)?;
    let zebra = "fpm address 127.0.0.1 port 2620\n";
    let _zebra = Daemon::start(&middle, &folder, "zebra", "-M dplane_fpm_nl -K 60", zebra)?;
    let _bgpd = Daemon::start(&middle, &folder, "bgpd", "--bgp_port 179", &bgpd())?;

    let speaker = Speaker::connect(&far)?;
    progress(&format!("router.frr.1m: saying {} routes", prefixes.len()));
    let began = Instant::now();
    speaker.say(&updates(&prefixes))?;
    followed(&socket, &prefixes, began + PATIENCE)?;
    let seconds = began.elapsed().as_secs_f64();
    router.stop();
    Ok(seconds)
}

/// Both namespaces, and the pair between them.
fn wire(undo: &mut Undo, far: &str, middle: &str) -> Result<(), TaskError> {
    for namespace in [far, middle] {
        veth::quiet_namespace(undo, namespace)?;
        ip(&["-n", namespace, "link", "set", "lo", "up"])?;
    }
    ip(&[
        "link", "add", "veth0", "netns", far, "type", "veth", "peer", "name", "a", "netns", middle,
    ])?;
    let address = format!("{NEIGHBOUR}/24");
    ip(&["-n", far, "addr", "add", &address, "dev", "veth0"])?;
    // Checksums are made before a frame is on the wire, and no frame is longer than it.
    let plain = ["-K", "veth0", "tx", "off", "tso", "off", "gso", "off"];
    process::read(veth::inside(far, "ethtool").args(plain))?;
    ip(&["-n", far, "link", "set", "dev", "veth0", "up"])?;
    ip(&["-n", middle, "link", "set", "dev", "a", "up"])?;
    // The address is the host interface's: the kernel must not answer at the port, too.
    for setting in [
        "net.ipv4.conf.a.rp_filter=1",
        "net.ipv4.conf.a.arp_ignore=8",
    ] {
        process::read(veth::inside(middle, "sysctl").args(["-qw", setting]))?;
    }
    // A host interface whose port is not up yet loses its carrier, and FRR its sessions.
    let deadline = Instant::now() + START;
    while !ip(&["-n", middle, "link", "show", "a"])?.contains("state UP") {
        if Instant::now() > deadline {
            return Err(TaskError::Missing {
                what: "a veth pair does not come up".into(),
                fix: "see `ip link` and the kernel's log".into(),
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// zebra puts its routes into the kernel's table as well; the router keeps each once.
fn configuration(socket: &Path, cpus: [usize; 2]) -> String {
    format!(
        "[plan]\nbg = \"0\"\nio = \"1\"\ncpus = \"{},{}\"\n\
         [router]\ncontrol = \"{}\"\nfpm = \"127.0.0.1:2620\"\nroutes = 1100000\nperiod = 0\n\
         [[port]]\nname = \"a\"\nspec = \"af_packet:a\"\n\
         [[interface]]\nport = \"a\"\naddresses = [\"{ROUTER}/24\"]\n",
        cpus[0],
        cpus[1],
        socket.display()
    )
}

fn bgpd() -> String {
    format!(
        "router bgp 65000\n bgp router-id 192.0.2.1\n no bgp ebgp-requires-policy\n no bgp network \
         import-check\n neighbor {NEIGHBOUR} remote-as 65001\n neighbor {NEIGHBOUR} passive\n"
    )
}

/// One of FRR's, which ends with its value.
struct Daemon(Child);

impl Daemon {
    fn start(
        namespace: &str,
        folder: &Path,
        name: &str,
        words: &str,
        lines: &str,
    ) -> Result<Daemon, TaskError> {
        let at = |file: String| folder.join(file);
        let (file, log) = (at(format!("{name}.conf")), at(format!("{name}.log")));
        fs::write(&file, format!("log stdout\n{lines}")).map_err(TaskError::file(&file))?;
        let output = fs::File::create(&log).map_err(TaskError::file(&log))?;
        let also = output.try_clone().map_err(TaskError::file(&log))?;
        let mut command = veth::inside(namespace, Path::new(DAEMONS).join(name));
        command.arg("--config_file").arg(file);
        command.arg("--pid_file").arg(at(format!("{name}.pid")));
        command.arg("--socket").arg(at("zserv.api".into()));
        command.arg("--vty_socket").arg(folder);
        command.args(["--vty_addr", "127.0.0.1", "--vty_port", "0"]);
        command.args(words.split_whitespace());
        let spelled = process::spelled(&command);
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(also)
            .spawn()
            .map_err(|source| TaskError::Start {
                program: spelled.clone(),
                source,
            })?;
        let daemon = Daemon(child);
        let ready = [at(format!("{name}.vty")), at("zserv.api".into())];
        let deadline = Instant::now() + START;
        while !ready.iter().all(|path| path.exists()) {
            if Instant::now() > deadline {
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(TaskError::Missing {
                    what: format!(
                        "`{spelled}` does not listen{}",
                        process::last_lines(&said, 4)
                    ),
                    fix: "see that FRR's user may write to the temporary folder".into(),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The neighbour: a BGP session that only sends (RFC 4271).
struct Speaker(TcpStream);

/// Kinds of message (RFC 4271 4.1).
const OPEN: u8 = 1;
const UPDATE: u8 = 2;
const KEEPALIVE: u8 = 4;
const MESSAGE_MAX: usize = 4096;

impl Speaker {
    /// Connects from a namespace, repeatedly until the session is established.
    fn connect(namespace: &str) -> Result<Speaker, TaskError> {
        let deadline = Instant::now() + START;
        loop {
            match from(namespace, session) {
                Ok(socket) => return Ok(Speaker(socket)),
                Err(error) if Instant::now() > deadline => {
                    return Err(TaskError::Missing {
                        what: format!("bgpd takes no session: {error}"),
                        fix: "try the row again on a machine that is less busy".into(),
                    });
                }
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// Sends everything, and reads the other side's messages meanwhile.
    fn say(&self, messages: &[u8]) -> Result<(), TaskError> {
        let say = || {
            let mut heard = self.0.try_clone()?;
            heard.set_read_timeout(None)?;
            // It ends with the session.
            std::thread::spawn(move || io::copy(&mut heard, &mut io::sink()));
            (&self.0).write_all(messages)
        };
        say().map_err(TaskError::file("the BGP session"))
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// Does `work` in a namespace, on a thread of its own.
fn from<T: Send>(namespace: &str, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let space = fs::File::open(Path::new("/run/netns").join(namespace))?;
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        });
        inside
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// OPEN and KEEPALIVE each way. A hold time of 0 spares all further ones (RFC 4271 4.2).
fn session() -> io::Result<TcpStream> {
    let mut socket = TcpStream::connect_timeout(&(ROUTER, 179).into(), Duration::from_secs(2))?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut open = vec![4];
    open.extend(65_001_u16.to_be_bytes());
    open.extend([0, 0]);
    open.extend(NEIGHBOUR.octets());
    open.push(0);
    socket.write_all(&message(OPEN, &open))?;
    hear(&mut socket, OPEN)?;
    socket.write_all(&message(KEEPALIVE, &[]))?;
    hear(&mut socket, KEEPALIVE)?;
    Ok(socket)
}

fn hear(socket: &mut TcpStream, expected: u8) -> io::Result<()> {
    let mut header = [0; 19];
    socket.read_exact(&mut header)?;
    let length = usize::from(u16::from_be_bytes([header[16], header[17]]));
    let mut body = vec![0; length.saturating_sub(header.len())];
    socket.read_exact(&mut body)?;
    match header[18] == expected {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "BGP message {}: {body:02x?}",
            header[18]
        ))),
    }
}

/// RFC 4271 4.1.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![0xff; 16];
    message.extend((19 + body.len() as u16).to_be_bytes());
    message.push(kind);
    message.extend(body);
    message
}

type Prefix = (Ipv4Addr, u8);

/// All prefixes, as many to a message as it holds, next hops in turns.
fn updates(prefixes: &[Prefix]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut rest = prefixes;
    let mut turn = 0;
    while !rest.is_empty() {
        let next_hop = u32::from(NEIGHBOUR) + (turn % NEXT_HOPS) as u32;
        turn += 1;
        // Origin: IGP; path: one sequence of one AS (RFC 4271 4.3).
        let mut attributes = vec![0x40, 1, 1, 0, 0x40, 2, 4, 2, 1];
        attributes.extend(65_001_u16.to_be_bytes());
        attributes.extend([0x40, 3, 4]);
        attributes.extend(next_hop.to_be_bytes());
        let mut body = vec![0, 0];
        body.extend((attributes.len() as u16).to_be_bytes());
        body.extend(attributes);
        while let Some((&(address, len), others)) = rest.split_first() {
            let bytes = usize::from(len).div_ceil(8);
            if 19 + body.len() + 1 + bytes > MESSAGE_MAX {
                break;
            }
            body.push(len);
            body.extend(&address.octets()[..bytes]);
            rest = others;
        }
        all.extend(message(UPDATE, &body));
    }
    all
}

/// The prefixes of a rule file of `linerate l3fwd`: `R1.2.3.0/24 5`.
fn prefixes(rules: &str) -> Vec<Prefix> {
    let prefix = |line: &str| {
        let (address, rest) = line.strip_prefix('R')?.split_once('/')?;
        let (len, _) = rest.split_once(' ')?;
        Some((address.parse().ok()?, len.parse().ok()?))
    };
    rules.lines().filter_map(prefix).collect()
}

/// Waits until the router has some of the prefixes, the last one among them, by FPM.
fn followed(socket: &Path, prefixes: &[Prefix], deadline: Instant) -> Result<(), TaskError> {
    let mut router = Questions::open(socket)?;
    let step = prefixes.len().div_ceil(ASKED).max(1);
    let mut wanted: Vec<&Prefix> = prefixes.iter().rev().step_by(step).collect();
    while !wanted.is_empty() {
        let mut left = Vec::new();
        for prefix in wanted {
            // The others are later than one that is not there.
            if !left.is_empty() || !router.has(prefix)? {
                left.push(prefix);
            }
        }
        wanted = left;
        if Instant::now() > deadline {
            return Err(TaskError::Missing {
                what: format!(
                    "{} of {ASKED} prefixes did not come by FPM in time",
                    wanted.len()
                ),
                fix: "run the row again on a machine that is less busy".into(),
            });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The router's socket.
struct Questions(BufReader<UnixStream>, PathBuf);

impl Questions {
    fn open(path: &Path) -> Result<Questions, TaskError> {
        let socket = UnixStream::connect(path).map_err(TaskError::file(path))?;
        Ok(Questions(BufReader::new(socket), path.into()))
    }

    /// Whether a prefix has a route from FRR's FPM.
    fn has(&mut self, (address, len): &Prefix) -> Result<bool, TaskError> {
        let params = json!({ "what": "routes", "filter": format!("{address}/{len}"), "limit": 10 });
        let question = json!({ "id": 1, "method": "show", "params": params });
        let mut answer = String::new();
        writeln!(self.0.get_mut(), "{question}")
            .and_then(|()| self.0.read_line(&mut answer))
            .map_err(TaskError::file(&self.1))?;
        let parsed: Value = serde_json::from_str(&answer).unwrap_or_default();
        let rows = parsed["result"]["rows"].as_array();
        let rows = rows.ok_or_else(|| TaskError::Unexpected {
            who: "the router's socket".into(),
            text: answer,
            expected: "rows of routes",
        })?;
        Ok(rows.iter().any(|row| row["source"] == "fpm"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_hold_every_prefix_and_keep_to_the_limit() {
        let all: Vec<Prefix> = (0..3000_u32)
            .map(|number| (Ipv4Addr::from(0x0b00_0000 | number << 8), 24))
            .collect();
        let bytes = updates(&all);
        let (mut rest, mut found) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            assert_eq!(rest[..16], [0xff; 16]);
            let length = usize::from(u16::from_be_bytes([rest[16], rest[17]]));
            assert!(length <= MESSAGE_MAX && rest[18] == UPDATE);
            let body = &rest[19..length];
            let attributes = usize::from(u16::from_be_bytes([body[2], body[3]]));
            for nlri in body[4 + attributes..].chunks(4) {
                found.push((Ipv4Addr::new(nlri[1], nlri[2], nlri[3], 0), nlri[0]));
            }
            rest = &rest[length..];
        }
        assert_eq!(found, all);
    }

    #[test]
    fn prefixes_are_read_from_rules() {
        let read = prefixes("R1.2.3.0/24 5\n# no rule\nR10.0.0.0/8 1\n");
        assert_eq!(
            read,
            [
                (Ipv4Addr::new(1, 2, 3, 0), 24),
                (Ipv4Addr::new(10, 0, 0, 0), 8)
            ]
        );
    }
}
