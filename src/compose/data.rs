//! The data of a config.

use std::sync::Arc;

use super::tokenized::{documents, tokenizer};
use crate::config::{Config, DataKind, ModelKind};
use crate::data::{Corpus, DataSource, Documents, Encoded, Form, Images, LabelledImages, Sequences, Windows};
use crate::error::{Result, ValueProblem};
use crate::tokenizer::Tokenizer;

/// The number of windows in a validation on text or tokens, if the config does not set it. It does not depend
/// on the size of a micro-batch.
const VALIDATION_WINDOWS: u64 = 128;

/// The data for training and for validation.
pub struct TrainingData {
    /// For training.
    pub train: Arc<dyn DataSource>,
    /// For validation. `None` when `data.validation` is 0.
    pub validation: Option<Arc<dyn DataSource>>,
    /// The number of micro-batches in a validation.
    pub validation_micro_batches: u32,
    /// A description of the data for people.
    pub summary: String,
}

impl std::fmt::Debug for TrainingData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrainingData")
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

/// Opens the data and checks that the model knows every token or class.
///
/// # Errors
/// When a file is missing, empty, too short or of another kind, or when it has tokens or classes that the
/// model does not know.
pub fn data(config: &Config) -> Result<TrainingData> {
    data_telling(config, &mut |_| ())
}

/// The same. `tell` hears how many bytes are encoded, if a tokenizer has to encode the data first.
///
/// # Errors
/// As [`data`].
pub fn data_telling(config: &Config, tell: &mut dyn FnMut(Encoded)) -> Result<TrainingData> {
    let paths = &config.data.path.0;
    if paths.is_empty() {
        return Err(config.refuse("data.path", ValueProblem::NoData));
    }
    let (data, is_built_in) = (&config.data, config.data.path.is_built_in());
    let mut encoded = |form, tokenizer: &Tokenizer| documents(config, form, tokenizer, tell);
    match (data.kind, tokenizer(config)?) {
        (DataKind::Text, Some(tokenizer)) => {
            let corpus = match is_built_in {
                true => Corpus::built_in_encoded(&tokenizer, data.end_of_text.as_deref())?,
                false => encoded(Form::Text, &tokenizer)?.into_corpus(),
            };
            windows(config, corpus, "tokens")
        }
        (DataKind::Text, None) if is_built_in => windows(config, Corpus::built_in(), "bytes"),
        (DataKind::Text, None) => windows(config, Corpus::text(paths)?, "bytes"),
        (DataKind::Tokens, _) => windows(config, Corpus::tokens(paths, data.dtype)?, "tokens"),
        (DataKind::Jsonl, Some(tokenizer)) => sequences(config, encoded(Form::Jsonl, &tokenizer)?),
        (DataKind::Parquet, Some(tokenizer)) => sequences(config, encoded(Form::Parquet, &tokenizer)?),
        (DataKind::Jsonl | DataKind::Parquet, None) => {
            Err(config.refuse("data.tokenizer", ValueProblem::NoTokenizer))
        }
        (DataKind::Idx | DataKind::Cifar10, _) => images(config),
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

fn sequences(config: &Config, documents: Documents) -> Result<TrainingData> {
    let size = (config.micro_batch_size(), config.data.seq);
    let (packing, micro_batches, seed) = (
        config.data.packing,
        config.pipeline.micro_batches,
        config.data.seed,
    );
    let (count, tokens, name) = (
        documents.count(),
        documents.corpus().count(),
        documents.corpus().name(),
    );
    let (train, validation) = config.data.validation.split(count);
    let held = validation.end - validation.start;
    let documents = Arc::new(documents);
    let train = Sequences::shuffled(Arc::clone(&documents), train, packing, size, micro_batches, seed)?;
    let validation = match validation.is_empty() {
        true => None,
        false => Some(Sequences::in_order(documents, validation, packing, size)?),
    };
    let whole = validation
        .as_ref()
        .map_or(1, |all| all.count().min(VALIDATION_WINDOWS));
    let cut = match train.cut() {
        0 => String::new(),
        cut => format!(
            "; {cut} are longer than data.seq = {}, and their ends are not used",
            size.1
        ),
    };
    Ok(TrainingData {
        validation_micro_batches: config
            .train
            .validation_micro_batches
            .unwrap_or(whole.div_ceil(size.0 as u64) as u32),
        summary: format!(
            "{name}: {count} documents of {tokens} tokens in {} sequences, the last {held} documents for \
             validation{cut}",
            train.count()
        ),
        train: Arc::new(train),
        validation: validation.map(|all| Arc::new(all) as Arc<dyn DataSource>),
    })
}

fn images(config: &Config) -> Result<TrainingData> {
    let [path] = config.data.path.0.as_slice() else {
        return Err(config.refuse("data.path", ValueProblem::SeveralImages));
    };
    let all = match config.data.kind {
        DataKind::Cifar10 => LabelledImages::cifar10(path)?,
        _ => LabelledImages::read(path, config.data.labels.as_deref())?,
    };
    let model = &config.model;
    let classes = match model.kind {
        ModelKind::Mlp => model.sizes.0.last().copied(),
        _ => Some(model.classes),
    };
    classes.map_or(Ok(()), |classes| all.check_classes(classes))?;
    let rows = config.micro_batch_size();
    let (train, validation) = config.data.validation.split(all.count());
    let (count, held) = (all.count(), validation.end - validation.start);
    let whole = held.div_ceil(rows as u64) as u32;
    let summary = format!(
        "`{}`: {count} images, the last {held} for validation",
        path.display()
    );
    let (all, micro_batches, seed) = (Arc::new(all), config.pipeline.micro_batches, config.data.seed);
    let mut train = Images::shuffled(Arc::clone(&all), train, rows, micro_batches, seed)?;
    if config.data.kind == DataKind::Cifar10 && config.data.augment {
        train = train.with_crops_and_flips(seed);
    }
    Ok(TrainingData {
        train: Arc::new(train),
        validation: if validation.is_empty() {
            None
        } else {
            Some(Arc::new(Images::in_order(all, validation, rows)?))
        },
        validation_micro_batches: config.train.validation_micro_batches.unwrap_or(whole),
        summary,
    })
}
