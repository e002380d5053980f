//! The data of a config.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::fetched::local;
use super::opened::{Opened, Purpose, Training, mixture, tokens};
use crate::config::{Config, DataKind, Paths};
use crate::error::Result;
use pipewright::checkpoint::Checkpoint;
use pipewright::data::{
    Course, DataSource, Encoded, Form, Mixture, MixtureSource, Reference, Share, odd_files,
};
use pipewright::run::ValidationSource;
use pipewright::store::Fetching;

/// What takes long before data is open, and how far it is.
#[derive(Clone, Copy, Debug)]
pub enum Work<'a> {
    /// Files of an object store are fetched.
    Fetching(Fetching<'a>),
    /// A tokenizer encodes documents.
    Encoding(Encoded),
}

/// The data for training and for validation.
pub struct TrainingData {
    /// For training.
    pub train: Arc<dyn DataSource>,
    /// The same, if its micro-batches differ in their lengths or in what they cost.
    pub mixture: Option<Arc<Mixture>>,
    /// How many samples there are for training. `None` where they are drawn at random places, or mixed.
    pub samples: Option<u64>,
    /// For validation: nothing when `data.validation` is 0, and several with several sources.
    pub validation: Vec<ValidationSource>,
    /// What has to be known of pairs of answers before the first step.
    pub references: Vec<Arc<Reference>>,
    /// A description of the data for people.
    pub summary: String,
    /// What is odd about it.
    pub warnings: Vec<String>,
}

impl TrainingData {
    /// Assumes that the model gave each answer of a pair nothing before the training: to measure how long a
    /// step takes.
    pub fn assume_no_references(&self) {
        self.references.iter().for_each(|reference| reference.assume_none());
    }
}

impl fmt::Debug for TrainingData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
/// how far the work is, if files have to be fetched, or a tokenizer has to encode the data first.
///
/// # Errors
/// As [`data`].
pub fn data_with_progress(
    config: &Config,
    from: Option<&Checkpoint>,
    tell: &mut dyn FnMut(Work<'_>),
) -> Result<TrainingData> {
    let config = &*local(config, &mut |fetching| tell(Work::Fetching(fetching)))?;
    let tell: &mut dyn FnMut(Encoded) = &mut |encoded| tell(Work::Encoding(encoded));
    let course = course(config, from);
    if config.data.sources.is_empty() {
        let mut said = Said::default();
        let one = One::open(config, tell)?;
        let train = one.all.train(config, one.train.clone(), course)?;
        said.say(one.all.summary(&one.held) + &train.more);
        said.references.extend(one.all.reference());
        said.warnings.extend(one.warnings(config)?);
        let validation = one.validation(config, &mut said, tell)?.into_iter().collect();
        return Ok(said.with(train, validation));
    }
    let mut said = Said::default();
    let (mut sources, mut validation) = (Vec::new(), Vec::new());
    let is_in_common = !config.data.validation_path.is_empty();
    for place in 0..config.data.sources.len() {
        let mut config = config.of_source(place);
        if is_in_common {
            config.data.validation = Share::Count(0);
        }
        let name = config.data.name.clone().unwrap_or_default();
        let share = config.data.share.unwrap_or(1.0);
        let one = One::open(&config, tell)?;
        let mut more = String::new();
        if share > 0.0 {
            let samples = one.all.samples(&config, one.train.clone())?;
            sources.push(MixtureSource { name: name.clone(), share, source: samples.source });
            more = samples.more;
        }
        said.say(format!("{name} (share {share}): {}{more}", one.all.summary(&one.held)));
        said.warnings.extend(one.warnings(&config)?);
        validation.extend(one.validation(&config, &mut said, tell)?);
    }
    if is_in_common {
        validation = vec![set_aside(config, Purpose::Training, &mut said, tell)?];
    }
    let train = mixture(config, sources, course)?;
    said.summary += &train.more;
    Ok(said.with(train, validation))
}

/// What people are told of data.
#[derive(Default)]
struct Said {
    summary: String,
    warnings: Vec<String>,
    references: Vec<Arc<Reference>>,
}

impl Said {
    /// Adds a sentence.
    fn say(&mut self, text: String) {
        if !self.summary.is_empty() {
            self.summary += "; ";
        }
        self.summary += &text;
    }

    fn with(self, train: Training, validation: Vec<ValidationSource>) -> TrainingData {
        let Self { summary, warnings, references } = self;
        let Training { source: train, samples, mixture, .. } = train;
        TrainingData { train, samples, mixture, validation, references, summary, warnings }
    }
}

/// The data of `data.path`, with the parts for training and for validation.
struct One {
    all: Opened,
    train: Range<u64>,
    held: Range<u64>,
}

impl One {
    fn open(config: &Config, tell: &mut dyn FnMut(Encoded)) -> Result<Self> {
        let all = Opened::of(config, "data.path", &config.data.path, tell)?;
        let count = all.count();
        let (train, held) = match (config.data.validation_path.is_empty(), config.data.share) {
            (true, Some(0.0)) => (0..0, 0..count),
            (true, _) => config.data.validation.split(count),
            (false, _) => (0..count, 0..0),
        };
        Ok(Self { all, train, held })
    }

    fn warnings(&self, config: &Config) -> Result<Vec<String>> {
        warnings(config, &config.data.path)
    }

    /// What validations are on, if something is kept for them.
    fn validation(
        &self,
        config: &Config,
        said: &mut Said,
        tell: &mut dyn FnMut(Encoded),
    ) -> Result<Option<ValidationSource>> {
        if !config.data.validation_path.is_empty() {
            if config.data.kind == DataKind::Tokens {
                // Both together, so that files of two tokenizers are found.
                let all = [&config.data.path, &config.data.validation_path];
                tokens(config, &Paths(all.map(|paths| paths.0.clone()).concat()), None)?;
            }
            return set_aside(config, Purpose::Training, said, tell).map(Some);
        }
        if self.held.is_empty() {
            return Ok(None);
        }
        let (source, more) = self.all.validation(config, self.held.clone(), Purpose::Training)?;
        said.summary += &more;
        Ok(Some(source))
    }
}

/// Which samples each step takes.
fn course(config: &Config, from: Option<&Checkpoint>) -> Course {
    let samples = config.micro_batch_size() / config.rows_together();
    let each = samples as u64 * u64::from(config.pipeline.micro_batches);
    let saved = from.and_then(|checkpoint| Some((checkpoint, checkpoint.data()?.samples.as_ref()?)));
    saved.map_or(Course::new(each), |(checkpoint, samples)| samples.course.go_on(checkpoint.step(), each))
}

/// Data to evaluate a model on.
pub struct HeldOut {
    /// The data, in order: of each source, if there are several.
    pub sources: Vec<ValidationSource>,
    /// What has to be known of pairs of answers before the evaluation.
    pub references: Vec<Arc<Reference>>,
    /// A description of the data for people.
    pub summary: String,
    /// What is odd about it.
    pub warnings: Vec<String>,
}

impl fmt::Debug for HeldOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldOut").field("summary", &self.summary).finish_non_exhaustive()
    }
}

/// Opens what a config sets aside for validation, for an evaluation of all of it, and nothing for training.
///
/// # Errors
/// As [`data`]. Also when nothing is set aside.
pub fn held_out(config: &Config, tell: &mut dyn FnMut(Work<'_>)) -> Result<HeldOut> {
    let config = &*local(config, &mut |fetching| tell(Work::Fetching(fetching)))?;
    let tell: &mut dyn FnMut(Encoded) = &mut |encoded| tell(Work::Encoding(encoded));
    let mut said = Said::default();
    let several = match config.data.validation_path.is_empty() {
        true => config.data.sources.len(),
        false => 0,
    };
    let mut sources = Vec::new();
    for one in (0..several).map(|place| config.of_source(place)).filter(sets_aside) {
        sources.push(set_aside(&one, Purpose::Evaluation, &mut said, tell)?);
    }
    if sources.is_empty() && several > 0 {
        return Err(config.refuse("data.validation", NOTHING_ASIDE));
    }
    if sources.is_empty() {
        sources.push(set_aside(config, Purpose::Evaluation, &mut said, tell)?);
    }
    let Said { summary, warnings, references } = said;
    Ok(HeldOut { sources, references, summary, warnings })
}

const NOTHING_ASIDE: &str =
    "nothing is set aside: choose a share above 0, or name other data in data.validation_path";

/// Whether the config of a source sets something aside.
fn sets_aside(config: &Config) -> bool {
    let data = &config.data;
    let is_0 = matches!(data.validation, Share::Count(0)) || data.validation == Share::Fraction(0.0);
    !is_0 || !data.validation_path.is_empty() || data.share == Some(0.0)
}

fn set_aside(
    config: &Config,
    purpose: Purpose,
    said: &mut Said,
    tell: &mut dyn FnMut(Encoded),
) -> Result<ValidationSource> {
    let own = &config.data.validation_path;
    let (all, held, paths) = match own.is_empty() {
        true => {
            let One { all, held, .. } = One::open(config, tell)?;
            (all, held, &config.data.path)
        }
        false => {
            let all = Opened::of(config, "data.validation_path", own, tell)?;
            let count = all.count();
            (all, 0..count, own)
        }
    };
    if held.is_empty() {
        return Err(config.refuse("data.validation", NOTHING_ASIDE));
    }
    let summary = match own.is_empty() {
        true => all.summary(&held),
        false => all.summary(&(0..0)),
    };
    let (source, more) = all.validation(config, held, purpose)?;
    said.references.extend(all.reference());
    let purpose = match purpose {
        Purpose::Training => "for validation ",
        Purpose::Evaluation => "",
    };
    said.say(format!("{purpose}{summary}{more}"));
    said.warnings.extend(warnings(config, paths)?);
    Ok(source)
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
