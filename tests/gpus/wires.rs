//! Short wires of GPUs.

use pipewright::stages::WireFormat;

use super::*;
use crate::divided_models::llama;
use crate::shards::run;
use crate::worlds::in_processes;

fn with_wires(wires: WireFormat) -> Recipe {
    let Recipe { model, .. } = llama(1);
    Recipe { model: Box::new(move || model().with_wires(wires)), ..llama(1) }
}

#[test]
fn every_cut_in_one_and_two_processes_has_the_same_bits() {
    if emulator::start().is_none() {
        return;
    }
    let recipe = || with_wires(WireFormat::Bf16);
    for dtype in [DType::F32, DType::Bf16] {
        let places = || vec![on(GPU, dtype)];
        let (_, expected) = run(recipe().builder(named("1f1b", 1, 4)).places(places()));
        let (_, without) = run(llama(1).builder(named("1f1b", 1, 4)).places(places()));
        assert_eq!(without == expected, dtype == DType::Bf16, "bf16 is not rounded again");
        for ranks in [2, 3] {
            let (_, hash) = run(recipe().builder(named("zb-h1", ranks, 4)).places(places()));
            assert_eq!(hash, expected, "{dtype}, {ranks} ranks");
        }
        let gpus = devices::probe().gpus.expect("there is one").len() as u32;
        let each = || (0..2).map(|rank| on(Device::Cuda(rank % gpus), dtype)).collect();
        let hashes =
            in_processes(2, |world| run(recipe().builder(named("1f1b", 2, 4)).places(each()).world(world)).1);
        assert!(hashes.iter().all(|hash| *hash == expected), "{dtype}, two processes: {hashes:?}");
    }
}

#[test]
fn what_is_for_the_cpu_alone_is_refused() {
    if emulator::start().is_none() {
        return;
    }
    let launch = |recipe: Recipe| {
        let builder = recipe.builder(named("1f1b", 2, 4)).places(vec![on(GPU, DType::F32)]);
        builder.launch().expect_err("on a GPU")
    };
    has(&launch(with_wires(WireFormat::Blocks)), &["wires of 8 bits are for ranks on the CPU"]);
    let error = launch(Recipe { sums: DType::Bf16, ..llama(1) });
    has(&error, &["sums cannot be in bf16: GPUs add up gradients in f32"]);
}
