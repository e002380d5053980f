//! The data that a config names.

use std::sync::Arc;

use crate::config::{Config, DataKind, ModelKind};
use crate::data::{Corpus, DataSource, Images, LabelledImages, Windows};
use crate::error::{Result, ValueProblem};

/// Windows of a validation on text or tokens when nobody sets its micro-batches; the same whatever their
/// size.
const VALIDATION_WINDOWS: u64 = 128;

/// What a run trains and validates on.
pub struct TrainingData {
    /// For training.
    pub train: Arc<dyn DataSource>,
    /// For validation; none when `data.validation` is 0.
    pub validation: Option<Arc<dyn DataSource>>,
    /// Micro-batches of a validation.
    pub validation_micro_batches: u32,
    /// What was found, for people.
    pub summary: String,
}

impl std::fmt::Debug for TrainingData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrainingData")
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

/// Opens the data and checks that every token, or class, is one the model knows.
///
/// # Errors
/// When a file is missing, empty, too short or not what it was said to be, or holds what the model does
/// not know.
pub fn data(config: &Config) -> Result<TrainingData> {
    let paths = &config.data.path.0;
    if paths.is_empty() {
        return Err(config.refuse("data.path", ValueProblem::NoData));
    }
    match config.data.kind {
        DataKind::Text if config.data.path.is_built_in() => windows(config, Corpus::built_in(), "bytes"),
        DataKind::Text => windows(config, Corpus::text(paths)?, "bytes"),
        DataKind::Tokens => windows(config, Corpus::tokens(paths, config.data.dtype)?, "tokens"),
        DataKind::Idx => images(config),
    }
}

fn windows(config: &Config, corpus: Corpus, unit: &str) -> Result<TrainingData> {
    corpus.check_vocabulary(config.model.vocab)?;
    let (rows, seq) = (config.micro_batch_size(), config.data.seq);
    let (train, validation) = config.data.validation.split(corpus.count());
    let (count, held) = (corpus.count(), validation.end - validation.start);
    let whole = (held / seq as u64)
        .clamp(1, VALIDATION_WINDOWS)
        .div_ceil(rows as u64) as u32;
    let micro_batches = config.train.validation_micro_batches.unwrap_or(whole);
    let summary = format!(
        "{}: {count} {unit}, the last {held} for validation",
        corpus.name()
    );
    let corpus = Arc::new(corpus);
    Ok(TrainingData {
        train: Arc::new(Windows::drawn(
            Arc::clone(&corpus),
            train,
            rows,
            seq,
            config.data.seed,
        )?),
        validation: if validation.is_empty() {
            None
        } else {
            Some(Arc::new(Windows::even(
                corpus,
                validation,
                rows,
                seq,
                micro_batches,
            )?))
        },
        validation_micro_batches: micro_batches,
        summary,
    })
}

fn images(config: &Config) -> Result<TrainingData> {
    let [path] = config.data.path.0.as_slice() else {
        return Err(config.refuse("data.path", ValueProblem::SeveralImages));
    };
    let all = LabelledImages::read(path, config.data.labels.as_deref())?;
    if let (ModelKind::Mlp, Some(&classes)) = (config.model.kind, config.model.sizes.0.last()) {
        all.check_classes(classes)?;
    }
    let rows = config.micro_batch_size();
    let (train, validation) = config.data.validation.split(all.count());
    let (count, held) = (all.count(), validation.end - validation.start);
    let whole = held.div_ceil(rows as u64) as u32;
    let summary = format!(
        "`{}`: {count} images, the last {held} for validation",
        path.display()
    );
    let (all, micro_batches, seed) = (Arc::new(all), config.pipeline.micro_batches, config.data.seed);
    Ok(TrainingData {
        train: Arc::new(Images::shuffled(
            Arc::clone(&all),
            train,
            rows,
            micro_batches,
            seed,
        )?),
        validation: if validation.is_empty() {
            None
        } else {
            Some(Arc::new(Images::in_order(all, validation, rows)?))
        },
        validation_micro_batches: config.train.validation_micro_batches.unwrap_or(whole),
        summary,
    })
}
