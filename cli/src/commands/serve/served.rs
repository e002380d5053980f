//! What is served: a model, its name, and what it takes to read requests for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use serde_json::{Value, json};

use super::queue::Queue;
use super::refusal::Refusal;
use crate::commands::sample::chats::Chats;
use crate::commands::sample::source::Text;
use crate::commands::sample::words::Words;
use crate::compose::Writing;

/// What is served.
pub(super) struct Served {
    pub(super) name: String,
    pub(super) text: Text,
    pub(super) writing: Writing,
    /// What a request has to know.
    pub(super) token: Option<String>,
    pub(super) queue: Queue,
    /// When it began, in seconds since 1970.
    pub(super) since: u64,
    pub(super) numbers: AtomicU64,
}

impl Served {
    /// How chats become tokens.
    pub(super) fn chats(&self) -> Result<Chats<'_>, Refusal> {
        Chats::of(&self.text).map_err(|error| Refusal::new(format!("this model does not chat: {error}")))
    }

    /// The text of tokens.
    pub(super) fn show(&self, tokens: &[u32]) -> crate::Result<String> {
        if let Some(tokenizer) = &self.text.tokenizer {
            return Ok(tokenizer.decode(tokens)?);
        }
        let mut words = Words::of(&self.text);
        let shown = tokens.iter().map(|token| words.show(*token)).collect::<crate::Result<Vec<_>>>()?;
        Ok(String::from_utf8_lossy(&shown.concat()).into_owned())
    }

    /// The model, as OpenAI's API describes one.
    pub(super) fn model(&self) -> Value {
        json!({"id": self.name, "object": "model", "created": self.since, "owned_by": "pipewright",
            "context_length": self.writing.context})
    }

    /// The refusal of another model.
    pub(super) fn no_model(&self, name: &str) -> Refusal {
        let problem = format!("the model `{name}` is not served here, only `{}`", self.name);
        let refusal = Refusal::with(StatusCode::NOT_FOUND, problem);
        Refusal { field: Some("model".to_owned()), ..refusal }.coded("model_not_found")
    }

    /// A name for an answer, which no other one has.
    pub(super) fn id(&self, kind: &str) -> String {
        format!("{kind}-{:x}-{:x}", self.since, self.numbers.fetch_add(1, Ordering::Relaxed))
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
