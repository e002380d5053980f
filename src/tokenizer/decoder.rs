//! What the text of a token still depends on when the next ones come.

use serde_json::Value;

/// The steps of a decoder that join all tokens into one text.
const JOINING: [&str; 2] = ["Fuse", "ByteLevel"];

/// What the text of a token still depends on when the next ones come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Decoder {
    /// Tokens such as `<0xE6>` are bytes. As many of them as follow each other are characters together, or
    /// none of them is.
    pub(super) has_bytes: bool,
    /// The whole text is changed after all tokens are joined.
    pub(super) changes_whole: bool,
}

impl Decoder {
    /// By the decoder in a `tokenizer.json`.
    pub(super) fn of(decoder: &Value) -> Self {
        let steps = match decoder["decoders"].as_array() {
            Some(steps) => steps,
            None => std::slice::from_ref(decoder),
        };
        let is_one_of =
            |step: &Value, kinds: &[&str]| step["type"].as_str().is_some_and(|kind| kinds.contains(&kind));
        let joined = steps.iter().position(|step| is_one_of(step, &JOINING));
        let after = joined.map_or(&[][..], |at| &steps[at + 1..]);
        let keeps_end = |step: &Value| is_one_of(step, &["Strip"]) && step["stop"] == 0;
        Self {
            has_bytes: steps.iter().any(|step| is_one_of(step, &["ByteFallback"])),
            changes_whole: after.iter().any(|step| !is_one_of(step, &["Fuse"]) && !keeps_end(step)),
        }
    }

    /// Whether a token is a byte.
    pub(super) fn is_byte(self, token: &str) -> bool {
        let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
        self.has_bytes
            && digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
    }
}
