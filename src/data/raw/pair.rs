//! Records in two parts: a prompt, and what follows it. Their fields have the names that they have in TRL.

use serde_json::{Map, Value};

use super::document::Document;
use super::kind::kind;
use super::message::{self, LossOn, Message, TemplateOf};

/// The field of the first part.
const PROMPT: &str = "prompt";
const COMPLETION: &str = "completion";
/// A preferred answer, and a rejected one.
pub(crate) const CHOSEN: &str = "chosen";
const REJECTED: &str = "rejected";

/// The fields that may follow the first part.
const ENDS: [&str; 3] = [COMPLETION, CHOSEN, REJECTED];

/// Fields in which other data sets have what stands before both answers.
const ASKED: [&str; 9] = [
    "question",
    "instruction",
    "input",
    "query",
    "context",
    "system",
    "history",
    "messages",
    "conversations",
];

/// Whether a field is of such a record.
pub(super) fn is_part(name: &str) -> bool {
    name == PROMPT || ENDS.contains(&name)
}

/// The field that follows the prompt, if a record with these fields is read in two parts. `field`: what
/// `data.field` says.
///
/// # Errors
/// When a field would be left out that belongs to the one that is named.
pub(super) fn end(names: &[String], field: &str) -> Result<Option<&'static str>, String> {
    let has = |name: &str| names.iter().any(|one| one == name);
    if field == PROMPT && has(PROMPT) {
        return match ENDS.into_iter().find(|end| has(end)) {
            Some(end) => Err(format!(
                "has \"{end}\", which would be left out: set data.field to \"{end}\", and both are read"
            )),
            None => Ok(None),
        };
    }
    if has(field) {
        return Ok(ENDS.into_iter().find(|end| *end == field && has(PROMPT)));
    }
    if has(PROMPT) && has(COMPLETION) {
        return Ok(Some(COMPLETION));
    }
    match has(CHOSEN) {
        true => Err(format!(
            "has \"{CHOSEN}\" and no field \"{field}\" (data.field): set data.field to \"{CHOSEN}\" to learn \
             what was preferred"
        )),
        false => Ok(None),
    }
}

/// A document of two parts: two texts, or the messages of two parts of a chat. A text may also be repeated at
/// the beginning of the chat that follows it.
pub(super) fn document(
    fields: &Map<String, Value>,
    end: &str,
    loss_on: LossOn,
    template: TemplateOf,
) -> Result<Document, String> {
    match (&fields[PROMPT], &fields[end]) {
        (Value::String(prompt), Value::String(text)) => Ok(Document::Pair([prompt.clone(), text.clone()])),
        (Value::Array(before), Value::Array(after)) => {
            let is_rich = message::check_record(fields, end, template)?;
            let mut messages = message::messages(before, PROMPT, loss_on, template)?;
            messages.iter_mut().for_each(|message| message.counts = false);
            messages.extend(message::messages(after, end, loss_on, template)?);
            Ok(Document::chat(messages, is_rich, &[PROMPT, end]))
        }
        (Value::String(prompt), Value::Array(chat)) => {
            let is_rich = message::check_record(fields, end, template)?;
            let messages = message::messages(chat, end, loss_on, template)?;
            let repeats = |message: &Message| message.content == *prompt;
            match messages.iter().any(repeats) {
                true => Ok(Document::chat(messages, is_rich, &[end])),
                false => Err(format!(
                    "has a text in \"{PROMPT}\" that is no message of \"{end}\": write it as the first \
                     message of \"{end}\", or both parts as lists of messages"
                )),
            }
        }
        (prompt, after) => Err(format!(
            "has {} in \"{PROMPT}\" and {} in \"{end}\", where two texts or two lists of messages were \
             expected",
            kind(prompt),
            kind(after)
        )),
    }
}

/// The two answers of a record, each with what stands before it. Without a prompt, what both have in common
/// at their beginning is no part of the answers.
pub(super) fn answers(
    fields: &Map<String, Value>,
    names: &[String],
    template: TemplateOf,
) -> Result<[Document; 2], String> {
    let missing = [CHOSEN, REJECTED].into_iter().find(|name| !fields.contains_key(*name));
    if let Some(name) = missing {
        return Err(format!(
            "has no field \"{name}\": a pair has a preferred answer in \"{CHOSEN}\" and another one in \
             \"{REJECTED}\", and usually a \"{PROMPT}\""
        ));
    }
    let of = |name| document(fields, name, LossOn::Answers, template);
    // `null` is as good as no prompt.
    let prompt = fields.get(PROMPT).filter(|prompt| !prompt.is_null());
    let asked = ASKED.iter().find(|asked| names.iter().any(|name| name == *asked));
    if let (None, Some(asked)) = (prompt, asked) {
        return Err(format!(
            "has no \"{PROMPT}\", and \"{asked}\" would be left out: write what stands before both answers \
             as \"{PROMPT}\", or remove \"{asked}\""
        ));
    }
    match (prompt, [&fields[CHOSEN], &fields[REJECTED]]) {
        (None, [Value::String(chosen), Value::String(rejected)]) => {
            let both = chosen.chars().zip(rejected.chars());
            let common: usize = both.take_while(|(a, b)| a == b).map(|(letter, _)| letter.len_utf8()).sum();
            Ok([chosen, rejected].map(|text| {
                let (before, answer) = text.split_at(common);
                Document::Pair([before.to_owned(), answer.to_owned()])
            }))
        }
        (_, [Value::String(_), Value::String(_)]) => Ok([of(CHOSEN)?, of(REJECTED)?]),
        (prompt, [Value::Array(chosen), Value::Array(rejected)]) => {
            let repeats = |prompt: &Vec<Value>| [chosen, rejected].iter().all(|one| one.starts_with(prompt));
            let mut both = match prompt {
                Some(Value::Array(prompt)) if !repeats(prompt) => [of(CHOSEN)?, of(REJECTED)?],
                None | Some(Value::Array(_)) => {
                    [whole(fields, CHOSEN, chosen, template)?, whole(fields, REJECTED, rejected, template)?]
                }
                Some(_) => [of(CHOSEN)?, of(REJECTED)?],
            };
            check_answers(&both)?;
            // What both have in common at their beginning stands before the answers.
            let common = match prompt {
                Some(Value::Array(prompt)) if !repeats(prompt) => 0,
                _ => chosen.iter().zip(rejected).take_while(|(a, b)| a == b).count(),
            };
            for document in &mut both {
                if let Document::Chat(messages, _) = document {
                    messages.iter_mut().take(common).for_each(|message| message.counts = false);
                }
            }
            Ok(both)
        }
        (_, [chosen, rejected]) => Err(format!(
            "has {} in \"{CHOSEN}\" and {} in \"{REJECTED}\", where two texts or two lists of messages were \
             expected",
            kind(chosen),
            kind(rejected)
        )),
    }
}

/// Refuses a chat in which nothing counts.
fn check_answers(both: &[Document; 2]) -> Result<(), String> {
    let is_none = |document: &Document| match document {
        Document::Chat(messages, _) => !messages.iter().any(|message| message.counts),
        Document::Text(_) | Document::Pair(_) => false,
    };
    match both.iter().zip([CHOSEN, REJECTED]).find(|(document, _)| is_none(document)) {
        Some((_, name)) => Err(format!(
            "has no answer in \"{name}\": one of its messages has to be of the role \"assistant\""
        )),
        None => Ok(()),
    }
}

/// A chat that stands in one field.
fn whole(
    fields: &Map<String, Value>,
    name: &str,
    messages: &[Value],
    template: TemplateOf,
) -> Result<Document, String> {
    let is_rich = message::check_record(fields, name, template)?;
    let messages = message::messages(messages, name, LossOn::Answers, template)?;
    Ok(Document::chat(messages, is_rich, &[name]))
}
