//! How far apart two CPUs are: the round trip of one element over two rings.

use super::{Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_core::env::Lcore;
use linerate_core::ring::{Pop, Push, spsc};

pub(super) const ROWS: &[Row] = &[Row {
    name: "probe.core2core",
    about: "round trip between two CPUs over two SPSC rings, one element at a time",
    run: core_to_core,
}];

fn core_to_core(row: &'static str, run: Run) -> Result<Sample, Error> {
    let (mut there, mut at_echo) = spsc::ring::<u32>(64);
    let (mut back, mut home) = spsc::ring::<u32>(64);
    let echo = Lcore::spawn("echo", Some(run.cpus[1]), move || {
        let mut idle = 0_u32;
        while !at_echo.is_closed() {
            match at_echo.pop() {
                Some(token) => {
                    let _ = back.push(token);
                    idle = 0;
                }
                // The two may share a CPU.
                None => pause(&mut idle),
            }
        }
    })?;
    let pinger = Lcore::spawn("ping", Some(run.cpus[0]), move || {
        run.time(|| {
            let mut idle = 0;
            let _ = there.push(1);
            while home.pop().is_none() {
                pause(&mut idle);
            }
            1
        })
    })?;
    let ns = pinger.join()?;
    echo.join()?;
    Ok(Sample::new(row, ns, "ns", "4 KiB pages"))
}

/// Spins shortly, then yields the CPU: the other thread may be waiting for it.
pub(super) fn pause(idle: &mut u32) {
    *idle += 1;
    match *idle % 1024 {
        0 => std::thread::yield_now(),
        _ => std::hint::spin_loop(),
    }
}
