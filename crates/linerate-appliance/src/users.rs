//! Users of this machine, as `/etc/passwd` has them: without queries over a network.

use std::fs;
use std::path::Path;

/// The least privileged user of any Linux.
pub const NOBODY: &str = "nobody";

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// As the user list has it, or as it was asked for.
    pub name: String,
    /// Number of the user.
    pub uid: u32,
    /// Number of its group.
    pub gid: u32,
}

impl User {
    /// By name or number; `None` where there is none. A number need not be in the file: it is its
    /// own group then.
    pub fn find(text: &str) -> Option<Self> {
        let passwd = fs::read_to_string(Path::new("/etc/passwd")).unwrap_or_default();
        Self::among(&passwd, text)
    }

    fn among(passwd: &str, text: &str) -> Option<Self> {
        let number = text.parse().ok().filter(|&number| number != u32::MAX);
        let user = |line: &str| {
            let mut fields = line.split(':');
            let (name, _) = (fields.next()?, fields.next()?);
            let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            let name = name.to_string();
            (name == text || number == Some(uid)).then_some(Self { name, uid, gid })
        };
        let listed = passwd.lines().find_map(user);
        listed.or_else(|| {
            number.map(|number| Self {
                name: text.into(),
                uid: number,
                gid: number,
            })
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbroken:x\nfrr:x:103:111:FRR:/:/bin/false\n";
        let find = |text| User::among(passwd, text).map(|user| (user.name, user.uid, user.gid));
        assert_eq!(find("frr"), Some(("frr".into(), 103, 111)));
        assert_eq!(find("103"), Some(("frr".into(), 103, 111)));
        assert_eq!(find("500"), Some(("500".into(), 500, 500)));
        for none in ["broken", "fr", "", "-1", "4294967295", "4294967296"] {
            assert_eq!(find(none), None, "{none}");
        }
        assert_eq!(User::find("root").unwrap().uid, 0);
    }
}
