//! Learning rates over the steps of a run.

/// The learning rate as a function of the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LearningRate {
    /// The same rate at every step.
    Constant(f64),
    /// Linear warm-up to `peak`, then half a cosine down to `floor`, then `floor`. Loshchilov and Hutter,
    /// "SGDR" (ICLR 2017).
    ///
    /// With step `s` from 0 and `x = (s - warmup_steps) / (total_steps - warmup_steps)`:
    ///
    /// * `s < warmup_steps`: `peak (s + 1) / warmup_steps`;
    /// * `s < total_steps`: `floor + (peak - floor) (1 + cos(pi x)) / 2`;
    /// * after that: `floor`.
    WarmupCosine {
        /// The highest rate, reached at the end of the warm-up.
        peak: f64,
        /// The lowest rate after the warm-up.
        floor: f64,
        /// The number of steps of the warm-up.
        warmup_steps: u64,
        /// The number of steps until `floor`, with the warm-up.
        total_steps: u64,
    },
}

impl LearningRate {
    /// The rate at a step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        match *self {
            Self::Constant(rate) => rate,
            Self::WarmupCosine {
                peak, warmup_steps, ..
            } if step < warmup_steps => peak * (step + 1) as f64 / warmup_steps as f64,
            Self::WarmupCosine {
                floor, total_steps, ..
            } if step >= total_steps => floor,
            Self::WarmupCosine {
                peak,
                floor,
                warmup_steps,
                total_steps,
            } => {
                let share = (step - warmup_steps) as f64 / (total_steps - warmup_steps) as f64;
                floor + (peak - floor) * 0.5 * (1.0 + (std::f64::consts::PI * share).cos())
            }
        }
    }
}
