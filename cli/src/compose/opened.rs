//! Data that has been opened, and its parts for training and for validation.

use std::ops::Range;
use std::sync::Arc;

use super::tokenized::{documents, tokenizer, tokens_folder};
use crate::config::{Config, DataKind, ModelKind, NO_TOKENIZER, Paths};
use crate::error::Result;
use pipewright::data::{
    Corpus, Course, DataSource, Documents, Encoded, Form, Images, LabelledImages, Longer, Mixture,
    MixtureSource, Packing, Pairs, Reference, Sequences, Width, Windows,
};
use pipewright::error::DataError;
use pipewright::run::ValidationSource;
use pipewright::stages::units::counted;
use pipewright::tokenizer::Tokenizer;

/// The most sequences in a validation while a model is trained, and of windows in any evaluation, if the
/// config does not set it. It does not depend on the size of a micro-batch.
const VALIDATION_SEQUENCES: u64 = 128;

/// How much of what is set aside is used, if the config does not set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A part: validations come again and again while a model is trained.
    Training,
    /// All documents.
    Evaluation,
}

/// Data for training.
pub(super) struct Training {
    pub(super) source: Arc<dyn DataSource>,
    /// How many samples there are. `None` where they are drawn at random places.
    pub(super) samples: Option<u64>,
    /// The same, if its micro-batches differ.
    pub(super) mixture: Option<Arc<Mixture>>,
    /// More to say of it.
    pub(super) more: String,
}

impl Training {
    fn of(source: impl DataSource, samples: Option<u64>, more: String) -> Self {
        Self { source: Arc::new(source), samples, mixture: None, more }
    }
}

/// Data that has been opened: for training, for validation, or for both.
pub(super) enum Opened {
    /// And what a token is called.
    Corpus(Arc<Corpus>, &'static str),
    Documents(Arc<Documents>),
    Pairs(Arc<Reference>),
    Images(Arc<LabelledImages>, String),
}

impl Opened {
    pub(super) fn of(
        config: &Config,
        key: &str,
        paths: &Paths,
        tell: &mut dyn FnMut(Encoded),
    ) -> Result<Self> {
        if paths.is_empty() {
            return Err(config.refuse(key, "there are no data: name a file or a folder"));
        }
        let data = &config.data;
        let mut encoded = |form, tokenizer: &Tokenizer| documents(config, paths, form, tokenizer, tell);
        let corpus = match (data.kind, tokenizer(config)?) {
            (DataKind::Text, Some(tokenizer)) => match paths.is_built_in() {
                true => Corpus::built_in_encoded(&tokenizer, data.end_of_text.as_deref())?,
                false => {
                    let documents = encoded(Form::Text, &tokenizer)?;
                    if config.packing().is_some() {
                        return Ok(Self::Documents(Arc::new(documents)));
                    }
                    documents.into_corpus()
                }
            },
            (DataKind::Text, None) if paths.is_built_in() => Corpus::built_in(),
            (DataKind::Text, None) => Corpus::text(&paths.0)?,
            (DataKind::Tokens, tokenizer) => tokens(config, paths, tokenizer.as_ref())?,
            (DataKind::Jsonl, Some(tokenizer)) => {
                return Self::of_records(config, encoded(Form::Jsonl, &tokenizer)?);
            }
            (DataKind::Parquet, Some(tokenizer)) => {
                return Self::of_records(config, encoded(Form::Parquet, &tokenizer)?);
            }
            (DataKind::Jsonl | DataKind::Parquet, None) => {
                return Err(config.refuse("data.tokenizer", NO_TOKENIZER));
            }
            (DataKind::Idx | DataKind::Cifar10, _) => return Self::images(config, key, paths),
        };
        corpus.check_vocabulary(config.model.vocab)?;
        if config.packing().is_some() {
            return Ok(Self::Documents(Arc::new(Documents::of(corpus)?)));
        }
        let unit = match (data.kind, &data.tokenizer) {
            (DataKind::Text, None) => "bytes",
            _ => "tokens",
        };
        Ok(Self::Corpus(Arc::new(corpus), unit))
    }

    /// Documents, or pairs of answers.
    fn of_records(config: &Config, documents: Documents) -> Result<Self> {
        let (documents, seq) = (Arc::new(documents), config.data.seq);
        if !config.learns_pairs() {
            return Ok(Self::Documents(documents));
        }
        let reference = match config.has_reference() {
            true => Reference::new(documents, seq)?.kept_in(tokens_folder(config)?, config.start()?),
            false => Reference::none(documents, seq)?,
        };
        let reference = if may_differ(config) { reference } else { reference.with_whole_rows() };
        Ok(Self::Pairs(Arc::new(reference)))
    }

    /// What has to be known before the first step.
    pub(super) fn reference(&self) -> Option<Arc<Reference>> {
        match self {
            Self::Pairs(reference) => Some(Arc::clone(reference)),
            _ => None,
        }
    }

    fn images(config: &Config, key: &str, paths: &Paths) -> Result<Self> {
        let [path] = paths.0.as_slice() else {
            return Err(config.refuse(key, "labelled images are one file, or a folder with one pair"));
        };
        // The key names the labels of `data.path`.
        let labels = config.data.labels.as_deref().filter(|_| key == "data.path");
        let all = match config.data.kind {
            DataKind::Cifar10 => LabelledImages::cifar10(path)?,
            _ => LabelledImages::read(path, labels)?,
        };
        let model = &config.model;
        let classes = match model.kind {
            ModelKind::Mlp => model.sizes.0.last().copied(),
            ModelKind::Stack => None,
            _ => Some(model.classes),
        };
        classes.map_or(Ok(()), |classes| all.check_classes(classes))?;
        Ok(Self::Images(Arc::new(all), path.display().to_string()))
    }

    /// How many tokens, documents, pairs or images there are.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Corpus(corpus, _) => corpus.count(),
            Self::Documents(documents) => documents.count(),
            Self::Pairs(reference) => reference.pairs(),
            Self::Images(images, _) => images.count(),
        }
    }

    /// A description for people. `held`: what of it is for validation.
    pub(super) fn summary(&self, held: &Range<u64>) -> String {
        let (all, what) = match self {
            Self::Corpus(corpus, unit) => (format!("{}: {} {unit}", corpus.name(), corpus.count()), ""),
            Self::Documents(documents) => {
                let corpus = documents.corpus();
                let (count, tokens) = (documents.count(), corpus.count());
                let all = format!("{}: {count} documents of {tokens} tokens", corpus.name());
                (all, " documents")
            }
            Self::Pairs(reference) => {
                let corpus = reference.documents().corpus();
                let (pairs, tokens) = (reference.pairs(), corpus.count());
                let pairs = counted(pairs, "pair");
                (format!("{}: {pairs} of answers of {tokens} tokens", corpus.name()), " pairs")
            }
            Self::Images(images, name) => (format!("`{name}`: {} images", images.count()), ""),
        };
        match held.end - held.start {
            0 => all,
            held => format!("{all}, the last {held}{what} for validation"),
        }
    }

    /// A part of it for training.
    pub(super) fn train(&self, config: &Config, span: Range<u64>, course: Course) -> Result<Training> {
        match self {
            Self::Documents(_) if differs_in_length(config) => {
                let samples = self.samples(config, span)?;
                let source = MixtureSource { name: String::new(), share: 1.0, source: samples.source };
                let all = mixture(config, vec![source], course)?;
                Ok(Training { more: samples.more + &all.more, ..all })
            }
            _ => self.rows(config, span, (config.micro_batch_size(), config.pipeline.micro_batches), course),
        }
    }

    /// A part of it for training, in micro-batches of one sequence, one a step.
    pub(super) fn samples(&self, config: &Config, span: Range<u64>) -> Result<Training> {
        self.rows(config, span, (1, 1), Course::new(1))
    }

    fn rows(
        &self,
        config: &Config,
        span: Range<u64>,
        (rows, micro_batches): (usize, u32),
        course: Course,
    ) -> Result<Training> {
        let (seq, seed) = (config.data.seq, config.data.seed);
        Ok(match self {
            Self::Corpus(corpus, _) => {
                let windows = Windows::drawn(Arc::clone(corpus), span, rows, seq, seed)?;
                Training::of(windows, None, String::new())
            }
            Self::Documents(documents) => {
                let (documents, packing) = (Arc::clone(documents), config.packing().unwrap_or_default());
                let all = Sequences::shuffled(documents, span, packing, (rows, seq), micro_batches, seed)?;
                let more = of_sequences(&all, packing, seq);
                let (count, all) = (all.count(), all.on_course(course));
                let is_sample = (rows, micro_batches) == (1, 1) && may_differ(config);
                Training::of(if is_sample { all.trimmed() } else { all }, Some(count), more)
            }
            Self::Pairs(reference) => {
                let pairs = Pairs::shuffled(Arc::clone(reference), span, rows, micro_batches, seed)?;
                let more = of_pairs(&pairs, "training");
                let count = pairs.count();
                Training::of(pairs.on_course(course), Some(count), more)
            }
            Self::Images(images, _) => {
                let count = span.end - span.start;
                let images = Images::shuffled(Arc::clone(images), span, rows, micro_batches, seed)?;
                let images = images.on_course(course);
                let images = match config.data.kind == DataKind::Cifar10 && config.data.augment {
                    true => images.with_crops_and_flips(seed),
                    false => images,
                };
                Training::of(images, Some(count), String::new())
            }
        })
    }

    /// A part of it for validation, and more to say of it.
    pub(super) fn validation(
        &self,
        config: &Config,
        span: Range<u64>,
        purpose: Purpose,
    ) -> Result<(ValidationSource, String)> {
        let (rows, seq) = (config.micro_batch_size(), config.data.seq);
        let given = config.train.validation_micro_batches;
        let all = |count: u64| given.unwrap_or(count.div_ceil(rows as u64) as u32);
        let mut more = String::new();
        let (source, micro_batches): (Arc<dyn DataSource>, _) = match self {
            Self::Corpus(corpus, _) => {
                let windows = (span.end - span.start) / seq as u64;
                let micro_batches = all(windows.clamp(1, VALIDATION_SEQUENCES));
                let windows = Windows::even(Arc::clone(corpus), span, rows, seq, micro_batches)?;
                (Arc::new(windows), micro_batches)
            }
            Self::Documents(documents) => {
                let packing = config.packing().unwrap_or_default();
                let is_mixed = differs_in_length(config);
                let size = (if is_mixed { 1 } else { rows }, seq);
                let sequences = Sequences::in_order(Arc::clone(documents), span, packing, size)?;
                let sequences = if is_mixed { sequences.trimmed() } else { sequences };
                let micro_batches = all(match purpose {
                    Purpose::Training => sequences.count().min(VALIDATION_SEQUENCES),
                    Purpose::Evaluation => sequences.count(),
                });
                more = without_target(&sequences, "validation");
                let (count, sequences) = (sequences.count(), Arc::new(sequences));
                match is_mixed {
                    true => {
                        let pairs = pairs_of_token(config);
                        let all = Mixture::in_order(sequences, count, rows, micro_batches, pairs)?;
                        (Arc::new(all), micro_batches)
                    }
                    false => (sequences, micro_batches),
                }
            }
            Self::Pairs(reference) => {
                let pairs = Pairs::in_order(Arc::clone(reference), span, rows)?;
                let micro_batches = all(2 * match purpose {
                    Purpose::Training => pairs.count().min(VALIDATION_SEQUENCES / 2),
                    Purpose::Evaluation => pairs.count(),
                });
                more = of_pairs(&pairs, "validation");
                (Arc::new(pairs), micro_batches)
            }
            Self::Images(images, _) => {
                let micro_batches = all(span.end - span.start);
                (Arc::new(Images::in_order(Arc::clone(images), span, rows)?), micro_batches)
            }
        };
        let name = config.data.name.clone().unwrap_or_default();
        Ok((ValidationSource { name, source, micro_batches }, more))
    }
}

/// Whether sequences differ in their lengths, or in what they cost, and micro-batches may do so too.
pub(super) fn differs_in_length(config: &Config) -> bool {
    may_differ(config) && matches!(config.packing(), Some(Packing::Single | Packing::Apart(_)))
}

/// Whether micro-batches may have different lengths. Layers of a stack may need rows of one length. With
/// differential privacy each micro-batch has one sample, whatever its length.
fn may_differ(config: &Config) -> bool {
    config.model.kind != ModelKind::Stack && !config.is_private()
}

/// How many steps are looked at to say how full micro-batches are, and how they differ.
pub(super) const LOOKED_AT: u64 = 8;

/// Micro-batches of these sources of sequences.
pub(super) fn mixture(config: &Config, sources: Vec<MixtureSource>, course: Course) -> Result<Training> {
    let (rows, micro_batches) = (config.micro_batch_size(), config.pipeline.micro_batches);
    let all = Mixture::new(sources, rows, micro_batches, pairs_of_token(config))?.on_course(course);
    let mut filled = [0; 2];
    for step in 0..LOOKED_AT {
        let of_step = all.filled(step)?;
        filled.iter_mut().zip(of_step).for_each(|(all, one)| *all += one);
    }
    let [tokens, places] = filled.map(|count| count as f64);
    let more = format!("; {:.1} % of the places of micro-batches are empty", 100.0 * (1.0 - tokens / places));
    let all = Arc::new(all);
    Ok(Training { source: Arc::<Mixture>::clone(&all), samples: None, mixture: Some(all), more })
}

/// How many pairs of tokens in attention cost as much as one token in the other layers of a block: of `d`
/// numbers a token, attention takes `4 d` operations for each pair, and the products of a block about
/// `24 d^2` for each token.
pub(super) fn pairs_of_token(config: &Config) -> u64 {
    6 * config.model.dim as u64
}

/// What is said of sequences for training.
fn of_sequences(all: &Sequences, packing: Packing, seq: usize) -> String {
    let what = match packing {
        Packing::Apart(Longer::LeaveOut) => "left out",
        Packing::Apart(_) => "cut",
        Packing::Joined | Packing::Single => "their ends are not used",
    };
    let longer = match all.longer() {
        0 => String::new(),
        longer => format!("; {longer} documents are longer than data.seq = {seq}: {what}"),
    };
    format!("; {} sequences for training{longer}", all.count()) + &without_target(all, "training")
}

/// Token files, as a config says.
pub(super) fn tokens(config: &Config, paths: &Paths, tokenizer: Option<&Tokenizer>) -> Result<Corpus> {
    let (given, needed) = (config.data.dtype, Width::of(config.model.vocab));
    if given == Some(Width::U16) && needed == Width::U32 {
        let vocabulary = config.model.vocab;
        return Err(DataError::new(format!(
            "data.dtype = \"u16\" holds tokens up to 65,535, and model.vocab is {vocabulary}: set \"u32\", \
             or leave it out"
        ))
        .into());
    }
    let corpus = Corpus::tokens(&paths.0, given.unwrap_or(needed))?;
    tokenizer.map_or(Ok(()), |tokenizer| corpus.check_tokenizer(tokenizer))?;
    Ok(corpus)
}

/// What is said of pairs.
fn of_pairs(pairs: &Pairs, purpose: &str) -> String {
    match (pairs.left_out(), pairs.count()) {
        (0, used) => format!("; {used} for {purpose}"),
        (left_out, used) => format!(
            "; {used} for {purpose}, {left_out} left out (two equal answers, or one that begins after \
             data.seq tokens)"
        ),
    }
}

/// What is said of sequences without a target, if there are such.
fn without_target(sequences: &Sequences, purpose: &str) -> String {
    match (sequences.without_target(), sequences.count()) {
        (0, _) => String::new(),
        (without, all) => format!("; {without} of the {all} sequences for {purpose} have no target"),
    }
}
