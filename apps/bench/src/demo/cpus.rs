//! Where the CPUs' time went, by /proc/stat: who was the bottleneck.

use std::fs;

use serde::Serialize;

use linerate_appliance::error::Error;

/// Where one CPU's time went: shares of 0 to 1.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct CpuSplit {
    pub(crate) user: f64,
    pub(crate) system: f64,
    pub(crate) softirq: f64,
    pub(crate) stolen: f64,
    pub(crate) idle: f64,
}

/// Ticks of each CPU: user, nice, system, idle, iowait, irq, softirq, steal.
pub(super) struct CpuTimes(Vec<[u64; 8]>);

impl CpuTimes {
    pub(super) fn read() -> Result<Self, Error> {
        Ok(Self::parse(&fs::read_to_string("/proc/stat")?))
    }

    fn parse(text: &str) -> Self {
        // The first line, without a number, is the sum.
        let cpus = text
            .lines()
            .filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
        let numbers = |line: &str| {
            let mut all = [0; 8];
            let words = line.split_whitespace().skip(1);
            all.iter_mut()
                .zip(words)
                .for_each(|(value, word)| *value = word.parse().unwrap_or(0));
            all
        };
        Self(cpus.map(numbers).collect())
    }

    /// The shares of each CPU since an earlier reading.
    pub(super) fn since(&self, earlier: &Self) -> Vec<CpuSplit> {
        let split = |(now, before): (&[u64; 8], &[u64; 8])| {
            let spent: Vec<f64> = now
                .iter()
                .zip(before)
                .map(|(now, before)| now.saturating_sub(*before) as f64)
                .collect();
            let all = spent.iter().sum::<f64>().max(1.0);
            CpuSplit {
                user: (spent[0] + spent[1]) / all,
                system: spent[2] / all,
                softirq: (spent[5] + spent[6]) / all,
                stolen: spent[7] / all,
                idle: (spent[3] + spent[4]) / all,
            }
        };
        self.0.iter().zip(&earlier.0).map(split).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let read = |user: u64, softirq: u64| {
            CpuTimes::parse(&format!(
                "cpu  9 9 9 9\ncpu0 {user} 0 0 50 0 0 {softirq} 0 0 0\nintr 5\n"
            ))
        };
        let split = read(130, 70).since(&read(100, 60));
        assert_eq!(split.len(), 1);
        assert_eq!(
            (split[0].user, split[0].softirq, split[0].idle),
            (0.75, 0.25, 0.0)
        );
    }
}
