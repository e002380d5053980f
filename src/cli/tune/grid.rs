//! All settings that are compared, each with its prediction.

use std::rc::Rc;

use crate::cli::costs::measure;
use crate::compose::{self, PipelinePlan, RanksHere};
use crate::config::{Balanced, Config, Memory, Partition, RecomputeBy};
use crate::plan::{AUTO, Candidate, Contender, Fit, ModelCosts, Setting, best};
use crate::profile::{Measured, MemoryLimit};
use crate::schedule::Schedule;
use crate::stages::Device;
use crate::{Error, Result};

/// The largest number of stages on a rank.
const MOST_CHUNKS: u32 = 4;

/// The schedule for measurements. On one rank it is the only one.
const ALONE: &str = "1f1b";

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
}

impl Grid {
    /// Measures costs for each of these numbers of ranks, and for each size of a micro-batch that divides the
    /// config's batch. Then predicts a step for every schedule.
    pub(super) fn measure(base: &Config, ranks: &[u32], memory: Option<Memory>) -> Result<Self> {
        let mut grid = Self {
            found: Vec::new(),
            above: 0,
            least: None,
            starved: None,
            limits: compose::memory_limits(base)?,
            unit: base.unit(),
        };
        let batch = base.micro_batch_size() * base.pipeline.micro_batches as usize;
        for &ranks in ranks {
            for rows in (1..=batch).filter(|rows| batch.is_multiple_of(*rows)) {
                let micro_batches = (batch / rows) as u32;
                let config = with_rows(base, ranks, micro_batches, rows);
                let what = format!("ranks {ranks}, micro-batches {micro_batches}, rows {rows}");
                let measured = match measure(&config, &what, &grid.limits) {
                    // A larger micro-batch would not fit either.
                    Err(error) if error.is_out_of_memory() => {
                        grid.leave_out(&what, error);
                        break;
                    }
                    measured => Rc::new(measured?),
                };
                let limit =
                    memory.map_or_else(|| compose::gpu_memory(&config, ranks), |memory| Ok(Some(memory)))?;
                let before = grid.found.len();
                grid.add_all(&config, ranks, &measured, limit)?;
                // A larger micro-batch needs more memory. If nothing fits now, nothing larger does.
                let too_large = grid.above > 0 || grid.starved.is_some();
                if grid.found.len() == before && too_large {
                    break;
                }
            }
        }
        grid.found.sort_by(|a, b| {
            let (a, b) = (&a.candidate.prediction, &b.candidate.prediction);
            let memory = a.peak_memory.total_cmp(&b.peak_memory);
            a.step.total_cmp(&b.step).then(memory)
        });
        Ok(grid)
    }

    /// Adds every schedule on this many ranks.
    fn add_all(
        &mut self,
        config: &Config,
        ranks: u32,
        measured: &Rc<Measured>,
        limit: Option<Memory>,
    ) -> Result<()> {
        let costs = compose::costs_under_any(config, measured)?;
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
                    gradient_groups: config.pipeline.gradient_groups,
                };
                if !setting.is_possible(costs.layers().len()) {
                    continue;
                }
                let words = in_words(&setting, config.micro_batch_size());
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
        limit: Option<Memory>,
    ) -> Result<()> {
        match setting.fit(costs, limit.map(Memory::bytes))? {
            Fit::Within(candidate)
                if setting.schedule == AUTO && candidate.replicas.largest().name() != AUTO => {}
            Fit::Within(candidate) => {
                let config = with_setting(config, &setting, &candidate, costs);
                self.check_memory(&config, &candidate, costs)?;
                self.found.push(Found {
                    config,
                    setting,
                    candidate: *candidate,
                    limit,
                    measured_costs: Rc::clone(measured),
                    measured: None,
                });
            }
            Fit::Above(bytes) => {
                self.above += 1;
                if self.least.as_ref().is_none_or(|(least, _)| bytes < *least) {
                    self.least = Some((bytes, in_words(&setting, config.micro_batch_size())));
                }
            }
        }
        Ok(())
    }

    /// Refuses a setting for which a device has too little memory.
    fn check_memory(&self, config: &Config, candidate: &Candidate, costs: &ModelCosts) -> Result<()> {
        let plan = PipelinePlan {
            costs: Some(costs.clone()),
            ..PipelinePlan::of(candidate.counts.clone(), candidate.replicas.clone())
        };
        let held = compose::memory(config, &plan)?;
        let all = RanksHere::all(plan.replicas.count(), plan.replicas.ranks());
        compose::check_memory(config, &held, &all, &self.limits)
    }

    /// Says that a setting is left out because a device has too little memory.
    pub(super) fn leave_out(&mut self, what: &str, error: Error) {
        eprintln!("left out {what}: {error}");
        self.starved = Some(error);
    }

    /// The best setting that was run. If none was run, the best prediction.
    pub(super) fn best(&self) -> Option<&Found> {
        let was_run = self.found.iter().any(|found| found.measured.is_some());
        let found: Vec<&Found> = self
            .found
            .iter()
            .filter(|found| found.measured.is_some() == was_run)
            .collect();
        let contenders: Vec<Contender<'_>> = found.iter().map(|found| found.contender()).collect();
        best(&contenders).map(|place| found[place])
    }
}

impl Found {
    /// With its measured time, or else the predicted one.
    fn contender(&self) -> Contender<'_> {
        let prediction = &self.candidate.prediction;
        Contender {
            setting: &self.setting,
            seconds: self.measured.unwrap_or(prediction.step),
            memory: prediction.peak_memory,
        }
    }

    /// Tokens or images a second, for this time of a step.
    pub(super) fn rate(&self, seconds: f64) -> f64 {
        self.config.targets() as f64 / seconds
    }

    pub(super) fn in_words(&self) -> String {
        in_words(&self.setting, self.config.micro_batch_size())
    }
}

fn in_words(setting: &Setting, rows: usize) -> String {
    format!(
        "{}: ranks {}, stages each {}, micro-batches {}, rows {rows}",
        setting.schedule, setting.ranks, setting.chunks, setting.micro_batches
    )
}

/// The config with these numbers of ranks, micro-batches and rows, to be measured.
fn with_rows(base: &Config, ranks: u32, micro_batches: u32, rows: usize) -> Config {
    let mut config = base.clone();
    let pipeline = &mut config.pipeline;
    pipeline.stages = ranks as usize;
    pipeline.chunks = None;
    pipeline.devices = pipeline.devices.shared_by(ranks as usize);
    pipeline.schedule = ALONE.to_owned();
    pipeline.partition = Partition::Named(Balanced::Balanced);
    pipeline.costs = None;
    pipeline.memory = None;
    pipeline.micro_batches = micro_batches;
    pipeline.micro_batch_size = Some(rows);
    pipeline.batch_size = None;
    if let RecomputeBy::Each(words) = &pipeline.recompute
        && let Some(word) = words.first()
    {
        // A list has a word for each of the old stages. All its words are equal: `Config::can_be_measured`
        // has checked it.
        pipeline.recompute = RecomputeBy::All(*word);
    }
    config
}

/// The config with a candidate's setting.
fn with_setting(config: &Config, setting: &Setting, candidate: &Candidate, costs: &ModelCosts) -> Config {
    let mut config = config.clone();
    let pipeline = &mut config.pipeline;
    pipeline.stages = (setting.ranks * setting.chunks) as usize;
    pipeline.chunks = Some(setting.chunks);
    pipeline.schedule.clone_from(&setting.schedule);
    let mut layers = costs.layers().iter().map(|layer| layer.name.as_str());
    let lists = candidate.counts.iter().map(|&count| {
        let names: Vec<&str> = layers.by_ref().take(count).collect();
        match names.as_slice() {
            [first, .., last] => vec![format!("{first}..{last}")],
            names => names.iter().map(|&name| name.to_owned()).collect(),
        }
    });
    pipeline.partition = Partition::Lists(lists.collect());
    config
}
