//! A better split between roles, from how busy each lcore was in a finished run.

use super::{CpuList, EnvError, PlanSpec, Role};

/// How busy one lcore was.
#[derive(Clone, Debug, PartialEq)]
pub struct LcoreLoad {
    /// Its name, such as `io0`.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The CPU it was bound to.
    pub cpu: Option<u32>,
    /// The share of its time that went into packets rather than empty polls: 0 to 1.
    pub busy_share: f64,
}

/// What to change, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// The stanza to use next. Equal in its roles to the run's own when nothing should move.
    pub spec: PlanSpec,
    /// Whether it differs from the run's split.
    pub changed: bool,
    /// Why, one finding per sentence.
    pub reasons: Vec<String>,
}

/// An lcore this busy has no room for bursts.
const FULL: f64 = 0.9;
/// Two splits whose busiest role differs by less are the same: run to run, shares vary as much.
const NOISE: f64 = 0.05;
/// A role whose lcores differ by more has its packets spread unevenly.
const UNEVEN: f64 = 0.4;

impl Suggestion {
    /// Weighs the roles of a finished run. The number of lcores stays; the border between io and
    /// eu moves to where the busier of the two is least busy.
    pub fn from_run(lcores: &[LcoreLoad]) -> Result<Self, EnvError> {
        check(lcores)?;
        let of = |role| lcores.iter().filter(move |l| l.role == role);
        let work = |role| of(role).map(|l| l.busy_share).sum::<f64>();
        let (bg, io, eu) = (
            of(Role::Bg).count(),
            of(Role::Io).count(),
            of(Role::Eu).count(),
        );
        let busiest = |n: usize| {
            let share = |role, lcores: usize| work(role) / lcores.max(1) as f64;
            share(Role::Io, n).max(share(Role::Eu, io + eu - n))
        };
        let mut reasons = Vec::new();
        let mut best = io;
        if io > 0 && eu > 0 {
            let least = (1..io + eu)
                .min_by(|&a, &b| busiest(a).total_cmp(&busiest(b)))
                .unwrap_or(io);
            if busiest(least) + NOISE < busiest(io) {
                best = least;
            }
            reasons.push(balance(
                io,
                eu,
                work(Role::Io),
                work(Role::Eu),
                best,
                busiest(best),
            ));
        }
        for role in [Role::Io, Role::Eu] {
            reasons.extend(unevenness(role, of(role)));
        }
        if io + eu > 0 && busiest(best) >= FULL {
            reasons.push(format!(
                "even so the busiest role is {} busy: add lcores, or a faster CPU.",
                percent(busiest(best))
            ));
        }
        if bg > 0 && work(Role::Bg) / bg as f64 > 0.5 {
            reasons.push(format!(
                "bg is {} busy: keep it off the CPUs of busy lcores.",
                percent(work(Role::Bg) / bg as f64)
            ));
        }
        let spec = stanza(lcores, [bg, best, io + eu - best]);
        Ok(Self {
            spec,
            changed: best != io,
            reasons,
        })
    }
}

fn check(lcores: &[LcoreLoad]) -> Result<(), EnvError> {
    let bad = |reason: String| EnvError::BadReport { reason };
    if !lcores.iter().any(|l| l.role.is_busy()) {
        return Err(bad("it lists no io or eu lcore".into()));
    }
    for lcore in lcores {
        if !(0.0..=1.0).contains(&lcore.busy_share) {
            return Err(bad(format!(
                "busy_share of {} is {}, not between 0 and 1",
                lcore.name, lcore.busy_share
            )));
        }
    }
    Ok(())
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

fn balance(io: usize, eu: usize, io_work: f64, eu_work: f64, best: usize, busiest: f64) -> String {
    let (io_share, eu_share) = (io_work / io as f64, eu_work / eu as f64);
    let now = format!(
        "io was {} busy on {io} lcore(s), eu {} on {eu}",
        percent(io_share),
        percent(eu_share)
    );
    if best == io {
        return format!(
            "{now}: no other split of {} lcores is clearly better.",
            io + eu
        );
    }
    let (from, to, moved) = if best > io {
        ("eu", "io", best - io)
    } else {
        ("io", "eu", io - best)
    };
    let full = if io_share.max(eu_share) >= FULL {
        " or more, as a full lcore hides what it could not take"
    } else {
        ""
    };
    format!(
        "{now}: moving {moved} from {from} to {to} brings the busier role to about {}{full}.",
        percent(busiest)
    )
}

fn unevenness<'a>(
    role: Role,
    lcores: impl Iterator<Item = &'a LcoreLoad> + Clone,
) -> Option<String> {
    let most = lcores
        .clone()
        .max_by(|a, b| a.busy_share.total_cmp(&b.busy_share))?;
    let least = lcores.min_by(|a, b| a.busy_share.total_cmp(&b.busy_share))?;
    (most.busy_share - least.busy_share > UNEVEN).then(|| {
        format!(
            "{role} is uneven: {} {} busy, {} {}; more lcores will not help until its flows or \
             queues are spread better.",
            most.name,
            percent(most.busy_share),
            least.name,
            percent(least.busy_share)
        )
    })
}

/// Dense slots over the run's own CPUs, so that only the lcores at the border change their role.
fn stanza(lcores: &[LcoreLoad], counts: [usize; 3]) -> PlanSpec {
    let mut sorted: Vec<_> = lcores.iter().collect();
    sorted.sort_by_key(|l| l.role);
    let cpus: Option<CpuList> = sorted
        .iter()
        .map(|l| l.cpu)
        .collect::<Option<Vec<u32>>>()
        .map(CpuList::from_iter);
    let mut start = 0;
    let [bg, io, eu] = counts.map(|count| {
        let slots: CpuList = (start..start + count as u32).collect();
        start += count as u32;
        (count > 0).then(|| slots.to_string())
    });
    PlanSpec {
        bg,
        io,
        eu,
        cpus: cpus.map(|list| list.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(name: &str, cpu: u32, busy_share: f64) -> LcoreLoad {
        let role = Role::from_name(&name[..2]).unwrap();
        LcoreLoad {
            name: name.into(),
            role,
            cpu: Some(cpu),
            busy_share,
        }
    }

    #[test]
    fn moves_an_idle_lcore_to_the_full_role() {
        let run = [
            load("bg0", 0, 0.01),
            load("io0", 1, 1.0),
            load("eu0", 2, 0.2),
            load("eu1", 3, 0.2),
            load("eu2", 4, 0.2),
        ];
        let suggestion = Suggestion::from_run(&run).unwrap();
        assert!(suggestion.changed);
        let spec = |s: &str| Some(s.to_string());
        assert_eq!(
            suggestion.spec,
            PlanSpec {
                bg: spec("0"),
                io: spec("1-2"),
                eu: spec("3-4"),
                cpus: spec("0-4")
            }
        );
        assert!(
            suggestion.reasons[0]
                .contains("moving 1 from eu to io brings the busier role to about 50%"),
            "{:?}",
            suggestion.reasons
        );
    }

    #[test]
    fn leaves_a_balanced_run_alone() {
        let run = [
            load("bg0", 0, 0.0),
            load("io0", 1, 0.6),
            load("eu0", 2, 0.55),
            load("eu1", 5, 0.6),
        ];
        let suggestion = Suggestion::from_run(&run).unwrap();
        assert!(!suggestion.changed);
        assert_eq!(suggestion.spec.cpus.as_deref(), Some("0-2,5"));
        assert_eq!(suggestion.reasons.len(), 1);
    }

    #[test]
    fn names_the_overloaded_and_the_unevenly_loaded() {
        let run = [
            load("io0", 1, 1.0),
            load("eu0", 2, 1.0),
            load("eu1", 3, 0.95),
        ];
        let reasons = Suggestion::from_run(&run).unwrap().reasons.join(" ");
        assert!(reasons.contains("add lcores"), "{reasons}");
        let run = [
            load("io0", 1, 0.5),
            load("eu0", 2, 0.9),
            load("eu1", 3, 0.1),
        ];
        let reasons = Suggestion::from_run(&run).unwrap().reasons.join(" ");
        assert!(
            reasons.contains("eu is uneven: eu0 90% busy, eu1 10%"),
            "{reasons}"
        );
    }

    #[test]
    fn a_run_of_one_role_keeps_its_lcores() {
        let suggestion = Suggestion::from_run(&[load("io0", 0, 0.3), load("io1", 1, 0.3)]).unwrap();
        assert!(!suggestion.changed);
        assert_eq!(
            (suggestion.spec.io.as_deref(), suggestion.spec.eu.as_deref()),
            (Some("0-1"), None)
        );
    }

    #[test]
    fn refuses_a_report_without_sense() {
        assert!(Suggestion::from_run(&[]).is_err());
        assert!(Suggestion::from_run(&[load("bg0", 0, 0.1)]).is_err());
        let error = Suggestion::from_run(&[load("io0", 0, 1.5)]).unwrap_err();
        assert!(error.to_string().contains("io0 is 1.5"), "{error}");
        assert!(Suggestion::from_run(&[load("io0", 0, f64::NAN)]).is_err());
    }
}
