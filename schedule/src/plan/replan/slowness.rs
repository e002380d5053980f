//! How slow the ranks of a run are, from what they measure.

use super::{Scheduling, Watch};
use crate::Result;
use crate::id::WorldRank;
use crate::mesh::Mesh;
use crate::plan::ModelCosts;

impl Watch {
    /// What layers cost in the shape of this scheduling, if that is known.
    pub(super) fn model_of(&self, scheduling: &Scheduling) -> Option<&ModelCosts> {
        let shape = scheduling.shape();
        let shaped = self.shaped.iter().find(|(of, _)| *of == shape).map(|(_, model)| model);
        // Estimates say how long layers take beside each other, which is the same in every shape.
        let is_any = shape == self.launched || self.by_estimates;
        shaped.or(Some(&self.model).filter(|_| is_any))
    }

    /// The ranks of the run in the shape of this scheduling.
    fn mesh(&self, scheduling: &Scheduling) -> Result<Mesh<()>> {
        let Scheduling { replicas, shards, .. } = scheduling;
        Ok(Mesh::uneven([replicas.count(), replicas.ranks(), *shards], 1, &[])?.mapped(self.map))
    }

    /// How many times as long each rank of the run takes as its layers should. `busy`: for how long each
    /// worked.
    pub(super) fn slowness(&self, busy: &[f64]) -> Result<Vec<f64>> {
        let scheduling = &self.scheduling;
        let mesh = self.mesh(scheduling)?;
        let Some(model) = self.model_of(scheduling) else {
            return Ok(vec![1.0; busy.len()]);
        };
        let model = model.clone().under(scheduling.replicas.largest()).recomputed(scheduling.recomputed);
        // By rank of the pipeline: for a micro-batch, and for an update.
        let mut costs = vec![[0.0; 2]; scheduling.replicas.ranks() as usize];
        for ((_, rank), layers) in self.stages() {
            let cost = model.stage(layers);
            let [work, update] = costs[rank];
            costs[rank] = [work + cost.work(), update + cost.update];
        }
        let share = |(rank, busy): (WorldRank, &f64)| {
            let at = mesh.coordinate(rank);
            let micro_batches = scheduling.replicas.schedule(at.replica).micro_batches();
            let [work, update] = costs[at.rank.index()];
            let expected = f64::from(micro_batches) * work + update;
            if *busy > 0.0 && expected > 0.0 { busy / expected } else { 1.0 }
        };
        Ok(mesh.world().zip(busy).map(share).collect())
    }

    /// The slowness of each rank of a pipeline with this scheduling: of the slowest replica and shard of it.
    /// `world`: the slowness of each rank of the run.
    pub(super) fn of_pipeline(&self, world: &[f64], scheduling: &Scheduling) -> Result<Vec<f64>> {
        let mesh = self.mesh(scheduling)?;
        let mut slowest = vec![0.0_f64; scheduling.replicas.ranks() as usize];
        for (rank, times) in mesh.world().zip(world) {
            let own = &mut slowest[mesh.coordinate(rank).rank.index()];
            *own = own.max(*times);
        }
        Ok(slowest.into_iter().map(|times| if times > 0.0 { times } else { 1.0 }).collect())
    }

    /// Takes what the layers of each rank cost from how slow the ranks of the pipeline are.
    pub(super) fn calibrate(&mut self, slowness: &[f64]) {
        let mut times = Vec::new();
        for ((_, rank), layers) in self.stages() {
            times.extend(layers.map(|_| slowness[rank]));
        }
        self.model = self.model.clone().scaled(&times);
        self.is_measured = true;
    }

    /// The stages with their ranks, and the layers of each.
    fn stages(&self) -> Vec<((usize, usize), std::ops::Range<usize>)> {
        let mut end = 0;
        let placement = self.scheduling.replicas.largest().placement();
        let stages = placement.iter().enumerate().zip(&self.counts);
        let stages = stages.map(|((stage, rank), count)| {
            let first = end;
            end += count;
            ((stage, rank.index()), first..end)
        });
        stages.collect()
    }
}
