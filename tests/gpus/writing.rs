//! Text that is written on GPUs.

use pipewright::stages::layers::Routing;

use super::quantised::{quantised, quantised_llama};
use super::*;
use crate::text::{gpt, llama, mixtral, of_one_stage, of_pipeline};

/// The largest difference of two lists of scores, as a share of the largest score. NaN counts as the largest.
fn distance(got: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    let largest = expected.iter().flatten().fold(0.0_f32, |most, x| most.max(x.abs()));
    let pairs = got.iter().flatten().zip(expected.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp).expect("there are scores") / largest
}

/// Also of models in blocks. A call has at most eight tokens.
#[test]
fn scores_on_gpus_are_those_of_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    let experts = Some(Routing { experts: 4, chosen: 2, auxiliary: 0.0 });
    let in_blocks = [quantised(), quantised_llama(None), quantised_llama(experts)];
    for recipe in [gpt(), llama(), mixtral()].into_iter().chain(in_blocks) {
        let expected = of_one_stage(&recipe);
        for (dtype, most) in [(DType::F32, 1e-5), (DType::Bf16, 5e-2)] {
            let mut alone = None;
            for (schedule, ranks) in [("gpipe", 1), ("gpipe", 3), ("zb-v", 2)] {
                let builder = recipe.builder(named(schedule, ranks, 4));
                let mut pipeline = builder.places(vec![on(GPU, dtype)]).launch().expect("it starts");
                let scores = of_pipeline(&mut pipeline);
                let away = distance(&scores, &expected);
                assert!(away < most, "{schedule} on {ranks} ranks in {dtype}: {away} away");
                assert_eq!(*alone.get_or_insert_with(|| scores.clone()), scores, "{schedule}");
            }
        }
    }
}

#[test]
fn a_text_goes_from_a_gpu_to_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    let places = [GPU, Device::Cpu].map(|device| on(device, DType::F32));
    let builder = llama().builder(named("gpipe", 2, 4));
    let mut pipeline = builder.places(places.to_vec()).launch().expect("it starts");
    assert!(distance(&of_pipeline(&mut pipeline), &of_one_stage(&llama())) < 1e-5);
}
