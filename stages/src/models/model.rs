//! A model: units of layers that split into stages.

use std::sync::Arc;

use parking_lot::Mutex;

use super::part::Part;
use super::rules::Rules;
use super::sizes::{UnitSizes, Walk};
use crate::error::{Error, Result};
use crate::layers::wire::Wire;
use crate::parameter::init::starting_at_zero;
use crate::quantised::Quantisation;
use crate::shards::{Exchange, Shard, Sharding, Team};
use crate::stage::layer::Layer;
use crate::stage::sequential::Sequential;
use crate::stage::{BuildStage, StageBuilder};
use crate::tensor::Tensor;
use crate::tensor::wires::WireFormat;

type Build = Box<dyn Fn(Sharding) -> Result<Vec<Box<dyn Layer>>> + Send>;

/// One unit of a model: layers that stay together, with their name and cost.
///
/// ```
/// use pipewright_stages::layers::{Gelu, GeluForm, Relu};
/// use pipewright_stages::models::{LayerSpec, Model};
///
/// let one = LayerSpec::of("relu", 1.0, || Relu::new("relu"));
/// let two = LayerSpec::new("pair", 9.0, || {
///     Ok(vec![Box::new(Gelu::new("gelu", GeluForm::Tanh)), Box::new(Relu::new("again"))])
/// });
/// let stages = Model::new(vec![one, two]).split(2)?;
/// assert_eq!(stages.len(), 2);
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
pub struct LayerSpec {
    /// The name that partitions use, such as `h.3.attn`.
    pub name: String,
    /// The estimated work of a forward pass, in floating-point operations per row (token).
    pub cost: f64,
    /// What it is made of, if that is known before the layers are made.
    parts: Option<Vec<Part>>,
    /// Makes the layers.
    build: Build,
}

impl LayerSpec {
    /// A unit of several layers.
    pub fn new(
        name: impl Into<String>,
        cost: f64,
        build: impl Fn() -> Result<Vec<Box<dyn Layer>>> + Send + 'static,
    ) -> Self {
        Self::divided(name, cost, move |_| build())
    }

    /// A unit of layers that are divided among shards. `build` makes the layers of the shard that it is
    /// given.
    pub fn divided(
        name: impl Into<String>,
        cost: f64,
        build: impl Fn(Sharding) -> Result<Vec<Box<dyn Layer>>> + Send + 'static,
    ) -> Self {
        Self { name: name.into(), cost, parts: None, build: Box::new(build) }
    }

    /// A unit of these parts, with the cost of their operations.
    pub(super) fn of_parts(
        name: impl Into<String>,
        parts: Vec<Part>,
        build: impl Fn() -> Result<Vec<Box<dyn Layer>>> + Send + 'static,
    ) -> Self {
        Self::of_divided_parts(name, parts, move |_| build())
    }

    /// As [`LayerSpec::of_parts`], of layers that are divided among shards.
    pub(super) fn of_divided_parts(
        name: impl Into<String>,
        parts: Vec<Part>,
        build: impl Fn(Sharding) -> Result<Vec<Box<dyn Layer>>> + Send + 'static,
    ) -> Self {
        let cost = parts.iter().map(Part::operations).sum();
        Self { parts: Some(parts), ..Self::divided(name, cost, build) }
    }

    /// A unit of one layer.
    pub fn of<L: Layer>(name: impl Into<String>, cost: f64, build: impl Fn() -> L + Send + 'static) -> Self {
        Self::new(name, cost, move || Ok(vec![Box::new(build())]))
    }

    /// Makes the layers, on the thread that will run them. Each call makes the same layers.
    ///
    /// # Errors
    /// When they cannot be made. The error names the unit.
    pub fn build(&self, sharding: Sharding) -> Result<Vec<Box<dyn Layer>>> {
        (self.build)(sharding).map_err(|error| error.at(&self.name))
    }
}

impl std::fmt::Debug for LayerSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LayerSpec")
            .field("name", &self.name)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

/// A model: its units in order. Layers are made later, when a stage is built.
#[derive(Debug)]
pub struct Model {
    units: Vec<LayerSpec>,
    /// The model's settings, in words.
    settings: String,
    rules: Rules,
    sharding: Sharding,
    wires: WireFormat,
}

/// What is in a unit of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitContents {
    /// Its parameters.
    pub parameters: Vec<ParameterContents>,
    /// The names for which adapters can be chosen: see [`Rules::with_lora`].
    pub targets: Vec<String>,
}

/// A parameter of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterContents {
    /// Its name.
    pub name: String,
    /// The dimensions, outermost first.
    pub dims: Vec<usize>,
    /// The sizes of the tensors that are fused in it: see [`Parameter::fuse`](crate::Parameter::fuse).
    pub fused: Vec<usize>,
    /// Whether its weights stay as they are.
    pub is_frozen: bool,
    /// Whether an optimizer updates it, and so has state for it: not if it is frozen, or a running mean.
    pub is_optimized: bool,
    /// Whether it is a [tied](crate::Parameter::tied) copy.
    pub is_tied: bool,
    /// In which blocks its weights are stored, if not in `f32`: see
    /// [`Parameter::quantise`](crate::Parameter::quantise).
    pub quantisation: Option<Quantisation>,
}

impl ParameterContents {
    /// How many weights it has.
    pub fn numbers(&self) -> usize {
        self.dims.iter().product()
    }

    /// How many bytes its weights take on the host.
    pub fn bytes(&self) -> usize {
        let numbers = self.numbers();
        self.quantisation.map_or(size_of::<f32>() * numbers, |kind| kind.bytes(numbers))
    }
}

impl Model {
    /// A model of these units, in order.
    pub fn new(units: Vec<LayerSpec>) -> Self {
        let (settings, rules, sharding, wires) = Default::default();
        Self { units, settings, rules, sharding, wires }
    }

    /// The same model. Its layers add up what is divided among shards in this many groups: see
    /// [`Sharding::groups`]. Another number gives weights with other rounding. There can be as many shards as
    /// groups.
    ///
    /// # Errors
    /// When `groups` is no power of two.
    pub fn with_shard_groups(self, groups: u32) -> Result<Self> {
        let sharding = Sharding::new(groups, Shard::WHOLE)?;
        Ok(Self { sharding, ..self })
    }

    /// The same model, whose stages send other processes wires in this format. What a unit gives the next
    /// one, and the gradient that it gets back, are rounded to it, wherever the model is cut. So the weights
    /// do not depend on the cut, but on the format.
    #[must_use]
    pub fn with_wires(self, wires: WireFormat) -> Self {
        Self { wires, ..self }
    }

    /// The same model. These rules say what is trained.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Fails if its layers cannot be divided among this many shards. Its units are made one after the other,
    /// with weights of zero.
    ///
    /// # Errors
    /// When the number of shards does not fit the shard groups, or a layer cannot be divided. The error names
    /// the unit or the layer.
    pub fn check_shards(&self, shards: u32) -> Result<()> {
        let shard = Shard { index: 0, of: shards };
        let sharding = Sharding::new(self.sharding.groups(), shard)?;
        let team = Team::new(shard, &[shards as usize], Arc::new(Mutex::new(NoOthers)))?;
        starting_at_zero(|| {
            self.units.iter().try_for_each(|unit| {
                let mut layers = unit.build(sharding)?;
                layers.iter_mut().try_for_each(|layer| {
                    let joined = layer.join(&team);
                    joined.map_err(|error| error.at(layer.name()))
                })
            })
        })
    }

    /// What is trained.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What is in each unit. The units are made one after the other, with weights of zero.
    ///
    /// # Errors
    /// When a unit cannot be made.
    pub fn contents(&self) -> Result<Vec<UnitContents>> {
        let contents = |unit: &LayerSpec| {
            let mut targets = Vec::new();
            let mut layers = unit.build(self.sharding)?;
            for layer in &mut layers {
                layer.adapt(&mut |target| {
                    targets.push(target.to_owned());
                    None
                })?;
            }
            self.rules.apply(&mut layers)?;
            let parameters = layers.iter_mut().flat_map(|layer| layer.parameters());
            let parameters = parameters.map(|one| ParameterContents {
                name: one.name().to_owned(),
                dims: one.dims().to_vec(),
                fused: one.fused().to_vec(),
                is_frozen: one.is_frozen(),
                is_optimized: one.is_optimized(),
                is_tied: one.is_tied(),
                quantisation: one.quantisation(),
            });
            let parameters = parameters.collect();
            Ok(UnitContents { parameters, targets })
        };
        starting_at_zero(|| self.units.iter().map(contents).collect())
    }

    /// The same model, with its settings in words: all that the numbers of its layers depend on, such as
    /// sizes and seed. The processes of a run compare them.
    #[must_use]
    pub fn with_settings(mut self, settings: String) -> Self {
        self.settings = settings;
        self
    }

    /// The units' names, in order.
    pub fn names(&self) -> Vec<&str> {
        self.units.iter().map(|unit| unit.name.as_str()).collect()
    }

    /// The units' costs, in order.
    pub fn costs(&self) -> Vec<f64> {
        self.units.iter().map(|unit| unit.cost).collect()
    }

    /// The parts of each unit, in order. `None` for units with layers of one's own.
    pub fn parts(&self) -> Option<Vec<&[Part]>> {
        self.units.iter().map(|unit| unit.parts.as_deref()).collect()
    }

    /// The sizes of each unit, in order, for micro-batches of `rows` tokens or images, with `input` numbers
    /// in all. `defers`: whether scores are [deferred](crate::Stage::defer_head), where that saves memory.
    /// `None` for units with layers of one's own.
    pub fn unit_sizes(&self, rows: usize, input: usize, defers: bool) -> Option<Vec<UnitSizes>> {
        let mut walk = Walk::new(rows, input as u64, defers);
        Some(self.parts()?.into_iter().map(|parts| walk.unit(parts)).collect())
    }

    /// The same model of other units: `change` gets each with its place, from 0.
    #[must_use]
    pub fn map_units(self, mut change: impl FnMut(usize, LayerSpec) -> LayerSpec) -> Self {
        let units = self.units.into_iter().enumerate();
        let units = units.map(|(place, unit)| change(place, unit)).collect();
        Self { units, ..self }
    }

    /// The units, in order. For making another model of them.
    pub fn into_units(self) -> Vec<LayerSpec> {
        self.units
    }

    /// The whole model as one stage.
    ///
    /// # Errors
    /// When a unit cannot be made.
    pub fn whole(self) -> Result<Sequential> {
        let Self { units, rules, sharding, wires, .. } = self;
        let whole =
            Slice { units, is_first: true, is_last: true, settings: String::new(), rules, sharding, wires };
        whole.stage(sharding)
    }

    /// Splits the model into stages so that the most expensive stage is as cheap as possible.
    ///
    /// # Errors
    /// When `stages` is 0 or larger than the number of units.
    pub fn split(self, stages: u32) -> Result<Vec<StageBuilder<Sequential>>> {
        let counts = self.balanced(stages)?;
        self.cut(&counts)
    }

    /// Splits the model by lists of units, one list per stage. An entry is a unit (`h.0.attn`), a prefix
    /// (`h.0`: all its units) or an inclusive range of these (`h.0..h.3`).
    ///
    /// # Errors
    /// When an entry is no unit, or the lists do not name every unit exactly once and in order.
    pub fn split_by(self, partition: &[Vec<String>]) -> Result<Vec<StageBuilder<Sequential>>> {
        let counts = self.counts(partition)?;
        self.cut(&counts)
    }

    /// How many units [`Model::split`] gives each stage.
    ///
    /// # Errors
    /// As for [`Model::split`].
    pub fn balanced(&self, stages: u32) -> Result<Vec<usize>> {
        super::partition::balance(&self.costs(), stages as usize)
    }

    /// How many units [`Model::split_by`] gives each stage.
    ///
    /// # Errors
    /// As for [`Model::split_by`].
    pub fn counts(&self, partition: &[Vec<String>]) -> Result<Vec<usize>> {
        super::partition::by_names(&self.names(), partition)
    }

    /// How many stages, from the first on, have parameters that are all frozen.
    fn frozen_stages(&self, counts: &[usize]) -> Result<usize> {
        if !self.rules.differ() {
            return Ok(0);
        }
        let contents = self.contents()?;
        let mut rest = &contents[..];
        let is_frozen = |count: &&usize| {
            let (stage, after) = rest.split_at(**count);
            rest = after;
            let mut own = stage.iter().flat_map(|unit| &unit.parameters).peekable();
            own.peek().is_some() && own.all(|parameter| parameter.is_frozen)
        };
        Ok(counts.iter().take_while(is_frozen).count())
    }

    /// Splits the model into stages with these numbers of units.
    ///
    /// # Errors
    /// When the numbers do not add up to the model's units.
    pub fn cut(self, counts: &[usize]) -> Result<Vec<StageBuilder<Sequential>>> {
        let (sum, count) = (counts.iter().sum::<usize>(), self.units.len());
        if sum != count {
            return Err(Error::new(format!(
                "stages of {counts:?} layers do not make up the model's {count}"
            )));
        }
        if self.wires != WireFormat::default() && counts.contains(&0) {
            return Err(Error::new(format!(
                "stages of {counts:?} layers: with wires in {}, each stage has one layer or more",
                self.wires
            )));
        }
        let frozen = self.frozen_stages(counts)?;
        let mut units = self.units.into_iter();
        let stages = counts.iter().enumerate().map(|(index, &count)| {
            Box::new(Slice {
                units: units.by_ref().take(count).collect(),
                is_first: index <= frozen,
                is_last: index + 1 == counts.len(),
                settings: self.settings.clone(),
                rules: self.rules.clone(),
                sharding: self.sharding,
                wires: self.wires,
            }) as StageBuilder<Sequential>
        });
        Ok(stages.collect())
    }
}

/// The exchange of a shard whose layers never compute.
struct NoOthers;

impl Exchange for NoOthers {
    fn send(&mut self, _shard: u32, _tensor: Tensor) -> Result<()> {
        Err(Error::new("there are no other shards"))
    }

    fn receive(&mut self, _shard: u32) -> Result<Tensor> {
        Err(Error::new("there are no other shards"))
    }
}

/// The units of one stage.
struct Slice {
    units: Vec<LayerSpec>,
    /// Whether nothing before it is trained.
    is_first: bool,
    /// Whether its last unit is the model's.
    is_last: bool,
    /// The settings of the model.
    settings: String,
    rules: Rules,
    sharding: Sharding,
    wires: WireFormat,
}

impl Slice {
    /// Makes a shard of the stage. In the first stage nobody uses the input gradient. Each unit is frozen and
    /// quantised before the next one is made, so that the memory for its gradients and numbers is free again.
    fn stage(&self, sharding: Sharding) -> Result<Sequential> {
        let mut layers = Vec::new();
        for (unit, left) in self.units.iter().zip((0..self.units.len()).rev()) {
            let mut of_unit = unit.build(sharding)?;
            self.rules.apply(&mut of_unit)?;
            layers.extend(of_unit);
            let ends_model = self.is_last && left == 0;
            if self.wires != WireFormat::default() && !ends_model {
                layers.push(Box::new(Wire::after(&unit.name, self.wires)));
            }
        }
        let mut stage = Sequential::new(layers).with_wires(self.wires);
        if self.is_first {
            stage.drop_input_gradient();
        }
        Ok(stage)
    }
}

impl BuildStage<Sequential> for Slice {
    fn build(&self) -> Result<Sequential> {
        self.build_shard(Shard::WHOLE)
    }

    fn build_shard(&self, shard: Shard) -> Result<Sequential> {
        let sharding = Sharding::new(self.sharding.groups(), shard)?;
        self.stage(sharding)
    }

    fn describe(&self) -> String {
        let names: Vec<&str> = self.units.iter().map(|unit| unit.name.as_str()).collect();
        let mut words = names.join(", ");
        for (before, settings) in [(" of ", self.settings.as_str()), ("; ", self.rules.settings())] {
            if !settings.is_empty() {
                words = words + before + settings;
            }
        }
        if self.sharding.groups() > 1 {
            words += &format!("; {} shard groups", self.sharding.groups());
        }
        if self.wires != WireFormat::default() {
            words += &format!("; wires in {}", self.wires);
        }
        words
    }
}
