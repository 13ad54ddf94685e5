//! What a user's packet costs between S1-U and SGi, with so many tunnels: nanoseconds, both ways,
//! the least of several runs.
//!
//! ```sh
//! cargo run --release -p linerate-epc --example gtpu -- 1000000
//! ```
#![forbid(unsafe_code)]

use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
use linerate_epc::records::Records;
use linerate_epc::tunnels::{AddressPool, Plane, Tunnels};
use linerate_epc::{Cores, EpcError};
use linerate_wire::ipv4;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const NET: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const BURST: usize = 64;
const BURSTS: usize = 4096;
const RUNS: usize = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |text| text.parse())?;
    let (up, down) = measure(count)?;
    println!("{count} tunnels: {up:.1} ns a packet up, {down:.1} ns down");
    Ok(())
}

fn measure(count: usize) -> Result<(f64, f64), EpcError> {
    let cores = Cores::new(1)?;
    let addresses = AddressPool::new(Ipv4Addr::new(100, 64, 0, 0), 10, cores, count)?;
    let mut records = Records::<()>::new("users", count, cores, 0, 1)?;
    let mut tunnels = Tunnels::new(records.space(), addresses, 0, count)?;
    let mut users = Vec::with_capacity(count);
    while let Some(id) = records.insert(()) {
        users.push((id, tunnels.open(id, id ^ 1, [10, 2, 0, 1])));
    }
    let pool = Pool::new(&PoolConfig::new("example", 1024))?;
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    let plane = Plane {
        own: OWN,
        to_net: [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0],
        to_peers: [2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4, 8, 0],
        mtu: 1500,
    };
    let mut random = 1_u64;
    let mut chosen = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % users.len()
    };
    let mut least = [Duration::MAX; 2];
    for _ in 0..RUNS {
        let mut spent = [Duration::ZERO; 2];
        for _ in 0..BURSTS {
            let mut frames = [const { Vec::new() }; BURST];
            for frame in &mut frames {
                let (id, user) = users[chosen()];
                *frame = from_station(id, user.into());
            }
            for (way, spent) in spent.iter_mut().enumerate() {
                let (mut burst, mut rest) = (Burst::new(), Burst::new());
                for frame in &frames {
                    let inner = &frame[50..];
                    // Down: the same packet, from and to exchanged.
                    let turned = [&frame[..14], &inner[..12], &inner[16..20], &inner[12..16]];
                    let turned = [&turned.concat(), &inner[20..]].concat();
                    let frame = if way == 0 { frame } else { &turned };
                    let packet = cache.copy_of(frame).expect("the pool has as many");
                    burst.push(packet).expect("the burst has room");
                }
                let start = Instant::now();
                let moved = match way {
                    0 => plane.decapsulate(&mut tunnels, &mut burst, &mut rest),
                    _ => plane.encapsulate(&mut tunnels, &mut burst, &mut rest),
                };
                *spent += start.elapsed();
                assert_eq!(moved.packets, BURST);
                cache.free(&mut burst);
            }
        }
        least = [0, 1].map(|way| least[way].min(spent[way]));
    }
    let each = least.map(|spent| spent.as_nanos() as f64 / (BURSTS * BURST) as f64);
    Ok((each[0], each[1]))
}

/// A user's packet of 64 bytes in its tunnel to us, in an Ethernet frame.
fn from_station(id: u32, user: Ipv4Addr) -> Vec<u8> {
    let inner = ipv4::header(1, 64, 253, user, NET, 44);
    let ip = ipv4::header(1, 64, 17, Ipv4Addr::new(10, 2, 0, 1), OWN, 80);
    let udp = [0x08, 0x68, 0x08, 0x68, 0, 80, 0, 0];
    let gtpu = linerate_wire::gtpu::header(id, 64);
    [&[2; 12][..], &[8, 0], &ip, &udp, &gtpu, &inner, &[0; 44]].concat()
}
