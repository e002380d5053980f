//! Which tokens of a document are targets.

use serde::{Deserialize, Serialize};

/// Which tokens of a document are targets. In configs `all` and `answers`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossOn {
    /// All.
    #[default]
    All,
    /// The tokens of the assistant's messages in a chat, each with the token that ends it.
    Answers,
}
