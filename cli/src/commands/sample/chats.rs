//! Chats as tokens.

use super::source::Text;
use crate::error::{Error, Result};
use pipewright::tokenizer::{Chat, ChatTemplate, Date, Tokenizer};

/// How the chats of a model become tokens.
pub(in crate::commands) struct Chats<'a> {
    tokenizer: &'a Tokenizer,
    template: ChatTemplate,
}

impl<'a> Chats<'a> {
    /// The chats of a model that reads and writes text so.
    ///
    /// # Errors
    /// When it has no tokenizer, or when its template cannot be used.
    pub(in crate::commands) fn of(text: &'a Text) -> Result<Self> {
        let tokenizer = text.tokenizer.as_ref().ok_or_else(|| {
            Error::refused("this model has no tokenizer, so it was not trained to chat: leave --chat out")
        })?;
        Ok(Self { tokenizer, template: tokenizer.chat(text.template)? })
    }

    /// Whether the template writes tools.
    pub(in crate::commands) fn writes_tools(&self) -> bool {
        self.template.asks_for("tools")
    }

    /// The tokens of a chat of today, with the beginning of an answer.
    ///
    /// # Errors
    /// When the template refuses the chat.
    pub(in crate::commands) fn tokens(&self, chat: &Chat) -> Result<Vec<u32>> {
        let written = self.template.text(&chat.clone().dated(Date::now()), true);
        let written = written.map_err(|problem| self.tokenizer.refuse_chat(problem))?;
        Ok(self.tokenizer.encode_bare(&written)?)
    }
}
