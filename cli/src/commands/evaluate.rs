//! `pipewright evaluate`: the loss of a trained model on data.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::bars::{WorkBars, show_reference};
use super::key;
use super::sample::spread::{Busy, Spread};
use super::saved::{SavedModel, config_of, newest_or_model};
use crate::compose;
use crate::config::Config;
use crate::error::{Error, Result};
use pipewright::checkpoint::Checkpoint;
use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::pipeline::{Evaluation, ReferenceFound};
use pipewright::pretrained;
use pipewright::run::ValidationSource;
use pipewright::stages::{Shape, Tensor};

const BAR: &str = "evaluating  {bar:24} {pos} of {len} micro-batches  {eta} left";

/// Compute the loss of a trained model on data that it was not trained on
///
/// Of a run, that is the data that was set aside for validation (data.validation or data.validation_path).
/// With --set it can be any other. A model of tokens has a perplexity too: e to the power of its loss.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples (`pipewright train` makes such a run, `pipewright import` such a folder):
  pipewright evaluate runs/gpt-text
  pipewright evaluate runs/gpt-text --set data.validation_path=other.txt
  pipewright evaluate runs/gpt-text/checkpoints/step-00000700 --set train.validation_micro_batches=1000
  pipewright evaluate models/smollm2 --set data.validation_path=my.txt --set data.seq=512")]
pub(super) struct Args {
    /// The folder of a run, for its newest checkpoint; of a checkpoint; or of a model in Hugging Face's form
    path: PathBuf,
    /// Set a key of the run's config, such as where the data is; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    sets: Vec<String>,
    #[command(flatten)]
    spread: Spread,
    /// Print text, or one object of JSON
    #[arg(long, value_enum, default_value = "text", value_name = "FORM")]
    format: Form,
}

/// The value of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    Text,
    Json,
}

/// What `--format json` prints.
#[derive(serde::Serialize)]
struct Printed {
    /// The mean loss of a target. NaN, in JSON `null`, if there is none.
    loss: f64,
    /// The metrics of the loss, by their names.
    #[serde(flatten)]
    metrics: BTreeMap<String, f64>,
    targets: f64,
    seconds: f64,
    /// The same of each source, if there are several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    sources: BTreeMap<String, Printed>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    args.spread.enter();
    let (config, model) = open(args).map_err(Error::not_begun)?;
    args.spread.check(&model)?;
    for odd in compose::odd_tokenizer(&config).map_err(Error::not_begun)? {
        eprintln!("warning: {odd}");
    }
    let mut bars = WorkBars::new(true);
    let data = compose::held_out(&config, &mut |work| bars.show(work)).map_err(Error::not_begun)?;
    drop(bars);
    super::warn(&data.warnings);
    if args.format == Form::Text {
        super::print(&format!("{}\n", data.summary))?;
    }
    let loss = compose::loss(&config)?;
    let sources = data.sources;
    let shapes = sources[0].source.shapes();
    if data.references.iter().any(|reference| !reference.is_known()) {
        let start = SavedModel::of_start(&config)?;
        let start = args.spread.launch(start, loss.clone(), shapes, Busy::All);
        let mut start = start.map_err(Error::not_begun)?;
        data.references.iter().for_each(|reference| show_reference(reference));
        for reference in &data.references {
            if let ReferenceFound::Now { kept: Err(error) } = start.find_reference(reference, || false)? {
                eprintln!("warning: what the model gave before the training is not kept: {error}");
            }
        }
    }
    let mut pipeline = args.spread.launch(model, loss, shapes, Busy::All).map_err(Error::not_begun)?;
    let mut each = Vec::new();
    for ValidationSource { name, source, micro_batches } in sources {
        let counted = Counted { source, bar: bar_of(micro_batches) };
        let begun = Instant::now();
        let evaluation = pipeline.evaluate(Arc::new(counted), micro_batches)?;
        each.push((name, evaluation, begun.elapsed().as_secs_f64()));
    }
    let all = Evaluation::of_all(&each.iter().map(|(_, one, _)| *one).collect::<Vec<_>>());
    let seconds = each.iter().map(|(.., seconds)| seconds).sum();
    if each.len() == 1 {
        each.clear();
    }
    let sources = each.iter().map(|(name, one, seconds)| (name.clone(), Printed::of(one, *seconds)));
    let printed = Printed { sources: sources.collect(), ..Printed::of(&all, seconds) };
    super::print(&match args.format {
        Form::Json => super::json(&printed)?,
        Form::Text => {
            let line = |evaluation: &Evaluation, seconds: f64| {
                let (targets, rate) = (evaluation.weight, evaluation.weight / seconds.max(1e-9));
                format!("{evaluation}  {targets} targets, {rate:.0} a second\n")
            };
            let each = each.iter().map(|(name, one, seconds)| format!("{name}: {}", line(one, *seconds)));
            each.collect::<String>() + &line(&all, seconds)
        }
    })
}

impl Printed {
    fn of(evaluation: &Evaluation, seconds: f64) -> Self {
        let metrics = evaluation.metrics.iter();
        Self {
            loss: evaluation.loss,
            metrics: metrics.filter_map(|metric| Some((metric.name().to_owned(), metric.value()?))).collect(),
            targets: evaluation.weight,
            seconds,
            sources: BTreeMap::new(),
        }
    }
}

/// The config and the model at a path.
fn open(args: &Args) -> Result<(Config, SavedModel)> {
    if args.path.join(pretrained::CONFIG).is_file() || pretrained::is_own(&args.path) {
        return of_folder(&args.path, &args.sets);
    }
    let folder = newest_or_model(&args.path)?;
    key::enter_for(&folder)?;
    let checkpoint = Checkpoint::open(&folder)?;
    let config = config_of(&folder, &checkpoint, &args.sets)?;
    let model = SavedModel::of_checkpoint(&config, checkpoint)?;
    Ok((config, model))
}

/// A folder in Hugging Face's form or in ours. Text is encoded by its tokenizer, unless the arguments name
/// another.
fn of_folder(folder: &Path, sets: &[String]) -> Result<(Config, SavedModel)> {
    let value = |key: &str| format!("{key}={}", toml::Value::from(folder.to_string_lossy().as_ref()));
    let mut all = vec![value("model.path")];
    if folder.join(pretrained::TOKENIZER).is_file() {
        all.push(value("data.tokenizer"));
    }
    all.extend_from_slice(sets);
    let config = Config::parse("the arguments", "", &[], &all)?;
    super::warn(pretrained::told_of_model(folder, false)?);
    super::warn(compose::odd_tokenizer(&config)?);
    let weights = compose::weights(&config)?.expect("model.path is given");
    let model = match config.lora.rank {
        0 => compose::frozen_model(&config)?,
        _ => compose::model(&config)?,
    };
    let adapters = compose::adapters(&config)?;
    Ok((config, SavedModel::of_folder(model, weights, adapters)))
}

fn bar_of(micro_batches: u32) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(micro_batches));
    if !stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.with_style(ProgressStyle::with_template(BAR).expect("the template is fixed"))
}

/// Data that shows how much of it was taken.
struct Counted {
    source: Arc<dyn DataSource>,
    bar: ProgressBar,
}

impl DataSource for Counted {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        self.bar.set_position(u64::from(micro_batch.0));
        self.source.micro_batch(step, micro_batch)
    }

    fn shapes_of(&self, step: u64, micro_batch: MicroBatch) -> (Shape, Shape) {
        self.source.shapes_of(step, micro_batch)
    }

    fn documents(&self, step: u64, micro_batch: MicroBatch) -> pipewright::Result<Option<Tensor>> {
        self.source.documents(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.source.shapes()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
