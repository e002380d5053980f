//! What it takes to tell a GPU to do something.

use std::time::Instant;

use pipewright::plan::Work;
use pipewright::stages::layers::Relu;
use pipewright::stages::{Sequential, Stage};

use crate::kernels::{Setting, median, numbers, runs};
use crate::sizes::Result;
use crate::table::{Guess, Table, Unit};
use crate::timer::{EVALUATE, Timer};

/// Launches that are timed together. The GPU is busy until the host has queued them all.
const LAUNCHES: usize = 64;
/// Numbers that each reads and writes.
const COUNT: usize = 256;

/// Times kernels that have next to nothing to do.
pub(crate) fn measure(table: &mut Table<'_>, setting: &Setting<'_>) -> Result<()> {
    let mut timer = Timer::new(setting.place, setting.filling()?)?;
    let mut stage = Sequential::new(vec![Box::new(Relu::new("relu"))]);
    stage.move_to(setting.place)?;
    let input = stage.load(numbers(&[COUNT])?)?;
    let (mut on_gpu, mut on_host) = (Vec::new(), Vec::new());
    // The first round makes what later ones use again.
    for round in 0..=setting.rounds {
        let told = timer.time(|| {
            let since = Instant::now();
            for _ in 0..LAUNCHES {
                stage.forward(EVALUATE, input.clone())?;
            }
            Ok(since.elapsed())
        })?;
        let seconds = timer.read()?[0];
        if round > 0 {
            on_gpu.push(seconds / LAUNCHES as f64);
            on_host.push(told.as_secs_f64() / LAUNCHES as f64);
        }
    }
    let bytes = 2 * COUNT * setting.place.dtype.bytes();
    let tiny = runs(Work::Bytes(bytes as f64), 1);
    let guess = |what, predicted| Guess { what, unit: Unit::Time, predicted };
    table.row(
        &guess("a launch, on the GPU", setting.kind.map(|kind| kind.time(&tiny))),
        median(on_gpu),
        "one after the other",
    )?;
    table.row(
        &guess("a layer of one launch, on the host", None),
        median(on_host),
        "the host must be faster than kernels are on average",
    )
}
