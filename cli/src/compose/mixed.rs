//! What micro-batches of a mixture are like: how they differ, and what a mean one has.

use std::sync::Arc;

use super::data::data;
use super::opened::{LOOKED_AT, differs_in_length, pairs_of_token};
use crate::config::Config;
use crate::error::Result;
use crate::profile::Work;
use pipewright::data::Mixture;

/// What a mean micro-batch has, and the work of each micro-batch of a usual step.
pub(super) struct Mixed {
    /// Places for tokens, also those that are empty.
    pub(super) places: f64,
    pub(super) tokens: f64,
    /// The pairs of a token and itself or an earlier one of its document.
    pub(super) pairs: f64,
    pub(super) usual: Vec<f64>,
}

/// What is known of a config's micro-batches, where its sequences differ.
#[derive(Default)]
pub(super) struct Documents {
    /// `None` if all micro-batches are full sequences, or the data could not be read.
    pub(super) mixed: Option<Mixed>,
    /// Why the data could not be read.
    pub(super) warning: Option<String>,
}

/// Why a prediction for GPUs that are not here counts all sequences as full, if the data cannot be read.
pub fn unread(config: &Config) -> Option<String> {
    Documents::of(config).warning
}

impl Documents {
    /// Reads the data, if its sequences may differ. A plan can be made for data that is elsewhere, so there
    /// is a warning and no error if that fails.
    pub(super) fn of(config: &Config) -> Self {
        if !differs_in_length(config) {
            return Self::default();
        }
        match mixed(config) {
            Ok(mixed) => Self { mixed, warning: None },
            Err(error) => {
                let text = format!("the data cannot be read, so all sequences count as full: {error}");
                Self { mixed: None, warning: Some(text) }
            }
        }
    }
}

fn mixed(config: &Config) -> Result<Option<Mixed>> {
    let Some(mixture) = data(config)?.mixture else {
        return Ok(None);
    };
    let (mut places, mut cost) = (0, 0);
    for step in 0..LOOKED_AT {
        places += mixture.filled(step)?[1];
        cost += mixture.work(step)?.iter().sum::<u64>();
    }
    let micro_batches = LOOKED_AT as f64 * f64::from(config.pipeline.micro_batches);
    let pairs = cost.saturating_sub(pairs_of_token(config).saturating_mul(places));
    Ok(Some(Mixed {
        places: places as f64 / micro_batches,
        tokens: tokens(config, &mixture)?,
        pairs: pairs as f64 / micro_batches,
        usual: work(mixture)?.usual,
    }))
}

/// How the micro-batches of a mixture differ. The largest micro-batch of a usual step has the mean work of
/// the largest ones of the first steps, and so on.
///
/// # Errors
/// When a source fails.
pub(super) fn work(mixture: Arc<Mixture>) -> Result<Work> {
    let mut sorted = Vec::new();
    for step in 0..LOOKED_AT {
        let mut work = mixture.work(step)?;
        work.sort_unstable();
        sorted.push(work);
    }
    let first = mixture.work(0)?;
    let all: u64 = sorted.iter().flatten().sum();
    let mean = all as f64 / (sorted.len() * first.len()) as f64;
    let mut usual = vec![1.0; first.len()];
    let mut places: Vec<usize> = (0..first.len()).collect();
    places.sort_by_key(|&place| first[place]);
    for (rank, place) in places.into_iter().enumerate() {
        let of_steps: u64 = sorted.iter().map(|work| work[rank]).sum();
        usual[place] = of_steps as f64 / sorted.len() as f64 / mean;
    }
    let of_step = move |step| {
        // What cannot be read now could not be read for the step either.
        let work = mixture.work(step).map(|work| work.iter().sum::<u64>());
        work.unwrap_or(0) as f64 / mean
    };
    Ok(Work { of_step: Box::new(of_step), usual })
}

/// The tokens of a mean micro-batch.
///
/// # Errors
/// When a source fails.
pub(super) fn tokens(config: &Config, mixture: &Mixture) -> Result<f64> {
    let mut all = 0;
    for step in 0..LOOKED_AT {
        let [tokens, _] = mixture.filled(step)?;
        all += tokens;
    }
    Ok(all as f64 / LOOKED_AT as f64 / f64::from(config.pipeline.micro_batches))
}
