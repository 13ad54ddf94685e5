//! Numbers for a reload: whatever is in both configurations keeps its number.
//!
//! Workers, tables and counters know interfaces, ports and VRFs by number. The number of what a
//! reload removes stays, marked *gone*. What a reload adds gets a number that was gone before this
//! reload, or the next one: those that become gone now are in use until the reload is done.

use super::{Config, InterfaceConfig, PortConfig, RouteTo, VrfConfig};
use linerate_routing::model::InterfaceId;

/// Numbers of what is in the new file.
struct Slots {
    /// Index in the file by number; `None`: gone.
    places: Vec<Option<usize>>,
    /// Number by index in the file.
    numbers: Vec<usize>,
}

impl Slots {
    /// `kept`: for each entry of the file the number that it has already. `is_free` says which
    /// other numbers may be given, from 0 up.
    fn new(kept: &[Option<usize>], used: usize, is_free: impl Fn(usize) -> bool) -> Self {
        let mut places = vec![None; used];
        for (place, slot) in kept.iter().enumerate() {
            if let Some(slot) = *slot {
                places[slot] = Some(place);
            }
        }
        let mut free = (0..).filter(|&number| is_free(number));
        let number = |(place, slot): (usize, &Option<usize>)| {
            slot.unwrap_or_else(|| {
                let number = free.next().expect("numbers do not end");
                if places.len() <= number {
                    places.resize(number + 1, None);
                }
                places[number] = Some(place);
                number
            })
        };
        let numbers = kept.iter().enumerate().map(number).collect();
        while places.last() == Some(&None) {
            places.pop();
        }
        Self { places, numbers }
    }

    /// The entries of the file, by number.
    fn sort<T: Clone>(&self, all: &[T], gone: impl Fn() -> T) -> Vec<T> {
        let of = |place: &Option<usize>| place.map_or_else(&gone, |place| all[place].clone());
        self.places.iter().map(of).collect()
    }
}

impl Config {
    /// The same configuration with the numbers of a running router, which has `old`: each interface
    /// and each VRF that is still there keeps its number, and so does each port of the same
    /// specification. `is_taken`: port numbers that something else uses.
    pub fn keeping(self, old: &Self, is_taken: impl Fn(u16) -> bool) -> Self {
        self.keeping_vrfs(&old.vrfs)
            .keeping_ports(&old.ports, is_taken)
            .keeping_interfaces(&old.interfaces)
    }

    /// A VRF with another name and the same table is the same VRF.
    fn keeping_vrfs(mut self, old: &[VrfConfig]) -> Self {
        let is_named = |name: &str, all: &[VrfConfig]| all.iter().any(|vrf| vrf.name == name);
        let renamed = |vrf: &VrfConfig| {
            let same = |had: &VrfConfig| {
                (had.table, &had.netns) == (vrf.table, &vrf.netns)
                    && !is_named(&had.name, &self.vrfs)
            };
            vrf.table.and_then(|_| old.iter().position(same))
        };
        let kept = |vrf: &VrfConfig| {
            let named = old.iter().position(|had| had.name == vrf.name);
            named.or_else(|| renamed(vrf))
        };
        let kept: Vec<Option<usize>> = self.vrfs.iter().map(kept).collect();
        let is_free = |number: usize| old.get(number).is_none_or(VrfConfig::is_gone);
        let slots = Slots::new(&kept, old.len(), is_free);
        self.vrfs = slots.sort(&self.vrfs, VrfConfig::gone);
        for interface in &mut self.interfaces {
            interface.vrf = slots.numbers[interface.vrf as usize] as u32;
        }
        for route in &mut self.routes {
            route.vrf = slots.numbers[route.vrf as usize] as u32;
        }
        self
    }

    fn keeping_ports(mut self, old: &[PortConfig], is_taken: impl Fn(u16) -> bool) -> Self {
        let kept = |port: &PortConfig| old.iter().position(|had| had == port);
        let kept: Vec<Option<usize>> = self.ports.iter().map(kept).collect();
        let is_free = |number: usize| {
            old.get(number).is_none_or(PortConfig::is_gone) && !is_taken(number as u16)
        };
        let slots = Slots::new(&kept, old.len(), is_free);
        self.ports = slots.sort(&self.ports, PortConfig::gone);
        for interface in &mut self.interfaces {
            let port = |place: u16| slots.numbers[usize::from(place)] as u16;
            interface.port = interface.port.map(port);
        }
        self
    }

    fn keeping_interfaces(mut self, old: &[InterfaceConfig]) -> Self {
        let kept =
            |interface: &InterfaceConfig| old.iter().position(|had| had.name == interface.name);
        let kept: Vec<Option<usize>> = self.interfaces.iter().map(kept).collect();
        let is_free = |number: usize| old.get(number).is_none_or(InterfaceConfig::is_gone);
        let slots = Slots::new(&kept, old.len(), is_free);
        self.interfaces = slots.sort(&self.interfaces, InterfaceConfig::empty);
        let number = |id: InterfaceId| InterfaceId(slots.numbers[usize::from(id.0)] as u16);
        for route in &mut self.routes {
            if let RouteTo::Via(next_hops) = &mut route.to {
                for via in next_hops {
                    via.interface = via.interface.map(number);
                }
            }
        }
        for neighbour in &mut self.neighbours {
            neighbour.interface = number(neighbour.interface);
        }
        self
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let text = format!("[router]\nkernel = false\n{text}");
        Config::parse(&text).unwrap_or_else(|wrong| panic!("{wrong:#?}"))
    }

    fn vrfs(all: &[(&str, u32)]) -> String {
        let vrf =
            |(name, table): &(&str, u32)| format!("[[vrf]]\nname = \"{name}\"\ntable = {table}\n");
        all.iter().map(vrf).collect()
    }

    fn ports(names: &[&str]) -> String {
        let port = |name: &&str| format!("[[port]]\nname = \"{name}\"\nspec = \"ring:{name}\"\n");
        names.iter().map(port).collect()
    }

    fn names<T>(all: &[T], name: impl Fn(&T) -> &str) -> Vec<&str> {
        all.iter().map(name).collect()
    }

    #[test]
    fn vrfs_keep_their_numbers_and_new_ones_take_those_that_are_free() {
        let of = |all: &[(&str, u32)], more: &str| config(&(vrfs(all) + &ports(&["a"]) + more));
        let first = of(&[("red", 1), ("blue", 2)], "");
        let route = "[[interface]]\nport = \"a\"\nvrf = \"blue\"\n[[route]]\nvrf = \"green\"\n\
            prefix = \"0.0.0.0/0\"\nblackhole = true\n";
        // The new file has them in another order, without red.
        let second = of(&[("green", 3), ("blue", 2)], route).keeping(&first, |_| false);
        let name = |vrf: &VrfConfig| -> String { vrf.name.clone() };
        let all = |config: &Config| config.vrfs.iter().map(name).collect::<Vec<_>>();
        assert_eq!(all(&second), ["default", "", "blue", "green"]);
        assert_eq!((second.interfaces[0].vrf, second.routes[0].vrf), (2, 3));
        // The free number is used; another name with another table is another VRF.
        let third = of(&[("grey", 4), ("blue", 2), ("green", 3)], "").keeping(&second, |_| false);
        assert_eq!(all(&third), ["default", "grey", "blue", "green"]);
        // The same table under another name is the same VRF; two VRFs may swap names.
        let last = of(&[("green", 2), ("blue", 3), ("gray", 4)], "").keeping(&third, |_| false);
        assert_eq!(all(&last), ["default", "gray", "blue", "green"]);
    }

    #[test]
    fn ports_keep_their_numbers_and_others_pass_over_those_that_are_taken() {
        let first = config(&ports(&["a", "b"]));
        let text = ports(&["c", "b"]) + "[[interface]]\nport = \"c\"\n";
        let second = config(&text).keeping(&first, |number| (2..4).contains(&number));
        let name = |port: &PortConfig| port.name.clone();
        let all: Vec<String> = second.ports.iter().map(name).collect();
        assert_eq!(all, ["", "b", "", "", "c"]);
        let on = |name: &str| second.interfaces.iter().find(|one| one.name == name);
        assert_eq!(on("c").unwrap().port, Some(4));
        assert_eq!(names(&second.interfaces, |one| &one.name), ["", "b", "c"]);
        // With another specification it is another port.
        let text = ports(&["c", "b"]).replace("ring:b", "ring:x");
        let third = config(&text).keeping(&second, |number| (2..4).contains(&number));
        let all: Vec<String> = third.ports.iter().map(name).collect();
        assert_eq!(all, ["b", "", "", "", "c"]);
    }
}
