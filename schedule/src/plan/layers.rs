//! What the layers of a model cost, before the model is cut into stages.

use std::ops::Range;

use crate::error::CostOf;
use crate::id::Rank;
use crate::plan::costs::check;
use crate::plan::{Costs, LinkCost, Queue, Reduction, StageCost};
use crate::schedule::{Pass, Placement, Schedule};
use crate::{Error, Result};

/// What one micro-batch costs in one layer. A layer is the smallest unit of a cut. Times in seconds, memory
/// in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerCost {
    /// The layer's name, such as `h.0.attn`.
    pub name: String,
    /// The cost of the layer as a stage of its own, with its backward in two halves. The last layer's forward
    /// includes the loss.
    pub cost: StageCost,
    /// Time of a whole backward. It may be less than the two halves take when other passes run between them.
    pub backward: f64,
    /// Bytes of `cost.saved` that the layer before keeps too. When both are in one stage, they count once.
    pub shared: f64,
    /// Bytes of its output: what a transfer carries when the model is cut behind this layer.
    pub output: f64,
}

/// What a model costs, layer by layer, and what a link between two ranks costs.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelCosts {
    layers: Vec<LayerCost>,
    measured: MeasuredShards,
    input: f64,
    link: LinkCost,
    /// Whether the transfers of a rank wait for each other, and reductions.
    queues: [bool; 2],
    recomputed: bool,
    host: Host,
    sharded: Option<Sharded>,
    replicated: Option<Replicated>,
    work: Vec<f64>,
    /// By rank. Empty: all ranks are equally fast.
    slowness: Vec<f64>,
}

/// How many shards a rank had when the costs of its layers were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredShards {
    /// Their number. The costs are those of one of them.
    pub count: u32,
    /// The seconds of a micro-batch, in all layers, in which a shard waited for the others. They are a part
    /// of the costs.
    pub waits: f64,
}

impl MeasuredShards {
    /// Layers that were not divided.
    pub const ONE: Self = Self { count: 1, waits: 0.0 };
}

/// What is offloaded, and how fast.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Host {
    /// The time of a byte to the host or back.
    per_byte: f64,
    /// The bytes of a micro-batch of data that are on the host in any case.
    data: f64,
}

/// What the shards of a model have and do.
#[derive(Clone, Debug, PartialEq)]
struct Sharded {
    /// Into how many parts the costs are divided.
    parts: f64,
    layers: Vec<ShardCost>,
    link: LinkCost,
}

/// What the replicas of a model add up.
#[derive(Clone, Debug, PartialEq)]
struct Replicated {
    /// The bytes of each layer's weights, and so of their gradients.
    weights: Vec<f64>,
    reduction: Reduction,
}

/// What a shard of a layer costs, besides its part of the layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShardCost {
    /// What it waits for in a forward, a backward-input and a backward-weight.
    pub messages: [ShardMessages; 3],
    /// The bytes that it keeps for backward-weight of all rows, and not of its part.
    pub pending: f64,
}

/// What the shards of a layer tell each other in a pass of a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShardMessages {
    /// How many messages a shard waits for.
    pub count: f64,
    /// Their bytes together.
    pub bytes: f64,
}

impl ShardMessages {
    /// The seconds in which a shard waits for them.
    pub fn time(self, link: LinkCost) -> f64 {
        self.count * link.latency + self.bytes * link.per_byte
    }
}

impl ModelCosts {
    /// The costs of a model's layers, in order. `input` is the size of one micro-batch of data in bytes.
    ///
    /// # Errors
    /// [`Error::Plan`] naming the layer and the cost that is negative or not a number. Also when there is no
    /// layer.
    pub fn new(layers: Vec<LayerCost>, input: f64, link: LinkCost) -> Result<Self> {
        if layers.is_empty() {
            return Err(Error::plan("there are costs of no layer"));
        }
        for LayerCost { name, cost, backward, shared, output } in &layers {
            let of = CostOf::Layer(name.clone());
            cost.check(&of)?;
            check([("backward", *backward), ("shared", *shared), ("output", *output)], &of)?;
        }
        check([("input", input)], &CostOf::All)?;
        check_link(link, &CostOf::Link)?;
        Ok(Self {
            layers,
            measured: MeasuredShards::ONE,
            input,
            link,
            queues: [false; 2],
            recomputed: false,
            host: Host::default(),
            sharded: None,
            replicated: None,
            work: Vec::new(),
            slowness: Vec::new(),
        })
    }

    /// The same model on ranks of which each takes this many times as long for its work, in rank order.
    ///
    /// # Errors
    /// [`Error::Plan`] when a number is not above 0.
    pub fn at_slowness(self, slowness: Vec<f64>) -> Result<Self> {
        match slowness.iter().find(|times| !(times.is_finite() && **times > 0.0)) {
            Some(times) => Err(Error::plan(format!("a rank cannot take {times} times as long"))),
            None => Ok(Self { slowness, ..self }),
        }
    }

    /// How many times as long this rank takes.
    pub fn slowness(&self, rank: usize) -> f64 {
        self.slowness.get(rank).copied().unwrap_or(1.0)
    }

    /// The same model. The passes of each layer take this many times as long, and so does its update.
    #[must_use]
    pub fn scaled(mut self, layers: &[f64]) -> Self {
        for (layer, times) in self.layers.iter_mut().zip(layers) {
            layer.cost = layer.cost.slower(*times);
            layer.backward *= times;
        }
        self
    }

    /// The same costs, which are those of one of several shards.
    ///
    /// # Errors
    /// [`Error::Plan`] when there is no shard, or when the waits are negative or not a number.
    pub fn of_shards(self, measured: MeasuredShards) -> Result<Self> {
        if measured.count == 0 {
            return Err(Error::plan("costs of no shard"));
        }
        check([("waits of shards", measured.waits)], &CostOf::All)?;
        Ok(Self { measured, ..self })
    }

    /// The same costs, where micro-batches are not equal: see [`Costs::uneven`].
    ///
    /// # Errors
    /// [`Error::Plan`] when a number is negative or not finite.
    pub fn uneven(self, work: Vec<f64>) -> Result<Self> {
        check(work.iter().map(|work| ("work of a micro-batch", *work)), &CostOf::All)?;
        Ok(Self { work, ..self })
    }

    /// How much work each micro-batch is, beside a mean one. Empty: all are equal.
    pub fn work(&self) -> &[f64] {
        &self.work
    }

    /// The same model in several replicas, which add up their gradients. `weights` are the bytes of each
    /// layer's weights, in `f32`.
    ///
    /// # Errors
    /// [`Error::Plan`] when a cost of the reduction is negative or not a number, or when there are not as
    /// many weights as layers.
    pub fn replicated(self, weights: Vec<f64>, reduction: Reduction) -> Result<Self> {
        if weights.len() != self.layers.len() {
            return Err(Error::plan(format!(
                "stages of [{}] layers do not make up the model's {}",
                weights.len(),
                self.layers.len()
            )));
        }
        check_link(reduction.link, &CostOf::Reduction)?;
        check([("add", reduction.add)], &CostOf::Reduction)?;
        Ok(Self { replicated: Some(Replicated { weights, reduction }), ..self })
    }

    /// The same model with its layers divided among this many shards: the costs of one of them. The work is
    /// divided evenly, and so is the memory, but for what each shard keeps whole. Costs that are those of a
    /// shard already stay as they are: see [`ModelCosts::of_shards`]. The weights of
    /// [`ModelCosts::replicated`] are the weights of a shard.
    ///
    /// # Errors
    /// [`Error::Plan`] when there are not costs for each layer, or when a cost of the link is negative or not
    /// a number.
    pub fn sharded(self, shards: u32, layers: Vec<ShardCost>, link: LinkCost) -> Result<Self> {
        if layers.len() != self.layers.len() {
            return Err(Error::plan(format!(
                "costs of shards of {} layers are not those of the model's {}",
                layers.len(),
                self.layers.len()
            )));
        }
        check_link(link, &CostOf::Link)?;
        let parts = f64::from(shards) / f64::from(self.measured.count);
        Ok(Self { sharded: Some(Sharded { parts, layers, link }), ..self })
    }

    /// The same model with another link between ranks.
    ///
    /// # Errors
    /// [`Error::Plan`] when a cost is negative or not a number.
    pub fn linked(self, link: LinkCost) -> Result<Self> {
        check_link(link, &CostOf::Link)?;
        Ok(Self { link, ..self })
    }

    /// The same model, where a rank's transfers wait for each other, its reductions do, or all of these for
    /// all. They wait where they go between hosts.
    #[must_use]
    pub fn queued(self, transfers: bool, reductions: bool) -> Self {
        Self { queues: [transfers, reductions], ..self }
    }

    /// The same model with recomputation or without. With it, stages keep only their inputs, and a backward
    /// runs the forward again.
    #[must_use]
    pub fn recomputed(self, recomputed: bool) -> Self {
        Self { recomputed, ..self }
    }

    /// The same model, where each byte of [offloaded](Schedule::offloading) activations takes `per_byte`
    /// seconds to the host or back. `data`: how many bytes of a micro-batch's data are on the host in any
    /// case, as ids are.
    ///
    /// # Errors
    /// [`Error::Plan`] when a cost is negative or not a number.
    pub fn with_host(self, per_byte: f64, data: f64) -> Result<Self> {
        check([("host: per_byte", per_byte), ("host: data", data)], &CostOf::All)?;
        let host = Host { per_byte, data };
        Ok(Self { host, ..self })
    }

    /// The same model with these bytes of each layer's optimizer state on the host. An update takes at least
    /// as long as they need to the device, by [`ModelCosts::with_host`]; meanwhile they go back.
    ///
    /// # Errors
    /// [`Error::Plan`] when there are not bytes for each layer, or when they are negative or not a number.
    pub fn with_state_on_host(mut self, bytes: &[f64]) -> Result<Self> {
        if bytes.len() != self.layers.len() {
            return Err(Error::plan(format!(
                "the state of {} layers is not that of the model's {}",
                bytes.len(),
                self.layers.len()
            )));
        }
        check(bytes.iter().map(|bytes| ("state on the host", *bytes)), &CostOf::All)?;
        for (layer, bytes) in self.layers.iter_mut().zip(bytes) {
            let copied = self.host.per_byte * bytes / f64::from(self.measured.count);
            layer.cost.update = layer.cost.update.max(copied);
        }
        Ok(self)
    }

    /// The same costs under this schedule. If the schedule has whole backwards only, the two halves are
    /// scaled to the time of a whole one.
    #[must_use]
    pub fn under(mut self, schedule: &Schedule) -> Self {
        let mut passes = (0..schedule.ranks()).flat_map(|rank| schedule.passes(Rank(rank)));
        if passes.any(|(pass, _)| pass == Pass::BackwardInput) {
            return self;
        }
        for layer in &mut self.layers {
            let cost = &mut layer.cost;
            let halves = cost.backward_input + cost.backward_weight;
            if halves > 0.0 {
                cost.backward_input *= layer.backward / halves;
                cost.backward_weight *= layer.backward / halves;
            }
        }
        self
    }

    /// The same costs in other units: `time` of the new units make a second, `memory` of them make a byte.
    #[must_use]
    pub fn in_units(mut self, time: f64, memory: f64) -> Self {
        for layer in &mut self.layers {
            let cost = &mut layer.cost;
            let times = [
                &mut cost.forward,
                &mut cost.backward_input,
                &mut cost.backward_weight,
                &mut cost.update,
                &mut cost.reduce,
                &mut cost.gather,
                &mut layer.backward,
            ];
            times.into_iter().for_each(|cost| *cost *= time);
            let sizes = [
                &mut cost.saved,
                &mut cost.pending,
                &mut cost.restored,
                &mut layer.shared,
                &mut layer.output,
            ];
            sizes.into_iter().for_each(|size| *size *= memory);
        }
        self.measured.waits *= time;
        self.input *= memory;
        self.link.latency *= time;
        self.link.per_byte *= time / memory;
        self.host.per_byte *= time / memory;
        self.host.data *= memory;
        if let Some(Sharded { layers, link, .. }) = &mut self.sharded {
            link.latency *= time;
            link.per_byte *= time;
            // Messages stay in bytes, as weights do.
            layers.iter_mut().for_each(|layer| layer.pending *= memory);
        }
        if let Some(Replicated { reduction, .. }) = &mut self.replicated {
            // Weights stay in bytes: their number says how they are added up.
            reduction.link.latency *= time;
            reduction.link.per_byte *= time;
            reduction.add *= time;
        }
        self
    }

    /// The layers, in order.
    pub fn layers(&self) -> &[LayerCost] {
        &self.layers
    }

    /// How many shards a rank had when the costs were measured.
    pub fn measured_shards(&self) -> MeasuredShards {
        self.measured
    }

    /// The size of one micro-batch of data, in bytes.
    pub fn input(&self) -> f64 {
        self.input
    }

    /// What a transfer between two ranks costs.
    pub fn link(&self) -> LinkCost {
        self.link
    }

    /// What a stage of these layers costs.
    ///
    /// # Panics
    /// When the model has no such layers.
    pub fn stage(&self, layers: Range<usize>) -> StageCost {
        let input = match layers.start {
            0 => self.input,
            start => self.output(start - 1),
        };
        let first = layers.start == 0;
        let mut sum = StageCost::NOTHING;
        for index in 0..layers.len() {
            let (cost, shared) = self.of_shard(layers.start + index);
            sum.forward += cost.forward;
            sum.backward_input += cost.backward_input;
            sum.backward_weight += cost.backward_weight;
            sum.update += cost.update;
            sum.reduce += cost.reduce;
            sum.gather += cost.gather;
            sum.saved += cost.saved - if index > 0 { shared } else { 0.0 };
            sum.pending += cost.pending;
            sum.restored += cost.restored;
        }
        sum.saved = sum.saved.max(0.0);
        if let Some(Replicated { weights, reduction }) = &self.replicated {
            let bytes = weights[layers].iter().sum();
            sum.update *= reduction.share_of_update();
            sum.reduce += reduction.gradients(bytes);
            sum.gather += reduction.weights(bytes);
        }
        if self.recomputed {
            sum = sum.recomputed(input);
        }
        if first {
            sum.stays = self.host.data.min(sum.saved);
        }
        sum.copy = self.host.per_byte * sum.offloaded();
        sum
    }

    /// What a stage of these layers costs on a rank.
    ///
    /// # Panics
    /// When the model has no such layers.
    pub fn stage_on(&self, layers: Range<usize>, rank: usize) -> StageCost {
        self.stage(layers).slower(self.slowness(rank))
    }

    /// What a layer costs, or a shard of it, and what of its memory the layer before keeps too.
    fn of_shard(&self, index: usize) -> (StageCost, f64) {
        let LayerCost { cost, shared, .. } = &self.layers[index];
        let Some(Sharded { parts, layers, link }) = &self.sharded else {
            return (*cost, *shared);
        };
        let own = &layers[index];
        let [forward, input, weight] = own.messages.map(|messages| messages.time(*link));
        let whole = own.pending.min(cost.pending);
        let cost = StageCost {
            forward: cost.forward / parts + forward,
            backward_input: cost.backward_input / parts + input,
            backward_weight: cost.backward_weight / parts + weight,
            update: cost.update / parts,
            saved: cost.saved / parts,
            pending: (cost.pending - whole) / parts + whole,
            restored: cost.restored / parts,
            ..*cost
        };
        (cost, shared / parts)
    }

    /// The bytes of a layer's output, or of a shard of it.
    fn output(&self, index: usize) -> f64 {
        self.layers[index].output / self.sharded.as_ref().map_or(1.0, |sharded| sharded.parts)
    }

    /// The costs of stages with these numbers of layers. Every transfer costs what the largest one costs.
    ///
    /// # Errors
    /// [`Error::Plan`] when the counts do not add up to the model's layers, or when no pass takes time.
    pub fn stages(&self, counts: &[usize]) -> Result<Costs> {
        self.stages_of(counts, |layers, _| self.stage(layers))
    }

    /// The same, with each stage on its rank of the placement.
    ///
    /// # Errors
    /// As for [`ModelCosts::stages`].
    pub fn stages_on(&self, counts: &[usize], placement: &Placement) -> Result<Costs> {
        let ranks: Vec<usize> = placement.iter().map(|rank| rank.index()).collect();
        let rank = |stage: usize| ranks.get(stage).copied().unwrap_or_default();
        self.stages_of(counts, |layers, stage| self.stage_on(layers, rank(stage)))
    }

    fn stages_of(&self, counts: &[usize], cost: impl Fn(Range<usize>, usize) -> StageCost) -> Result<Costs> {
        let ends: Vec<usize> = counts
            .iter()
            .scan(0, |end, count| {
                *end += count;
                Some(*end)
            })
            .collect();
        if ends.last() != Some(&self.layers.len()) {
            return Err(Error::plan(format!(
                "stages of {counts:?} layers do not make up the model's {}",
                self.layers.len()
            )));
        }
        let stages = ends.iter().zip(counts).enumerate();
        let stages = stages.map(|(stage, (&end, count))| cost(end - count..end, stage));
        let cuts = &ends[..ends.len() - 1];
        let largest = cuts.iter().map(|&end| self.output(end.max(1) - 1)).fold(0.0, f64::max);
        let [comm, sending] = match cuts {
            [] => [0.0; 2],
            _ => [self.link.time(largest), self.link.per_byte * largest],
        };
        let [transfers, reductions] = self.queues;
        Costs::each(stages.collect(), comm)?
            .uneven(self.work.clone())?
            .queued(Queue { transfer: if transfers { sending } else { 0.0 }, reductions })
    }
}

fn check_link(link: LinkCost, of: &CostOf) -> Result<()> {
    check([("latency", link.latency), ("per_byte", link.per_byte)], of)
}
