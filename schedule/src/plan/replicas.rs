//! The replicas of a pipeline, each with the schedule of its share of the batch.

use std::ops::Range;

use crate::error::{Error, MeshError};
use crate::groups::GradientGroups;
use crate::mesh::MAX_RANKS;
use crate::plan::{sums, waiting_sums};
use crate::schedule::Schedule;

/// The replicas of a pipeline, each with the schedule of its micro-batches. Replicas with as many
/// micro-batches have the same schedule. So there are few different ones, however many replicas there are.
#[derive(Clone, Debug, PartialEq)]
pub struct Replicas {
    groups: GradientGroups,
    /// The different schedules. The first one has most micro-batches.
    schedules: Vec<Schedule>,
    /// By replica, the place of its schedule among the different ones.
    of: Vec<usize>,
}

impl Replicas {
    /// A single pipeline, which has the whole batch.
    pub fn one(schedule: Schedule) -> Self {
        Self {
            groups: GradientGroups::new(schedule.micro_batches(), 1),
            schedules: vec![schedule],
            of: vec![0],
        }
    }

    /// `replicas` replicas, at least one, which share the groups of a batch. `make` gives the schedule for a
    /// number of micro-batches. It is called once for each number, for the largest one first. A replica
    /// without micro-batches is [idle](Schedule::idle).
    ///
    /// Each schedule is as a pipeline runs it: with weight gradients in turn, and with reductions if there
    /// are several replicas.
    ///
    /// # Errors
    /// What `make` returns. [`MeshError::TooMany`] when there are more ranks in all than a run can have.
    pub fn new<E: From<Error>>(
        groups: GradientGroups,
        replicas: u32,
        mut make: impl FnMut(u32) -> Result<Schedule, E>,
    ) -> Result<Self, E> {
        // More cannot be, however few ranks each has.
        let largest = groups.largest_share(replicas.min(MAX_RANKS));
        let runs = |schedule: Schedule| schedule.in_turn().for_replicas(replicas);
        let (mut sizes, mut schedules) = (vec![largest], vec![runs(make(largest)?)]);
        limited(replicas, schedules[0].ranks())?;
        let mut of = Vec::new();
        for replica in 0..replicas.max(1) {
            let size = groups.share(replica, replicas).len() as u32;
            let at = sizes.iter().position(|&known| known == size);
            of.push(at.unwrap_or(sizes.len()));
            if at.is_none() {
                sizes.push(size);
                schedules.push(match size {
                    0 => schedules[0].idle(),
                    _ => runs(make(size)?),
                });
            }
        }
        Ok(Self { groups, schedules, of })
    }

    /// The same replicas with changed schedules.
    ///
    /// # Errors
    /// The first error of `change`.
    pub fn each<E>(self, change: impl FnMut(Schedule) -> Result<Schedule, E>) -> Result<Self, E> {
        let schedules = self.schedules.into_iter().map(change).collect::<Result<_, E>>()?;
        Ok(Self { schedules, ..self })
    }

    /// How many replicas there are.
    pub fn count(&self) -> u32 {
        self.of.len() as u32
    }

    /// How many ranks a pipeline has.
    pub fn ranks(&self) -> u32 {
        self.largest().ranks()
    }

    /// The schedule of a replica.
    ///
    /// # Panics
    /// When there is no such replica.
    pub fn schedule(&self, replica: u32) -> &Schedule {
        &self.schedules[self.of[replica as usize]]
    }

    /// The schedule of the replicas that have most micro-batches.
    pub fn largest(&self) -> &Schedule {
        &self.schedules[0]
    }

    /// A replica that has most micro-batches.
    pub fn slowest(&self) -> u32 {
        self.of.iter().position(|&at| at == 0).unwrap_or(0) as u32
    }

    /// The micro-batches of a replica, by their numbers in the batch.
    pub fn share(&self, replica: u32) -> Range<u32> {
        self.groups.share(replica, self.count())
    }

    /// The most micro-batches that a replica has.
    pub fn largest_share(&self) -> u32 {
        self.groups.largest_share(self.count())
    }

    /// How many micro-batches the batch has.
    pub fn micro_batches(&self) -> u32 {
        self.groups.micro_batches()
    }

    /// The most sums of gradients that wait for others on a rank, beside the one that grows: see
    /// [`waiting_sums`].
    pub fn waiting_sums(&self, in_place: bool) -> u32 {
        let of_replicas = (0..self.count()).map(|replica| {
            let own = self.groups.of_replica(replica, self.count());
            waiting_sums(self.groups, own, in_place)
        });
        of_replicas.max().unwrap_or(0)
    }

    /// How many sums of gradients all replicas make of their groups in a step.
    pub fn sums(&self) -> u32 {
        let of_replicas = (0..self.count()).map(|replica| self.groups.of_replica(replica, self.count()));
        of_replicas.map(sums).sum()
    }

    /// The different schedules, the one for the most micro-batches first, and how many replicas have each.
    pub fn schedules(&self) -> impl Iterator<Item = (&Schedule, u32)> {
        let count = |at: usize| self.of.iter().filter(|&&of| of == at).count() as u32;
        self.schedules.iter().enumerate().map(move |(at, schedule)| (schedule, count(at)))
    }

    /// The place of a replica's schedule among [`Replicas::schedules`].
    pub fn place(&self, replica: u32) -> usize {
        self.of[replica as usize]
    }
}

/// Refuses more ranks than a run can have, before anything is made for each of them.
fn limited(replicas: u32, ranks: u32) -> Result<(), Error> {
    let most = MAX_RANKS;
    match replicas.checked_mul(ranks).is_some_and(|all| all <= most) {
        true => Ok(()),
        false => Err(MeshError::TooMany { sizes: [replicas, ranks, 1], most }.into()),
    }
}
