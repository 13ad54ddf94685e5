//! What lcores of a device spend on packets, by function: those that run are stages of a path, and
//! parts of stages, which a device in this process has measured.

use serde::{Deserialize, Serialize};

/// What the stages of a device took at one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Profile {
    /// The device, or the baseline's name.
    pub(crate) subject: String,
    pub(crate) frame_bytes: usize,
    /// Frames a second that came through meanwhile.
    pub(crate) pps: f64,
    pub(crate) lcores: Vec<ProfiledLcore>,
}

/// What those of one lcore took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProfiledLcore {
    pub(crate) lcore: String,
    /// Packets that came to it: from ports, and from other lcores.
    pub(crate) packets: u64,
    /// Ticks of rounds that had packets, and of those that had none or in which it slept.
    pub(crate) busy_ticks: u64,
    pub(crate) waiting_ticks: u64,
    /// In the order in which packets pass.
    pub(crate) stages: Vec<ProfiledStage>,
}

/// One stage, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProfiledStage {
    pub(crate) stage: String,
    pub(crate) packets: u64,
    /// With what is within it.
    pub(crate) ticks: u64,
}

/// The point of all stages together.
const PIPELINE: &str = "pipeline";
/// The stage that each forwarded packet passes once, on the lcore from which it leaves.
const LAST: &str = "transmit";
/// Parts of stages, and the stages that they are in.
const PARTS: [(&str, &str); 4] = [
    ("hand_over", "dispatch"),
    ("flow_lookup", "flows"),
    ("first_packets", "flows"),
    ("pipeline", "round"),
];
/// What stages do, in the order in which packets pass.
const FUNCTIONS: [(&str, &str); 19] = [
    ("round", "rx_burst, taking from rings, kicks, timers"),
    ("receive", "interface, counters"),
    ("vlan", "tags"),
    ("parse", "headers, flow keys"),
    ("validate", "checks of headers"),
    ("reassembly", "fragments"),
    ("policer", "rate of an interface"),
    ("acl_in", "access list before flows"),
    ("reverse_path", "source addresses"),
    ("dispatch", "classify: which bucket"),
    ("hand_over", "sort by owner, into other lcores' rings"),
    ("flow_lookup", "flow table"),
    ("first_packets", "policy, NAT and set-up of new flows"),
    ("flows", "tracking and NAT of known flows"),
    ("lookup", "route"),
    ("acl_out", "access list behind flows"),
    ("rewrite", "MAC addresses, TTL, checksum"),
    ("exceptions", "ICMP errors, packets for the host"),
    ("transmit", "tx_burst, into queues and rings"),
];
/// What is of no stage.
const BETWEEN: (&str, &str) = ("between", "between stages");

/// What a function took, of the lcores of one role.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) what: &'static str,
    /// Ticks for each packet that the device forwarded.
    pub(crate) ticks: f64,
    /// Of all that these lcores spent on packets, in percent.
    pub(crate) percent: f64,
}

/// The lcores of one role.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Role {
    /// `io`, `eu`.
    pub(crate) name: String,
    pub(crate) lcores: usize,
    /// Share of their time in which they had packets, in percent.
    pub(crate) busy_percent: f64,
    /// Ticks for each packet that the device forwarded.
    pub(crate) ticks: f64,
    pub(crate) functions: Vec<Function>,
}

impl ProfiledLcore {
    /// What came between `before` and now.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let stage = |now: &ProfiledStage| {
            let known = before.stages.iter().find(|stage| stage.stage == now.stage);
            let (packets, ticks) = known.map_or((0, 0), |stage| (stage.packets, stage.ticks));
            ProfiledStage {
                stage: now.stage.clone(),
                packets: now.packets.saturating_sub(packets),
                ticks: now.ticks.saturating_sub(ticks),
            }
        };
        Self {
            lcore: self.lcore.clone(),
            packets: self.packets.saturating_sub(before.packets),
            busy_ticks: self.busy_ticks.saturating_sub(before.busy_ticks),
            waiting_ticks: self.waiting_ticks.saturating_sub(before.waiting_ticks),
            stages: self.stages.iter().map(stage).collect(),
        }
    }

    fn stage(&self, name: &str) -> Option<&ProfiledStage> {
        self.stages.iter().find(|stage| stage.stage == name)
    }

    fn role(&self) -> &str {
        self.lcore.trim_end_matches(|c: char| c.is_ascii_digit())
    }

    /// Ticks of each function without the parts that are named besides.
    fn own_ticks(&self) -> Vec<(String, u64)> {
        let of = |name: &str| match name {
            "round" => self.busy_ticks,
            name => self.stage(name).map_or(0, |stage| stage.ticks),
        };
        let parts = |name: &str| -> u64 {
            let parts = PARTS.iter().filter(|(_, whole)| *whole == name);
            parts.map(|(part, _)| of(part)).sum()
        };
        let is_part = |name: &str| PARTS.iter().any(|(part, _)| *part == name);
        let named = self.stages.iter().map(|stage| stage.stage.as_str());
        let stages = named.clone().filter(|name| !is_part(name));
        let stages: u64 = stages.map(of).sum();
        let between = of(PIPELINE).saturating_sub(stages);
        let all = ["round"].into_iter().chain(named);
        let all = all.filter(|name| *name != PIPELINE);
        let all = all.map(|name| (name.to_string(), of(name).saturating_sub(parts(name))));
        all.chain([(BETWEEN.0.to_string(), between)]).collect()
    }
}

impl Profile {
    /// Packets that it has forwarded while it was measured.
    fn forwarded(&self) -> u64 {
        let last = self.lcores.iter().filter_map(|lcore| lcore.stage(LAST));
        last.map(|stage| stage.packets).sum()
    }

    /// The roles of its lcores, with what each function took.
    pub(crate) fn roles(&self) -> Vec<Role> {
        let mut names: Vec<&str> = self.lcores.iter().map(ProfiledLcore::role).collect();
        names.dedup();
        names.into_iter().map(|name| self.role(name)).collect()
    }

    fn role(&self, name: &str) -> Role {
        let lcores = self.lcores.iter().filter(|lcore| lcore.role() == name);
        let mut sums: Vec<(String, u64)> = Vec::new();
        let (mut busy, mut waiting, mut count) = (0, 0, 0);
        for lcore in lcores {
            count += 1;
            busy += lcore.busy_ticks;
            waiting += lcore.waiting_ticks;
            for (name, ticks) in lcore.own_ticks() {
                match sums.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum += ticks,
                    None => sums.push((name, ticks)),
                }
            }
        }
        let place = |name: &str| FUNCTIONS.iter().position(|(known, _)| *known == name);
        sums.sort_by_key(|(name, _)| place(name).unwrap_or(FUNCTIONS.len()));
        let whole: u64 = sums.iter().map(|(_, ticks)| ticks).sum();
        let each = |ticks: u64| ticks as f64 / self.forwarded().max(1) as f64;
        let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        let functions = sums.into_iter().filter(|(_, ticks)| *ticks > 0);
        let functions = functions.map(|(name, ticks)| Function {
            what: match place(&name) {
                Some(at) => FUNCTIONS[at].1,
                None if name == BETWEEN.0 => BETWEEN.1,
                None => "",
            },
            name,
            ticks: each(ticks),
            percent: percent(ticks, whole),
        });
        Role {
            name: name.into(),
            lcores: count,
            busy_percent: percent(busy, busy + waiting),
            ticks: each(whole),
            functions: functions.collect(),
        }
    }
}

/// Names of all functions of these, each once, in the order in which packets pass.
pub(crate) fn functions(roles: &[Role]) -> Vec<(&str, &'static str)> {
    let order = FUNCTIONS.iter().map(|(name, _)| *name).chain([BETWEEN.0]);
    let all = || roles.iter().flat_map(|role| &role.functions);
    let known = order.filter_map(|name| {
        let found = all().find(|function| function.name == name)?;
        Some((name, found.what))
    });
    let mut names: Vec<(&str, &'static str)> = known.collect();
    for function in all() {
        if names.iter().all(|(name, _)| *name != function.name) {
            names.push((&function.name, function.what));
        }
    }
    names
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn lcore(name: &str, busy: u64, stages: &[(&str, u64, u64)]) -> ProfiledLcore {
        let stage = |(stage, packets, ticks): &(&str, u64, u64)| ProfiledStage {
            stage: (*stage).into(),
            packets: *packets,
            ticks: *ticks,
        };
        ProfiledLcore {
            lcore: name.into(),
            packets: stages[0].1,
            busy_ticks: busy,
            waiting_ticks: busy,
            stages: stages.iter().map(stage).collect(),
        }
    }

    /// One that receives and two that own flows.
    pub(crate) fn dispatcher(subject: &str) -> Profile {
        let io = [
            ("pipeline", 1000, 40_000),
            ("parse", 1000, 20_000),
            ("dispatch", 1000, 15_000),
            ("hand_over", 1000, 9_000),
            ("transmit", 0, 0),
        ];
        let eu = [
            ("pipeline", 500, 60_000),
            ("parse", 500, 10_000),
            ("flows", 500, 40_000),
            ("flow_lookup", 500, 25_000),
            ("transmit", 500, 8_000),
        ];
        Profile {
            subject: subject.into(),
            frame_bytes: 64,
            pps: 1e6,
            lcores: vec![
                lcore("io0", 50_000, &io),
                lcore("eu0", 70_000, &eu),
                lcore("eu1", 70_000, &eu),
            ],
        }
    }

    #[test]
    fn each_tick_is_of_one_function_and_all_add_up() {
        let roles = dispatcher("a").roles();
        let names: Vec<(&str, usize)> = roles
            .iter()
            .map(|role| (role.name.as_str(), role.lcores))
            .collect();
        assert_eq!(names, [("io", 1), ("eu", 2)]);
        // All that lcores were busy, over 1000 packets that have left.
        assert_eq!((roles[0].ticks, roles[1].ticks), (50.0, 140.0));
        for role in &roles {
            let sum = |of: fn(&Function) -> f64| role.functions.iter().map(of).sum::<f64>();
            assert!((sum(|function| function.ticks) - role.ticks).abs() < 1e-9);
            assert!((sum(|function| function.percent) - 100.0).abs() < 1e-9);
            assert_eq!(role.busy_percent, 50.0);
        }
        let took = |role: usize, name: &str| {
            let found = roles[role].functions.iter().find(|one| one.name == name);
            found.map_or(0.0, |function| function.ticks)
        };
        assert_eq!((took(0, "dispatch"), took(0, "hand_over")), (6.0, 9.0));
        assert_eq!((took(1, "flows"), took(1, "flow_lookup")), (30.0, 50.0));
        assert_eq!((took(0, "round"), took(1, "round")), (10.0, 20.0));
        assert_eq!((took(0, "between"), took(1, "between")), (5.0, 4.0));
        let order: Vec<&str> = functions(&roles)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let wanted = [
            "round",
            "parse",
            "dispatch",
            "hand_over",
            "flow_lookup",
            "flows",
            "transmit",
            "between",
        ];
        assert_eq!(order, wanted);
    }

    #[test]
    fn what_was_before_does_not_count() {
        let now = dispatcher("a").lcores.remove(1);
        let before = ProfiledLcore {
            busy_ticks: 20_000,
            packets: 100,
            stages: vec![ProfiledStage {
                stage: "flows".into(),
                packets: 100,
                ticks: 30_000,
            }],
            ..ProfiledLcore::default()
        };
        let since = now.since(&before);
        assert_eq!((since.busy_ticks, since.packets), (50_000, 400));
        let flows = since
            .stage("flows")
            .map(|stage| (stage.packets, stage.ticks));
        assert_eq!(flows, Some((400, 10_000)));
        assert_eq!(since.stage("parse"), now.stage("parse"));
        assert_eq!(Profile::default().roles(), []);
    }
}
