//! Models that a config lists layer by layer: `model.kind = "stack"`.

mod kinds;
mod ready;

use std::sync::Once;

use pipewright::stages::layers::Reshape;
use pipewright::stages::models::{LayerSpec, Model, UnitSizes};
use pipewright::stages::{
    Bytes, ForwardContext, Layer, Mode, Sequential, Shape, Stage, Tensor, starting_at_zero,
};
use toml::{Table, Value};

use self::kinds::{Failure, add, make};
pub use self::kinds::{LayerPlace, register_layer};
use crate::config::Config;
use crate::error::{Result, ValueProblem};

/// The largest number in the settings of a layer.
const LARGEST: i64 = 1 << 24;

/// Bytes of a number.
const F32: u64 = 4;

/// The model of a config's `model.stack`: a unit for each entry.
pub(super) fn model(config: &Config) -> Result<Model> {
    let stack = &config.model.stack;
    if stack.is_empty() {
        let problem = "a stack needs layers: add a table [[model.stack]] with a kind for each";
        return Err(config.refuse("model.stack", problem));
    }
    know_ready_layers();
    let units: Result<Vec<LayerSpec>> = (0..stack.len()).map(|index| unit(config, index)).collect();
    let settings = format!("{stack:?}, {:?}, seed {}", first_shape(config), config.model.seed);
    Ok(Model::new(units?).with_settings(settings))
}

fn know_ready_layers() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| ready::all().into_iter().for_each(|(kind, make)| add(kind, make)));
}

/// The unit of an entry. Its settings are tried once.
fn unit(config: &Config, index: usize) -> Result<LayerSpec> {
    let entry = config.model.stack[index].clone();
    let place = LayerPlace { name: index.to_string(), seed: config.model.seed };
    if let Some(number) = too_large(&Value::Table(entry.clone())) {
        let problem = format!("layer {index}: {number} is too large: at most {LARGEST}");
        return Err(config.refuse("model.stack", problem));
    }
    let layer = starting_at_zero(|| make(&place, &entry));
    let mut layer = layer.map_err(|failure| match failure {
        Failure::Settings(problem) => config.refuse("model.stack", problem),
        Failure::Layer(error) => config.refuse("model.stack", ValueProblem::caused(error.at(&place.name))),
    })?;
    let weights: usize = layer.parameters().iter().map(|parameter| parameter.value.len()).sum();
    let image = (index == 0 && !config.reads_tokens()).then(|| config.image());
    let name = place.name.clone();
    // The work of a row: a multiply-add for each weight, and something for layers without weights.
    let cost = 2.0 * weights.max(1) as f64;
    Ok(LayerSpec::new(name, cost, move || build(&place, &entry, image)))
}

/// A number in the settings of a layer that no layer has memory for.
fn too_large(settings: &Value) -> Option<i64> {
    match settings {
        Value::Integer(number) => Some(*number).filter(|&number| number > LARGEST),
        Value::Array(values) => values.iter().find_map(too_large),
        Value::Table(table) => table.values().find_map(too_large),
        _ => None,
    }
}

/// Images get their dimensions before the first layer.
fn build(
    place: &LayerPlace,
    entry: &Table,
    image: Option<[usize; 3]>,
) -> pipewright::stages::Result<Vec<Box<dyn Layer>>> {
    let layer = make(place, entry).map_err(|failure| match failure {
        Failure::Settings(problem) => pipewright::stages::Error::other(problem),
        Failure::Layer(error) => error,
    })?;
    let images = image.map(|image| Box::new(Reshape::new("images", &image)) as Box<dyn Layer>);
    Ok(images.into_iter().chain([layer]).collect())
}

/// The shape of one row of data.
fn first_shape(config: &Config) -> Shape {
    match config.reads_tokens() {
        true => Shape::ids(&[1, config.data.seq]),
        false => {
            let [height, width, channels] = config.image();
            Shape::f32(&[1, height, width, channels])
        }
    }
}

/// What each unit holds of a micro-batch of `rows` rows. Nobody knows this of layers of one's own, so one row
/// of zeros goes through all units, forward and backward.
pub(super) fn unit_sizes(config: &Config, rows: usize) -> Result<Vec<UnitSizes>> {
    let model = model(config)?;
    let shape = first_shape(config);
    let mut wire = match config.reads_tokens() {
        true => Tensor::from_ids(shape.dims(), vec![0; shape.count()])?,
        false => Tensor::zeros(shape.dims()),
    };
    let numbers = |bytes: u64| bytes / F32 * rows as u64;
    let mut sizes = Vec::new();
    let units = vec![1; model.names().len()];
    for stage in model.cut(&units)? {
        let mut stage: Sequential = starting_at_zero(|| stage.build())?;
        let forward = stage.forward(TRIAL, wire);
        let (output, saved) =
            forward.map_err(|error| config.refuse("model.stack", ValueProblem::caused(error)))?;
        let kept = saved.bytes();
        let (_, pending) = stage.backward_input(saved, Tensor::zeros(output.dims()))?;
        sizes.push(UnitSizes {
            weights: stage.parameters().iter().map(|one| one.value.len() as u64).sum(),
            saved: numbers(kept),
            selective: numbers(kept),
            pending: numbers(pending.bytes()),
            output: numbers(output.bytes()),
            ..UnitSizes::default()
        });
        wire = output;
    }
    Ok(sizes)
}

const TRIAL: ForwardContext = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
