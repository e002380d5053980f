//! Requests that are refused, as OpenAI's API says so.

use hyper::StatusCode;
use serde_json::{Value, json};

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// The field that is wrong.
    pub(super) field: Option<String>,
    /// A word by which a program tells it from others.
    pub(super) code: Option<&'static str>,
}

impl Refusal {
    /// A request that cannot be answered as it is.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self::with(StatusCode::BAD_REQUEST, message)
    }

    /// A refusal with this status.
    pub(super) fn with(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), field: None, code: None }
    }

    /// A field with a value that cannot be used.
    pub(super) fn of(field: &str, problem: impl std::fmt::Display) -> Self {
        Self { field: Some(field.to_owned()), ..Self::new(format!("{field}: {problem}")) }
    }

    /// The same, of this field unless it names one.
    pub(super) fn in_field(self, field: &str) -> Self {
        Self { field: self.field.or_else(|| Some(field.to_owned())), ..self }
    }

    /// The same with a word for programs.
    pub(super) fn coded(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// It in JSON.
    pub(super) fn json(&self) -> Value {
        let kind = if self.status.is_server_error() { "server_error" } else { "invalid_request_error" };
        json!({"error": {
            "message": self.message, "type": kind, "param": self.field, "code": self.code,
        }})
    }
}
