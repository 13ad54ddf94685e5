//! Ring ports that play each of the NICs, as an application opens them: flows come where the port's
//! own model says.
#![allow(clippy::unwrap_used)]

use linerate_appliance::runtime;
use linerate_core::packet::{Burst, Offload, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig, Queues};
use linerate_tables::rss::{Flow, Model, PROFILES, Profile};
use linerate_testkit::Random;
use linerate_wire::ethernet::{self, MacAddr};
use linerate_wire::flow::FlowKey;
use linerate_wire::{EtherType, ipv4, ipv6, protocol};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A frame of some TCP or UDP flow.
fn frame(random: &mut Random) -> Vec<u8> {
    let is_tcp = random.one_in(2);
    let (protocol, length) = match is_tcp {
        true => (protocol::TCP, 20_u16),
        false => (protocol::UDP, 8),
    };
    let mut segment = random.bytes(length.into());
    match is_tcp {
        true => segment[12] = 5 << 4,
        false => segment[4..6].copy_from_slice(&length.to_be_bytes()),
    }
    let (ethertype, header) = if random.one_in(2) {
        let addresses: [[u8; 4]; 2] = [(); 2].map(|()| random.bytes(4).try_into().unwrap());
        let [src, dst] = addresses.map(Ipv4Addr::from);
        let header = ipv4::header(0, 64, protocol, src, dst, length);
        (EtherType::IPV4, header.to_vec())
    } else {
        let addresses: [[u8; 16]; 2] = [(); 2].map(|()| random.bytes(16).try_into().unwrap());
        let [src, dst] = addresses.map(Ipv6Addr::from);
        let header = ipv6::header(protocol, 64, src, dst, length);
        (EtherType::IPV6, header.to_vec())
    };
    let link = ethernet::header(MacAddr::local(1), MacAddr::local(2), ethertype);
    [&link[..], &header, &segment].concat()
}

fn flow(frame: &[u8]) -> Flow {
    let headers = linerate_wire::parse(frame).unwrap();
    match headers.flow_key(frame).unwrap() {
        FlowKey::V4(key) => Flow::V4(key),
        FlowKey::V6(key) => Flow::V6(key),
    }
}

fn start(port: &mut dyn Port, queues: u16, pools: &Pools) -> Queues {
    let config = PortConfig {
        index: 0,
        rx_queues: queues,
        tx_queues: queues,
    };
    port.start(&config, pools).unwrap()
}

/// One end sends 256 flows by its queues in turns; at the other each is looked for.
fn check(profile: &Profile, queues: u16, pools: &Pools) {
    let seed = u64::from(queues) << 32 | profile.key_bytes as u64;
    let mut random = Random::new(seed);
    let key: String = random
        .bytes(profile.key_bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut drivers = runtime::drivers();
    let spec = format!("ring:a,queues={queues},rss={},key={key}", profile.name);
    let (mut a, mut b) = (
        drivers.open(&spec).unwrap(),
        drivers.open("ring:a").unwrap(),
    );
    let mut cache = PoolCache::new(pools.as_slice());
    let (mut from, mut to) = (start(&mut *a, queues, pools), start(&mut *b, queues, pools));
    let model = Model::of_port(&b.rss().unwrap()).unwrap();
    assert_eq!(model.reta().queue_count(), usize::from(queues));
    for round in 0..16 {
        let mut burst = Burst::new();
        for _ in 0..16 {
            let packet = cache.copy_of(&frame(&mut random)).unwrap();
            burst.push(packet).unwrap();
        }
        let tx = &mut from.tx[round % usize::from(queues)];
        assert_eq!(tx.tx_burst(&mut burst, &mut cache), 16);
    }
    let mut came = 0;
    let mut burst = Burst::new();
    for (queue, rx) in (0..).zip(&mut to.rx) {
        while rx.rx_burst(&mut burst, &mut cache) > 0 {
            for packet in burst.iter() {
                let (flow, meta) = (flow(packet.data()), packet.meta());
                let told = format!("{}, {queues} queues, seed {seed}", profile.name);
                assert_eq!(model.queue(&flow, false), Some(queue), "{told}");
                assert!(meta.offload.contains(Offload::RSS), "{told}");
                assert_eq!(model.hash(&flow, false), Some(meta.rss_hash), "{told}");
                came += 1;
            }
            cache.free(&mut burst);
        }
        // As many polls as rings lead here, for each has its turn.
        for _ in 0..queues {
            assert_eq!(rx.rx_burst(&mut burst, &mut cache), 0);
        }
    }
    assert_eq!(came, 256);
}

#[test]
fn flows_come_to_the_queue_that_the_ports_model_says_for_all_profiles_and_1_to_64_queues() {
    let pools = Pools::new(vec![Pool::new(&PoolConfig::new("nics", 4096)).unwrap()]);
    for profile in PROFILES {
        for queues in [1, 2, 3, 4, 7, 8, 13, 16, 31, 32, 64] {
            check(profile, queues, &pools);
        }
    }
}
