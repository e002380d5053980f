//! Cuts the model elsewhere while a run goes on: when another cut is faster, or when somebody asks for one.

mod cutting;

use crate::plan::Watch;

/// Lets a run cut its model elsewhere between two steps: see [`Run::replan`](crate::run::Run::replan).
#[derive(Clone, Debug)]
pub struct Replan {
    pub(super) watch: Watch,
    pub(super) is_automatic: bool,
    /// What was told last of a question that cannot be read.
    pub(super) told: String,
}

impl Replan {
    /// The run cuts its model elsewhere whenever the watch says that this is faster, and when it is asked to.
    pub fn by_itself(watch: Watch) -> Self {
        Self { watch, is_automatic: true, told: String::new() }
    }

    /// The layers of each stage now.
    pub(in crate::run) fn counts(&self) -> Vec<usize> {
        self.watch.counts().to_vec()
    }

    /// The run cuts its model elsewhere only when it is asked to: see
    /// [`RunDir::ask_for_cut`](crate::run::RunDir::ask_for_cut).
    pub fn when_asked(watch: Watch) -> Self {
        Self { watch, is_automatic: false, told: String::new() }
    }
}
