//! Cross-entropy over classes that are divided among shards. Each shard has some classes of all rows. No
//! shard has all classes of a row.

use std::ops::Range;

use crate::cpu::parts::{By, EXP, cut};
use crate::cpu::real::Real;
use crate::cpu::softmax::{self, by_tree};
use crate::error::Result;
use crate::pool::Buffer;
use crate::shards::team::Each;
use crate::shards::{Division, Team};
use crate::tensor::Tensor;

/// This shard's classes, and the others'.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    team: Team,
    /// The end of each shard's classes.
    ends: Vec<usize>,
    /// The classes here.
    own: Range<usize>,
    /// The groups of classes here in which sums are added up, counted from the first class here.
    groups: Vec<Range<usize>>,
    /// How many classes there are in all shards.
    all: usize,
}

/// What the loss of a row needs: see [`super::cross_entropy`].
pub(crate) type Row = [f32; 5];

impl Classes {
    /// The classes of a shard.
    pub(crate) fn new(team: Team, division: &Division) -> Self {
        let own = division.own().swap_remove(0);
        let groups = division.groups().into_iter().flatten().collect();
        Self { team, ends: division.ends(), own, groups, all: division.of_whole().len() }
    }

    /// How many classes there are, in all shards.
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// How many classes are here.
    pub(crate) fn here(&self) -> usize {
        self.own.len()
    }

    /// The first class here.
    pub(crate) fn first(&self) -> usize {
        self.own.start
    }

    /// The shards.
    pub(crate) fn team(&self) -> &Team {
        &self.team
    }

    /// Turns this shard's logits into the gradient, and writes what the loss of each row needs. Rows of the
    /// class `ignored` get a gradient of 0.
    pub(crate) fn run<N: Real>(
        &self,
        logits: &mut [N],
        rows: &mut [Row],
        ids: &[u32],
        (ignored, smoothing): (Option<u32>, f32),
    ) -> Result<()> {
        self.find_largest(logits, rows, ids)?;
        self.add_up(logits, rows, ids, smoothing)?;
        let minus = smoothing / self.all as f32;
        let all = ((By(logits, self.here()), By(&*rows, 1)), By(ids, 1));
        cut(all, EXP * self.here(), |_, ((logits, rows), ids)| {
            let mut room = Buffer::pooled(self.here());
            for ((logits, &[_, largest, total, ..]), &class) in
                logits.chunks_exact_mut(self.here()).zip(rows).zip(ids)
            {
                if ignored == Some(class) {
                    logits.fill(N::narrow(0.0));
                    continue;
                }
                N::widened(logits, &mut room, |row| {
                    self.groups.iter().for_each(|group| {
                        softmax::exp_and_sum_of(&mut row[group.clone()], largest);
                    });
                    softmax::scale(row, 1.0 / total, minus);
                    if let Some(at) = self.place(class) {
                        row[at] -= 1.0 - smoothing;
                    }
                });
            }
        });
        for [_, _, total, _, mean] in rows {
            *total = total.ln();
            *mean /= self.all as f32;
        }
        Ok(())
    }

    /// The place of a class here, if it is here.
    fn place(&self, class: u32) -> Option<usize> {
        self.own.contains(&(class as usize)).then(|| class as usize - self.own.start)
    }

    /// Writes each row's logit of its class, and its largest logit.
    fn find_largest<N: Real>(&self, logits: &[N], rows: &mut [Row], ids: &[u32]) -> Result<()> {
        let mut own = Tensor::on_host(&[ids.len(), 2])?;
        let all = ((By(own.f32_mut(), 2), By(logits, self.here())), By(ids, 1));
        cut(all, self.here(), |_, ((found, logits), ids)| {
            let rows = found.as_chunks_mut().0.iter_mut().zip(logits.chunks_exact(self.here()));
            for ((found, logits), &class) in rows.zip(ids) {
                let logit = self.place(class).map_or(0.0, |at| logits[at].wide());
                *found = [logit, softmax::max(logits)];
            }
        });
        let found = self.team.all(own, |_| [ids.len(), 2])?;
        for (index, (row, &class)) in rows.iter_mut().zip(ids).enumerate() {
            let of = |shard: usize| pair::<2>(&found[shard], index);
            let owner = self.ends.partition_point(|end| *end <= class as usize);
            // The classes of rows that do not count may be any.
            row[0] = of(owner.min(found.len() - 1))[0];
            row[1] = (0..found.len())
                .map(|shard| of(shard)[1])
                .fold(f32::NEG_INFINITY, |all, one| if one > all { one } else { all });
        }
        Ok(())
    }

    /// Writes each row's sum of `exp(logit - largest)`, whether the class has the largest logit, and with
    /// smoothing the sum of the distances of the logits from the class's.
    fn add_up<N: Real>(&self, logits: &[N], rows: &mut [Row], ids: &[u32], smoothing: f32) -> Result<()> {
        let mut own = Tensor::on_host(&[ids.len(), 3])?;
        let all = ((By(own.f32_mut(), 3), By(logits, self.here())), (By(ids, 1), By(&*rows, 1)));
        cut(all, EXP * self.here(), |_, ((sums, logits), (ids, rows))| {
            let mut room = Buffer::pooled(self.here());
            let all = sums.as_chunks_mut().0.iter_mut().zip(logits.chunks_exact(self.here()));
            for ((sums, logits), (&class, &[logit, largest, ..])) in all.zip(ids.iter().zip(rows)) {
                crate::cpu::real::convert(&mut room, logits);
                let at = (class as usize).clamp(self.own.start, self.own.end) - self.own.start;
                // Of equal logits the first counts as the largest, as in argmax.
                let (before, after) = room.split_at(at);
                let right =
                    before.iter().all(|&other| other < logit) && after.iter().all(|&other| other <= logit);
                let groups = 0..self.groups.len();
                let mean = match smoothing {
                    0.0 => 0.0,
                    _ => by_tree(groups.clone(), &mut |group| {
                        softmax::sum_of_group(&room[self.groups[group].clone()], logit)
                    }),
                };
                let total = by_tree(groups, &mut |group| {
                    softmax::exp_and_sum_of(&mut room[self.groups[group].clone()], largest)
                });
                *sums = [total, f32::from(u8::from(right)), mean];
            }
        });
        let all: Each = self.team.all(own, |_| [ids.len(), 3])?;
        for (index, row) in rows.iter_mut().enumerate() {
            let of = |shard: usize| pair::<3>(&all[shard], index);
            row[2] = by_tree(0..all.len(), &mut |shard| of(shard)[0]);
            row[3] = (0..all.len()).map(|shard| of(shard)[1]).fold(1.0, f32::min);
            row[4] = by_tree(0..all.len(), &mut |shard| of(shard)[2]);
        }
        Ok(())
    }
}

/// The numbers of a row.
fn pair<const COUNT: usize>(rows: &Tensor, index: usize) -> [f32; COUNT] {
    rows.f32().as_chunks().0[index]
}
