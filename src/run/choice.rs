//! How the next token of a text is chosen from the scores of all.

/// How the next token of a text is chosen from the scores of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// How random it is, 0 or more: 0 always takes the most likely token, 1 follows the model's
    /// probabilities, larger values are more random. Default: 0.8.
    pub temperature: f32,
    /// Only among this many most likely tokens, 1 or more. Default: among all.
    pub top_k: Option<usize>,
    /// Only among the most likely tokens that have this share of the probability together, above 0 and at
    /// most 1. Default: 1.
    pub top_p: f32,
    /// Tokens that were read or written are less likely: positive scores are divided by this, negative ones
    /// are multiplied. Above 0; 1 changes nothing. Default: 1.
    pub repetition_penalty: f32,
}

impl Default for Choice {
    fn default() -> Self {
        Self { temperature: 0.8, top_k: None, top_p: 1.0, repetition_penalty: 1.0 }
    }
}

impl Choice {
    /// The token for a random number from `[0, 1)`. `seen` are the tokens that were read and written.
    pub(crate) fn token(self, scores: &mut [f32], seen: &[u32], draw: f32) -> u32 {
        self.penalise(scores, seen);
        let by_score = |a: &u32, b: &u32| {
            let [a_score, b_score] = [a, b].map(|token| scores[*token as usize]);
            b_score.total_cmp(&a_score).then(a.cmp(b))
        };
        let mut tokens: Vec<u32> = (0..scores.len() as u32).collect();
        let best = *tokens.iter().min_by(|a, b| by_score(a, b)).expect("a vocabulary has tokens");
        if self.temperature == 0.0 {
            return best;
        }
        if let Some(count) = self.top_k.filter(|count| *count < tokens.len()) {
            tokens.select_nth_unstable_by(count - 1, by_score);
            tokens.truncate(count);
        }
        let highest = scores[best as usize];
        let weight = |token: &u32| f64::from((scores[*token as usize] - highest) / self.temperature).exp();
        if self.top_p < 1.0 {
            tokens.sort_unstable_by(by_score);
            let mut left = f64::from(self.top_p) * tokens.iter().map(weight).sum::<f64>();
            let enough = tokens.iter().position(|token| {
                left -= weight(token);
                left <= 0.0
            });
            tokens.truncate(enough.map_or(tokens.len(), |last| last + 1));
        }
        // The order of what was selected does not matter for the choice.
        tokens.sort_unstable();
        let mut left = f64::from(draw) * tokens.iter().map(weight).sum::<f64>();
        let chosen = tokens.iter().find(|token| {
            left -= weight(token);
            left < 0.0
        });
        *chosen.unwrap_or(&best)
    }

    /// Keskar et al., "CTRL" (2019), section 4.1; negative scores as in transformers.
    fn penalise(self, scores: &mut [f32], seen: &[u32]) {
        if self.repetition_penalty == 1.0 {
            return;
        }
        let mut seen = seen.to_vec();
        seen.sort_unstable();
        seen.dedup();
        for token in seen {
            let score = &mut scores[token as usize];
            *score *= if *score > 0.0 { 1.0 / self.repetition_penalty } else { self.repetition_penalty };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Choice = Choice { temperature: 1.0, top_k: None, top_p: 1.0, repetition_penalty: 1.0 };

    /// Scores whose probabilities are 1/10, 2/10, 3/10 and 4/10.
    fn scores() -> [f32; 4] {
        [1.0_f32, 2.0, 3.0, 4.0].map(f32::ln)
    }

    /// How often each token is chosen out of a hundred.
    fn counts(choice: Choice, seen: &[u32]) -> [u32; 4] {
        let mut counts = [0; 4];
        for draw in 0..100 {
            let token = choice.token(&mut scores(), seen, (draw as f32 + 0.5) / 100.0);
            counts[token as usize] += 1;
        }
        counts
    }

    #[test]
    fn tokens_are_chosen_by_their_probabilities() {
        assert_eq!(counts(ALL, &[]), [10, 20, 30, 40]);
        let cold = Choice { temperature: 0.0, ..ALL };
        assert_eq!(counts(cold, &[]), [0, 0, 0, 100]);
    }

    #[test]
    fn only_the_most_likely_are_chosen_from() {
        let top_k = Choice { top_k: Some(2), ..ALL };
        assert_eq!(counts(top_k, &[]), [0, 0, 43, 57]);
        // The first two have 0.7 together, the first three 0.9.
        for (top_p, expected) in [(0.65, [0, 0, 43, 57]), (0.75, [0, 22, 34, 44]), (0.3, [0, 0, 0, 100])] {
            assert_eq!(counts(Choice { top_p, ..ALL }, &[]), expected, "{top_p}");
        }
    }

    #[test]
    fn what_was_seen_is_less_likely() {
        let choice = Choice { repetition_penalty: 2.0, ..ALL };
        // ln 4 is halved, so token 3 weighs 2 out of 8. Seen twice counts once.
        assert_eq!(counts(choice, &[3, 3]), [12, 25, 38, 25]);
        let mut scores = [-1.0, 1.0];
        choice.penalise(&mut scores, &[0]);
        assert_eq!(scores, [-2.0, 1.0]);
    }
}
