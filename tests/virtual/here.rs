//! The rank and the world of the current thread.

use std::cell::RefCell;

use pipewright::stages::{Error, Result};

use super::*;

thread_local! {
    static HERE: RefCell<Option<(Arc<World>, usize)>> = const { RefCell::new(None) };
}

/// What a forward pass is called.
pub(crate) const FORWARD: &str = "forward";

/// Something that a rank computes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) what: &'static str,
    pub(crate) layer: usize,
    pub(crate) step: u64,
    pub(crate) micro_batch: u32,
    /// Whether it belongs to a training step.
    pub(crate) trains: bool,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, layer, step, micro_batch, .. } = self;
        write!(f, "{what} of layer {layer}, micro-batch {micro_batch} of step {step}")
    }
}

/// From now on the current thread is this rank.
pub(crate) fn be(world: &Arc<World>, rank: usize) {
    HERE.set(Some((Arc::clone(world), rank)));
}

/// The current thread is no rank any more.
pub(crate) fn be_nobody() {
    HERE.set(None);
}

/// Calls this with the rank that the current thread is.
pub(crate) fn with<T>(call: impl FnOnce(&World, usize) -> T) -> Option<T> {
    let here = HERE.with_borrow(Option::clone);
    here.map(|(world, rank)| call(&world, rank))
}

/// The rank computes this, and may fail.
pub(crate) fn pass(pass: Pass) -> Result<()> {
    match with(|world, rank| world.pass(rank, pass)).unwrap_or(Ends::Well) {
        Ends::Well => Ok(()),
        Ends::InError => Err(Error::other("the disk is on fire")),
        // Without a message to standard error: many ranks panic here.
        Ends::InPanic => std::panic::resume_unwind(Box::new("a bug".to_owned())),
    }
}
