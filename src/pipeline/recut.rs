//! Cuts the model elsewhere between two steps: layers move to other ranks, with their optimizer state.
//!
//! The ranks copy their tensors by name, drop their stages, build others, and take the tensors back. The
//! schedule, the connections and the data stay as they are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use pipewright_stages::{Device, Stage, StageBuilder};

use super::launch::{Fitted, fit};
use super::metrics;
use super::running::Pipeline;
use super::shapes::{allow, check_shapes};
use super::spec::SharedBuilder;
use crate::actor::Job;
use crate::checkpoint::{Copies, Held, TensorInfo, Whole};
use crate::error::{CallError, Result};
use crate::fabric::Call;
use crate::id::Rank;
use crate::mesh::{Axis, Coordinate};
use crate::worker::ParameterInfo;

/// What a new cut took: see [`Pipeline::recut`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Recut {
    /// How long the steps waited for it, in seconds.
    pub seconds: f64,
    /// How many parameters are on another rank of the pipeline than before.
    pub moved: usize,
    /// The bytes that this process gave to others.
    pub given: u64,
}

/// What processes give each other at a time, in bytes.
const AT_ONCE: u64 = 256 << 20;

impl<S: Stage> Pipeline<S> {
    /// Trains on with the same model, cut elsewhere: into these stages, as many as before. All layers, and
    /// their optimizer state, go to the ranks that have them from now on. So the weights after the next steps
    /// are the same, bit for bit, as with the old stages. With several processes it is a call of all.
    ///
    /// Meanwhile weights and optimizer state are in memory twice, on the host.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pipewright::{Pipeline, Result, schedule::Schedule};
    /// # use pipewright::data::{Corpus, Windows};
    /// # use pipewright::stages::{loss::CrossEntropy, models::Gpt};
    /// # fn main() -> Result<()> {
    /// # let (dim, context) = (16, 16);
    /// # let gpt = Gpt { vocab: 256, dim, layers: 2, heads: 2, context, dropout: 0.1, tied: true, seed: 1 };
    /// # let corpus = Arc::new(Corpus::built_in());
    /// # let data = Windows::drawn(Arc::clone(&corpus), 0..corpus.count(), 2, 16, 1)?;
    /// let mut pipeline = Pipeline::builder()
    ///     .schedule(Schedule::one_f_one_b(2, 4)?)
    ///     .stages(gpt.model()?.cut(&[3, 3])?)
    ///     .loss(CrossEntropy::default())
    ///     .data(Arc::new(data))
    ///     .launch()?;
    /// pipeline.step()?;
    /// let recut = pipeline.recut(gpt.model()?.cut(&[4, 2])?)?;
    /// assert!(recut.moved > 0);
    /// pipeline.step()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CallError`] when the stages are not as many, or not of the same parameters; when ranks compute on
    /// other devices or in other numbers, where a layer would have other bits; and when weights may be stale.
    /// [`LaunchError`](crate::error::LaunchError) when a stage cannot be built, or its input does not fit.
    /// Then the pipeline goes on with the stages that it had. As for [`Pipeline::wait_until_saved`].
    pub fn recut(&mut self, stages: Vec<StageBuilder<S>>) -> Result<Recut> {
        let step = self.next_step;
        let call = self.begin(format_args!("new cut before step {step}"))?;
        self.check_recut(stages.len())?;
        self.wait_until_saved()?;
        let begun = Instant::now();
        let stages: Vec<_> = stages.into_iter().map(SharedBuilder::new).collect();
        self.compare_cuts(&stages)?;
        let own = self.copies(call)?;
        let fitted = match self.rebuild(&stages) {
            Ok(fitted) => fitted,
            Err(refused) => {
                // The pipeline goes on as before.
                let old = self.stages.clone();
                let fitted = self.rebuild(&old);
                let fitted = self.note(fitted)?;
                self.take(own, fitted)?;
                return Err(refused);
            }
        };
        let moved = self.moved(&fitted.parameters);
        let given = self.take(own, fitted)?;
        self.stages = stages;
        self.text.end();
        self.pause_keeping();
        let recut = Recut { seconds: begun.elapsed().as_secs_f64(), moved, given };
        metrics::recut(recut.seconds);
        Ok(recut)
    }

    /// As [`Pipeline::recut`], with stages of these numbers of layers.
    ///
    /// # Errors
    /// As for [`Pipeline::recut`]. Whatever [`PipelineBuilder::recut_by`](crate::PipelineBuilder::recut_by)
    /// returns.
    pub(crate) fn recut_to(&mut self, counts: &[usize]) -> Result<Recut> {
        self.begin(format_args!("new cut into {counts:?} layers"))?;
        let sum = counts.iter().try_fold(0, |sum: usize, count| sum.checked_add(*count));
        if counts.contains(&0) || sum.is_none() {
            return Err(CallError::new(format!("stages of {counts:?} layers: each needs 1 or more")).into());
        }
        let fits = self.fits.as_ref().map_or(Ok(()), |fits| fits(self.crew.as_ref(), Some(counts)));
        let stages = match &self.cutter {
            Some(cut) => cut(counts).and_then(|stages| fits.map(|()| stages)),
            None => {
                Err(CallError::new("the pipeline does not know how: see `PipelineBuilder::recut_by`").into())
            }
        };
        let stages = self.all_do("cutting the model", stages)?;
        self.recut(stages)
    }

    /// Refuses where layers may not go to other ranks.
    fn check_recut(&self, count: usize) -> Result<()> {
        let (mesh, stages) = (self.ranks.mesh(), self.schedule().stages() as usize);
        let kind = |rank| {
            let place = mesh.place(rank);
            let device = if place.device == Device::Cpu { "CPUs" } else { "GPUs" };
            format!("{device} in {}", place.dtype)
        };
        let kinds: BTreeSet<String> = mesh.world().map(kind).collect();
        let problem = if count != stages {
            format!("the schedule has {stages} stages, and the new cut has {count}: give as many")
        } else if self.plan.max_staleness > 0 {
            "weights may be stale, so replicas have different ones: only without staleness can layers go to \
             other ranks"
                .to_owned()
        } else if kinds.len() > 1 {
            let kinds = kinds.into_iter().collect::<Vec<_>>().join(" and on ");
            format!("ranks compute on {kinds}: a layer would have other bits on another rank")
        } else {
            return Ok(());
        };
        Err(CallError::new(problem).into())
    }

    /// Refuses other stages in another process.
    fn compare_cuts(&self, stages: &[SharedBuilder<S>]) -> Result<()> {
        if self.processes() == 1 {
            return Ok(());
        }
        let described = stages.iter().enumerate();
        let parts =
            described.map(|(stage, builder)| (format!("stage {stage}"), builder.described())).collect();
        let what = "comparing the new cut";
        self.ranks.together(what, |peers| peers.compare(what, Ok(parts)))
    }

    /// The tensors of this process's ranks.
    fn copies(&mut self, call: Call) -> Result<Vec<Whole>> {
        let copies: HashMap<_, Arc<Mutex<Copies>>> =
            self.ranks.mesh().ranks_of(self.process()).map(|rank| (rank, Arc::default())).collect();
        let copied = self.ranks.ask_all("copying weights", |rank| {
            let copies = Arc::clone(&copies[&rank]);
            Job::must(move |worker| worker.copy(call, &copies))
        });
        self.note(copied)?;
        // Memory for copies that are written takes this place.
        self.beside.copies.clear();
        let take = |copies: Arc<Mutex<Copies>>| copies.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(copies.into_values().flat_map(take).collect())
    }

    /// Builds these stages on their ranks, without their weights.
    fn rebuild(&self, stages: &[SharedBuilder<S>]) -> Result<Fitted> {
        let (mesh, plan) = (self.ranks.mesh(), &self.plan);
        let built = self.ranks.ask_all("building the stages", |rank| {
            let own = plan.placement().stages_on(mesh.coordinate(rank).rank);
            let builders = own.map(|stage| (stage, stages[stage.index()].for_rank())).collect();
            Job::ask(move |worker| worker.recut(builders))
        })?;
        let fitted = fit(built, plan)?;
        let sorted = |all: &[ParameterInfo]| {
            let mut all: Vec<_> = all.iter().filter(|info| !info.is_tied).map(TensorInfo::from).collect();
            all.sort();
            all
        };
        let (before, now) = (sorted(&self.parameters), sorted(&fitted.parameters));
        if let Some(other) =
            now.iter().find(|info| !before.contains(info)).or(match before.len() == now.len() {
                true => None,
                false => before.iter().find(|info| !now.contains(info)),
            })
        {
            return Err(CallError::new(format!(
                "the new cut has other parameters than the model that is trained, such as `{}`: cut the same \
                 model",
                other.name
            ))
            .into());
        }
        Ok(fitted)
    }

    /// Gives the ranks' new stages their tensors. Returns how many bytes this process gave to others.
    fn take(&mut self, own: Vec<Whole>, fitted: Fitted) -> Result<u64> {
        let Fitted { parameters, ties, first_trained } = fitted;
        let given = self.exchange(own, &parameters);
        let (held, given) = self.note(given)?;
        let held = Arc::new(held);
        let taken = self.ranks.ask_all("taking weights", |_| {
            let (held, ties) = (Arc::clone(&held), ties.clone());
            Job::renew(move |worker| worker.take(&held, ties, first_trained))
        });
        self.note(taken)?;
        let numbers = check_shapes(&self.ranks, self.schedule(), self.plan.data.shapes());
        let numbers = self.note(numbers)?;
        let allowed = allow(&self.ranks, numbers, &parameters, &self.plan);
        self.note(allowed)?;
        self.parameters = parameters;
        Ok(given)
    }

    /// All tensors that this process's ranks need, and how many bytes it gave to others.
    fn exchange(&self, own: Vec<Whole>, new: &[ParameterInfo]) -> Result<(Held, u64)> {
        let mut held = Held::default();
        if self.processes() == 1 {
            own.into_iter().for_each(|whole| held.add(whole));
            return Ok((held, 0));
        }
        let mut needed: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for info in new {
            needed.entry(&info.name).or_default().extend(self.processes_of(info.site.rank));
        }
        // Whole tensors are on the first shard of the first replica, at their first site.
        let owners = self.parameters.iter().filter(|info| !info.is_tied);
        let owners: BTreeMap<&str, u32> = owners
            .map(|info| (&*info.name, self.ranks.mesh().process(self.ranks.first(info.site.rank))))
            .collect();
        let moves = |name: &str| needed[name].iter().any(|process| *process != owners[name]);
        let sizes: HashMap<String, u64> =
            own.iter().map(|whole| (whole.name().to_owned(), whole.bytes())).collect();
        let all = self.ranks.spread("giving layers", Ok(sizes.into_iter().collect::<Vec<_>>()))?;
        let sizes: BTreeMap<String, u64> = all.into_iter().filter(|(name, _)| moves(name)).collect();
        let (mut given, mut own) =
            (0, own.into_iter().map(|whole| (whole.name().to_owned(), whole)).collect::<HashMap<_, _>>());
        for round in rounds(&sizes) {
            let mine: Vec<Whole> = round.iter().filter_map(|name| own.remove(*name)).collect();
            given += mine.iter().map(Whole::bytes).sum::<u64>();
            for whole in self.ranks.spread("giving layers", Ok(mine))? {
                if needed[whole.name()].contains(&self.process()) {
                    held.add(whole);
                }
            }
        }
        own.into_values().for_each(|whole| held.add(whole));
        Ok((held, given))
    }

    /// The processes that have a rank of the pipeline, in any replica or shard.
    fn processes_of(&self, rank: Rank) -> impl Iterator<Item = u32> + '_ {
        let mesh = self.ranks.mesh();
        let replicas = 0..mesh.size(Axis::Data);
        replicas.flat_map(move |replica| {
            let shards = 0..mesh.size(Axis::Tensor);
            shards.map(move |shard| mesh.process(mesh.world_rank(Coordinate { replica, rank, shard })))
        })
    }

    /// How many parameters are on another rank of the pipeline.
    fn moved(&self, new: &[ParameterInfo]) -> usize {
        let before: HashMap<&str, Rank> = sites(&self.parameters).collect();
        sites(new).filter(|(name, rank)| before.get(name) != Some(rank)).count()
    }
}

/// The parameters, each with its rank of the pipeline.
fn sites(parameters: &[ParameterInfo]) -> impl Iterator<Item = (&str, Rank)> {
    let first = parameters.iter().filter(|info| !info.is_tied);
    first.map(|info| (&*info.name, info.site.rank))
}

/// Names whose tensors have at most [`AT_ONCE`] bytes together, or one of more.
fn rounds(sizes: &BTreeMap<String, u64>) -> Vec<Vec<&str>> {
    let (mut rounds, mut bytes): (Vec<Vec<&str>>, _) = (Vec::new(), 0);
    for (name, size) in sizes {
        if rounds.is_empty() || bytes + size > AT_ONCE {
            rounds.push(Vec::new());
            bytes = 0;
        }
        rounds.last_mut().expect("there is one").push(name);
        bytes += size;
    }
    rounds
}
