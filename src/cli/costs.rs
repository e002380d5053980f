//! Costs for the commands: from a file, or measured now with a bar to look at.

use std::io::IsTerminal;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};

use crate::Result;
use crate::config::Config;
use crate::plan::ModelCosts;
use crate::profile::Measured;

const BAR: &str = "measuring {msg}  {bar:24} {pos}/{len}";

/// The costs in this file, in the one that the config names, or measured now; says what may be doubted.
pub(super) fn costs(config: &Config, file: Option<&Path>) -> Result<ModelCosts> {
    match file.or(config.pipeline.costs.as_deref()) {
        Some(path) => {
            let (costs, warning) = config.costs_in(path)?;
            if let Some(warning) = warning {
                eprintln!("warning: {warning}");
            }
            Ok(costs)
        }
        None => config.costs_of(measure(config, "what each layer costs, since no file tells")?),
    }
}

/// Measures the costs of a config's layers.
pub(super) fn measure(config: &Config, what: &str) -> Result<Measured> {
    config.can_be_measured()?;
    let gpus = config.kinds_of_gpus();
    if gpus.len() > 1 {
        eprintln!(
            "warning: the GPUs differ ({}), and a layer is measured on one of them: where others run it, it takes another time",
            gpus.join(", ")
        );
    }
    if !std::io::stderr().is_terminal() {
        eprintln!("measuring {what}");
        return config.measure(|_, _| ());
    }
    let style = ProgressStyle::with_template(BAR).expect("the template is fixed");
    let bar = ProgressBar::new(0)
        .with_style(style)
        .with_message(what.to_owned());
    let measured = config.measure(|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    measured
}
