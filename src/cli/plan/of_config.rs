//! The plan of a config's training, by measured costs.

use std::path::Path;

use super::{Args, Format, Subject, Training};
use crate::cli::costs::costs;
use crate::cli::cuda_env;
use crate::config::Config;
use crate::plan::Prediction;
use crate::{Error, Result};

/// The schedule of a config, what its stages cost, and what a step will be. In seconds and bytes, but in a table for people in
/// milliseconds and MiB.
pub(super) fn subject(path: &Path, args: &Args) -> Result<Subject> {
    let config = Config::load(path, &args.sets).map_err(|error| Error::Invalid(error.to_string()))?;
    cuda_env::enter_for(&config);
    let model = costs(&config, args.costs.as_deref())?;
    let choice = config.choose(Some(&model))?;
    if let Some(why) = choice.why {
        eprintln!("{why}");
    }
    let (time, memory) = match args.format {
        Format::Table => (1e3, 1.0 / f64::from(1 << 20)),
        Format::Csv | Format::Json | Format::Svg => (1.0, 1.0),
    };
    let costs = model.in_units(time, memory).stages(&choice.counts)?;
    let schedule = choice.schedule.in_turn();
    let prediction = Prediction::of(&schedule, &costs, args.links)?;
    let (step, unit) = (prediction.step / time, config.unit());
    let rate = config.targets() as f64 / step;
    let layers: Vec<String> = choice.counts.iter().map(ToString::to_string).collect();
    Ok(Subject {
        schedule,
        costs,
        training: Some(Training {
            forecast: format!(
                "{}: predicted step {step:.4} s, {rate:.0} {unit}/s, bubble {:.1} %, peak {:.1} MiB on a rank\n\
                 layers of each stage: {}; times in ms, memory in MiB\n\n",
                path.display(),
                100.0 * prediction.bubble,
                prediction.peak_memory,
                layers.join(", ")
            ),
            rate,
        }),
    })
}
