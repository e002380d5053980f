//! The fields of a request. Each is read, or known to change nothing, or refused.

use serde_json::{Map, Value};

use super::refusal::Refusal;

/// Fields that change no answer here: they are for records, for bills and for caches of other servers.
pub(super) const IGNORED: [&str; 8] = [
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
];

/// Fields that may only say what is done anyway: with what they may say, in JSON.
const FIXED: [(&str, &str); 11] = [
    ("audio", "null"),
    ("best_of", "1"),
    ("frequency_penalty", "0"),
    ("function_call", "\"none\""),
    ("functions", "[]"),
    ("logit_bias", "{}"),
    ("modalities", "[\"text\"]"),
    ("n", "1"),
    ("presence_penalty", "0"),
    ("response_format", "{\"type\":\"text\"}"),
    ("suffix", "\"\""),
];

/// What is still to be read of a request. A field that is null is as if it were absent.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// The fields of a request in JSON.
    pub(super) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let no_json = |error: serde_json::Error| Refusal::new(format!("the body is no JSON: {error}"));
        let value: Value = serde_json::from_slice(body).map_err(no_json)?;
        let Value::Object(mut fields) = value else {
            return Err(Refusal::new("the body is no object in JSON, such as {\"model\": \"...\"}"));
        };
        fields.retain(|_, value| !value.is_null());
        Ok(Self(fields))
    }

    /// Takes a field.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// Takes a text.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        self.taken(name, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// Takes a number.
    pub(super) fn number(&mut self, name: &str) -> Result<Option<f64>, Refusal> {
        self.taken(name, "a number", Value::as_f64)
    }

    /// Takes a whole number, 0 or more.
    pub(super) fn count(&mut self, name: &str) -> Result<Option<usize>, Refusal> {
        let count = |value: &Value| value.as_u64().and_then(|count| usize::try_from(count).ok());
        self.taken(name, "a whole number, 0 or more", count)
    }

    /// Takes a switch, which is off if it is absent.
    pub(super) fn switch(&mut self, name: &str) -> Result<bool, Refusal> {
        Ok(self.taken(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    fn taken<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let refuse = || Refusal::of(name, format!("it is {value}, and {expected} was expected"));
        read(&value).map(Some).ok_or_else(refuse)
    }

    /// Refuses what is left and would change the answer.
    pub(super) fn finish(mut self) -> Result<(), Refusal> {
        for (name, fixed) in FIXED {
            let Some(value) = self.take(name) else { continue };
            let same =
                |fixed: Value| value == fixed || value.as_f64().is_some_and(|it| Some(it) == fixed.as_f64());
            if !serde_json::from_str(fixed).is_ok_and(same) {
                let problem = format!("it is {value}, and this server can only do {fixed}: leave it out");
                return Err(Refusal::of(name, problem).coded("unsupported_parameter"));
            }
        }
        match self.0.keys().find(|name| !IGNORED.contains(&name.as_str())) {
            Some(name) => {
                let problem = "this server does not know it, and it may change the answer: leave it out";
                Err(Refusal::of(name, problem).coded("unsupported_parameter"))
            }
            None => Ok(()),
        }
    }
}
