//! The angles of a rotary embedding.

use std::f64::consts::TAU;

use crate::error::{Error, Result, check_positive};

/// How a rotary embedding turns the pairs of a head. Pair `i` of a head of `width` numbers turns by
/// `position * f_i`, with `f_i = theta^(-2i / width)` before scaling. Su et al., "RoFormer: enhanced
/// transformer with rotary position embedding" (2021).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// The base of the frequencies: 10,000 in the paper, 500,000 in Llama 3.
    pub theta: f64,
    /// How the frequencies are changed for longer sequences.
    pub scaling: RopeScaling,
    /// Which numbers of a head make a pair.
    pub layout: RopeLayout,
}

/// How frequencies are changed, so that a model reads longer sequences than it was trained with. A closed
/// set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every frequency is divided by the factor. Chen et al., "Extending context window of large language
    /// models via positional interpolation" (2023).
    Linear {
        /// How much longer sequences are.
        factor: f64,
    },
    /// As in Llama 3.1. With the wavelength `w = 2 pi / f`: a frequency stays if `w < original / high`, it is
    /// divided by the factor if `w > original / low`, and between it is `(1 - s) f / factor + s f`, with
    /// `s = (original / w - low) / (high - low)`.
    Llama3 {
        /// How much longer sequences are.
        factor: f64,
        /// A frequency with at most this number of turns in `original` positions is divided.
        low: f64,
        /// A frequency with at least this number of turns in `original` positions stays.
        high: f64,
        /// The length of the sequences that the model was trained with first.
        original: usize,
    },
    /// YaRN. Pairs that turn more often than `fast` times in `original` positions keep their frequency, those
    /// that turn less often than `slow` times are divided by the factor, and between them the share that is
    /// divided grows by the same amount from pair to pair. Turned numbers are multiplied by `attention`. Peng
    /// et al., "YaRN: efficient context window extension of large language models" (2023).
    Yarn {
        /// How much longer sequences are.
        factor: f64,
        /// The length of the sequences that the model was trained with first.
        original: usize,
        /// A frequency with at least this number of turns in `original` positions stays. 32 in the paper.
        fast: f64,
        /// A frequency with at most this number of turns in `original` positions is divided. 1 in the paper.
        slow: f64,
        /// What queries and keys are multiplied by. `0.1 ln(factor) + 1` in the paper.
        attention: f64,
    },
}

/// Which numbers of a head make a pair. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayout {
    /// Number `i` and number `i + width / 2`, as in Hugging Face's checkpoints.
    Halves,
    /// Numbers `2i` and `2i + 1`, as in the paper and in Meta's and GGUF's checkpoints of Llama.
    Pairs,
}

impl Rope {
    /// Fails unless every number is in its range.
    pub(crate) fn check(self) -> Result<()> {
        check_above_zero("theta", self.theta)?;
        match self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => check_above_zero("factor", factor),
            RopeScaling::Llama3 { factor, low, high, original } => {
                check_above_zero("factor", factor)?;
                check_above_zero("low frequency factor", low)?;
                check_positive(&[("the rotary embedding's original length", original)])?;
                check(
                    "high frequency factor",
                    high,
                    high.is_finite() && high > low,
                    "above the low frequency factor",
                )
            }
            RopeScaling::Yarn { factor, original, fast, slow, attention } => {
                check_above_zero("factor", factor)?;
                check_above_zero("slow turns", slow)?;
                check_above_zero("attention factor", attention)?;
                check_positive(&[("the rotary embedding's original length", original)])?;
                check("fast turns", fast, fast.is_finite() && fast >= slow, "at least the slow turns")
            }
        }
    }

    /// By how many radians a pair of a head of this width turns from one position to the next.
    pub fn frequency(self, pair: usize, width: usize) -> f64 {
        let plain = self.theta.powf(-2.0 * pair as f64 / width as f64);
        match self.scaling {
            RopeScaling::None => plain,
            RopeScaling::Linear { factor } => plain / factor,
            RopeScaling::Llama3 { factor, low, high, original } => {
                let turns = original as f64 * plain / TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - kept) * plain / factor + kept * plain
            }
            RopeScaling::Yarn { factor, original, fast, slow, .. } => {
                let width = width as f64;
                let pair_of =
                    |turns: f64| width * (original as f64 / (turns * TAU)).ln() / (2.0 * self.theta.ln());
                let (low, high) = (pair_of(fast).floor().max(0.0), pair_of(slow).ceil().min(width - 1.0));
                let span = if low == high { 0.001 } else { high - low };
                let divided = ((pair as f64 - low) / span).clamp(0.0, 1.0);
                (1.0 - divided) * plain + divided * plain / factor
            }
        }
    }

    /// What turned numbers are multiplied by.
    fn attention(self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn { attention, .. } => attention,
            _ => 1.0,
        }
    }

    /// Writes the table of a head of this width: for each position, the cosines of all pairs, then their
    /// sines, each multiplied as the scaling says.
    pub(crate) fn fill(self, table: &mut [f32], width: usize) {
        let attention = self.attention();
        for pair in 0..width / 2 {
            let frequency = self.frequency(pair, width);
            for (position, row) in table.chunks_exact_mut(width).enumerate() {
                let (sin, cos) = (position as f64 * frequency).sin_cos();
                row[pair] = (attention * cos) as f32;
                row[width / 2 + pair] = (attention * sin) as f32;
            }
        }
    }
}

fn check_above_zero(what: &'static str, value: f64) -> Result<()> {
    check(what, value, value.is_finite() && value > 0.0, "a finite number above 0")
}

fn check(what: &'static str, value: f64, is_right: bool, expected: &'static str) -> Result<()> {
    if is_right {
        return Ok(());
    }
    Err(Error::new(format!("the rotary embedding's {what} is {value}: it must be {expected}")))
}
