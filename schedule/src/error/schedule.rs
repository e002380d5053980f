//! A schedule or a placement that is wrong.

mod actions;
mod deadlock;

use std::fmt;

pub use actions::{ActionPlace, ActionProblem, Advice, Problems};
pub use deadlock::{Deadlock, Reason, Wait};

use crate::id::{MicroBatch, Rank, StageId};

/// A schedule or a placement that is wrong. Ranks, stages, micro-batches, actions and entries are counted
/// from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// Text of the wrong form.
    #[error("{text:?} {expected}")]
    Text {
        /// The text.
        text: String,
        /// The right form.
        expected: Expected,
    },
    /// An entry of a CSV row that cannot be read.
    #[error("rank {rank}, entry {entry}: {source}")]
    Entry {
        /// The rank whose row it is in.
        rank: Rank,
        /// Its place in the row, empty entries included.
        entry: usize,
        /// What is wrong with it.
        source: Box<ScheduleError>,
    },
    /// A text without an action.
    #[error("there is no action in it; a schedule has a row a rank, such as 0F0,0B0")]
    Empty,
    /// A schedule without micro-batches.
    #[error("a schedule needs at least 1 micro-batch, got 0")]
    NoMicroBatch,
    /// The number of lists differs from the number of ranks.
    #[error(
        "there are {lists} lists of actions, but the stages are on {ranks} ranks (placement \
         {placement}); give each list stages of its own, each on one rank"
    )]
    Lists {
        /// How many lists there are.
        lists: usize,
        /// How many ranks the placement has.
        ranks: u32,
        /// The placement.
        placement: String,
    },
    /// More cells than are supported.
    #[error(
        "{stages} stages x {micro_batches} micro-batches are too many: their product may be \
         8,388,608 (2^23) at most"
    )]
    TooManyCells {
        /// How many stages there are.
        stages: u32,
        /// How many micro-batches there are.
        micro_batches: u32,
    },
    /// Actions that are missing, repeated, on the wrong rank or not needed.
    #[error(transparent)]
    Actions(#[from] Problems),
    /// Actions that wait for something that never happens.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
    /// An action that occurs twice in a fragment.
    #[error("{second} was already done at {first}; remove one of them")]
    Repeated {
        /// Where it occurs first.
        first: ActionPlace,
        /// Where it occurs again.
        second: ActionPlace,
    },
    /// A stage with actions on two ranks.
    #[error("stage {stage} is on ranks {} and {} ({action} on rank {other}); keep a stage on one rank",
        home.min(other), home.max(other))]
    StageOnTwoRanks {
        /// The stage.
        stage: StageId,
        /// Its own rank.
        home: Rank,
        /// Another rank with an action of it.
        other: Rank,
        /// That action.
        action: String,
    },
    /// A pair that is not possible.
    #[error("rank {rank}: {forward} is marked as a pair with {}", match own {
        true => "its own backward, which needs it first",
        false => "the backward after it, but none comes after it",
    })]
    Pair {
        /// The rank.
        rank: Rank,
        /// The forward that is marked.
        forward: String,
        /// Whether the backward after it is of the same cell.
        own: bool,
    },
    /// Pairs whose forwards are missing.
    #[error("{marked} pairs are marked, but the schedule has only {found} of their forwards")]
    PairsMissing {
        /// How many are marked.
        marked: usize,
        /// How many are there.
        found: usize,
    },
    /// A micro-batch with passes of only some stages.
    #[error(
        "micro-batch {micro_batch} has only {found} of its {wanted} forwards and backwards, though there is \
         a micro-batch {last}; number them from 0"
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
    /// Micro-batches whose numbers do not begin at 0.
    #[error(
        "the first micro-batch is {first}, and no micro-batch has half of its {wanted} forwards and \
         backwards; number the micro-batches from 0, each with all its stages"
    )]
    NoWholeMicroBatch {
        /// The lowest number.
        first: MicroBatch,
        /// How many forwards and backwards each should have.
        wanted: u64,
    },
    /// A placement without stages.
    #[error("a placement needs a stage")]
    NoStage,
    /// A placement without ranks, or with no stage on each.
    #[error(
        "a placement needs at least 1 rank and 1 chunk on each; it was given {ranks} ranks and {chunks} \
         chunks"
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
        "rank {rank} has no stage, though there is a rank {last}; number the ranks from 0 and give each one \
         a stage"
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
    /// A placement that does not fit the numbers of stages and ranks.
    #[error("{wants}, but there are {stages} stages on {ranks} ranks")]
    OtherSizes {
        /// What the placement needs.
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
    /// A kind of links.
    LinkKind,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Action => {
                "is not an action; known are 2F0, 2B0, 2I0, 2W0, 2SEND_F0, 2RECV_F0, 2SEND_B0, 2RECV_B0 \
                 (stage, action, micro-batch), 2REDUCE_GRAD and 2STEP (stage)"
            }
            Self::Pair => "is not a pair of a forward and a backward; write it as (0F7;7B3)OVERLAP_F_B",
            Self::Placement => {
                "is not a placement; known are looped, vee and a list of the stages' ranks such as 0,1,1,0"
            }
            Self::LinkKind => "are no links; known are buffered and ordered",
        })
    }
}

/// What a placement needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacementSizes {
    /// The same number of stages on every rank.
    Looped,
    /// Two stages on every rank.
    Vee,
    /// Exactly these numbers.
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
