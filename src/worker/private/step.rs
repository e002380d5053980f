//! The end of a private step: each micro-batch's gradient is clipped, and noise is added to the sum.

use pipewright_stages::rng;
use pipewright_stages::{Shard, Stage};

use super::clipping::{Square, Told};
use crate::error::Result;
use crate::id::{MicroBatch, StageId};
use crate::privacy::Privacy;
use crate::worker::Worker;
use crate::worker::partials::visit;
use crate::worker::progress::WaitsFor;

impl<S: Stage> Worker<S> {
    /// Clips the gradient of each micro-batch over all stages and shards, and adds the gradients in their
    /// groups. Then the sums over the replicas begin.
    pub(in crate::worker) fn clip(&mut self, privacy: Privacy) -> Result<()> {
        self.tell_micro_batches();
        let mut clipping = std::mem::take(&mut self.clipping);
        let transport = self.transport.as_mut();
        let all = self.plan.groups.micro_batches();
        self.meter.wait(WaitsFor::All, || clipping.exchange(transport, all))?;
        let factors = clipping.factors(privacy.clip);
        for micro_batches in self.share.micro_batches_of_groups() {
            let last = MicroBatch(micro_batches.end - 1);
            let ended = self.share.ends_group(last).expect("it is the last of its group");
            let factors = &factors[micro_batches.start as usize..micro_batches.end as usize];
            for chunk in &mut self.chunks {
                for partials in [&mut chunk.partials, &mut chunk.deferred] {
                    partials.add_apart(&mut chunk.stage, ended, factors, &mut self.together)?;
                }
            }
        }
        self.clipping = clipping;
        let stages: Vec<StageId> = self.chunks.iter().map(|chunk| chunk.id).collect();
        stages.into_iter().try_for_each(|stage| self.start_reduction(stage))
    }

    /// The weights of this replica's micro-batches, and the squares of their gradients here.
    fn tell_micro_batches(&mut self) {
        let clipping = &mut self.clipping;
        clipping.begin();
        let is_first_shard = self.at.shard == 0;
        let first = self.share.first();
        if let Some(loss) = self.loss.as_mut().filter(|_| is_first_shard) {
            for (micro_batch, score) in (0..).zip(&self.scores) {
                let score = score.unwrap_or_else(|| loss.finish(micro_batch));
                clipping.tell(Told::Weight(MicroBatch(first + micro_batch), score.weight));
            }
        }
        let own = self.schedule.micro_batches();
        for chunk in &mut self.chunks {
            let (stage, mut index) = (chunk.id, 0);
            chunk.stage.visit_gradients(&mut |parameter| {
                // All shards have the same gradient of what is not divided.
                let is_told = is_first_shard || parameter.shard() != Shard::WHOLE;
                let pieces = if is_told { parameter.pieces().count() } else { 0 };
                for (place, piece) in (0..own).flat_map(|own| (0..pieces).map(move |piece| (own, piece))) {
                    let micro_batch = MicroBatch(first + place);
                    parameter.apart_squares(place as usize, piece, |sum, square| {
                        clipping.tell(Told::Square(Square { micro_batch, stage, index, sum, square }));
                    });
                }
                index += 1;
            });
        }
    }

    /// Adds noise to the sum of the clipped gradients, where this replica updates it. All layouts add the
    /// same.
    pub(in crate::worker) fn add_noise(&mut self, privacy: Privacy, step: u64) -> Result<()> {
        let deviation = privacy.noise * privacy.clip;
        if deviation == 0.0 {
            return Ok(());
        }
        self.chunks.iter_mut().try_for_each(|chunk| {
            visit(&mut chunk.stage, |_, parameter| {
                let key = rng::key(privacy.seed, format_args!("noise of {}", parameter.name()));
                parameter.add_noise(key, step, deviation);
                Ok(())
            })
        })
    }
}
