//! Plans on fake machines: what is chosen, what is refused, what is warned of.

use super::*;
use crate::env::Tree;
use crate::env::topology::tests::fake;

fn spec(bg: &str, io: &str, eu: &str, cpus: &str) -> PlanSpec {
    let some = |text: &str| (text != "auto").then(|| text.to_string());
    PlanSpec {
        bg: some(bg),
        io: some(io),
        eu: some(eu),
        cpus: some(cpus),
    }
}

fn auto() -> PlanSpec {
    PlanSpec::default()
}

fn build(machine: &str, spec: &PlanSpec) -> Result<Plan, EnvError> {
    Plan::build(spec, &fake(machine), &[])
}

/// `bg0@0 io0@1 eu0@2`
fn shown(plan: &Plan) -> String {
    let lcores: Vec<_> = plan
        .lcores
        .iter()
        .map(|l| format!("{}@{}", l.name, l.cpu))
        .collect();
    lcores.join(" ")
}

fn kinds(plan: &Plan) -> Vec<&'static str> {
    plan.warnings.iter().map(Warning::kind).collect()
}

fn port(name: &str, node: u32) -> PortPlace {
    PortPlace {
        name: name.into(),
        node: Some(node),
    }
}

#[test]
fn chooses_for_one_socket_without_warnings() {
    let plan = build("one-socket-4", &auto()).unwrap();
    assert_eq!(shown(&plan), "bg0@0 io0@1 eu0@2 eu1@3");
    assert_eq!(
        (kinds(&plan), plan.chosen.clone()),
        (vec![], Role::ALL.to_vec())
    );
}

#[test]
fn chooses_one_thread_per_core_and_one_node() {
    let plan = build("one-socket-14x2", &auto()).unwrap();
    assert_eq!(
        (plan.cpus().to_string(), kinds(&plan)),
        ("0-13".into(), vec![])
    );
    assert_eq!(
        (plan.role(Role::Io).count(), plan.role(Role::Eu).count()),
        (3, 10)
    );
    let plan = build("two-sockets-12x2", &auto()).unwrap();
    assert_eq!(plan.cpus().to_string(), "0-11");
    // The ports decide which node that is.
    let plan = Plan::build(&auto(), &fake("two-sockets-12x2"), &[port("eth1", 1)]).unwrap();
    assert_eq!(
        (plan.cpus().to_string(), kinds(&plan)),
        ("12-23".into(), vec![])
    );
}

#[test]
fn shares_small_machines_and_says_so() {
    let one = build("container-v2", &spec("auto", "auto", "auto", "3")).unwrap();
    assert_eq!(shown(&one), "bg0@3 io0@3 eu0@3");
    assert_eq!(kinds(&one), ["over-committed", "shared-with-bg"]);
    let two = build("container-v2", &spec("auto", "auto", "auto", "3,5")).unwrap();
    assert_eq!(shown(&two), "bg0@3 io0@5 eu0@3");
    assert_eq!(kinds(&two), ["shared-with-bg"]);
}

#[test]
fn a_role_that_a_program_does_not_have_is_not_warned_of() {
    let roles = |stanza: &PlanSpec, roles: &[Role]| {
        let plan = build("container-v2", stanza).unwrap();
        plan.of_roles(roles, &fake("container-v2"), &[])
    };
    let forwarder = roles(&spec("auto", "auto", "auto", "3,5"), &[Role::Bg, Role::Io]);
    assert_eq!(shown(&forwarder), "bg0@3 io0@5");
    assert!(kinds(&forwarder).is_empty());
    let one = roles(&spec("auto", "auto", "auto", "3"), &[Role::Bg, Role::Io]);
    assert_eq!(kinds(&one), ["shared-with-bg"]);
}

#[test]
fn the_same_stanza_moves_between_machines() {
    let stanza = spec("0", "1-2", "3-7", "auto");
    let big = build("two-sockets-12x2", &stanza).unwrap();
    assert_eq!(
        shown(&big),
        "bg0@0 io0@1 io1@2 eu0@3 eu1@4 eu2@5 eu3@6 eu4@7"
    );
    let inside = build("container-v1", &stanza).unwrap();
    // Cores 2 and 3 have both their threads in the cpuset, 4 and 5 one each: second threads come
    // last, and the eight slots wrap around the six CPUs.
    assert_eq!(
        shown(&inside),
        "bg0@2 io0@3 io1@4 eu0@5 eu1@16 eu2@17 eu3@2 eu4@3"
    );
    assert_eq!(
        kinds(&inside),
        [
            "over-committed",
            "siblings",
            "siblings",
            "siblings",
            "shared-with-bg"
        ]
    );
    let small = build("container-v2", &stanza).unwrap();
    assert!(
        small.warnings[0]
            .to_string()
            .contains("over-committed: busy lcores io0, io1"),
        "{}",
        small.warnings[0]
    );
}

#[test]
fn fills_in_the_roles_left_out() {
    let io = build("one-socket-14x2", &spec("auto", "2-3", "auto", "auto")).unwrap();
    assert_eq!(
        (
            io.role(Role::Bg).next().unwrap().slot,
            io.role(Role::Eu).count()
        ),
        (0, 11)
    );
    assert_eq!(io.chosen, [Role::Bg, Role::Eu]);
    let eu = build("one-socket-14x2", &spec("0", "auto", "1-6", "auto")).unwrap();
    assert_eq!(
        eu.role(Role::Io).map(|l| l.slot).collect::<Vec<_>>(),
        [7, 8]
    );
    let full = build("one-socket-4", &spec("auto", "0-1", "2-3", "auto")).unwrap();
    assert_eq!(
        full.role(Role::Bg).next().unwrap().slot,
        4,
        "no slot is left, so it shares a CPU"
    );
    assert_eq!(kinds(&full), ["shared-with-bg"]);
}

#[test]
fn a_mapping_is_taken_as_written() {
    let plan = build("one-socket-14x2", &spec("0", "1", "2-3", "6,4,2,8")).unwrap();
    assert_eq!(shown(&plan), "bg0@6 io0@4 eu0@2 eu1@8");
    let again = build("one-socket-14x2", &plan.spec()).unwrap();
    assert_eq!(
        again.lcores, plan.lcores,
        "a plan's own stanza gives the plan"
    );
}

#[test]
fn warns_of_busy_siblings_and_remote_ports() {
    let plan = build("one-socket-14x2", &spec("0", "1", "2", "0,3,17")).unwrap();
    assert_eq!(kinds(&plan), ["siblings"]);
    assert!(
        plan.warnings[0]
            .to_string()
            .starts_with("io0 (CPU 3) and eu0 (CPU 17)")
    );
    let topology = fake("two-sockets-12x2");
    let ports = [
        port("eth0", 0),
        port("eth1", 1),
        PortPlace {
            name: "veth0".into(),
            node: None,
        },
    ];
    let plan = Plan::build(&spec("0", "1", "2", "auto"), &topology, &ports).unwrap();
    assert_eq!(kinds(&plan), ["off-node"]);
    assert!(
        plan.warnings[0]
            .to_string()
            .starts_with("port eth1 is on NUMA node 1"),
        "{}",
        plan.warnings[0]
    );
    let plan = Plan::build(&spec("0", "1-2", "3", "0,1,13,2"), &topology, &ports).unwrap();
    assert_eq!(kinds(&plan), [] as [&str; 0], "an io lcore on each node");
}

#[test]
fn refuses_a_slot_with_two_roles() {
    for (bg, io, eu, slot) in [
        ("0", "1-3", "3-4", 3),
        ("0", "0", "1", 0),
        ("0", "1,2,1", "3", 1),
    ] {
        let error = build("one-socket-14x2", &spec(bg, io, eu, "auto")).unwrap_err();
        assert!(
            matches!(error, EnvError::Overlap { slot: s, .. } if s == slot),
            "{error}"
        );
        assert!(error.fix().unwrap().contains("cpus = \"0,0,1\""));
    }
}

#[test]
fn refuses_cpus_that_cannot_be_used() {
    let outside = build("container-v2", &spec("0", "1", "2", "3,5,9")).unwrap_err();
    assert_eq!(
        outside.to_string(),
        "[plan] CPU 9 (slot 2) is not in this process's cpuset; usable here: 3,5,7-8"
    );
    let absent = build("one-socket-4", &spec("0", "1", "2", "0,1,64")).unwrap_err();
    assert!(
        absent
            .to_string()
            .contains("CPU 64 (slot 2) does not exist"),
        "{absent}"
    );
}

#[test]
fn refuses_empty_and_impossible_plans() {
    let refused =
        |io: &str, cpus: &str| build("one-socket-4", &spec("0", io, "2", cpus)).unwrap_err();
    assert!(matches!(refused("", "auto"), EnvError::Empty { key: "io" }));
    assert!(matches!(refused("1", " "), EnvError::Empty { key: "cpus" }));
    assert!(matches!(
        refused("99", "auto"),
        EnvError::NoSuchSlot {
            slot: 99,
            role: "io",
            ..
        }
    ));
    let small = build("container-v2", &spec("auto", "99", "auto", "auto")).unwrap_err();
    assert_eq!(
        small.to_string(),
        "[plan] slot 99 (io) has no CPU: the 4 usable CPUs here are slots 0-3"
    );
    assert!(matches!(
        refused("1", "0,1"),
        EnvError::NoSuchSlot {
            slot: 2,
            role: "eu",
            ..
        }
    ));
    assert!(matches!(
        refused("10-80", "auto"),
        EnvError::TooManyLcores { cpus: 4, .. }
    ));
    assert!(matches!(refused("1-", "auto"), EnvError::BadList { .. }));
    assert!(refused("1", "0,z").to_string().starts_with("cpus: `0,z`"));
}

#[test]
fn isolated_cpus_go_to_the_busy() {
    let folder = crate::env::PrivateFolder::new("plan").unwrap();
    let path = folder.join("listing.txt");
    let cpu = "/sys/devices/system/cpu";
    std::fs::write(&path, format!("{cpu}/online:0-5\n{cpu}/isolated:2-5\n")).unwrap();
    let topology = Topology::open(&path).unwrap();
    assert!(!topology.tree().is_machine() && Tree::machine().is_machine());
    let plan = Plan::build(&auto(), &topology, &[]).unwrap();
    assert_eq!(shown(&plan), "bg0@0 io0@2 eu0@3 eu1@4 eu2@5");
    let plan = Plan::build(&spec("0", "1-2", "3-5", "auto"), &topology, &[]).unwrap();
    assert_eq!(
        shown(&plan),
        "bg0@0 io0@2 io1@3 eu0@4 eu1@5 eu2@1",
        "then the next housekeeping CPU"
    );
}

#[test]
fn a_plan_for_the_machine_itself_can_be_run() {
    let plan = Plan::build(&auto(), &Topology::machine().unwrap(), &[]).unwrap();
    for lcore in &plan.lcores {
        crate::env::Lcore::spawn(&lcore.name, Some(lcore.cpu), || ())
            .unwrap()
            .join()
            .unwrap();
    }
}
