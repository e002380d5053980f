//! What goes wrong in a virtual world.

use super::*;

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A rank's pass fails, by an error or a panic: `pass` counts passes, updates and losses, also repeated
    /// ones.
    Fails { rank: usize, pass: u64, panics: bool },
    /// A layer fails each time at this micro-batch of this step.
    AlwaysFails { layer: usize, step: u64, micro_batch: u32 },
    /// A rank's stages cannot be built when they are built again for this time.
    NotBuilt { rank: usize, time: u64 },
    /// A micro-batch cannot be read so often.
    NoData { step: u64, micro_batch: u32, times: u32 },
    /// A rank does nothing for so long.
    Stops { rank: usize, at: u64, micros: u64 },
    /// A rank needs `times` times as long for a pass.
    Slow { rank: usize, times: u64 },
    /// The clock jumps ahead. All that was due comes at once.
    ClockJumps { at: u64, micros: u64 },
    /// A link carries nothing for so long, in both directions, and then again.
    Down { ranks: [usize; 2], at: u64, micros: u64 },
    /// A link carries nothing from then on. A rank that is sent something by it is told that the sender is
    /// gone.
    Cut { ranks: [usize; 2], at: u64 },
    /// A rank cannot write its part of a checkpoint: the folder is gone, or it panics.
    NotWritten { rank: usize, panics: bool },
}

impl Fault {
    /// Whether the training goes on with the same bits, if ranks may be built again so often in a step.
    pub(crate) fn is_survived(&self, restarts: u32) -> bool {
        match self {
            Self::Cut { .. } | Self::AlwaysFails { .. } | Self::NotWritten { panics: true, .. } => false,
            Self::Fails { .. } | Self::NotBuilt { .. } | Self::NoData { .. } => restarts > 0,
            Self::Stops { .. }
            | Self::Slow { .. }
            | Self::ClockJumps { .. }
            | Self::Down { .. }
            | Self::NotWritten { .. } => true,
        }
    }
}

impl Fault {
    /// What kinds there are, but not the kinds that ranks are told nothing of in virtual time.
    pub(crate) const KINDS: [&str; 9] = [
        "fails",
        "panics",
        "always fails",
        "is not built",
        "stops",
        "clock jumps",
        "link is down",
        "link is cut",
        "is not written",
    ];

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Fails { panics: false, .. } => "fails",
            Self::Fails { panics: true, .. } => "panics",
            Self::AlwaysFails { .. } => "always fails",
            Self::NotBuilt { .. } => "is not built",
            Self::NoData { .. } => "is not read",
            Self::Stops { .. } => "stops",
            Self::Slow { .. } => "is slow",
            Self::ClockJumps { .. } => "clock jumps",
            Self::Down { .. } => "link is down",
            Self::Cut { .. } => "link is cut",
            Self::NotWritten { .. } => "is not written",
        }
    }

    /// How often a rank may fail by it in one step.
    pub(crate) fn failures(&self) -> u32 {
        match self {
            Self::AlwaysFails { .. } => 1_000,
            Self::Fails { .. } | Self::NotBuilt { .. } => 1,
            Self::NoData { times, .. } => *times,
            _ => 0,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |micros: u64| micros as f64 / 1000.0;
        match self {
            Self::Fails { rank, pass, panics } => {
                let how = if *panics { "panics" } else { "fails" };
                write!(f, "rank {rank} {how} at its pass {pass}")
            }
            Self::AlwaysFails { layer, step, micro_batch } => {
                write!(f, "layer {layer} fails at micro-batch {micro_batch} of step {step}, each time")
            }
            Self::NotBuilt { rank, time } => write!(f, "rank {rank} cannot be built again, time {time}"),
            Self::NoData { step, micro_batch, times } => {
                write!(f, "micro-batch {micro_batch} of step {step} cannot be read, {times} times")
            }
            Self::Stops { rank, at, micros } => {
                write!(f, "rank {rank} does nothing from {} ms on, for {} ms", ms(*at), ms(*micros))
            }
            Self::Slow { rank, times } => write!(f, "rank {rank} is {times} times as slow"),
            Self::ClockJumps { at, micros } => {
                write!(f, "the clock jumps by {} ms at {} ms", ms(*micros), ms(*at))
            }
            Self::Down { ranks: [a, b], at, micros } => {
                write!(
                    f,
                    "the link of ranks {a} and {b} is down from {} ms on, for {} ms",
                    ms(*at),
                    ms(*micros)
                )
            }
            Self::Cut { ranks: [a, b], at } => {
                write!(f, "the link of ranks {a} and {b} is cut at {} ms", ms(*at))
            }
            Self::NotWritten { rank, panics } => {
                let why = ["its folder is gone", "it panics"][usize::from(*panics)];
                write!(f, "rank {rank} cannot write its part of a checkpoint: {why}")
            }
        }
    }
}
