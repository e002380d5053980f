//! A schedule, or a placement, that cannot be.

mod actions;
mod deadlock;

use std::fmt;

pub use actions::{ActionPlace, ActionProblem, Advice, Problems};
pub use deadlock::{Deadlock, Reason, Wait};

use crate::id::{MicroBatch, Rank, StageId};

/// A schedule, or a placement, that cannot be. Ranks, stages, micro-batches, actions and cells are counted from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// Text that is not what it should be.
    #[error("{text:?} {expected}")]
    Text {
        /// The text.
        text: String,
        /// What it should be.
        expected: Expected,
    },
    /// A cell of a CSV that cannot be read.
    #[error("rank {rank}, cell {cell}: {source}")]
    Cell {
        /// The rank whose row it is in.
        rank: Rank,
        /// Its place in the row, idle cells included.
        cell: usize,
        /// What is wrong with it.
        source: Box<ScheduleError>,
    },
    /// A text without an action.
    #[error("there is no action in it; a schedule has a row a rank, such as 0F0,0B0")]
    Empty,
    /// A schedule of no micro-batch.
    #[error("a schedule needs at least 1 micro-batch, got 0")]
    NoMicroBatch,
    /// Another number of lists than of ranks.
    #[error(
        "there are {lists} lists of actions, but the stages stand on {ranks} of them (placement {placement}); give each \
         list stages of its own, each on one rank"
    )]
    Lists {
        /// How many lists there are.
        lists: usize,
        /// How many ranks the placement has.
        ranks: u32,
        /// The placement.
        placement: String,
    },
    /// More cells than are indexed.
    #[error("{stages} stages x {micro_batches} micro-batches are too many; at most 2^23 cells are supported")]
    TooManyCells {
        /// How many stages there are.
        stages: u32,
        /// How many micro-batches there are.
        micro_batches: u32,
    },
    /// Actions that are missing, repeated, on the wrong rank or not called for.
    #[error(transparent)]
    Actions(#[from] Problems),
    /// Actions that wait for what never happens.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
    /// An action that stands twice in a fragment.
    #[error("{second} was already done at {first}; remove one of them")]
    Repeated {
        /// Where it stands first.
        first: ActionPlace,
        /// Where it stands again.
        second: ActionPlace,
    },
    /// A stage with actions on two ranks.
    #[error("stage {stage} stands on ranks {} and {} ({action} on rank {other}); keep a stage on one rank",
        home.min(other), home.max(other))]
    StageOnTwoRanks {
        /// The stage.
        stage: StageId,
        /// The rank it lives on.
        home: Rank,
        /// Another rank with an action of it.
        other: Rank,
        /// That action.
        action: String,
    },
    /// A pair that cannot be one.
    #[error("rank {rank}: {forward} is marked as a pair with {}", match own {
        true => "its own backward, which needs it first",
        false => "the backward behind it, but behind it is none",
    })]
    Pair {
        /// The rank.
        rank: Rank,
        /// The forward that is marked.
        forward: String,
        /// Whether the backward behind it is that of the same cell.
        own: bool,
    },
    /// Marks of pairs on forwards that are not there.
    #[error("{marked} pairs are marked, but the schedule has only {found} of their forwards")]
    PairsMissing {
        /// How many are marked.
        marked: usize,
        /// How many are there.
        found: usize,
    },
    /// A micro-batch that only a part of the stages does.
    #[error(
        "micro-batch {micro_batch} has only {found} of its {wanted} forwards and backwards, though there is a micro-batch \
         {last}; number them from 0"
    )]
    MicroBatchGap {
        /// The micro-batch.
        micro_batch: MicroBatch,
        /// How many forwards and backwards it has.
        found: u32,
        /// How many it should have.
        wanted: u64,
        /// The last micro-batch.
        last: MicroBatch,
    },
    /// Numbers of micro-batches that leave out the first ones.
    #[error(
        "the first micro-batch is {first}, and no micro-batch has half of its {wanted} forwards and backwards; number the \
         micro-batches from 0, each with all its stages"
    )]
    NoWholeMicroBatch {
        /// The lowest number.
        first: MicroBatch,
        /// How many forwards and backwards each should have.
        wanted: u64,
    },
    /// A placement of no stage.
    #[error("a placement needs a stage")]
    NoStage,
    /// A placement on no rank, or with no stage on each.
    #[error(
        "a placement needs at least 1 rank and 1 chunk on each; it was given {ranks} ranks and {chunks} chunks"
    )]
    NoRanks {
        /// How many ranks.
        ranks: u32,
        /// How many stages on each.
        chunks: u32,
    },
    /// More stages than are supported.
    #[error("{ranks} ranks of {chunks} chunks are more than 2^23 stages")]
    TooManyStages {
        /// How many ranks.
        ranks: u32,
        /// How many stages on each.
        chunks: u32,
    },
    /// A rank without a stage.
    #[error(
        "rank {rank} has no stage, though there is a rank {last}; number the ranks from 0 and give each one a stage"
    )]
    RankWithoutStage {
        /// The rank.
        rank: Rank,
        /// The last rank.
        last: Rank,
    },
    /// A stage without an action.
    #[error(
        "stage {stage} has no action on any rank, though there is a stage {last}; number the stages from 0"
    )]
    StageWithoutAction {
        /// The stage.
        stage: StageId,
        /// The last stage.
        last: StageId,
    },
    /// A stage whose number is above the number of actions.
    #[error("there is a stage {stage}, but only {actions} actions in all")]
    StageBeyondActions {
        /// The stage.
        stage: StageId,
        /// How many actions there are.
        actions: usize,
    },
    /// A placement for other numbers of stages and ranks.
    #[error("{wants}, but there are {stages} stages on {ranks} ranks")]
    OtherSizes {
        /// What the placement is for.
        wants: PlacementSizes,
        /// How many stages there are.
        stages: u32,
        /// How many ranks there are.
        ranks: u32,
    },
}

/// What a text should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// An action.
    Action,
    /// A pair of a forward and a backward.
    Pair,
    /// A placement.
    Placement,
    /// What links promise.
    Links,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Action => {
                "is not an action; known are 2F0, 2B0, 2I0, 2W0, 2SEND_F0, 2RECV_F0, 2SEND_B0, 2RECV_B0 (stage, action, \
                 micro-batch), 2REDUCE_GRAD and 2STEP (stage)"
            }
            Self::Pair => {
                "is not a pair of a forward and a backward; write it as (0F7;7B3)OVERLAP_F_B"
            }
            Self::Placement => {
                "is not a placement; known are looped, vee and a list of the stages' ranks such as 0,1,1,0"
            }
            Self::Links => "are no links; known are buffered and ordered",
        })
    }
}

/// What a placement is for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacementSizes {
    /// The same number of stages on every rank.
    Looped,
    /// Two stages on every rank.
    Vee,
    /// Exactly these.
    List {
        /// The placement.
        placement: String,
        /// How many stages it names.
        stages: u32,
        /// How many ranks it names.
        ranks: u32,
    },
}

impl fmt::Display for PlacementSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Looped => f.write_str("placement looped wants the same number of stages on every rank"),
            Self::Vee => f.write_str("placement vee wants two stages on every rank"),
            Self::List {
                placement,
                stages,
                ranks,
            } => write!(f, "placement {placement} is for {stages} stages on {ranks} ranks"),
        }
    }
}
