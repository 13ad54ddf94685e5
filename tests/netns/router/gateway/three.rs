//! A third host beside those of a [`Site`]: at a port `c` of its own.
//!
//! ```text
//! left:  veth0 10.1.0.2 ---- a
//!                               gateway  b ---- 10.2.0.2 veth1 :right
//! third: veth2 10.3.0.2 ---- c
//! ```

use crate::router::instance::{port, two_ports};
use crate::router::site::{Site, host};
use linerate_testkit::netns::Namespace;

pub(super) const THIRD4: &str = "10.3.0.2";
pub(super) const THIRD6: &str = "fd00:3::2";

pub(super) struct Three {
    pub(super) site: Site,
    pub(super) third: Namespace,
}

impl Three {
    pub(super) fn new() -> Option<Self> {
        let site = Site::new()?;
        let third = Namespace::with_ipv6("t")?;
        third.wire("veth2", &site.mid, "c", "");
        third.plain("veth2");
        site.mid.plain("c");
        host(&third, "veth2", THIRD4, THIRD6, "10.3.0.1", "fd00:3::1");
        Some(Self { site, third })
    }

    /// Ports and zones: the left and the third host are inside, and may begin whatever they like.
    pub(super) fn config(flows: u32) -> String {
        two_ports("af_packet", "", "")
            + &port("af_packet", "c", &["10.3.0.1/24", "fd00:3::1/64"], "")
            + &super::outward([flows, 1024])
                .replace("interfaces = [\"a\"]", "interfaces = [\"a\", \"c\"]")
    }
}
