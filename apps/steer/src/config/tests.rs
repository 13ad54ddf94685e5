//! What a file may say, and what is said of one that is wrong.

use std::time::Duration;

use linerate_appliance::config::{ConfigError, parse};
use linerate_stack::socket::IpOptions;
use linerate_stack::tcp::mtu_search::MtuProbing;

use super::apps::Kind;
use super::{Arrives, Distributor, File, Mode};
use crate::by_user::Extract;
use crate::http::client::load::{Arrivals, Load};
use crate::http::site::Content;
use crate::stream::{Amount, Peer};

const PORTS: &str = "[[port]]\nname = \"lan\"\nspec = \"tap:t0\"\n\
    [[interface]]\nport = \"lan\"\naddresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n";

fn read(text: &str) -> (File, Vec<String>) {
    let parsed = parse(&format!("{PORTS}{text}"), File::of);
    let errors = parsed.errors.iter().map(ConfigError::to_string);
    (parsed.value, errors.collect())
}

/// What stacks would not take is said of the file, before anything has changed.
#[test]
fn addresses_and_routes_that_no_host_has_are_refused() {
    for address in [
        "240.0.0.1/24",
        "0.1.2.3/8",
        "127.0.0.1/8",
        "255.255.255.255/32",
    ]
    .into_iter()
    .chain(["::ffff:192.0.2.1/96", "::1/128", "::/64", "ff02::1/64"])
    {
        let text = format!(
            "[[port]]\nname = \"wan\"\nspec = \"tap:t1\"\n\
             [[interface]]\nport = \"wan\"\naddresses = [\"{address}\"]\n"
        );
        let parsed = parse(&text, File::of);
        let errors: Vec<_> = parsed.errors.iter().map(ConfigError::to_string).collect();
        assert!(
            errors.len() == 1 && errors[0].contains("no address of an interface"),
            "{address}: {errors:?}"
        );
    }
    let route = |n: u32| {
        let to = std::net::Ipv4Addr::from(0x0a00_0000 | n << 8);
        format!("[[route]]\nto = \"{to}/24\"\nvia = \"192.0.2.254\"\n")
    };
    let routes: Vec<String> = (0..1025).map(route).collect();
    let (file, errors) = read(&routes[..1024].concat());
    assert_eq!((file.routes.len(), errors), (1024, vec![]));
    let (_, errors) = read(&routes.concat());
    assert!(
        errors.len() == 1 && errors[0].contains("more than 1024 routes"),
        "{errors:?}"
    );
}

#[test]
fn a_file_with_all_kinds_is_read() {
    let (file, errors) = read(
        "[steer]\nmode = \"software\"\nqueues = 1\ndrain_timeout = 5\n\
         [[route]]\nto = \"0.0.0.0/0\"\nvia = \"192.0.2.254\"\n\
         [tcp]\nconnections = 1000\ncongestion = \"reno\"\necn = \"request\"\nkeep_idle = 60\n\
         keepalive = true\nports = \"1024-2047\"\nfast_open = true\npath_metrics = false\n\
         mtu_probing = \"on\"\nretries1 = 4\ndscp = 8\nttl = 255\n\
         [[app]]\nkind = \"echo\"\nlisten = 7\nttl = 1\n\
         [[app]]\nkind = \"source\"\nconnect = \"192.0.2.2:9\"\nbytes = 100\n\
         connections = 3\ndscp = 46\n\
         [[app]]\nkind = \"sink\"\nlisten = \"192.0.2.1:9\"\n\
         [[app]]\nkind = \"http\"\nlisten = 80\nbodies = [\"/a=1\", \"/b=2\"]\nhead_timeout = 0.5\n\
         [[app]]\nkind = \"proxy\"\nlisten = 81\nto = \"[2001:db8::2]:80\"\n",
    );
    assert_eq!(errors, [""; 0]);
    assert_eq!(
        (file.mode.arrives, file.interfaces.len()),
        (Arrives::Software, 1)
    );
    assert_eq!((file.routes[0].interface, file.routes[0].to.1), (0, 0));
    assert_eq!(
        (file.stack.connections, file.stack.ports),
        (1000, 1024..=2047)
    );
    let tcp = &file.stack.tcp;
    assert!(tcp.keepalive && tcp.fast_open.server && !tcp.fast_open.client && !tcp.path_metrics);
    assert_eq!((tcp.mtu_probing, tcp.retries1), (MtuProbing::On, 4));
    let names: Vec<&str> = file.apps.iter().map(|app| app.name.as_str()).collect();
    assert_eq!(names, ["echo0", "source1", "sink2", "http3", "proxy4"]);
    let Kind::Source(peer, amount) = file.apps[1].kind else {
        panic!("{:?}", file.apps[1])
    };
    let to = "192.0.2.2:9".parse().unwrap();
    let ip = IpOptions {
        dscp: Some(46),
        ttl: None,
    };
    let expected = (Peer::Connect(to, 3, ip), Amount::Bytes(100));
    assert_eq!((peer, amount), expected);
    let Kind::Echo(echo) = file.apps[0].kind else {
        panic!("{:?}", file.apps[0])
    };
    assert_eq!((echo.ip.dscp, echo.ip.ttl), (None, Some(1)));
    assert_eq!((tcp.dscp, tcp.ttl), (8, 255));
    assert_eq!(file.drain, Some(Duration::from_secs(5)));
}

#[test]
fn what_is_wrong_is_said_with_line_key_and_fix() {
    for (text, key, problem) in [
        (
            "[[app]]\nkind = \"ecko\"\n",
            "app.kind",
            "`ecko` is unknown",
        ),
        ("[[app]]\nkind = \"echo\"\n", "app.listen", "it is missing"),
        (
            "[[app]]\nkind = \"echo\"\nlisten = 7\nfoo = 1\n",
            "app.foo",
            "there is no such key",
        ),
        (
            "[[app]]\nkind = \"echo\"\nlisten = 0\n",
            "app.listen",
            "port 0 is none",
        ),
        (
            "[[app]]\nkind = \"http\"\nlisten = 80\n",
            "app.files",
            "neither files nor bodies",
        ),
        (
            "[[app]]\nkind = \"source\"\nlisten = 9\n",
            "app.bytes",
            "it is missing",
        ),
        (
            "[[route]]\nto = \"0.0.0.0/0\"\nvia = \"198.51.100.1\"\n",
            "route.via",
            "in no network",
        ),
        ("[tcp]\nports = \"9-3\"\n", "tcp.ports", "no range of ports"),
        (
            "[tcp]\nreceive_bytes = 10000000\n",
            "tcp.receive_bytes_max",
            "below receive_bytes",
        ),
        ("[tcp]\ndscp = 64\n", "tcp.dscp", "64"),
        ("[tcp]\nttl = 0\n", "tcp.ttl", "0"),
        (
            "[[app]]\nkind = \"echo\"\nlisten = 7\ndscp = 256\n",
            "app.dscp",
            "256",
        ),
        ("[foo]\n", "foo", "there is no such key"),
        (
            "[[app]]\nkind = \"echo\"\nlisten = 7\n[[app]]\nkind = \"sink\"\nlisten = 7\n",
            "app.listen",
            "the same port, 7",
        ),
        (
            "[[app]]\nkind = \"echo\"\nlisten = 7\nuser = \"line\"\n",
            "app.user",
            "at the lcore of their user",
        ),
        (
            "[steer]\nmode = \"application\"\n\
             [[app]]\nkind = \"echo\"\nlisten = 7\nuser = \"first:x\"\n",
            "app.user",
            "no number of bytes",
        ),
        (
            "[steer]\nmode = \"software\"\nover = \"hardware\"\n",
            "steer.over",
            "over another",
        ),
        (
            "[steer]\ndistributor = \"rx+tx\"\n",
            "steer.distributor",
            "a NIC distributes",
        ),
        (
            "[steer]\nmap_entries = 100\n",
            "steer.map_entries",
            "only mode `application`",
        ),
    ] {
        let (_, errors) = read(text);
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(
            errors[0].contains(key) && errors[0].contains(problem),
            "{text}: {errors:?}"
        );
    }
}

#[test]
fn an_http_client_is_read() {
    let client = "[[app]]\nkind = \"http-client\"\nconnect = \"192.0.2.2:80\"\n";
    let (file, errors) = read(&format!(
        "{client}paths = [\"/a\", \"/b?c\"]\nhost = \"example.org\"\nconnections = 7\n\
         keep = false\nrate = 1000\narrivals = \"poisson\"\nrequests = 9\ntimeout = 0.5\n\
         expect_bytes = 64\n{client}"
    ));
    assert_eq!(errors, [""; 0]);
    let [Kind::HttpClient(one, _), Kind::HttpClient(usual, _)] =
        [&file.apps[0].kind, &file.apps[1].kind]
    else {
        panic!("{:?}", file.apps)
    };
    assert_eq!((one.paths.len(), one.host.as_str()), (2, "example.org"));
    assert_eq!((one.connections, one.keeps), (7, false));
    assert_eq!((one.requests, one.timeout.as_millis()), (Some(9), 500));
    let arrivals = Arrivals::Poisson;
    let per_s = 1000.0;
    assert_eq!(one.load, Load::Open { per_s, arrivals });
    assert!(matches!(one.expects, Some(Content::Pattern(64))));
    assert_eq!(
        (usual.load, usual.host.as_str()),
        (Load::Closed, "192.0.2.2:80")
    );
    for (text, key) in [
        ("paths = [\"a\"]\n", "app.paths"),
        ("paths = [\"/a b\"]\n", "app.paths"),
        ("host = \"a b\"\n", "app.host"),
        ("rate = 0\n", "app.rate"),
        ("arrivals = \"even\"\n", "app.arrivals"),
        ("expect = \"/no/such/file\"\n", "app.expect"),
        ("connections = 0\n", "app.connections"),
    ] {
        let (_, errors) = read(&format!("{client}{text}"));
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(errors[0].contains(key), "{text}: {errors:?}");
    }
}

#[test]
fn modes_and_users() {
    let (file, errors) = read(
        "[steer]\nmode = \"application\"\nover = \"software\"\ndistributor = \"rx,tx\"\n\
         map_entries = 5000\n\
         [[app]]\nkind = \"echo\"\nlisten = 7\nuser = \"field:X-User\"\n",
    );
    assert_eq!(errors, [""; 0]);
    let mode = Mode {
        arrives: Arrives::Software,
        application: true,
        distributor: Some(Distributor::Two),
        map_entries: Some(5000),
    };
    assert_eq!(file.mode, mode);
    assert!(matches!(&file.apps[0].by_user, Some(Extract::Field(name)) if name == "X-User"));
    let (file, errors) = read("[steer]\nmode = \"application\"\n");
    assert_eq!(errors, [""; 0]);
    assert_eq!(file.mode.arrives, Arrives::Hardware);
}

/// What a reload may change and what it may not.
#[test]
fn what_is_fixed_while_steer_runs_is_known_by_key() {
    let (old, _) = read("[tcp]\nconnections = 1000\n");
    let (new, _) = read(
        "[tcp]\nconnections = 1001\ncongestion = \"reno\"\nports = \"1-2\"\ndscp = 1\nttl = 2\n\
         challenges_per_second = 5\nkeep_idle = 3\nsent_frames = 100\n",
    );
    let keys = super::tcp_differences(&old.stack, &new.stack);
    let (fixed, free): (Vec<&str>, Vec<&str>) =
        (keys.iter().map(String::as_str)).partition(|key| super::TCP_FIXED.contains(key));
    assert_eq!(fixed, ["tcp.connections", "tcp.sent_frames"]);
    let expected = [
        "tcp.keep_idle",
        "tcp.dscp",
        "tcp.ttl",
        "tcp.challenges_per_second",
        "tcp.ports",
        "tcp.congestion",
    ];
    assert_eq!(free, expected);
    let (mut other, _) = read("");
    assert_eq!(super::interface_differences(&old, &other), [""; 0]);
    other.interfaces[0].addresses.pop();
    assert_eq!(super::interface_differences(&old, &other), [""; 0]);
    other.interfaces[0].mtu = Some(1400);
    other.interfaces[0].mac = Some(linerate_wire::MacAddr::local(1));
    let keys = super::interface_differences(&old, &other);
    assert_eq!(keys, ["interface.mtu", "interface.mac"]);
    // One that is gone has no keys.
    other.interfaces.clear();
    assert_eq!(super::interface_differences(&old, &other), [""; 0]);
}
