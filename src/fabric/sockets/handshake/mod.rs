//! Who gets in: two processes prove to each other that they belong to one run, on each connection, before
//! they say anything else.

mod binding;
mod client;
mod credentials;
mod key;
mod messages;
mod rebuff;
mod secret;
mod strangers;

pub(super) use binding::secured;
pub(super) use client::knock;
pub(super) use credentials::Gate;
pub(super) use key::Key;
pub(super) use messages::{Purpose, Side, Talk};
pub(super) use rebuff::Rebuff;
pub use secret::Secret;
pub(super) use strangers::{Shown, Strangers};
