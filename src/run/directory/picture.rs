//! `loss.svg`: the losses over the steps, in the style of the other pictures.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::draw::{Chart, ChartLine, Series};
use crate::{Result, whole};

const SIZE: (f64, f64) = (960.0, 480.0);

/// The losses of training and validation.
#[derive(Debug, Default)]
pub(super) struct Curve {
    training: Series,
    validation: Series,
}

impl Curve {
    /// Adds the losses of a step that has them.
    pub(super) fn add(&mut self, step: u64, training: Option<f64>, validation: Option<f64>) {
        for (series, loss) in [(&mut self.training, training), (&mut self.validation, validation)] {
            if let Some(loss) = loss {
                series.add(step, loss);
            }
        }
    }
}

/// The texts in the picture.
#[derive(Clone, Debug)]
pub(in crate::run) struct Labels {
    pub(in crate::run) title: String,
    pub(in crate::run) unit: Option<LossUnit>,
}

impl Labels {
    /// What the loss counts, in the plural.
    pub(in crate::run) fn targets(&self) -> String {
        let target = self.unit.as_ref().map_or("target", |unit| &unit.target);
        format!("{target}s")
    }
}

/// The unit of the loss, and what it is the mean over: nats per token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossUnit {
    /// What is measured: `nats`.
    pub quantity: String,
    /// What it is the mean over: `token`.
    pub target: String,
}

impl LossUnit {
    /// The loss with its unit, if that is known.
    pub fn title(of: Option<&Self>) -> String {
        match of {
            Some(Self { quantity, target }) => format!("loss ({quantity} per {target})"),
            None => "loss".to_owned(),
        }
    }
}

/// Draws the training loss, and the validation loss if there is one.
pub(super) fn draw(curve: &Curve, labels: &Labels, path: &Path) -> Result<()> {
    let line = |name: &str, series, colour, is_dashed| ChartLine {
        name: name.to_owned(),
        series,
        colour,
        is_dashed,
    };
    let mut lines = vec![line("training", &curve.training, 0, false)];
    if !curve.validation.is_empty() {
        lines.push(line("validation", &curve.validation, 1, true));
    }
    let chart = Chart {
        title: labels.title.clone(),
        value: LossUnit::title(labels.unit.as_ref()),
        lines,
        from_zero: false,
        is_log: false,
    };
    if chart.is_empty() {
        return Ok(());
    }
    whole::write(path, &chart.document(SIZE.0, SIZE.1))
}
