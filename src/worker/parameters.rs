//! A rank's parameters as the rest of the pipeline sees them, and those that are tied.

use pipewright_stages::{Parameter, Stage};

use super::Worker;
use crate::error::Result;
use crate::id::{Rank, StageId};

/// What is known of a parameter without its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// The name, as in a checkpoint.
    pub name: String,
    /// The dimensions, outermost first.
    pub dims: Vec<usize>,
    /// Where it lives.
    pub site: Site,
}

/// Where a parameter lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The rank of the stage.
    pub rank: Rank,
    /// The stage.
    pub stage: StageId,
    /// The parameter's place in the stage.
    pub index: usize,
}

/// One parameter that several layers hold: gradients are summed over the sites in layer order, and the copies stay equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tie {
    /// The name all sites share.
    pub(crate) name: String,
    /// Two or more sites, in layer order. The first one's rank adds up.
    pub(crate) sites: Vec<Site>,
}

impl Tie {
    /// The sites on one rank.
    fn on(&self, rank: Rank) -> impl Iterator<Item = Site> {
        self.sites.iter().copied().filter(move |site| site.rank == rank)
    }
}

/// Which numbers of a tied parameter are meant.
#[derive(Clone, Copy)]
enum Part {
    Value,
    Gradient,
}

impl<S: Stage> Worker<S> {
    /// This rank's parameters, in layer order.
    pub(crate) fn parameters(&mut self) -> Vec<ParameterInfo> {
        let rank = self.rank;
        let describe = |(index, parameter): (usize, &mut Parameter), stage| ParameterInfo {
            name: parameter.name().to_owned(),
            dims: parameter.dims().to_vec(),
            site: Site { rank, stage, index },
        };
        self.slots
            .iter_mut()
            .flat_map(|slot| {
                let stage = slot.id;
                slot.stage
                    .parameters()
                    .into_iter()
                    .enumerate()
                    .map(move |entry| describe(entry, stage))
            })
            .collect()
    }

    /// Takes note of the tied parameters; their copies start from the first site's weights.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`].
    pub(crate) fn tie(&mut self, ties: Vec<Tie>) -> Result<()> {
        self.ties = ties;
        self.for_each_tie(|worker, tie| {
            let first = tie.sites[0];
            if first.rank == worker.rank {
                let value = worker.numbers(first, Part::Value).clone();
                worker.spread(tie, Part::Value, &value)
            } else {
                worker.take_spread(tie, Part::Value)
            }
        })
    }

    pub(super) fn sum_tied_gradients(&mut self) -> Result<()> {
        self.for_each_tie(|worker, tie| {
            if tie.sites[0].rank == worker.rank {
                let total = worker.total_gradient(tie)?;
                return worker.spread(tie, Part::Gradient, &total);
            }
            for site in tie.on(worker.rank) {
                let bytes = bytemuck::cast_slice(worker.numbers(site, Part::Gradient)).to_vec();
                worker.transport.send_bytes(tie.sites[0].rank, bytes)?;
            }
            worker.take_spread(tie, Part::Gradient)
        })
    }

    /// Runs over the ties this rank has a part in, in the one order all ranks share.
    fn for_each_tie(&mut self, mut action: impl FnMut(&mut Self, &Tie) -> Result<()>) -> Result<()> {
        let ties = std::mem::take(&mut self.ties);
        let mine = |tie: &&Tie| tie.sites.iter().any(|site| site.rank == self.rank);
        let involved: Vec<&Tie> = ties.iter().filter(mine).collect();
        let result = involved.into_iter().try_for_each(|tie| action(self, tie));
        self.ties = ties;
        result
    }

    /// The gradients of all sites, added in layer order.
    fn total_gradient(&mut self, tie: &Tie) -> Result<Vec<f32>> {
        let mut total = self.numbers(tie.sites[0], Part::Gradient).clone();
        for &site in &tie.sites[1..] {
            if site.rank == self.rank {
                add(&mut total, self.numbers(site, Part::Gradient));
            } else {
                let transport = &mut self.transport;
                let bytes = self.meter.wait(|| transport.recv_bytes(site.rank))?;
                add(&mut total, &to_numbers(&bytes));
            }
        }
        Ok(total)
    }

    /// Gives the first site's numbers to all other sites.
    fn spread(&mut self, tie: &Tie, part: Part, numbers: &[f32]) -> Result<()> {
        let mut told = vec![self.rank];
        for &site in &tie.sites {
            if site.rank == self.rank {
                self.numbers(site, part).copy_from_slice(numbers);
            } else if !told.contains(&site.rank) {
                told.push(site.rank);
                self.transport
                    .send_bytes(site.rank, bytemuck::cast_slice(numbers).to_vec())?;
            }
        }
        Ok(())
    }

    fn take_spread(&mut self, tie: &Tie, part: Part) -> Result<()> {
        let transport = &mut self.transport;
        let bytes = self.meter.wait(|| transport.recv_bytes(tie.sites[0].rank))?;
        let numbers = to_numbers(&bytes);
        for site in tie.on(self.rank) {
            self.numbers(site, part).copy_from_slice(&numbers);
        }
        Ok(())
    }

    fn numbers(&mut self, site: Site, part: Part) -> &mut Vec<f32> {
        let parameter = self.slot(site.stage).parameter(site.index);
        match part {
            Part::Value => &mut parameter.value,
            Part::Gradient => &mut parameter.grad,
        }
    }
}

fn add(total: &mut [f32], more: &[f32]) {
    for (number, other) in total.iter_mut().zip(more) {
        *number += other;
    }
}

fn to_numbers(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|chunk| f32::from_ne_bytes(*chunk))
        .collect()
}
