//! Two configurations of one router that differ in half of the routes and in every rule of the
//! access list, and forward the same packets, so that any loss is due to the change.

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
            let text = text(&files.routes, size.rules, turn, cpus);
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
fn text(routes: &[(Prefix4, u32)], rules: u32, turn: u32, cpus: [u32; 2]) -> String {
    let mut text = format!(
        "[plan]\nbg = \"0\"\nio = \"1\"\ncpus = \"{},{}\"\n\
         [router]\nkernel = false\nperiod = 0\n\
         [[port]]\nname = \"wan\"\nspec = \"ring:wan\"\n\
         [[port]]\nname = \"lan\"\nspec = \"ring:lan\"\n\
         [[interface]]\nport = \"wan\"\naddresses = [\"10.0.0.1/24\"]\nacl_in = \"edge\"\n\
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
    line(format_args!(
        "[[acl]]\nname = \"edge\"\ndefault = \"permit\"\nrules = [\n"
    ));
    for rule in 0..rules {
        // No frame is from 100.64.0.0/10 (RFC 6598).
        line(format_args!(
            "{{ action = \"deny\", source = \"100.64.{}.{}/32\", protocol = \"udp\", \
             destination_port = \"{}\" }},\n",
            rule >> 8 & 0xff,
            rule & 0xff,
            1024 + (rule + turn * 500) % 60_000
        ));
    }
    line(format_args!("]\n"));
    for (number, (prefix, next_hop)) in (0_u32..).zip(routes) {
        let gateway = (next_hop + turn * (number & 1)) % GATEWAYS;
        line(format_args!(
            "[[route]]\nprefix = \"{prefix}\"\nvia = \"10.0.1.{}\"\n",
            10 + gateway
        ));
    }
    for coming in 0..COMINGS {
        line(format_args!(
            "[[route]]\nprefix = \"10.0.2.{coming}/32\"\nvia = \"10.0.1.{}\"\ndistance = {}\n",
            10 + coming % GATEWAYS,
            1 + turn
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
            let text = text(&routes, 100, turn, [0, 0]);
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
