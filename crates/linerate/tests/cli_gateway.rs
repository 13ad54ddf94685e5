//! `linerate gateway` from outside: its example, what `--check` says, and what it refuses.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use linerate_testkit::Scratch;
use serde_json::Value;

fn linerate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(args)
        .output()
        .expect("the binary runs")
}

/// What a command that must succeed prints.
fn said(args: &[&str]) -> String {
    let output = linerate(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a command that must fail because of its file (EX_CONFIG).
fn misconfigured(args: &[&str]) -> String {
    let output = linerate(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{args:?}: {stderr}");
    stderr
}

const PORTS: &str = "[router]\nkernel = false\n[[port]]\nname = \"a\"\nspec = \"ring:a\"\n\
    [[port]]\nname = \"b\"\nspec = \"ring:b\"\n";

fn written(scratch: &Scratch, text: &str) -> String {
    let file = scratch.file("gateway.toml");
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn the_example_is_sound_and_a_router_refuses_it() {
    let scratch = Scratch::new();
    let file = written(&scratch, &said(&["gateway", "--print", "example"]));
    let text = said(&["gateway", &file, "--check=file"]);
    for line in [
        "zone inside: lan",
        "policy inside > outside: rules 0, others permit",
        "policy outside > inside: rules 2, others deny",
        "nat: rules of sources 2, static addresses and forwards 1",
        "flows of each worker: 262144 of IPv4, 65536 of IPv6",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(
        !text.contains("gateway.toml:"),
        "no line is warned of: {text}"
    );
    let json = said(&["gateway", &file, "--check=file", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    // Flows are known by ports, which later fragments lack.
    let does = json["interfaces"][0]["does"].to_string();
    assert!(does.contains("reassembles"), "{json}");
    let refused = misconfigured(&["router", &file, "--check=file"]);
    assert!(
        refused.contains("zone: a router has no such stanza"),
        "{refused}"
    );
    assert!(refused.contains("`linerate gateway`"), "{refused}");
    let unit = said(&["gateway", "--print", "unit"]);
    assert!(unit.contains("ExecStart=linerate gateway /etc/linerate/gateway.toml"));
}

#[test]
fn all_that_is_wrong_with_zones_and_policies_is_said_at_once() {
    let scratch = Scratch::new();
    let text = format!(
        "{PORTS}[flows]\nipv4 = 0\n\
         [[zone]]\nname = \"in\"\ninterfaces = [\"a\", \"c\"]\n\
         [[zone]]\nname = \"in\"\ninterfaces = [\"a\"]\n\
         [[policy]]\nfrom = \"in\"\nto = \"out\"\n\
         [[policy]]\nfrom = \"in\"\nto = \"in\"\ndefault = \"maybe\"\n\
         rules = [{{ action = \"permit\", service = \"tpc/80\", log = true }}]\n"
    );
    let wrong = misconfigured(&["gateway", &written(&scratch, &text), "--check=file"]);
    for problem in [
        ":10: flows.ipv4: 0 is out of range",
        ":13: zone.interfaces: there is no interface `c`",
        ":15: zone.name: `in` names two zones",
        ":16: zone.interfaces: `a` is in zone `in` already",
        ":19: policy.to: there is no zone `out`",
        ":23: policy.default: `maybe`",
        ":24: policy in > in rule 1: service: there is no protocol `tpc`",
    ] {
        assert!(wrong.contains(problem), "{problem}: {wrong}");
    }
    assert!(wrong.contains("`linerate gateway"), "{wrong}");
}

#[test]
fn modes_of_dispatch_say_what_they_lack() {
    let scratch = Scratch::new();
    let text = |io: &str, eu: &str, rest: &str| {
        let plan = format!("[plan]\nbg = \"0\"\nio = \"{io}\"\n{eu}cpus = \"0,0,0,0\"\n");
        format!("{plan}{PORTS}[flows]\nipv4 = 1000\n{rest}")
    };
    let wrong = |io, eu, rest: &str| {
        let file = written(&scratch, &text(io, eu, rest));
        misconfigured(&["gateway", &file, "--check=file"])
    };
    let fits = |io, eu, rest: &str| {
        let file = written(&scratch, &text(io, eu, rest));
        said(&["gateway", &file, "--check=file"])
    };
    let mode = |mode: &str, rest: &str| format!("[dispatch]\nmode = \"{mode}\"\n{rest}");
    let nat = "[nat]\n[[nat.pool]]\nname = \"p\"\naddresses = [\"192.0.2.9\"]\n\
               [[nat.source]]\npool = \"p\"\n";
    let of_some = format!("{nat}source = \"10.0.0.0/8\"\n");
    let eu = "eu = \"2,3\"\n";

    let said = wrong("1,2", "", "");
    assert!(said.contains("[plan] io has 2 lcores"), "{said}");
    assert!(said.contains("[dispatch] mode = \"balanced\""), "{said}");
    fits("1,2", "", &mode("rss", ""));
    let said = wrong("1,2", "", &mode("rss", nat));
    assert!(
        said.contains("pool `p` has mapping = \"independent\""),
        "{said}"
    );
    let dependent = nat.replace("name", "mapping = \"dependent\"\nname");
    let said = wrong("1,2", "", &mode("rss", &dependent));
    assert!(said.contains("the key of its hash"), "{said}");
    fits("1", "", &mode("rss", nat));
    fits("1,2", "", &mode("balanced", &of_some));
    let said = wrong("1,2", "", &mode("balanced", nat));
    assert!(said.contains("has no `source`"), "{said}");
    fits("1", eu, &mode("dispatcher", &of_some));
    // Slots that nobody asks for are of the role eu.
    fits("1", "", &mode("dispatcher", &of_some));
    fits("1", "", &mode("balanced", ""));
    let said = wrong("1", "", &mode("even", ""));
    assert!(said.contains("dispatch.mode: `even` is unknown"), "{said}");
}
