//! The engine's pools of memory: the same files.

#[path = "../../../../stages/src/pool/home.rs"]
mod home;
#[path = "../../../../stages/src/pool/shelves.rs"]
mod shelves;

mod threads;

use crate::counted::{Arc, Weak};
use crate::queues::ArrayQueue;
