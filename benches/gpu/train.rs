//! Training with all stages on one GPU.

use serde_json::Value;

use crate::kernels::TOP_FLOPS;
use crate::run::Given;
use crate::sizes::Result;

/// The default for how many stages are measured.
pub(crate) const STAGES: [u32; 3] = [1, 2, 4];
/// Steps that are not measured.
const WARM_UP: usize = 3;
/// The rate of dense bf16 products in the data sheet of H100 and H200 (SXM), in operations per second.
const PEAK: f64 = 989.4e12;

/// Trains with each number of stages, and prints a line for each.
pub(crate) fn measure(stages: &[u32], json: bool, given: impl Fn(u32) -> Result<Given>) -> Result<()> {
    let mut first = None;
    for &ranks in stages {
        let given = given(ranks)?;
        let said = given.train("1f1b", 1, None)?;
        if json {
            println!("{said}");
            continue;
        }
        if first.is_none() {
            println!("{}", header(&given));
        }
        let rate = given.size.targets() as f64 / median(&said["seconds"]);
        let [full, causal] = given.size.mfu_flops().map(|flops| rate * flops);
        println!(
            "{ranks:>6} {rate:>12.0} {:>14.3} {:>8.1}% {:>8.1}% {:>8.1}% {:>10.4}",
            rate / *first.get_or_insert(rate),
            100.0 * full / PEAK,
            100.0 * causal / PEAK,
            100.0 * full / TOP_FLOPS,
            last(&said["losses"]),
        );
    }
    Ok(())
}

fn header(given: &Given) -> String {
    let size = &given.size;
    format!(
        "training in {}, {} parameters, {} tokens a step in {} micro-batches, 1f1b, all stages on {}\n\
         MFU: 6 N + 12 L C T operations a token, causal 6 N + 6 L C T, of {} TFLOP/s; \
         the last share is the first formula's of {} TFLOP/s\n\
         {:>6} {:>12} {:>14} {:>9} {:>9} {:>9} {:>10}",
        given.place.dtype,
        size.parameters(),
        size.targets(),
        size.micro_batches,
        given.place.device,
        PEAK / 1e12,
        TOP_FLOPS / 1e12,
        "stages",
        "tokens/s",
        "of the first",
        "MFU",
        "causal",
        "share",
        "last loss",
    )
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
