//! What stands in the middle of a [`crossing`](super::crossing) that knows flows: the gateway's
//! file, and the kernel's rules for the same.
//!
//! Who is inside, behind the first port, gets the second one's address. A thousand rules say which
//! flows may begin, and the last of them permits; established flows are asked for before.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::veth;
use crate::error::TaskError;
use crate::process;
use crate::undo::Undo;

/// Rules for packets that begin a flow.
const RULES: usize = 1000;
/// Flows that both remember at most: more than come in a run.
const FLOWS: u64 = 4 << 20;
/// Buckets of the kernel's table.
const BUCKETS: u64 = 1 << 20;

/// How the kernel's rules are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A chain of rules, one after the other.
    Chain,
    /// The addresses as a set, which one rule asks.
    Set,
}

impl Form {
    pub(super) const ALL: [Self; 2] = [Self::Chain, Self::Set];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Chain => "a chain",
            Self::Set => "a set",
        }
    }
}

/// The sources that the rules before the last one ask for, which nobody has.
fn sources() -> impl Iterator<Item = String> {
    (1..RULES).map(|number| format!("172.16.{}.{}", number / 256, number % 256))
}

/// What the gateway's file has besides the router's.
pub(super) fn stanzas(ports: [&str; 2]) -> String {
    let [inside, outside] = ports;
    let mut text = format!(
        "[flows]\nipv4 = {FLOWS}\nipv6 = 1024\n\
         [[zone]]\nname = \"inside\"\ninterfaces = [\"{inside}\"]\n\
         [[zone]]\nname = \"outside\"\ninterfaces = [\"{outside}\"]\n\
         [[nat.source]]\nto = \"outside\"\nmasquerade = \"{outside}\"\n\
         [[policy]]\nfrom = \"inside\"\nto = \"outside\"\nrules = [\n"
    );
    for source in sources() {
        let _ = writeln!(
            text,
            "{{ action = \"permit\", protocol = \"udp\", source = \"{source}/32\" }},"
        );
    }
    text + "{ action = \"permit\", protocol = \"udp\", source = \"198.18.0.0/15\" },\n]\n"
}

/// The same for `nft -f`.
fn ruleset(form: Form, ports: [&str; 2]) -> String {
    let [inside, outside] = ports;
    let mut text = String::from("table ip crossing {\n");
    if form == Form::Set {
        let all: Vec<String> = sources().collect();
        let _ = writeln!(
            text,
            "set sources {{ type ipv4_addr; elements = {{ {} }} }}",
            all.join(", ")
        );
    }
    text += "chain forward { type filter hook forward priority 0; policy drop;\n\
             ct state established,related accept\n";
    match form {
        Form::Set => {
            let _ = writeln!(
                text,
                "iifname {inside} meta l4proto udp ip saddr @sources accept"
            );
        }
        Form::Chain => {
            for source in sources() {
                let _ = writeln!(
                    text,
                    "iifname {inside} meta l4proto udp ip saddr {source} accept"
                );
            }
        }
    }
    let _ = writeln!(
        text,
        "iifname {inside} meta l4proto udp ip saddr 198.18.0.0/15 accept\n}}\n\
         chain post {{ type nat hook postrouting priority 100; oifname {outside} masquerade\n}}\n}}"
    );
    text
}

/// Gives the kernel room for the flows, which all namespaces share.
///
/// # Errors
/// The kernel has no connection tracking, or a program is missing.
pub(super) fn make_room(undo: &mut Undo) -> Result<(), TaskError> {
    for program in ["nft", "conntrack"] {
        if process::find_program(program).is_none() {
            return Err(TaskError::Missing {
                what: format!("there is no {program}"),
                fix: "apt-get install --no-install-recommends nftables conntrack".into(),
            });
        }
    }
    for (name, value) in [
        ("net.netfilter.nf_conntrack_buckets", BUCKETS),
        ("net.netfilter.nf_conntrack_max", FLOWS),
    ] {
        let before = process::read(Command::new("sysctl").args(["-n", name]))?;
        undo.add(&format!("sysctl -qw {name}={}", before.trim()))?;
        process::read(Command::new("sysctl").args(["-qw", &format!("{name}={value}")]))?;
    }
    Ok(())
}

/// Gives the kernel of a namespace the rules.
pub(super) fn load(
    namespace: &str,
    form: Form,
    ports: [&str; 2],
    folder: &Path,
) -> Result<(), TaskError> {
    let file = folder.join("rules.nft");
    std::fs::write(&file, ruleset(form, ports)).map_err(TaskError::file(&file))?;
    process::read(veth::inside(namespace, "nft").arg("-f").arg(&file)).map(drop)
}

/// Takes rules and flows away.
pub(super) fn unload(namespace: &str) -> Result<(), TaskError> {
    process::read(veth::inside(namespace, "nft").args(["flush", "ruleset"]))?;
    let mut command = veth::inside(namespace, "conntrack");
    process::read(command.arg("-F").stderr(Stdio::null())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_a_thousand_rules() {
        let ours = stanzas(["a", "b"]);
        assert_eq!(ours.matches("action = \"permit\"").count(), RULES);
        let chain = ruleset(Form::Chain, ["a", "b"]);
        assert_eq!(chain.matches("ip saddr").count(), RULES);
        let set = ruleset(Form::Set, ["a", "b"]);
        assert_eq!(set.matches("172.16.").count(), RULES - 1);
        assert_eq!(set.matches("ip saddr").count(), 2);
    }
}
