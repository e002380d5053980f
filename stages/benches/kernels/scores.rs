//! Losses and optimizers.

use pipewright_stages::loss::{CrossEntropy, Loss, MeanSquaredError};
use pipewright_stages::optimizer::{AdamW, Optimizer, Sgd, Update};
use pipewright_stages::{Init, Parameter, Result, Tensor, Together};

use crate::bounds::Needs;
use crate::clock::{Clock, Run};
use crate::table::{Kernel, Work};
use crate::{ids, numbers, own, tensor};

/// The parameters of a block of size A.
const PARAMETERS: [usize; 2] = [12 * 256, 256];

/// All these kernels.
pub(crate) fn kernels() -> Result<Vec<Kernel>> {
    let momentum = Sgd { momentum: 0.9, ..Sgd::default() };
    Ok(vec![
        cross_entropy(512, 256)?,
        cross_entropy(64, 50_257)?,
        loss(
            "squared error: 64 x 2048".to_owned(),
            "number",
            MeanSquaredError::default(),
            [tensor(&[64, 2048])?, tensor(&[64, 2048])?],
            // The squares are added up in 64 bits.
            Needs::new([4.0, 4.0, 0.0], 8.0, 0.0),
        ),
        optimizer("adamw", AdamW::default(), Needs::new([4.0, 12.0, 0.0], 9.0, 2.0)),
        optimizer("sgd with momentum", momentum, Needs::new([4.0, 8.0, 0.0], 4.0, 0.0)),
    ])
}

fn cross_entropy(rows: usize, classes: usize) -> Result<Kernel> {
    let name = format!("cross-entropy: {rows} x {classes}");
    let pair = [tensor(&[rows, classes])?, ids(&[rows], classes)?];
    let needs = Needs::new([0.0, 4.0, 0.0], 23.0, 0.0);
    Ok(loss(name, "logit", CrossEntropy::default(), pair, needs))
}

fn loss(
    name: String,
    what: &'static str,
    mut loss: impl Loss<Tensor>,
    [output, target]: [Tensor; 2],
    needs: Needs,
) -> Kernel {
    let work = Work::Each { what, count: output.shape().count(), needs };
    let run = move |clock: &mut Clock| {
        let (output, target) = (own(&output), target.clone());
        clock.time(|| loss.forward(output, target))?;
        Ok(())
    };
    Kernel::new(name, vec![("gradient", work)], Box::new(run))
}

fn optimizer(name: &str, optimizer: impl Optimizer, needs: Needs) -> Kernel {
    let mut parameter = Parameter::new("p", &PARAMETERS, Init::Normal(0.02), 0);
    let grad = numbers(parameter.value.len());
    parameter.grad.copy_from_slice(&grad);
    let count = parameter.value.len();
    let mut step = 0;
    let run: Run = Box::new(move |clock: &mut Clock| {
        step += 1;
        let update = Update { step, learning_rate: 1e-3, scale: 1e-3, micro_batches: 1 };
        clock.time(|| Together::now(|together| optimizer.update(&mut parameter, update, together)))?;
        Ok(())
    });
    let passes = vec![("update", Work::Each { what: "parameter", count, needs })];
    Kernel::new(format!("{name}: {count}"), passes, run)
}
