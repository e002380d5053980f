//! Calls of tools in an answer, in the form of Hermes and Qwen.
//!
//! After the text, if there is one, each call is an object of JSON between two marks. Only an answer that
//! ends with such calls, and has nothing else between or after them, is read so. All other text stays text.

use serde_json::{Map, Value};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    /// An object, in JSON.
    pub(super) arguments: String,
}

/// The text before the calls of an answer, and the calls. None if it does not end with calls.
pub(super) fn read(answer: &str) -> Option<(&str, Vec<Call>)> {
    let (text, mut rest) = answer.split_at(answer.find(OPEN)?);
    let mut calls = Vec::new();
    while !rest.trim().is_empty() {
        let (call, after) = rest.trim_start().strip_prefix(OPEN)?.split_once(CLOSE)?;
        calls.push(one(call)?);
        rest = after;
    }
    Some((text.trim_end(), calls))
}

fn one(call: &str) -> Option<Call> {
    let mut call: Map<String, Value> = serde_json::from_str(call).ok()?;
    let (name, arguments) = (call.remove("name")?, call.remove("arguments")?);
    (call.is_empty() && arguments.is_object())
        .then(|| Some(Call { name: name.as_str()?.to_owned(), arguments: arguments.to_string() }))?
}

/// The end of an answer that is being written, which may be calls.
#[derive(Debug, Default)]
pub(super) struct Held(String);

impl Held {
    /// Adds text, and returns what is text for sure.
    pub(super) fn add(&mut self, text: &str) -> String {
        self.0 += text;
        let begun = || (1..OPEN.len()).rev().find(|count| self.0.ends_with(&OPEN[..*count]));
        let sure = self.0.find(OPEN).unwrap_or_else(|| self.0.len() - begun().unwrap_or(0));
        let held = self.0.split_off(self.0[..sure].trim_end().len());
        std::mem::replace(&mut self.0, held)
    }

    /// What is left at the end.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &str) -> Call {
        Call { name: name.to_owned(), arguments: arguments.to_owned() }
    }

    #[test]
    fn only_an_answer_that_ends_with_whole_calls_has_calls() {
        let [f, g] = [r#"{"name": "f", "arguments": {"a": 1}}"#, r#"{"arguments": {}, "name": "g"}"#]
            .map(|call| format!("<tool_call>\n{call}\n</tool_call>"));
        assert_eq!(read(&f), Some(("", vec![call("f", r#"{"a":1}"#)])));
        let both = format!("I look. \n{f}\n{g}\n");
        assert_eq!(read(&both), Some(("I look.", vec![call("f", r#"{"a":1}"#), call("g", "{}")])));
        for text in [
            "".to_owned(),
            "Hello".to_owned(),
            "<tool_call>".to_owned(),
            format!("{f} Done."),
            format!("{f}, {g}"),
            f.replace("</tool_call>", ""),
            f.replace("{\"a\": 1}", "1"),
            f.replace("\"f\"", "7"),
            f.replace("\"name\"", "\"title\""),
            f.replace("{\"name\"", "{\"id\": 1, \"name\""),
            "<tool_call>f(1)</tool_call>".to_owned(),
        ] {
            assert_eq!(read(&text), None, "{text}");
        }
    }

    #[test]
    fn only_what_may_be_calls_is_held() {
        let told = |parts: &[&str]| {
            let mut held = Held::default();
            let told: Vec<String> = parts.iter().map(|part| held.add(part)).collect();
            (told, held.take())
        };
        for (parts, expected, left) in [
            (&["a ", "b<", "c"][..], &["a", " b", "<c"][..], ""),
            (&["a \n<tool", "_call>x", "y "], &["a", "", ""], " \n<tool_call>xy "),
            (&["<tool_", "box>"], &["", "<tool_box>"], ""),
            (&["日 ", "\n"], &["日", ""], " \n"),
        ] {
            let (told, rest) = told(parts);
            assert_eq!((told, rest.as_str()), (expected.iter().map(|one| one.to_string()).collect(), left));
        }
    }
}
