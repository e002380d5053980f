//! What a template is given.

use std::collections::BTreeMap;
use std::fmt;

use indexmap::IndexMap;
use minijinja::value::{Value, ValueKind};
use serde::Deserialize;

use super::date::Date;
use crate::error::Problem;

/// The keys under which a message may have thoughts, as transformers looks for them.
const THOUGHTS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// What every template is given, so that no setting has one of these names.
pub(super) const GIVEN: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// A chat, with all that a template may ask for: messages, tools, documents, settings and the date.
#[derive(Clone, Default)]
pub struct Chat {
    pub(super) messages: Vec<Value>,
    pub(super) tools: Option<Value>,
    pub(super) documents: Option<Value>,
    pub(super) settings: BTreeMap<String, Value>,
    pub(super) date: Option<Date>,
}

impl Chat {
    /// A chat of messages, each a role and a content.
    pub fn of(messages: &[(&str, &str)]) -> Self {
        let mut chat = Self::default();
        messages.iter().for_each(|(role, content)| chat.push(role, content));
        chat
    }

    /// Reads an object of JSON with `messages`, and perhaps with `tools`, `documents` and
    /// `chat_template_kwargs`, which are settings of the template. Other keys are left out. Each message is
    /// an object; a key of it that is null is as if it were absent.
    ///
    /// # Errors
    /// When it is no such object.
    pub fn read(json: &str) -> Result<Self, Problem> {
        Self::read_fields(json, &["messages"])
    }

    /// The same with the messages of fields with these names, in a row.
    ///
    /// # Errors
    /// As for [`Chat::read`].
    pub(crate) fn read_fields(json: &str, fields: &[&str]) -> Result<Self, Problem> {
        let broken = |error: serde_json::Error| Problem::new(format!("is no chat in JSON: {error}"));
        let mut all: BTreeMap<String, Value> = serde_json::from_str(json).map_err(broken)?;
        let mut given = |key: &str| all.remove(key).filter(|value| !value.is_none());
        let mut lists = Vec::new();
        for field in fields {
            let list = given(field).filter(|value| value.kind() == ValueKind::Seq);
            lists.push(list.ok_or_else(|| Problem::new(format!("has no list \"{field}\"")))?);
        }
        let tools = given("tools");
        let documents = given("documents");
        let settings: BTreeMap<String, Value> = match given("chat_template_kwargs") {
            Some(settings) => BTreeMap::deserialize(settings)
                .map_err(|_| Problem::new("has a \"chat_template_kwargs\" that is no object".to_owned()))?,
            None => BTreeMap::new(),
        };
        if let Some(name) = GIVEN.iter().find(|name| settings.contains_key(**name)) {
            return Err(Problem::new(format!(
                "has \"{name}\" in \"chat_template_kwargs\", which are for settings of the template: leave \
                 it out there"
            )));
        }
        let mut chat = Self { tools, documents, settings, ..Self::default() };
        for message in lists.iter().filter_map(|list| list.try_iter().ok()).flatten() {
            if message.kind() != ValueKind::Map {
                let number = chat.count() + 1;
                return Err(Problem::new(format!("has a message {number} that is no object")));
            }
            chat.messages.push(normal(&message));
        }
        Ok(chat)
    }

    /// Adds a message.
    pub fn push(&mut self, role: &str, content: &str) {
        let entries = [("role", role), ("content", content)];
        self.messages.push(object(entries.map(|(key, text)| (key.into(), text.into()))));
    }

    /// The number of messages.
    pub fn count(&self) -> usize {
        self.messages.len()
    }

    /// Keeps the first messages only.
    pub fn truncate(&mut self, count: usize) {
        self.messages.truncate(count);
    }

    /// Refuses messages without a role, and those without content, unless an assistant gives them.
    ///
    /// # Errors
    /// With the number of the message and what it lacks.
    pub fn check(&self) -> Result<(), Problem> {
        for (message, number) in self.messages.iter().zip(1..) {
            let has = |key: &str| {
                message.get_attr(key).is_ok_and(|value| !value.is_none() && !value.is_undefined())
            };
            let answers = self.role(number - 1).as_deref() == Some("assistant");
            let missing = match (has("role"), has("content") || answers) {
                (false, _) => "role",
                (true, false) => "content",
                (true, true) => continue,
            };
            return Err(Problem::new(format!(
                "has no \"{missing}\" in message {number}; a message is such as {{\"role\": \"user\", \
                 \"content\": \"Hi\"}}"
            )));
        }
        Ok(())
    }

    /// Makes one text of each content that is a list of parts of text.
    ///
    /// # Errors
    /// When a part is no text.
    pub fn join_parts(&mut self) -> Result<(), Problem> {
        for (index, message) in self.messages.iter_mut().enumerate() {
            let content = message.get_attr("content").unwrap_or_default();
            if content.kind() != ValueKind::Seq {
                continue;
            }
            let mut text = String::new();
            for part in content.try_iter().into_iter().flatten() {
                let part_text = part.get_attr("text").unwrap_or_default();
                text += part_text.as_str().ok_or_else(|| {
                    let number = index + 1;
                    Problem::new(format!("has a part that is no text in message {number}: only text is read"))
                })?;
            }
            *message = replaced(message, "content", text.into());
        }
        Ok(())
    }

    /// Reads the arguments of calls that are texts of JSON, as in OpenAI's API: templates write them as
    /// values.
    ///
    /// # Errors
    /// When such a text is no JSON.
    pub fn read_arguments(&mut self) -> Result<(), Problem> {
        for (index, message) in self.messages.iter_mut().enumerate() {
            let calls = message.get_attr("tool_calls").unwrap_or_default();
            if calls.kind() != ValueKind::Seq {
                continue;
            }
            let read = |call: Value| -> serde_json::Result<Value> {
                let function = call.get_attr("function").unwrap_or_default();
                let arguments = function.get_attr("arguments").unwrap_or_default();
                let Some(text) = arguments.as_str() else { return Ok(call) };
                let arguments = serde_json::from_str(text)?;
                Ok(replaced(&call, "function", replaced(&function, "arguments", arguments)))
            };
            let calls = calls.try_iter().into_iter().flatten().map(read).collect::<serde_json::Result<_>>();
            let calls: Vec<Value> = calls.map_err(|error| {
                let number = index + 1;
                Problem::new(format!("has a call in message {number} whose arguments are no JSON: {error}"))
            })?;
            *message = replaced(message, "tool_calls", calls.into());
        }
        Ok(())
    }

    /// The chat without tools.
    #[must_use]
    pub fn without_tools(mut self) -> Self {
        self.tools = None;
        self
    }

    /// The chat at this date. Without one, a template is told that there is no date, and may refuse.
    #[must_use]
    pub fn dated(mut self, date: Date) -> Self {
        self.date = Some(date);
        self
    }

    /// The first messages of it.
    pub(super) fn first(&self, count: usize) -> Self {
        let mut first = self.clone();
        first.truncate(count);
        first
    }

    /// The role of a message.
    pub(super) fn role(&self, index: usize) -> Option<String> {
        let role = self.messages[index].get_attr("role").ok()?;
        role.as_str().map(str::to_owned)
    }

    /// Whether a text that it gives to a template has this letter.
    pub(super) fn has(&self, letter: char) -> bool {
        let given = [&self.tools, &self.documents].into_iter().flatten().chain(self.settings.values());
        self.messages.iter().chain(given).any(|value| has(value, letter))
    }
}

impl fmt::Debug for Chat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chat").field("messages", &self.messages).finish_non_exhaustive()
    }
}

/// A message as transformers gives it to templates: without keys that are null, and with its thoughts under
/// the two names by which templates ask for them.
fn normal(message: &Value) -> Value {
    let pairs = message.as_object().and_then(|object| object.clone().try_iter_pairs());
    let kept = pairs.into_iter().flatten().filter(|(_, value)| !value.is_none());
    let mut kept: IndexMap<Value, Value> = kept.collect();
    let [usual, older, _] = THOUGHTS.map(Value::from);
    let thoughts = THOUGHTS.iter().find_map(|key| kept.get(&Value::from(*key)).cloned());
    if let Some(thoughts) = thoughts {
        kept.entry(older).or_insert_with(|| thoughts.clone());
        kept.insert(usual, thoughts);
    }
    object(kept)
}

/// An object with another value for a key.
fn replaced(value: &Value, key: &str, by: Value) -> Value {
    let pairs = value.as_object().and_then(|object| object.clone().try_iter_pairs());
    let mut entries: IndexMap<Value, Value> = pairs.into_iter().flatten().collect();
    entries.insert(key.into(), by);
    object(entries)
}

/// An object with these entries, in this order.
pub(super) fn object(entries: impl IntoIterator<Item = (Value, Value)>) -> Value {
    Value::from_object(entries.into_iter().collect::<IndexMap<Value, Value>>())
}

fn has(value: &Value, letter: char) -> bool {
    match value.kind() {
        ValueKind::String => value.as_str().is_some_and(|text| text.contains(letter)),
        ValueKind::Seq => value.try_iter().into_iter().flatten().any(|one| has(&one, letter)),
        ValueKind::Map => {
            let pairs = value.as_object().and_then(|object| object.clone().try_iter_pairs());
            pairs.into_iter().flatten().any(|(key, one)| has(&key, letter) || has(&one, letter))
        }
        _ => false,
    }
}
