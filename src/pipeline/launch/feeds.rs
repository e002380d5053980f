//! Where the ranks of each replica take their data from.

use crate::data::{Feed, Loader};

/// The loaders of this process's replicas, and the feeds that no rank has taken yet.
#[derive(Default)]
pub(super) struct Feeds {
    pub(super) loaders: Vec<Loader>,
    waiting: Vec<Waiting>,
}

struct Waiting {
    replica: u32,
    inputs: Option<Feed>,
    targets: Option<Feed>,
}

impl Feeds {
    /// Whether a replica has a loader.
    pub(super) fn has(&self, replica: u32) -> bool {
        self.waiting.iter().any(|feeds| feeds.replica == replica)
    }

    /// Adds the loader of a replica, with its feeds of inputs and of targets.
    pub(super) fn add(&mut self, replica: u32, (loader, inputs, targets): (Loader, Feed, Feed)) {
        self.loaders.push(loader);
        self.waiting.push(Waiting {
            replica,
            inputs: Some(inputs),
            targets: Some(targets),
        });
    }

    /// The inputs of a replica, for the rank that takes them.
    pub(super) fn inputs(&mut self, replica: u32) -> Option<Feed> {
        self.of(replica)?.inputs.take()
    }

    /// The targets of a replica, for the rank that takes them.
    pub(super) fn targets(&mut self, replica: u32) -> Option<Feed> {
        self.of(replica)?.targets.take()
    }

    fn of(&mut self, replica: u32) -> Option<&mut Waiting> {
        self.waiting.iter_mut().find(|feeds| feeds.replica == replica)
    }
}
