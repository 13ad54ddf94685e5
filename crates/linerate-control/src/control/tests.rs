//! A router on rings, without threads of its own around it: what it says of itself.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::OnceLock;

use linerate_drivers::{Drivers, Own};

use super::server::reload_by;
use super::start::{Access, bring_up};
use super::*;
use crate::extension::{Appliance, Extension};
use linerate_appliance::control::answers::Answers;
use linerate_appliance::control::mailbox::Mailbox;
use linerate_appliance::control::reload::Outcomes;
use linerate_appliance::control::show::Rows;
use linerate_routing::plane::acl::AccessList;
use linerate_routing::plane::counters::Counters;

/// A configuration of two rings, in two VRFs, with one interface for tagged frames.
fn config(more: &str) -> Config {
    Config::parse(&text(more)).unwrap_or_else(|wrong| panic!("{wrong:#?}"))
}

fn text(more: &str) -> String {
    format!(
        r#"[plan]
bg = "0"
io = "1"
cpus = "0,0"
[router]
kernel = false
routes = 50
[[vrf]]
name = "blue"
[[port]]
name = "wan"
spec = "ring:w,loop=on"
[[port]]
name = "lan"
spec = "ring:l,loop=on"
[[interface]]
port = "wan"
addresses = ["192.0.2.1/24"]
[[interface]]
port = "lan"
vlan = 5
vrf = "blue"
addresses = ["198.51.100.1/24"]
{more}"#
    )
}

/// A router of such a configuration.
fn router(text: &str) -> Control {
    let config = config(text);
    let machine = linerate_core::env::Topology::machine().unwrap();
    let plan = place(&config, &machine).unwrap();
    let (mailbox, _jobs) = Mailbox::new("router");
    let run = Run {
        json: true,
        duration: None,
    };
    bring_up(
        Path::new("/no/such.toml"),
        config,
        &plan,
        &mut Drivers::new(),
        &mailbox,
        &run,
        &Access {
            privileged: Arc::new(Own),
            socket: "/no/such.sock".into(),
        },
    )
    .unwrap()
}

#[test]
fn the_metrics_page_keeps_to_its_format_and_has_what_the_dashboard_draws() {
    let mut control = router(
        "policer = { rate = \"100Mbit\", burst = \"64kB\" }\nacl_in = \"edge\"\n[[acl]]\nname = \
         \"edge\"\n\
         default = \"permit\"\nrules = [{ action = \"reject\", protocol = \"tcp\" }]\n",
    );
    let page = control.metrics(Some(&Outcomes::default())).unwrap();
    let series = linerate_appliance::control::exposition::check(&page)
        .unwrap_or_else(|wrong| panic!("{wrong}\n{page}"));
    assert!(series > 40, "{page}");
    // However many rules, a list has three samples.
    for sample in [
        "linerate_acl_packets_total{acl=\"edge\",action=\"permit\"} 0\n",
        "linerate_acl_packets_total{acl=\"edge\",action=\"deny\"} 0\n",
        "linerate_acl_packets_total{acl=\"edge\",action=\"reject\"} 0\n",
        "linerate_interface_policed_packets_total{interface=\"lan.5\",vrf=\"blue\"} 0\n",
    ] {
        assert!(page.contains(sample), "{sample}{page}");
    }
    let dashboard = include_str!("../../../../docs/grafana/router.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let mut asked = 0;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let texts = dashboard.to_string();
    for word in texts.split(|c| !is_word(c)) {
        if !word.starts_with("linerate_") {
            continue;
        }
        asked += 1;
        let family = word.strip_suffix("_total").unwrap_or(word);
        assert!(
            page.contains(&format!("# TYPE {family} ")),
            "the dashboard asks for {word}, which the page does not have"
        );
    }
    assert!(asked > 15);
}

#[test]
fn every_table_can_be_shown() {
    let mut control = router(
        "[[neighbour]]\naddress = \"192.0.2.9\"\nmac = \"02:00:00:00:00:09\"\ninterface = \"wan\"\n\
         [[acl]]\nname = \"edge\"\ndefault = \"permit\"\nrules = [{ action = \"reject\", log = \
         true, protocol = \"tcp\", destination_port = \"22\" }]\n",
    );
    let mut rows = |what: &str, filter: &str| {
        let params = json!({ "filter": filter, "limit": 100 });
        let shown = control.show(what, &params).unwrap().end();
        shown["rows"].as_array().unwrap().clone()
    };
    assert_eq!(rows("ports", "").len(), 2);
    assert_eq!(rows("interfaces", "lan.5")[0]["vrf"], "blue");
    let blue = rows("routes", "198.51.100.0/24");
    // Network, own address, broadcast address.
    assert_eq!(blue.len(), 3, "{blue:?}");
    assert!(blue.iter().all(|row| row["vrf"] == "blue"), "{blue:?}");
    assert_eq!(rows("neighbours", "wan")[0]["mac"], "02:00:00:00:00:09");
    assert_eq!(rows("lcores", "bg0").len(), 1);
    let path = rows("path", "");
    let stages: Vec<&str> = path
        .iter()
        .filter_map(|row| row["stage"].as_str())
        .collect();
    assert_eq!(
        stages,
        [
            "pipeline",
            "receive",
            "vlan",
            "parse",
            "validate",
            "reassembly",
            "policer",
            "acl_in",
            "reverse_path",
            "lookup",
            "acl_out",
            "rewrite",
            "exceptions",
            "transmit",
            "punt",
            "icmp_error",
            "sent",
            "drop",
            "slow"
        ]
    );
    assert!(
        path.iter()
            .all(|row| row["cycles"].is_null() && row["unaccounted"] == 0)
    );
    assert_eq!(rows("path", "lookup").len(), 1);
    assert_eq!(rows("path", "cycles").len(), stages.len());
    let acls = rows("acls", "edge");
    let said = |row: &Value| format!("{} {} {}", row["rule"], row["action"], row["matches"]);
    let said: Vec<_> = acls.iter().map(|row| said(row).replace('"', "")).collect();
    assert_eq!(
        said,
        [
            "1 reject tcp any > any port 22",
            "default permit all others"
        ]
    );
    assert_eq!(
        (&acls[0]["packets"], &acls[0]["log"]),
        (&json!(0), &json!(true))
    );
    let wrong = control.show("prots", &Value::Null).unwrap_err();
    assert!(wrong.fix.starts_with("perhaps ports"), "{}", wrong.fix);
}

/// An access list, and routes to so many networks, of which the third leads by the last `gateway`.
fn routes(count: usize, gateway: &str) -> String {
    let mut text = String::from(
        "[[acl]]\nname = \"edge\"\ndefault = \"permit\"\nrules = [{ action = \"deny\", protocol = \
         \"udp\" }]\n\
         [[neighbour]]\naddress = \"192.0.2.9\"\nmac = \"02:00:00:00:00:09\"\ninterface = \
         \"wan\"\n",
    );
    for number in 0..count {
        let via = if number == 2 { gateway } else { "192.0.2.9" };
        text += &format!("[[route]]\nprefix = \"10.0.{number}.0/24\"\nvia = \"{via}\"\n");
    }
    text
}

/// What a reload may touch: publications of both families, and what the workers have.
fn touched(control: &Control) -> ([u64; 2], Arc<Settings>, Vec<Arc<Counters>>) {
    let published = control.rib.counts().published;
    let (settings, counters) = (control.installed.clone(), control.workers.counters.clone());
    (published, settings, counters)
}

#[test]
fn a_reload_of_the_same_file_touches_no_route_and_no_worker() {
    let mut control = router(&routes(50, "192.0.2.9"));
    let before = touched(&control);
    let result = control
        .reload(Ok(config(&routes(50, "192.0.2.9"))))
        .unwrap();
    assert_eq!(result["text"], "nothing changed");
    let after = touched(&control);
    assert_eq!(before.0, after.0);
    assert!(Arc::ptr_eq(&before.1, &after.1));
    let same = |(a, b): (&Arc<Counters>, &Arc<Counters>)| Arc::ptr_eq(a, b);
    assert!(before.2.iter().zip(&after.2).all(same));
}

#[test]
fn a_reload_that_changes_one_route_touches_that_route_and_no_worker() {
    let mut control = router(&routes(50, "192.0.2.9"));
    let before = touched(&control);
    let result = control
        .reload(Ok(config(&routes(50, "192.0.2.10"))))
        .unwrap();
    assert_eq!(result["text"], "changed: 1 route");
    let after = touched(&control);
    assert_eq!(after.0, [before.0[0] + 1, before.0[1]]);
    assert!(Arc::ptr_eq(&before.1, &after.1));
    let params = json!({ "filter": "10.0.2.0/24", "limit": 9 });
    let shown = control.show("routes", &params).unwrap().end().to_string();
    assert!(shown.contains("192.0.2.10"), "{shown}");
}

#[test]
fn lists_that_stay_are_the_same_to_the_workers_and_others_are_not() {
    let mut control = router(&routes(3, "192.0.2.9"));
    let before = control.installed.clone();
    let more = "[[acl]]\nname = \"core\"\ndefault = \"deny\"\n";
    let text = routes(3, "192.0.2.9") + more;
    let result = control.reload(Ok(config(&text))).unwrap();
    assert_eq!(result["text"], "changed: 1 access list");
    assert!(Arc::ptr_eq(&before.acls[0], &control.installed.acls[0]));
    assert_eq!(control.installed.acls.len(), 2);
}

#[test]
fn a_route_that_found_no_room_gets_that_of_one_that_goes() {
    let mut control = router(&routes(51, "192.0.2.9"));
    let counts = |control: &Control| (control.rib.counts().routes[0], control.turned_away);
    assert_eq!(counts(&control), (50, true));
    control
        .reload(Ok(config(&routes(51, "192.0.2.9"))))
        .unwrap();
    assert_eq!(counts(&control), (50, true));
    // It is the last one, and has not changed; another one goes.
    let mut fewer = config(&routes(51, "192.0.2.9"));
    fewer.routes.remove(7);
    control.reload(Ok(fewer)).unwrap();
    assert_eq!(counts(&control), (50, false));
}

/// An appliance that asks control something while it prepares a file.
struct Asks;

static MAILBOX: OnceLock<Mailbox<Control>> = OnceLock::new();
static COMPILED: OnceLock<Vec<Arc<AccessList>>> = OnceLock::new();

impl Extension for Asks {
    fn name(&self) -> &'static str {
        "router"
    }

    fn prepare(&self, config: &mut Config, _: Option<&crate::Own>) -> Result<(), Error> {
        let mailbox = MAILBOX.get().unwrap();
        let ports = mailbox.call(|control| control.show("ports", &json!({})).map(Rows::end));
        assert_eq!(ports.unwrap().unwrap()["rows"][0]["name"], "wan");
        // Lists are compiled by now, and control has answered since.
        let lists = config.lists.iter().map(|list| list.name.clone());
        assert_eq!(lists.collect::<Vec<_>>(), ["same", "edge"]);
        assert!(COMPILED.set(config.lists.clone()).is_ok());
        config.prepared = Some(Arc::new(7_u8));
        Ok(())
    }

    fn build(
        &self,
        config: &Config,
        _: &Settings,
        _: Option<&crate::Own>,
    ) -> Result<Option<crate::Own>, Error> {
        Ok(config.prepared.clone())
    }
}

#[test]
fn control_answers_while_what_takes_long_of_a_reload_is_made() {
    let folder = linerate_core::env::PrivateFolder::new("test").unwrap();
    let file = folder.join("router.toml");
    let list = |name: &str, rules: u32| {
        let rule = |rule| format!("{{ action = \"deny\", source = \"10.0.0.{rule}/32\" }}, ");
        let rules: String = (0..rules).map(rule).collect();
        format!("[[acl]]\nname = \"{name}\"\ndefault = \"permit\"\nrules = [{rules}]\n")
    };
    std::fs::write(&file, text(&(list("same", 2) + &list("edge", 200)))).unwrap();
    let (mailbox, jobs) = Mailbox::new("router");
    assert!(MAILBOX.set(mailbox.clone()).is_ok());
    let mut control = router(&(list("edge", 199) + &list("same", 2)));
    let before = control.settings.acls.clone();
    let reload = reload_by(Appliance(&Asks), mailbox, &file, Arc::new(Own));
    let reloads = std::thread::spawn(move || reload.now());
    while !reloads.is_finished() {
        if let Ok(job) = jobs.recv_timeout(Duration::from_millis(10)) {
            job(&mut control);
        }
    }
    let said = reloads.join().unwrap().unwrap();
    assert_eq!(said["text"], "changed: 1 access list");
    let (lists, compiled) = (&control.settings.acls, COMPILED.get().unwrap());
    assert!(lists.iter().zip(compiled).all(|(a, b)| Arc::ptr_eq(a, b)));
    assert!(
        Arc::ptr_eq(&lists[0], &before[1]),
        "what stays is not compiled again"
    );
    let built = control.built.clone().unwrap().downcast::<u8>().unwrap();
    assert_eq!(*built, 7, "what was prepared is what workers get");
}
