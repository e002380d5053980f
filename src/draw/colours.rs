//! Colours that colour-blind people can tell apart (after Okabe and Ito).

use crate::schedule::Pass;

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Colour([f64; 3]);

const WHITE: Colour = Colour([255.0; 3]);

/// How far the last of a rank's stages fades towards white.
const FADE: f64 = 0.55;

/// The colours of the ranks, from the first to the last: on a light ground, and on a dark one. Colours
/// between these are mixed.
const RANKS: [[Colour; 4]; 2] = [
    [
        Colour([13.0, 8.0, 135.0]),
        Colour([126.0, 3.0, 168.0]),
        Colour([204.0, 71.0, 120.0]),
        Colour([244.0, 150.0, 60.0]),
    ],
    [
        Colour([138.0, 129.0, 255.0]),
        Colour([201.0, 120.0, 236.0]),
        Colour([240.0, 135.0, 172.0]),
        Colour([250.0, 190.0, 115.0]),
    ],
];

impl Colour {
    /// The colour of a reduction.
    pub(super) const REDUCTION: Self = Self([170.0, 51.0, 119.0]);
    /// The colour of a copy to the host.
    pub(super) const OUT: Self = Self([85.0, 85.0, 85.0]);
    /// The colour of a copy back.
    pub(super) const BACK: Self = Self([190.0, 190.0, 190.0]);

    /// The colour of a wait for another shard.
    pub(super) const SHARD_WAIT: Self = Self([240.0, 228.0, 66.0]);

    /// The colour of a pass of a rank's `chunk`th stage of `chunks`.
    pub(super) fn pass(pass: Pass, chunk: usize, chunks: usize) -> Self {
        let base = match pass {
            Pass::Forward => Self([0.0, 114.0, 178.0]),
            Pass::Backward => Self([213.0, 94.0, 0.0]),
            Pass::BackwardInput => Self([240.0, 173.0, 30.0]),
            Pass::BackwardWeight => Self([0.0, 158.0, 115.0]),
        };
        base.towards(WHITE, FADE * share(chunk, chunks))
    }

    /// The colours of a rank's memory curve on a light and on a dark ground.
    pub(super) fn rank(rank: usize, ranks: usize) -> [Self; 2] {
        RANKS.map(|colours| {
            let along = share(rank, ranks) * (colours.len() - 1) as f64;
            let from = (along as usize).min(colours.len() - 2);
            colours[from].towards(colours[from + 1], along - from as f64)
        })
    }

    /// Whether white letters are easier to read on it than dark ones.
    pub(super) fn is_dark(self) -> bool {
        let Self([red, green, blue]) = self;
        0.299 * red + 0.587 * green + 0.114 * blue < 95.0
    }

    pub(super) fn hex(self) -> String {
        let [red, green, blue] = self.0.map(|part| part.round() as u8);
        format!("#{red:02x}{green:02x}{blue:02x}")
    }

    fn towards(self, other: Self, share: f64) -> Self {
        Self(std::array::from_fn(|at| self.0[at] + (other.0[at] - self.0[at]) * share))
    }
}

/// How far `index` is on the way through `count`: 0 for the first, 1 for the last.
fn share(index: usize, count: usize) -> f64 {
    if count > 1 { index as f64 / (count - 1) as f64 } else { 0.0 }
}
