//! The costs of layers on GPUs.

use pipewright::data::DataSource;
use pipewright::plan::{LinkCost, ModelCosts};
use pipewright::stages::Recompute;
use pipewright::stages::optimizer::AdamW;
use pipewright_cli::config::Config;
use pipewright_cli::profile::{Subject, measure};
use pipewright_cli::{Result, compose};

use super::*;
use crate::beside::BACKWARD_WEIGHT;

const ROWS: usize = 3;

/// A perceptron with one layer per unit. One of them has no parameters.
fn model() -> Model {
    let linear = |name: &'static str, sizes| {
        let init = Init::Uniform(0.3);
        LayerSpec::of(name, 1.0, move || {
            let layer = Linear::new(name, sizes, init, 5).with_layout(Layout::InOut);
            layer.without_bias()
        })
    };
    Model::new(vec![
        linear("in", [10, 8]),
        LayerSpec::of("relu", 1.0, || Relu::new("relu")),
        linear("out", [8, 5]),
    ])
}

fn measured(places: &[Place]) -> Result<ModelCosts> {
    let data = RandomRows { rows: ROWS, width: 10, classes: 5 };
    let subject = || {
        Ok(Subject {
            model: model(),
            ranks: 3,
            shards: 1,
            places: places.to_vec(),
            micro_batches: 2,
            loss: CrossEntropy::default(),
            data: Arc::new(data) as Arc<dyn DataSource>,
            work: None,
            optimizer: AdamW::default(),
            state_on_host: false,
            recompute: Recompute::Cheap,
            threads_per_rank: 1,
            pin: false,
        })
    };
    measure(subject, |done, all| assert!(done <= all))
}

#[test]
fn every_rank_tells_what_its_gpu_was_at_with_and_without_parameters() {
    if emulator::start().is_none() {
        return;
    }
    for (dtype, bytes) in [(DType::F32, 4.0), (DType::Bf16, 2.0)] {
        let costs = measured(&[on(GPU, dtype)]).expect("it is measured");
        for layer in costs.layers() {
            assert!(layer.cost.forward > 0.0 && layer.backward > 0.0, "{layer:?}");
            assert_eq!(layer.cost.update > 0.0, layer.name != "relu", "{layer:?}");
        }
        let outputs: Vec<f64> = costs.layers().iter().map(|layer| layer.output).collect();
        assert_eq!(outputs, [8, 8, 5].map(|width| bytes * (ROWS * width) as f64));
        assert_eq!(costs.input(), bytes * (ROWS * 10) as f64);
        assert!(costs.link().latency > 0.0, "{:?}", costs.link());
    }
}

#[test]
fn wires_between_gpus_are_measured_between_them() {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return; // It has four devices.
    }
    let places = [0, 1, 0].map(|index| on(Device::Cuda(index), DType::F32));
    let costs = measured(&places).expect("it is measured");
    assert!(costs.link().latency > 0.0, "{:?}", costs.link());
}

/// A host with one rank of two has no transfer between ranks to measure.
#[test]
fn ranks_of_other_hosts_do_not_work_at_once_with_those_of_this_one() {
    if emulator::start().is_none() || env::var_os(BACKWARD_WEIGHT).is_some() {
        return;
    }
    let text = "[model]\ndim = 16\nheads = 2\nlayers = 2\n[data]\npath = \"builtin:shakespeare\"\nseq = 8\n\
                [pipeline]\nstages = 2\nmicro_batches = 2\ndevices = \"cuda:0\"\n";
    let config = Config::parse("my.toml", text, &[], &[]).expect("a config");
    let link = |hosts| compose::measure(&config, hosts, |_, _| ()).expect("it is measured").costs.link();
    assert!(link(1).latency > 0.0);
    assert_eq!(link(2), LinkCost::default());
}

/// Where the clock would miss them.
#[test]
fn weight_gradients_on_a_stream_of_their_own_are_not_measured() {
    if emulator::start().is_none() || env::var_os(BACKWARD_WEIGHT).is_none() {
        return;
    }
    let refused = measured(&[on(GPU, DType::F32)]).expect_err("refused");
    has(&refused, &[BACKWARD_WEIGHT, "is set: unset it"]);
}

#[test]
fn ranks_of_both_kinds_have_no_costs() {
    let places = [Device::Cpu, GPU, GPU].map(|device| on(device, DType::F32));
    has(&measured(&places).expect_err("refused"), &["these ranks are not all on the CPU, or all on GPUs"]);
}
