//! Our side of a comparison: starting weights and batches for the peer, and a timed run.

use std::path::{Path, PathBuf};

use pipewright::fabric::World;
use pipewright::id::{MicroBatch, Rank};
use pipewright::plan::simulate;
use pipewright::schedule::LinkKind;
use pipewright::stages::loss::CrossEntropy;
use pipewright::stages::optimizer::{AdamW, Decay, LearningRate};
use pipewright::stages::{Kind as Numbers, Place, Recompute, Stage, Tensor, recompute};
use pipewright::{Error, Pipeline, StepReport};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

use crate::sizes::{Kind, Result, Size};

/// Schedules whose names differ: the peer's name, and ours.
const NAMES: [(&str, &str); 6] = [
    ("1F1B", "1f1b"),
    ("GPipe", "gpipe"),
    ("Interleaved1F1B", "interleaved-1f1b"),
    ("InterleavedZeroBubble", "interleaved-zb"),
    ("ZBVZeroBubble", "zb-v"),
    ("DualPipeV", "dualpipe-v"),
];

/// A tensor for the peer: name, type, dimensions and bytes.
type Named = (String, Dtype, Vec<usize>, Vec<u8>);

/// The settings of a run.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) size: Size,
    /// A file of text, or a folder with labelled images.
    pub(crate) data: PathBuf,
    pub(crate) steps: u64,
    /// Ranks of a replica.
    pub(crate) ranks: u32,
    pub(crate) replicas: u32,
    pub(crate) groups: u32,
    pub(crate) sharded: bool,
    pub(crate) shards: u32,
    pub(crate) shard_groups: u32,
    /// The place of each rank, or one for all.
    pub(crate) places: Vec<Place>,
    pub(crate) recompute: Recompute,
}

impl Given {
    /// Writes into a folder what the peer needs: `weights.safetensors` (with our names and layouts),
    /// `batches.safetensors` (`x` and `y` as bytes, `[steps, micro-batches, rows, ...]`) and `size.json`.
    pub(crate) fn prepare(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let mut stage = self.size.model()?.whole()?;
        let weights = stage.parameters().into_iter().map(|parameter| {
            let bytes = parameter.value.iter().flat_map(|number| number.to_le_bytes());
            let dims = parameter.dims().to_vec();
            (parameter.name().to_owned(), Dtype::F32, dims, bytes.collect())
        });
        let mut weights: Vec<Named> = weights.collect();
        // A tied weight appears twice: at both of its layers.
        weights.sort_by(|one, other| one.0.cmp(&other.0));
        weights.dedup_by(|one, other| one.0 == other.0);
        write(&folder.join("weights.safetensors"), &weights)?;
        write(&folder.join("batches.safetensors"), &self.batches()?)?;
        let path = folder.join("size.json");
        Ok(std::fs::write(&path, self.describe()?.to_string()).map_err(Error::io("write", &path))?)
    }

    fn batches(&self) -> Result<Vec<Named>> {
        let data = self.size.data(self.data.clone())?;
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for step in 0..self.steps {
            for micro_batch in 0..self.size.micro_batches {
                let (input, target) = data.micro_batch(step, MicroBatch(micro_batch))?;
                inputs.extend(as_bytes(&input));
                targets.extend(as_bytes(&target));
            }
        }
        let (input, target) = data.shapes();
        let named = |name: &str, dims: &[usize], bytes| {
            let batch = [self.steps as usize, self.size.micro_batches as usize];
            (name.to_owned(), Dtype::U8, [&batch, dims].concat(), bytes)
        };
        Ok(vec![named("x", input.dims(), inputs), named("y", target.dims(), targets)])
    }

    /// The size in numbers, and the cut for each of the peer's schedules for which the model has enough
    /// units.
    fn describe(&self) -> Result<Value> {
        let size = &self.size;
        let mut cuts = serde_json::Map::new();
        for (theirs, ours) in NAMES {
            if let Ok(plan) = size.plan(ours, self.ranks) {
                cuts.insert(theirs.to_owned(), json!(plan.counts));
            }
        }
        let model = match &size.kind {
            Kind::Gpt(gpt) => json!({
                "vocab": gpt.vocab, "dim": gpt.dim, "layers": gpt.layers, "heads": gpt.heads,
                "context": gpt.context, "tied": gpt.tied,
            }),
            Kind::Mlp(mlp) => json!({ "sizes": mlp.sizes }),
        };
        let products = size.products()?.into_iter().flat_map(|(_, products)| products);
        let products = products.map(
            |one| json!({ "shape": [one.m, one.k, one.n], "transposed": one.transposed, "flops": one.flops }),
        );
        Ok(json!({
            "model": model,
            "micro_batches": size.micro_batches,
            "targets": size.targets(),
            "flops": size.flops()?,
            "mfu_flops": size.mfu_flops(),
            "products": products.collect::<Vec<_>>(),
            "cuts": cuts,
        }))
    }

    /// Trains under a schedule. Returns the seconds and the loss of each step; the schedule's bubble,
    /// computed from the matrix products of its stages; the measured bubble; and the number of actions of the
    /// busiest rank. Without a world, all replicas are in this process.
    pub(crate) fn train(&self, schedule: &str, threads: usize, world: Option<World>) -> Result<Value> {
        let plan = self.size.plan(schedule, self.ranks)?;
        let bubble = simulate(plan.replicas.largest(), &plan.costs, LinkKind::Buffered)?.bubble_makespan;
        let stages = self.size.model()?.with_shard_groups(self.shard_groups)?.cut(&plan.counts)?;
        let stages = stages.into_iter().map(|stage| recompute(stage, self.recompute)).collect();
        let ranks = (0..plan.replicas.ranks()).map(Rank);
        let actions = ranks.map(|rank| plan.replicas.largest().actions(rank).len()).max();
        let builder = Pipeline::builder()
            .schedule(plan.replicas.largest().clone())
            .stages(stages)
            .places(self.places.clone())
            .loss(CrossEntropy::default().with_shard_groups(self.shard_groups)?)
            .data(self.size.data(self.data.clone())?)
            .optimizer(AdamW { decay: Decay::All, ..AdamW::default() })
            .learning_rate(LearningRate::Constant(3e-4))
            .threads_per_rank(threads)
            .replicas(self.replicas)
            .gradient_groups(self.groups)
            .shards(self.shards)
            .sharded(self.sharded);
        let builder = match world {
            Some(world) => builder.world(world),
            None => builder,
        };
        let mut pipeline = builder.launch()?;
        let reports = (0..self.steps).map(|_| pipeline.step());
        let reports = reports.collect::<pipewright::Result<Vec<_>>>()?;
        let each = |figure: fn(&StepReport) -> f64| reports.iter().map(figure).collect::<Vec<f64>>();
        Ok(json!({
            "schedule": pipeline.schedule().name(),
            "cut": plan.counts,
            "bubble": bubble,
            "measured_bubbles": each(StepReport::bubble),
            "reducing": each(StepReport::reducing),
            "actions": actions,
            "seconds": each(|report| report.seconds),
            "losses": each(|report| report.loss),
        }))
    }
}

/// Ids below 256, or shades of grey from 0 to 1, as one byte each.
fn as_bytes(tensor: &Tensor) -> Vec<u8> {
    match tensor.shape().kind() {
        Numbers::F32 => tensor.f32().iter().map(|grey| (grey * 255.0).round() as u8).collect(),
        Numbers::Ids => tensor.ids().iter().map(|&id| id as u8).collect(),
    }
}

fn write(path: &Path, tensors: &[Named]) -> Result<()> {
    let refuse = |error: safetensors::SafeTensorError| format!("{}: {error}", path.display());
    let views = tensors.iter().map(|(name, dtype, dims, bytes)| {
        let view = TensorView::new(*dtype, dims.clone(), bytes).map_err(refuse)?;
        Ok((name.as_str(), view))
    });
    let views = views.collect::<Result<Vec<_>>>()?;
    Ok(safetensors::serialize_to_file(views, None, path).map_err(refuse)?)
}
