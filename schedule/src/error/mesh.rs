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
    #[error("{}, but a run can have at most {most} ranks: take fewer", factors(sizes))]
    TooMany {
        /// Replicas, pipeline ranks, tensor shards.
        sizes: [u32; 3],
        /// The most ranks that a run can have.
        most: u32,
    },
    /// The processes cannot have equally many ranks.
    #[error(
        "{processes} processes cannot share {} evenly: start {} of them, or change the ranks (replicas x \
         stages / chunks)",
        in_words(sizes),
        divisors(ranks(sizes))
    )]
    Uneven {
        /// Replicas, pipeline ranks, tensor shards.
        sizes: [u32; 3],
        /// The processes.
        processes: u32,
    },
    /// The number of places does not fit the ranks.
    #[error("{places} places for {}: give one for each, or one for all", in_words(sizes))]
    Places {
        /// The places that were given.
        places: usize,
        /// Replicas, pipeline ranks, tensor shards.
        sizes: [u32; 3],
    },
}

/// All ranks of a mesh that is not too large.
fn ranks(sizes: &[u32; 3]) -> u32 {
    sizes.iter().product()
}

/// The number of ranks, and what it is the product of if there are several replicas or shards.
fn in_words(sizes: &[u32; 3]) -> String {
    let ranks = ranks(sizes);
    match sizes {
        [1, _, 1] => format!("{ranks} ranks"),
        [replicas, each, 1] => format!("{ranks} ranks ({replicas} replicas x {each})"),
        [replicas, each, shards] => {
            format!("{ranks} ranks ({replicas} replicas x {each} x {shards} shards)")
        }
    }
}

/// What a number of ranks that may be too large is the product of.
fn factors([replicas, each, shards]: &[u32; 3]) -> String {
    match shards {
        1 => format!("there are {replicas} replicas x {each} ranks"),
        _ => format!("there are {replicas} replicas x {each} ranks x {shards} shards"),
    }
}

/// The numbers of processes that can share these ranks evenly.
fn divisors(ranks: u32) -> String {
    let fit = (1..=ranks).filter(|&processes| ranks.is_multiple_of(processes));
    let fit: Vec<_> = fit.map(|processes| processes.to_string()).collect();
    match fit.split_last() {
        Some((last, others @ [_, ..])) => format!("{} or {last}", others.join(", ")),
        _ => fit.concat(),
    }
}
