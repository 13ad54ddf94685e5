//! The stanza `[services]`, and whether what rules apply is there.

use linerate_appliance::config::{At, Section};
use linerate_appliance::nearest::offer;

use super::plan::Spec;
use super::{KINDS, MOST};
use crate::policy::PolicyConfig;

/// Reads `[services]`: every service that rules may apply, those without a stanza as they are
/// usually.
pub fn read(file: &Section<'_>) -> Vec<Spec> {
    let services = file.table("services", "services", "a table: [services]");
    let mut all = Vec::new();
    for kind in KINDS {
        if kind.is_named {
            let Some(services) = &services else {
                continue;
            };
            let legal = format!("tables: [[services.{}]] with name", kind.name);
            for (value, _) in services.list(kind.name, &legal) {
                let which = format!("services.{}", kind.name);
                let Some(section) = services.element(&which, value, &legal) else {
                    continue;
                };
                let legal = "a name such as \"guest\"";
                let name = section.required("name", legal);
                let full = |name: &str| format!("{}:{name}", kind.name);
                if let Some(At { value, line }) = &name {
                    let is_of_names =
                        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
                    if value.is_empty() || !value.chars().all(is_of_names) {
                        let problem = format!("`{value}` is no name of a service");
                        let legal = "letters, digits, `-`, `_` or `.`";
                        section.wrong(*line, "name", problem, legal);
                    } else if all.iter().any(|spec: &Spec| spec.name == full(value)) {
                        let problem = format!("`{value}` names two of them");
                        section.wrong(*line, "name", problem, "a name of its own");
                    }
                }
                let settings = (kind.read)(Some(&section));
                section.end();
                all.extend(name.map(|at| Spec {
                    name: full(&at.value),
                    kind,
                    settings,
                }));
            }
            continue;
        }
        let full = format!("services.{}", kind.name);
        let legal = format!("a table: [{full}]");
        let section =
            (services.as_ref()).and_then(|services| services.table(&full, kind.name, &legal));
        let settings = (kind.read)(section.as_ref());
        if let Some(section) = &section {
            section.end();
        }
        all.push(Spec {
            name: kind.name.into(),
            kind,
            settings,
        });
    }
    if let Some(services) = services {
        services.end();
    }
    all
}

/// Notes what rules apply that is not there.
pub fn check(file: &Section<'_>, known: &[Spec], policy: &PolicyConfig) {
    let names = || known.iter().map(|spec| spec.name.as_str());
    let mut used: Vec<&str> = Vec::new();
    let mut last = 1;
    for list in &policy.lists {
        for apply in &list.applies {
            for name in &apply.names {
                if !names().any(|known| known == name) {
                    let line = if list.file.is_some() {
                        list.line
                    } else {
                        apply.line
                    };
                    let key = format!("policy {}: apply", list.name());
                    let problem = format!("there is no service `{name}`");
                    let legal = match name.split_once(':') {
                        Some((kind, _)) if !names().any(|known| known.starts_with(kind)) => {
                            format!("one of [[services.{kind}]] by its name")
                        }
                        _ => offer(name, names()),
                    };
                    file.wrong(line, &key, problem, legal);
                } else if !used.contains(&name.as_str()) {
                    used.push(name);
                    last = apply.line.max(last);
                }
            }
        }
    }
    if used.len() > MOST {
        let problem = format!("rules apply {} services", used.len());
        file.wrong(last, "apply", problem, format!("at most {MOST} in a file"));
    }
    for spec in known.iter().filter(|spec| spec.kind.is_named) {
        if !used.contains(&spec.name.as_str()) {
            let line = file.value("services").map_or(1, |(_, line)| line);
            let problem = format!("no rule applies `{}`", spec.name);
            let advice = "name it in `apply` of a rule or of a [[policy]], or take it out";
            (file.notes()).warn(line, "services", problem, advice);
        }
    }
}
