//! Text that another process has sent.

/// The text without characters that a terminal would obey, such as escape codes: they are written out. Ends
/// of lines stay.
pub(super) fn plain(text: &str) -> String {
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
