//! A message of a chat, and the keys that say more than its role and its text.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kind::kind;
use crate::tokenizer::ChatTemplate;

/// The role whose messages are answers.
const ANSWERS: &str = "assistant";

/// The roles that a template writes.
const ROLES: [&str; 3] = ["system", "user", ANSWERS];

/// The role of the results of calls.
const RESULTS: &str = "tool";

const CALL: &str = "write the call into \"content\", as the model has to write it";
const THOUGHT: &str = "write the thoughts into \"content\", as the model has to write them, or remove them";
const MEDIA: &str = "only text is read";
const PLAIN: &str = "write it into \"content\", or remove it";

/// Keys of a message that are written if the template knows one of these keys; with the cure, if it does
/// not. Thoughts are given to it under the names `reasoning_content` and `thinking`.
const IF_KNOWN: [(&str, [&str; 2], &str); 5] = [
    ("tool_calls", ["tool_calls", "tool_calls"], CALL),
    // A template that writes calls and their results may leave out which belong together.
    ("tool_call_id", ["tool_call_id", "tool_calls"], PLAIN),
    ("reasoning_content", ["reasoning_content", "thinking"], THOUGHT),
    ("reasoning", ["reasoning_content", "thinking"], THOUGHT),
    ("thinking", ["reasoning_content", "thinking"], THOUGHT),
];

/// Keys of a message that change what is learnt, and that no template writes; with the cure.
const OF_MESSAGE: [(&str, &str); 10] = [
    ("function_call", CALL),
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

const SETTINGS: &str = "chat_template_kwargs";
const NO_SETTINGS: &str = "the template does not ask for all of these settings";
const DOCUMENTS: &str = "write them into a message";
const TOOLS: &str = "write the tools into the message of the role \"system\"";

/// Keys of a record with a chat that are given to the template if it asks for them.
const IF_ASKED: [(&str, &str); 3] = [("tools", TOOLS), ("documents", DOCUMENTS), (SETTINGS, NO_SETTINGS)];

/// Keys of a record with a chat that change what is learnt, and that are given to no template.
const OF_RECORD: [(&str, &str); 8] = [
    ("functions", TOOLS),
    ("system", "write it as the first message, of the role \"system\""),
    ("system_prompt", "write it as the first message, of the role \"system\""),
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
    /// Whether it says more than its role and its text.
    pub(crate) is_rich: bool,
}

/// Whether a field of a record with a chat has to be looked at.
pub(super) fn is_known(name: &str) -> bool {
    IF_ASKED.iter().chain(&OF_RECORD).any(|(known, _)| *known == name)
}

/// Refuses a record with a chat that has a key which would be left out. Returns whether the template is given
/// more than messages.
pub(super) fn check_record(
    record: &Map<String, Value>,
    field: &str,
    template: TemplateOf,
) -> Result<bool, String> {
    let used = |keys: &[(&'static str, &'static str)]| -> Vec<_> {
        keys.iter().copied().filter(|(key, _)| *key != field && says(record, key)).collect()
    };
    let left_out =
        |key: &str, cure: &str| Err(format!("has \"{key}\", which would be left out: {cure}, or remove it"));
    if let Some((key, cure)) = used(&OF_RECORD).first() {
        return left_out(key, cure);
    }
    let given = used(&IF_ASKED);
    for (key, cure) in &given {
        let value = &record[*key];
        let is_asked = |name: &str| template().is_some_and(|template| template.asks_for(name));
        let is_known = match value {
            Value::Object(settings) if *key == SETTINGS => settings.keys().all(|name| is_asked(name)),
            Value::Array(_) if *key != SETTINGS => is_asked(key),
            _ => {
                let expected = if *key == SETTINGS { "an object" } else { "a list" };
                return Err(format!("has {} in \"{key}\", where {expected} was expected", kind(value)));
            }
        };
        if !is_known {
            return left_out(key, cure);
        }
    }
    Ok(!given.is_empty())
}

/// The template that writes chats, if there is one.
pub(crate) type TemplateOf<'a> = &'a dyn Fn() -> Option<&'a ChatTemplate>;

/// Reads the messages of a field.
pub(super) fn messages(
    values: &[Value],
    field: &str,
    loss_on: LossOn,
    template: TemplateOf,
) -> Result<Vec<Message>, String> {
    let values = values.iter().enumerate();
    values.map(|(index, value)| message(value, (field, index), loss_on, template)).collect()
}

/// Reads the message with this number, from 0, of a field.
fn message(
    value: &Value,
    (field, index): (&str, usize),
    loss_on: LossOn,
    template: TemplateOf,
) -> Result<Message, String> {
    let knows = |key: &str| template().is_some_and(|template| template.knows_key(key));
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
    let is_usual = ROLES.contains(&role);
    // A template that writes calls may write the role of their results without naming it.
    let is_known = |template: &ChatTemplate| {
        template.knows_role(role) || role == RESULTS && template.knows_key("tool_calls")
    };
    if !is_usual && !template().is_some_and(is_known) {
        return Err(format!(
            "has the role \"{role}\" in message {number} of \"{field}\", and templates write \"system\", \
             \"user\" and \"assistant\": {}",
            meant(role)
        ));
    }
    let used = IF_KNOWN.iter().filter(|(key, ..)| says(message, key));
    let unknown = used.filter(|(_, words, _)| !words.iter().any(|word| knows(word)));
    // The result of a call has the name of what was called.
    let never = OF_MESSAGE.iter().filter(|(key, _)| is_usual || *key != "name").copied();
    let mut refused = unknown.map(|&(key, _, cure)| (key, cure)).chain(never);
    if let Some((key, cure)) = refused.find(|(key, _)| says(message, key)) {
        return Err(format!(
            "has \"{key}\" in message {number} of \"{field}\", which would be left out: {cure}"
        ));
    }
    let is_rich = !is_usual || IF_KNOWN.iter().any(|(key, ..)| says(message, key));
    let content = match message.get("content") {
        None | Some(Value::Null) if says(message, "tool_calls") => Some(String::new()),
        value => value.and_then(content),
    };
    let content = content.ok_or_else(|| missing("content"))?;
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
    Ok(Message { role: role.to_owned(), content, counts, is_rich })
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
