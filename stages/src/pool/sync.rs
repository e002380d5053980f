//! What threads share a block by. Where `loom` looks at every order, its own stand in.

pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Weak};

pub(crate) use crossbeam_queue::ArrayQueue;
