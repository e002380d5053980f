//! The word that was probably meant.

/// The most similar word, ignoring case, or `None` if no word is similar. Similarity is counted in changed,
/// missing, added and swapped letters (Damerau's distance): at least half of the letters must stay.
pub fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let unlikeness = |other: &str| {
        strsim::damerau_levenshtein(&word, other) as f64 / word.len().max(other.len()).max(1) as f64
    };
    words
        .into_iter()
        .map(|other| (unlikeness(other), other))
        .filter(|(unlikeness, _)| *unlikeness <= 0.5)
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, other)| other)
}
