//! `pipewright profile`: what the layers of a model cost on this machine.

use std::path::PathBuf;

use super::costs::measure;
use super::cuda_env;
use super::out::{Out, Replace};
use crate::Result;
use crate::config::Config;
use crate::error::CommandError;
use crate::plan::{LayerCost, Link};
use crate::profile::Measured;

/// Measure what each layer of a model costs on this machine.
///
/// Trains for a few steps, on as many ranks at once as the config has, with every layer's passes timed; on the GPUs of
/// pipeline.devices, where it names some. Prints the times of a forward, a backward in two halves and in one piece of one
/// micro-batch, of the parameter update, and what the layer keeps for them; writes all of it to a file for
/// pipeline.costs, plan and others.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright profile examples/gpt-text.toml
  pipewright train examples/gpt-text.toml --set pipeline.costs=costs.json")]
pub(super) struct Args {
    /// The config, a TOML file
    config: PathBuf,
    /// Set a key of the config; repeat it for more
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    sets: Vec<String>,
    /// Where to write the costs
    #[arg(long, value_name = "FILE", default_value = "costs.json")]
    out: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let out = Out::check(&args.out, Replace::Costs)?;
    let config = Config::load(&args.config, &args.sets).map_err(CommandError::refused)?;
    cuda_env::enter_for(&config);
    let measured = measure(&config, "what each layer costs")?;
    super::print(&table(&measured))?;
    out.write(&measured.to_json())?;
    super::print(&format!("written to {}\n", args.out.display()))
}

fn table(measured: &Measured) -> String {
    let layers = measured.costs.layers();
    let names = layers.iter().map(|layer| layer.name.len());
    let width = names.max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:<width$}   forward  backward-input  backward-weight  backward    update      saved    pending     output\n\
         {:<width$}        ms              ms               ms        ms        ms        KiB        KiB        KiB\n",
        "layer", ""
    );
    text.extend(layers.iter().map(|layer| line(layer, width)));
    let link = measured.costs.link();
    text + &match link == Link::default() {
        true => "\none rank makes no transfers: what they cost was not measured\n".to_owned(),
        false => format!(
            "\na transfer between two ranks: {:.1} µs and {:.3} ns a byte\n",
            1e6 * link.latency,
            1e9 * link.per_byte
        ),
    }
}

fn line(layer: &LayerCost, width: usize) -> String {
    let (cost, ms, kib) = (&layer.cost, |time: f64| 1e3 * time, |bytes: f64| bytes / 1024.0);
    format!(
        "{:<width$} {:>9.3} {:>15.3} {:>16.3} {:>9.3} {:>9.3} {:>10.1} {:>10.1} {:>10.1}\n",
        layer.name,
        ms(cost.forward),
        ms(cost.backward_input),
        ms(cost.backward_weight),
        ms(layer.backward),
        ms(cost.update),
        kib(cost.saved),
        kib(cost.pending),
        kib(layer.output)
    )
}
