//! Work on many parameters of a GPU in a launch: the bits, and how many launches it takes.

use pipewright_stages::Parameter;
use pipewright_stages::optimizer::{AdamW, Decay, Lion, Optimizer, Sgd, StateFormat, Update, update};

use super::*;

/// Of none, of parts of a block, of whole blocks, and of two pieces of a gradient's norm.
const COUNTS: [usize; 9] = [0, 1, 3, 4, 5, 1023, 1024, 1025, Parameter::PIECE + 1];

/// `many` parameters of all these counts: matrices and vectors, some trained in their own way, some running
/// means, some frozen.
pub(crate) fn parameters(many: usize) -> Vec<Parameter> {
    let make = |index: usize| {
        let (name, count) = (format!("p{index}"), COUNTS[index % COUNTS.len()]);
        let dims = &[1, count][index % 2..];
        let mut parameter = Parameter::new(name.clone(), dims, Init::Zeros, 0);
        parameter.train_by(Training {
            frozen: index % 19 == 18,
            rate: [1.0, 0.5][index / 2 % 2],
            weight_decay: [None, Some(0.3)][index / 4 % 2],
        });
        if index % 7 == 6 && !parameter.is_frozen() {
            parameter = parameter.running(0.1);
        }
        parameter.value.copy_from_slice(&numbers(&name, count));
        let grad = numbers(&format!("{name} grad"), parameter.trained());
        parameter.grad.copy_from_slice(&grad);
        parameter
    };
    (0..many).map(make).collect()
}

pub(crate) fn move_to(parameters: &mut [Parameter], place: Place) {
    for parameter in parameters {
        parameter.move_to(place).unwrap();
    }
}

pub(crate) fn of_step(step: u64) -> Update {
    Update { step, learning_rate: 0.1, scale: 0.5, micro_batches: 3 }
}

/// Does two updates of these parameters.
fn train(parameters: &mut [Parameter], optimizer: &dyn Optimizer) {
    for step in [1, 2] {
        Together::now(|together| {
            let mut all = parameters.iter_mut();
            all.try_for_each(|parameter| update(optimizer, parameter, of_step(step), together))
        })
        .unwrap();
    }
}

#[test]
fn updates_have_the_bits_of_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    let [halves, blocks] = [StateFormat::Bf16, StateFormat::Blocks].map(|state| AdamW {
        weight_decay: 0.1,
        state,
        ..AdamW::default()
    });
    let optimizers: [&dyn Optimizer; 6] = [
        &halves,
        &blocks,
        &AdamW { decay: Decay::All, ..AdamW::default() },
        &Lion::default(),
        &Sgd::default(),
        &Sgd { momentum: 0.9, weight_decay: 0.1, decay: Decay::Matrices },
    ];
    for optimizer in optimizers {
        for many in [1, 2, 63, 64, 65, 130] {
            let (mut here, mut there) = (parameters(many), parameters(many));
            move_to(&mut there, gpu(DType::F32));
            train(&mut here, optimizer);
            train(&mut there, optimizer);
            for (here, there) in here.iter().zip(&mut there) {
                for part in [Part::Value, Part::State, Part::Gradient] {
                    there.fetch(part).unwrap();
                }
                let same = |name: &str, here: &[f32], there: &[f32]| {
                    assert_eq!(bits(here), bits(there), "{optimizer:?}, {many}: {} {name}", there.len());
                };
                same("weights", &here.value, &there.value);
                same("gradients", &here.grad, &there.grad);
                let states = here.state.iter().zip(&there.state);
                states.for_each(|(here, there)| same("state", here, there));
            }
        }
    }
}

#[test]
fn norms_and_new_sums_are_those_of_each_alone() {
    if emulator::start().is_none() {
        return;
    }
    for many in [1, 65, 130] {
        let mut all = parameters(many);
        move_to(&mut all, gpu(DType::Bf16));
        let squares = |all: &mut [Parameter]| -> Vec<u64> {
            all.iter_mut()
                .flat_map(|parameter| {
                    parameter.fetch(Part::Gradient).unwrap();
                    parameter.all_grad_squares().into_iter().map(f64::to_bits).collect::<Vec<u64>>()
                })
                .collect()
        };
        for parameter in &all {
            Together::now(|together| parameter.start_grad_squares(together)).unwrap();
        }
        let alone = squares(&mut all);
        assert!(alone.iter().all(|&bits| f64::from_bits(bits) >= 0.0));
        let mut all = parameters(many);
        move_to(&mut all, gpu(DType::Bf16));
        Together::now(|together| {
            let mut all = all.iter();
            all.try_for_each(|parameter| parameter.start_grad_squares(together))
        })
        .unwrap();
        assert_eq!(squares(&mut all), alone);
        Together::now(|together| {
            let mut all = all.iter_mut();
            all.try_for_each(|parameter| parameter.start_sum(together))
        })
        .unwrap();
        for parameter in &mut all {
            parameter.fetch(Part::Gradient).unwrap();
        }
        assert!(all.iter().all(|parameter| parameter.grad.iter().all(|&number| number == 0.0)));
    }
}

#[test]
fn more_work_for_a_parameter_comes_after_what_waits() {
    if emulator::start().is_none() {
        return;
    }
    let (mut here, mut there) = (parameters(65), parameters(65));
    move_to(&mut there, gpu(DType::F32));
    for all in [&mut here, &mut there] {
        Together::now(|together| {
            for parameter in all.iter_mut() {
                for step in [1, 2] {
                    update(&AdamW::default(), parameter, of_step(step), together)?;
                }
                parameter.start_sum(together)?;
                update(&AdamW::default(), parameter, of_step(3), together)?;
            }
            Ok(())
        })
        .unwrap();
    }
    for (here, there) in here.iter().zip(&mut there) {
        there.fetch(Part::Value).unwrap();
        assert_eq!(bits(&here.value), bits(&there.value), "{}", here.name());
    }
}

#[test]
fn a_launch_has_64_parameters_at_most_and_what_waits_may_be_dropped() {
    if emulator::start().is_none() {
        return;
    }
    let mut all: Vec<Parameter> =
        (0..130).map(|index| Parameter::new(format!("p{index}"), &[5], Init::Normal(1.0), 1)).collect();
    move_to(&mut all, gpu(DType::F32));
    let launched = || emulator::counted("libcuda.so", "pw_launched");
    // The first update makes the optimizer's tensors.
    train(&mut all, &AdamW::default());
    let before = launched();
    train(&mut all, &AdamW::default());
    if let (Some(before), Some(after)) = (before, launched()) {
        assert_eq!(after - before, 2 * 3);
    }
    let mut together = Together::default();
    for parameter in &mut all {
        parameter.start_grad_squares(&mut together).unwrap();
    }
    drop(all);
    together.launch().unwrap();
}
