//! Training with all stages on one GPU, and with each on a GPU of its own.

use pipewright::plan::Gpu;
use pipewright::stages::devices::{BACKWARD_WEIGHT, probe};
use pipewright::stages::{Device, Place, Recompute};
use serde_json::Value;

use crate::kernels::TOP_FLOPS;
use crate::predicted::{self, Here};
use crate::run::Given;
use crate::sizes::Result;
use crate::table::{Guess, Table, Unit};

/// The default for how many stages are measured.
pub(crate) const STAGES: [u32; 3] = [1, 2, 4];
/// Steps that are not measured.
const WARM_UP: usize = 3;
/// The rate of dense bf16 products in the data sheet of H100 and H200 (SXM), in operations per second.
const PEAK: f64 = 989.4e12;

/// Trains with each number of stages, and prints a row for each, or a line of JSON. Then each stage has a GPU
/// of its own, where there are enough GPUs.
pub(crate) fn measure(
    table: &mut Table<'_>,
    stages: &[u32],
    json: bool,
    here: Option<&Here>,
    given: impl Fn(u32) -> Result<Given>,
) -> Result<()> {
    let kind = here.and_then(|here| here.kind);
    let beside = std::env::var_os(BACKWARD_WEIGHT).map_or("", |_| ", backward-weight beside");
    for &ranks in stages {
        let given = given(ranks)?;
        if json {
            table.say(&given.train("1f1b", 1, None)?.to_string())?;
            continue;
        }
        // However many stages there are, the GPU has the same work.
        let what = format!("training: {}, all on {}{beside}", counted(ranks), given.places[0].device);
        row(table, &given, &what, step_on(&given, 1, kind)?)?;
        if ranks == 1 {
            let given = Given { recompute: Recompute::None, ..given };
            row(table, &given, &format!("{what}, recompute none"), step_on(&given, 1, kind)?)?;
        }
    }
    if json || here.is_none() {
        return Ok(());
    }
    let gpus = probe().gpus.map_or(0, |gpus| gpus.len());
    for &ranks in stages.iter().filter(|ranks| **ranks > 1) {
        let mut given = given(ranks)?;
        let step = step_on(&given, ranks, kind)?;
        let what = format!("training: {}, a GPU for each{beside}", counted(ranks));
        if ranks as usize > gpus {
            let guess = guess(&given, &what, step);
            table.unmeasured(&guess, &format!("needs {ranks} GPUs"))?;
            continue;
        }
        let dtype = given.places[0].dtype;
        let place = |index| Place { device: Device::Cuda(index), dtype };
        given.places = (0..ranks).map(place).collect();
        row(table, &given, &what, step)?;
    }
    Ok(())
}

/// The predicted seconds of a step, if the kind of GPU is known.
fn step_on(given: &Given, stages: u32, kind: Option<&Gpu>) -> Result<Option<f64>> {
    kind.map(|kind| predicted::step(&given.size, stages, given.recompute, kind)).transpose()
}

fn counted(ranks: u32) -> String {
    format!("{ranks} stage{}", if ranks == 1 { "" } else { "s" })
}

/// The guess of a rate, from the seconds of a step.
fn guess<'a>(given: &Given, what: &'a str, step: Option<f64>) -> Guess<'a> {
    Guess { what, unit: Unit::Tokens, predicted: step.map(|step| given.size.targets() as f64 / step) }
}

/// Trains, and prints the rate of the median step.
fn row(table: &mut Table<'_>, given: &Given, what: &str, step: Option<f64>) -> Result<()> {
    let said = given.train("1f1b", 1, None)?;
    let rate = given.size.targets() as f64 / median(&said["seconds"]);
    // 6 N + 12 L C T operations a token, or 6 N + 6 L C T if the masked half is left out.
    let [full, causal] = given.size.mfu_flops().map(|flops| rate * flops);
    let note = format!(
        "MFU {:.1}%, causal {:.1}%, of a large product's rate {:.1}%, last loss {:.4}",
        100.0 * full / PEAK,
        100.0 * causal / PEAK,
        100.0 * full / TOP_FLOPS,
        last(&said["losses"]),
    );
    table.row(&guess(given, what, step), rate, &note)
}

fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().expect("a run gives lists");
    list.iter().filter_map(Value::as_f64).collect()
}

fn last(value: &Value) -> f64 {
    numbers(value).last().copied().unwrap_or(f64::NAN)
}

fn median(seconds: &Value) -> f64 {
    let mut seconds = numbers(seconds);
    seconds.drain(..WARM_UP.min(seconds.len() - 1));
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}
