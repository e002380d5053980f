//! What a message says.

use std::fmt::Display;

/// Asserts that a text has each of these parts.
#[track_caller]
pub(crate) fn has(text: &(impl Display + ?Sized), parts: &[&str]) {
    let text = text.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}
