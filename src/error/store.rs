//! A store of objects, or a place in it, that cannot be used.

use super::{Error, Problem};
use crate::checksum::Checksum;

/// A store of objects, or a place in it, that cannot be used. The error names the place, such as
/// `s3://bucket/runs/small`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The program has no code for stores of the cloud.
    #[error(
        "{place}: this program was built without the cargo feature `cloud`: build it with `cargo build \
         --release --features cloud`"
    )]
    NoFeature {
        /// The place.
        place: String,
    },
    /// A place that no store can have.
    #[error(
        "`{place}` {problem}: write s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH, or a folder"
    )]
    Place {
        /// The place.
        place: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The settings of a store, such as its credentials, cannot be used.
    #[error("cannot use {url}: {source}; {cure}")]
    Settings {
        /// The place.
        url: String,
        /// What to do.
        cure: &'static str,
        /// What is wrong.
        source: Problem,
    },
    /// There is no such bucket, or no such object.
    #[error(
        "cannot {what} {url}: it is not there: look at the name of the bucket and at the path ({source})"
    )]
    Missing {
        /// What was being done, such as "read".
        what: &'static str,
        /// The object or the place.
        url: String,
        /// What the store says.
        source: Problem,
    },
    /// The store does not let this program do it.
    #[error(
        "cannot {what} {url}: the store refuses it with these credentials: {cure}, and see that they allow \
         to list, read and write there ({source})"
    )]
    Refused {
        /// What was being done, such as "read".
        what: &'static str,
        /// The object or the place.
        url: String,
        /// What to do.
        cure: &'static str,
        /// What the store says.
        source: Problem,
    },
    /// There are no credentials.
    #[error("cannot {what} {url}: there are no credentials: {cure} ({source})")]
    NoCredentials {
        /// What was being done, such as "read".
        what: &'static str,
        /// The object or the place.
        url: String,
        /// What to do.
        cure: &'static str,
        /// Where credentials were looked for in the end.
        source: Problem,
    },
    /// The store answers that it cannot do it now, also when it is asked again.
    #[error(
        "cannot {what} {url}: the store answers {status}, also when it is asked again: try it later \
         ({source})"
    )]
    Busy {
        /// What was being done, such as "read".
        what: &'static str,
        /// The object or the place.
        url: String,
        /// The number of its answer, such as 503.
        status: u16,
        /// What the store says.
        source: Problem,
    },
    /// The store cannot be reached, also when it was tried again.
    #[error("cannot {what} {url}: the store cannot be reached: {cure} ({source})")]
    Unreachable {
        /// What was being done, such as "read".
        what: &'static str,
        /// The object or the place.
        url: String,
        /// What to do.
        cure: &'static str,
        /// What the network says.
        source: Problem,
    },
    /// The connection was cut, or the store did not answer in time, also when it was tried again.
    #[error(
        "cannot {what} {url}: the connection was cut, or there was no answer in time: look at the network \
         ({source})"
    )]
    Cut {
        /// What was being done, such as "read".
        what: &'static str,
        /// The object or the place.
        url: String,
        /// What the network says.
        source: Problem,
    },
    /// An object was replaced while it was read.
    #[error("{url} was replaced while it was read: read it again")]
    Replaced {
        /// The object.
        url: String,
    },
    /// An object has another length than it should have.
    #[error("{url} has {found} bytes, {expected} were expected: it is not whole")]
    Length {
        /// The object.
        url: String,
        /// The bytes that it should have.
        expected: u64,
        /// The bytes that it has.
        found: u64,
    },
    /// An object has another checksum than when it was written.
    #[error("{url} is damaged: it has the checksum {found}, {expected} was written; {cure}")]
    Damaged {
        /// The object.
        url: String,
        /// The checksum that was written.
        expected: Checksum,
        /// The checksum that it has.
        found: Checksum,
        /// What to do.
        cure: String,
    },
    /// There is no whole checkpoint from which a run could go on.
    #[error("there is no whole checkpoint in {url}: look at the path, or leave out --resume to begin a run")]
    NoCheckpoint {
        /// The place.
        url: String,
    },
    /// A new run would copy to a place that has checkpoints of another run.
    #[error(
        "{url} holds checkpoints of a run already, the newest after {step} steps: name another place in \
         checkpoint.copy_to, or continue that run with --resume {url}"
    )]
    Occupied {
        /// The place.
        url: String,
        /// The steps after which the newest checkpoint there was made.
        step: u64,
    },
    /// A run has ended, and its last checkpoint is not in the store.
    #[error(
        "the run is done, but its checkpoints after {} steps are not in {url}: {source}; they are whole in \
         the run directory: the same command with --resume copies the last one",
        list(steps)
    )]
    NotCopied {
        /// The place.
        url: String,
        /// The steps after which the checkpoints were made that are not there.
        steps: Vec<u64>,
        /// Why the last one is not there.
        source: Box<Error>,
    },
    /// Any other failure of a store.
    #[error("cannot {what} {url}: {source}")]
    Failed {
        /// What was being done, such as "read".
        what: &'static str,
        /// The object or the place.
        url: String,
        /// What the store says.
        source: Problem,
    },
}

fn list(steps: &[u64]) -> String {
    steps.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}
