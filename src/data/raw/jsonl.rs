//! A line of JSON as a document.

use serde_json::{Map, Value};

use crate::error::RecordProblem;

/// A document.
#[derive(Debug)]
pub(crate) enum Document {
    Text(String),
    Chat(Vec<Message>),
}

/// A message of a chat.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) content: String,
}

/// Reads a line: the text in a field, or the chat in it.
pub(crate) fn document(line: &str, field: &str) -> Result<Document, RecordProblem> {
    let value: Value = serde_json::from_str(line).map_err(|error| broken(line, &error))?;
    let Value::Object(record) = value else {
        return Err(RecordProblem::NoObject(kind(&value)));
    };
    match record.get(field) {
        Some(Value::String(text)) => Ok(Document::Text(text.clone())),
        Some(Value::Array(messages)) => chat(messages, field),
        Some(other) => Err(RecordProblem::NoText {
            field: field.to_owned(),
            got: kind(other),
        }),
        None => Err(RecordProblem::NoField {
            field: field.to_owned(),
            has: record.keys().cloned().collect(),
        }),
    }
}

fn chat(messages: &[Value], field: &str) -> Result<Document, RecordProblem> {
    let messages = messages.iter().enumerate().map(|(index, message)| {
        let part = |key: &'static str| {
            let text = message
                .as_object()
                .and_then(|message: &Map<_, _>| message.get(key));
            text.and_then(Value::as_str)
                .map(str::to_owned)
                .ok_or_else(|| RecordProblem::Message {
                    field: field.to_owned(),
                    index,
                    key,
                })
        };
        let (role, content) = (part("role")?, part("content")?);
        Ok(Message { role, content })
    });
    messages.collect::<Result<_, _>>().map(Document::Chat)
}

/// The error of serde names a line, but there is only one: the column is what helps.
fn broken(line: &str, error: &serde_json::Error) -> RecordProblem {
    if line.trim() == "[" {
        return RecordProblem::NoObject("the beginning of a list");
    }
    let said = error.to_string();
    let cause = said.split(" at line ").next().unwrap_or_default().to_owned();
    let column = error.column();
    RecordProblem::Broken { cause, column }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
