//! Permitted and refused requests; invalid messages. Nothing here needs privileges: the kernel's
//! own refusal shows that a request was permitted.

use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;

use linerate_core::env::PrivateFolder;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::thread::CapabilitySet;

use super::message::Change;
use super::permits::{Named, Permits};
use super::protocol::{Access, Received, Refusal, Reply, Request, receive, send};
use super::serve::{Places, serve};
use crate::config::{self, Section};
use crate::error::Error;

const CONFIG: &str = r#"
[[port]]
spec = "af_packet:eth0"
[[port]]
spec = "af_xdp:eth1,queues=2"
[[port]]
spec = "tap:t0"
[[host]]
netns = "lr-no-such-space"
name = "lr-wan"
[[host]]
name = "lr-lan"
"#;

/// An appliance's file: ports, and its host interfaces by name.
fn named(file: &Section<'_>) -> Named {
    let hosts = file.tables("host", "tables: [[host]]").into_iter();
    let host = |host: Section<'_>| {
        let text = |key| host.text(key, "a name").map(|at| at.value);
        (text("netns"), text("name").unwrap_or_default())
    };
    Named {
        ports: config::ports(file)
            .into_iter()
            .map(|port| port.value.spec)
            .collect(),
        host_interfaces: hosts.map(host).collect(),
        ..Named::default()
    }
}

fn read(path: &Path) -> Result<Named, Error> {
    config::read(path, named)
}

fn permits(text: &str) -> Permits {
    let parsed = config::parse(text, named);
    assert_eq!(parsed.errors, []);
    Permits::of(&parsed.value)
}

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn text(text: &str) -> String {
    text.into()
}

/// The requests that a configuration does not permit, of one for each kind of thing and name.
fn refused(permits: &Permits, netns: Option<&str>, name: &str) -> Vec<&'static str> {
    let (netns, name) = (netns.map(text), text(name));
    let link = Change::Up(true);
    let mut requests = vec![
        ("packet", Request::PacketSocket { name: name.clone() }),
        (
            "xdp",
            Request::XdpSocket {
                name: name.clone(),
                busy_poll_us: 0,
            },
        ),
        (
            "xdp",
            Request::XdpProgram {
                name: name.clone(),
                filter: String::new(),
            },
        ),
        (
            "xdp",
            Request::XdpAttach {
                name: name.clone(),
                native: true,
            },
        ),
        (
            "xdp",
            Request::XdpMap {
                name: name.clone(),
                queue: 0,
            },
        ),
        (
            "tap",
            Request::Tap {
                netns: netns.clone(),
                name: name.clone(),
                several: false,
            },
        ),
        (
            "tap",
            Request::ChangeTap {
                netns: netns.clone(),
                name: name.clone(),
                change: link,
            },
        ),
        (
            "host_interface",
            Request::RemoveAddress {
                netns: netns.clone(),
                name,
                address: ([192, 0, 2, 1].into(), 24),
            },
        ),
        (
            "netlink",
            Request::Netlink {
                netns: netns.clone(),
                room: None,
            },
        ),
    ];
    if let Some(netns) = netns {
        requests.push(("control", Request::ControlSocket { netns }));
    }
    let mut refused: Vec<_> = requests
        .iter()
        .filter(|(_, request)| !permits.allow(request))
        .map(|&(what, _)| what)
        .collect();
    refused.dedup();
    refused
}

#[test]
fn only_what_the_configuration_names_is_permitted() {
    let permits = permits(CONFIG);
    let blue = Some("lr-no-such-space");
    assert_eq!(
        refused(&permits, None, "eth0"),
        ["xdp", "tap", "host_interface"]
    );
    // af_xdp sends unsegmented frames through packet sockets.
    assert_eq!(refused(&permits, None, "eth1"), ["tap", "host_interface"]);
    assert_eq!(refused(&permits, None, "eth2").len(), 4);
    assert_eq!(
        refused(&permits, None, "t0"),
        ["packet", "xdp", "host_interface"]
    );
    assert_eq!(refused(&permits, None, "lr-lan"), ["packet", "xdp"]);
    // A host interface is what it is in its own name space.
    assert_eq!(refused(&permits, blue, "lr-wan"), ["packet", "xdp"]);
    assert_eq!(refused(&permits, None, "lr-wan").len(), 4);
    let other = refused(&permits, Some("other"), "lr-wan");
    assert_eq!(
        other,
        [
            "packet",
            "xdp",
            "tap",
            "host_interface",
            "netlink",
            "control"
        ]
    );
    let room = |room| Request::Netlink {
        netns: None,
        room: Some(room),
    };
    assert!(permits.allow(&room(8 << 20)) && !permits.allow(&room(1 << 30)));
    let filter = "x".repeat(5000);
    let name = text("eth1");
    assert!(!permits.allow(&Request::XdpProgram { name, filter }));
    let polls = |busy_poll_us| Request::XdpSocket {
        name: text("eth1"),
        busy_poll_us,
    };
    assert!(permits.allow(&polls(10_000)) && !permits.allow(&polls(u32::MAX)));
    // Three settings of the ports, and none of anything else.
    let set = |setting: &str, value: &str| Request::Set {
        setting: format!("/proc/sys/{setting}").into(),
        value: value.into(),
    };
    assert!(permits.allow(&set("net/ipv4/conf/eth0/arp_ignore", "8")));
    assert!(permits.allow(&set("net/ipv6/conf/eth1/disable_ipv6", "0")));
    for (setting, value) in [
        ("net/ipv4/conf/eth2/arp_ignore", "8"),
        ("net/ipv4/conf/all/arp_ignore", "8"),
        ("net/ipv4/conf/eth0/forwarding", "1"),
        ("net/ipv4/conf/eth0/../eth2/arp_ignore", "8"),
        ("kernel/core_pattern", "1"),
        ("net/ipv4/conf/eth0/arp_ignore", "8\n8"),
    ] {
        assert!(!permits.allow(&set(setting, value)), "{setting} {value}");
    }
}

#[test]
fn capabilities_are_those_that_the_names_take() {
    let plain = "[[port]]\nname = \"wan\"\nspec = \"af_packet:eth0\"\n";
    let (admin, raw) = (CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW);
    assert_eq!(permits(plain).capabilities(), admin | raw);
    let all = admin | raw | CapabilitySet::BPF | CapabilitySet::SYS_ADMIN;
    assert_eq!(permits(CONFIG).capabilities(), all);
    let none = "[[port]]\nspec = \"null\"\n";
    assert!(permits(none).take_none());
    assert_eq!(permits(none).capabilities(), CapabilitySet::empty());
}

/// Asks a privilege helper that serves a configuration file.
struct Stand {
    socket: Option<OwnedFd>,
    path: PathBuf,
    folder: PrivateFolder,
    thread: Option<thread::JoinHandle<()>>,
}

impl Stand {
    fn new(name: &str, config: &str) -> Self {
        let folder = PrivateFolder::new(name).unwrap();
        let path = folder.join("router.toml");
        fs::write(&path, config).unwrap();
        let (ours, theirs) = pair();
        let permits = permits(config);
        let places = Places {
            config: path.clone(),
            notes: folder.join("router.sysctl"),
        };
        let thread = thread::spawn(move || serve(theirs.as_fd(), permits, &places, read).unwrap());
        Self {
            socket: Some(ours),
            path,
            folder,
            thread: Some(thread),
        }
    }

    fn ask(&self, request: &Request) -> Refusal {
        send(self.socket.as_ref().unwrap().as_fd(), request, &[]).unwrap();
        self.refusal()
    }

    /// Sends a request that succeeds; returns its descriptors.
    fn done(&self, request: &Request) -> Vec<OwnedFd> {
        let socket = self.socket.as_ref().unwrap().as_fd();
        send(socket, request, &[]).unwrap();
        match receive::<Reply>(socket).unwrap() {
            Received::Message(Ok(()), opened) => opened,
            other => panic!("{other:?}"),
        }
    }

    fn refusal(&self) -> Refusal {
        match receive::<Reply>(self.socket.as_ref().unwrap().as_fd()).unwrap() {
            Received::Message(Err(refusal), _) => refusal,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        // The privilege helper ends with the socket.
        drop(self.socket.take());
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

#[test]
fn only_name_spaces_that_the_file_names_now_are_opened() {
    let stand = Stand::new("names", CONFIG);
    let ask = |netns: &str| stand.ask(&Request::ControlSocket { netns: text(netns) });
    // Permitted, and the kernel says that there is none.
    assert!(ask("lr-no-such-space").problem.contains("os error 2"));
    let refused = ask("lr-nor-this-one");
    assert!(refused.problem.contains("does not name"), "{refused:?}");
    // A file with errors permits nothing more.
    let more =
        CONFIG.to_owned() + "[[port]]\nname = \"t\"\nspec = \"tap:t1,netns=lr-nor-this-one\"\n";
    fs::write(&stand.path, more.clone() + "[[port\n").unwrap();
    assert!(ask("lr-nor-this-one").problem.contains("does not name"));
    fs::write(&stand.path, more).unwrap();
    assert!(ask("lr-nor-this-one").problem.contains("os error 2"));
    // Names that it had before stay permitted.
    fs::write(&stand.path, "").unwrap();
    assert!(ask("lr-nor-this-one").problem.contains("os error 2"));
    for name in ["eth9", "../eth0", ""] {
        let refused = stand.ask(&Request::PacketSocket { name: text(name) });
        assert!(refused.problem.contains("does not name"), "{refused:?}");
    }
}

#[test]
fn files_are_those_that_ports_name_and_the_routers_own() {
    let config = "[[port]]\nname = \"a\"\n\
                  spec = \"null:,capture=out.pcapng\"\n\
                  [[port]]\nspec = \"pcap:rx=in.pcap,tx=to.pcapng,trace=-\"\n";
    let permits = permits(config);
    let read = |path: &str| permits.allow(&Request::ReadFile { path: path.into() });
    let write = |path: &str| {
        let path = path.into();
        permits.allow(&Request::WriteFile { path, add: false })
    };
    assert!(read("in.pcap") && write("to.pcapng") && write("out.pcapng"));
    for other in ["to.pcapng", "out.pcapng", "/etc/shadow", "../in.pcap"] {
        assert!(!read(other), "{other}");
    }
    for other in ["in.pcap", "/etc/shadow", "sub/../to.pcapng", ""] {
        assert!(!write(other), "{other}");
    }
    // If root has started it root opens them, without a capability.
    assert!(permits.take_none());
}

#[test]
fn a_shared_file_is_made_as_its_port_says() {
    let config = "[[port]]\nname = \"a\"\nspec = \"shm:/dev/shm/a,mode=0660\"\n\
                  [[port]]\nname = \"b\"\nspec = \"shm:/dev/shm/b,role=client\"\n";
    let named = permits(config);
    let ask = |path: &str, make: Option<(Option<u32>, Option<u32>)>| {
        let make = make.map(|(owner, mode)| Access { owner, mode });
        named.allow(&Request::SharedFile {
            path: path.into(),
            make,
        })
    };
    assert!(ask("/dev/shm/a", Some((None, Some(0o660)))) && ask("/dev/shm/b", None));
    assert!(!ask("/dev/shm/a", Some((None, Some(0o666)))));
    assert!(!ask("/dev/shm/a", Some((Some(0), Some(0o660)))));
    assert!(!ask("/dev/shm/b", Some((None, None))) && !ask("/etc/shadow", None));
    assert!(named.take_none());
    let given = "[[port]]\nname = \"a\"\nspec = \"shm:/dev/shm/a,owner=12345\"\n";
    let given = permits(given);
    assert!(!given.take_none());
    assert_eq!(given.capabilities(), CapabilitySet::CHOWN);
}

#[test]
fn sockets_are_those_that_ports_name_with_the_owner_that_they_name() {
    let config = "[[port]]\nname = \"a\"\nspec = \"memif:/run/a.sock,owner=7,mode=0660\"\n\
                  [[port]]\nname = \"b\"\nspec = \"memif:@b,role=client\"\n";
    let permits = permits(config);
    let listen = |address: &str, owner, mode| {
        permits.allow(&Request::ListenUnix {
            address: address.into(),
            messages: true,
            access: Access { owner, mode },
        })
    };
    assert!(listen("/run/a.sock", Some(7), Some(0o660)) && listen("@b", None, None));
    assert!(
        !listen("/run/a.sock", Some(8), Some(0o660)),
        "another owner"
    );
    assert!(!listen("/run/a.sock", Some(7), Some(0o666)), "another mode");
    assert!(!listen("/run/../run/a.sock", Some(7), Some(0o660)));
    let connect = |address: &str| {
        permits.allow(&Request::ConnectUnix {
            address: address.into(),
            messages: true,
        })
    };
    assert!(connect("@b") && connect("/run/a.sock") && !connect("/run/b.sock"));
    assert!(!permits.take_none());
    assert_eq!(permits.capabilities(), CapabilitySet::CHOWN);
}

/// They may be in a folder that other users can write: beside a control socket in the folder for
/// temporary files.
#[test]
fn notes_are_read_and_written_through_no_link() {
    let stand = Stand::new("notes", CONFIG);
    let (notes, victim) = (
        stand.folder.join("router.sysctl"),
        stand.folder.join("victim"),
    );
    fs::write(&victim, "kept").unwrap();
    std::os::unix::fs::symlink(&victim, &notes).unwrap();
    assert!(stand.ask(&Request::Notes).problem.contains("os error"));
    let note = |words: &str| {
        let request = Request::Note { text: text(words) };
        stand.done(&request)
    };
    assert!(note("/proc/sys/x 1\n").is_empty());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    let mut opened = stand.done(&Request::Notes);
    let file = fs::File::from(opened.remove(0));
    assert_eq!(std::io::read_to_string(file).unwrap(), "/proc/sys/x 1\n");
    note("");
    assert!(!notes.exists());
    let mut opened = stand.done(&Request::Configuration);
    let mut file = fs::File::from(opened.remove(0));
    assert_eq!(std::io::read_to_string(&file).unwrap(), CONFIG);
    assert!(file.write_all(b"x").is_err(), "it is to be read only");
}

#[test]
fn what_is_no_request_is_refused_and_the_next_one_is_answered() {
    let stand = Stand::new("nonsense", CONFIG);
    let say = |bytes: &[u8]| {
        let socket = stand.socket.as_ref().unwrap();
        rustix::net::send(socket, bytes, SendFlags::empty()).unwrap();
        stand.refusal()
    };
    for nonsense in [
        "x",
        "{}",
        "{\"Reboot\":{}}",
        "{\"PacketSocket\":{\"nam\":1}}",
    ] {
        assert!(say(nonsense.as_bytes()).problem.contains("no message"));
    }
    assert!(say(&[b' '; 70_000]).problem.contains("too long"));
    // It needs a program descriptor, and has none.
    let name = text("eth1");
    let lacking = stand.ask(&Request::XdpAttach { name, native: true });
    assert!(lacking.problem.contains("descriptor"), "{lacking:?}");
}

#[test]
fn descriptors_pass_beside_messages_and_are_the_same_files() {
    let (here, there) = pair();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let request = Request::XdpMap {
        name: text("eth1"),
        queue: 3,
    };
    send(here.as_fd(), &request, &[reader.as_fd(), here.as_fd()]).unwrap();
    let Received::Message(got, mut passed) = receive::<Request>(there.as_fd()).unwrap() else {
        panic!("no message");
    };
    assert_eq!((got, passed.len()), (request, 2));
    writer.write_all(b"x").unwrap();
    drop(writer);
    let mut pipe = std::io::PipeReader::from(passed.remove(0));
    assert_eq!(std::io::read_to_string(&mut pipe).unwrap(), "x");
    let three = [here.as_fd(); 3];
    assert!(send(here.as_fd(), &(), &three).is_err());
    drop((here, passed));
    assert!(matches!(
        receive::<Request>(there.as_fd()).unwrap(),
        Received::Closed
    ));
}

/// Any bytes, from random ones to almost valid requests, are refused.
#[test]
fn any_bytes_are_answered() {
    let stand = Stand::new("bytes", "[[port]]\nspec = \"null\"\n");
    let socket = stand.socket.as_ref().unwrap();
    let request = serde_json::to_vec(&Request::Tap {
        netns: None,
        name: text("lr-wan"),
        several: true,
    });
    let request = request.unwrap();
    let noise = proptest::collection::vec(proptest::num::u8::ANY, 1..200);
    let changes = proptest::collection::vec((0..request.len(), proptest::num::u8::ANY), 0..3);
    proptest::proptest!(|(noise in noise, changes in changes, cut in 1..=request.len())| {
        let mut almost = request.clone();
        for (at, byte) in changes {
            almost[at] = byte;
        }
        for bytes in [&noise[..], &almost, &almost[..cut]] {
            rustix::net::send(socket, bytes, SendFlags::empty()).unwrap();
            let refused = stand.refusal();
            assert!(!refused.problem.is_empty());
        }
    });
}
