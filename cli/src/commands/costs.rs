//! Measures costs for a command, with a progress bar.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use crate::Result;
use crate::compose;
use crate::config::Config;
use crate::profile::{Measured, MemoryLimit};
use pipewright::stages::Device;

const BAR: &str = "measuring {msg}  {bar:24} {pos}/{len}";

/// Measures the costs of a config's layers, within these limits.
pub(super) fn measure(config: &Config, what: &str, limits: &[(Device, MemoryLimit)]) -> Result<Measured> {
    compose::check_measurable(config)?;
    compose::check_memory_to_measure(config, limits)?;
    let gpus = compose::kinds_of_gpus(config);
    if gpus.len() > 1 {
        eprintln!(
            "warning: the GPUs differ ({}), and each layer is measured on one of them: \
             on the others it may take another time",
            gpus.join(", ")
        );
    }
    if !std::io::stderr().is_terminal() {
        eprintln!("measuring {what}");
        return compose::measure(config, |_, _| ());
    }
    let style = ProgressStyle::with_template(BAR).expect("the template is fixed");
    let bar = ProgressBar::new(0).with_style(style).with_message(what.to_owned());
    let measured = compose::measure(config, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    measured
}
