//! A small model of composed layers.

use std::sync::Arc;

use pipewright::stages::layers::{Block, Dropout, Flatten, Gelu, GeluForm, LayerNorm, Linear};
use pipewright::stages::models::{LayerSpec, Model};
use pipewright::stages::{Init, Layer, Result, chain};

use crate::common::*;

fn linear(name: &str, inputs: usize, outputs: usize) -> Linear {
    Linear::new(name, [inputs, outputs], Init::Normal(0.3), 3)
}

fn gelu(name: &str) -> Gelu {
    Gelu::new(name, GeluForm::Tanh)
}

/// The inner part of the net, and the skip beside it, which passes through.
fn beside(name: &str, inner: Vec<Box<dyn Layer>>) -> Block {
    Block::concat(name, [inner, chain![]]).of_columns(&[8, 16])
}

fn layers(unit: &str) -> Result<Vec<Box<dyn Layer>>> {
    let fc = |part: &str, inputs, outputs| linear(&format!("{unit}.{part}"), inputs, outputs);
    let norm = |width| LayerNorm::new(&format!("{unit}.norm"), width);
    Ok(match unit {
        "in" => chain![Flatten::new("flatten"), fc("fc", 25, 16)],
        // From here to "up", a wire has the inner 8 numbers and the 16 of the skip.
        "down" => chain![Block::concat(unit, [chain![norm(16), fc("fc", 16, 8)], chain![]])],
        "repeated" => {
            let dropout = Dropout::new("repeated.dropout", 0.1, 3)?;
            let shared = chain![norm(8), fc("fc", 8, 8), gelu("repeated"), dropout];
            chain![beside(unit, chain![Block::residual("repeated.r", shared).repeated(3)])]
        }
        "middle" => chain![beside(unit, chain![fc("fc", 8, 8), gelu("middle")])],
        "up" => chain![Block::sum(unit, [chain![fc("fc", 8, 16)], chain![]]).of_columns(&[8, 16])],
        "gate" => {
            let gate = chain![fc("gate", 16, 32), gelu("gate")];
            let gated = Block::product("gate.gated", [gate, chain![fc("up", 16, 32)]]);
            chain![Block::residual(unit, chain![norm(16), gated, fc("down", 32, 16)])]
        }
        _ => chain![fc("fc", 16, 10)],
    })
}

/// A model whose wires carry a skip, with a gate, and with weights that are used several times.
pub(crate) fn model_of_blocks() -> Result<Model> {
    let units = ["in", "down", "repeated", "middle", "up", "gate", "head"];
    let units = units.map(|unit| LayerSpec::new(unit, 1.0, move || layers(unit)));
    Ok(Model::new(units.into()))
}

/// How it is trained.
pub(crate) fn recipe_of_blocks(micro_batches: u32) -> Recipe {
    let data = RandomRows { rows: 6, width: 25, classes: 10 };
    recipe_of(model_of_blocks, Arc::new(data), micro_batches)
}
