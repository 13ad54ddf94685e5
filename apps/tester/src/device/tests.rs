//! Names and CPUs of devices; and that each device forwards, where this user may set it up.

use std::time::{Duration, Instant};

use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_core::port::{Port, PortConfig, Queues};
use linerate_wire::checksum::checksum;
use linerate_wire::ethernet::set_macs;

use super::*;

#[test]
fn devices_are_called_by_name_and_the_nearest_is_offered() {
    for (name, kind) in DeviceKind::ALL {
        assert_eq!(name.parse(), Ok(kind));
        assert_eq!(kind.name(), name);
    }
    let error = "brige".parse::<DeviceKind>().unwrap_err();
    assert!(error.contains("perhaps bridge"), "{error}");
}

#[test]
fn the_device_has_its_own_cpus_while_there_are_any() {
    let split = |usable: &[u32], cores| {
        let cpus = Cpus::split(usable, cores);
        (cpus.generator.clone(), cpus.device.clone(), cpus.shared())
    };
    assert_eq!(split(&[0, 1], 1), (vec![0], vec![1], false));
    assert_eq!(split(&[3], 1), (vec![3], vec![3], true));
    assert_eq!(split(&[0, 1], 5), (vec![0], vec![1], false));
    assert_eq!(
        split(&[0, 1, 2, 3, 4, 5, 6, 7], 2),
        (vec![0, 1, 2, 3], vec![6, 7], false)
    );
}

fn asked(kind: DeviceKind, wire: &str) -> Asked {
    Asked {
        kind,
        wire: wire.parse().unwrap(),
        ports: Vec::new(),
        name: None,
        dst_macs: Vec::new(),
        cores: 1,
        rules: 3,
        one_side: false,
        nets: 2,
        speed_bps: None,
    }
}

fn set_up(asked: &Asked) -> Result<Setup, Error> {
    let usable = linerate_core::env::allowed_cpus()?;
    let cpus = Cpus::split(usable.as_slice(), asked.cores);
    Setup::make(asked, cpus, Clock::calibrate())
}

#[test]
fn every_form_of_a_gateway_starts_over_as_many_cores_as_the_others_have() {
    let usable = linerate_core::env::allowed_cpus().unwrap();
    let cpus = Cpus {
        generator: usable.iter().take(1).collect(),
        device: usable.as_slice().iter().copied().cycle().take(2).collect(),
    };
    for (kind, many) in DeviceKind::gateways().into_iter().zip([1, 2, 2, 2]) {
        let mut asked = asked(kind, "ring");
        asked.cores = 2;
        let setup = Setup::make(&asked, cpus.clone(), Clock::calibrate()).unwrap();
        let lcores = setup.under_test.lcores();
        assert_eq!(lcores.len(), many, "{}: {lcores:?}", kind.name());
        assert_eq!(setup.device.cores, many as u32);
    }
}

/// The generator's two ports, opened by hand.
struct Ends {
    queues: Vec<Queues>,
    cache: PoolCache,
    pools: Pools,
    _ports: Vec<Box<dyn Port>>,
}

impl Ends {
    fn open(setup: &mut Setup) -> Self {
        let small = Pool::new(&PoolConfig::new("ends", 8192)).unwrap();
        let large = PoolConfig {
            class: SlotClass::Large,
            ..PoolConfig::new("large", 64)
        };
        let pools = Pools::new(vec![small, Pool::new(&large).unwrap()]);
        let sides = setup.sides.clone();
        let mut ports: Vec<_> = sides
            .iter()
            .map(|side| setup.drivers.open(&side.spec).unwrap())
            .collect();
        let queues = ports
            .iter_mut()
            .map(|port| port.start(&PortConfig::default(), &pools).unwrap())
            .collect();
        Self {
            queues,
            cache: PoolCache::new(pools.as_slice()),
            pools,
            _ports: ports,
        }
    }

    /// Sends `count` frames from one side and returns how many came out of the other within a
    /// timeout.
    fn pass(&mut self, setup: &Setup, from: usize, count: usize) -> usize {
        let frame = udp(setup, from);
        let mut burst = Burst::new();
        self.cache.fill(self.pools.primary(), &mut burst, count);
        burst.iter_mut().for_each(|packet| {
            packet.set_data(&frame);
        });
        let tx = &mut self.queues[from].tx[0];
        assert_eq!(tx.tx_burst(&mut burst, &mut self.cache), count);
        tx.flush(&mut self.cache);
        let (mut came, end) = (0, Instant::now() + Duration::from_secs(2));
        while came < count && Instant::now() < end {
            let mut burst = Burst::new();
            self.queues[1 - from].rx[0].rx_burst(&mut burst, &mut self.cache);
            came += burst
                .iter()
                .filter(|packet| packet.data().ends_with(b"through it"))
                .count();
            self.cache.free(&mut burst);
            std::thread::yield_now();
        }
        came
    }
}

/// A frame from one side to the other side's network, to the address that its streams are sent to.
fn udp(setup: &Setup, from: usize) -> Vec<u8> {
    let mut frame = vec![0; 60];
    let dst = setup.sides[from].dst_mac.unwrap_or(MacAddr::local(1));
    assert!(set_macs(
        &mut frame,
        dst,
        MacAddr([2, 0, 0, 0, 2, from as u8])
    ));
    let (here, there) = (18 + from as u8, 19 - from as u8);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&46u16.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[198, here, 0, 1, 198, there, 1, 1]);
    frame[34..40].copy_from_slice(&[0, 9, 0, 9, 0, 26]);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[50..].copy_from_slice(b"through it");
    frame
}

/// Both directions through a device, on a thread of its own, since it enters other name spaces.
fn forwards(asked: Asked) {
    let test = move || {
        let home = Space::current().unwrap();
        let mut setup = match set_up(&asked) {
            Ok(setup) => setup,
            Err(error)
                if error.to_string().contains("PATH") || error.to_string().contains("`nft`") =>
            {
                return linerate_testkit::skip(&error.to_string());
            }
            Err(error) => panic!("{error}"),
        };
        setup.enter(&home).unwrap();
        let mut ends = Ends::open(&mut setup);
        setup.under_test.settle().unwrap();
        for from in [0, 1, 0, 1] {
            assert_eq!(
                ends.pass(&setup, from, 32),
                32,
                "{:?} from {from}",
                asked.kind
            );
        }
        setup.under_test.check().unwrap();
    };
    std::thread::spawn(test).join().unwrap();
}

fn may_make_spaces() -> bool {
    let may = Space::new().is_ok();
    if !may {
        linerate_testkit::skip("this user may make no network name spaces");
    }
    may
}

#[test]
fn l2fwd_and_a_bare_wire_forward_over_rings() {
    forwards(asked(DeviceKind::None, "ring"));
    forwards(asked(DeviceKind::L2fwd, "ring"));
    forwards(asked(DeviceKind::Router, "ring"));
    forwards(asked(DeviceKind::Gateway(Form::None), "ring"));
}

#[test]
fn the_kernel_and_others_forward_over_veth() {
    if may_make_spaces() {
        for kind in [
            DeviceKind::None,
            DeviceKind::L2fwd,
            DeviceKind::Bridge,
            DeviceKind::Forward,
            DeviceKind::Nftables,
            DeviceKind::Testpmd,
        ] {
            forwards(asked(kind, "af_packet"));
        }
    }
}

#[test]
fn rings_do_not_reach_the_kernel_and_a_missing_program_is_named() {
    let error = set_up(&asked(DeviceKind::Bridge, "ring")).err().unwrap();
    assert!(
        error.fix().unwrap().contains("--ports af_packet"),
        "{error}"
    );
    let error = set_up(&asked(DeviceKind::External, "ring")).err().unwrap();
    assert!(error.fix().unwrap().contains("--port"), "{error}");
    if may_make_spaces() && program::find("dpdk-l3fwd").is_none() {
        let error = set_up(&asked(DeviceKind::L3fwd, "af_packet"))
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("no `dpdk-l3fwd` in PATH"),
            "{error}"
        );
    }
}
