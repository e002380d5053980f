//! What templates expect of Python, besides what minijinja and its companion do already.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::{json, marks};

/// How much a template may compute for a chat: a few seconds. One from elsewhere may be made to never end.
const FUEL: u64 = 30_000_000;

/// An environment in which templates find what transformers gives them.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the usual marks"));
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(method);
    environment.add_function("raise_exception", raise);
    environment.add_filter("tojson", json::to_json);
    environment.add_filter("e", escaped);
    environment.add_filter("escape", escaped);
    environment.add_filter(marks::FILTER, |text: &str| marks::marked(text));
    environment.add_test("sequence", is_sequence);
    environment
}

/// What templates call to refuse messages.
fn raise(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// A text in HTML, by the entities that Python writes.
fn escaped(value: &Value) -> String {
    let mut text = String::new();
    for letter in value.to_string().chars() {
        match letter {
            '&' => text += "&amp;",
            '<' => text += "&lt;",
            '>' => text += "&gt;",
            '\'' => text += "&#39;",
            '"' => text += "&#34;",
            letter => text.push(letter),
        }
    }
    text
}

/// In Python, a text and an object are sequences too.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
}

/// The methods of Python's texts that minijinja does not have.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return unknown_method_callback(state, value, name, args);
    };
    match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(text.strip_prefix(prefix).unwrap_or(text).into())
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(text.strip_suffix(suffix).unwrap_or(text).into())
        }
        "partition" => {
            let (mark,): (&str,) = from_args(args)?;
            let parts = text.split_once(mark).map(|(before, after)| [before, mark, after]);
            Ok(parts.unwrap_or([text, "", ""]).into_iter().collect())
        }
        "rpartition" => {
            let (mark,): (&str,) = from_args(args)?;
            let parts = text.rsplit_once(mark).map(|(before, after)| [before, mark, after]);
            Ok(parts.unwrap_or(["", "", text]).into_iter().collect())
        }
        "rsplit" => {
            let (mark, most): (&str, Option<usize>) = from_args(args)?;
            let mut parts: Vec<&str> = match most {
                Some(most) => text.rsplitn(most + 1, mark).collect(),
                None => text.rsplit(mark).collect(),
            };
            parts.reverse();
            Ok(parts.into_iter().collect())
        }
        _ => unknown_method_callback(state, value, name, args),
    }
}
