//! Joins a run again after another process was lost, and goes on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use pipewright_stages::{Device, Stage};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::keeping::TakenBack;
use super::state::{Leaving, RejoinState, Rejoined, Wish};
use crate::error::{Error, RestartError, Result};
use crate::fabric::{Gone, World};
use crate::pipeline::launch::launch;
use crate::pipeline::metrics;
use crate::pipeline::running::Pipeline;
use crate::pipeline::spec::Spec;

/// Launches a pipeline. If it joins a run that goes on after processes were lost, it takes back what is kept
/// of its ranks.
pub(in crate::pipeline) fn launch_or_join<S: Stage>(mut spec: Spec<S>) -> Result<Pipeline<S>> {
    let Some(mut world) = spec.world.take() else {
        return launch(&spec, None);
    };
    match world.again() {
        Some(join) if spec.restarts.most > 0 && world.whole() > 1 => {
            RejoinState::new(join, &world, spec).launch(world)
        }
        _ => {
            world.replaces_none();
            launch(&spec, Some(world))
        }
    }
}

impl<S: Stage> RejoinState<S> {
    /// Launches the pipeline for the first time. If another process is lost meanwhile, it joins again, as the
    /// others do, which may have begun to train before.
    fn launch(mut self: Box<Self>, world: World) -> Result<Pipeline<S>> {
        // The others of a run that goes on count how often processes are lost.
        let goes_on = world.goes_on();
        let mut launched = self.launch_in(world, Vec::new());
        let mut left = self.spec.restarts.most;
        while (goes_on || left > 0)
            && let Err(error) = &launched
            && let Some(lost) = error.lost_process()
        {
            left = left.saturating_sub(1);
            let lost = vec![lost];
            launched =
                (self.join)(Gone::lost(&lost), &self.interrupt).and_then(|world| self.launch_in(world, lost));
        }
        launched.map(|mut pipeline| {
            pipeline.again = Some(self);
            pipeline
        })
    }

    /// Launches the pipeline, and takes back what is kept of its ranks if the run had begun before.
    fn launch_in(&mut self, mut world: World, lost: Vec<u32>) -> Result<Pipeline<S>> {
        let goes_on = world.goes_on();
        self.join = world.again().ok_or_else(RestartError::cannot_rejoin)?;
        self.size = world.size();
        if let Some(fits) = self.spec.fits.as_ref().filter(|_| world.processes() < world.whole())
            && let Err(error) = fits(Some(&world.crew()), None)
        {
            world.fail(&error);
            return Err(error);
        }
        world.keep(self.snapshots.kept());
        let mut pipeline = launch(&self.spec, Some(world))?;
        pipeline.ranks.heed(self.interrupt.clone());
        self.snapshots.allow(pipeline.most_kept());
        self.snapshots.paused = false;
        if goes_on {
            let taken = pipeline.take_back(&mut self.snapshots);
            let taken = taken.inspect_err(|error| pipeline.ranks.peers().fail(error))?;
            pipeline.rejoined = match taken {
                TakenBack::Step(step) => Some(Rejoined { lost, step: Some(step) }),
                TakenBack::Nothing => Some(Rejoined { lost, step: None }),
                TakenBack::NotBegun => None,
            };
        }
        Ok(pipeline)
    }
}

impl<S: Stage> Pipeline<S> {
    /// Whether [`Pipeline::rejoin`] can help after this failure: another process was lost, and this one can
    /// join its run again.
    pub fn may_rejoin(&self, failure: &Error) -> bool {
        let Some(again) = self.again.as_ref().filter(|_| failure.is_echo()) else {
            return false;
        };
        failure.lost_process().is_some() || !self.lost(again).is_empty()
    }

    /// The processes that were lost, as far as this one knows.
    fn lost(&self, again: &RejoinState<S>) -> Vec<u32> {
        // All connections have ended since this process left.
        again.lost.clone().unwrap_or_else(|| self.ranks.peers().lost())
    }

    /// Joins the run again after another process was lost, when that one has been started again with its
    /// number. All processes that are left do this. They stop their ranks, connect again at the same address,
    /// and build their stages anew. Then all take back the newest weights and optimizer state that all of
    /// them had at one step: each process keeps its own in memory, and the ones of the process before it. The
    /// training goes on with that step, with the same bits.
    ///
    /// It needs a [`World`] that was joined with
    /// [`Membership::replaces`](crate::fabric::Membership::replaces), and
    /// [`PipelineBuilder::restarts`](crate::pipeline::PipelineBuilder::restarts).
    ///
    /// ```no_run
    /// # use pipewright::{Pipeline, Result, stages::Sequential};
    /// # fn train(pipeline: &mut Pipeline<Sequential>) -> Result<()> {
    /// while pipeline.next_step() < 1000 {
    ///     match pipeline.step() {
    ///         Ok(report) => println!("step {}: {}", report.step, report.loss),
    ///         Err(failure) if pipeline.may_rejoin(&failure) => {
    ///             if pipeline.rejoin()?.step.is_none() {
    ///                 pipeline.load("a checkpoint")?;
    ///             }
    ///         }
    ///         Err(failure) => return Err(failure),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RestartError`] if this pipeline cannot, or if no process was lost; otherwise as for [`World::join`]
    /// and [`PipelineBuilder::launch`](crate::pipeline::PipelineBuilder::launch). It may be called again if
    /// another process was lost meanwhile: see [`Pipeline::may_rejoin`].
    pub fn rejoin(&mut self) -> Result<Rejoined> {
        let again = self.again.take().ok_or_else(RestartError::cannot_rejoin)?;
        let lost = self.lost(&again);
        if again.lost.is_none() {
            let Some(first) = lost.first() else {
                self.again = Some(again);
                return Err(RestartError::new(
                    "no other process of this run was lost, so there is nothing to join again: go on with it",
                )
                .into());
            };
            self.end_writing();
            self.ranks.leave(*first);
            self.loaders.clear();
        }
        self.join_again(again, Gone::lost(&lost))
    }

    /// Whether the run has fewer processes than at its beginning.
    pub(crate) fn is_shrunk(&self) -> bool {
        self.again.as_ref().is_some_and(|again| self.processes() < again.size.whole)
    }

    /// How many processes there are, how many there were when the run began, and how many are needed.
    pub(crate) fn sizes(&self) -> [u32; 3] {
        let size = self.again.as_ref().map(|again| &again.size);
        let all = self.processes();
        size.map_or([all; 3], |size| [all, size.whole, size.fewest])
    }

    /// The number with which a process was started.
    pub(crate) fn started_as(&self, process: u32) -> Option<u32> {
        self.again.as_ref()?.size.numbers.get(process as usize).copied()
    }

    /// With all other processes: whether somebody waits who can take the place of a process without which the
    /// run goes on. `heeds`: whether this process wants to know.
    pub(crate) fn has_newcomers(&mut self, heeds: bool) -> Result<bool> {
        if !self.is_shrunk() {
            return Ok(false);
        }
        let comes = self.again.as_ref().is_some_and(|again| again.size.newcomers.load(Ordering::Relaxed));
        self.any(heeds && comes)
    }

    /// With all other processes, before a step: a process that shall leave, while the others go on without
    /// it. `own`: what this process wants.
    pub(crate) fn who_leaves(&mut self, own: Wish) -> Result<Leaving> {
        if self.again.is_none() {
            return Ok(Leaving::Nobody);
        }
        let [all, _, fewest] = self.sizes();
        self.begin(format_args!("question who leaves"))?;
        let wishes = self.ranks.spread("agreeing who leaves", Ok(vec![(own, fewest)]));
        let wishes = self.note(wishes)?;
        // Process 0 says how many are needed.
        let ends = all <= wishes[0].1 || wishes.iter().any(|(wish, _)| *wish == Wish::TheEnd);
        let leaver = wishes.iter().position(|(wish, _)| *wish == Wish::ToLeave).filter(|_| !ends);
        let Some(leaver) = leaver.map(|process| process as u32) else {
            return Ok(Leaving::Nobody);
        };
        let mesh = self.ranks.mesh();
        if all > 2 && mesh.world().any(|rank| mesh.place(rank).device != Device::Cpu) {
            let why = "NCCL connects one rank of a process for each GPU, and some would have more";
            return Ok(Leaving::NoRoom(leaver, why.to_owned()));
        }
        let crew = self.crew.as_ref().filter(|crew| crew.process != leaver);
        let fits = match (&self.fits, crew) {
            // All begin with the cut at launch, and then return to the one of now.
            (Some(fits), Some(crew)) => {
                let (left, cut) = (crew.without(leaver), self.cut.as_ref().map(|(cut, _)| cut));
                fits(Some(&left), None).and_then(|()| match cut {
                    Some(_) => fits(Some(&left), cut),
                    None => Ok(()),
                })
            }
            _ => Ok(()),
        };
        let refused = Vec::from_iter(fits.err().map(|error| error.to_string()));
        let refused = self.ranks.spread("looking for room", Ok(refused));
        Ok(match self.note(refused)?.into_iter().next() {
            Some(why) => Leaving::NoRoom(leaver, why),
            None => Leaving::Process(leaver),
        })
    }

    /// With all other processes, before a step: this process leaves. The others [regroup](Self::regroup).
    pub(crate) fn leave(&mut self) -> Result<()> {
        self.hand_over()?;
        self.end_writing();
        Ok(())
    }

    /// With all other processes, before a step: joins the run again without the process that has `left`, or
    /// together with those that wait. Nothing is repeated.
    pub(crate) fn regroup(&mut self, left: Option<u32>) -> Result<Rejoined> {
        self.hand_over()?;
        let again = self.again.take().ok_or_else(RestartError::cannot_rejoin)?;
        self.end_writing();
        // If nobody has left, the number of a process that the others do not wait for, since they leave too.
        self.ranks.leave(left.unwrap_or((self.process() + 1) % self.processes()));
        self.loaders.clear();
        let left = Vec::from_iter(left);
        self.join_again(again, Gone::left(&left))
    }

    fn join_again(&mut self, mut again: Box<RejoinState<S>>, gone: Gone<'_>) -> Result<Rejoined> {
        let lost = if gone.have_left { Vec::new() } else { gone.processes.to_vec() };
        let launched = (again.join)(gone, &again.interrupt).and_then(|world| again.launch_in(world, lost));
        match launched {
            Ok(mut pipeline) => {
                again.lost = None;
                pipeline.again = Some(again);
                pipeline.known_steps = self.known_steps;
                metrics::rejoined();
                *self = pipeline;
                Ok(self.rejoined.clone().unwrap_or_default())
            }
            Err(error) => {
                again.lost = Some(error.lost_process().into_iter().collect());
                self.again = Some(again);
                Err(error)
            }
        }
    }

    /// Whether this process has left its run, and has not joined it again.
    pub(crate) fn has_left(&self) -> bool {
        self.again.as_ref().is_some_and(|again| again.lost.is_some())
    }

    /// The oldest step to which the processes can return from memory.
    pub(crate) fn oldest_kept(&self) -> u64 {
        let again = self.again.as_ref();
        again.map_or(u64::MAX, |again| again.snapshots.oldest())
    }

    /// How often processes may be replaced.
    pub(crate) fn most_rejoins(&self) -> u32 {
        self.again.as_ref().map_or(0, |again| again.spec.restarts.most)
    }

    /// How long a run waits for a process that takes the place of a lost one.
    pub(crate) fn waits(&self) -> Duration {
        self.again.as_ref().map_or(Duration::ZERO, |again| again.waits)
    }

    /// What process 0 brings. Every process receives it.
    ///
    /// # Errors
    /// If any process brings an error: the first cause, on every process.
    pub(crate) fn of_first<T: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        own: Result<T>,
    ) -> Result<T> {
        self.begin(format_args!("{what}"))?;
        let all = self.ranks.spread(what, own.map(|own| vec![own]));
        Ok(self.note(all)?.swap_remove(0))
    }

    /// What any process brings: of the first one that has it. Every process receives it.
    ///
    /// # Errors
    /// As for [`Pipeline::of_first`].
    pub(crate) fn any_of<T: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        own: Result<Option<T>>,
    ) -> Result<Option<T>> {
        self.begin(format_args!("{what}"))?;
        let all = self.ranks.spread(what, own.map(Vec::from_iter));
        Ok(self.note(all)?.into_iter().next())
    }

    /// How this process came into its run, if that had begun to train before.
    pub fn rejoined(&self) -> Option<&Rejoined> {
        self.rejoined.as_ref()
    }
}
