//! The kernel as the device: its bridge, its forwarding, and its forwarding through nftables.
//!
//! Frames are forwarded in the softirq of whichever CPU took them in; receive packet steering moves
//! that to the device's CPU where it has one of its own, like interrupts that are bound to a core.

use std::path::Path;

use super::wire::{self, Wires, inner_mac, outer_mac};
use super::{Asked, Cpus, Setup};
use linerate_appliance::error::Error;
use linerate_appliance::netns::{self, Space};

/// The bridge between `d0` and `d1`.
pub(super) fn bridge(asked: &Asked, cpus: Cpus) -> Result<Setup, Error> {
    let mut lines = String::from("link add br0 type bridge\nlink set br0 up\n");
    for pair in 0..2 {
        lines += &format!("link set d{pair} master br0\n");
    }
    // Without frames of spanning tree or multicast snooping, which would be counted.
    lines += "link set br0 type bridge stp_state 0 mcast_snooping 0\n";
    let mut setup = build(asked, cpus, "Linux bridge over veth", |_| netns::ip(&lines))?;
    for (pair, side) in setup.sides.iter_mut().enumerate() {
        side.dst_mac = side
            .dst_mac
            .filter(|mac| *mac != inner_mac(pair))
            .or(Some(outer_mac(1 - pair)));
    }
    setup.setting("spanning tree", "off");
    setup.setting("multicast snooping", "off");
    Ok(setup)
}

/// Forwarding between 198.18.0.0/16 behind `d0` and 198.19.0.0/16 behind `d1` (RFC 2544 C.2.2),
/// through a static neighbour each.
pub(super) fn forward(asked: &Asked, cpus: Cpus, filtered: bool) -> Result<Setup, Error> {
    let mut lines = String::new();
    for pair in 0..2 {
        lines += &format!("address add 10.255.{pair}.1/30 dev d{pair}\n");
        lines += &format!(
            "neighbour replace 10.255.{pair}.2 lladdr {} nud permanent dev d{pair}\n",
            outer_mac(pair)
        );
        for net in 0..asked.nets {
            lines += &format!(
                "route add 198.{}.{net}.0/24 via 10.255.{pair}.2 dev d{pair}\n",
                18 + pair
            );
        }
    }
    let rules = rules(asked.rules);
    let name = match filtered {
        true => "Linux forwarding with nftables over veth",
        false => "Linux forwarding over veth",
    };
    let mut setup = build(asked, cpus, name, |_| {
        netns::ip(&lines)?;
        netns::sysctl("net/ipv4/ip_forward", "1")?;
        for interface in ["all", "d0", "d1"] {
            // No reverse path check: sources are made up.
            netns::sysctl(&format!("net/ipv4/conf/{interface}/rp_filter"), "0")?;
        }
        match filtered {
            true => netns::feed("nft", &["-f", "-"], &rules, "apt-get install nftables"),
            false => Ok(()),
        }
    })?;
    setup.setting("routes", u32::from(asked.nets) * 2);
    setup.setting("neighbours", "static");
    if filtered {
        setup.setting("filter rules before the one that accepts", asked.rules);
    }
    Ok(setup)
}

/// A forward chain whose rules are all evaluated; only the last one matches (RFC 2544 11.4).
fn rules(count: u32) -> String {
    let mut text = String::from(
        "table inet linerate {\n chain forward {\n  type filter hook forward priority 0; policy \
         drop;\n",
    );
    for number in 0..count {
        // The frames have no addresses in 100.64.0.0/10 (RFC 6598).
        text += &format!(
            "  ip saddr 100.{}.{}.{} udp dport {} drop\n",
            64 + (number >> 16) % 64,
            number >> 8 & 0xff,
            number & 0xff,
            1024 + number % 60_000
        );
    }
    text + "  ip saddr 198.18.0.0/15 accept\n }\n}\n"
}

/// Wires, and the kernel set up between them by `work`, which runs in the device's name space.
fn build(
    asked: &Asked,
    cpus: Cpus,
    name: &str,
    work: impl FnOnce(&Space) -> Result<(), Error> + Send,
) -> Result<Setup, Error> {
    let Wires { sides, spaces, .. } = Wires::make(&asked.wire)?;
    let mut setup = Setup::new(asked, cpus, name.into(), sides);
    let Some((outer, inner)) = spaces else {
        return Ok(setup);
    };
    let mask = setup
        .cpus
        .device
        .iter()
        .fold(0u64, |mask, cpu| mask | 1 << (cpu % 64));
    let steered = !setup.cpus.shared();
    inner.within(|| {
        work(&inner)?;
        match steered {
            true => netns::with_sysfs(&format!(
                "for d in d0 d1; do echo {mask:x} > /sys/class/net/$d/queues/rx-0/rps_cpus; done"
            )),
            false => Ok(()),
        }
    })?;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    setup.setting("kernel", kernel.trim());
    setup.setting(
        "receive packet steering",
        match steered {
            true => format!("to CPU {}", list(&setup.cpus.device)),
            false => "off: the kernel forwards on the generator's CPU".into(),
        },
    );
    let backlog = Path::new("/proc/sys/net/core/netdev_max_backlog");
    if let Ok(backlog) = std::fs::read_to_string(backlog) {
        setup.setting("backlog of each CPU in packets", backlog.trim());
    }
    wire::describe(&mut setup, asked);
    // The device's interfaces are held by their pairs, and these by the generator's name space; the
    // routes between them by the device's.
    setup.under_test = Box::new(Held { _inner: inner });
    setup.space = Some(outer);
    Ok(setup)
}

/// The device's name space.
struct Held {
    _inner: Space,
}

impl super::UnderTest for Held {}

/// `0,2`.
pub(super) fn list(cpus: &[u32]) -> String {
    let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
    cpus.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_match_nothing_that_is_sent_and_the_last_one_accepts() {
        let text = rules(300);
        assert_eq!(text.matches(" drop\n").count(), 300);
        assert!(text.contains("ip saddr 100.64.1.43 udp dport 1323 drop"));
        assert!(text.ends_with("ip saddr 198.18.0.0/15 accept\n }\n}\n"));
    }
}
