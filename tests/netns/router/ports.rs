//! The interfaces of the kernel below the router's ports: changes while it runs, and ownership.

use super::instance::{Router, port, two_ports};
use super::site::{GATE4, LEFT4, LEFT6, RIGHT4, Site, ping_hears, reaches};
use linerate_testkit::Scratch;
use linerate_testkit::cli::{L2fwd, binary};
use linerate_testkit::netns::Namespace;
use linerate_testkit::wait;
use linerate_testkit::{harness::Test, tests};
use rustix::process::Signal;

pub(crate) const TESTS: &[Test] = tests![
    another_mtu_over_af_packet,
    another_mtu_over_af_xdp,
    another_mac_address,
    a_new_peer_behind_af_packet,
    a_new_peer_behind_af_xdp,
    a_link_gone_for_a_moment,
    missing_interfaces_and_folders_are_errors_before_the_start,
    an_interface_belongs_to_one_process,
];

/// Waits until `ip link` shows this text for a kernel interface.
#[track_caller]
fn kernel_says(namespace: &Namespace, interface: &str, text: &str) {
    wait(&format!("{interface} to have {text}"), || {
        let said = namespace.ip(&format!("link show {interface}"));
        said.contains(text)
    });
}

/// The MTU of a port's interface changes, down and up again: senders get errors, and the host
/// interface follows.
fn another_mtu(kind: &str) {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports(kind, "", "");
    let mut router = Router::start(&site.mid, &scratch, &config);
    site.works();
    site.mid.ip("link set dev b mtu 1400");
    router.says("port b: its MTU is 1400 now, it was 1500");
    kernel_says(&site.mid, "lr-b", "mtu 1400");
    // The MTU is that of the RFC 1191 and RFC 8201 messages.
    ping_hears(
        &site.left,
        &format!("-c 1 -W 2 -M do -s 1472 {RIGHT4}"),
        "1400",
    );
    let right6 = super::site::RIGHT6;
    ping_hears(
        &site.left,
        &format!("-c 1 -W 2 -M do -s 1452 {right6}"),
        "1400",
    );
    assert!(
        router.dropped("too_big") >= 2,
        "{}",
        router.ctl("show drops")
    );
    // A reload keeps it.
    router.reload(&(config + "\n[[route]]\nprefix = \"10.88.0.0/16\"\nblackhole = true\n"));
    let mtu = |router: &Router| router.show("interfaces")["rows"][1]["mtu"].clone();
    assert_eq!(mtu(&router), 1400);
    site.mid.ip("link set dev b mtu 1500");
    router.says("port b: its MTU is 1500 now, it was 1400");
    kernel_says(&site.mid, "lr-b", "mtu 1500");
    // Workers take the new MTU over shortly after the message. A host that sends before that gets
    // the old one again and keeps it for ten minutes, so the test flushes its cache before each
    // attempt.
    wait("a full-size packet to arrive", || {
        site.left.ip("-4 route flush cache");
        let words = format!("-c 1 -W 1 -M do -s 1472 {RIGHT4}");
        site.left.run("ping", &words).status.success()
    });
    router.stop();
}

fn another_mtu_over_af_packet() {
    another_mtu("af_packet");
}

fn another_mtu_over_af_xdp() {
    another_mtu("af_xdp");
}

/// A port's MAC address changes under it: so does that of its host interface, and hosts learn it.
fn another_mac_address() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let mut router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    site.works();
    let new = "02:12:34:56:78:9a";
    site.mid.ip(&format!("link set dev a address {new}"));
    router.says(&format!("port a: its MAC address is {new} now"));
    kernel_says(&site.mid, "lr-a", new);
    let knows = || {
        let known = site.left.ip("neigh show dev veth0");
        known
            .lines()
            .any(|line| line.starts_with(GATE4) && line.contains(new))
    };
    wait("the host to hear of it", knows);
    site.works();
    router.stop();
}

/// After a port was made again, another station with the same address is behind it, which sends
/// nothing by itself. It is found by a broadcast request, without a failure in between.
fn a_new_peer(kind: &str) {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let router = Router::start(&site.mid, &scratch, &two_ports(kind, "", ""));
    site.works();
    let old = site.left.mac("veth0");
    // Traffic to it continues meanwhile.
    let mut pings = site.right.start("ping", &format!("-n -i 0.1 {LEFT4}"));
    pings.wait("the first answers", |stdout, _| stdout.all().len() > 3);
    site.mid.ip("link del dev a");
    super::site::link(&site.left, "veth0", &site.mid, "a");
    assert_ne!(site.left.mac("veth0"), old);
    site.left.ip(&format!("addr add {LEFT4}/24 dev veth0"));
    site.left.ip(&format!("addr add {LEFT6}/64 dev veth0"));
    site.left.ip(&format!("route add default via {GATE4}"));
    let answers = pings.stdout.all().len();
    pings.wait("answers of the other one", |stdout, _| {
        stdout.all().len() > answers + 3
    });
    assert_eq!(router.dropped("neighbour_unresolved"), 0, "it was given up");
    drop(pings);
    router.stop();
}

fn a_new_peer_behind_af_packet() {
    a_new_peer("af_packet");
}

fn a_new_peer_behind_af_xdp() {
    a_new_peer("af_xdp");
}

/// A link that was down for less than the polling interval is still detected.
fn a_link_gone_for_a_moment() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let mut router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    site.works();
    site.mid.ip("link set dev a down");
    site.mid.ip("link set dev a up");
    router.says("port a ");
    let said = router.said();
    let told = ["port a was down for a moment", "port a is down"];
    assert!(told.iter().any(|text| said.contains(text)), "{said}");
    site.works();
    router.stop();
}

/// Runs the router in a site's middle to its end: exit code, and output.
fn ends(site: &Site, words: &str) -> (Option<i32>, String) {
    let output = site.mid.run(binary(), &format!("router {words}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    (output.status.code(), said)
}

fn file(scratch: &Scratch, name: &str, config: &str) -> String {
    let (file, socket) = (
        scratch.file(&format!("{name}.toml")),
        scratch.file(&format!("{name}.sock")),
    );
    let head = format!("[plan]\nio = \"0\"\n\n[router]\ncontrol = \"{socket}\"\n");
    std::fs::write(&file, head + config).unwrap();
    file
}

/// All problems of the machine at once; an address of the kernel is named, with the fix.
fn missing_interfaces_and_folders_are_errors_before_the_start() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    for kind in ["af_packet", "af_xdp"] {
        site.mid.ip("addr add 10.1.0.9/24 dev a");
        site.mid.ip("addr add fd00:1::9/64 dev a");
        let config = two_ports(kind, "", "");
        let path = file(&scratch, "addresses", &config);
        for words in [format!("{path} --check"), path.clone()] {
            let (code, said) = ends(&site, &words);
            assert_eq!(code, Some(1), "{said}");
            for part in [
                "port `a`",
                "10.1.0.9/24",
                "ip addr del 10.1.0.9/24 dev a",
                "fd00:1::9/64",
                "net.ipv6.conf.a.disable_ipv6=1",
            ] {
                assert!(said.contains(part), "no `{part}` in: {said}");
            }
        }
        assert!(!site.mid.has("lr-a"), "something was begun");
        let (code, said) = ends(&site, &format!("{path} --check=file"));
        assert_eq!(code, Some(0), "{said}");
        site.mid.ip("addr del 10.1.0.9/24 dev a");
        site.mid.ip("addr del fd00:1::9/64 dev a");
        let (code, said) = ends(&site, &format!("{path} --check"));
        assert_eq!(code, Some(0), "{said}");
    }
    // A reload that adds such a port is refused, and changes nothing.
    let one = port("af_packet", "a", &["10.1.0.1/24"], "");
    let router = Router::start(&site.mid, &scratch, &one);
    site.mid.ip("addr add 10.2.0.9/24 dev b");
    let output = router.try_reload(&two_ports("af_packet", "", ""));
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(
        !output.status.success() && said.contains("10.2.0.9/24"),
        "{said}"
    );
    router.stop();
    let many = two_ports("af_packet", "", "")
        + &port("af_xdp", "cc", &["10.3.0.1/24"], "")
        + "\n[[vrf]]\nname = \"blue\"\nnetns = \"lr-nowhere\"\n\
           \n[[port]]\nname = \"r\"\nspec = \"ring:r,capture=/no/such/folder/r.pcapng\"\n\
           \n[[interface]]\nport = \"r\"\nvrf = \"blue\"\n";
    let (code, said) = ends(&site, &format!("{} --check", file(&scratch, "many", &many)));
    assert_eq!(code, Some(1), "{said}");
    for part in [
        "10.2.0.9/24",
        "no interface `cc`",
        "lr-nowhere",
        "/no/such/folder",
    ] {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }
}

/// One process owns an interface, for every kind of port; a kill releases it.
fn an_interface_belongs_to_one_process() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports("af_packet", "", "");
    let mut router = Router::start(&site.mid, &scratch, &config);
    let own = format!("process {}", router.running().pid().as_raw_nonzero());
    // The check before a reload.
    let running = scratch.file("router.toml");
    let (code, said) = ends(&site, &format!("{running} --check"));
    assert_eq!(code, Some(0), "{said}");
    for kind in ["af_packet", "af_xdp"] {
        let other = two_ports(kind, "host_interface = \"x0\"", "host_interface = \"x1\"");
        let other = file(&scratch, "other", &other);
        for words in [format!("{other} --check"), format!("{other} --duration 5")] {
            let (code, said) = ends(&site, &words);
            assert_eq!(code, Some(1), "{said}");
            assert!(said.contains("`a`") && said.contains(&own), "{said}");
        }
    }
    let output = site
        .mid
        .run(binary(), "l2fwd af_packet:b null: --duration 5");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(&own), "{said}");
    // A port with another specification replaces its predecessor.
    let other = config.replacen("af_packet:a", "af_packet:a,handover=frame", 1);
    router.reload(&other);
    site.works();
    router.kill();
    let l2fwd = L2fwd::start(&site.mid, "af_packet:a af_packet:b --no-mac-update");
    l2fwd.stop(Signal::INT);
    let router = Router::start(&site.mid, &scratch, &config);
    reaches(&site.left, RIGHT4);
    router.stop();
}
