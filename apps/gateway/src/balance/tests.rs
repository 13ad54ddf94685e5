//! Services of a file: what is read, what is wrong, and which backend a flow goes to.

use std::collections::HashMap;
use std::net::IpAddr;

use linerate_appliance::config::{Parsed, parse};
use linerate_routing::model::Cidr;
use linerate_testkit::{Random, frame};
use linerate_wire::FlowKey;

use super::*;
use crate::dispatch::{Classes, Hash};
use crate::nat::Tuple;
use crate::nat::rewrite::{Translation4, Translation6};

fn read_text(text: &str) -> Parsed<Config> {
    let own: Vec<Cidr> = ["10.2.0.1/24", "fd00:2::1/64"]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    parse(text, |file| {
        let config = stanza::read(
            file,
            &stanza::Known {
                pools: &[("inner", true)],
                interfaces: &[("b", &own)],
            },
        );
        file.end();
        config
    })
}

#[track_caller]
fn right(text: &str) -> Config {
    let parsed = read_text(text);
    assert_eq!(parsed.errors, []);
    parsed.value
}

/// A service of this form with as many backends, of weight 1.
fn service(form: Form, backends: usize) -> Service {
    let is_v4 = !matches!(form, Form::Ipip(IpAddr::V6(_)) | Form::Gue(IpAddr::V6(_)));
    let address = |at: usize| -> IpAddr {
        match is_v4 {
            true => [10, 2, (at / 250) as u8, (at % 250) as u8 + 1].into(),
            false => format!("fd00:2::{at:x}").parse().unwrap(),
        }
    };
    let port = (form == Form::Nat).then_some(8080);
    Service {
        name: "web".into(),
        address: "198.51.100.80".parse().unwrap(),
        protocol: 6,
        ports: 80..=80,
        form,
        by_source: false,
        check: None,
        backends: (0..backends)
            .map(|at| Backend {
                address: address(at),
                port,
                weight: 1,
            })
            .collect(),
    }
}

fn balance(service: Service, old: Option<&Arc<Balance>>) -> Arc<Balance> {
    let services = vec![service];
    Balance::new(&Config { services }, old)
}

/// Flows of many clients to the service.
fn clients() -> impl Iterator<Item = Tuple> {
    let mut random = Random::new(7);
    (0..20_000).map(move |_| Tuple {
        src: Endpoint::new(
            [203, 0, random.below(256) as u8, random.below(256) as u8],
            random.below(65_536) as u16,
        ),
        dst: Endpoint::new([198, 51, 100, 80], 80),
        protocol: 6,
    })
}

/// The backend of each flow, by address.
fn chosen(balance: &Balance) -> Vec<IpAddr> {
    let tables = balance.board().tables();
    clients()
        .map(|tuple| tables.choose(&tuple).unwrap().unwrap().address)
        .collect()
}

#[test]
fn every_key_is_read() {
    let config = right(
        r#"
        [[balancer]]
        name = "web"
        address = "198.51.100.80"
        protocol = "tcp"
        ports = "80"
        form = "fullnat"
        pool = "inner"
        hash = "source"
        [balancer.check]
        kind = "http"
        path = "/healthz"
        host = "www.example.com"
        status = "200"
        port = 9000
        interval_ms = 500
        timeout_ms = 200
        rise = 1
        fall = 2
        [[balancer.backend]]
        address = "10.2.0.11"
        port = 8080
        weight = 3
        [[balancer.backend]]
        address = "10.2.0.12"
        [[balancer]]
        name = "dns"
        address = "198.51.100.80"
        protocol = "udp"
        ports = "53"
        form = "gue"
        source = "fd00:2::1"
        [[balancer.backend]]
        address = "fd00:2::12"
        weight = 0
        "#,
    );
    let [web, dns] = &config.services[..] else {
        panic!("{config:?}");
    };
    assert_eq!(web.form, Form::FullNat(0));
    assert!(web.by_source);
    let check = web.check.as_ref().unwrap();
    assert_eq!(
        (check.interval_ms, check.timeout_ms, check.rise, check.fall),
        (500, 200, 1, 2)
    );
    let kind = Kind::Http {
        path: "/healthz".into(),
        host: Some("www.example.com".into()),
        status: 200..=200,
    };
    assert_eq!(check.kind, kind);
    assert_eq!(web.check_port(&web.backends[0]), 9000);
    assert_eq!(web.backends[0].to_string(), "10.2.0.11:8080");
    assert_eq!((web.backends[0].weight, web.backends[1].weight), (3, 1));
    assert_eq!(dns.form, Form::Gue("fd00:2::1".parse().unwrap()));
    assert_eq!(dns.place(), "198.51.100.80:53 udp");
    assert!(config.translates());
}

#[test]
fn ports_and_statuses_are_numbers_or_texts() {
    let config = right(
        r#"
        [[balancer]]
        name = "web"
        address = "198.51.100.80"
        protocol = "tcp"
        ports = 80
        [balancer.check]
        kind = "http"
        status = 204
        [[balancer.backend]]
        address = "10.2.0.11"
        "#,
    );
    let service = &config.services[0];
    assert_eq!(service.ports, 80..=80);
    let kind = &service.check.as_ref().unwrap().kind;
    assert!(matches!(kind, Kind::Http { status, .. } if *status == (204..=204)));
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_the_fix() {
    let begin = "[[balancer]]\nname = \"a\"\naddress = \"198.51.100.80\"\nprotocol = \"tcp\"\n\
                 ports = \"80\"\n";
    let backend = "[[balancer.backend]]\naddress = \"10.2.0.11\"\n";
    for (text, says) in [
        (
            begin.to_string(),
            "1: balancer.backend: the service has no backend",
        ),
        (
            format!("{begin}form = \"ipip\"\n{backend}"),
            "balancer.source: it is missing",
        ),
        (
            format!("{begin}source = \"10.2.0.1\"\n{backend}"),
            "6: balancer.source: the service's form has none; with form = \"ipip\" or \"gue\"",
        ),
        (
            format!("{begin}form = \"ipip\"\nsource = \"10.9.0.1\"\n{backend}"),
            "7: balancer.source: 10.9.0.1 is an address of no interface",
        ),
        (
            format!("{begin}form = \"fullnat\"\npool = \"inne\"\n{backend}"),
            "7: balancer.pool: there is no pool `inne`; ",
        ),
        (
            format!("{begin}form = \"gue\"\nsource = \"10.2.0.1\"\n{backend}port = 81\n"),
            "10: balancer.backend.port: a backend that answers clients itself has the service's",
        ),
        (
            format!("{begin}{backend}{backend}"),
            "8: balancer.backend.address: 10.2.0.11 is given twice; each backend once",
        ),
        (
            format!("{begin}[[balancer.backend]]\naddress = \"fd00:2::11\"\n"),
            "7: balancer.backend.address: fd00:2::11 is not of the service's family",
        ),
        (
            format!(
                "{begin}{backend}{}{backend}",
                begin.replace("\"a\"", "\"b\"")
            ),
            "8: balancer.ports: service `a` has some of these ports",
        ),
        (
            format!(
                "{}[balancer.check]\nkind = \"tcp\"\n{backend}",
                begin.replace("tcp", "udp")
            ),
            "6: balancer.check: the service is UDP, and checks are TCP",
        ),
        (
            format!("{begin}[balancer.check]\nkind = \"tcp\"\npath = \"/\"\n{backend}"),
            "8: balancer.check.path: only HTTP has it; with kind = \"http\"",
        ),
        (
            format!("{begin}[balancer.check]\nkind = \"http\"\npath = \"/a b\"\n{backend}"),
            "8: balancer.check.path: `/a b` has spaces",
        ),
        (
            begin.replace("80\"\n", "0-80\"\n"),
            "5: balancer.ports: `0-80` begins with 0",
        ),
    ] {
        let errors = read_text(&text).errors;
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(
            errors.iter().any(|error| error.contains(says)),
            "{text}\n{errors:?}"
        );
    }
}

#[test]
fn what_is_no_service_is_left_alone() {
    let balance = balance(service(Form::Nat, 3), None);
    let tables = balance.board().tables();
    let tuple = clients().next().unwrap();
    assert!(tables.choose(&tuple).is_some());
    for other in [
        tuple.with_dst(Endpoint::new([198, 51, 100, 80], 81)),
        tuple.with_dst(Endpoint::new([198, 51, 100, 81], 80)),
        Tuple {
            protocol: 17,
            ..tuple
        },
        tuple.reversed(),
    ] {
        assert!(tables.choose(&other).is_none(), "{other}");
    }
    assert!(Tables::default().choose(&tuple).is_none());
}

/// Each backend gets its weight's share of the flows, and one without weight none.
#[test]
fn flows_are_shared_by_weight() {
    let mut service = service(Form::Nat, 5);
    let weights = [1, 2, 3, 4, 0];
    for (backend, weight) in service.backends.iter_mut().zip(weights) {
        backend.weight = weight;
    }
    let backends = service.backends.clone();
    let mut counts: HashMap<IpAddr, u32> = HashMap::new();
    for address in chosen(&balance(service, None)) {
        *counts.entry(address).or_default() += 1;
    }
    for backend in &backends {
        let share = f64::from(counts.get(&backend.address).copied().unwrap_or(0)) / 20_000.0;
        let fair = f64::from(backend.weight) / 10.0;
        assert!(
            (share - fair).abs() < 0.015,
            "{backend}: {share}, {fair} is fair"
        );
    }
}

/// Of new flows, those of a backend that goes choose others, and of the others under 1% (Maglev's
/// figure 12, at 65537 entries).
#[test]
fn a_backend_that_goes_moves_its_own_flows_alone() {
    let whole = balance(service(Form::Nat, 10), None);
    let before = chosen(&whole);
    let gone: IpAddr = [10, 2, 0, 4].into();
    let mut drained = service(Form::Nat, 10);
    drained.backends[3].weight = 0;
    let mut removed = service(Form::Nat, 10);
    removed.backends.remove(3);
    let after = chosen(&balance(drained, Some(&whole)));
    assert_eq!(after, chosen(&balance(removed, Some(&whole))));
    assert!(!after.contains(&gone));
    let moved = before.iter().zip(&after);
    let needless = moved.filter(|(before, after)| before != after && **before != gone);
    let needless = needless.count();
    assert!(needless < 200, "{needless} of 20000 moved needlessly");
}

/// Flows know their backend by its number, whatever else the file changes.
#[test]
fn a_backend_keeps_its_number_and_no_other_gets_it() {
    let numbers = |balance: &Balance| -> HashMap<String, u16> {
        let each = balance.each();
        each.map(|(_, backend, number)| (backend.to_string(), number))
            .collect()
    };
    let first = balance(service(Form::Nat, 4), None);
    let before = numbers(&first);
    assert!(!before.values().any(|number| *number == 0));
    let mut other = service(Form::Nat, 6);
    other.backends.reverse();
    other
        .backends
        .retain(|backend| backend.address != IpAddr::from([10, 2, 0, 2]));
    other.backends[0].weight = 0;
    let second = balance(other, Some(&first));
    let after = numbers(&second);
    let gone = before["10.2.0.2:8080"];
    assert!(!after.values().any(|number| *number == gone), "{after:?}");
    assert!(second.board().tables().target(gone).is_none());
    for (name, number) in &after {
        if let Some(before) = before.get(name) {
            assert_eq!(before, number, "{name}");
        }
    }
    // The same file is the same object: checks go on.
    let same = Balance::new(second.config(), Some(&second));
    assert!(Arc::ptr_eq(&same, &second));
    let all = Balance::new(&Config::default(), Some(&second));
    assert!(all.board().tables().is_empty());
    // Nor does one that comes when there was none.
    let third = numbers(&balance(service(Form::Nat, 4), Some(&all)));
    let known: Vec<u16> = before.values().chain(after.values()).copied().collect();
    let is_new = |number: &u16| !known.contains(number);
    assert!(third.values().all(is_new), "{third:?} {known:?}");
}

#[test]
fn clients_stay_with_a_backend_where_the_file_says_so() {
    let mut service = service(Form::Nat, 10);
    service.by_source = true;
    let balance = balance(service, None);
    let tables = balance.board().tables();
    for tuple in clients().take(1000) {
        let other = tuple.with_src(Endpoint::new(tuple.src.address, tuple.src.port ^ 0x55));
        let of = |tuple: &Tuple| tables.choose(tuple).unwrap().unwrap().number;
        assert_eq!(of(&tuple), of(&other));
    }
}

#[test]
fn a_service_whose_backends_are_drained_has_none() {
    let mut service = service(Form::Nat, 2);
    service.backends.iter_mut().for_each(|one| one.weight = 0);
    let balance = balance(service, None);
    let tuple = clients().next().unwrap();
    assert!(balance.board().tables().choose(&tuple).unwrap().is_err());
    let (chosen, text) = balance.explain(&tuple).unwrap();
    assert_eq!(chosen, None);
    assert!(text.contains("no backend is up"), "{text}");
}

/// What a packet becomes, and its answer the other way, are each other's inverse.
#[test]
fn to_the_backend_and_back_is_the_identity() {
    for is_v4 in [true, false] {
        let mut service = service(Form::Nat, 7);
        if !is_v4 {
            service.address = "2001:db8::80".parse().unwrap();
            for (at, backend) in service.backends.iter_mut().enumerate() {
                backend.address = format!("fd00:2::{at:x}").parse().unwrap();
            }
        }
        let vip = service.address;
        let balance = balance(service, None);
        let tables = balance.board().tables();
        for tuple in clients().take(2000) {
            let client = match (is_v4, tuple.src.address) {
                (false, IpAddr::V4(v4)) => v4.to_ipv6_mapped().into(),
                (_, address) => address,
            };
            let first = Tuple {
                src: Endpoint::new(client, tuple.src.port),
                dst: Endpoint::new(vip, 80),
                protocol: 6,
            };
            let becomes = tables.choose(&first).unwrap().unwrap().tuple;
            let (key, other) = (first.key().unwrap(), becomes.reversed().key().unwrap());
            let mut written = vec![0; 14];
            let (from, to) = (first.src.address.to_string(), first.dst.address.to_string());
            let tcp = |pseudo: &[u8]| frame::tcp(pseudo, first.src.port, first.dst.port, b"data");
            let packet = match is_v4 {
                true => {
                    let ip = frame::V4::new(&from, &to, 6);
                    ip.packet(&tcp(&ip.pseudo()))
                }
                false => {
                    let ip = frame::V6::new(&from, &to, 6);
                    ip.packet(&tcp(&ip.pseudo()))
                }
            };
            written.extend(&packet);
            let before = written.clone();
            match (key, other) {
                (FlowKey::V4(key), FlowKey::V4(other)) => {
                    let there = Translation4::new(&key, &other.reversed());
                    assert!(there.write(&mut written, 14, 34, false, false));
                    assert_ne!(written, before);
                    let back = Translation4::with(&key, there.differences().reversed());
                    assert!(back.write(&mut written, 14, 34, false, false));
                }
                (FlowKey::V6(key), FlowKey::V6(other)) => {
                    let there = Translation6::new(&key, &other.reversed());
                    assert!(there.write(&mut written, 14, 54, false, false));
                    assert_ne!(written, before);
                    let back = Translation6::with(&key, there.differences().reversed());
                    assert!(back.write(&mut written, 14, 54, false, false));
                }
                _ => panic!("{key:?} {other:?}"),
            }
            assert_eq!(written, before);
        }
    }
}

/// A client's packets, and the answers that go through the gateway, are of one bucket.
#[test]
fn a_client_and_its_backend_meet() {
    for form in [
        Form::Nat,
        Form::Ipip("10.2.0.1".parse().unwrap()),
        Form::Gue("fd00:2::1".parse().unwrap()),
    ] {
        let balance = balance(service(form, 7), None);
        let mut marked = Marked::default();
        balance.config().mark(&mut marked);
        let classes = Classes::new(Hash::new(3), &marked).unwrap();
        let tables = balance.board().tables();
        for tuple in clients().take(1000) {
            let becomes = tables.choose(&tuple).unwrap().unwrap().tuple;
            let bucket = |tuple: Tuple| classes.one(&tuple.key().unwrap());
            assert_eq!(
                bucket(tuple),
                bucket(becomes.reversed()),
                "{form:?}: {tuple}"
            );
        }
    }
}
