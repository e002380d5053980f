//! The directory of a run: its lock, and the files that the leading process writes there. Files of lines only
//! grow. If somebody removes a file while it is open, it is made again.

pub(super) mod claim;
pub(super) mod cut;
mod fetch;
pub(super) mod files;
pub(super) mod folder;
pub(super) mod history;
mod lock;
pub(super) mod metrics;
pub(super) mod picture;
mod tensorboard;
pub(super) mod trace;
pub(super) mod writer;
