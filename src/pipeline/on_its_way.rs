//! What a process knows of the checkpoint that is on its way to the disk.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::checkpoint::{Copies, Writing};

/// The checkpoint that is on its way, and the memory for copies.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// By rank of this process. Made when they are first needed.
    pub(super) copies: Vec<Arc<Mutex<Copies>>>,
    pub(super) on_its_way: Option<OnItsWay>,
}

/// A checkpoint that is written while steps run.
#[derive(Debug)]
pub(super) struct OnItsWay {
    pub(super) writing: Writing,
    pub(super) folder: PathBuf,
    /// Whether all processes have written their tensors.
    pub(super) is_written: bool,
}

impl Beside {
    /// Does not wait any more for what is on its way.
    pub(super) fn leave(&mut self) {
        if let Some(on_its_way) = self.on_its_way.take() {
            on_its_way.writing.leave();
        }
    }
}
