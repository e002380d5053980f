//! Text from another process.

/// The text with characters that control a terminal, such as escape codes, written out. Line ends stay.
pub(in crate::fabric) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && letter != '\n' {
            plain.extend(letter.escape_default());
        } else {
            plain.push(letter);
        }
    }
    plain
}
