//! What a record is read as.

use super::message::Message;

/// A document.
#[derive(Debug)]
pub(crate) enum Document {
    Text(String),
    Chat(Vec<Message>, Rich),
    /// A prompt, and the text that follows it.
    Pair([String; 2]),
}

/// Whether a chat says more than roles and texts: then the fields of the record that have its messages.
pub(crate) type Rich = Option<Vec<String>>;

impl Document {
    /// A chat of these messages. `is_rich`: whether the record says more than the messages, which stand in
    /// `fields`.
    pub(super) fn chat(messages: Vec<Message>, is_rich: bool, fields: &[&str]) -> Self {
        let is_rich = is_rich || messages.iter().any(|message| message.is_rich);
        let fields = || fields.iter().copied().map(str::to_owned).collect();
        Self::Chat(messages, is_rich.then(fields))
    }
}
