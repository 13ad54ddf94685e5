//! Names that users type: near names for an unknown one.

/// How alike names must be to be offered: 1 less the share of letters that differ.
const ALIKE: f64 = 0.55;
/// Names offered at most.
const OFFERED: usize = 3;

/// The names nearest to `word`, best first.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let lower = word.to_lowercase();
    let mut near: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| {
            let begins = !lower.is_empty() && name.to_lowercase().starts_with(&lower);
            let alike = strsim::normalized_damerau_levenshtein(&lower, &name.to_lowercase());
            (if begins { 2.0 } else { alike }, name)
        })
        .filter(|(alike, _)| *alike >= ALIKE)
        .collect();
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    near.dedup_by_key(|(_, name)| *name);
    near.iter()
        .take(OFFERED)
        .map(|(_, name)| (*name).into())
        .collect()
}

/// `perhaps wan`, or all names where none is near.
pub fn offer<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    match (
        nearest(word, all.iter().copied()).as_slice(),
        all.as_slice(),
    ) {
        (_, []) => "there is none".into(),
        ([], all) => format!("one of {}", all.join(", ")),
        ([one], _) => format!("perhaps {one}"),
        (several, _) => format!("perhaps {}", several.join(" or ")),
    }
}
