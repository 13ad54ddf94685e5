//! A filter expression up to the first zero byte, and behind it a frame to try it on.

use linerate_wire::filter::Filter;

pub(crate) fn check(input: &[u8]) {
    let end = input
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(input.len());
    let (expression, frame) = input.split_at(end);
    let frame = frame.get(1..).unwrap_or_default();
    let Ok(expression) = std::str::from_utf8(expression) else {
        return;
    };
    match expression.parse::<Filter>() {
        Ok(filter) => opposites_exclude_each_other(expression, &filter, frame),
        Err(error) => {
            assert!(expression[error.at..].starts_with(&error.word));
            assert!(!error.to_string().is_empty());
        }
    }
}

fn opposites_exclude_each_other(expression: &str, filter: &Filter, frame: &[u8]) {
    if expression.trim().is_empty() || expression.len() > 30_000 {
        return; // nothing to invert, or too long to write twice
    }
    let passes = filter.matches(frame);
    let Ok(opposite) = format!("not ({expression})").parse::<Filter>() else {
        return; // one parenthesis too deep
    };
    // Neither passes a frame that ends too early.
    assert!(!(passes && opposite.matches(frame)));
    let twice = format!("({expression}) and ({expression})");
    let twice: Filter = twice.parse().expect("no deeper than the opposite");
    // Behind `vlan`, the second half looks one tag further.
    assert!(expression.contains("vlan") || twice.matches(frame) == passes);
}
