//! What a reload says to its user: what never decides, what is in no zone, what cannot be.

use std::path::Path;

use linerate_control::Embedded;
use linerate_drivers::Drivers;
use linerate_testkit::Scratch;
use serde_json::{Value, json};

use crate::GATEWAY;

/// The stanzas that all of these files begin with.
const HEAD: &str = "[plan]\nbg = \"0\"\nio = \"1\"\ncpus = \"0,0\"\n\
     [router]\nkernel = false\nperiod = 0\n\
     [[port]]\nname = \"wan\"\nspec = \"ring:wan,loop=on\"\n\
     [flows]\nipv4 = 64\nipv6 = 64\n";
const WAN: &str = "[[interface]]\nport = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n";
const LAN: &str = "[[port]]\nname = \"lan\"\nspec = \"ring:lan,loop=on\"\n\
     [[interface]]\nport = \"lan\"\naddresses = [\"198.51.100.1/24\"]\n";

fn zones(outside: &str, inside: &str) -> String {
    format!(
        "[[zone]]\nname = \"outside\"\ninterfaces = [{outside}]\n\
         [[zone]]\nname = \"inside\"\ninterfaces = [{inside}]\n"
    )
}

/// A policy, a rule a line.
fn policy(rules: &[&str]) -> String {
    let rules: String = rules
        .iter()
        .map(|rule| format!("{{ {rule} }},\n"))
        .collect();
    format!("[[policy]]\nfrom = \"inside\"\nto = \"outside\"\nrules = [\n{rules}]\n")
}

/// The lines of an answer's warnings.
fn warnings(answer: &Value) -> Vec<&str> {
    let all = answer["warnings"].as_array().unwrap().iter();
    all.filter_map(Value::as_str).collect()
}

#[test]
fn a_reload_warns_by_line_and_refuses_what_cannot_be() {
    let scratch = Scratch::new();
    let file = scratch.file("gateway.toml");
    let tcp = "action = \"permit\", service = \"tcp\"";
    let web = "action = \"deny\", service = \"tcp/443\"";
    let put = |zones: &str, rules: &[&str], lan: &str| {
        let text = format!("{HEAD}{WAN}{lan}{zones}{}", policy(rules));
        std::fs::write(&file, &text).unwrap();
        // Where a line with this is.
        move |what: &str| 1 + text.lines().position(|line| line.contains(what)).unwrap()
    };
    let usual = zones("\"wan\"", "\"lan\"");
    let _ = put(&usual, &[web, tcp], LAN);
    let gateway = Embedded::start(GATEWAY, Path::new(&file), &mut Drivers::new(), 0).unwrap();
    let reload = || gateway.ask("reload", Value::Null);

    // The wider rule comes first now.
    let line = put(&usual, &[tcp, web], LAN);
    let said = reload().unwrap();
    let unreachable = format!(
        "{}: policy inside > outside rule 2: rule 1 has all its packets: it never decides; move it \
         up, or take it out",
        line("tcp/443")
    );
    assert_eq!(warnings(&said), [unreachable], "{said}");
    assert_eq!(said["policies"], 1);

    // A zone whose interface is taken away from it.
    let line = put(&zones("\"wan\"", ""), &[web, tcp], LAN);
    let said = reload().unwrap();
    let empty = format!(
        "{}: zone: this zone has no interface; name its interfaces, or take it out",
        line("name = \"inside\"") - 1
    );
    let all = warnings(&said);
    assert!(all.contains(&empty.as_str()), "{all:?}");
    let apart: Vec<_> = all.iter().filter(|one| one.contains("`lan`")).collect();
    assert_eq!(apart.len(), 1, "that it forwards nothing by lan: {all:?}");
    let flow = json!({ "flow": "198.51.100.9:1 > 192.0.2.9:443 tcp", "in": "lan" });
    let why = gateway.ask("explain", flow.clone()).unwrap();
    assert_ne!(why["verdict"], "permit", "{why}");

    // A zone whose interface is gone altogether: nothing changes, and the line is named.
    let line = put(&usual, &[web, tcp], "");
    let refused = reload().unwrap_err().to_string();
    let place = format!(
        "{}: zone.interfaces: there is no interface `lan`",
        line("interfaces = [\"lan\"]")
    );
    assert!(refused.contains(&place), "{refused}");
    assert_eq!(gateway.ask("explain", flow).unwrap(), why);
    gateway.stop().unwrap();
}
