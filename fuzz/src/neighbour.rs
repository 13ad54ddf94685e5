//! A row of frames for the neighbour table, with a byte of time before each: how many tenths of a
//! second pass.
//!
//! Each frame has a length of two bytes before it. Whatever they say: the table stays within its
//! bounds, and static entries stay as they are.

use std::net::IpAddr;

use linerate_stack::neighbour::{Advertise, Config, InterfaceConfig, Out, State, Table};
use linerate_wire::MacAddr;

const MOST: usize = 8;

pub(crate) fn check(input: &[u8]) {
    let config = Config {
        max_entries: MOST,
        ..Config::default()
    };
    let mut table = Table::new(config, 0).expect("a small table");
    let mut out = Out::new();
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let addresses = [("192.0.2.1", 24), ("2001:db8::1", 64), ("fe80::1", 64)];
    let interface = InterfaceConfig {
        mac: MacAddr::local(1),
        addresses: addresses.map(|(text, len)| (address(text), len)).to_vec(),
        proxy: true,
        advertise: Some(Advertise::default()),
        ..InterfaceConfig::default()
    };
    table.set_interface(0, interface, 0, &mut out);
    let (pinned, mac) = (address("192.0.2.9"), MacAddr::local(9));
    assert!(table.add_static(0, pinned, mac, &mut out));
    let mut now_ns = 0;
    let mut rest = input;
    while let Some((&[tenths, high, low], behind)) = rest.split_first_chunk() {
        now_ns += u64::from(tenths) * 100_000_000;
        table.tick(now_ns, &mut out);
        let len = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (frame, behind) = behind.split_at(len);
        rest = behind;
        // Now and then a packet wants to go where the frame's last byte says.
        let [.., last] = *frame else { continue };
        for host in [format!("192.0.2.{last}"), format!("2001:db8::{last:x}")] {
            table.resolve(0, address(&host), None, now_ns, &mut out);
        }
        let elsewhere = |_: IpAddr| last & 1 != 0;
        let _ = table.arp(0, frame, &elsewhere, now_ns, &mut out);
        let _ = table.ndp(0, frame, &elsewhere, now_ns, &mut out);
        for (_, frame) in out.frames() {
            assert!((60..=1294).contains(&frame.len()));
        }
        out.clear();
        assert!(table.len() <= MOST && table.queued() == (0, 0));
        let mut all = table.neighbours();
        let entry = all
            .find(|entry| entry.address == pinned)
            .expect("it is static");
        assert_eq!((entry.state, entry.mac), (State::Static, Some(mac)));
    }
}
