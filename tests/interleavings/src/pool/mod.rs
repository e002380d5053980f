//! The engine's pools of memory: the same files.

#[path = "../../../../stages/src/pool/home.rs"]
mod home;
#[path = "../../../../stages/src/pool/shelves.rs"]
mod shelves;
#[path = "../../../../stages/src/pool/sizes.rs"]
mod sizes;

mod threads;

/// The stand-ins.
mod sync {
    pub(super) use crate::counted::{Arc, Weak};
    pub(super) use crate::queues::ArrayQueue;
    pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
}
