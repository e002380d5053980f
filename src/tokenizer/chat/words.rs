//! The words of a template, by which it is told what it knows.

use std::collections::BTreeSet;

/// The words that stand between quotes in a template, and those that stand behind a dot.
#[derive(Default)]
pub(super) struct Words {
    pub(super) quoted: BTreeSet<String>,
    pub(super) dotted: BTreeSet<String>,
}

impl Words {
    /// Adds the words of a template in Jinja.
    pub(super) fn add(&mut self, source: &str) {
        let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
        for (at, mark) in source.match_indices(['\'', '"', '.']) {
            let rest = &source[at + 1..];
            let end = rest.find(|letter| !is_letter(letter)).unwrap_or(rest.len());
            let word = rest[..end].to_owned();
            if mark == "." {
                self.dotted.insert(word);
            } else if rest[end..].starts_with(mark) {
                self.quoted.insert(word);
            }
        }
    }
}
