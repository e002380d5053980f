//! Computes each layer's cost from many measurements.

use std::collections::{BTreeMap, HashMap};

use pipewright::stages::ForwardContext;

use super::observation::{Observation, Sample};
use pipewright::plan::LayerCost;
use pipewright::plan::StageCost;

/// Seconds, each with its step.
type Times = Vec<(u64, f64)>;

/// The measurements of each layer.
#[derive(Debug)]
pub(super) struct Samples {
    layers: Vec<Layer>,
    /// Seconds of each parameter's update.
    updates: HashMap<String, Times>,
    /// Seconds of each micro-batch in which a shard waited for the others.
    waits: Vec<f64>,
}

#[derive(Debug, Default)]
struct Layer {
    name: String,
    parameters: Vec<String>,
    forward: Times,
    loss: Times,
    backward_input: Times,
    backward_weight: Times,
    saved: u64,
    shared: u64,
    pending: u64,
    /// Whether backward-weight computes gradients.
    splits: bool,
    output: u64,
    /// The newest forward pass and the memory that it kept.
    kept: Option<(ForwardContext, Vec<(usize, u64)>)>,
}

impl Samples {
    /// No measurements yet, for layers of these names.
    pub(super) fn of(names: impl Iterator<Item = String>) -> Self {
        let layer = |name| Layer { name, ..Layer::default() };
        Self { layers: names.map(layer).collect(), updates: HashMap::new(), waits: Vec::new() }
    }

    /// Adds measurements. Times count only from step `first` on.
    pub(super) fn add(&mut self, samples: impl Iterator<Item = Sample>, first: u64) {
        for sample in samples {
            let Sample { layer: index, step, seconds, of } = sample;
            if let Observation::Forward { at, saved, .. } = &of {
                self.layers[index].shared = self.shared(index, *at, saved);
            }
            let layer = &mut self.layers[index];
            let times = match of {
                Observation::Parameters(names) => {
                    layer.parameters = names;
                    continue;
                }
                Observation::Forward { at, saved, output } => {
                    layer.saved = layer.saved.max(saved.iter().map(|block| block.1).sum());
                    layer.output = layer.output.max(output);
                    layer.kept = Some((at, saved));
                    &mut layer.forward
                }
                Observation::BackwardInput { pending } => {
                    layer.pending = layer.pending.max(pending);
                    &mut layer.backward_input
                }
                Observation::BackwardWeight { splits } => {
                    layer.splits |= splits;
                    &mut layer.backward_weight
                }
                Observation::Loss => &mut layer.loss,
                Observation::Update { parameter } => self.updates.entry(parameter).or_default(),
            };
            if step >= first {
                times.push((step, seconds));
            }
        }
    }

    /// Adds the seconds of a micro-batch in which a shard waited for the others.
    pub(super) fn add_waits(&mut self, seconds: f64) {
        self.waits.push(seconds);
    }

    /// The seconds of a micro-batch in which a shard waits for the others.
    pub(super) fn waits(&self) -> f64 {
        undisturbed(self.waits.iter().copied())
    }

    /// Bytes that a layer has kept of one forward pass and that the layer before it has kept too.
    fn shared(&self, layer: usize, at: ForwardContext, saved: &[(usize, u64)]) -> u64 {
        let before = layer.checked_sub(1).and_then(|before| self.layers[before].kept.as_ref());
        let Some((_, kept)) = before.filter(|(moment, _)| *moment == at) else {
            return self.layers[layer].shared;
        };
        let both = saved.iter().filter(|block| kept.contains(block));
        both.map(|block| block.1).sum()
    }

    /// What each layer costs. A whole backward has its own measurement, and so has each half. Where
    /// backward-weight only adds gradients, its time counts as backward-input's.
    ///
    /// If micro-batches are not equal, `of_step` says how much work a step has, in mean micro-batches. Costs
    /// are then for a mean one.
    pub(super) fn costs(self, of_step: Option<&dyn Fn(u64) -> f64>) -> Vec<LayerCost> {
        let each = |times: Times| times.into_iter().map(|(_, seconds)| seconds);
        let updates = self.updates.into_iter().map(|(name, times)| (name, undisturbed(each(times))));
        let updates: HashMap<String, f64> = updates.collect();
        let usual = |times: Times| match of_step {
            None => undisturbed(each(times)),
            Some(of_step) => {
                let mut steps = BTreeMap::<u64, f64>::new();
                times.into_iter().for_each(|(step, seconds)| *steps.entry(step).or_default() += seconds);
                undisturbed(steps.into_iter().map(|(step, seconds)| seconds / of_step(step)))
            }
        };
        self.layers
            .into_iter()
            .map(|layer| {
                let both = [layer.backward_input, layer.backward_weight].map(usual);
                let [input, weight] = match layer.splits {
                    true => both,
                    false => [both[0] + both[1], 0.0],
                };
                LayerCost {
                    cost: StageCost {
                        forward: usual(layer.forward) + usual(layer.loss),
                        backward_input: input,
                        backward_weight: weight,
                        update: layer.parameters.iter().filter_map(|name| updates.get(name)).sum(),
                        saved: layer.saved as f64,
                        pending: layer.pending as f64,
                        ..StageCost::NOTHING
                    },
                    backward: input + weight,
                    name: layer.name,
                    shared: layer.shared as f64,
                    output: layer.output as f64,
                }
            })
            .collect()
    }
}

/// The lower quartile of some times: it shows what the work takes when nothing else disturbs the machine,
/// even if most times were disturbed. 0 when there are no times.
fn undisturbed(times: impl IntoIterator<Item = f64>) -> f64 {
    let mut times: Vec<f64> = times.into_iter().collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 4).copied().unwrap_or(0.0)
}
