//! The settings of a config: all sections, values that depend on several keys, and the comparison of two
//! configs.

use std::collections::HashMap;

use pipewright::data::{Longer, LossOn, Packing};
use pipewright::groups::GradientGroups;
use pipewright::stages::{Shard, Sharding};
use serde::Serialize;
use toml::{Table, Value};

use super::data::{Data, DataKind, PackingBy};
use super::key::Key;
use super::keys;
use super::kinds;
use super::model::{Model, ModelKind};
use super::optimizer::{LearningRateSchedule, Lora, Optimizer};
use super::sections::{
    Checkpoint, Launch, Metrics, Objective, Pipeline, Privacy, ReferenceBy, SyncKind, Train,
};
use crate::error::{ConfigError, Error, Origin, Result, ValueProblem};

/// Keys of `[data]` that do not count for pairs of answers.
pub(super) const OF_DOCUMENTS: [&str; 3] = ["field", "loss_on", "packing"];

/// The default number of rows of a micro-batch.
const MICRO_BATCH_SIZE: usize = 8;

/// A checked config.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Config {
    /// What is trained.
    pub model: Model,
    /// Low-rank adapters.
    pub lora: Lora,
    /// The data for training.
    pub data: Data,
    /// How the model is cut and how a step is divided.
    pub pipeline: Pipeline,
    /// How gradients change weights.
    pub optimizer: Optimizer,
    /// How long to train, and what to print.
    pub train: Train,
    /// Differential privacy.
    pub privacy: Privacy,
    /// When the run is saved.
    pub checkpoint: Checkpoint,
    /// What others can read during the run.
    pub metrics: Metrics,
    /// Where the processes of a run find each other.
    pub launch: Launch,
    /// Where each key was set, unless it has its default.
    #[serde(skip)]
    pub(super) origins: HashMap<String, Origin>,
    /// The same for the keys of each source of data.
    #[serde(skip)]
    pub(super) source_origins: Vec<HashMap<String, Origin>>,
}

impl Config {
    /// The whole config as TOML, with every key that counts. A run directory and a checkpoint keep it.
    ///
    /// # Errors
    /// When a number is too large for TOML.
    pub fn resolved_toml(&self) -> Result<String> {
        toml::to_string(&self.kept()?).map_err(not_written)
    }

    /// The keys that count and their values. They say how sums are grouped.
    pub(crate) fn kept(&self) -> Result<Table> {
        let mut config = self.clone();
        config.pipeline.gradient_groups = Some(self.gradient_groups());
        config.pipeline.shard_groups = Some(self.shard_groups());
        config.set_packing();
        let mut kept = config.counting()?;
        // What is read of pairs is always the same.
        if self.learns_pairs()
            && let Some(Value::Table(data)) = kept.get_mut("data")
        {
            OF_DOCUMENTS.iter().for_each(|key| drop(data.remove(*key)));
        }
        Ok(kept)
    }

    /// What the model is before the training, besides its weights and number formats, as text: all that
    /// changes what it computes.
    pub(crate) fn start(&self) -> Result<String> {
        let mut kept = self.kept()?;
        kept.retain(|section, _| ["model", "lora", "pipeline"].contains(&section));
        for (section, keys) in kept.iter_mut().filter_map(|(name, keys)| Some((name, keys.as_table_mut()?))) {
            let is_of_model = section != "pipeline";
            keys.retain(|key, _| match is_of_model {
                true => key != "path",
                false => key == "wires" || key == "shard_groups",
            });
        }
        toml::to_string(&kept).map_err(not_written)
    }

    /// The keys that count and their values.
    pub(super) fn counting(&self) -> Result<Table> {
        let mut table = self.table()?;
        kinds::strip(&mut table);
        if self.lora.rank == 0 {
            table.remove("lora");
        }
        if !self.is_private() {
            table.remove("privacy");
        }
        Ok(table)
    }

    pub(super) fn table(&self) -> Result<Table> {
        Table::try_from(self).map_err(not_written)
    }

    /// The tables of the guide: each section's name, and a row of Markdown for each of its keys.
    pub fn reference() -> Vec<(&'static str, String)> {
        let defaults = Self::default().table().expect("defaults are TOML");
        let table = keys::TABLE.map(|(section, keys)| {
            let row = |key: &Key| key.row(defaults[section].get(key.name));
            (section, keys.iter().map(row).collect())
        });
        table.into()
    }

    /// Rows of a micro-batch.
    pub fn micro_batch_size(&self) -> usize {
        let pipeline = &self.pipeline;
        match pipeline.batch_size {
            Some(batch) => batch / pipeline.micro_batches as usize,
            None => pipeline.micro_batch_size.unwrap_or(MICRO_BATCH_SIZE),
        }
    }

    /// Into how many groups the micro-batches of a step are divided, to add up their gradients.
    pub fn gradient_groups(&self) -> u32 {
        let given = self.pipeline.gradient_groups;
        given.unwrap_or_else(|| GradientGroups::usual(self.pipeline.replicas))
    }

    /// The data of each source in `[[data.sources]]`, or only `[data]` itself.
    pub(crate) fn all_data(&self) -> &[Data] {
        match self.data.sources.as_slice() {
            [] => std::slice::from_ref(&self.data),
            sources => sources,
        }
    }

    /// The data that say how texts and chats are written: of the first source that has documents, or else of
    /// the first one.
    pub(crate) fn written_as(&self) -> &Data {
        let all = self.all_data();
        all.iter().find(|data| data.kind.has_documents()).unwrap_or(&all[0])
    }

    /// How documents become sequences, in the config's word. Answers are learnt from chats, which have
    /// nothing to do with each other. Layers of a stack may not be able to keep them apart.
    pub(crate) fn packing_of(&self, data: &Data) -> Option<PackingBy> {
        let usual = match (data.loss_on, self.model.kind) {
            _ if self.learns_pairs() => Some(PackingBy::Single),
            _ if !data.kind.has_documents() => None,
            (LossOn::Answers, kind) if kind != ModelKind::Stack => Some(PackingBy::Apart),
            _ => Some(PackingBy::Joined),
        };
        data.packing.or(usual)
    }

    /// Sets how the documents of each source become sequences, where that is not given. What is said of
    /// longer documents counts only where they are kept apart.
    fn set_packing(&mut self) {
        let packings: Vec<_> = self.all_data().iter().map(|data| self.packing_of(data)).collect();
        let all = match self.data.sources.is_empty() {
            true => std::slice::from_mut(&mut self.data),
            false => &mut self.data.sources,
        };
        for (data, packing) in all.iter_mut().zip(packings) {
            data.packing = packing;
            if packing != Some(PackingBy::Apart) {
                data.longer = Longer::default();
            }
        }
    }

    /// How documents become sequences. `None`: nobody asks where documents end, and sequences are drawn at
    /// random places.
    pub fn packing(&self) -> Option<Packing> {
        Some(match self.packing_of(&self.data)? {
            PackingBy::Joined => Packing::Joined,
            PackingBy::Single => Packing::Single,
            PackingBy::Apart => Packing::Apart(self.data.longer),
        })
    }

    /// The number of groups in which sums over divided weights are added up.
    pub fn shard_groups(&self) -> u32 {
        self.pipeline.shard_groups.unwrap_or(self.pipeline.shards)
    }

    /// The config of a run that goes on: where it does not say how gradients, and sums over what shards
    /// divide, are grouped, they are grouped as in the config that the run was `saved` with. The same holds
    /// for how documents become sequences.
    ///
    /// # Errors
    /// When there are more replicas or shards than the run has groups.
    pub fn grouped_as(mut self, saved: &str) -> Result<Self> {
        let saved = saved.parse::<Table>().ok();
        let kept = |key: &str, older: Option<u32>| {
            let groups = saved.as_ref().and_then(|saved| saved.get("pipeline")?.get(key)?.as_integer());
            groups.and_then(|groups| u32::try_from(groups).ok()).or(older)
        };
        // A run of an earlier version has `true` or `false`.
        let data = saved.as_ref().and_then(|saved| saved.get("data"));
        let packing = |data: Option<&Value>| data?.get("packing")?.clone().try_into().ok();
        self.data.packing = self.data.packing.or_else(|| packing(data));
        let sources = data.and_then(|data| data.get("sources")?.as_array());
        for source in &mut self.data.sources {
            let of_name =
                |saved: &&Value| saved.get("name").and_then(Value::as_str) == source.name.as_deref();
            let saved = sources.and_then(|sources| sources.iter().find(of_name));
            source.packing = source.packing.or_else(|| packing(saved));
        }
        let pipeline = &mut self.pipeline;
        pipeline.gradient_groups = pipeline.gradient_groups.or_else(|| kept("gradient_groups", None));
        // A run of an earlier version has one.
        pipeline.shard_groups = pipeline.shard_groups.or_else(|| kept("shard_groups", Some(1)));
        self.check_groups()?;
        self.check_shards()?;
        Ok(self)
    }

    /// Refuses shards that cannot share the shard groups.
    pub(super) fn check_shards(&self) -> Result<()> {
        let (shards, groups) = (self.pipeline.shards, self.shard_groups());
        let fits = |of| Sharding::new(groups, Shard { index: 0, of });
        fits(1).map_err(|error| self.refuse("pipeline.shard_groups", ValueProblem::caused(error)))?;
        let shards = fits(shards).map(drop);
        shards.map_err(|error| self.refuse("pipeline.shards", ValueProblem::caused(error)))
    }

    /// Refuses more replicas than gradient groups.
    pub(super) fn check_groups(&self) -> Result<()> {
        let (replicas, groups) = (self.pipeline.replicas, self.gradient_groups());
        self.require(replicas <= groups, "pipeline.replicas", || {
            format!(
                "{replicas} replicas cannot share {groups} gradient groups, because a replica has whole \
                 groups: set pipeline.gradient_groups to {replicas} or more, which adds in another order, or \
                 use at most {groups} replicas"
            )
        })
    }

    /// How many steps' updates the weights of a step may lack. Without other replicas, none.
    pub fn max_staleness(&self) -> u32 {
        match self.pipeline.sync {
            SyncKind::Server if self.pipeline.replicas > 1 => self.pipeline.max_staleness,
            _ => 0,
        }
    }

    /// Whether there may be less on GPUs with [`state_on_host`](super::Optimizer::state_on_host).
    pub(crate) fn may_leave_state(&self) -> bool {
        let has_state = || !self.optimizer.made().states("", &[1]).is_empty();
        !self.optimizer.state_on_host && self.pipeline.devices.has_gpu() && has_state()
    }

    /// Whether it trains with differential privacy.
    pub fn is_private(&self) -> bool {
        self.privacy.clip.is_some()
    }

    /// Whether each replica updates only its part of the weights: with a sharded optimizer, and with a
    /// server.
    pub fn divides_updates(&self) -> bool {
        self.optimizer.sharded || self.pipeline.sync == SyncKind::Server
    }

    /// Whether checkpoints may be written while steps run: one may be due before the last step.
    pub fn saves_beside(&self) -> bool {
        let (checkpoint, train) = (&self.checkpoint, &self.train);
        let due = [checkpoint.every, checkpoint.keep_every, train.validate_every];
        checkpoint.beside && due.iter().any(|every| (1..train.steps).contains(every))
    }

    /// The key that sets the rows of a micro-batch.
    pub(crate) fn rows_key(&self) -> &'static str {
        match self.pipeline.batch_size {
            Some(_) => "pipeline.batch_size",
            None => "pipeline.micro_batch_size",
        }
    }

    /// What a step's loss counts: tokens, images or pairs.
    pub fn targets(&self) -> u64 {
        let rows = self.micro_batch_size() as u64 * u64::from(self.pipeline.micro_batches);
        match self.data.kind {
            _ if self.learns_pairs() => rows / self.rows_together() as u64,
            kind if kind.has_images() => rows,
            _ => rows * self.data.seq as u64,
        }
    }

    /// The word for what a step's loss counts.
    pub fn unit(&self) -> &'static str {
        match self.data.kind {
            _ if self.learns_pairs() => "pairs",
            kind if kind.has_images() => "images",
            _ => "tokens",
        }
    }

    /// What the loss is measured in, and what it is the mean of: nats a token or image, as it is a
    /// cross-entropy. Where only answers count, these are the tokens of answers. Of preferences, it is the
    /// mean of pairs.
    pub fn loss_unit(&self) -> (&'static str, &'static str) {
        match self.train.objective {
            Objective::CrossEntropy => {}
            Objective::Dpo | Objective::Reward => return ("nats", "pair"),
            Objective::Ipo => return ("squared nats", "pair"),
        }
        let is_answers = self.all_data().iter().all(|data| data.loss_on == LossOn::Answers);
        match self.data.kind {
            kind if kind.has_images() => ("nats", "image"),
            _ if is_answers => ("nats", "answer token"),
            _ => ("nats", "token"),
        }
    }

    /// How many rows belong together: both answers of a pair are in one micro-batch.
    pub fn rows_together(&self) -> usize {
        if self.learns_pairs() { 2 } else { 1 }
    }

    /// Whether its model gives rewards, and no scores of tokens.
    pub fn gives_rewards(&self) -> bool {
        self.train.objective == Objective::Reward
    }

    /// Whether it compares answers with the model before the training.
    pub fn has_reference(&self) -> bool {
        self.learns_preferences() && self.train.reference == ReferenceBy::Start
    }

    /// Whether it learns which answers are preferred, and gives no rewards.
    pub(crate) fn learns_preferences(&self) -> bool {
        self.learns_pairs() && !self.gives_rewards()
    }

    /// Whether it learns from pairs of answers.
    pub fn learns_pairs(&self) -> bool {
        self.train.objective != Objective::CrossEntropy
    }

    /// Whether the model reads tokens. A stack reads what the data has.
    pub fn reads_tokens(&self) -> bool {
        match self.model.kind {
            ModelKind::Stack => !self.data.kind.has_images(),
            kind => kind.takes_tokens(),
        }
    }

    /// cnn, resnet, stack: height, width and channels of the images.
    pub fn image(&self) -> [usize; 3] {
        let given = self.model.image.as_ref().map(|image| image.0.as_slice());
        match (given, self.data.kind) {
            (Some(&[height, width, channels]), _) => [height, width, channels],
            (_, DataKind::Cifar10) => [32, 32, 3],
            _ => [28, 28, 1],
        }
    }

    /// An error about the value of a key, with the place where the key was set.
    pub(crate) fn refuse(&self, key: &str, problem: impl Into<ValueProblem>) -> Error {
        let (key, problem) = (key.to_owned(), Box::new(problem.into()));
        let origin = self.origins.get(&key).cloned();
        ConfigError::Value { origin, key, problem }.into()
    }

    /// Refuses a key's value unless it meets a condition.
    pub(crate) fn require<P: Into<ValueProblem>>(
        &self,
        holds: bool,
        key: &str,
        problem: impl FnOnce() -> P,
    ) -> Result<()> {
        match holds {
            true => Ok(()),
            false => Err(self.refuse(key, problem())),
        }
    }

    /// Refuses a list that has not as many entries as there are stages.
    pub(crate) fn require_each(&self, key: &str, has: usize, stages: usize, advice: &str) -> Result<()> {
        self.require(has == stages, key, || {
            format!("the list has {has}, pipeline.stages is {stages}: give {advice}")
        })
    }
}

/// The error for settings that cannot be written as TOML.
pub(super) fn not_written(error: toml::ser::Error) -> Error {
    ConfigError::Other(format!("cannot write the config: {error}")).into()
}

impl Config {
    /// The keys whose values make training different from training with `saved`, each as `key: old -> new`.
    /// Keys that change no weight are left out: how the model is cut, scheduled and recomputed, what is
    /// printed, kept and served, and the length of a run with a constant learning rate.
    ///
    /// # Errors
    /// When a number is too large for TOML.
    pub fn changes_from(&self, saved: &Self) -> Result<Vec<String>> {
        let (old, new) = (saved.comparable()?, self.comparable()?);
        let (old_words, new_words) = (saved.kept()?, self.kept()?);
        let mut changes = Vec::new();
        for (section, key) in keys::all().filter(|(section, key)| self.counts(section, key)) {
            let value = |config: &Table| config.get(section)?.get(key.name).cloned();
            if value(&old) != value(&new) {
                let told = |config: &Table, else_: &Table| in_words(value(config).or_else(|| value(else_)));
                let (old, new) = (told(&old_words, &old), told(&new_words, &new));
                changes.push(format!("{section}.{}: {old} -> {new}", key.name));
            }
        }
        Ok(changes)
    }

    /// The settings as a table, in one form: the rows of a micro-batch under one key, GPUs without their
    /// indices, and the staleness that replicas may have.
    fn comparable(&self) -> Result<Table> {
        let mut config = self.clone();
        config.set_packing();
        config.pipeline.micro_batch_size = Some(self.micro_batch_size());
        config.pipeline.batch_size = None;
        // Reductions are as a server without staleness.
        config.pipeline.max_staleness = self.max_staleness();
        config.pipeline.sync = SyncKind::Server;
        config.pipeline.devices = config.pipeline.devices.kinds();
        config.kept()
    }

    /// Whether weights depend on this key.
    fn counts(&self, section: &str, key: &Key) -> bool {
        // All learning rates but constant ones end at the run's last step.
        let ends_at_the_last_step = self.optimizer.schedule != LearningRateSchedule::Constant;
        key.changes_weights && ((section, key.name) != ("train", "steps") || ends_at_the_last_step)
    }
}

fn in_words(value: Option<Value>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}
