//! Numbers in environment variables.

use crate::error::ProcessesProblem;

/// The environment: names and values.
pub(super) type Environment = [(String, String)];

/// A variable's text. `None` if it is empty or not set.
pub(super) fn text<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    let found = environment
        .iter()
        .find(|(key, value)| key == name && !value.is_empty());
    found.map(|(_, value)| value.as_str())
}

/// A variable's number.
pub(super) fn number(
    environment: &Environment,
    name: &'static str,
) -> std::result::Result<Option<u32>, ProcessesProblem> {
    let Some(text) = text(environment, name) else {
        return Ok(None);
    };
    let number = text.parse().map_err(|_| ProcessesProblem::NoNumber {
        name,
        text: text.to_owned(),
    })?;
    Ok(Some(number))
}
