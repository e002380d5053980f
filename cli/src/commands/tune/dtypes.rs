//! Which number types are tried, and what each came to.

use clap::ValueEnum;

use super::grid::Grid;
use super::variant::with_dtype;
use crate::compose;
use crate::config::Config;
use crate::{Error, Result};
use pipewright::stages::DType;

/// The value of `--dtype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Dtype {
    F32,
    Bf16,
    Any,
}

/// The number types to try. Costs in a file are of one type.
pub(super) fn wanted(given: Option<Dtype>, has_costs: bool, config: &Config) -> Result<Vec<DType>> {
    match given {
        None => Ok(vec![config.pipeline.dtype]),
        Some(Dtype::F32) => Ok(vec![DType::F32]),
        Some(Dtype::Bf16) => Ok(vec![DType::Bf16]),
        Some(Dtype::Any) if has_costs => Err(Error::refused(
            "--dtype any: the file of --costs is for one number type: leave --costs out, so that both are \
             measured",
        )),
        Some(Dtype::Any) => Ok(vec![DType::F32, DType::Bf16]),
    }
}

/// Says on the error stream how the devices compute, if several number types are tried.
pub(super) fn introduce(dtypes: &[DType], config: &Config) {
    for &dtype in dtypes.iter().filter(|_| dtypes.len() > 1) {
        if let Some(devices) = compose::describe_devices(&with_dtype(config, dtype)) {
            eprintln!("devices {devices}");
        }
    }
}

/// A line for each number type with its best setting, if several were tried.
pub(super) fn compared(grid: &Grid) -> String {
    let dtypes = grid.dtypes();
    let of = |&dtype: &DType| match grid.best_in(dtype) {
        None => format!("best in {dtype}: nothing fits\n"),
        Some(found) => {
            let how = found.measured.map_or("predicted", |_| "measured");
            let mebibytes = |bytes: f64| bytes / f64::from(1 << 20);
            format!(
                "best in {dtype}: {:.4} s {how}, peak {:.2} MiB, memory {:.2} MiB on a rank: {}\n",
                found.seconds(),
                mebibytes(found.candidate.prediction.peak_memory),
                mebibytes(found.memory),
                found.in_words()
            )
        }
    };
    dtypes.iter().filter(|_| dtypes.len() > 1).map(of).collect()
}
