//! Each drop reason stands in the guide.

use super::slow::slow;
use crate::plane::testing::Lab;

#[test]
fn the_guide_has_a_row_for_each_drop_reason() {
    let mut lab = Lab::new();
    let _fast = lab.fast();
    let _slow = slow(&mut lab);
    let guide = include_str!("../../../../../docs/router.md");
    let rows: Vec<&str> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .map(|(names, _)| names)
        .collect();
    let counts = lab.egress.drop_counts();
    let counts = counts.lock().unwrap();
    assert!(counts.len() > 50, "only {} reasons", counts.len());
    let missing: Vec<&str> = counts
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| !name.starts_with("tx_full."))
        .filter(|name| !rows.iter().any(|row| row.contains(&format!("`{name}`"))))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/router.md, \"Drops\", lacks: {missing:?}"
    );
}
