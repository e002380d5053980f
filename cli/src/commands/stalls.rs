//! Stalls while no run shows them: of a launch, or of a few steps without a run.

use std::sync::Arc;

use super::processes::prefix;
use pipewright::situation::Stall;

/// Stalls are printed until this is dropped.
pub(super) struct ShowsStalls(Arc<()>);

impl ShowsStalls {
    pub(super) fn new() -> Self {
        Self(Arc::new(()))
    }

    /// What is to be told of stalls.
    pub(super) fn listener(&self) -> impl Fn(&Stall) + Send + Sync + 'static {
        let shown = Arc::downgrade(&self.0);
        move |stall| {
            if shown.strong_count() > 0 {
                eprintln!("{}{}", prefix(), stall.line());
            }
        }
    }
}
