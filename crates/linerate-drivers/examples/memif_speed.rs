//! temporary
use linerate_core::env::Lcore;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools, RxTemplate};
use linerate_core::port::{Link, Port, PortConfig};
use std::time::{Duration, Instant};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mode = args.get(1).map_or("1", |s| s).to_owned();
    let bytes: u32 = args.get(2).map_or(60, |s| s.parse().unwrap());
    let secs: f64 = args.get(3).map_or(1.0, |s| s.parse().unwrap());
    let dir = args.get(4).map_or("c2s", |s| s).to_owned();
    let extra = args.get(5).map_or("", |s| s).to_owned();
    let mut drivers = linerate_drivers::Drivers::new();
    let name = format!("@speed{}", std::process::id());
    let mut server = drivers.open(&format!("memif:{name}")).unwrap();
    let mut client = drivers
        .open(&format!("memif:{name},role=client{extra}"))
        .unwrap();
    let pools = || Pools::new(vec![Pool::new(&PoolConfig::new("packets", 4096)).unwrap()]);
    let (ps, pc) = (pools(), pools());
    let mut qs = server.start(&PortConfig::default(), &ps).unwrap();
    let mut qc = client.start(&PortConfig::default(), &pc).unwrap();
    while server.link() != Link::Up || client.link() != Link::Up {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (mut tx, mut rx) = match dir.as_str() {
        "c2s" => (qc.tx.remove(0), qs.rx.remove(0)),
        _ => (qs.tx.remove(0), qc.rx.remove(0)),
    };
    let (pt, pr) = match dir.as_str() {
        "c2s" => (pc, ps),
        _ => (ps, pc),
    };
    let template = RxTemplate {
        len: bytes,
        ..RxTemplate::default()
    };
    let rounds: Option<u64> = std::env::var("ROUNDS").ok().map(|r| r.parse().unwrap());
    match mode.as_str() {
        "1" => {
            let mut ct = PoolCache::new(pt.as_slice());
            let mut cr = PoolCache::new(pr.as_slice());
            let mut burst = Burst::with_room(32);
            let (mut n, began) = (0_u64, Instant::now());
            let mut r = 0;
            loop {
                for _ in 0..256 {
                    ct.fill_with(pt.primary(), &mut burst, 32, template);
                    tx.tx_burst(&mut burst, &mut ct);
                    rx.rx_burst(&mut burst, &mut cr);
                    n += burst.len() as u64;
                    cr.free(&mut burst);
                }
                r += 1;
                if rounds.map_or(began.elapsed().as_secs_f64() > secs, |rounds| r >= rounds) {
                    break;
                }
            }
            println!(
                "1core {dir} {bytes}: {:.2} ns/packet, {n}",
                began.elapsed().as_nanos() as f64 / n as f64
            );
        }
        _ => {
            let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let st = stop.clone();
            let sender = Lcore::spawn("tx", Some(1), move || {
                let mut ct = PoolCache::new(pt.as_slice());
                let mut burst = Burst::with_room(32);
                let mut empty = 0_u64;
                while !st.load(std::sync::atomic::Ordering::Relaxed) {
                    ct.fill_with(pt.primary(), &mut burst, 32, template);
                    if tx.tx_burst(&mut burst, &mut ct) == 0 {
                        empty += 1;
                    }
                }
                ct.free(&mut burst);
                empty
            })
            .unwrap();
            let (ns, n, e) = Lcore::spawn("rx", Some(0), move || {
                let mut cr = PoolCache::new(pr.as_slice());
                let mut burst = Burst::with_room(32);
                let (mut n, began, mut e) = (0_u64, Instant::now(), 0_u64);
                while began.elapsed().as_secs_f64() < secs {
                    for _ in 0..256 {
                        let c = rx.rx_burst(&mut burst, &mut cr);
                        e += u64::from(c == 0);
                        n += c as u64;
                        cr.free(&mut burst);
                    }
                }
                (began.elapsed().as_nanos() as f64 / n as f64, n, e)
            })
            .unwrap()
            .join()
            .unwrap();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let se = sender.join().unwrap();
            println!(
                "2core {dir} {bytes}: {ns:.2} ns/packet = {:.1} Mpps, {n}, rx empty {e}, tx empty {se}",
                1000.0 / ns
            );
        }
    }
}
