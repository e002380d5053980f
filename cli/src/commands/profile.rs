//! `pipewright profile`: what the layers of a model cost on this machine.

use std::path::PathBuf;

use super::bars::measure;
use super::cuda_env;
use super::out::{Out, Replace};
use super::processes::{self, Role};
use crate::compose;
use crate::config::Config;
use crate::profile::{self, Between, Measured, MemoryLimit};
use crate::{Error, Result};
use pipewright::plan::{LayerCost, LinkCost};
use pipewright::stages::Device;
use pipewright::stages::units::counted;

/// Measure what each layer of a model costs on this machine.
///
/// Trains for a few seconds and times every layer's passes. It uses as many ranks as the config, on the GPUs
/// of pipeline.devices if it names some, and as many shards of each if all have a core or a GPU.
///
/// Prints a table for one micro-batch: the times of a forward, of a backward's two halves, of a whole
/// backward and of the parameter update, and the memory that the layer keeps. Writes all of it to a file,
/// which the setting pipeline.costs and the command plan can use.
///
/// If a launcher starts it as several processes, process 0 first measures a message to another one: on
/// another host if there is one. Then it measures the layers, and the others end. On several hosts, only as
/// many ranks work at once as each host will have.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright profile my.toml
  pipewright plan my.toml --costs costs.json
  pipewright train my.toml --set pipeline.costs=costs.json
For a first config, take the config.toml that `pipewright train` writes into runs/first.")]
pub(super) struct Args {
    /// The config, a TOML file
    config: PathBuf,
    /// Set a key of the config; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    sets: Vec<String>,
    /// Where to write the costs
    #[arg(long, value_name = "FILE", default_value = "costs.json")]
    out: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let role = Role::here()?;
    let config = Config::load(&args.config, &args.sets).map_err(Error::not_begun)?;
    cuda_env::enter_for(&config);
    let (world, said) = processes::join_to_measure(&config).map_err(Error::not_begun)?;
    let ((out, limits), world) = processes::or_tell(prepare(args, &config, role), world)?;
    let hosts = world.as_ref().map_or(1, |world| world.processes().div_ceil(world.local().len() as u32));
    let between = match world {
        Some(world) => {
            if role.leads() {
                super::print(&format!("fabric    {said}\n"))?;
            }
            profile::between(world).map_err(Error::not_begun)?
        }
        None => None,
    };
    let Some(out) = out else {
        return Ok(());
    };
    let what = match hosts {
        1 => "what each layer costs".to_owned(),
        _ => format!(
            "what each layer costs, with {} at once, as on each of {}",
            counted(compose::at_once(&config, hosts)?.into(), "rank"),
            counted(hosts.into(), "host")
        ),
    };
    let measured = measure(&config, &what, &limits, hosts)?;
    let measured = Measured { between, ..measured };
    super::print(&table(&measured))?;
    out.write(&measured.to_json())?;
    super::print(&format!("written to {}\n", args.out.display()))
}

/// The file for the costs, which only process 0 writes, and the memory that there is to measure.
type Prepared = (Option<Out>, Vec<(Device, MemoryLimit)>);

fn prepare(args: &Args, config: &Config, role: Role) -> Result<Prepared> {
    let out = role.leads().then(|| Out::check(&args.out, Replace::Costs));
    Ok((out.transpose()?, compose::memory_limits(config)?))
}

fn table(measured: &Measured) -> String {
    let layers = measured.costs.layers();
    let names = layers.iter().map(|layer| layer.name.len());
    let width = names.max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:<width$}   forward  backward-input  backward-weight  backward    update      saved    \
         pending     output\n\
         {:<width$}        ms              ms               ms        ms        ms        KiB        \
         KiB        KiB        KiB\n",
        "layer", ""
    );
    text.extend(layers.iter().map(|layer| line(layer, width)));
    let link = measured.costs.link();
    text += &match link == LinkCost::default() {
        true => "\none rank makes no transfers: what they cost was not measured\n".to_owned(),
        false => format!("\na transfer between two ranks: {}\n", in_words(link)),
    };
    if let Some(Between { link, one_host }) = measured.between {
        let hosts = if one_host { "of one host" } else { "of two hosts" };
        text += &format!("a message between two processes {hosts}: {}\n", in_words(link));
    }
    if let Some(byte) = measured.host {
        text += &format!("copies between a GPU and its host: {:.1} GB/s in each direction\n", 1e-9 / byte);
    }
    text + &format!("adding gradients to a sum: {:.3} ns a byte\n", 1e9 * measured.add)
}

fn in_words(link: LinkCost) -> String {
    format!("{:.1} µs and {:.3} ns a byte", 1e6 * link.latency, 1e9 * link.per_byte)
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
