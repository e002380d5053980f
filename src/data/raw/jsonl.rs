//! A line of JSON as a document.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::document::Document;
use super::kind::kind;
use super::message::{self, LossOn, TemplateOf};
use super::pair;

/// Reads a line: the text in a field, or the chat in it, or a prompt with what follows it.
pub(crate) fn document(
    line: &str,
    field: &str,
    loss_on: LossOn,
    template: TemplateOf,
) -> Result<Document, String> {
    let Record { fields, names } = record(line, field)?;
    if let Some(end) = pair::end(&names, field)? {
        return pair::document(&fields, end, loss_on, template);
    }
    match fields.get(field) {
        Some(Value::String(text)) => Ok(Document::Text(text.clone())),
        Some(Value::Array(messages)) => {
            let is_rich = message::check_record(&fields, field, template)?;
            let messages = message::messages(messages, field, loss_on, template)?;
            Ok(Document::chat(messages, is_rich, &[field]))
        }
        Some(other) => Err(format!(
            "has {} in \"{field}\" (data.field), where a text or a list of messages was expected",
            kind(other)
        )),
        None => Err(format!("has no field \"{field}\" (data.field), only {}", listed(&names))),
    }
}

/// Reads a line with a preferred answer and a rejected one.
pub(crate) fn answers(line: &str, template: TemplateOf) -> Result<[Document; 2], String> {
    let Record { fields, names } = record(line, pair::CHOSEN)?;
    pair::answers(&fields, &names, template)
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

/// Whether a field is read, if `field` is the one with the document.
pub(super) fn is_read(name: &str, field: &str) -> bool {
    name == field || message::is_known(name) || pair::is_part(name)
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
            if is_read(&name, self.field) {
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
