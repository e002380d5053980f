//! Cuts the model elsewhere between two steps, or goes on by another schedule or in another shape: layers
//! move to other ranks, with their optimizer state.
//!
//! The ranks copy their tensors by name, drop their stages, build others, and take the tensors back. The
//! connections and the data source stay as they are.

pub(super) mod cut;
mod exchange;

pub use cut::Cut;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use pipewright_stages::units::counted;
use pipewright_stages::{Device, Stage, StageBuilder};

use super::alike::orders;
use super::launch::{Fitted, duties, fit};
use super::metrics;
use super::running::{Pipeline, TextState};
use super::shapes::{allow, check_shapes};
use super::spec::SharedBuilder;
use crate::actor::Job;
use crate::checkpoint::{Copies, TensorInfo, Whole};
use crate::error::{CallError, Result};
use crate::fabric::Call;
use crate::id::WorldRank;
use crate::mesh::Mesh;
use crate::plan::Replicas;
use crate::worker::{ParameterInfo, Plan};

/// What a new cut, another schedule or another shape took: see [`Pipeline::recut`],
/// [`Pipeline::reschedule`] and [`Pipeline::reshape`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Recut {
    /// How long the steps waited for it, in seconds.
    pub seconds: f64,
    /// How many parameters are on another rank than before, or on more or fewer ranks.
    pub moved: usize,
    /// The bytes that this process gave to others.
    pub given: u64,
}

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
    /// [`LaunchError`](crate::error::LaunchError) when a stage cannot be built. Then the pipeline goes on
    /// with the stages that it had. When a stage refuses its input, the pipeline stops. As for
    /// [`Pipeline::wait_until_saved`].
    pub fn recut(&mut self, stages: Vec<StageBuilder<S>>) -> Result<Recut> {
        let step = self.next_step;
        let call = self.begin(format_args!("new cut before step {step}"))?;
        self.change(call, Arc::clone(&self.plan), stages, None)
    }

    /// Trains on by other schedules, and with the model cut into their stages: with as many micro-batches and
    /// ranks in all as before, but perhaps other placements, more or fewer stages on a rank, and more or
    /// fewer replicas. So the weights after the next steps are the same, bit for bit, as by the old
    /// schedules. With several processes it is a call of all. What was read ahead of the data is read again.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pipewright::plan::Replicas;
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
    /// // Rank 0 has the first and the last of four stages now.
    /// let schedule = Schedule::named("zb-v", 2, 4)?;
    /// pipeline.reschedule(&Replicas::one(schedule), gpt.model()?.cut(&[1, 2, 2, 1])?)?;
    /// pipeline.step()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Pipeline::recut`]. [`CallError`] also when the schedules are for other micro-batches, when
    /// there would be more or fewer ranks in all, or when ranks are on GPUs: there a head that is deferred
    /// has other bits, and NCCL connects the ranks of one placement.
    /// [`LaunchError`](crate::error::LaunchError) also when they place stages in different ways, or go in two
    /// directions.
    pub fn reschedule(&mut self, replicas: &Replicas, stages: Vec<StageBuilder<S>>) -> Result<Recut> {
        let shards = self.shards();
        self.reschedule_to((replicas, shards), stages, None)
    }

    /// As [`Pipeline::reschedule`], in another shape: with other numbers of replicas, of ranks of each, and
    /// of shards of a rank. Their product, the number of ranks in all, stays the same. The batch keeps its
    /// [gradient groups](crate::PipelineBuilder::gradient_groups), and the model its
    /// [shard groups](crate::stages::models::Model::with_shard_groups): replicas and shards share these. So
    /// the weights after the next steps are the same, bit for bit, as in the old shape.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pipewright::groups::GradientGroups;
    /// # use pipewright::plan::Replicas;
    /// # use pipewright::{Pipeline, Result, schedule::Schedule};
    /// # use pipewright::data::{Corpus, Windows};
    /// # use pipewright::stages::{loss::CrossEntropy, models::Gpt};
    /// # fn main() -> Result<()> {
    /// # let (dim, context) = (16, 16);
    /// # let gpt = Gpt { vocab: 256, dim, layers: 2, heads: 2, context, dropout: 0.1, tied: true, seed: 1 };
    /// # let corpus = Arc::new(Corpus::built_in());
    /// # let data = Windows::drawn(Arc::clone(&corpus), 0..corpus.count(), 2, 16, 1)?;
    /// let model = || gpt.model()?.with_shard_groups(2);
    /// // A pipeline of 4 ranks.
    /// let mut pipeline = Pipeline::builder()
    ///     .schedule(Schedule::one_f_one_b(4, 4)?)
    ///     .gradient_groups(2)
    ///     .stages(model()?.split(4)?)
    ///     .loss(CrossEntropy::default().with_shard_groups(2)?)
    ///     .data(Arc::new(data))
    ///     .launch()?;
    /// pipeline.step()?;
    /// // 2 replicas of 1 rank of 2 shards.
    /// let share = |micro_batches| Schedule::one_f_one_b(1, micro_batches);
    /// let replicas = Replicas::new(GradientGroups::new(4, 2), 2, share)?;
    /// pipeline.reshape(&replicas, 2, model()?.split(1)?)?;
    /// pipeline.step()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Pipeline::reschedule`]. [`CallError`] also when a parameter server would get another shape.
    /// [`LaunchError`](crate::error::LaunchError) also when this many replicas or shards cannot train.
    pub fn reshape(
        &mut self,
        replicas: &Replicas,
        shards: u32,
        stages: Vec<StageBuilder<S>>,
    ) -> Result<Recut> {
        self.reschedule_to((replicas, shards), stages, None)
    }

    fn reschedule_to(
        &mut self,
        (replicas, shards): (&Replicas, u32),
        stages: Vec<StageBuilder<S>>,
        cut: Option<&Cut>,
    ) -> Result<Recut> {
        let step = self.next_step;
        let call = self.begin(format_args!("new schedules before step {step}"))?;
        let plan = self.plan.rescheduled(replicas, shards);
        let plan = self.all_do("checking the new schedules", plan)?;
        let cut = cut.map(|cut| (cut.clone(), replicas.clone()));
        self.change(call, plan, stages, cut)
    }

    /// Trains on by the schedules of this plan, with these stages. `cut`: which cut this is, if that is
    /// known.
    fn change(
        &mut self,
        call: Call,
        plan: Arc<Plan>,
        stages: Vec<StageBuilder<S>>,
        cut: Option<(Cut, Replicas)>,
    ) -> Result<Recut> {
        let checked = self.check_change(&plan, stages.len());
        self.all_do("checking the new cut", checked)?;
        self.wait_until_saved()?;
        let begun = Instant::now();
        let stages: Vec<_> = stages.into_iter().map(SharedBuilder::new).collect();
        self.compare_changes(&plan, &stages)?;
        self.text = TextState::default();
        let own = self.copies(call)?;
        let fitted = match self.rebuild(&plan, &stages) {
            Ok(fitted) => fitted,
            Err(refused) => {
                // The pipeline goes on as before.
                let (plan, stages) = (Arc::clone(&self.plan), self.stages.clone());
                let fitted = self.rebuild(&plan, &stages);
                let fitted = self.note(fitted)?;
                self.take(own, fitted)?;
                return Err(refused);
            }
        };
        let (moved, before) = (self.moved(&fitted.parameters, &plan.mesh), self.layout());
        self.plan = plan;
        // Before all take their weights together: then no process sends what another one does not allow yet.
        self.allow_snapshots(&fitted.parameters);
        let given = self.take(own, fitted)?;
        (self.stages, self.cut) = (stages, cut);
        self.keep_anew(&before);
        let recut = Recut { seconds: begun.elapsed().as_secs_f64(), moved, given };
        metrics::recut(recut.seconds, [before.mesh(), self.ranks.mesh()]);
        Ok(recut)
    }

    /// As [`Pipeline::reschedule`], with the schedules and the stages of this cut. Returns the schedules too.
    ///
    /// # Errors
    /// As for [`Pipeline::reschedule`]. Whatever
    /// [`PipelineBuilder::recut_by`](crate::PipelineBuilder::recut_by) returns.
    pub(crate) fn recut_to(&mut self, cut: &Cut) -> Result<(Recut, Replicas)> {
        let counts = &cut.layers;
        self.begin(format_args!("new cut {cut:?}"))?;
        let sum = counts.iter().try_fold(0, |sum: usize, count| sum.checked_add(*count));
        if counts.contains(&0) || sum.is_none() {
            return Err(CallError::new(format!("stages of {counts:?} layers: each needs 1 or more")).into());
        }
        let made = match &self.cutter {
            Some(make) => make(cut).and_then(|made| {
                let fits = self.fits.as_ref().map_or(Ok(()), |fits| fits(self.crew.as_ref(), Some(cut)));
                fits.map(|()| made)
            }),
            None => {
                Err(CallError::new("the pipeline does not know how: see `PipelineBuilder::recut_by`").into())
            }
        };
        let is_it = |(replicas, stages): &(Replicas, Vec<_>)| {
            replicas.count() == cut.replicas && stages.len() == cut.layers.len()
        };
        let made = made.and_then(|made| match is_it(&made) {
            true => Ok(made),
            false => Err(CallError::new(format!(
                "`PipelineBuilder::recut_by` makes {} and {} for this cut: {cut:?}",
                counted(made.0.count().into(), "replica"),
                counted(made.1.len() as u64, "stage")
            ))
            .into()),
        });
        let (replicas, stages) = self.all_do("cutting the model", made)?;
        Ok((self.reschedule_to((&replicas, cut.shards), stages, Some(cut))?, replicas))
    }

    /// The cut with which it goes on since launch, and its schedules, if [`Pipeline::recut_to`] has made it.
    pub(crate) fn cut_since_launch(&self) -> Option<&(Cut, Replicas)> {
        self.cut.as_ref()
    }

    /// Refuses where layers may not go to other ranks.
    fn check_change(&self, plan: &Plan, count: usize) -> Result<()> {
        let (mesh, stages) = (self.ranks.mesh(), plan.placement().stages() as usize);
        let kind = |rank| {
            let place = mesh.place(rank);
            let device = if place.device == Device::Cpu { "CPUs" } else { "GPUs" };
            format!("{device} in {}", place.dtype)
        };
        let kinds: BTreeSet<String> = mesh.world().map(kind).collect();
        let problem = if count != stages {
            format!("the schedule has {stages} stages, and the new cut has {count}: give as many")
        } else if self.plan.max_staleness() > 0 {
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

    /// Refuses other stages and other schedules in another process.
    fn compare_changes(&self, plan: &Plan, stages: &[SharedBuilder<S>]) -> Result<()> {
        if self.processes() == 1 {
            return Ok(());
        }
        let described = stages.iter().enumerate();
        let described = described.map(|(stage, builder)| (format!("stage {stage}"), builder.described()));
        let shape =
            ("the numbers of replicas, ranks and shards".to_owned(), format!("{:?}", plan.mesh.sizes()));
        let parts = std::iter::once(shape).chain(described).chain(orders(plan)).collect();
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

    /// Builds these stages on their ranks, without their weights. The ranks go on by the schedules of this
    /// plan.
    fn rebuild(&mut self, plan: &Arc<Plan>, stages: &[SharedBuilder<S>]) -> Result<Fitted> {
        let own = self.ranks.mesh().ranks_of(self.process());
        let made = duties(plan, stages, own);
        let (loaders, duties) = self.all_do("cutting the model", made)?;
        let mut duties = duties.into_iter();
        // Their numbers are not copied, but compared with what the builders make.
        let has_blocks = self.parameters.iter().any(|info| info.is_quantised);
        let built = self.ranks.ask_all("building the stages", |_| {
            let (plan, duty) = (Arc::clone(plan), duties.next().expect("one for each rank"));
            Job::ask(move |worker| worker.recut(plan, duty, has_blocks))
        });
        self.loaders = loaders;
        let fitted = fit(built?, plan)?;
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
        let given = self.exchange(own, &parameters, &self.plan.mesh);
        let (held, given) = self.note(given)?;
        self.ranks.reshape(&self.plan.mesh);
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

    /// How many parameters are on another rank, or on more or fewer ranks.
    fn moved(&self, new: &[ParameterInfo], mesh: &Mesh) -> usize {
        let before: HashMap<&str, Vec<WorldRank>> = sites(&self.parameters, self.ranks.mesh()).collect();
        sites(new, mesh).filter(|(name, ranks)| before.get(name) != Some(ranks)).count()
    }
}

/// The parameters, each with its ranks, in all replicas and shards.
fn sites<'a>(
    parameters: &'a [ParameterInfo],
    mesh: &'a Mesh,
) -> impl Iterator<Item = (&'a str, Vec<WorldRank>)> {
    let first = parameters.iter().filter(|info| !info.is_tied);
    let is_there = |rank: &WorldRank, info: &ParameterInfo| mesh.coordinate(*rank).rank == info.site.rank;
    first.map(move |info| (&*info.name, mesh.world().filter(|rank| is_there(rank, info)).collect()))
}
