//! Who forwards to whom.

use linerate_appliance::config::PortStanza;
use linerate_appliance::error::Error;

/// DPDK's destination address has one byte for the port's number.
const MOST_PORTS: usize = 256;

/// What is wrong with pairs, and what would be right.
#[derive(Debug)]
pub(super) struct WrongPairs {
    pub(super) problem: String,
    pub(super) legal: String,
}

/// Where the command line says it.
pub(super) fn usage(wrong: WrongPairs) -> Error {
    Error::Usage {
        problem: wrong.problem,
        fix: wrong.legal,
    }
}

/// What users call the ports.
pub(super) fn names(ports: &[PortStanza]) -> Result<Vec<String>, Error> {
    if ports.is_empty() || ports.len() > MOST_PORTS {
        return Err(Error::Usage {
            problem: format!("{} ports to forward between", ports.len()),
            fix: "name two ports, such as `linerate l2fwd af_packet:eth0 af_packet:eth1`".into(),
        });
    }
    Ok(ports.iter().map(PortStanza::called).collect())
}

/// The port that each port's packets go to. Without `pairs`, neighbours: 0 and 1, 2 and 3, and an
/// odd last one to itself, as in DPDK's l2fwd. With `pairs` (`a:b,c:d`, names or numbers), each
/// port stands in exactly one pair, and goes both ways; `a:a` sends a port's packets back to it.
pub(super) fn outs(names: &[String], pairs: Option<&str>) -> Result<Vec<u16>, WrongPairs> {
    let count = names.len();
    let Some(text) = pairs else {
        let neighbour = |port: usize| if port ^ 1 < count { port ^ 1 } else { port };
        return Ok((0..count).map(|port| neighbour(port) as u16).collect());
    };
    let wrong = |problem: String| WrongPairs {
        problem: format!("pairs `{text}`: {problem}"),
        legal: format!(
            "write each port once, as in `a:b,c:d`, by number or name; the ports: {}",
            listed(names)
        ),
    };
    let mut outs = vec![None; count];
    for pair in text.split(',') {
        let (left, right) = halves(pair.trim(), names)
            .ok_or_else(|| wrong(format!("`{pair}` is no pair of ports")))?;
        let both_ways = [(left, right), (right, left)];
        for &(from, to) in &both_ways[usize::from(left == right)..] {
            if outs[from].replace(to as u16).is_some() {
                return Err(wrong(format!("port {from} stands in two pairs")));
            }
        }
    }
    let missing = outs.iter().position(Option::is_none);
    if let Some(port) = missing {
        return Err(wrong(format!("port {port} stands in no pair")));
    }
    Ok(outs.into_iter().flatten().collect())
}

/// The last of an odd number of ports, which without `pairs` has no neighbour.
pub(super) fn odd_one(ports: &[PortStanza]) -> Option<&PortStanza> {
    ports.last().filter(|_| ports.len() % 2 == 1)
}

/// The two ports of `a:b`. Names hold colons themselves, so every colon is tried.
fn halves(pair: &str, names: &[String]) -> Option<(usize, usize)> {
    let find = |text: &str| {
        let by_name = names.iter().position(|name| name == text);
        by_name.or_else(|| text.parse().ok().filter(|&number| number < names.len()))
    };
    let colons = pair.match_indices(':');
    colons
        .filter_map(|(at, _)| find(&pair[..at]).zip(find(&pair[at + 1..])))
        .next()
}

fn listed(names: &[String]) -> String {
    let one = |(number, name): (usize, &String)| format!("{number} {name}");
    names
        .iter()
        .enumerate()
        .map(one)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.into()).collect()
    }

    #[test]
    fn neighbours_pair_up_and_an_odd_last_one_keeps_to_itself() {
        let four = named(&["a", "b", "c", "d"]);
        assert_eq!(outs(&four, None).unwrap(), [1, 0, 3, 2]);
        assert_eq!(outs(&four[..3], None).unwrap(), [1, 0, 2]);
        assert_eq!(outs(&four[..1], None).unwrap(), [0]);
    }

    #[test]
    fn pairs_are_written_by_number_or_name() {
        let names = named(&["wan", "ring:a", "ring:b"]);
        assert_eq!(outs(&names, Some("0:2,1:1")).unwrap(), [2, 1, 0]);
        assert_eq!(
            outs(&names, Some("ring:a:wan, ring:b:2")).unwrap(),
            [1, 0, 2]
        );
    }

    #[test]
    fn wrong_pairs_name_the_port_and_the_choice() {
        let names = named(&["wan", "lan", "dmz"]);
        for (text, problem) in [
            ("0:1", "port 2 stands in no pair"),
            ("0:1,1:2", "port 1 stands in two pairs"),
            ("0:1,2:2,2:2", "port 2 stands in two pairs"),
            ("0:3,1:2", "`0:3` is no pair"),
            ("wan-lan", "is no pair"),
            ("", "is no pair"),
        ] {
            let error = outs(&names, Some(text)).unwrap_err();
            assert!(error.problem.contains(problem), "{text}: {error:?}");
            assert!(error.legal.contains("0 wan, 1 lan, 2 dmz"));
        }
    }
}
