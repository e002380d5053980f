//! The plan of a config's training, from measured costs.

use std::path::Path;

use super::{Args, Format, Subject, Training};
use crate::Result;
use crate::cli::costs::measure;
use crate::cli::{cuda_env, memory};
use crate::compose;
use crate::config::Config;
use crate::error::CommandError;
use crate::plan::{Costs, Prediction};

/// The schedule that `train` runs for this config, the costs of its stages, and a forecast of a step. Times
/// are in seconds and sizes in bytes; a table has milliseconds and MiB.
///
/// Costs come from the file that the config names. Without one the layers are measured now. That measurement
/// only says how long a step takes: it changes neither the cut nor the order. CSV contains no times, so
/// nothing is measured for it.
pub(super) fn subject(path: &Path, args: &Args) -> Result<Subject> {
    let mut config = Config::load(path, &args.sets).map_err(CommandError::refused)?;
    if let Some(costs) = &args.costs {
        config.pipeline.costs = Some(costs.clone());
    }
    cuda_env::enter_for(&config);
    let plan = compose::plan(&config)?;
    if let Some(warning) = &plan.warning {
        eprintln!("warning: {warning}");
    }
    if let Some(why) = &plan.why {
        eprintln!("{why}");
    }
    let held = compose::memory(&config, &plan)?;
    let layers = match (plan.costs, args.format) {
        (Some(costs), _) => costs,
        (None, Format::Csv) => {
            return Ok(Subject {
                schedule: plan.schedule,
                costs: Costs::default(),
                training: None,
            });
        }
        (None, _) => {
            let measured = measure(&config, "what each layer costs, since no file tells")?;
            compose::costs_of(&config, measured)?
        }
    };
    let (time, memory) = match args.format {
        Format::Table => (1e3, 1.0 / f64::from(1 << 20)),
        Format::Csv | Format::Json | Format::Svg => (1.0, 1.0),
    };
    let costs = layers.in_units(time, memory).stages(&plan.counts)?;
    let prediction = Prediction::of(&plan.schedule, &costs, args.links)?;
    let (step, unit) = (prediction.step / time, config.unit());
    let rate = config.targets() as f64 / step;
    if let Err(error) = compose::check_memory(&config, &held) {
        eprintln!("warning: {error}");
    }
    let counts: Vec<String> = plan.counts.iter().map(ToString::to_string).collect();
    Ok(Subject {
        schedule: plan.schedule,
        costs,
        training: Some(Training {
            forecast: format!(
                "{}: predicted step {step:.4} s, {rate:.0} {unit}/s, bubble {:.1} %, peak {:.1} MiB on a \
                 rank\n\
                 layers of each stage: {}; times in ms, memory in MiB\n\n{}\n",
                path.display(),
                100.0 * prediction.bubble,
                prediction.peak_memory,
                counts.join(", "),
                memory::table(&held)
            ),
            rate,
        }),
    })
}
