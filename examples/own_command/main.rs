//! The `pipewright` command with a layer of one's own, which configs can name.
//!
//! ```text
//! cargo run --release --example own_command -- train examples/own_command/swish.toml
//! ```

use std::process::ExitCode;

use pipewright::stages::{ForwardContext, Kept, Layer, Result, Shape, Tensor};
use pipewright_cli::compose::{LayerPlace, register_layer};

/// `y = x / (1 + exp(-beta x))`: numbers of any shape to the same shape.
///
/// Ramachandran et al., "Searching for activation functions" (2017).
#[derive(Debug)]
struct Swish {
    name: String,
    beta: f32,
}

/// What stands beside `kind = "my.swish"`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    beta: f32,
}

impl Layer for Swish {
    fn name(&self) -> &str {
        &self.name
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let mut output = input.clone();
        for x in output.f32_mut() {
            *x /= 1.0 + (-self.beta * *x).exp();
        }
        Ok((output, Kept::new(ctx, [input])))
    }

    fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [input] = saved.into_tensors();
        for (grad, x) in grad.f32_mut().iter_mut().zip(input.f32()) {
            let share = 1.0 / (1.0 + (-self.beta * x).exp());
            *grad *= share + self.beta * x * share * (1.0 - share);
        }
        Ok((Some(grad), Kept::new(ctx, [])))
    }
}

fn main() -> ExitCode {
    let swish =
        |place: &LayerPlace, settings: Settings| Ok(Swish { name: place.name.clone(), beta: settings.beta });
    match register_layer("my.swish", swish) {
        Ok(()) => pipewright_cli::main(),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
