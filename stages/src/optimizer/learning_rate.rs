//! Learning rates over the steps of a run.

/// The learning rate as a function of the step.
///
/// All but [`Constant`](Self::Constant) begin with a linear warm-up to `peak`, with step `s` from 0: `peak
/// (s + 1) / warmup_steps` while `s < warmup_steps`. All end with `floor`, from step `total_steps` on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LearningRate {
    /// The same rate at every step.
    Constant(f64),
    /// After the warm-up half a cosine down to `floor`. Loshchilov and Hutter, "SGDR" (ICLR 2017).
    ///
    /// With `x = (s - warmup_steps) / (total_steps - warmup_steps)`: `floor + (peak - floor) (1 + cos(pi x))
    /// / 2`.
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
    /// After the warm-up a straight line down to `floor`.
    ///
    /// With `x = (s - warmup_steps) / (total_steps - warmup_steps)`: `floor + (peak - floor) (1 - x)`.
    WarmupLinear {
        /// The highest rate, reached at the end of the warm-up.
        peak: f64,
        /// The lowest rate after the warm-up.
        floor: f64,
        /// The number of steps of the warm-up.
        warmup_steps: u64,
        /// The number of steps until `floor`, with the warm-up.
        total_steps: u64,
    },
    /// Warm-up, stable, decay: after the warm-up `peak`, and in the last `decay_steps` a straight line down
    /// to `floor`. Hu et al., "MiniCPM" (2024).
    ///
    /// With `x = (s - (total_steps - decay_steps)) / decay_steps`, once that is positive: `floor + (peak -
    /// floor) (1 - x)`.
    Wsd {
        /// The highest rate, reached at the end of the warm-up.
        peak: f64,
        /// The rate after the decay.
        floor: f64,
        /// The number of steps of the warm-up.
        warmup_steps: u64,
        /// The number of steps of the decay.
        decay_steps: u64,
        /// The number of steps until `floor`, with the warm-up and the decay.
        total_steps: u64,
    },
}

impl LearningRate {
    /// The rate at a step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        let (peak, floor, warmup, total) = match *self {
            Self::Constant(rate) => return rate,
            Self::WarmupCosine { peak, floor, warmup_steps, total_steps }
            | Self::WarmupLinear { peak, floor, warmup_steps, total_steps }
            | Self::Wsd { peak, floor, warmup_steps, total_steps, .. } => {
                (peak, floor, warmup_steps, total_steps)
            }
        };
        if step < warmup {
            return peak * (step + 1) as f64 / warmup as f64;
        }
        if step >= total {
            return floor;
        }
        let down_from = |start: u64| match step.saturating_sub(start) {
            0 => 0.0,
            steps => steps as f64 / (total - start) as f64,
        };
        let rest = match *self {
            Self::WarmupCosine { .. } => 0.5 * (1.0 + (std::f64::consts::PI * down_from(warmup)).cos()),
            Self::Wsd { decay_steps, .. } => 1.0 - down_from(total.saturating_sub(decay_steps)),
            _ => 1.0 - down_from(warmup),
        };
        floor + (peak - floor) * rest
    }
}
