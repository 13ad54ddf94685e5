//! Names that users type: near names for an unknown one, and lists such as `0,2-3,wan`.

use super::protocol::Problem;
pub(super) use linerate_appliance::nearest::nearest;
use linerate_appliance::nearest::offer;

/// The error for an unknown `kind` called `word`, with the nearest `names`, or all where none is
/// near.
pub(super) fn unknown<'a>(
    kind: &str,
    word: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Problem {
    let names: Vec<&str> = names.into_iter().collect();
    Problem {
        problem: format!("there is no {kind} `{word}`"),
        fix: offer(word, names.iter().copied()),
        nearest: nearest(word, names),
    }
}

/// The numbers that a list such as `all`, `0`, `0,2-3` or `wan,lan` says, in the order given, each
/// once. `names` and `numbers` are parallel.
pub(super) fn list(
    kind: &str,
    text: &str,
    numbers: &[u16],
    names: &[&str],
) -> Result<Vec<u16>, Problem> {
    if text == "all" {
        return Ok(numbers.to_vec());
    }
    let known = |number: u16| numbers.contains(&number).then_some(number);
    let number = |word: &str| word.parse().ok().and_then(known);
    let none = |word: &str| {
        let mut problem = unknown(kind, word, names.iter().copied());
        if let ([first, ..], Ok(_)) = (numbers, word.parse::<u64>()) {
            let last = numbers.last().unwrap_or(first);
            problem.fix = format!("{kind}s are {first} to {last}");
        }
        problem
    };
    let mut found = Vec::new();
    for word in text.split(',') {
        let word = word.trim();
        let by_name = names.iter().position(|name| *name == word);
        let range = word
            .split_once('-')
            .and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        match (by_name, number(word), range) {
            (_, Some(number), _) => found.push(number),
            (Some(at), None, _) => found.push(numbers[at]),
            (None, None, Some((first, last))) => {
                if first > last || known(first).is_none() || known(last).is_none() {
                    return Err(none(word));
                }
                found.extend(
                    numbers
                        .iter()
                        .filter(|number| (first..=last).contains(number)),
                );
            }
            (None, None, None) => return Err(none(word)),
        }
    }
    let mut once = Vec::new();
    found.retain(|number| {
        let new = !once.contains(number);
        once.push(*number);
        new
    });
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_alike_are_offered_best_first() {
        let names = ["start", "stop", "stream", "set", "page"];
        assert_eq!(nearest("strat", names)[0], "start");
        assert_eq!(nearest("pag", names), ["page"]);
        assert!(nearest("xyzzy", names).is_empty());
        let problem = unknown("page", "xyzzy", names);
        assert_eq!(problem.fix, "one of start, stop, stream, set, page");
    }

    #[test]
    fn port_lists_are_numbers_ranges_names_and_all() {
        let ports = |text| list("port", text, &[0, 1, 2, 3], &["wan", "lan", "a-b", "d"]);
        assert_eq!(ports("all").unwrap(), [0, 1, 2, 3]);
        assert_eq!(ports("0").unwrap(), [0]);
        assert_eq!(ports("0,2-3").unwrap(), [0, 2, 3]);
        assert_eq!(ports("lan,wan,0, a-b").unwrap(), [1, 0, 2]);
        assert_eq!(ports("9").unwrap_err().fix, "ports are 0 to 3");
        assert_eq!(ports("wn").unwrap_err().nearest, ["wan"]);
        for bad in [
            "",
            "0,",
            "3-1",
            "0-9",
            "-1",
            "1-",
            "65536",
            "99999999999999999999",
        ] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}
