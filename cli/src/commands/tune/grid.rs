//! All settings that are compared, each with its prediction.

use std::rc::Rc;

use super::formats::{self, with_short_wires};
use super::search::{CostsOf, Divided, Search};
use super::variant::{
    ALONE, in_bf16, in_words, with_dtype, with_replicas, with_rows, with_setting, with_shards,
};
use crate::compose::{self, PipelinePlan, RanksHere};
use crate::config::{Config, Memory};
use crate::profile::{Measured, MemoryLimit};
use crate::{Error, Result};
use pipewright::plan::{AUTO, Candidate, Contender, Fit, Fitting, ModelCosts, RankMemory, Setting, best};
use pipewright::schedule::Schedule;
use pipewright::stages::{DType, Device};

/// The largest number of stages on a rank.
const MOST_CHUNKS: u32 = 4;

/// A setting that fits the memory.
pub(super) struct Found {
    /// The config with this setting.
    pub(super) config: Config,
    /// How the config differs from the given one.
    pub(super) setting: Setting,
    /// The cut, and the prediction.
    pub(super) candidate: Candidate,
    /// The memory limit of a rank.
    pub(super) limit: Option<Memory>,
    /// The costs on which the prediction is based.
    pub(super) measured_costs: Rc<Measured>,
    /// The most that a rank holds in all, estimated.
    pub(super) memory: f64,
    /// Seconds of a step, if it has been run.
    pub(super) measured: Option<f64>,
}

/// The settings that were compared.
pub(super) struct Grid {
    /// Those that fit the memory, the fastest prediction first.
    pub(super) found: Vec<Found>,
    /// How many do not fit.
    pub(super) above: usize,
    /// The smallest memory that one of those needs, and its setting.
    pub(super) least: Option<(f64, String)>,
    /// The last error about a device's memory.
    pub(super) starved: Option<Error>,
    /// What the devices have, before anything was measured.
    limits: Vec<(Device, MemoryLimit)>,
    /// The unit of the rate: tokens or images.
    pub(super) unit: &'static str,
    /// What is searched.
    pub(super) search: Search,
}

impl Grid {
    /// Measures costs for each number of ranks and of shards, and for each size of a micro-batch that divides
    /// the config's batch; or reads them for the config's size. Then predicts a step for every schedule and
    /// number of replicas.
    pub(super) fn new(base: &Config, search: Search) -> Result<Self> {
        let limits = match search.costs {
            CostsOf::Measured => compose::memory_limits(base)?,
            CostsOf::File(_) | CostsOf::Figures(_) => Vec::new(),
        };
        let mut grid = Self {
            found: Vec::new(),
            above: 0,
            least: None,
            starved: None,
            limits,
            unit: base.unit(),
            search,
        };
        let mut ranks: Vec<u32> = grid.search.shapes.iter().map(|&[_, ranks, _]| ranks).collect();
        ranks.sort_unstable();
        ranks.dedup();
        for dtype in grid.search.dtypes.clone() {
            let base = with_dtype(base, dtype);
            ranks.iter().try_for_each(|&ranks| grid.add_ranks(&base, ranks))?;
        }
        grid.found.sort_by(|a, b| {
            let (a, b) = (&a.candidate.prediction, &b.candidate.prediction);
            let memory = a.peak_memory.total_cmp(&b.peak_memory);
            a.step.total_cmp(&b.step).then(memory)
        });
        Ok(grid)
    }

    /// Adds every setting on this many ranks.
    fn add_ranks(&mut self, base: &Config, ranks: u32) -> Result<()> {
        let batch = base.micro_batch_size() * base.pipeline.micro_batches as usize;
        let together = base.rows_together();
        let known = |rows: &usize| !self.search.is_of_one_size() || *rows == base.micro_batch_size();
        let sizes: Vec<usize> = (together..=batch)
            .step_by(together)
            .filter(|rows| batch.is_multiple_of(*rows))
            .filter(known)
            .collect();
        let mut shards: Vec<u32> = self.search.shapes.iter().map(|&[.., shards]| shards).collect();
        shards.sort_unstable();
        shards.dedup();
        for rows in sizes {
            let config = with_rows(base, ranks, (batch / rows) as u32, rows);
            let before = self.found.len();
            let mut measured = None;
            for &shards in &shards {
                let mut config = with_shards(&config, shards);
                config.pipeline.devices = base.pipeline.devices.shared_by((ranks * shards) as usize);
                self.add_shards(&config, base, ranks, &mut measured)?;
            }
            // Larger micro-batches hold more. If nothing fits now, nothing larger does.
            let too_large = self.above > 0 || self.starved.is_some();
            if self.found.len() == before && too_large {
                break;
            }
        }
        Ok(())
    }

    /// Adds every setting of this many ranks, and of this config's shards and rows. `known` is what was found
    /// last.
    fn add_shards(
        &mut self,
        config: &Config,
        base: &Config,
        ranks: u32,
        known: &mut Option<(Divided, Rc<Measured>)>,
    ) -> Result<()> {
        let (shards, micro_batches) = (config.pipeline.shards, config.pipeline.micro_batches);
        let shapes = self.search.shapes.iter();
        let replicas: Vec<u32> = shapes
            .filter(|&&[replicas, of, parts]| of == ranks && parts == shards && replicas <= micro_batches)
            .map(|&[replicas, ..]| replicas)
            .collect();
        if replicas.is_empty() {
            return Ok(());
        }
        let (rows, dtype) = (config.micro_batch_size(), in_bf16(config));
        let of_shards = if shards > 1 { format!(", shards {shards}") } else { String::new() };
        let what = format!("ranks {ranks}, micro-batches {micro_batches}, rows {rows}{dtype}{of_shards}");
        if let Err(error) = compose::check_divided_rows(config) {
            eprintln!("left out {what}: {error}");
            return Ok(());
        }
        if let CostsOf::Figures(_) = self.search.costs {
            eprintln!("comparing {what}");
        }
        let divided = self.search.divided(config)?;
        let measured = match known {
            Some((same, measured)) if *same == divided => Rc::clone(measured),
            _ => match self.search.costs(config, &what, &self.limits) {
                Err(error) if error.is_out_of_memory() => {
                    self.leave_out(&what, error);
                    return Ok(());
                }
                // A file has the costs of one number of shards, or of whole layers.
                Err(error) if self.search.is_of_one_size() && self.search.has_shards_to_compare() => {
                    eprintln!("left out {what}: {error}");
                    return Ok(());
                }
                measured => measured?,
            },
        };
        *known = Some((divided, Rc::clone(&measured)));
        for replicas in replicas {
            let maps = self.search.maps(config, &measured, replicas, ranks);
            let devices = base.pipeline.devices.shared_by((replicas * ranks * shards) as usize);
            for mut config in with_replicas(config, replicas, self.search.is_limited(), &maps) {
                config.pipeline.devices = devices.clone();
                for mut config in with_short_wires(&config, &self.search, &measured, ranks)? {
                    let before = self.found.len();
                    let limit = self.search.memory(&config, ranks)?;
                    self.add_all(&config, ranks, &measured, limit)?;
                    if self.found.len() == before && config.may_leave_state() {
                        config.optimizer.state_on_host = true;
                        let limit = self.search.memory(&config, ranks)?;
                        self.add_all(&config, ranks, &measured, limit)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds every schedule on this many ranks.
    fn add_all(
        &mut self,
        config: &Config,
        ranks: u32,
        measured: &Rc<Measured>,
        limit: Option<Memory>,
    ) -> Result<()> {
        let cluster = self.search.links.of(&measured.cluster(1));
        let costs = compose::costs_under_any(config, measured)?;
        let costs = compose::on_cluster(config, ranks, costs, &cluster)?;
        // On one rank all schedules do the same work in one row. This one needs the least memory.
        let names = Schedule::names().filter(|name| ranks > 1 || *name == ALONE);
        for schedule in names.chain((ranks > 1).then_some(AUTO)) {
            let known = match schedule {
                AUTO => 1..=2,
                name => Schedule::chunks(name)?,
            };
            let most = (*known.end()).min(MOST_CHUNKS.max(*known.start()));
            for chunks in *known.start()..=most {
                let setting = Setting {
                    schedule: schedule.to_owned(),
                    ranks,
                    chunks,
                    micro_batches: config.pipeline.micro_batches,
                    replicas: config.pipeline.replicas,
                    gradient_groups: config.gradient_groups(),
                };
                if !setting.is_possible(costs.layers().len()) {
                    continue;
                }
                let words = in_words(&setting, config);
                match self.add(config, setting, &costs, measured, limit) {
                    Err(error) if error.is_out_of_memory() => self.leave_out(&words, error),
                    Err(error) => eprintln!("left out {words}: {error}"),
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }

    /// Adds a setting. `auto` is not added if it found a schedule that has a name, because that is a setting
    /// of its own.
    fn add(
        &mut self,
        config: &Config,
        setting: Setting,
        costs: &ModelCosts,
        measured: &Rc<Measured>,
        mut limit: Option<Memory>,
    ) -> Result<()> {
        let offload = compose::offload(config, setting.ranks)?;
        let fit = |memory: Option<f64>| {
            let (model, counts, offload) = (costs, None, offload.as_ref());
            let barrier = config.pipeline.barrier;
            let fitting = Fitting { model, counts, memory, offload, barrier };
            fitting.setting(&setting)
        };
        let (mut fitted, mut memory) = self.check(config, &setting, costs, fit(limit.map(Memory::bytes))?)?;
        if let (Some(over), Fit::Within(candidate)) = (self.over(memory), &fitted) {
            // Once more, with less for later backwards.
            let less = candidate.prediction.peak_memory - over;
            if less > 0.0
                && let (Fit::Within(other), held) = self.check(config, &setting, costs, fit(Some(less))?)?
            {
                (fitted, memory) = (Fit::Within(other), held);
                limit = Some(Memory::of(less as u64));
            }
        }
        match fitted {
            // The same without the key is a setting of its own.
            Fit::Within(candidate)
                if self.search.is_limited()
                    && offload.is_some()
                    && !candidate.replicas.largest().offloads() => {}
            Fit::Within(candidate)
                if setting.schedule == AUTO && candidate.replicas.largest().name() != AUTO => {}
            Fit::Within(mut candidate) if self.over(memory).is_none() => {
                candidate.prediction = self.search.here(candidate.prediction, config, &setting);
                self.found.push(Found {
                    config: with_setting(config, &setting, &candidate, costs),
                    setting,
                    candidate: *candidate,
                    limit,
                    measured_costs: Rc::clone(measured),
                    memory,
                    measured: None,
                });
            }
            Fit::Within(_) => self.leave_above(Some(memory), &setting, config),
            // These bytes are only those for later backwards.
            Fit::Above(_) if self.search.device_memory.is_some() => self.leave_above(None, &setting, config),
            Fit::Above(bytes) => self.leave_above(Some(bytes), &setting, config),
        }
        Ok(())
    }

    /// By how much this is more than a device has.
    fn over(&self, memory: f64) -> Option<f64> {
        let limit = self.search.device_memory?;
        (memory > limit.bytes()).then(|| memory - limit.bytes())
    }

    /// Counts a setting that does not fit, and the bytes that it needs if they are known.
    fn leave_above(&mut self, bytes: Option<f64>, setting: &Setting, config: &Config) {
        self.above += 1;
        let least = self.least.as_ref().map_or(f64::INFINITY, |(least, _)| *least);
        if let Some(bytes) = bytes.filter(|bytes| *bytes < least) {
            self.least = Some((bytes, in_words(setting, config)));
        }
    }

    /// The most that a rank holds in all, by the estimate. Refuses a setting for which a device of this
    /// machine has too little memory.
    fn check(&self, config: &Config, setting: &Setting, costs: &ModelCosts, fit: Fit) -> Result<(Fit, f64)> {
        let Fit::Within(candidate) = &fit else {
            return Ok((fit, 0.0));
        };
        let config = with_setting(config, setting, candidate, costs);
        let plan = PipelinePlan {
            costs: Some(costs.clone()),
            ..PipelinePlan::of(candidate.counts.clone(), candidate.replicas.clone())
        };
        let held = compose::memory(&config, &plan)?;
        let all = RanksHere::all([plan.replicas.count(), plan.replicas.ranks(), config.pipeline.shards]);
        if !self.search.is_elsewhere() {
            compose::check_memory(&config, &held, &all, &self.limits)?;
        }
        let most = held.iter().map(RankMemory::total).fold(0.0, f64::max);
        Ok((fit, most))
    }

    /// Says that a setting is left out because a device has too little memory.
    pub(super) fn leave_out(&mut self, what: &str, error: Error) {
        eprintln!("left out {what}: {error}");
        self.starved = Some(error);
    }

    /// The best setting that was run. If none was run, the best prediction.
    pub(super) fn best(&self) -> Option<&Found> {
        best_of(self.found.iter().collect())
    }

    /// As [`Grid::best`], of the settings in one number type.
    pub(super) fn best_in(&self, dtype: DType) -> Option<&Found> {
        let found = self.found.iter();
        best_of(found.filter(|found| found.config.pipeline.dtype == dtype).collect())
    }

    /// The number types that were compared.
    pub(super) fn dtypes(&self) -> &[DType] {
        &self.search.dtypes
    }

    /// Whether a setting is one of the `top` best predictions of its number type.
    pub(super) fn is_of_top(&self, place: usize, top: usize) -> bool {
        let dtype = |found: &Found| found.config.pipeline.dtype;
        let (better, found) = (&self.found[..place], &self.found[place]);
        better.iter().filter(|one| dtype(one) == dtype(found)).count() < top
    }
}

/// How much faster a setting with fewer bytes between hosts has to be than one with more.
const WORTH: f64 = 1.05;

/// The best setting. One with fewer bytes between hosts has to be worth it.
fn best_of(mut found: Vec<&Found>) -> Option<&Found> {
    let was_run = found.iter().any(|found| found.measured.is_some());
    found.retain(|found| found.measured.is_some() == was_run);
    let mut chosen: Option<&Found> = None;
    for short in formats::all(found.iter().map(|found| &found.config)) {
        let of = found.iter().filter(|found| formats::of(&found.config) == short).copied();
        let of: Vec<&Found> = of.collect();
        let contenders: Vec<Contender<'_>> = of.iter().map(|found| found.contender()).collect();
        let best = best(&contenders).map(|place| of[place]);
        let is_worth_it =
            |best: &&Found| chosen.is_none_or(|chosen| best.seconds() * WORTH <= chosen.seconds());
        chosen = best.filter(is_worth_it).or(chosen);
    }
    chosen
}

impl Found {
    fn contender(&self) -> Contender<'_> {
        let prediction = &self.candidate.prediction;
        Contender { setting: &self.setting, seconds: self.seconds(), memory: prediction.peak_memory }
    }

    /// How many shards a rank has.
    pub(super) fn shards(&self) -> u32 {
        self.config.pipeline.shards
    }

    /// The share of a step in which a rank waits for messages of its other shards, predicted.
    pub(super) fn share_of_shard_waits(&self, grid: &Grid) -> Result<f64> {
        let cluster = grid.search.links.of(&self.measured_costs.cluster(1));
        let costs = &self.measured_costs.costs;
        let waits = compose::shard_waits(&self.config, self.setting.ranks, costs, &cluster)?;
        let Setting { micro_batches, replicas, ranks, .. } = self.setting;
        let of_rank = waits * f64::from(micro_batches) / f64::from(replicas * ranks);
        Ok(of_rank / self.predicted())
    }

    /// The predicted time of a step.
    pub(super) fn predicted(&self) -> f64 {
        self.candidate.prediction.step
    }

    /// The measured time of a step, or else the predicted one.
    pub(super) fn seconds(&self) -> f64 {
        self.measured.unwrap_or(self.predicted())
    }

    /// Tokens or images a second, for this time of a step.
    pub(super) fn rate(&self, seconds: f64) -> f64 {
        let tokens = self.measured_costs.tokens.map(|tokens| tokens * f64::from(self.setting.micro_batches));
        tokens.unwrap_or(self.config.targets() as f64) / seconds
    }

    pub(super) fn in_words(&self) -> String {
        in_words(&self.setting, &self.config)
    }
}
