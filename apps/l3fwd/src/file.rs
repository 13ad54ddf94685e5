//! Rule files in DPDK's syntax, an entry a line:
//!
//! ```text
//! # lookup lpm and fib: destination, port
//! R198.18.0.0/24 0
//! # lookup em: destination, source, destination port, source port, protocol, port
//! R198.18.0.0 198.18.0.1 9 9 0x11 0
//! # lookup acl: source, destination, source ports, destination ports, protocol/mask; then the port
//! R192.0.2.0/24 198.18.0.0/24 0 : 65535 80 : 80 0x06/0xff 1
//! # the same with @ and without a port is what to drop
//! @192.0.2.7/32 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00
//! ```
//!
//! Earlier lines of an access list win. The file of the other address family looks the same.
//!
//! Ports are numbers in the order in which the command names them. As with DPDK, what ClassBench
//! writes behind a protocol (TCP flags) is passed over in lines with @.

use linerate_wire::MacAddr;

use super::Mode;
use super::rules::{AclText, Family, FlowText, NextHops, Place, Ports, Problems, Rules, WrongKey};
use linerate_appliance::config::At;

/// Reads the lines of one file into `rules`; what is wrong goes to `problems`.
pub(super) fn read<A: Family<W>, const W: usize>(
    text: &str,
    source: usize,
    mode: Mode,
    ports: &Ports,
    hops: &mut NextHops,
    rules: &mut Rules<A, W>,
    problems: &mut Problems,
) {
    for (line, words) in (1..).zip(text.lines()) {
        let place = Place {
            source,
            line,
            entry: "",
        };
        if words.starts_with('#') || words.trim().is_empty() {
            continue;
        }
        let mut entry = Entry {
            place,
            ports,
            hops,
            rules,
            problems,
        };
        let read = match (mode, words.split_at_checked(1)) {
            (Mode::Lpm | Mode::Fib, Some(("R", rest))) => entry.route(rest),
            (Mode::Em, Some(("R", rest))) => entry.flow(rest),
            (Mode::Acl, Some(("R", rest))) => entry.acl(rest, false),
            (Mode::Acl, Some(("@", rest))) => entry.acl(rest, true),
            (Mode::Acl, _) => Err(WrongKey::new(
                "",
                "the line begins with neither R nor @",
                "begin it with R (forward), @ (drop) or # (a comment)",
            )),
            _ => Err(WrongKey::new(
                "",
                "the line does not begin with R",
                "begin it with R, or with # if it is a comment; @ is for lookup acl",
            )),
        };
        if let Err(wrong) = read {
            problems.add(place, wrong);
        }
    }
}

/// A line, and where its content goes.
struct Entry<'a, A: Family<W>, const W: usize> {
    place: Place,
    ports: &'a Ports,
    hops: &'a mut NextHops,
    rules: &'a mut Rules<A, W>,
    problems: &'a mut Problems,
}

impl<A: Family<W>, const W: usize> Entry<'_, A, W> {
    fn route(&mut self, line: &str) -> Result<(), WrongKey> {
        let [prefix, port] = fields(line, ["destination", "port"], Rest::None)?;
        let hop = self.hop(port);
        let prefix = self.here(prefix);
        self.rules.route(self.place, prefix, hop, self.problems);
        Ok(())
    }

    fn flow(&mut self, line: &str) -> Result<(), WrongKey> {
        let names = [
            "destination",
            "source",
            "destination port",
            "source port",
            "protocol",
            "port",
        ];
        let [dst, src, dst_port, src_port, protocol, port] = fields(line, names, Rest::None)?;
        let hop = self.hop(port);
        let flow = FlowText {
            dst: self.here(dst),
            src: self.here(src),
            dst_port: self.here(dst_port),
            src_port: self.here(src_port),
            protocol: self.here(protocol),
        };
        self.rules.flow(self.place, flow, hop, self.problems);
        Ok(())
    }

    fn acl(&mut self, line: &str, drops: bool) -> Result<(), WrongKey> {
        const NAMES: [&str; 10] = [
            "source",
            "destination",
            "first source port",
            ":",
            "last source port",
            "first destination port",
            ":",
            "last destination port",
            "protocol/mask",
            "port",
        ];
        let (words, hop) = if drops {
            let names = *NAMES.first_chunk::<9>().expect("ten are more than nine");
            let denied = self.hops.denied();
            (fields(line, names, Rest::Flags)?, Some(denied))
        } else {
            let [words @ .., port] = fields(line, NAMES, Rest::None)?;
            (words, self.hop(port))
        };
        let [
            src,
            dst,
            src_first,
            colon,
            src_last,
            dst_first,
            other,
            dst_last,
            protocol,
        ] = words;
        if (colon, other) != (":", ":") {
            return Err(WrongKey::new(
                "",
                "the ports are no ranges",
                "write both ranges with a colon between blanks, as in 0 : 65535",
            ));
        }
        let entry = AclText {
            src: self.here(src),
            dst: self.here(dst),
            src_ports: self.here([src_first, src_last]),
            dst_ports: self.here([dst_first, dst_last]),
            protocol: self.here(protocol),
        };
        self.rules.acl(self.place, entry, hop, self.problems);
        Ok(())
    }

    /// A field of this line.
    fn here<T>(&self, value: T) -> At<T> {
        At {
            value,
            line: self.place.line,
        }
    }

    /// The next hop out of a port, if there is such a port.
    fn hop(&mut self, port: &str) -> Option<u32> {
        const DEFAULT: Option<MacAddr> = None;
        match self.ports.find(port) {
            Ok(port) => Some(self.hops.number(port, DEFAULT)),
            Err(wrong) => {
                self.problems.add(self.place, wrong);
                None
            }
        }
    }
}

/// What may follow the last field.
#[derive(Clone, Copy, PartialEq)]
enum Rest {
    None,
    /// One word, which is passed over.
    Flags,
}

/// The fields of a line.
fn fields<'a, const N: usize>(
    line: &'a str,
    names: [&str; N],
    rest: Rest,
) -> Result<[&'a str; N], WrongKey> {
    let mut words = line.split_ascii_whitespace();
    let found = names.map(|_| words.next());
    let all = || format!("the fields are {}", names.join(", "));
    if let Some(missing) = found.iter().position(Option::is_none) {
        return Err(WrongKey::new(
            "",
            format!("{} is missing", names[missing]),
            all(),
        ));
    }
    if rest == Rest::Flags {
        words.next();
    }
    match words.next() {
        Some(word) => Err(WrongKey::new(
            "",
            format!("`{word}` is one field too many"),
            all(),
        )),
        None => Ok(found.map(|word| word.unwrap_or_default())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_appliance::error::Error;
    use linerate_tables::acl::{Bits, Match, PacketKey4, Range};
    use linerate_wire::{FlowKey4, FlowKey6};

    /// What a text comes to, with three ports.
    fn read_as<A: Family<W>, const W: usize>(
        mode: Mode,
        text: &str,
    ) -> (Rules<A, W>, NextHops, Result<(), Error>) {
        let ports = Ports(["a", "b", "c"].map(String::from).into());
        let (mut hops, mut rules) = (NextHops::new(3), Rules::default());
        let mut problems = Problems::default();
        let source = problems.source("t.cfg");
        read(
            text,
            source,
            mode,
            &ports,
            &mut hops,
            &mut rules,
            &mut problems,
        );
        (rules, hops, problems.result(None))
    }

    #[test]
    fn the_files_that_dpdk_ships() {
        // The first and last lines of examples/l3fwd/{lpm,em}_default_{v4,v6}.cfg.
        let text = "# Copy of hard-coded IPv4 FWD table for L3FWD LPM\nR198.18.0.0/24 0\n\
            R198.18.2.0/24 2\n";
        let (rules, _, result) = read_as::<u32, 1>(Mode::Lpm, text);
        result.unwrap();
        let shown: Vec<_> = rules
            .routes
            .iter()
            .map(|(p, hop)| format!("{p} {hop}"))
            .collect();
        assert_eq!(shown, ["198.18.0.0/24 0", "198.18.2.0/24 2"]);

        let text = "R2001:0200:0000:0001:0000:0000:0000:0000/64 1\n";
        let (rules, _, result) = read_as::<u128, 4>(Mode::Fib, text);
        result.unwrap();
        assert_eq!(rules.routes[0].0.to_string(), "2001:200:0:1::/64");

        let text = "#Copy\nR198.18.1.0 198.18.1.1 9 7 0x11 1\n";
        let (rules, _, result) = read_as::<u32, 1>(Mode::Em, text);
        result.unwrap();
        let key = FlowKey4::new([198, 18, 1, 1], [198, 18, 1, 0], 7, 9, 17);
        assert_eq!(rules.flows, [(key, 1)]);

        let text = "R2001:200::0 2001:200::1 9 9 0x11 2\n";
        let (rules, _, result) = read_as::<u128, 4>(Mode::Em, text);
        result.unwrap();
        let [dst, src] = [0, 1].map(|last| {
            let mut address = [0; 16];
            address[..3].copy_from_slice(&[0x20, 1, 2]);
            address[15] = last;
            address
        });
        assert_eq!(rules.flows, [(FlowKey6::new(src, dst, 9, 9, 17), 2)]);
    }

    #[test]
    fn access_lists() {
        let text = "@192.0.2.7/32 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n\
                    R192.0.2.0/24 198.18.0.9/24 0 : 65535 80 : 81 0x06/0xff 1\n\
                    @0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x11/0xff 0x0000/0x0200\n";
        let (rules, hops, result) = read_as::<u32, 1>(Mode::Acl, text);
        result.unwrap();
        let denied = hops.denied();
        let numbers: Vec<_> = rules.acl.iter().map(|&(_, hop)| hop).collect();
        assert_eq!(numbers, [denied, 1, denied]);
        let forward = rules.acl[1].0;
        assert_eq!(forward.dst_ports, Range::new(80, 81).unwrap());
        assert_eq!(forward.protocol, Bits::byte(6));
        let packet = PacketKey4::tuple([0xc000_0209], [0xc612_0001], (1, 81), 6);
        assert!(forward.matches(&packet));
        let udp = Match {
            protocol: Bits::byte(17),
            ..Match::ANY
        };
        assert_eq!(rules.acl[2].0, udp); // the flags behind it do not count
    }

    #[test]
    fn every_wrong_line_is_named_with_what_is_legal() {
        let text = "R198.18.0.0/24 0\n\
                    R198.18.1.0/24 3\n\
                    R198.18.1.0/33 0\n\
                    X\n\
                    R198.18.1.0/24\n\
                    R198.18.1.0/24 0 9\n\
                    R198.18.0.7/24 1\n\
                    é\n";
        let (rules, _, result) = read_as::<u32, 1>(Mode::Lpm, text);
        assert_eq!(rules.routes.len(), 1);
        let all = result.unwrap_err().to_string();
        let lines: Vec<&str> = all.lines().skip(1).collect();
        assert_eq!(lines.len(), 7, "{all}");
        assert!(lines[6].starts_with("t.cfg:8: "), "{all}");

        let wrong = |mode, line: &str| {
            let error = read_as::<u32, 1>(mode, line).2.unwrap_err().to_string();
            let (what, legal) = error.split_once("; ").unwrap();
            (what.to_owned(), legal.to_owned())
        };
        for (mode, line, what, legal) in [
            (
                Mode::Lpm,
                "R198.18.1.0/24 3",
                "no port `3`",
                "0 a, 1 b, 2 c",
            ),
            (
                Mode::Lpm,
                "R198.18.1.0/33 0",
                "no length between 0 and 32",
                "0 to 32",
            ),
            (Mode::Lpm, "R::/0 0", "is no IPv4 prefix", "198.18.0.0/24"),
            (
                Mode::Lpm,
                "@198.18.1.0/24 0",
                "does not begin with R",
                "lookup acl",
            ),
            (
                Mode::Lpm,
                "R198.18.1.0/24",
                "port is missing",
                "destination, port",
            ),
            (
                Mode::Em,
                "R1.2.3.4 1.2.3.5 9 9 0x111 0",
                "protocol: `0x111`",
                "0 to 255",
            ),
            (
                Mode::Em,
                "R1.2.3.4/32 1.2.3.5 9 9 17 0",
                "is no IPv4 address",
                "198.18.0.0",
            ),
            (
                Mode::Acl,
                "R1.2.3.4/32 1.2.3.5/32 9 : 8 0 : 1 6/0xff 0",
                "source_ports: range 9 to 8",
                "8 : 9",
            ),
            (
                Mode::Acl,
                "R1.2.3.4/32 1.2.3.5/32 8 - 9 0 : 1 6/0xff 0",
                "no ranges",
                "0 : 65535",
            ),
            (
                Mode::Acl,
                "R1.2.3.4/32 1.2.3.5/32 8 : 9 0 : 1 6/0xff",
                "port is missing",
                "protocol/mask, port",
            ),
            (Mode::Acl, "198.18.1.0/24 0", "neither R nor @", "#"),
        ] {
            let (error, fix) = wrong(mode, line);
            assert!(
                error.starts_with("t.cfg:1: ") && error.contains(what),
                "{line}: {error}"
            );
            assert!(fix.contains(legal), "{line}: {fix}");
        }
    }
}
