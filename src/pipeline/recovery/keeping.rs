//! When processes keep snapshots for each other, and how they return to one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use pipewright_stages::{Stage, optimizer};

use super::snapshots::{Inventory, Layout, Snapshot, Snapshots};
use crate::actor::Job;
use crate::error::{RestartError, Result};
use crate::fabric::{Item, Stamp};
use crate::id::{Rank, WorldRank};
use crate::pipeline::recut::cut::Cut;
use crate::pipeline::running::Pipeline;
use crate::worker::ParameterInfo;

/// What processes return to after one was lost.
pub(super) enum TakenBack {
    /// To this step.
    Step(u64),
    /// They have nothing of one step.
    Nothing,
    /// They had not begun to train.
    NotBegun,
}

impl<S: Stage> Pipeline<S> {
    /// The run has begun: a process that takes the place of another has to ask the others where it is.
    pub(crate) fn has_begun(&mut self) {
        if let Some(again) = &mut self.again {
            again.snapshots.began = true;
        }
    }

    /// Before a step: makes a snapshot if one is due, and gives it to the next process.
    pub(in crate::pipeline) fn keep_if_due(&mut self) -> Result<()> {
        let Some(mut again) = self.again.take() else {
            return Ok(());
        };
        let kept = match again.snapshots.is_due(self.next_step) {
            true => self.keep(&mut again.snapshots),
            false => Ok(()),
        };
        self.again = Some(again);
        self.note(kept)
    }

    pub(super) fn keep(&mut self, snapshots: &mut Snapshots) -> Result<()> {
        let step = self.next_step;
        snapshots.began = true;
        self.begin(format_args!("snapshot before step {step}"))?;
        if let Some(newest) = snapshots.own.last().map(|newest| newest.stamp) {
            let mut before = self.ranks.mesh().ranks_of(self.before());
            let here = self.processes() == 1 || before.all(|rank| snapshots.kept.has(&(rank, newest)));
            match self.ranks.spread("keeping snapshots", Ok(vec![here]))?.contains(&false) {
                false => snapshots.forget_but(newest),
                // The newest one is still on its way to one of them. Both are kept, and no third one.
                true if snapshots.own.len() > 1 => return Ok(()),
                true => {}
            }
        }
        let stamp = Stamp { era: snapshots.era, step };
        let own: Vec<WorldRank> = self.ranks.mesh().ranks_of(self.process()).collect();
        let made: Vec<_> = own.iter().map(|_| Arc::<OnceLock<Arc<Vec<u8>>>>::default()).collect();
        let place = |rank| own.iter().position(|own| *own == rank).unwrap_or_default();
        self.ranks.ask_all("making snapshots", |rank| {
            let made = Arc::clone(&made[place(rank)]);
            Job::snap(move |snapshot| drop(made.set(snapshot)))
        })?;
        let ranks = own.iter().zip(&made).map(|(rank, made)| Item {
            label: (*rank, stamp),
            bytes: Arc::clone(made.get().expect("the rank has answered")),
        });
        let snapshot = Snapshot { stamp, ranks: ranks.collect() };
        self.give(self.after(), &snapshot.ranks)?;
        snapshots.own.push(snapshot);
        Ok(())
    }

    /// With all other processes, before a step: makes a snapshot. Returns when each process also has the
    /// snapshot of the process before it.
    pub(super) fn hand_over(&mut self) -> Result<()> {
        let mut again = self.again.take().ok_or_else(RestartError::cannot_rejoin)?;
        let handed = self.keep_and_wait(&mut again.snapshots);
        self.again = Some(again);
        self.note(handed)
    }

    fn keep_and_wait(&mut self, snapshots: &mut Snapshots) -> Result<()> {
        let what = "handing over a snapshot";
        loop {
            if let Some(newest) = snapshots.own.last().map(|newest| newest.stamp)
                && self.processes() > 1
            {
                self.begin(format_args!("{what}"))?;
                let (mut before, peers) = (self.ranks.mesh().ranks_of(self.before()), self.ranks.peers());
                let came = self
                    .ranks
                    .during(what, || before.try_for_each(|rank| peers.await_kept(&(rank, newest)).map(drop)));
                self.ranks.spread(what, came.map(|()| vec![()]))?;
            }
            if snapshots.is_of(self.next_step) {
                return Ok(());
            }
            self.keep(snapshots)?;
        }
    }

    /// After a process was lost: takes back the newest snapshots that are of one step. Returns that step.
    /// Without one, it returns whether any process has begun to train.
    pub(super) fn take_back(&mut self, snapshots: &mut Snapshots) -> Result<TakenBack> {
        self.begin(format_args!("return to a snapshot"))?;
        let all = self.ranks.spread("returning to a snapshot", Ok(vec![snapshots.has()]));
        let all = self.note(all)?;
        snapshots.era = all.iter().map(|has| has.era).max().unwrap_or_default();
        let Some(stamp) = self.newest_of_all(&all) else {
            snapshots.forget();
            snapshots.cut = (snapshots.era, None);
            return Ok(match all.iter().any(|has| has.began) {
                true => TakenBack::Nothing,
                false => TakenBack::NotBegun,
            });
        };
        // A process that has just changed its cut has forgotten the snapshots of the one before.
        let of_stamp = all.iter().map(|has| &has.cut).filter(|(since, _)| *since <= stamp.era);
        let cut =
            of_stamp.max_by_key(|(since, cut)| (*since, cut.is_some())).and_then(|(_, cut)| cut.clone());
        if let Some(cut) = &cut
            && !self.is_cut_to(cut, snapshots)?
        {
            snapshots.forget();
            snapshots.cut = (snapshots.era, None);
            return Ok(TakenBack::Nothing);
        }
        snapshots.cut = (stamp.era, cut);
        snapshots.began = true;
        snapshots.forget_but(stamp);
        let (process, after) = (self.process(), self.after());
        let has = |process: u32, rank| all[process as usize].ranks.contains(&(rank, stamp));
        for rank in self.ranks.mesh().world() {
            let (holder, mut all) = (self.ranks.mesh().process(rank), 0..self.processes());
            if !has(holder, rank) && all.find(|process| has(*process, rank)) == Some(process) {
                let item = snapshots.get(&(rank, stamp)).expect("the inventory has it");
                self.give(holder, &[item])?;
            }
        }
        let mine: Vec<WorldRank> = self.ranks.mesh().ranks_of(process).collect();
        let own = self.ranks.during("returning to a snapshot", || {
            let peers = self.ranks.peers();
            let own = |rank: &WorldRank| match snapshots.get(&(*rank, stamp)) {
                Some(item) => Ok(item),
                None => peers.await_kept(&(*rank, stamp)),
            };
            mine.iter().map(own).collect::<Result<Vec<Item>>>()
        });
        let own = self.note(own)?;
        // What others count on stays here until the next snapshot.
        let before = std::mem::replace(&mut snapshots.own, vec![Snapshot { stamp, ranks: own.clone() }]);
        let moved = before.into_iter().flat_map(|snapshot| snapshot.ranks);
        moved.filter(|item| !mine.contains(&item.label.0)).for_each(|item| snapshots.kept.put(item));
        let of = |rank| own.iter().find(|item| item.label.0 == rank);
        let taken = self.ranks.ask_all("returning to a snapshot", |rank| {
            let snapshot = of(rank).map(|item| Arc::clone(&item.bytes));
            Job::take_back(snapshot.unwrap_or_default())
        });
        self.note(taken)?;
        let missing: Vec<Item> = own.iter().filter(|item| !has(after, item.label.0)).cloned().collect();
        self.give(after, &missing)?;
        self.next_step = stamp.step;
        Ok(TakenBack::Step(stamp.step))
    }

    /// Cuts the model as the snapshots need it. Returns whether that is possible.
    fn is_cut_to(&mut self, cut: &Cut, snapshots: &Snapshots) -> Result<bool> {
        match self.recut_to(cut) {
            Ok(_) => {}
            Err(error) if self.ends_by(&error) => return Err(error),
            Err(_) => return Ok(false),
        }
        snapshots.allow(self.most_kept());
        // Nobody sends what another one does not allow yet.
        let allowed = self.ranks.spread("returning to a snapshot", Ok(vec![()]));
        self.note(allowed).map(|_| true)
    }

    /// The newest step for which the snapshots of all ranks are there.
    fn newest_of_all(&self, all: &[Inventory]) -> Option<Stamp> {
        let is_there = |stamp: &Stamp| {
            self.ranks.mesh().world().all(|rank| all.iter().any(|has| has.ranks.contains(&(rank, *stamp))))
        };
        let stamps = all.iter().flat_map(|has| &has.ranks).map(|label| label.1);
        stamps.collect::<BTreeSet<_>>().into_iter().rev().find(is_there)
    }

    /// Other weights have been loaded: no snapshot so far is of them.
    pub(in crate::pipeline) fn forget_kept(&mut self) {
        if let Some(again) = &mut self.again {
            again.snapshots.forget();
        }
    }

    /// The model is cut elsewhere. `before`: the layout before. Snapshots are of one layout. A pipeline that
    /// joins again is given the cut of its snapshots first, if it is known.
    pub(in crate::pipeline) fn keep_anew(&mut self, before: &Layout) {
        let now = self.layout();
        let cut = self.cut.as_ref().map(|(cut, _)| cut.clone());
        let is_known = cut.is_some() || now == self.layout_at_launch;
        let are_others = now != *before || !is_known;
        if are_others {
            self.forget_kept();
        }
        if let Some(again) = &mut self.again {
            let snapshots = &mut again.snapshots;
            let since = if are_others { snapshots.era } else { snapshots.cut.0 };
            (snapshots.paused, snapshots.cut) = (!is_known, (since, cut));
        }
    }

    /// Which part of the model each rank has.
    pub(in crate::pipeline) fn layout(&self) -> Layout {
        Layout::of(self.ranks.mesh(), &self.parameters)
    }

    /// Lets other processes give snapshots of ranks with these parameters.
    pub(in crate::pipeline) fn allow_snapshots(&self, parameters: &[ParameterInfo]) {
        if let Some(again) = &self.again {
            again.snapshots.allow(self.most_kept().max(self.most_of(parameters)));
        }
    }

    fn give(&self, process: u32, items: &[Item]) -> Result<()> {
        let peers = self.ranks.peers();
        items.iter().try_for_each(|item| peers.give(process, item.clone()))
    }

    /// The most bytes of a rank's snapshot.
    pub(super) fn most_kept(&self) -> u64 {
        self.most_of(&self.parameters)
    }

    /// The same for ranks with these parameters.
    fn most_of(&self, parameters: &[ParameterInfo]) -> u64 {
        // Each list of numbers has its length before it.
        let bytes = |bytes: usize| 8 + bytes.next_multiple_of(4) as u64;
        let mut ranks = BTreeMap::<Rank, u64>::new();
        for info in parameters {
            let states = optimizer::states(&*self.plan.optimizer, &info.name, &info.dims, &info.fused);
            let states = states.iter().map(|tensor| bytes(tensor.bytes()));
            // A frozen parameter may have a checksum instead.
            let value = bytes(4 * info.dims.iter().product::<usize>()).max(16);
            *ranks.entry(info.site.rank).or_default() += 8 + value + states.sum::<u64>();
        }
        ranks.into_values().max().unwrap_or_default()
    }

    fn before(&self) -> u32 {
        (self.process() + self.processes() - 1) % self.processes()
    }

    fn after(&self) -> u32 {
        (self.process() + 1) % self.processes()
    }
}
