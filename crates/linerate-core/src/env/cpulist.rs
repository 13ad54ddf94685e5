//! Lists such as `0,2-4`: the kernel's notation for CPUs, and ours for slots.

use std::fmt;

use super::EnvError;

/// CPUs or slots in the order in which they were written; duplicates are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(Vec<u32>);

/// One more than the largest number a list may hold: the largest NR_CPUS of Linux on x86-64.
pub(super) const LIMIT: u32 = 8192;

impl CpuList {
    /// Reads `0,2-4`. Blanks around numbers are allowed, an empty text is an empty list.
    /// `key` is what the error calls the text: a TOML key or a file.
    ///
    /// ```
    /// use linerate_core::env::CpuList;
    /// let list = CpuList::parse("io", "0,2-4")?;
    /// assert_eq!(list.as_slice(), [0, 2, 3, 4]);
    /// assert_eq!(list.to_string(), "0,2-4");
    /// # Ok::<(), linerate_core::env::EnvError>(())
    /// ```
    pub fn parse(key: &str, text: &str) -> Result<Self, EnvError> {
        let bad = |reason: String| EnvError::BadList {
            key: key.into(),
            text: text.trim().into(),
            reason,
        };
        let number = |part: &str| -> Result<u32, EnvError> {
            let part = part.trim();
            if part.is_empty() {
                return Err(bad("a number is missing".into()));
            }
            match part.parse::<u32>() {
                Ok(n) if n < LIMIT => Ok(n),
                Ok(_) => Err(bad(format!("{part} is above {}", LIMIT - 1))),
                Err(_) => Err(bad(format!("`{part}` is not a number"))),
            }
        };
        let mut list = Vec::new();
        if text.trim().is_empty() {
            return Ok(Self(list));
        }
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(bad(format!("`{}` runs backwards", part.trim())));
            }
            if list.len() + (last - first) as usize >= LIMIT as usize {
                return Err(bad(format!("more than {LIMIT} entries")));
            }
            list.extend(first..=last);
        }
        Ok(Self(list))
    }

    /// The numbers, in order.
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// The numbers by value, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many entries the list has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list has no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the list holds `n`.
    pub fn contains(&self, n: u32) -> bool {
        self.0.contains(&n)
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let runs = self.0.chunk_by(|a, b| a + 1 == *b);
        for (i, run) in runs.enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match run {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                run => write!(f, "{comma}{}", run[0])?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_the_kernels_notation() {
        for text in ["0", "0,2-4", "2-3,0-1", "0,0,2", "7"] {
            assert_eq!(CpuList::parse("k", text).unwrap().to_string(), text);
        }
        assert_eq!(
            CpuList::parse("k", " 1 , 3 - 4\n").unwrap().as_slice(),
            [1, 3, 4]
        );
        assert_eq!(CpuList::parse("k", "\n").unwrap().to_string(), "none");
    }

    #[test]
    fn refuses_malformed_lists_by_name() {
        for (text, reason) in [
            ("1,,2", "missing"),
            ("1-", "missing"),
            ("-1", "missing"),
            ("a", "not a number"),
            ("1-2-3", "not a number"),
            ("4-2", "backwards"),
            ("0-4000000000", "above"),
            ("99999999999999", "not a number"),
            ("0x3", "not a number"),
        ] {
            let error = CpuList::parse("io", text).unwrap_err();
            let message = error.to_string();
            assert!(
                message.starts_with("io: `") && message.contains(reason),
                "{text}: {message}"
            );
            assert!(error.fix().is_some());
        }
    }

    #[test]
    fn a_list_cannot_be_made_huge_by_repetition() {
        let text = vec!["0-8191"; 100].join(",");
        assert!(CpuList::parse("io", &text).is_err());
    }
}
