//! The data of a config.

use std::ops::Range;
use std::sync::Arc;

use super::tokenized::{documents, tokenizer};
use crate::config::{Config, DataKind, ModelKind, NO_TOKENIZER, Paths};
use crate::error::Result;
use pipewright::checkpoint::Checkpoint;
use pipewright::data::{
    Corpus, Course, DataSource, Documents, Encoded, Form, Images, LabelledImages, Longer, Packing, Sequences,
    Width, Windows, odd_files,
};
use pipewright::error::DataError;
use pipewright::tokenizer::Tokenizer;

/// The most sequences in a validation while a model is trained, and of windows in any evaluation, if the
/// config does not set it. It does not depend on the size of a micro-batch.
const VALIDATION_SEQUENCES: u64 = 128;

/// How much of what is set aside is used, if the config does not set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A part: validations come again and again while a model is trained.
    Training,
    /// All documents.
    Evaluation,
}

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
    /// What is odd about it.
    pub warnings: Vec<String>,
}

impl std::fmt::Debug for TrainingData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrainingData").field("summary", &self.summary).finish_non_exhaustive()
    }
}

/// Opens the data and checks that the model knows every token or class.
///
/// # Errors
/// When a file is missing, empty, too short or of another kind, or when it has tokens or classes that the
/// model does not know.
pub fn data(config: &Config) -> Result<TrainingData> {
    data_with_progress(config, None, &mut |_| ())
}

/// As [`data`]. If a training goes on from a checkpoint, its data goes on too: see [`Course`]. `tell` hears
/// how many bytes are encoded, if a tokenizer has to encode the data first.
///
/// # Errors
/// As [`data`].
pub fn data_with_progress(
    config: &Config,
    from: Option<&Checkpoint>,
    tell: &mut dyn FnMut(Encoded),
) -> Result<TrainingData> {
    let all = Opened::of(config, "data.path", &config.data.path, tell)?;
    let (train, held) = match config.data.validation_path.is_empty() {
        true => config.data.validation.split(all.count()),
        false => (0..all.count(), 0..0),
    };
    let (source, more) = all.train(config, train, course(config, from))?;
    let mut data = TrainingData {
        train: source,
        summary: all.summary(&held) + &more,
        warnings: warnings(config, &config.data.path)?,
        validation: None,
        validation_micro_batches: 1,
    };
    let validation = match config.data.validation_path.is_empty() {
        true if held.is_empty() => return Ok(data),
        true => {
            let (source, micro_batches, more) = all.validation(config, held, Purpose::Training)?;
            data.summary += &more;
            (source, micro_batches)
        }
        false => {
            if config.data.kind == DataKind::Tokens {
                // Both together, so that files of two tokenizers are found.
                let all = [&config.data.path, &config.data.validation_path];
                tokens(config, &Paths(all.map(|paths| paths.0.clone()).concat()), None)?;
            }
            let held_out = set_aside(config, Purpose::Training, tell)?;
            data.summary += &format!("; for validation {}", held_out.summary);
            data.warnings.extend(held_out.warnings);
            (held_out.source, held_out.micro_batches)
        }
    };
    data.validation = Some(validation.0);
    data.validation_micro_batches = validation.1;
    Ok(data)
}

/// Which samples each step takes.
fn course(config: &Config, from: Option<&Checkpoint>) -> Course {
    let each = config.micro_batch_size() as u64 * u64::from(config.pipeline.micro_batches);
    let saved = from.and_then(|checkpoint| Some((checkpoint, checkpoint.data()?.samples.as_ref()?)));
    saved.map_or(Course::new(each), |(checkpoint, samples)| samples.course.go_on(checkpoint.step(), each))
}

/// Data to evaluate a model on.
pub struct HeldOut {
    /// The data, in order.
    pub source: Arc<dyn DataSource>,
    /// The number of micro-batches in a validation.
    pub micro_batches: u32,
    /// A description of the data for people.
    pub summary: String,
    /// What is odd about it.
    pub warnings: Vec<String>,
}

impl std::fmt::Debug for HeldOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldOut").field("summary", &self.summary).finish_non_exhaustive()
    }
}

/// Opens what a config sets aside for validation, for an evaluation of all of it, and nothing for training.
///
/// # Errors
/// As [`data`]. Also when nothing is set aside.
pub fn held_out(config: &Config, tell: &mut dyn FnMut(Encoded)) -> Result<HeldOut> {
    set_aside(config, Purpose::Evaluation, tell)
}

fn set_aside(config: &Config, purpose: Purpose, tell: &mut dyn FnMut(Encoded)) -> Result<HeldOut> {
    let own = &config.data.validation_path;
    let (key, paths) = match own.is_empty() {
        true => ("data.path", &config.data.path),
        false => ("data.validation_path", own),
    };
    let all = Opened::of(config, key, paths, tell)?;
    let span = match own.is_empty() {
        true => config.data.validation.split(all.count()).1,
        false => 0..all.count(),
    };
    if span.is_empty() {
        return Err(config.refuse(
            "data.validation",
            "nothing is set aside: choose a share above 0, or name other data in data.validation_path",
        ));
    }
    let summary = match own.is_empty() {
        true => all.summary(&span),
        false => all.summary(&(0..0)),
    };
    let (source, micro_batches, more) = all.validation(config, span, purpose)?;
    Ok(HeldOut { source, micro_batches, summary: summary + &more, warnings: warnings(config, paths)? })
}

/// What is odd about these files.
fn warnings(config: &Config, paths: &Paths) -> Result<Vec<String>> {
    let form = match config.data.kind {
        DataKind::Text if !paths.is_built_in() => Form::Text,
        DataKind::Jsonl => Form::Jsonl,
        DataKind::Parquet => Form::Parquet,
        _ => return Ok(Vec::new()),
    };
    let odd = odd_files(&paths.0, form)?;
    Ok(odd.iter().map(ToString::to_string).collect())
}

/// Data that has been opened: for training, for validation, or for both.
enum Opened {
    /// And what a token is called.
    Corpus(Arc<Corpus>, &'static str),
    Documents(Arc<Documents>),
    Images(Arc<LabelledImages>, String),
}

impl Opened {
    fn of(config: &Config, key: &str, paths: &Paths, tell: &mut dyn FnMut(Encoded)) -> Result<Self> {
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
                return Ok(Self::Documents(Arc::new(encoded(Form::Jsonl, &tokenizer)?)));
            }
            (DataKind::Parquet, Some(tokenizer)) => {
                return Ok(Self::Documents(Arc::new(encoded(Form::Parquet, &tokenizer)?)));
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

    /// How many tokens, documents or images there are.
    fn count(&self) -> u64 {
        match self {
            Self::Corpus(corpus, _) => corpus.count(),
            Self::Documents(documents) => documents.count(),
            Self::Images(images, _) => images.count(),
        }
    }

    /// A description for people. `held`: what of it is for validation.
    fn summary(&self, held: &Range<u64>) -> String {
        let (all, what) = match self {
            Self::Corpus(corpus, unit) => (format!("{}: {} {unit}", corpus.name(), corpus.count()), ""),
            Self::Documents(documents) => {
                let corpus = documents.corpus();
                let (count, tokens) = (documents.count(), corpus.count());
                let all = format!("{}: {count} documents of {tokens} tokens", corpus.name());
                (all, " documents")
            }
            Self::Images(images, name) => (format!("`{name}`: {} images", images.count()), ""),
        };
        match held.end - held.start {
            0 => all,
            held => format!("{all}, the last {held}{what} for validation"),
        }
    }

    /// A part of it for training, and more to say of it.
    fn train(
        &self,
        config: &Config,
        span: Range<u64>,
        course: Course,
    ) -> Result<(Arc<dyn DataSource>, String)> {
        let (rows, seq, seed) = (config.micro_batch_size(), config.data.seq, config.data.seed);
        let micro_batches = config.pipeline.micro_batches;
        Ok(match self {
            Self::Corpus(corpus, _) => {
                let windows = Windows::drawn(Arc::clone(corpus), span, rows, seq, seed)?;
                (Arc::new(windows), String::new())
            }
            Self::Documents(documents) => {
                let (documents, packing) = (Arc::clone(documents), config.packing().unwrap_or_default());
                let all = Sequences::shuffled(documents, span, packing, (rows, seq), micro_batches, seed)?;
                let what = match packing {
                    Packing::Apart(Longer::LeaveOut) => "left out",
                    Packing::Apart(_) => "cut",
                    Packing::Joined | Packing::Single => "their ends are not used",
                };
                let longer = match all.longer() {
                    0 => String::new(),
                    longer => format!("; {longer} documents are longer than data.seq = {seq}: {what}"),
                };
                let empty = match packing {
                    Packing::Joined => String::new(),
                    Packing::Single | Packing::Apart(_) => {
                        format!(", {:.1} % of their places empty", 100.0 * all.padding())
                    }
                };
                let more = format!("; {} sequences for training{empty}{longer}", all.count());
                let more = more + &without_target(&all, "training");
                (Arc::new(all.on_course(course)), more)
            }
            Self::Images(images, _) => {
                let images = Images::shuffled(Arc::clone(images), span, rows, micro_batches, seed)?;
                let images = images.on_course(course);
                let images = match config.data.kind == DataKind::Cifar10 && config.data.augment {
                    true => images.with_crops_and_flips(seed),
                    false => images,
                };
                (Arc::new(images), String::new())
            }
        })
    }

    /// A part of it for validation, how many micro-batches that takes, and more to say of it.
    fn validation(
        &self,
        config: &Config,
        span: Range<u64>,
        purpose: Purpose,
    ) -> Result<(Arc<dyn DataSource>, u32, String)> {
        let (rows, seq) = (config.micro_batch_size(), config.data.seq);
        let given = config.train.validation_micro_batches;
        let all = |count: u64| given.unwrap_or(count.div_ceil(rows as u64) as u32);
        Ok(match self {
            Self::Corpus(corpus, _) => {
                let windows = (span.end - span.start) / seq as u64;
                let micro_batches = all(windows.clamp(1, VALIDATION_SEQUENCES));
                let windows = Windows::even(Arc::clone(corpus), span, rows, seq, micro_batches)?;
                (Arc::new(windows), micro_batches, String::new())
            }
            Self::Documents(documents) => {
                let packing = config.packing().unwrap_or_default();
                let sequences = Sequences::in_order(Arc::clone(documents), span, packing, (rows, seq))?;
                let micro_batches = all(match purpose {
                    Purpose::Training => sequences.count().min(VALIDATION_SEQUENCES),
                    Purpose::Evaluation => sequences.count(),
                });
                let more = without_target(&sequences, "validation");
                (Arc::new(sequences), micro_batches, more)
            }
            Self::Images(images, _) => {
                let micro_batches = all(span.end - span.start);
                let images = Images::in_order(Arc::clone(images), span, rows)?;
                (Arc::new(images), micro_batches, String::new())
            }
        })
    }
}

/// Token files, as a config says.
fn tokens(config: &Config, paths: &Paths, tokenizer: Option<&Tokenizer>) -> Result<Corpus> {
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

/// What is said of sequences without a target, if there are such.
fn without_target(sequences: &Sequences, purpose: &str) -> String {
    match (sequences.without_target(), sequences.count()) {
        (0, _) => String::new(),
        (without, all) => format!("; {without} of the {all} sequences for {purpose} have no target"),
    }
}
