//! Two configurations of one router that differ in half of the routes and in every rule of the
//! access list, or of one gateway that differ in one rule of its policy, and forward the same
//! packets, so that any loss is due to the change.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use linerate_core::env::PrivateFolder;
use linerate_tables::lpm::Prefix4;
use linerate_tables::lpm::synth::{Spec, routes4};
use linerate_wire::MacAddr;

use super::Size;
use linerate_appliance::error::Error;

/// Gateways, 10.0.1.10 and those behind it: neighbours whose addresses are pinned. No generated
/// route is in 10.0.0.0/8, so nothing else leads there.
const GATEWAYS: u32 = 16;
/// Routes that only one of the two files has. No packet goes there.
const COMINGS: u32 = 256;
/// Where frames go to: the router's first port has this address.
pub(super) const ROUTER: MacAddr = MacAddr([2, 0, 0, 1, 0, 0]);

/// Both files, and the one that the router reads. All are deleted with this value.
pub(super) struct Files {
    pub(super) used: PathBuf,
    both: [PathBuf; 2],
    /// The routes that are in both.
    pub(super) routes: Vec<(Prefix4, u32)>,
    _folder: PrivateFolder,
}

impl Files {
    /// Writes them for a router whose slow worker is on the first of these CPUs, the fast one on
    /// the second.
    pub(super) fn write(size: &Size, cpus: [u32; 2]) -> Result<Self, Error> {
        let routes = routes4(&Spec {
            next_hops: GATEWAYS,
            ..Spec::new(size.routes, 1)
        });
        let folder = PrivateFolder::new("bench")?;
        let path = |name: &str| folder.join(format!("{name}.toml"));
        let files = Self {
            used: path("reload"),
            both: ["before", "after"].map(path),
            routes,
            _folder: folder,
        };
        for (turn, path) in (0..).zip(&files.both) {
            let text = text(&files.routes, size, turn, cpus);
            fs::write(path, text).map_err(|source| Error::File {
                path: path.clone(),
                source,
            })?;
        }
        files.put(0)?;
        Ok(files)
    }

    /// Writes one of them to the router's file.
    pub(super) fn put(&self, turn: usize) -> Result<(), Error> {
        let copied = fs::copy(&self.both[turn % 2], &self.used);
        copied.map(drop).map_err(|source| Error::File {
            path: self.used.clone(),
            source,
        })
    }
}

/// A whole configuration. `turn` is 0 or 1.
fn text(routes: &[(Prefix4, u32)], size: &Size, turn: u32, cpus: [u32; 2]) -> String {
    // Of a gateway routes stay.
    let moved = if size.is_gateway { 0 } else { turn };
    let list = if size.is_gateway {
        ""
    } else {
        "acl_in = \"edge\"\n"
    };
    let mut text = format!(
        "[plan]\nbg = \"0\"\nio = \"1\"\ncpus = \"{},{}\"\n\
         [router]\nkernel = false\nperiod = 0\n\
         [[port]]\nname = \"wan\"\nspec = \"ring:wan\"\n\
         [[port]]\nname = \"lan\"\nspec = \"ring:lan\"\n\
         [[interface]]\nport = \"wan\"\naddresses = [\"10.0.0.1/24\"]\n{list}\
         [[interface]]\nport = \"lan\"\naddresses = [\"10.0.1.1/24\"]\n",
        cpus[0], cpus[1]
    );
    let mut line =
        |args: std::fmt::Arguments<'_>| text.write_fmt(args).expect("a string takes all there is");
    for gateway in 0..GATEWAYS {
        line(format_args!(
            "[[neighbour]]\naddress = \"10.0.1.{}\"\nmac = \"02:00:00:00:03:{gateway:02x}\"\n\
             interface = \"lan\"\n",
            10 + gateway
        ));
    }
    let head = match size.is_gateway {
        false => "[[acl]]\nname = \"edge\"\ndefault = \"permit\"",
        true => {
            "[flows]\nipv4 = 262144\nipv6 = 64\n\
             [[zone]]\nname = \"in\"\ninterfaces = [\"wan\"]\n\
             [[zone]]\nname = \"out\"\ninterfaces = [\"lan\"]\n\
             [[policy]]\nfrom = \"in\"\nto = \"out\"\ndefault = \"permit\""
        }
    };
    line(format_args!("{head}\nrules = [\n"));
    for rule in 0..size.rules {
        let shift = match size.is_gateway {
            true => turn * u32::from(rule == size.rules / 2),
            false => turn * 500,
        };
        // No frame is from 100.64.0.0/10 (RFC 6598).
        let [_, _, high, low] = rule.to_be_bytes();
        line(format_args!(
            "{{ action = \"deny\", source = \"100.{}.{high}.{low}/32\", protocol = \"udp\", \
             destination_port = \"{}\" }},\n",
            64 + (rule >> 16),
            1024 + (rule + shift) % 60_000
        ));
    }
    line(format_args!("]\n"));
    for (number, (prefix, next_hop)) in (0_u32..).zip(routes) {
        let gateway = (next_hop + moved * (number & 1)) % GATEWAYS;
        line(format_args!(
            "[[route]]\nprefix = \"{prefix}\"\nvia = \"10.0.1.{}\"\n",
            10 + gateway
        ));
    }
    for coming in 0..COMINGS {
        line(format_args!(
            "[[route]]\nprefix = \"10.0.2.{coming}/32\"\nvia = \"10.0.1.{}\"\ndistance = {}\n",
            10 + coming % GATEWAYS,
            1 + moved
        ));
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_control::Config;

    #[test]
    fn both_files_are_sound_and_differ_in_half_of_the_routes_and_in_all_rules() {
        let routes = routes4(&Spec {
            next_hops: GATEWAYS,
            ..Spec::new(1000, 1)
        });
        let config = |turn| {
            let size = Size {
                rules: 100,
                ..super::super::QUICK
            };
            let text = text(&routes, &size, turn, [0, 0]);
            Config::parse(&text).unwrap_or_else(|wrong| panic!("{wrong:#?}"))
        };
        let (before, after) = (config(0), config(1));
        assert!(before.warnings.is_empty(), "{:?}", before.warnings);
        assert_eq!(before.routes.len(), 1000 + COMINGS as usize);
        let pairs = before.routes.iter().zip(&after.routes);
        let changed = pairs.filter(|(before, after)| before != after).count();
        assert_eq!(changed, 500 + COMINGS as usize);
        let rules = |config: &Config| config.acls[0].rules.clone();
        assert_eq!(rules(&before).len(), 100);
        assert!(
            rules(&before)
                .iter()
                .all(|rule| !rules(&after).contains(rule))
        );
    }
}
