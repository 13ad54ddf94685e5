//! Services by name, as Debian's `/etc/services` has them: which port, and of TCP alone, of UDP
//! alone or of both.

use crate::protocol::{TCP, UDP};

/// By name.
const SERVICES: &[(&str, u16, Option<u8>)] = &[
    ("bgp", 179, Some(TCP)),
    ("bootpc", 68, Some(UDP)),
    ("bootps", 67, Some(UDP)),
    ("dhcpv6-client", 546, Some(UDP)),
    ("dhcpv6-server", 547, Some(UDP)),
    ("domain", 53, None),
    ("domain-s", 853, None),
    ("ftp", 21, Some(TCP)),
    ("ftp-data", 20, Some(TCP)),
    ("ftps", 990, Some(TCP)),
    ("git", 9418, Some(TCP)),
    ("http", 80, Some(TCP)),
    ("https", 443, None),
    ("imap2", 143, Some(TCP)),
    ("imaps", 993, Some(TCP)),
    ("ipsec-nat-t", 4500, Some(UDP)),
    ("isakmp", 500, Some(UDP)),
    ("kerberos", 88, None),
    ("ldap", 389, None),
    ("ldaps", 636, None),
    ("mdns", 5353, Some(UDP)),
    ("microsoft-ds", 445, Some(TCP)),
    ("ms-sql-s", 1433, Some(TCP)),
    ("mysql", 3306, Some(TCP)),
    ("netbios-dgm", 138, Some(UDP)),
    ("netbios-ns", 137, Some(UDP)),
    ("netbios-ssn", 139, Some(TCP)),
    ("nfs", 2049, None),
    ("ntp", 123, Some(UDP)),
    ("openvpn", 1194, None),
    ("pop3", 110, Some(TCP)),
    ("pop3s", 995, Some(TCP)),
    ("postgresql", 5432, Some(TCP)),
    ("ptp-event", 319, Some(UDP)),
    ("ptp-general", 320, Some(UDP)),
    ("radius", 1812, None),
    ("radius-acct", 1813, None),
    ("redis", 6379, Some(TCP)),
    ("rsync", 873, Some(TCP)),
    ("sip", 5060, None),
    ("sip-tls", 5061, None),
    ("smtp", 25, Some(TCP)),
    ("snmp", 161, None),
    ("snmp-trap", 162, None),
    ("ssh", 22, Some(TCP)),
    ("submission", 587, Some(TCP)),
    ("submissions", 465, Some(TCP)),
    ("sunrpc", 111, None),
    ("syslog", 514, None),
    ("tacacs", 49, None),
    ("telnet", 23, Some(TCP)),
    ("telnets", 992, Some(TCP)),
    ("tftp", 69, Some(UDP)),
    ("time", 37, None),
    ("xmpp-client", 5222, Some(TCP)),
];

/// Port of a service, and its protocol where it has only one.
pub(super) fn service(name: &str) -> Option<(u16, Option<u8>)> {
    let at = SERVICES.binary_search_by(|known| known.0.cmp(name)).ok()?;
    Some((SERVICES[at].1, SERVICES[at].2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_in_order() {
        assert!(SERVICES.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(service("ssh"), Some((22, Some(TCP))));
        assert_eq!(service("domain"), Some((53, None)));
        assert_eq!(service("nobody"), None);
    }
}
