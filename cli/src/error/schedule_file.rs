//! A schedule's file that a config cannot use.

use pipewright::schedule;

/// What is wrong with a schedule's file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleFileProblem {
    /// No path.
    #[error("`file:` names no file: write file:PATH, such as file:my.csv")]
    NoPath,
    /// A file that cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file that does not contain a schedule.
    #[error("{path}: {source}")]
    Wrong {
        /// The file.
        path: String,
        /// The reason.
        source: Box<schedule::Error>,
    },
    /// A schedule that goes through the pipeline in several directions.
    #[error(
        "{path} goes in {directions} directions (placement {placement}); the engine trains schedules of one \
         direction: use dualpipe-v, which is similar"
    )]
    Directions {
        /// The file.
        path: String,
        /// How many directions it has.
        directions: u32,
        /// Its placement.
        placement: String,
    },
    /// A schedule for another number of stages or micro-batches.
    #[error("{wanted}, but the schedule in {path} has {has}: set this to {has}")]
    Size {
        /// The file.
        path: String,
        /// The number of the schedule.
        has: u32,
        /// The number of the config.
        wanted: usize,
    },
    /// A schedule for another number of micro-batches than a replica has.
    #[error(
        "the schedule in {path} is for the {has} micro-batches of a replica, but replica {replica} has \
         {wanted} of the batch: choose micro_batches and gradient_groups so that each replica has {has}"
    )]
    Share {
        /// The file.
        path: String,
        /// The micro-batches of the schedule.
        has: u32,
        /// The replica.
        replica: u32,
        /// Its micro-batches.
        wanted: usize,
    },
    /// A schedule with another number of stages on its ranks.
    #[error("{wanted}, but the ranks of the schedule in {path} have {each:?} stages: leave this out")]
    Chunks {
        /// The file.
        path: String,
        /// The stages of each rank.
        each: Vec<u32>,
        /// The number of the config.
        wanted: u32,
    },
}
