//! Alternatives in turns, so that what disturbs one disturbs all.

use std::time::{Duration, Instant};

const ROUNDS: usize = 7;
const SLICES: usize = 13;

/// One alternative: its name, and what does a number of steps, each of so many packets.
pub(crate) struct Case<'a> {
    name: String,
    packets_per_step: usize,
    /// Before each slice, untimed.
    prepare: Box<dyn FnMut() + 'a>,
    run: Box<dyn FnMut(usize) + 'a>,
}

impl<'a> Case<'a> {
    pub(crate) fn new(
        name: impl Into<String>,
        packets: usize,
        run: impl FnMut(usize) + 'a,
    ) -> Self {
        Self {
            name: name.into(),
            packets_per_step: packets,
            prepare: Box::new(|| ()),
            run: Box::new(run),
        }
    }

    pub(crate) fn prepared(mut self, prepare: impl FnMut() + 'a) -> Self {
        self.prepare = Box::new(prepare);
        self
    }

    fn time(&mut self, steps: usize) -> Duration {
        (self.prepare)();
        let began = Instant::now();
        (self.run)(steps);
        began.elapsed()
    }

    /// Steps that take about as long as a slice should. The best of three, or a case that was
    /// disturbed here would measure nothing but cold caches ever after.
    fn steps_of(&mut self, slice: Duration) -> usize {
        let mut steps = 1;
        while (0..3).any(|_| self.time(steps) < slice) {
            steps *= 2;
        }
        steps
    }
}

/// The value below which one part in `parts` of the values lie.
fn quantile(values: &mut [f64], parts: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / parts]
}

/// Runs the cases in turns and prints a line for each.
pub(crate) fn compare(title: &str, slice: Duration, mut cases: Vec<Case<'_>>) {
    let steps: Vec<usize> = cases.iter_mut().map(|case| case.steps_of(slice)).collect();
    let mut rounds = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        let mut slices = vec![Vec::new(); cases.len()];
        for turn in 0..SLICES * cases.len() {
            // Whoever begins changes from turn to turn.
            let index = (turn + turn / cases.len()) % cases.len();
            let case = &mut cases[index];
            let packets = (steps[index] * case.packets_per_step) as f64;
            slices[index].push(case.time(steps[index]).as_nanos() as f64 / packets);
        }
        for (round, slices) in rounds.iter_mut().zip(&mut slices) {
            round.push(quantile(slices, 4));
        }
    }
    println!("\n{title}");
    let first = rounds[0].clone();
    for (case, round) in cases.iter().zip(&mut rounds) {
        let mut ratios: Vec<f64> = round.iter().zip(&first).map(|(a, b)| a / b).collect();
        let ratio = quantile(&mut ratios, 2);
        let (low, high) = (ratios[0], ratios[ROUNDS - 1]);
        let ns = quantile(round, 2);
        println!(
            "  {:<34} {ns:>8.2} ns   {ratio:>5.2}   [{low:.2}, {high:.2}]",
            case.name
        );
    }
}
