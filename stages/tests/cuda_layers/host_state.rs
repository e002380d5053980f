//! State of the optimizer on the host: the bits of state on the GPU, in every format and for every optimizer.

use pipewright_stages::Parameter;
use pipewright_stages::optimizer::{AdamW, Lion, Optimizer, Sgd, StateFormat, update};

use super::*;
use crate::together::{move_to, of_step, parameters};

/// All optimizers that run on GPUs, in all formats of their state.
fn optimizers() -> Vec<Box<dyn Optimizer>> {
    let formats = [StateFormat::F32, StateFormat::Bf16, StateFormat::Blocks];
    let adamw = formats.map(|state| AdamW { weight_decay: 0.1, state, ..AdamW::default() });
    let mut all: Vec<Box<dyn Optimizer>> =
        adamw.into_iter().map(|adamw| Box::new(adamw) as Box<dyn Optimizer>).collect();
    all.push(Box::new(Lion::default()));
    all.extend([0.0, 0.9].map(|momentum| Box::new(Sgd { momentum, ..Sgd::default() }) as Box<dyn Optimizer>));
    all
}

/// Updates these parameters.
fn step(all: &mut [Parameter], optimizer: &dyn Optimizer, step: u64) {
    Together::now(|together| {
        let mut all = all.iter_mut();
        all.try_for_each(|parameter| update(optimizer, parameter, of_step(step), together))
    })
    .expect("it runs there");
}

#[track_caller]
fn assert_same(on_gpu: &mut [Parameter], on_host: &mut [Parameter], case: &str) {
    for (expected, got) in on_gpu.iter_mut().zip(on_host) {
        for part in [Part::Value, Part::State] {
            expected.fetch(part).expect("it is there");
            got.fetch(part).expect("it is there");
        }
        let name = format!("{case}: {} of {}", got.name(), got.count());
        assert_eq!(bits(&got.value), bits(&expected.value), "{name}: weights");
        assert_eq!(got.state.len(), expected.state.len(), "{name}");
        for (got, expected) in got.state.iter().zip(&expected.state) {
            assert_eq!(bits(got), bits(expected), "{name}: state");
        }
    }
}

/// Many parameters: of each a replica owns all, a part, or nothing. Between two updates the state changes its
/// place, as in a run that goes on elsewhere.
#[test]
fn it_gives_the_bits_of_state_on_the_gpu() {
    if emulator::start().is_none() {
        return;
    }
    let make = |dtype, on_host: bool, divided: bool| {
        let mut all = parameters(70);
        for (index, parameter) in all.iter_mut().enumerate().filter(|_| divided) {
            let count = parameter.trained();
            let start = (count / 128).min(index) * 128;
            parameter.own(start..if index % 3 == 0 { start } else { count });
        }
        // Before and after the numbers move.
        let (first, last) = all.split_at_mut(35);
        move_to(first, gpu(dtype));
        all_on_host(first, on_host);
        all_on_host(last, on_host);
        move_to(last, gpu(dtype));
        all
    };
    for optimizer in optimizers() {
        for (dtype, divided) in [(DType::F32, false), (DType::Bf16, true)] {
            let case = format!("{optimizer:?} in {dtype}, divided: {divided}");
            let [mut expected, mut got] = [false, true].map(|on_host| make(dtype, on_host, divided));
            for at in [1, 2] {
                step(&mut expected, &*optimizer, at);
                step(&mut got, &*optimizer, at);
                assert_same(&mut expected, &mut got, &case);
            }
            let mut elsewhere = make(dtype, true, divided);
            for (from, to) in expected.iter().zip(&mut elsewhere) {
                to.value.copy_from_slice(&from.value);
                to.state.clone_from(&from.state);
                to.store(Part::Value).expect("there is room");
                to.store(Part::State).expect("there is room");
            }
            step(&mut expected, &*optimizer, 3);
            step(&mut elsewhere, &*optimizer, 3);
            assert_same(&mut expected, &mut elsewhere, &case);
        }
    }
}

fn all_on_host(all: &mut [Parameter], on_host: bool) {
    all.iter_mut().filter(|_| on_host).for_each(Parameter::keep_state_on_host);
}

/// More parts than there is room for at once on the GPU, and one that is not whole. In eight bits a part has
/// more numbers, and there are two.
#[test]
fn large_parameters_pass_in_parts() {
    if emulator::start().is_none() {
        return;
    }
    const COUNT: usize = (4 << 20) + 1029;
    for state in [StateFormat::F32, StateFormat::Bf16, StateFormat::Blocks] {
        let optimizer = AdamW { state, ..AdamW::default() };
        let [mut expected, mut got] = [false, true].map(|on_host| {
            let mut parameter = Parameter::new("p", &[1, COUNT], Init::Normal(1.0), 1);
            parameter.grad.copy_from_slice(&parameter.value);
            all_on_host(std::slice::from_mut(&mut parameter), on_host);
            parameter.move_to(gpu(DType::F32)).expect("there is room");
            [parameter]
        });
        for at in [1, 2] {
            step(&mut expected, &optimizer, at);
            step(&mut got, &optimizer, at);
        }
        assert_same(&mut expected, &mut got, &format!("{state:?}"));
    }
}

/// Work on a parameter that waits comes before its update, which does not wait.
#[test]
fn an_update_comes_after_what_waits_for_the_parameter() {
    if emulator::start().is_none() {
        return;
    }
    let [mut expected, mut got] = [false, true].map(|on_host| {
        let mut all = parameters(9);
        all_on_host(&mut all, on_host);
        move_to(&mut all, gpu(DType::F32));
        all
    });
    for all in [&mut expected, &mut got] {
        Together::now(|together| {
            for parameter in all.iter_mut() {
                update(&AdamW::default(), parameter, of_step(1), together)?;
                parameter.start_sum(together)?;
                update(&AdamW::default(), parameter, of_step(2), together)?;
            }
            Ok(())
        })
        .expect("it runs there");
    }
    assert_same(&mut expected, &mut got, "after what waits");
}
