//! Pairs of answers, one preferred to the other, and what a model gives them before it is trained.

mod pairs;
mod question;
mod reference;

pub use pairs::Pairs;
pub(crate) use question::Question;
pub use reference::Reference;
