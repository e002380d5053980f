//! A message of a chat, and the keys that say more than its role and its text.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The role whose messages are answers.
const ANSWERS: &str = "assistant";

/// The roles that a template writes.
const ROLES: [&str; 3] = ["system", "user", ANSWERS];

const CALL: &str = "write the call into \"content\", as the model has to write it";
const THOUGHT: &str = "write the thoughts into \"content\", as the model has to write them, or remove them";
const MEDIA: &str = "only text is read";
const PLAIN: &str = "write it into \"content\", or remove it";

/// Keys of a message that change what is learnt, and that no template here writes; with the cure.
const OF_MESSAGE: [(&str, &str); 15] = [
    ("tool_calls", CALL),
    ("function_call", CALL),
    ("tool_call_id", PLAIN),
    ("reasoning_content", THOUGHT),
    ("reasoning", THOUGHT),
    ("thinking", THOUGHT),
    ("refusal", PLAIN),
    ("name", PLAIN),
    ("prefix", PLAIN),
    ("images", MEDIA),
    ("audio", MEDIA),
    ("train_detail", "write \"train\": true or false for the whole message"),
    ("loss_weight", "write \"weight\": 0 or 1 for the whole message"),
    ("loss_mask", "write \"weight\": 0 or 1 for the whole message"),
    ("mask", "write \"weight\": 0 or 1 for the whole message"),
];

const TOOLS: &str = "write the tools into the message of the role \"system\"";

/// The same for a record with a chat.
const OF_RECORD: [(&str, &str); 11] = [
    ("tools", TOOLS),
    ("functions", TOOLS),
    ("system", "write it as the first message, of the role \"system\""),
    ("system_prompt", "write it as the first message, of the role \"system\""),
    ("documents", "write them into a message"),
    ("chat_template_kwargs", "templates take no settings here"),
    ("weight", "leave the record out, or write it more than once"),
    ("images", MEDIA),
    ("image", MEDIA),
    ("videos", MEDIA),
    ("audios", MEDIA),
];

/// Keys that say whether a message is learnt: of OpenAI, of Axolotl, of ms-swift.
const LEARNT: [&str; 6] = ["weight", "train", "training", "train_on", "trainable", "loss"];

/// A message of a chat.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) content: String,
    /// Whether it is an answer that is a target.
    pub(crate) counts: bool,
}

/// Whether a field of a record with a chat has to be looked at.
pub(super) fn is_known(name: &str) -> bool {
    OF_RECORD.iter().any(|(known, _)| *known == name)
}

/// Refuses a record with a chat that has a key which would be left out.
pub(super) fn check_record(record: &Map<String, Value>, field: &str) -> Result<(), String> {
    let used = OF_RECORD.iter().find(|(key, _)| *key != field && says(record, key));
    used.map_or(Ok(()), |&(key, cure)| {
        Err(format!("has \"{key}\", which would be left out: {cure}, or remove it"))
    })
}

/// Reads the messages of a field.
pub(super) fn messages(values: &[Value], field: &str, loss_on: LossOn) -> Result<Vec<Message>, String> {
    let values = values.iter().enumerate();
    values.map(|(index, value)| message(value, (field, index), loss_on)).collect()
}

/// Reads the message with this number, from 0, of a field.
fn message(value: &Value, (field, index): (&str, usize), loss_on: LossOn) -> Result<Message, String> {
    let number = index + 1;
    let missing = |key| {
        format!(
            "has no text \"{key}\" in message {number} of \"{field}\"; a message is such as {{\"role\": \
             \"user\", \"content\": \"Hello\"}}"
        )
    };
    let message = value.as_object().ok_or_else(|| missing("role"))?;
    if message.contains_key("from") && !message.contains_key("role") {
        return Err(format!(
            "has \"from\" in message {number} of \"{field}\": write ShareGPT's \"from\" as \"role\", \
             \"value\" as \"content\", \"human\" as \"user\" and \"gpt\" as \"assistant\""
        ));
    }
    let role = message.get("role").and_then(Value::as_str).ok_or_else(|| missing("role"))?;
    if !ROLES.contains(&role) {
        return Err(format!(
            "has the role \"{role}\" in message {number} of \"{field}\", and templates write \"system\", \
             \"user\" and \"assistant\": {}",
            meant(role)
        ));
    }
    if let Some(&(key, cure)) = OF_MESSAGE.iter().find(|(key, _)| says(message, key)) {
        return Err(format!(
            "has \"{key}\" in message {number} of \"{field}\", which would be left out: {cure}"
        ));
    }
    let content = message.get("content").and_then(content).ok_or_else(|| missing("content"))?;
    let wish = learnt(message).map_err(|key| {
        format!("has a \"{key}\" in message {number} of \"{field}\" that is neither 0 nor 1")
    })?;
    let is_answer = role == ANSWERS;
    let counts = match (loss_on, wish) {
        (_, None) => is_answer,
        (LossOn::All, Some((_, true))) => is_answer,
        (LossOn::Answers, Some((_, wish))) if is_answer || !wish => is_answer && wish,
        (_, Some((key, _))) => {
            let learnt = match loss_on {
                LossOn::All => "\"all\" every message is learnt: set \"answers\"",
                LossOn::Answers => "\"answers\" only the role \"assistant\" is learnt: remove it",
            };
            return Err(format!(
                "has \"{key}\" in message {number} of \"{field}\", of the role \"{role}\", and with \
                 data.loss_on = {learnt}"
            ));
        }
    };
    Ok(Message { role: role.to_owned(), content, counts })
}

/// Whether a key is there with something to say.
fn says(of: &Map<String, Value>, key: &str) -> bool {
    match of.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        Some(Value::Number(_) | Value::Bool(true)) => true,
    }
}

/// The text of a message: one text, or parts of text in a row. `None` if there is another part.
fn content(value: &Value) -> Option<String> {
    let part = |part: &Value| {
        let is_text = part.get("type").is_none_or(|kind| kind == "text");
        part.get("text").and_then(Value::as_str).filter(|_| is_text).map(str::to_owned)
    };
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts.iter().map(part).collect(),
        _ => None,
    }
}

/// What a message says about whether it is learnt, and by which key. The error is the key with a value that
/// has no meaning.
fn learnt(message: &Map<String, Value>) -> Result<Option<(&'static str, bool)>, &'static str> {
    let mut found = None;
    for key in LEARNT {
        let wish = match message.get(key) {
            None | Some(Value::Null) => continue,
            Some(Value::Bool(wish)) => *wish,
            Some(value) if value.as_f64() == Some(0.0) => false,
            Some(value) if value.as_f64() == Some(1.0) => true,
            Some(_) => return Err(key),
        };
        found = Some((key, wish));
    }
    Ok(found)
}

/// Which role was probably meant.
fn meant(role: &str) -> &'static str {
    match role {
        "human" => "write \"user\"",
        "gpt" | "chatgpt" | "bot" | "model" | "ai" => "write \"assistant\"",
        "developer" => "write \"system\"",
        "tool" | "function" | "ipython" | "observation" => {
            "write the result into a message of the role \"user\", as the model has to see it"
        }
        _ => "write one of these",
    }
}

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
