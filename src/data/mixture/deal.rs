//! How the samples of a step become micro-batches.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Rows are as long as a multiple of this many tokens, so that there are few shapes, and kernels have whole
/// vectors.
const MULTIPLE: usize = 16;

/// A sample of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Its place in the step.
    pub(super) place: usize,
    /// Its tokens.
    pub(super) length: usize,
    /// In how many pairs a token sees itself or an earlier one of its document.
    pub(super) pairs: u64,
}

/// A micro-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dealt {
    /// The places of its samples in the step.
    pub(super) places: Vec<usize>,
    /// The length of its rows.
    pub(super) length: usize,
    /// The tokens of its samples.
    pub(super) tokens: usize,
    /// What it costs, in pairs.
    pub(super) cost: u64,
}

/// What micro-batches may be, and what they cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deal {
    /// How many micro-batches a step has.
    pub(super) micro_batches: usize,
    /// A micro-batch has at most as many tokens as this many rows of the longest length.
    pub(super) rows: usize,
    /// The longest length.
    pub(super) seq: usize,
    /// How many pairs of tokens in attention cost as much as a token costs in all other layers.
    pub(super) pairs_of_token: u64,
}

impl Deal {
    /// The micro-batches of a step. All samples have a place in them. There are fewer micro-batches if there
    /// are fewer samples.
    ///
    /// Two ways are compared, and the one whose most expensive micro-batch costs less is taken. In the first
    /// one, samples of about the same length come together, more of them where they are short. It is good if
    /// lengths differ. In the second one, each micro-batch has the same number of samples. The sample with
    /// the most pairs goes first, and each goes to the micro-batch that is the cheapest so far (Graham,
    /// "Bounds on multiprocessing timing anomalies", 1969). It is good if only the documents in a sample
    /// differ.
    pub(super) fn micro_batches(self, mut samples: Vec<Sample>) -> Vec<Dealt> {
        samples.sort_by_key(|sample| (Reverse(sample.length), sample.place));
        let lengths = self.by_length(&samples);
        let pairs = self.by_pairs(&samples);
        let most = |batches: &[Vec<Sample>]| batches.iter().map(|batch| self.cost(batch)).max();
        let chosen = if most(&pairs) < most(&lengths) { pairs } else { lengths };
        let mut batches: Vec<Dealt> = chosen.iter().map(|batch| self.finished(batch)).collect();
        // Samples are in an order of their own, which says nothing of their lengths. So expensive
        // micro-batches are not all on one replica.
        batches.sort_by_key(|batch| batch.places[0]);
        batches
    }

    fn finished(self, samples: &[Sample]) -> Dealt {
        let mut places: Vec<usize> = samples.iter().map(|sample| sample.place).collect();
        places.sort_unstable();
        let tokens = samples.iter().map(|sample| sample.length).sum();
        Dealt { places, length: self.length(samples), tokens, cost: self.cost(samples) }
    }

    /// The length of rows for these samples.
    pub(super) fn length(self, samples: &[Sample]) -> usize {
        let longest = samples.iter().map(|sample| sample.length).max();
        longest.unwrap_or(1).next_multiple_of(MULTIPLE).min(self.seq)
    }

    /// What a micro-batch of these samples costs, in pairs. What follows a sample in its row counts as one
    /// more document.
    pub(super) fn cost(self, samples: &[Sample]) -> u64 {
        let length = self.length(samples);
        samples.iter().map(|sample| self.cost_in(sample, length)).fold(0, u64::saturating_add)
    }

    fn cost_in(self, sample: &Sample, length: usize) -> u64 {
        let tokens = self.pairs_of_token.saturating_mul(length as u64);
        tokens.saturating_add(sample.pairs + triangle(length - sample.length))
    }

    /// Samples of about the same length together. `samples` begin with the longest.
    fn by_length(self, samples: &[Sample]) -> Vec<Vec<Sample>> {
        // Equal numbers of samples are always possible. Their cost is the upper limit of the search.
        let equal = samples.chunks(self.rows).map(|batch| self.cost(batch)).max().unwrap_or(0);
        let (mut too_little, mut enough) = (0, equal);
        while too_little + 1 < enough {
            let middle = too_little.midpoint(enough);
            match self.parts(samples, middle) {
                Some(_) => enough = middle,
                None => too_little = middle,
            }
        }
        let parts = self.parts(samples, enough).expect("equal numbers are possible at this cost");
        // A step has a fixed number of micro-batches: the most expensive ones are divided.
        let mut batches: BinaryHeap<_> =
            parts.into_iter().map(|part| (self.cost(&samples[part.clone()]), part.start, part.end)).collect();
        let mut single = Vec::new();
        while single.len() + batches.len() < self.micro_batches {
            match batches.pop() {
                Some((_, start, end)) if end - start > 1 => {
                    let middle = start.midpoint(end);
                    for part in [start..middle, middle..end] {
                        batches.push((self.cost(&samples[part.clone()]), part.start, part.end));
                    }
                }
                Some(one) => single.push(one),
                None => break,
            }
        }
        batches.into_iter().chain(single).map(|(_, start, end)| samples[start..end].to_vec()).collect()
    }

    /// Consecutive samples in as few micro-batches of at most this cost as possible. `None` if these are too
    /// many.
    fn parts(self, samples: &[Sample], most: u64) -> Option<Vec<Range<usize>>> {
        let mut parts = Vec::new();
        let mut start = 0;
        while start < samples.len() {
            let length = self.length(&samples[start..=start]);
            let (mut end, mut cost) = (start, 0);
            while let Some(sample) = samples.get(end) {
                cost = self.cost_in(sample, length).saturating_add(cost);
                if cost > most || (end - start + 1) * length > self.rows * self.seq {
                    break;
                }
                end += 1;
            }
            if end == start || parts.len() == self.micro_batches {
                return None;
            }
            parts.push(start..end);
            start = end;
        }
        Some(parts)
    }

    /// Equal numbers of samples, and about equal costs.
    fn by_pairs(self, samples: &[Sample]) -> Vec<Vec<Sample>> {
        let mut samples = samples.to_vec();
        samples.sort_by_key(|sample| (Reverse(sample.pairs), sample.place));
        let count = samples.len().min(self.micro_batches);
        let mut batches = vec![Vec::new(); count];
        let mut cheapest: BinaryHeap<_> = (0..count).map(|batch| Reverse((0, batch))).collect();
        for sample in samples {
            let Reverse((pairs, batch)) = cheapest.pop().expect("there is room for all samples");
            batches[batch].push(sample);
            if batches[batch].len() < self.rows {
                cheapest.push(Reverse((pairs + sample.pairs, batch)));
            }
        }
        batches
    }
}

/// In how many pairs a token of a document of this length sees itself or an earlier one.
pub(super) fn triangle(length: usize) -> u64 {
    let length = length as u64;
    length * (length + 1) / 2
}

#[cfg(test)]
mod tests {
    use pipewright_stages::rng::philox;

    use super::*;

    /// Samples of one document each.
    fn samples(lengths: impl IntoIterator<Item = usize>) -> Vec<Sample> {
        let sample = |(place, length)| Sample { place, length, pairs: triangle(length) };
        lengths.into_iter().enumerate().map(sample).collect()
    }

    /// Many short lengths, and few long ones.
    fn long_tailed(count: u32, seq: usize, key: u32) -> impl Iterator<Item = usize> {
        let draw = move |place| f64::from(philox([key, 3], [place, 0, 0, 0])[0]) / f64::from(u32::MAX);
        (0..count).map(move |place| 1 + (draw(place).powi(4) * (seq - 1) as f64) as usize)
    }

    #[test]
    fn each_sample_comes_once_and_no_micro_batch_is_larger_than_the_largest() {
        for (micro_batches, rows, seq) in [(1, 1, 1), (4, 1, 40), (8, 4, 64), (3, 5, 100), (16, 8, 33)] {
            let deal = Deal { micro_batches, rows, seq, pairs_of_token: 200 };
            for key in 0..20 {
                let count = micro_batches * rows;
                let samples = samples(long_tailed(count as u32, seq, key));
                let batches = deal.micro_batches(samples.clone());
                assert_eq!(batches.len(), micro_batches);
                let mut places: Vec<_> = batches.iter().flat_map(|batch| batch.places.clone()).collect();
                places.sort_unstable();
                assert_eq!(places, (0..count).collect::<Vec<_>>());
                for batch in &batches {
                    assert!(batch.places.len() * batch.length <= rows * seq, "{batch:?}");
                    let longest = batch.places.iter().map(|&place| samples[place].length).max();
                    assert!((longest.unwrap()..=seq).contains(&batch.length), "{batch:?}");
                }
            }
        }
    }

    #[test]
    fn samples_of_equal_length_stay_in_their_order() {
        let deal = Deal { micro_batches: 3, rows: 4, seq: 64, pairs_of_token: 100 };
        let batches = deal.micro_batches(samples([64; 12]));
        let places: Vec<_> = batches.iter().map(|batch| batch.places.clone()).collect();
        assert_eq!(places, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]);
    }

    #[test]
    fn lengths_that_differ_are_evened_out() {
        let deal = Deal { micro_batches: 8, rows: 8, seq: 1024, pairs_of_token: 2000 };
        let of_costs = |batches: &[Vec<Sample>]| {
            let costs: Vec<_> = batches.iter().map(|batch| deal.cost(batch)).collect();
            (costs.iter().sum::<u64>(), *costs.iter().max().unwrap())
        };
        for key in 0..20 {
            let samples = samples(long_tailed(64, 1024, key));
            let as_they_come: Vec<_> = samples.chunks(8).map(<[_]>::to_vec).collect();
            let dealt = deal.micro_batches(samples.clone());
            let dealt = dealt.iter().map(|batch| batch.places.iter().map(|&place| samples[place]).collect());
            let (before, after) = (of_costs(&as_they_come), of_costs(&dealt.collect::<Vec<_>>()));
            assert!(after.0 < before.0 && after.1 < before.1, "{before:?}, {after:?}");
            // One sample of the longest length is the least that the most expensive can be.
            let one = samples.iter().map(|sample| deal.cost(&[*sample])).max().unwrap();
            assert!(after.1 as f64 <= 1.3 * (one.max(after.0 / 8)) as f64, "{after:?}, one costs {one}");
        }
    }

    #[test]
    fn documents_that_differ_within_equal_lengths_are_evened_out() {
        let deal = Deal { micro_batches: 8, rows: 4, seq: 1024, pairs_of_token: 500 };
        // Half of the samples are one document, the others have 32.
        let pairs = [triangle(1024), 32 * triangle(32)];
        let sample = |place: usize| Sample { place, length: 1024, pairs: pairs[usize::from(place >= 16)] };
        let samples: Vec<_> = (0..32).map(sample).collect();
        let batches = deal.micro_batches(samples.clone());
        let costs: Vec<_> = batches
            .iter()
            .map(|batch| deal.cost(&batch.places.iter().map(|&place| samples[place]).collect::<Vec<_>>()))
            .collect();
        assert!(costs.iter().all(|cost| *cost == costs[0]), "{costs:?}");
    }
}
