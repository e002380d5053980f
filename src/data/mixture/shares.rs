//! Which source each sample of a mixture is from.

use crate::error::{DataError, Result};

/// After this many samples the order of the sources begins again. Shares are exact to one part in this
/// number.
const CYCLE: usize = 100_000;

/// The order of the sources: sample after sample, the one that is furthest behind its share has its turn. So
/// the first n samples have about n times its share of each source, besides what shares are rounded by.
#[derive(Debug)]
pub(super) struct Shares {
    /// For each sample of a cycle, its source, and how many of that source came before it in this cycle.
    turns: Vec<(u32, u32)>,
    /// How many samples of each source a cycle has.
    counts: Vec<u64>,
}

impl Shares {
    /// The order for these shares. They need not add up to 1.
    ///
    /// # Errors
    /// When one is negative or not finite, when all are 0, and when there are too many.
    pub(super) fn new(shares: &[f64]) -> Result<Self> {
        let counts = counts(shares)?;
        if let [_] = shares {
            return Ok(Self { turns: vec![(0, 0)], counts: vec![1] });
        }
        let mut taken = vec![0_u64; counts.len()];
        let turns = (1..=CYCLE as u64).map(|samples| {
            let behind = |source: usize| {
                let due = i128::from(counts[source]) * i128::from(samples);
                due - i128::from(taken[source]) * CYCLE as i128
            };
            let left = (0..counts.len()).filter(|&source| taken[source] < counts[source]);
            let most = left.max_by_key(|&source| (behind(source), std::cmp::Reverse(source)));
            let source = most.expect("the counts add up to a cycle");
            let earlier = taken[source] as u32;
            taken[source] += 1;
            (source as u32, earlier)
        });
        Ok(Self { turns: turns.collect(), counts })
    }

    /// The source of a sample, and the number of the sample in it.
    pub(super) fn of(&self, sample: u64) -> (usize, u64) {
        let cycle = self.turns.len() as u64;
        let (source, earlier) = self.turns[(sample % cycle) as usize];
        let source = source as usize;
        (source, sample / cycle * self.counts[source] + u64::from(earlier))
    }
}

/// How many samples of a cycle each source has. A share above 0 has one at least.
fn counts(shares: &[f64]) -> Result<Vec<u64>> {
    let refuse = |problem: String| Err(DataError::new(problem).into());
    if let Some(wrong) = shares.iter().find(|share| !(share.is_finite() && **share >= 0.0)) {
        return refuse(format!("{wrong} is no share of a source: choose 0 or more"));
    }
    let all: f64 = shares.iter().sum();
    if all == 0.0 {
        return refuse("no source has a share above 0".to_owned());
    }
    let used = shares.iter().filter(|share| **share > 0.0).count();
    if used > CYCLE {
        return refuse(format!("{used} sources are too many: at most {CYCLE} can be mixed"));
    }
    let exact = |share: f64| share / all * CYCLE as f64;
    let least = |share: f64| if share > 0.0 { (exact(share) as u64).max(1) } else { 0 };
    let mut counts: Vec<u64> = shares.iter().map(|&share| least(share)).collect();
    // What was rounded is made good where the count differs most from the share.
    loop {
        let missing = |source: usize| exact(shares[source]) - counts[source] as f64;
        let by_missing = |a: &usize, b: &usize| missing(*a).total_cmp(&missing(*b)).then(b.cmp(a));
        let with_more = |least: u64| {
            let counts = &counts;
            (0..counts.len()).filter(move |source| counts[*source] > least)
        };
        let sum: u64 = counts.iter().sum();
        if sum < CYCLE as u64 {
            let source = with_more(0).max_by(by_missing).expect("a source has samples");
            counts[source] += 1;
        } else if sum > CYCLE as u64 {
            let source = with_more(1).min_by(by_missing).expect("there are fewer sources than samples");
            counts[source] -= 1;
        } else {
            return Ok(counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_samples_has_its_share_of_each_source_to_within_one() {
        for shares in [&[1.0][..], &[0.7, 0.2, 0.1], &[1.0, 1.0, 1.0], &[3.0, 0.0, 1e-9], &[0.5; 7]] {
            let order = Shares::new(shares).unwrap();
            let all: f64 = shares.iter().sum();
            let mut taken = vec![0; shares.len()];
            for sample in 0..3 * CYCLE as u64 + 7 {
                let (source, number) = order.of(sample);
                assert_eq!(number, taken[source], "the samples of a source follow each other");
                taken[source] += 1;
                for (taken, share) in taken.iter().zip(shares) {
                    let due = share / all * (sample + 1) as f64;
                    // A cycle is off by what was rounded.
                    assert!((due - *taken as f64).abs() < 5.0, "{shares:?}: {taken} of {due}");
                }
            }
        }
    }

    #[test]
    fn shares_that_make_no_mixture_are_refused() {
        for shares in [[1.0, -0.5], [0.0, 0.0], [f64::NAN, 1.0], [f64::INFINITY, 1.0]] {
            assert!(Shares::new(&shares).is_err(), "{shares:?}");
        }
    }
}
