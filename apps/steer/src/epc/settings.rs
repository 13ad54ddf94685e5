//! The nodes of an EPC in a file: `kind = "epc-…"` of an `[[app]]`.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{SystemTime, UNIX_EPOCH};

use linerate_appliance::config::Section;
use linerate_epc::gtp::endpoint::EndpointConfig;
use linerate_epc::hss::{Hss, HssConfig, Subscribers};
use linerate_epc::ids::MAX_CORES;
use linerate_epc::load::{Load, Profile};
use linerate_epc::mme::{Mme, MmeConfig};
use linerate_epc::pending::Patience;
use linerate_epc::pgw::{Pgw, PgwConfig};
use linerate_epc::ran::{Ran, RanConfig};
use linerate_epc::s6a::{Identity, Subscription};
use linerate_epc::sgw::{BufferConfig, Sgw, SgwConfig};
use linerate_epc::tunnels::AddressPool;
use linerate_epc::{Cores, EpcError, Link, s1};
use linerate_tables::exact::Seed;
use linerate_wire::gtpc::ie::{Imsi, plmn};
use linerate_wire::{diameter, gtpc};

use super::packets::owner_rule;
use super::role::Loaded;
use super::streams::Carrier;
use super::{Epc, Sockets};
use crate::app::{App, Tokens};
use crate::steering::OwnerRule;

/// Tw of RFC 3539, in milliseconds.
const SILENCE_MS: u64 = 30_000;
/// How long a base station, a user or the HSS may take to answer, in milliseconds.
const ANSWER_MS: u32 = 10_000;
/// How long users wait (T3410 of TS 24.301), in milliseconds.
const PATIENCE_MS: u32 = 15_000;
/// The most connections of an lcore: those of as many lcores as there may be have 16 bits.
const CONNECTIONS: u16 = u16::MAX / MAX_CORES as u16;
const ADDRESS: &str = "an IPv4 address of an [[interface]]";
const PEER: &str = "an IPv4 address";

/// One node.
#[derive(Clone, Debug)]
pub enum Settings {
    /// Base stations with users.
    Ran {
        /// How they are.
        config: RanConfig,
        /// What users do.
        profile: Profile,
        /// The MME.
        mme: Ipv4Addr,
    },
    /// An MME, and where its HSS is.
    Mme(MmeConfig, Ipv4Addr),
    /// An HSS.
    Hss(HssConfig),
    /// An SGW.
    Sgw(SgwConfig),
    /// A PGW.
    Pgw(PgwConfig),
}

/// Which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// `epc-ran`
    Ran,
    /// `epc-mme`
    Mme,
    /// `epc-hss`
    Hss,
    /// `epc-sgw`
    Sgw,
    /// `epc-pgw`
    Pgw,
}

impl Settings {
    /// The node of a stanza; what is wrong with it is noted there.
    pub fn read(section: &Section<'_>, word: Word) -> Option<Self> {
        let address = needed(section, "address", ADDRESS);
        let apn = section.text("apn", "a name such as \"internet\"");
        let apn = apn.map_or_else(|| "internet".to_owned(), |at| at.value);
        // The same on all lcores, and unknown outside.
        let secret = Seed::random().0 as u64;
        match word {
            Word::Ran => {
                let (first, network) = (first(section), network(section));
                let users = number(section, "users", 1..=1 << 24, 1000_u64);
                let stations = number(section, "stations", 1..=1024, 1_u16);
                let operator = number(section, "operator", 0..=i64::MAX as u64, 0);
                let mme = needed(section, "mme", PEER);
                let tac = number(section, "tac", 0..=65_535, 1_u16);
                let profile = profile(section);
                Some(Self::Ran {
                    config: RanConfig {
                        first: first?,
                        users,
                        operator,
                        stations,
                        address: address?,
                        plmn: network?,
                        tac,
                        patience_ms: PATIENCE_MS,
                        secret,
                    },
                    profile,
                    mme: mme?,
                })
            }
            Word::Mme => {
                let network = network(section);
                let [hss, sgw, pgw] = ["hss", "sgw", "pgw"].map(|key| needed(section, key, PEER));
                let users = number(section, "users", 1..=1 << 20, 65_536_u32);
                let stations = number(section, "stations", 1..=CONNECTIONS, 64_u16);
                let control = control(section, address);
                let config = MmeConfig {
                    who: identity("mme", address?),
                    control: control?,
                    plmn: network?,
                    sgw: SocketAddrV4::new(sgw?, gtpc::PORT),
                    pgw: pgw?,
                    apn,
                    users: users as usize,
                    stations,
                    answer_ms: ANSWER_MS,
                    paging: Patience {
                        timeout_ms: 2000,
                        again: 2,
                    },
                    silence_ms: SILENCE_MS,
                    secret,
                };
                Some(Self::Mme(config, hss?))
            }
            Word::Hss => {
                let first = first(section);
                let users = number(section, "users", 1..=1 << 24, 65_536_u64);
                let operator = number(section, "operator", 0..=i64::MAX as u64, 0);
                let connections = number(section, "connections", 1..=CONNECTIONS, 64_u16);
                let subscribers = Subscribers {
                    first: first?,
                    count: users,
                    subscription: Subscription::default(),
                };
                Some(Self::Hss(HssConfig {
                    who: identity("hss", address?),
                    subscribers: vec![subscribers],
                    apn,
                    operator,
                    users: users.min(1 << 20) as usize,
                    connections,
                    silence_ms: SILENCE_MS,
                    secret,
                }))
            }
            Word::Sgw => {
                let sessions = number(section, "sessions", 1..=1 << 20, 65_536_u32);
                let usual = BufferConfig::default();
                let slots = number(section, "waiting_packets", 0..=1 << 20, usual.slots as u32);
                let control = control(section, address);
                Some(Self::Sgw(SgwConfig {
                    control: control?,
                    user: address?,
                    sessions: sessions as usize,
                    buffers: BufferConfig {
                        slots: slots as usize,
                        ..usual
                    },
                    secret,
                }))
            }
            Word::Pgw => {
                let sessions = number(section, "sessions", 1..=1 << 20, 65_536_u32);
                let legal = "a network such as \"100.64.0.0/10\"";
                let pool = match section.requires("pool", legal) {
                    true => section.read("pool", legal, pool),
                    false => None,
                };
                let control = control(section, address);
                Some(Self::Pgw(PgwConfig {
                    control: control?,
                    user: address?,
                    sessions: sessions as usize,
                    addresses: pool?.value,
                    apn,
                    secret,
                }))
            }
        }
    }

    /// Whose packets are that come to the node's sockets, or to its users; `None`: nobody's but by
    /// connection.
    pub fn owner_rule(&self, cores: Cores) -> Option<OwnerRule> {
        Some(match self {
            Self::Ran { config, .. } => {
                let first = u32::from(config.address);
                let user = (first..).take(config.stations.into());
                let user = user.map(Ipv4Addr::from).collect();
                owner_rule::<Loaded>(cores, (None, user), None)
            }
            Self::Mme(config, _) => {
                let control = *config.control.address.ip();
                owner_rule::<Mme>(cores, (Some(control), Vec::new()), None)
            }
            Self::Hss(_) => return None,
            Self::Sgw(config) => {
                let control = *config.control.address.ip();
                owner_rule::<Sgw>(cores, (Some(control), vec![config.user]), None)
            }
            Self::Pgw(config) => {
                let control = *config.control.address.ip();
                let (prefix, len) = config.addresses;
                // What does not fit is said when the node is made.
                let pool = AddressPool::new(prefix, len, cores, config.sessions).ok();
                owner_rule::<Pgw>(cores, (Some(control), vec![config.user]), pool)
            }
        })
    }

    /// The part of core `me`.
    ///
    /// # Errors
    /// What does not fit identifiers or addresses, and no memory.
    pub fn app(
        &self,
        cores: Cores,
        me: u8,
        now_ns: u64,
        tokens: Tokens,
    ) -> Result<Box<dyn App>, EpcError> {
        let count = u16::from(cores.count());
        let both = |config: &EndpointConfig, user: &[Ipv4Addr]| Sockets {
            control: Some(*config.address.ip()),
            user: user.to_vec(),
            carriers: [None, None],
        };
        Ok(match self {
            Self::Ran {
                config,
                profile,
                mme,
            } => {
                let ran = Ran::new(config, cores, me, now_ns)?;
                let seed = config.secret ^ u64::from(me);
                let load = Load::new(*profile, &ran, cores.count(), seed, now_ns)?;
                let first = u32::from(config.address);
                let user = (first..).take(config.stations.into());
                let carrier = Carrier::Connect {
                    from: config.address,
                    to: SocketAddrV4::new(*mme, s1::PORT),
                    count: config.stations,
                };
                let at = Sockets {
                    control: None,
                    user: user.map(Ipv4Addr::from).collect(),
                    carriers: [Some(carrier), None],
                };
                Box::new(Epc::new(Loaded { ran, load }, at, cores, me, tokens))
            }
            Self::Mme(config, hss) => {
                // Numbers of connections are dealt to lcores, any of which may get all of them.
                let all = MmeConfig {
                    stations: config.stations * count,
                    ..config.clone()
                };
                let mme = Mme::new(&all, cores, me, Link::S6a(me.into()), now_ns)?;
                let own = *config.control.address.ip();
                let mut at = both(&config.control, &[]);
                at.carriers = [
                    Some(Carrier::Listen {
                        at: SocketAddrV4::new(own, s1::PORT),
                        most: config.stations,
                    }),
                    Some(Carrier::Connect {
                        from: own,
                        to: SocketAddrV4::new(*hss, diameter::PORT),
                        count,
                    }),
                ];
                Box::new(Epc::new(mme, at, cores, me, tokens))
            }
            Self::Hss(config) => {
                let all = HssConfig {
                    connections: config.connections * count,
                    ..config.clone()
                };
                let carrier = Carrier::Listen {
                    at: SocketAddrV4::new(config.who.address, diameter::PORT),
                    most: config.connections,
                };
                let at = Sockets {
                    carriers: [None, Some(carrier)],
                    ..Sockets::default()
                };
                Box::new(Epc::new(Hss::new(&all, cores, me)?, at, cores, me, tokens))
            }
            Self::Sgw(config) => {
                let at = both(&config.control, &[config.user]);
                let sgw = Sgw::new(config, cores, me, now_ns)?;
                Box::new(Epc::new(sgw, at, cores, me, tokens))
            }
            Self::Pgw(config) => {
                let at = both(&config.control, &[config.user]);
                let pgw = Pgw::new(config, cores, me, now_ns)?;
                Box::new(Epc::new(pgw, at, cores, me, tokens))
            }
        })
    }
}

fn needed(section: &Section<'_>, key: &'static str, legal: &str) -> Option<Ipv4Addr> {
    match section.requires(key, legal) {
        true => section.parsed(key, legal).map(|at| at.value),
        false => None,
    }
}

fn number<N>(
    section: &Section<'_>,
    key: &'static str,
    range: std::ops::RangeInclusive<N>,
    usual: N,
) -> N
where
    N: TryFrom<i64> + PartialOrd + std::fmt::Display,
{
    section.number(key, range).map_or(usual, |at| at.value)
}

fn milliseconds(section: &Section<'_>, key: &'static str, usual: u32) -> u32 {
    let at = section.seconds(key);
    at.map_or(usual, |at| {
        u32::try_from(at.value.as_millis()).unwrap_or(u32::MAX)
    })
}

/// `restarts`, `echo`, `timeout`, `answers_to_port`.
fn control(section: &Section<'_>, address: Option<Ipv4Addr>) -> Option<EndpointConfig> {
    let restarts = number(section, "restarts", 0..=255, 1_u8);
    let timeout_ms = milliseconds(section, "timeout", 3000);
    let is_nextepc = section.switch("answers_to_port");
    let usual = EndpointConfig::new(SocketAddrV4::new(address?, gtpc::PORT));
    Some(EndpointConfig {
        restarts,
        patience: Patience {
            timeout_ms: timeout_ms.max(1),
            ..usual.patience
        },
        answers_to_port: is_nextepc.is_some_and(|at| at.value),
        ..usual
    })
}

/// Whom a node says that it is: of its kind there may be several.
fn identity(node: &str, address: Ipv4Addr) -> Identity {
    let [a, b, c, d] = address.octets();
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Identity {
        host: format!("{node}-{a}-{b}-{c}-{d}.linerate"),
        realm: "linerate".into(),
        address,
        // 32 bits are enough until 2106.
        restarts: since.unwrap_or_default().as_secs() as u32,
    }
}

/// `first`: the number of the first user.
fn first(section: &Section<'_>) -> Option<Imsi> {
    let legal = "an IMSI, 15 digits as a text (TS 23.003 2.2)";
    match section.requires("first", legal) {
        true => {
            let read = |text: &str| {
                let imsi = Imsi::from_text(text.as_bytes());
                imsi.ok_or_else(|| format!("`{text}` is none"))
            };
            section.read("first", legal, read).map(|at| at.value)
        }
        false => None,
    }
}

/// `network`: country and network.
fn network(section: &Section<'_>) -> Option<[u8; 3]> {
    let read = |text: &str| {
        let wrong = || format!("`{text}` is no network");
        let (mcc, mnc) = text.split_once('-').ok_or_else(wrong)?;
        let (country, number) = (mcc.parse(), mnc.parse());
        let (Ok(country), Ok(number), 3) = (country, number, mcc.len()) else {
            return Err(wrong());
        };
        plmn(country, number, mnc.len() as u8).ok_or_else(wrong)
    };
    let legal = "country and network such as \"001-01\" (TS 23.003 2.2)";
    match section.has("network") {
        true => section.read("network", legal, read).map(|at| at.value),
        // The test network (ITU-T E.212).
        false => plmn(1, 1, 2),
    }
}

fn pool(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let wrong = || format!("`{text}` is no IPv4 network");
    let (address, len) = text.split_once('/').ok_or_else(wrong)?;
    let address = address.parse().map_err(|_| wrong())?;
    let len = len.parse().ok().filter(|len| (1..=30).contains(len));
    Ok((address, len.ok_or_else(wrong)?))
}

/// What users do.
fn profile(section: &Section<'_>) -> Profile {
    let usual = Profile::default();
    let to = needed(section, "to", "an IPv4 address, which users send to");
    Profile {
        attaches_per_s: number(
            section,
            "attaches_per_second",
            1..=10_000_000,
            usual.attaches_per_s,
        ),
        connected_ms: milliseconds(section, "connected", usual.connected_ms),
        packets: number(section, "packets", 0..=1_000_000, usual.packets),
        packet_bytes: number(section, "packet_bytes", 28..=1500, usual.packet_bytes),
        idle_ms: milliseconds(section, "idle", usual.idle_ms),
        rounds: number(section, "rounds", 0..=1_000_000, usual.rounds),
        away_ms: milliseconds(section, "away", usual.away_ms),
        to: to.map_or(usual.to, |to| to.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_6733_4_3_1_two_nodes_of_a_kind_have_two_names() {
        let name = |last| identity("mme", Ipv4Addr::new(10, 0, 0, last)).host;
        assert_eq!(name(1), "mme-10-0-0-1.linerate");
        assert_ne!(name(1), name(11));
    }

    #[test]
    fn connections_of_all_lcores_have_numbers() {
        let errors = |keys: &str| {
            let text = format!(
                "[[port]]\nname = \"lan\"\nspec = \"tap:t0\"\n\
                 [[interface]]\nport = \"lan\"\naddresses = [\"10.0.0.1/24\"]\n\
                 [[app]]\naddress = \"10.0.0.1\"\n{keys}\n"
            );
            let parsed = linerate_appliance::config::parse(&text, crate::config::File::of);
            parsed.errors.len()
        };
        let mme = "kind = \"epc-mme\"\nhss = \"10.0.0.4\"\nsgw = \"10.0.0.2\"\n\
                   pgw = \"10.0.0.3\"\nstations";
        let hss = "kind = \"epc-hss\"\nfirst = \"001010000000001\"\nconnections";
        for node in [mme, hss] {
            assert_eq!(errors(&format!("{node} = {CONNECTIONS}")), 0, "{node}");
            assert_eq!(errors(&format!("{node} = 1024")), 1, "{node}");
        }
        assert_eq!(CONNECTIONS.checked_mul(MAX_CORES as u16), Some(65_472));
    }

    #[test]
    fn rfc_6733_8_16_a_node_that_starts_later_says_so() {
        let who = || identity("mme", Ipv4Addr::new(10, 0, 0, 1));
        let first = who().restarts;
        // Later than this was written.
        assert!(first > 1_780_000_000, "{first}");
        assert!(who().restarts >= first);
    }
}
