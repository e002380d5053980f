//! Costs, sizes or limits for which there is no schedule, cut or picture.

use std::fmt;

use crate::id::StageId;

/// Costs, sizes or limits for which there is no schedule, cut or picture. Times and memory are in the unit of
/// the costs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A cost that is negative or not a number.
    #[error("{of}the cost {name} is {cost}; it has to be a number from 0 on")]
    Cost {
        /// Whose cost it is.
        of: CostOf,
        /// Which cost.
        name: &'static str,
        /// Its value.
        cost: f64,
    },
    /// A cost so large that sums of it might overflow.
    #[error("{of}the cost {name} is {cost:e}; it has to be no more than {most:e}, so take a larger unit")]
    LargeCost {
        /// Whose cost it is.
        of: CostOf,
        /// Which cost.
        name: &'static str,
        /// Its value.
        cost: f64,
        /// The largest value allowed.
        most: f64,
    },
    /// No pass takes time.
    #[error("forward, backward-input and backward-weight all cost 0; give one a cost")]
    NoWork,
    /// Costs for another number of stages.
    #[error("there are costs of {given} stages for {stages} (placement {placement}); give one a stage")]
    OtherStages {
        /// How many stages there are costs of.
        given: usize,
        /// How many stages there are.
        stages: u32,
        /// The placement.
        placement: String,
    },
    /// Costs for no layer.
    #[error("there are costs of no layer")]
    NoLayer,
    /// Counts of layers that do not add up to the model's.
    #[error("stages of {counts:?} layers do not make up the model's {layers}")]
    Counts {
        /// How many layers each stage has.
        counts: Vec<usize>,
        /// How many layers the model has.
        layers: usize,
    },
    /// A timeline lacks a pass whose cost is needed.
    #[error("stage {stage} has no {pass} in the timeline to take its cost from")]
    Unmeasured {
        /// The stage.
        stage: StageId,
        /// The pass.
        pass: &'static str,
    },
    /// More stages than layers.
    #[error("{stages} stages for {layers} layers: use at most {layers} stages or a deeper model")]
    TooFewLayers {
        /// How many stages there are.
        stages: usize,
        /// How many layers there are.
        layers: usize,
    },
    /// No cut keeps the memory limit.
    #[error("no cut of {layers} layers into {stages} stages keeps every rank within {memory} bytes")]
    NoCut {
        /// How many layers there are.
        layers: usize,
        /// How many stages there are.
        stages: usize,
        /// The limit of a rank.
        memory: f64,
    },
    /// The schedule keeps the memory limit only if its backward-weights run out of order.
    #[error("the best schedule holds {held} once its backward-weights are in order, above {memory}")]
    HoldsMore {
        /// What a rank holds then.
        held: f64,
        /// The limit of a rank.
        memory: f64,
    },
    /// A goal that does not exist.
    #[error("{0:?} is not a goal; known are makespan and span")]
    Goal(String),
    /// A schedule that does not exist.
    #[error("there is no schedule {name:?}{} (known: {})",
        nearest.map(|nearest| format!(", did you mean {nearest}?")).unwrap_or_default(), known.join(", "))]
    UnknownSchedule {
        /// What was asked for.
        name: String,
        /// The name that was probably meant.
        nearest: Option<&'static str>,
        /// All names.
        known: Vec<&'static str>,
    },
    /// Sizes that the schedule cannot have.
    #[error("schedule {schedule} {problem}")]
    Sizes {
        /// The schedule's name.
        schedule: &'static str,
        /// What is wrong with the sizes.
        problem: SizeProblem,
    },
    /// A search without ranks, stages or micro-batches.
    #[error(
        "auto needs at least 1 rank, 1 chunk and 1 micro-batch; it was given {ranks} ranks, {} chunks and \
         {micro_batches} micro-batches",
        chunks.map_or("any number of".to_owned(), |chunks| chunks.to_string())
    )]
    NothingToSearch {
        /// How many ranks.
        ranks: u32,
        /// How many stages a rank. `None`: any number.
        chunks: Option<u32>,
        /// How many micro-batches.
        micro_batches: u32,
    },
    /// A search that is too large.
    #[error(
        "auto searches up to {most} ranks and 2^16 cells; {ranks} ranks x {chunks} chunks x {micro_batches} \
        micro-batches are more: name a schedule"
    )]
    TooMuchToSearch {
        /// The largest number of ranks for a search.
        most: u32,
        /// How many ranks.
        ranks: u32,
        /// How many stages a rank.
        chunks: u32,
        /// How many micro-batches.
        micro_batches: u32,
    },
    /// A memory limit that is not a number above 0.
    #[error("the memory limit is {0}; it has to be a number above 0")]
    MemoryLimit(f64),
    /// Costs for stages that cannot be divided evenly among the ranks.
    #[error(
        "there are costs of {stages} stages, which {ranks} ranks cannot share evenly; give costs of a \
         multiple of {ranks}"
    )]
    UnevenCosts {
        /// How many stages there are costs of.
        stages: usize,
        /// How many ranks there are.
        ranks: u32,
    },
    /// No schedule keeps the memory limit.
    #[error("no schedule fits in {memory} a rank; the least that works on {ranks} ranks is {least}")]
    NothingFits {
        /// The limit of a rank.
        memory: f64,
        /// How many ranks there are.
        ranks: u32,
        /// The smallest limit that some schedule keeps.
        least: f64,
    },
    /// Replicas whose schedules reduce stages in such orders that each waits for another.
    #[error(
        "on ordered links the replicas wait for each other for ever: with {shares:?} micro-batches they \
         reduce their stages in other orders; give each replica as many, or take buffered links"
    )]
    CrossedReductions {
        /// The different numbers of micro-batches of the replicas.
        shares: Vec<u32>,
    },
    /// More passes than a picture can show.
    #[error(
        "there are {passes} passes, and a picture shows {most} at most: draw fewer ranks or micro-batches, \
         or a single replica"
    )]
    TooManyPasses {
        /// How many passes there are.
        passes: usize,
        /// How many a picture can show.
        most: usize,
    },
}

/// What a cost belongs to. Prints as the beginning of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostOf {
    /// All ranks, or all transfers.
    All,
    /// A stage.
    Stage(StageId),
    /// A layer, by its name.
    Layer(String),
    /// Transfers between two ranks.
    Link,
    /// Reductions over replicas.
    Reduction,
}

impl fmt::Display for CostOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => Ok(()),
            Self::Stage(stage) => write!(f, "stage {stage}: "),
            Self::Layer(name) => write!(f, "layer `{name}`: "),
            Self::Link => f.write_str("link: "),
            Self::Reduction => f.write_str("link between replicas: "),
        }
    }
}

/// Why a schedule cannot have these sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeProblem {
    /// No rank or no micro-batch.
    #[error(
        "needs at least 1 rank and 1 micro-batch; it was given {ranks} ranks and {micro_batches} \
         micro-batches"
    )]
    Nothing {
        /// How many ranks.
        ranks: u32,
        /// How many micro-batches.
        micro_batches: u32,
    },
    /// A number of stages a rank that the schedule cannot have.
    #[error("has {}; it was given {chunks} chunks", match (least == most, *most) {
        (true, _) => format!("{least} stages a rank"),
        (false, u32::MAX) => format!("at least {least} stages a rank"),
        (false, _) => format!("{least} to {most} stages a rank"),
    })]
    Chunks {
        /// How many stages a rank.
        chunks: u32,
        /// The smallest number that it can have.
        least: u32,
        /// The largest number that it can have.
        most: u32,
    },
    /// More cells than are supported.
    #[error(
        "with {ranks} ranks x {chunks} chunks x {micro_batches} micro-batches is too large: their product \
         may be 8,388,608 (2^23) at most"
    )]
    TooLarge {
        /// How many ranks.
        ranks: u32,
        /// How many stages a rank.
        chunks: u32,
        /// How many micro-batches.
        micro_batches: u32,
    },
    /// Too many ranks for a schedule that needs two micro-batches a rank.
    #[error(
        "is made for two micro-batches a rank at least, and with {ranks} ranks these are too many; at most \
         2^23 cells are supported"
    )]
    TooManyRanks {
        /// How many ranks.
        ranks: u32,
    },
}
