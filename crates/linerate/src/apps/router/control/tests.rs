//! A router on rings, without threads of its own around it: what it says of itself.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::mpsc;

use linerate_drivers::{Drivers, Own};

use super::desk::Desk;
use super::exposition;
use super::start::bring_up;
use super::*;

/// A router between two rings, in two VRFs, with one interface for tagged frames.
fn router(text: &str) -> Control {
    let text = format!(
        r#"[plan]
bg = "0"
io = "1"
cpus = "0,0"
[router]
kernel = false
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
{text}"#
    );
    let config = Config::parse(&text).unwrap_or_else(|wrong| panic!("{wrong:#?}"));
    let plan = place(&config).unwrap();
    let (sender, _events) = mpsc::channel();
    let run = Run {
        json: true,
        duration: None,
    };
    bring_up(
        Path::new("/no/such.toml"),
        config,
        &plan,
        &mut Drivers::new(),
        &Desk::new(sender),
        &run,
        Arc::new(Own),
    )
    .unwrap()
}

#[test]
fn the_metrics_page_keeps_to_its_format_and_has_what_the_dashboard_draws() {
    let control = router(
        "policer = { rate = \"100Mbit\", burst = \"64kB\" }\nacl_in = \"edge\"\n[[acl]]\nname = \"edge\"\n\
         default = \"permit\"\nrules = [{ action = \"reject\", protocol = \"tcp\" }]\n",
    );
    let page = control.metrics();
    let series = exposition::check(&page).unwrap_or_else(|wrong| panic!("{wrong}\n{page}"));
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
    let dashboard = include_str!("../../../../../../docs/grafana/router.json");
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
         [[acl]]\nname = \"edge\"\ndefault = \"permit\"\nrules = [{ action = \"reject\", log = true, \
         protocol = \"tcp\", destination_port = \"22\" }]\n",
    );
    let mut rows = |what: &str, filter: &str| {
        let params = json!({ "what": what, "filter": filter, "limit": 100 });
        let shown = show::show(&mut control, &params).unwrap();
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
    let wrong = show::show(&mut control, &json!({ "what": "prots" })).unwrap_err();
    assert!(wrong.fix.starts_with("perhaps ports"), "{}", wrong.fix);
}
