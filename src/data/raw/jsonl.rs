//! A line of JSON as a document.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::super::LossOn;
use super::message::{self, Message};

/// The fields of a record in prompt and completion, which only make a text together.
const TOGETHER: [&str; 2] = ["prompt", "completion"];

/// A document.
#[derive(Debug)]
pub(crate) enum Document {
    Text(String),
    Chat(Vec<Message>),
}

/// Reads a line: the text in a field, or the chat in it.
pub(crate) fn document(line: &str, field: &str, loss_on: LossOn) -> Result<Document, String> {
    let Record { fields, names } = record(line, field)?;
    let other = TOGETHER.into_iter().find(|other| *other != field && names.iter().any(|name| name == other));
    if let Some(other) = other.filter(|_| TOGETHER.contains(&field)) {
        return Err(format!(
            "has \"{other}\", which would be left out: write both into one text, or into the messages of one \
             chat, or remove it"
        ));
    }
    match fields.get(field) {
        Some(Value::String(text)) => Ok(Document::Text(text.clone())),
        Some(Value::Array(messages)) => {
            message::check_record(&fields, field)?;
            chat(messages, field, loss_on)
        }
        Some(other) => Err(format!(
            "has {} in \"{field}\" (data.field), where a text or a list of messages was expected",
            kind(other)
        )),
        None => Err(format!("has no field \"{field}\" (data.field), only {}", listed(&names))),
    }
}

fn chat(messages: &[Value], field: &str, loss_on: LossOn) -> Result<Document, String> {
    let messages = messages.iter().enumerate();
    let messages = messages.map(|(index, value)| message::message(value, (field, index), loss_on));
    messages.collect::<Result<_, _>>().map(Document::Chat)
}

/// The fields of a line that are read, and the names of all.
#[derive(Default)]
struct Record {
    fields: Map<String, Value>,
    names: Vec<String>,
}

fn record(line: &str, field: &str) -> Result<Record, String> {
    if !line.trim_start().starts_with('{') {
        let value: Value = serde_json::from_str(line).map_err(|error| broken(line, &error))?;
        return Err(no_object(kind(&value)));
    }
    let mut json = serde_json::Deserializer::from_str(line);
    let record = Reading { field }.deserialize(&mut json);
    let record = record.and_then(|record| json.end().map(|()| record));
    record.map_err(|error| broken(line, &error))
}

/// Reads the field with this name, and those that change its meaning. What stands in the others makes no
/// difference.
struct Reading<'a> {
    field: &'a str,
}

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = Record;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Record, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = Record;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Record, M::Error> {
        let mut record = Record::default();
        while let Some(name) = map.next_key::<String>()? {
            if name == self.field || message::is_known(&name) {
                record.fields.insert(name.clone(), map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            record.names.push(name);
        }
        Ok(record)
    }
}

fn no_object(what: &str) -> String {
    format!(
        "is {what} and not an object such as {{\"text\": \"...\"}}; a file that is one list becomes lines \
         with `jq -c '.[]'`"
    )
}

/// Names in a row.
fn listed(names: &[String]) -> String {
    match names {
        [] => "nothing".to_owned(),
        names => format!("\"{}\"", names.join("\", \"")),
    }
}

/// The error of serde names a line, but there is only one: the column is what helps.
fn broken(line: &str, error: &serde_json::Error) -> String {
    if line.trim() == "[" {
        return no_object("the beginning of a list");
    }
    let said = error.to_string();
    let mut cause = said.split(" at line ").next().unwrap_or_default().to_owned();
    let column = error.column();
    // The column is where the word begins, or its second letter.
    let rest = line.get(column.saturating_sub(2)..).unwrap_or_default();
    let rest = rest.trim_start_matches(|letter: char| !letter.is_ascii_alphabetic());
    if error.is_eof() {
        cause += "; a record has to be on one line, as `jq -c .` writes it";
    } else if ["NaN", "Infinity"].iter().any(|word| rest.starts_with(word)) {
        cause += "; JSON has no NaN and no Infinity: write null";
    }
    format!("is broken JSON, at column {column}: {cause}")
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
