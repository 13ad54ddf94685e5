//! A file of prefixes, one a line, as route collectors' dumps are boiled down to.

use super::{Address, Prefix, Prefix4, Prefix6};
use crate::TableError;
use std::collections::HashMap;
use std::io::BufRead;

/// What a file holds, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// The IPv4 prefixes.
    pub v4: Vec<Prefix4>,
    /// The IPv6 prefixes.
    pub v6: Vec<Prefix6>,
}

/// Reads `address/length` from each line, IPv4 and IPv6 mixed; empty lines and those that begin
/// with `#` are passed over.
///
/// ```
/// let text = "# two of each kind\n10.0.0.0/8\n2001:db8::/32\n";
/// let prefixes = linerate_tables::lpm::file::read(text.as_bytes())?;
/// assert_eq!((prefixes.v4.len(), prefixes.v6.len()), (1, 1));
///
/// let wrong = linerate_tables::lpm::file::read("10.0.0.0/8\n10.1.2.3/16\n".as_bytes());
/// assert!(wrong.unwrap_err().to_string().starts_with("line 2: "));
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
///
/// # Errors
/// The number of the first line that is no prefix, has host bits set or repeats an earlier line,
/// and why; or that reading failed.
pub fn read(from: impl BufRead) -> Result<Prefixes, TableError> {
    let mut prefixes = Prefixes::default();
    let (mut seen4, mut seen6) = (HashMap::new(), HashMap::new());
    for (number, line) in (1..).zip(from.lines()) {
        let wrong = |reason: String| TableError::PrefixLine {
            line: number,
            reason,
        };
        let line = line.map_err(|error| wrong(error.to_string()))?;
        let text = line.trim();
        let added = match text {
            "" => Ok(()),
            comment if comment.starts_with('#') => Ok(()),
            six if six.contains(':') => add(six, number, &mut prefixes.v6, &mut seen6),
            four => add(four, number, &mut prefixes.v4, &mut seen4),
        };
        added.map_err(wrong)?;
    }
    Ok(prefixes)
}

/// Adds the prefix, if no earlier line has it.
fn add<A: Address>(
    text: &str,
    number: usize,
    to: &mut Vec<Prefix<A>>,
    seen: &mut HashMap<Prefix<A>, usize>,
) -> Result<(), String> {
    let prefix = text
        .parse()
        .map_err(|error: TableError| error.to_string())?;
    if let Some(first) = seen.insert(prefix, number) {
        return Err(format!(
            "{prefix} stands in line {first} already: remove one"
        ));
    }
    to.push(prefix);
    Ok(())
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;

    #[test]
    fn the_line_and_the_reason_are_named() {
        let why = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
        assert!(
            why("10.0.0.0/8\n\n10.0.0.0/8\n").starts_with("line 3: 10.0.0.0/8 stands in line 1")
        );
        assert!(why("# x\n2001:db8::1/32").starts_with("line 2: 2001:db8::1/32 has bits set"));
        assert!(why("10.0.0.0/8 via 1").starts_with("line 1: "));
        assert!(why("10.0.0.0\n").starts_with("line 1: "));
        assert!(why("::/129\n").contains("128"));
        let not_text = read(&b"10.0.0.0/8\n\xff\n"[..]).unwrap_err();
        assert!(not_text.to_string().starts_with("line 2: "));
    }

    #[test]
    fn windows_line_ends_and_order() {
        let prefixes = read(&b"2001:db8::/32\r\n10.0.0.0/8\r\n0.0.0.0/0"[..]).unwrap();
        assert_eq!(prefixes.v4[1], Prefix4::ALL);
        assert_eq!(prefixes.v6.len(), 1);
    }
}
