//! The measurements of kernels, and their table.

use pipewright_stages::Result;

use crate::clock::{Clock, Run, Seconds};

/// The work of a pass.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Floating-point operations: a multiplication and an addition count as two.
    Flops(f64),
    /// Work on `count` items of some kind, and all memory that it must read or write.
    Each {
        what: &'static str,
        count: usize,
        bytes: usize,
    },
}

impl Work {
    /// Work on `count` numbers, with `accesses` reads or writes of memory for each.
    pub(crate) fn each(what: &'static str, count: usize, accesses: usize) -> Self {
        Self::Each {
            what,
            count,
            bytes: 4 * accesses * count,
        }
    }
}

/// A kernel with its measurements.
pub(crate) struct Kernel {
    pub(crate) name: String,
    passes: Vec<(&'static str, Work)>,
    run: Run,
    /// The same work with the `gemm` crate.
    gemm: Option<Run>,
    samples: Vec<Seconds>,
    gemm_samples: Vec<Seconds>,
}

impl Kernel {
    /// A kernel whose run times these passes in this order.
    pub(crate) fn new(name: String, passes: Vec<(&'static str, Work)>, run: Run) -> Self {
        Self {
            name,
            passes,
            run,
            gemm: None,
            samples: Vec::new(),
            gemm_samples: Vec::new(),
        }
    }

    /// Adds the `gemm` crate's version for comparison.
    pub(crate) fn beside_gemm(mut self, gemm: Run) -> Self {
        self.gemm = Some(gemm);
        self
    }

    /// Measures once more.
    pub(crate) fn round(&mut self, clock: &mut Clock) -> Result<()> {
        self.samples.push(clock.round(&mut self.run)?);
        if let Some(gemm) = &mut self.gemm {
            self.gemm_samples.push(clock.round(gemm)?);
        }
        Ok(())
    }

    fn print(&self) {
        for (index, &(pass, work)) in self.passes.iter().enumerate() {
            let [hot, cold] = medians(&self.samples, index);
            let (figures, beside) = match work {
                Work::Flops(flops) => {
                    let rate = |seconds: f64| flops / seconds * 1e-9;
                    let beside = (!self.gemm_samples.is_empty()).then(|| {
                        let [hot, cold] = medians(&self.gemm_samples, index).map(rate);
                        format!("{hot:>8.1} {cold:>8.1}  GFLOP/s by gemm")
                    });
                    (format!("{:>8.1} {:>8.1}  GFLOP/s", rate(hot), rate(cold)), beside)
                }
                Work::Each { what, count, bytes } => {
                    let [hot_each, cold_each] = [hot, cold].map(|seconds| seconds / count as f64 * 1e9);
                    let [hot, cold] = [hot, cold].map(|seconds| bytes as f64 / seconds * 1e-9);
                    (
                        format!("{hot_each:>8.3} {cold_each:>8.3}  ns a {what}"),
                        Some(format!("{hot:>8.1} {cold:>8.1}  GB/s")),
                    )
                }
            };
            let beside = beside.unwrap_or_default();
            let line = format!("{:<36} {pass:<8}{figures:<35} {beside}", self.name);
            println!("{}", line.trim_end());
        }
    }
}

/// The medians of a pass, hot and cold.
fn medians(samples: &[Seconds], pass: usize) -> [f64; 2] {
    [
        median(samples.iter().map(|sample| sample.hot[pass]).collect()),
        median(samples.iter().map(|sample| sample.cold[pass]).collect()),
    ]
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Prints every pass of every kernel. I is backward-input, W is backward-weight.
pub(crate) fn print(kernels: &[Kernel]) {
    println!(
        "{:<36} {:<8}{:>8} {:>8}{:19}{:>8} {:>8}",
        "kernel", "pass", "hot", "cold", "", "hot", "cold"
    );
    kernels.iter().for_each(Kernel::print);
}
