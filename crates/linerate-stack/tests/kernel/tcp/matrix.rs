//! Both roles over every kind of port, beside each congestion control that Linux has, IPv4 and
//! IPv6.

use linerate_stack::tcp::congestion::Algorithm;

use super::*;

/// Each port by which a stack meets a kernel.
const SPECS: [&str; 3] = [TAP, VETH, XDP];

/// Has the kernel's connections use a congestion control; false if this kernel lacks it.
fn linux_uses(namespace: &Unnamed, algorithm: &str) -> bool {
    let shown = namespace.run("sysctl", "-n net.ipv4.tcp_available_congestion_control");
    let available = String::from_utf8(shown.stdout).unwrap();
    if !available.split_whitespace().any(|name| name == algorithm) {
        skip(&format!("this kernel lacks {algorithm}"));
        return false;
    }
    // By the routes: the default of a namespace may only be one that every user may have.
    for route in [
        "route change 192.0.2.0/24 dev t0 proto kernel src 192.0.2.2",
        "-6 route change 2001:db8::/64 dev t0 proto kernel metric 256",
    ] {
        namespace.ip(&format!("{route} congctl {algorithm}"));
    }
    true
}

/// One row: Linux has an algorithm, we have the one of the same name.
fn row(spec: &str, name: &str) {
    let tcp = Config {
        algorithm: Algorithm::from_name(name).unwrap(),
        ..Config::default()
    };
    // Over AF_XDP nobody finishes segments that the kernel has left to be cut.
    let made = match spec {
        XDP => plain_server(spec, tcp),
        _ => server(spec, tcp),
    };
    let Some((namespace, mut server)) = made else {
        return;
    };
    if !linux_uses(&namespace, name) {
        return;
    }
    beside(&namespace, &mut server, || {
        for ours in OURS {
            for total in [1, 3_000_000] {
                echo(&mut connect(ours, ECHO), total);
            }
        }
        let mut all: Vec<_> = (0..100).map(|n| connect(OURS[n % 2], ECHO)).collect();
        for stream in &mut all {
            echo(stream, 5_000);
        }
    });
    server.settle();
    let kernel = echo_server(&namespace, 2 * KERNELS.len());
    for to in KERNELS {
        for total in [1, 3_000_000] {
            server.ask(SocketAddr::new(to.parse().unwrap(), PEER), total);
        }
    }
    kernel.join().unwrap();
    server.settle();
    let stats = server.stack.tcp_stats();
    let opened = (stats.opened_passive, stats.opened_active);
    assert_eq!(opened, (104, 4), "{spec} {name}");
}

#[test]
fn every_port_beside_reno() {
    SPECS.iter().for_each(|spec| row(spec, "reno"));
}

#[test]
fn every_port_beside_cubic() {
    SPECS.iter().for_each(|spec| row(spec, "cubic"));
}

#[test]
fn every_port_beside_bbr() {
    SPECS.iter().for_each(|spec| row(spec, "bbr"));
}
