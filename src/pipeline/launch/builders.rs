//! One builder of a stage for the ranks of all replicas.

use std::sync::{Arc, Mutex, PoisonError};

use pipewright_stages::{BuildStage, Result, Stage, StageBuilder};

/// A function that gives builders of the same stage. The ranks use them one after the other, since a builder
/// need not be `Sync`.
pub(super) fn shared<S: Stage>(builder: StageBuilder<S>) -> impl Fn() -> StageBuilder<S> {
    let builder = Arc::new(Mutex::new(builder));
    move || Box::new(Shared(Arc::clone(&builder))) as _
}

struct Shared<S>(Arc<Mutex<StageBuilder<S>>>);

impl<S: Stage> BuildStage<S> for Shared<S> {
    fn build(&self) -> Result<S> {
        // A builder that panicked has failed the launch already.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).build()
    }

    fn describe(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).describe()
    }
}
