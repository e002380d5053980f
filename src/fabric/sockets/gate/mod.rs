//! Who gets in: two processes prove to each other that they belong to one run, on each connection, before
//! they say anything else.

mod binding;
mod keeper;
mod key;
mod knock;
mod secret;
mod strangers;
mod talk;

pub(super) use binding::secured;
pub(super) use keeper::Gate;
pub(super) use key::Key;
pub(super) use knock::{Rebuff, knock};
pub use secret::Secret;
pub(super) use strangers::{Shown, Strangers};
pub(super) use talk::{Purpose, Side, Talk};
