//! A port that the user names for an external device: with the keys of `pktgen`, and the gateway
//! that its frames go to.

use std::fmt;
use std::net::IpAddr;

use linerate_appliance::error::Error;
use linerate_pktgen::PortEntry;
use linerate_pktgen::session::PortAsked;

/// `KIND:TARGET[,key=value...]`, with `addr=` and `gateway=` among the keys.
#[derive(Clone, Debug)]
pub(crate) struct NamedPort {
    pub(crate) asked: PortAsked,
    /// The device's address on this link: frames are sent to the MAC address that answers for it.
    pub(crate) gateway: Option<IpAddr>,
}

impl fmt::Display for NamedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.asked.spec)?;
        if let Some(addrs) = self.asked.get("addr") {
            write!(f, ", answers for {addrs}")?;
        }
        match self.gateway {
            Some(gateway) => write!(f, ", by {gateway}"),
            None => Ok(()),
        }
    }
}

impl std::str::FromStr for NamedPort {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut gateway = None;
        let mut words = Vec::new();
        for word in text.split(',') {
            match word.strip_prefix("gateway=") {
                Some(address) => gateway = Some(parse_gateway(text, address)?),
                None => words.push(word),
            }
        }
        let asked = PortEntry::parse(&words.join(","))?.asked()?;
        let ours = [
            ("rate", asked.rate.is_some()),
            ("count", asked.count.is_some()),
            ("speed", asked.speed_bps.is_some()),
        ];
        if let Some((key, _)) = ours.iter().find(|(_, given)| *given) {
            return Err(Error::Usage {
                problem: format!("port {text}: {key} is not a key of a port in a benchmark"),
                fix: "leave it out; --speed, --max-pps and --pps are for all ports".into(),
            });
        }
        Ok(Self { asked, gateway })
    }
}

fn parse_gateway(port: &str, address: &str) -> Result<IpAddr, Error> {
    address.parse().map_err(|_| Error::Usage {
        problem: format!("port {port}: `{address}` is no address of a gateway"),
        fix: "write gateway=192.0.2.1 or gateway=2001:db8::1: the device's address on this link"
            .into(),
    })
}

/// Whether ports that are named in pairs can reach each other by their addresses.
///
/// # Errors
/// An address without one on the other side, or a gateway that is missing, or not on the link.
pub(crate) fn check(ports: &[NamedPort]) -> Result<(), Error> {
    let wrong = |port: &NamedPort, problem: String, fix: &str| {
        Err(Error::Usage {
            problem: format!("port {}: {problem}", port.asked.spec),
            fix: fix.into(),
        })
    };
    for (number, port) in ports.iter().enumerate() {
        let own = port.asked.addrs.first();
        let Some(other) = ports.get(number ^ 1) else {
            continue;
        };
        let Some(own) = own else {
            if port.gateway.is_some() || !other.asked.addrs.is_empty() {
                return wrong(
                    port,
                    "it has no address to ask from and to be reached at".into(),
                    "give both ports of a pair one, such as addr=192.0.2.2/24",
                );
            }
            continue;
        };
        if other.asked.addrs.is_empty() {
            // The check of the other port reports it.
            continue;
        }
        let same = |ip: IpAddr| ip.is_ipv4() == own.ip.is_ipv4();
        let Some(there) = other.asked.addrs.iter().find(|addr| same(addr.ip)) else {
            return wrong(
                port,
                format!("{own} is of another family than what the other port of its pair has"),
                "give both ports of a pair addresses of one family",
            );
        };
        match port.gateway {
            None if !own.covers(there.ip) => {
                return wrong(
                    port,
                    format!("{} is not on its link, and no gateway is named", there.ip),
                    "add gateway=, the device's address on this link",
                );
            }
            Some(gateway) if !same(gateway) || !own.covers(gateway) || gateway == own.ip => {
                return wrong(
                    port,
                    format!("the gateway {gateway} is no other host on the link of {own}"),
                    "name the device's address on this link, and give addr= with its prefix length",
                );
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_written_as_pktgen_takes_it_and_with_its_gateway() {
        let text = "af_packet:g0,addr=192.0.2.2/24,ring=64,gateway=192.0.2.1,give_up=1s";
        let port: NamedPort = text.parse().unwrap();
        assert_eq!(port.asked.spec, "af_packet:g0,ring=64");
        assert_eq!(port.gateway, Some("192.0.2.1".parse().unwrap()));
        let shown = "af_packet:g0,ring=64, answers for 192.0.2.2/24, by 192.0.2.1";
        assert_eq!(port.to_string(), shown);
        for (text, problem) in [
            ("af_packet:g0,gateway=here", "`here` is no address"),
            ("af_packet:g0,addr=1.2.3", "addr=1.2.3"),
            ("af_packet:g0,rate=1Mpps", "rate is not a key of a port"),
        ] {
            let error = text.parse::<NamedPort>().unwrap_err();
            assert!(error.to_string().contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn pairs_that_cannot_reach_each_other_are_refused() {
        let of = |a: &str, b: &str| {
            check(&[
                format!("af_packet:g0,{a}").parse().unwrap(),
                format!("af_packet:g1,{b}").parse().unwrap(),
            ])
        };
        let (a, b) = (
            "addr=10.1.0.2/24,gateway=10.1.0.1",
            "addr=10.2.0.2/24,gateway=10.2.0.1",
        );
        of(a, b).unwrap();
        of("addr=10.1.0.2/16", "addr=10.1.1.2/16").unwrap();
        of("ring=64", "ring=64").unwrap();
        for (a, b, problem) in [
            (a, "ring=64", "no address to ask from"),
            ("gateway=10.1.0.1", "ring=64", "no address to ask from"),
            (
                a,
                "addr=2001:db8::2/64,gateway=2001:db8::1",
                "another family",
            ),
            (a, "addr=10.2.0.2/24", "no gateway is named"),
            (
                a,
                "addr=10.2.0.2,gateway=10.2.0.1",
                "no other host on the link",
            ),
            (
                a,
                "addr=10.2.0.2/24,gateway=10.2.0.2",
                "no other host on the link",
            ),
        ] {
            let error = of(a, b).unwrap_err();
            assert!(error.to_string().contains(problem), "{error}");
        }
    }
}
