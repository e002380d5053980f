//! The measurements of kernels, and their table.

use pipewright_stages::{DType, Result};

use crate::bounds::{Bounds, Needs};
use crate::clock::{Clock, Run, Seconds};

/// The work of a pass.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Floating-point operations: a multiplication and an addition count as two. `dtype` says what is
    /// multiplied, if there is a bound to compare with.
    Flops { flops: f64, dtype: Option<DType> },
    /// A stream of this number of bytes.
    Bytes(usize),
    /// Work on `count` items of some kind.
    Each { what: &'static str, count: usize, needs: Needs },
}

/// A kernel with its measurements.
pub(crate) struct Kernel {
    pub(crate) name: String,
    passes: Vec<(&'static str, Work)>,
    run: Run,
    /// The same work with the `gemm` crate.
    gemm: Option<Run>,
    /// Plain loops that move the same bytes.
    plain: Option<Run>,
    pub(crate) samples: Vec<Seconds>,
    gemm_samples: Vec<Seconds>,
    plain_samples: Vec<Seconds>,
}

impl Kernel {
    /// A kernel whose run times these passes in this order.
    pub(crate) fn new(name: String, passes: Vec<(&'static str, Work)>, run: Run) -> Self {
        Self {
            name,
            passes,
            run,
            gemm: None,
            plain: None,
            samples: Vec::new(),
            gemm_samples: Vec::new(),
            plain_samples: Vec::new(),
        }
    }

    /// Adds the `gemm` crate's version for comparison.
    pub(crate) fn beside_gemm(mut self, gemm: Run) -> Self {
        self.gemm = Some(gemm);
        self
    }

    /// Says that memory bounds it by these plain loops, and not by streams.
    pub(crate) fn beside_plain(mut self, plain: Run) -> Self {
        self.plain = Some(plain);
        self
    }

    /// Measures once more.
    pub(crate) fn round(&mut self, clock: &mut Clock) -> Result<()> {
        self.samples.push(clock.round(&mut self.run)?);
        if let Some(gemm) = &mut self.gemm {
            self.gemm_samples.push(clock.round(gemm)?);
        }
        if let Some(plain) = &mut self.plain {
            self.plain_samples.push(clock.round(plain)?);
        }
        Ok(())
    }

    /// How much memory its passes use, in `f32`, where streams may bound them.
    pub(crate) fn footprints(&self) -> impl Iterator<Item = usize> {
        self.passes.iter().filter_map(|(_, work)| match work {
            Work::Each { count, needs, .. } if self.plain.is_none() => Some(needs.footprint(*count)),
            _ => None,
        })
    }

    /// The rates of the `gemm` crate.
    fn by_gemm(&self, pass: usize, rate: impl Fn(f64) -> f64) -> String {
        if self.gemm_samples.is_empty() {
            return String::new();
        }
        let [hot, cold] = medians(&self.gemm_samples, pass).map(rate);
        format!("{hot:>8.1} {cold:>8.1}  GFLOP/s by gemm")
    }

    fn print(&self, bounds: &Bounds) {
        for (index, &(pass, work)) in self.passes.iter().enumerate() {
            let [hot, cold] = medians(&self.samples, index);
            let (figures, beside) = match work {
                Work::Flops { flops, dtype } => {
                    let rate = |seconds: f64| flops / seconds * 1e-9;
                    let rates = [hot, cold].map(rate);
                    let share = |rate: f64| format!("{:>6.2}", rate / bounds.multiply_adds());
                    let shares = match dtype {
                        Some(DType::F32) => rates.map(share).concat() + "  of mul-adds",
                        _ => String::new(),
                    };
                    (
                        format!("{:>8.1} {:>8.1}  GFLOP/s", rates[0], rates[1]),
                        shares + &self.by_gemm(index, rate),
                    )
                }
                Work::Bytes(bytes) => {
                    let [hot, cold] = [hot, cold].map(|seconds| bytes as f64 / seconds * 1e-9);
                    (format!("{hot:>8.1} {cold:>8.1}  GB/s"), String::new())
                }
                Work::Each { what, count, needs } => {
                    let plain = (self.plain.is_some()).then(|| medians(&self.plain_samples, index));
                    let [least_hot, least_cold] = bounds.of(needs, count, plain);
                    let share = |(least, what): (f64, &str), seconds: f64| {
                        format!("{:>6.2} of {what:<10}", least / seconds)
                    };
                    let each = |seconds: f64| seconds / count as f64 * 1e9;
                    (
                        format!("{:>8.3} {:>8.3}  ns a {what}", each(hot), each(cold)),
                        share(least_hot, hot) + &share(least_cold, cold),
                    )
                }
            };
            let line = format!("{:<36} {pass:<8}{figures:<35} {beside}", self.name);
            println!("{}", line.trim_end());
        }
    }
}

/// The medians of a pass, hot and cold.
pub(crate) fn medians(samples: &[Seconds], pass: usize) -> [f64; 2] {
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
pub(crate) fn print<'a>(kernels: impl Iterator<Item = &'a Kernel>, bounds: &Bounds) {
    println!(
        "{:<36} {:<8}{:>8} {:>8}{:18}share of the bound, hot and cold",
        "kernel", "pass", "hot", "cold", ""
    );
    kernels.for_each(|kernel| kernel.print(bounds));
}
