//! The marks of answers in a template: `{% generation %}` and `{% endgeneration %}`.
//!
//! minijinja has no such tags. Each becomes a block with a filter, which has the same rules for white space
//! and for names. The filter puts a letter before and behind what it is given, and these letters are taken
//! out of the text again.

use std::ops::Range;

/// The name of the filter.
pub(super) const FILTER: &str = "answer_of_generation";

/// The letters before and behind an answer. Unicode says that no text has them.
const AROUND: [char; 2] = ['\u{fdd0}', '\u{fdd1}'];

/// The letters that a chat must not have.
pub(super) fn letters() -> [char; 2] {
    AROUND
}

/// A template without these tags, and whether it had some.
pub(super) fn without_tags(source: &str) -> (String, bool) {
    let (mut written, mut rest, mut had) = (String::new(), source, false);
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        written += before;
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let inside = tag[..end].trim_start_matches("{%").trim_end_matches("%}");
        let new = match inside.trim_matches(['-', '+']).trim() {
            "generation" => Some(format!("filter {FILTER}")),
            "endgeneration" => Some("endfilter".to_owned()),
            _ => None,
        };
        let signs = [inside.chars().next(), inside.chars().next_back()];
        let [open, close] = signs.map(|sign| sign.filter(|sign| ['-', '+'].contains(sign)));
        let sign = |sign: Option<char>| sign.map(String::from).unwrap_or_default();
        // A tag is looked for behind the next beginning, so that "{% {% generation %}" is found too.
        let step = match new {
            Some(new) => {
                had = true;
                written += &format!("{{%{} {new} {}%}}", sign(open), sign(close));
                end
            }
            None => {
                written += "{%";
                2
            }
        };
        rest = &tag[step..];
    }
    (written + rest, had)
}

/// What the filter makes of an answer.
pub(super) fn marked(text: &str) -> String {
    format!("{}{text}{}", AROUND[0], AROUND[1])
}

/// The text without the letters around answers, and where these were.
pub(super) fn taken_out(marked: &str) -> (String, Vec<Range<usize>>) {
    let (mut text, mut answers, mut begun) = (String::with_capacity(marked.len()), Vec::new(), Vec::new());
    for letter in marked.chars() {
        match letter {
            letter if letter == AROUND[0] => begun.push(text.len()),
            letter if letter == AROUND[1] => answers.extend(begun.pop().map(|begin| begin..text.len())),
            letter => text.push(letter),
        }
    }
    (text, answers)
}
