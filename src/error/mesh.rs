//! Ranks, processes and devices that do not fit together.

use crate::id::Axis;

/// Ranks, processes and devices that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// An axis has no rank.
    #[error("there are 0 {}: give 1 or more", axis.plural())]
    Empty {
        /// The axis.
        axis: Axis,
    },
    /// The run has too many ranks.
    #[error(
        "{} replicas of {} ranks of {} shards are more than {most} ranks: take fewer",
        sizes[0], sizes[1], sizes[2]
    )]
    TooMany {
        /// Replicas, pipeline ranks, tensor shards.
        sizes: [u32; 3],
        /// The most ranks that a run can have.
        most: u32,
    },
    /// The processes cannot have equally many ranks.
    #[error(
        "{processes} processes cannot share {ranks} ranks evenly: start {} of them (WORLD_SIZE), or change \
         the stages",
        divisors(*ranks)
    )]
    Uneven {
        /// All ranks of the run.
        ranks: u32,
        /// The processes.
        processes: u32,
    },
    /// The number of places does not fit the ranks.
    #[error("{places} places for {ranks} ranks: give one for each, or one for all")]
    Places {
        /// The places that were given.
        places: usize,
        /// All ranks of the run.
        ranks: u32,
    },
}

/// The numbers of processes that can share these ranks evenly.
fn divisors(ranks: u32) -> String {
    let fit = (1..=ranks).filter(|&processes| ranks.is_multiple_of(processes));
    let fit: Vec<_> = fit.map(|processes| processes.to_string()).collect();
    fit.join(", ")
}
