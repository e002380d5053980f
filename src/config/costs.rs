//! What a config's model costs: read from the file that it names, or measured now.

use std::path::Path;
use std::sync::Arc;

use pipewright_stages::loss::CrossEntropy;
use pipewright_stages::optimizer::Optimizer;
use pipewright_stages::{Device, Place, Recompute};
use toml::Value;

use super::{Config, RecomputeBy, RecomputeWord};
use crate::error::Result;
use crate::plan::ModelCosts;
use crate::profile::{self, Measured, Settings, Subject};

impl Config {
    /// The costs in the file `pipeline.costs`; none when there is no such key.
    ///
    /// # Errors
    /// As for [`Config::costs_in`].
    pub fn costs(&self) -> Result<Option<ModelCosts>> {
        let costs = self.pipeline.costs.as_deref().map(|path| {
            let costs = self.costs_in(path).map(|(costs, _)| costs);
            costs.map_err(|error| self.refuse("pipeline.costs", error))
        });
        costs.transpose()
    }

    /// The costs in a file; and a warning, when this machine is not what they were measured on.
    ///
    /// # Errors
    /// [`ProfileError`](crate::error::ProfileError) when the file cannot be read, is not whole, or was measured for another model or micro-batch: it
    /// names the file and the layer, key or setting.
    pub fn costs_in(&self, path: &Path) -> Result<(ModelCosts, Option<String>)> {
        let measured = Measured::read(path)?;
        let (model, settings, machine) = (self.model()?, self.cost_settings()?, self.machine()?);
        let warning = measured
            .fits(&settings, &machine, &model.names())
            .map_err(|problem| problem.of(path))?;
        let warning = warning.map(|warning| format!("{}: {warning}", path.display()));
        Ok((self.costs_of(measured)?, warning))
    }

    /// The costs as they are under this config's schedule and with what it recomputes.
    ///
    /// # Errors
    /// When there is no such schedule, or its stages do not all recompute the same.
    pub fn costs_of(&self, measured: Measured) -> Result<ModelCosts> {
        let schedule = self.unfitted()?.in_turn();
        Ok(self.costs_under_any(measured)?.under(&schedule))
    }

    /// The costs with what this config recomputes, its backwards in two halves.
    ///
    /// # Errors
    /// When its stages do not all recompute the same.
    pub fn costs_under_any(&self, measured: Measured) -> Result<ModelCosts> {
        let full = self.recomputed()? == Recompute::Full;
        Ok(measured.costs.recomputed(full))
    }

    /// Refuses at once what measured costs would not be for.
    ///
    /// # Errors
    /// When its stages do not all recompute the same, some ranks are on GPUs and others are not, a GPU is not there, or as
    /// [`Config::choose`] for a schedule in a file.
    pub fn can_be_measured(&self) -> Result<()> {
        self.recomputed()?;
        self.measured_places()?;
        self.check_gpus()
    }

    /// Measures the costs. `tell` hears of every step: how many are done, and how many there will be at most.
    ///
    /// # Errors
    /// When the data cannot be opened, or what stops a pipeline.
    pub fn measure(&self, tell: impl FnMut(u64, u64)) -> Result<Measured> {
        Ok(Measured {
            settings: self.cost_settings()?,
            machine: self.machine()?,
            costs: profile::measure(|| self.subject(), tell)?,
        })
    }

    fn subject(&self) -> Result<Subject<CrossEntropy, Box<dyn Optimizer>>> {
        Ok(Subject {
            model: self.model()?,
            ranks: self.unfitted()?.ranks(),
            places: self.measured_places()?,
            micro_batches: self.pipeline.micro_batches,
            loss: self.loss(),
            data: Arc::clone(&self.data()?.train),
            optimizer: self.optimizer(),
            selective: self.recomputed()? == Recompute::Selective,
            threads_per_rank: self.pipeline.threads_per_rank,
            pin: self.pipeline.pin,
        })
    }

    /// The places of all ranks, which are alike.
    fn measured_places(&self) -> Result<Vec<Place>> {
        let places = self.places(self.unfitted()?.ranks())?;
        profile::check_places(&places).map_err(|error| self.refuse("pipeline.devices", error))?;
        Ok(places)
    }

    /// What the costs of a micro-batch depend on.
    fn cost_settings(&self) -> Result<Settings> {
        let table = self.kept()?;
        let mut settings = Settings::new();
        let mut add = |section: &str, wanted: &dyn Fn(&str) -> bool| {
            let keys = table.get(section).and_then(Value::as_table).into_iter().flatten();
            for (key, value) in keys.filter(|(key, _)| wanted(key)) {
                settings.insert(format!("{section}.{key}"), value.to_string());
            }
        };
        add("model", &|key| key != "seed");
        add("data", &|key| ["kind", "seq"].contains(&key));
        add("optimizer", &|key| key == "kind");
        let rows = self.micro_batch_size().to_string();
        settings.insert("pipeline.micro_batch_size".to_owned(), rows);
        let selective = self.recomputed()? == Recompute::Selective;
        let word = if selective { "selective" } else { "none or full" };
        settings.insert("pipeline.recompute".to_owned(), word.to_owned());
        let place = self.measured_places()?.first().copied().unwrap_or_default();
        let devices = match place.device {
            Device::Cpu => profile::ON_CPU.to_owned(),
            Device::Cuda(_) => format!("GPUs in {}", place.dtype),
        };
        settings.insert(profile::DEVICES.to_owned(), devices);
        Ok(settings)
    }

    fn machine(&self) -> Result<Settings> {
        let mut machine = profile::machine();
        let ranks = self.unfitted()?.ranks();
        machine.insert("ranks".to_owned(), ranks.to_string());
        let threads = self.pipeline.threads_per_rank;
        // Files from before there were more than one have no such line.
        if threads > 1 {
            machine.insert("threads_per_rank".to_owned(), threads.to_string());
        }
        let gpus = self.pipeline.devices.gpus().len();
        if gpus > 0 {
            machine.insert("gpus".to_owned(), gpus.to_string());
            machine.insert("gpu".to_owned(), self.kinds_of_gpus().join(", "));
        }
        Ok(machine)
    }

    /// What all stages recompute.
    fn recomputed(&self) -> Result<Recompute> {
        match &self.pipeline.recompute {
            RecomputeBy::All(word) => Ok((*word).into()),
            RecomputeBy::Each(words) => match words.as_slice() {
                [] => Ok(RecomputeWord::None.into()),
                [first, rest @ ..] if rest.iter().all(|word| word == first) => Ok((*first).into()),
                _ => Err(self.refuse(
                    "pipeline.recompute",
                    "costs are for stages that all recompute the same: give one word for all",
                )),
            },
        }
    }
}
