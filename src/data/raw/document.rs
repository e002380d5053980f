//! What a record is read as.

use serde_json::Value;

use super::message::Message;

/// A document.
#[derive(Debug)]
pub(crate) enum Document {
    Text(String),
    Chat(Vec<Message>),
    /// A prompt, and the text that follows it.
    Pair([String; 2]),
}

/// What a value is, for messages.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
