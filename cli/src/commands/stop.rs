//! Ends a text at a word.

/// Text that is written piece by piece, up to the first of some words. What may be the beginning of such a
/// word waits.
#[derive(Debug)]
pub(super) struct Stop {
    words: Vec<Vec<u8>>,
    waiting: Vec<u8>,
}

impl Stop {
    /// Ends at any of these words. Empty ones do not count.
    pub(super) fn new(words: &[String]) -> Self {
        let words = words.iter().filter(|word| !word.is_empty());
        Self { words: words.map(|word| word.as_bytes().to_vec()).collect(), waiting: Vec::new() }
    }

    /// What can be written after this piece, and whether the text ends there.
    pub(super) fn push(&mut self, piece: &[u8]) -> (Vec<u8>, bool) {
        self.waiting.extend_from_slice(piece);
        let found = |word: &Vec<u8>| self.waiting.windows(word.len()).position(|part| part == word);
        if let Some(at) = self.words.iter().filter_map(found).min() {
            self.waiting.truncate(at);
            return (std::mem::take(&mut self.waiting), true);
        }
        let may_begin = |from: &usize| self.words.iter().any(|word| word.starts_with(&self.waiting[*from..]));
        let keep = (0..self.waiting.len()).find(may_begin).unwrap_or(self.waiting.len());
        let rest = self.waiting.split_off(keep);
        (std::mem::replace(&mut self.waiting, rest), false)
    }

    /// What still waits when the text ends without such a word.
    pub(super) fn finish(self) -> Vec<u8> {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_before_a_word_however_it_is_cut_into_pieces() {
        let text = "one two, three end of it";
        for size in 1..=text.len() {
            let mut stop = Stop::new(&["end".to_owned(), "three e".to_owned(), String::new()]);
            let (mut written, mut has_ended) = (Vec::new(), false);
            for piece in text.as_bytes().chunks(size) {
                let (part, ends) = stop.push(piece);
                written.extend(part);
                has_ended = ends;
                if ends {
                    break;
                }
            }
            assert_eq!((written, has_ended), (b"one two, ".to_vec(), true), "{size}");
        }
    }

    #[test]
    fn nothing_is_lost_without_such_a_word() {
        let mut stop = Stop::new(&["ending".to_owned()]);
        assert_eq!(stop.push(b"the end"), (b"the ".to_vec(), false));
        assert_eq!(stop.push(b"less"), (b"endless".to_vec(), false));
        assert_eq!(stop.push(b"end"), (Vec::new(), false));
        assert_eq!(stop.finish(), b"end");
    }
}
