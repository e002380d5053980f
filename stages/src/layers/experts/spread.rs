//! Experts that are divided among shards, and rows on their way from one shard to another.

use std::ops::Range;

use super::Routing;
use super::choice::Choice;
use super::placed::{Placed, few_sizes, take_on};
use crate::cpu::real::in_format;
use crate::error::Result;
use crate::shards::team::Each;
use crate::shards::{Division, Team};
use crate::tensor::Tensor;

/// The shards that the experts of a layer are divided among.
#[derive(Debug)]
pub(super) struct Spread {
    team: Team,
    /// The end of each shard's experts.
    ends: Vec<usize>,
    /// The choice of this shard's tokens.
    choice: Choice,
}

impl Spread {
    pub(super) fn new(team: &Team, experts: &Division) -> Self {
        Self { team: team.clone(), ends: experts.ends(), choice: Choice::default() }
    }

    pub(super) fn team(&self) -> &Team {
        &self.team
    }

    /// The experts of this shard.
    pub(super) fn own(&self) -> Range<usize> {
        self.experts_of(self.team.shard().index)
    }

    fn experts_of(&self, shard: u32) -> Range<usize> {
        let before = |shard: usize| shard.checked_sub(1).map_or(0, |last| self.ends[last]);
        before(shard as usize)..before(shard as usize + 1)
    }

    /// The rows of this shard's tokens, and their choice. The rows come from the shards that have the tokens'
    /// experts. In turn, each shard gets the rows of its tokens among `rows`, which are of this shard's
    /// experts.
    pub(super) fn bring(
        &mut self,
        all: &Placed<'_>,
        rows: &Tensor,
        routing: Routing,
    ) -> Result<(Tensor, Placed<'_>)> {
        let width = rows.shape().last();
        let part = |shard| {
            let tokens = self.team.rows_of(shard);
            let is_theirs = |(_, token): &(usize, &u32)| tokens.contains(&(**token as usize));
            let theirs = all.tokens().iter().enumerate().filter(is_theirs);
            let mut part = rows.beside(&[few_sizes(theirs.clone().count()), width])?;
            if let Some(gpu) = rows.gpu()? {
                let numbers: Vec<u32> = theirs.map(|(row, _)| row as u32).collect();
                if !numbers.is_empty() {
                    let there = gpu.upload(bytemuck::cast_slice(&numbers))?;
                    take_on(&gpu, &part, rows, (there.at(), numbers.len()))?;
                }
                return Ok(part);
            }
            in_format!(rows.dtype(), N => {
                let to = part.numbers_mut::<N>().chunks_exact_mut(width);
                for (to, (row, _)) in to.zip(theirs) {
                    to.copy_from_slice(&rows.numbers::<N>()[row * width..][..width]);
                }
            });
            Ok(part)
        };
        let given: Result<Each> = (0..self.team.shard().of).map(part).collect();
        all.take_choice(&mut self.choice, self.team.own_rows());
        let places = |shard| self.choice.rows_of(self.experts_of(shard));
        let taken = self.team.each(given?, |shard| [few_sizes(places(shard).len()), width])?;
        let mut own = rows.beside(&[self.team.own_rows().len() * routing.chosen, width])?;
        for (shard, part) in (0..).zip(&taken) {
            own.put_rows(places(shard), part)?;
        }
        Ok((own, Placed::of(rows, &mut self.choice, routing)?))
    }

    /// The numbers of the rows of all experts, from those of each shard's.
    pub(super) fn gather(&self, all: &Placed<'_>, own: Tensor) -> Result<Tensor> {
        let mut whole = own.beside(&[all.count(), 1])?;
        let rows = |shard| all.rows_of(self.experts_of(shard));
        let parts = self.team.all(own, |shard| [few_sizes(rows(shard).len()), 1])?;
        for (shard, part) in (0..).zip(parts) {
            whole.put_rows(rows(shard), &part)?;
        }
        Ok(whole)
    }
}
