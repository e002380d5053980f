//! How likely tokens were.

/// A token, and how likely it was.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scored {
    pub(super) token: u32,
    /// The logarithm of its probability. None for the first token of a text, which nothing is before.
    pub(super) log: Option<f32>,
    /// The most likely tokens in its place, the likeliest first, with the logarithms of their probabilities.
    pub(super) likely: Vec<(u32, f32)>,
}

impl Scored {
    /// A token that was chosen by these scores, and the `most` likeliest ones.
    pub(super) fn of(token: u32, scores: &[f32], most: usize) -> Self {
        let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = scores.iter().map(|score| f64::from(score - highest).exp()).sum();
        let log = |score: f32| (f64::from(score - highest) - sum.ln()) as f32;
        let mut order: Vec<u32> = (0..scores.len() as u32).collect();
        let by_score = |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
        let most = most.min(order.len());
        if 0 < most && most < order.len() {
            order.select_nth_unstable_by(most - 1, by_score);
        }
        order.truncate(most);
        order.sort_unstable_by(by_score);
        let likely = order.into_iter().map(|token| (token, log(scores[token as usize]))).collect();
        Self { token, log: Some(log(scores[token as usize])), likely }
    }

    /// The first token of a text.
    pub(super) fn first(token: u32) -> Self {
        Self { token, log: None, likely: Vec::new() }
    }
}
