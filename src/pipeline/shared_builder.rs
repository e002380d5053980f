//! A builder of a stage for the ranks of all replicas, and for each launch.

use std::sync::{Arc, Mutex, PoisonError};

use pipewright_stages::{BuildStage, Result, Stage, StageBuilder};

/// The ranks use it one after the other, since a builder need not be `Sync`.
pub(super) struct SharedBuilder<S: Stage>(Arc<Mutex<StageBuilder<S>>>);

impl<S: Stage> SharedBuilder<S> {
    pub(super) fn new(builder: StageBuilder<S>) -> Self {
        Self(Arc::new(Mutex::new(builder)))
    }

    /// A builder of the same stage, for one rank.
    pub(super) fn for_rank(&self) -> StageBuilder<S> {
        Box::new(Self(Arc::clone(&self.0)))
    }
}

impl<S: Stage> BuildStage<S> for SharedBuilder<S> {
    fn build(&self) -> Result<S> {
        // A builder that panicked has failed the launch already.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).build()
    }

    fn describe(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).describe()
    }
}
