//! Why a flow may begin or may not, and where its packets go: what `linerate ctl explain` says.
//!
//! It goes the way of a first packet, stage by stage, by the same rules and tables. What the state
//! of flows decides (who has which port) it names as open. Workers are asked one thing only: whose
//! the flow's bucket is, since buckets move.

use linerate_appliance::nearest::offer;
use linerate_appliance::runtime::Running;
use linerate_appliance::socket::Problem;
use linerate_control::Question;
use linerate_control::question::Key;
use linerate_core::run::WorkerHandle;
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::acl::Verdict;
use linerate_routing::worker::RouterStage;
use linerate_wire::protocol;
use serde_json::{Value, json};

use crate::config::Mode;
use crate::dispatch::Bucket;
use crate::extension::stanzas;
use crate::nat::rules::At;
use crate::nat::{Endpoint, Tuple};
use crate::path::on_path;
use crate::policy::{FirstPacket, Policy, explain};
use crate::stages::flows::Shared;

/// What is said so far.
struct Said {
    lines: Vec<String>,
    value: Value,
}

impl Said {
    /// The last word.
    fn end(mut self, verdict: &str) -> Value {
        let mut text = self.lines.join("\n");
        text.push('\n');
        self.value["verdict"] = verdict.into();
        self.value["text"] = text.into();
        self.value
    }

    /// Says by which rule of NAT something becomes another, or what a list says.
    fn add(&mut self, key: &str, text: Option<String>) {
        self.value[key] = json!(text);
        self.lines.extend(text);
    }
}

/// Answers a question.
///
/// # Errors
/// The flow cannot be read, or cannot come in there.
pub(crate) fn explain(question: &Question<'_>, shared: &Shared) -> Result<Value, Problem> {
    let packet = explain::parse(question.flow).map_err(|text| {
        let (problem, fix) = text.split_once("; ").unwrap_or((&text, explain::LEGAL));
        Problem::new(problem, fix)
    })?;
    let (policy, rules) = (&shared.policy, &shared.rules);
    let id = comes_in(question, policy)?;
    let (settings, config) = (question.settings, question.config);
    let interface = &settings.interfaces[usize::from(id.0)];
    let zone = |id| policy.zones().name(policy.zone(id));
    let at = |id: InterfaceId| At {
        zone: policy.zone(id).number().into(),
        interface: id.0,
    };
    let mut said = Said {
        lines: vec![format!("in by {}, zone {}", interface.name, zone(id))],
        value: json!({ "flow": packet.to_string(), "interface": interface.name, "zone": zone(id) }),
    };
    if let Some(number) = interface.acl_in {
        let (text, verdict) = question.list(number, &key(&packet));
        said.add("acl_in", Some(text));
        if verdict != Verdict::Permit {
            said.lines.push(verdict.name().into());
            return Ok(said.end(verdict.name()));
        }
    }
    let (src_port, dst_port) = packet.ports().unwrap_or_default();
    let first = Tuple {
        src: Endpoint::new(packet.src(), src_port),
        dst: Endpoint::new(packet.dst(), dst_port),
        protocol: packet.protocol(),
    };
    let (mut chosen, mut is_direct) = (None, false);
    if let Some((found, text)) = shared.balance.explain(&first) {
        said.add("balancer", Some(text));
        let Some(found) = found else {
            return Ok(said.end("no_backend"));
        };
        is_direct = found.form.is_direct();
        chosen = Some(found);
    }
    let (aim, pool, text) = match &chosen {
        Some(chosen) => (chosen.tuple, chosen.pool(), None),
        None => rules.explain_destination(&first, at(id)),
    };
    said.add("destination", text);
    let towards = chosen.map_or(aim.dst.address, |chosen| chosen.address);
    // Between the versions of IP policies see the packet of IPv6.
    let aimed = match aim.dst.address.is_ipv4() == first.dst.address.is_ipv4() {
        true => packet.to(aim.dst.address, aim.dst.port),
        false => packet.to(first.dst.address, first.dst.port),
    };
    let vrf = &config.vrfs[interface.vrf as usize].name;
    let Some(route) = question.route(interface.vrf, towards) else {
        let line = format!("no route to {towards} in vrf {vrf}: dropped");
        said.lines.push(line);
        return Ok(said.end("no_route"));
    };
    said.value["route"] = json!({ "vrf": vrf, "prefix": route.prefix.to_string(),
        "kind": route.kind });
    let line = format!("route {} in vrf {vrf}: {}", route.prefix, route.kind);
    match route.kind {
        "via" | "connected" | "neighbour" => said.lines.push(line),
        kind @ ("local" | "broadcast" | "multicast" | "by the host") => {
            let line = format!("{line}: for the gateway itself, which no policy concerns");
            said.lines.push(line);
            return Ok(said.end(kind));
        }
        kind => {
            said.lines.push(format!("{line}: dropped"));
            return Ok(said.end(kind));
        }
    }
    let (mut ways, mut verdicts) = (Vec::new(), Vec::new());
    for (out, gateway) in route.ways {
        let leaves = &settings.interfaces[usize::from(out.0)];
        let mut line = format!("out by {}, zone {}", leaves.name, zone(out));
        if let Some(gateway) = gateway {
            line += &format!(", next hop {gateway}");
        }
        said.lines.push(line);
        let decided = policy.explain(policy.zone(id), policy.zone(out), &aimed);
        said.lines.push(decided.to_string());
        let (mut verdict, mut source, mut acl_out) = (decided.verdict, None, None);
        if verdict == Verdict::Permit.name() {
            source = match is_direct {
                true => None,
                false => rules.explain_source(&first, (&aim, pool), at(id), at(out)),
            };
            acl_out = leaves.acl_out.map(|number| match source {
                // It sees the packet as it leaves.
                Some(_) => format!(
                    "acl {} sees what it becomes",
                    config.acls[number as usize].name
                ),
                None => {
                    let (text, says) = question.list(number, &key(&aimed));
                    verdict = says.name();
                    text
                }
            });
            said.lines.extend(source.clone());
            said.lines.extend(acl_out.clone());
        }
        verdicts.push(verdict);
        ways.push(
            json!({ "interface": leaves.name, "zone": zone(out), "next_hop": gateway,
            "policy": decided.to_json(), "source": source, "acl_out": acl_out,
            "verdict": verdict }),
        );
    }
    said.value["ways"] = ways.into();
    if verdicts.contains(&Verdict::Permit.name()) {
        said.worker(question, shared, (&first, id));
    }
    verdicts.dedup();
    Ok(match verdicts.as_slice() {
        [] => {
            said.lines.push("no way out is up: dropped".into());
            said.end("no_route")
        }
        [verdict] => said.end(verdict),
        _ => {
            said.lines
                .push("it depends on the way, which is by a hash of the flow".into());
            said.end("depends")
        }
    })
}

impl Said {
    /// Says which worker has the flow that begins with `first`.
    fn worker(
        &mut self,
        question: &Question<'_>,
        shared: &Shared,
        (first, by): (&Tuple, InterfaceId),
    ) {
        let Some(running) = question.running else {
            // Buckets go by a secret of the gateway at work.
            return;
        };
        let name = |worker: usize| running.lcores().nth(worker).map(|(name, ..)| name);
        let text = match stanzas(question.config).dispatch {
            Mode::None => {
                let name = name(0);
                self.value["worker"] = name.into();
                name.map(|name| format!("worker {name}: there is no other"))
            }
            Mode::Rss => Some("worker: that of the queue which its port's RSS chooses".into()),
            Mode::Dispatcher | Mode::Balanced
                if matches!(first.protocol, protocol::ICMP | protocol::ICMPV6) =>
            {
                Some("worker: by the query's identifier".into())
            }
            Mode::Dispatcher | Mode::Balanced => first.key().and_then(|key| {
                let bucket = shared.classes.one_from(&key, by.0);
                let name = name(owner(running, bucket)?)?;
                self.value["worker"] = name.into();
                self.value["bucket"] = bucket.into();
                Some(format!("worker {name}, who has bucket {bucket}"))
            }),
        };
        self.lines.extend(text);
    }
}

/// The number of the worker that has a bucket.
fn owner(running: &Running<RouterStage>, bucket: Bucket) -> Option<usize> {
    let has = |worker: &WorkerHandle<RouterStage>| {
        let has = on_path(worker, move |path, _| {
            let sorter = path.dispatch()?.sorter();
            Some(sorter.owners().of(bucket) == sorter.me())
        });
        has.flatten() == Some(true)
    };
    running.handles().position(has)
}

/// The interface that is meant: one of that name, or one of the zone of that name.
fn comes_in(question: &Question<'_>, policy: &Policy) -> Result<InterfaceId, Problem> {
    let from = question.from;
    if let Some(id) = question.interface(from) {
        return Ok(id);
    }
    let known = question.settings.interfaces.iter();
    let names = known.clone().map(|one| one.name.as_str());
    let names = names.filter(|name| !name.is_empty());
    let Some((zone, _)) = policy.zones().iter().find(|(_, name)| *name == from) else {
        let all = policy.zones().iter().map(|(_, name)| name).chain(names);
        let problem = format!("there is no zone and no interface `{from}`");
        return Err(Problem::new(problem, offer(from, all)));
    };
    let inside = (0..).map(InterfaceId).zip(known);
    let inside: Vec<_> = inside
        .filter(|(id, one)| !one.name.is_empty() && policy.zone(*id) == zone)
        .collect();
    let Some((id, first)) = inside.first() else {
        let problem = format!("no interface is in zone `{from}`");
        return Err(Problem::new(problem, "put one into it, or name another"));
    };
    let is_like = |(_, one): &(_, &linerate_routing::plane::settings::Interface)| {
        (one.vrf, one.acl_in) == (first.vrf, first.acl_in)
    };
    if !inside.iter().all(is_like) {
        let problem = format!("interfaces of zone `{from}` differ in vrf or acl_in");
        let names: Vec<&str> = inside.iter().map(|(_, one)| one.name.as_str()).collect();
        return Err(Problem::new(
            problem,
            format!("name one of {}", names.join(", ")),
        ));
    }
    Ok(*id)
}

/// The packet, for access lists.
fn key(packet: &FirstPacket) -> Key {
    match *packet {
        FirstPacket::V4(key) => Key::V4(key),
        FirstPacket::V6(key) => Key::V6(key),
    }
}
