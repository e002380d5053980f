//! Repeats PyTorch's runs of networks of convolutions: losses, first gradients, final weights, running means
//! and an evaluation.

use pipewright_stages::layers::{Conv2d, GlobalAverage, GroupNorm, Linear, MaxPool};
use pipewright_stages::models::{Cnn, ResNet};
use pipewright_stages::optimizer::update;

use super::*;

const STEPS: usize = 3;
const MICRO_BATCHES: usize = 2;
const ROWS: usize = 5;
const CLASSES: usize = 4;
const SGD: Sgd = Sgd { momentum: 0.9, weight_decay: 0.01, decay: Decay::All };

struct Golden {
    tensors: HashMap<String, (Vec<usize>, Vec<f32>)>,
    classes: Vec<u32>,
}

impl Golden {
    fn read(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/images");
        let bytes = std::fs::read(folder.join(format!("{name}.safetensors"))).unwrap();
        let (mut tensors, mut classes) = (HashMap::new(), Vec::new());
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            if name == "y" {
                let words = view.data().as_chunks::<8>().0.iter();
                classes = words.map(|&word| i64::from_le_bytes(word) as u32).collect();
                continue;
            }
            let words = view.data().as_chunks::<4>().0.iter();
            let numbers = words.map(|&word| f32::from_le_bytes(word)).collect();
            tensors.insert(name.to_owned(), (view.shape().to_vec(), numbers));
        }
        Self { tensors, classes }
    }

    fn numbers(&self, name: &str) -> &[f32] {
        &self.tensors[name].1
    }

    /// The images and classes of some rows, counted over all steps.
    fn rows(&self, first: usize, count: usize) -> (Tensor, Tensor) {
        let (dims, numbers) = &self.tensors["x"];
        let row: usize = dims[2..].iter().product();
        let dims = [&[count], &dims[2..]].concat();
        let images = numbers[first * row..(first + count) * row].to_vec();
        let classes = self.classes[first..first + count].to_vec();
        (Tensor::from_vec(&dims, images).unwrap(), Tensor::from_ids(&[count], classes).unwrap())
    }
}

fn assert_close(what: &str, got: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!((got - expected).abs() <= tolerance * largest, "{what}[{index}]: {got} and {expected}");
    }
}

/// One micro-batch of training. Returns the loss.
fn train(stage: &mut Sequential, golden: &Golden, step: usize, micro_batch: usize) -> f64 {
    let ctx = ForwardContext { step: step as u64, micro_batch: micro_batch as u32, mode: Mode::Train };
    let (images, classes) = golden.rows((step * MICRO_BATCHES + micro_batch) * ROWS, ROWS);
    let (output, saved) = stage.forward(ctx, images).unwrap();
    let (score, grad) = CrossEntropy::default().forward(output, classes).unwrap();
    let (_, pending) = stage.backward_input(saved, grad).unwrap();
    stage.backward_weight(pending).unwrap();
    score.sum
}

fn check(name: &str, mut stage: Sequential) {
    let golden = Golden::read(name);
    for parameter in stage.parameters() {
        let start = format!("init.{}", parameter.name());
        if let Some((dims, numbers)) = golden.tensors.get(&start) {
            assert_eq!(parameter.dims(), dims, "{start}");
            parameter.value.copy_from_slice(numbers);
        }
    }
    let count = (MICRO_BATCHES * ROWS) as f32;
    for step in 0..STEPS {
        let losses = (0..MICRO_BATCHES).map(|micro_batch| train(&mut stage, &golden, step, micro_batch));
        let loss = losses.sum::<f64>() as f32 / count;
        assert_close("the loss", &[loss], &golden.numbers("losses")[step..=step], 1e-5);
        let by = Update {
            step: step as u64 + 1,
            learning_rate: 0.05,
            scale: 1.0 / f64::from(count),
            micro_batches: MICRO_BATCHES as u32,
        };
        for parameter in stage.parameters() {
            let of = format!("grad.{}", parameter.name());
            if let (0, Some((_, expected))) = (step, golden.tensors.get(&of)) {
                let mean: Vec<f32> = parameter.grad.iter().map(|sum| sum / count).collect();
                assert_close(&of, &mean, expected, 2e-5);
            }
            Together::now(|together| update(&SGD, parameter, by, together)).unwrap();
            parameter.zero_grad().unwrap();
        }
    }
    let mut compared = 0;
    for parameter in stage.parameters() {
        let of = format!("final.{}", parameter.name());
        assert_close(&of, &parameter.value, golden.numbers(&of), 1e-4);
        compared += 1;
    }
    let finals = golden.tensors.keys().filter(|name| name.starts_with("final."));
    assert_eq!(finals.count(), compared, "{name}: all that PyTorch has");
    let ctx = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Evaluate };
    let (logits, _) = stage.forward(ctx, golden.rows(0, MICRO_BATCHES * ROWS).0).unwrap();
    assert_close("the logits", logits.f32(), golden.numbers("logits"), 2e-5);
}

#[test]
fn a_residual_network_has_pytorchs_numbers() {
    let resnet = ResNet { image: [9, 8, 3], blocks: vec![2, 1, 1], width: 4, classes: CLASSES, seed: 1 };
    check("resnet", resnet.model().unwrap().whole().unwrap());
}

#[test]
fn a_small_network_has_pytorchs_numbers() {
    let cnn = Cnn { image: [9, 8, 1], channels: vec![6, 8], classes: CLASSES, seed: 1 };
    check("cnn", cnn.model().unwrap().whole().unwrap());
}

#[test]
fn layers_of_other_sizes_have_pytorchs_numbers() {
    let init = Init::Zeros;
    let stage = Sequential::new(vec![
        Box::new(Conv2d::new("conv1", [3, 12], 5, init, 1).with_stride(2).with_padding(2)),
        Box::new(GroupNorm::new("norm1", 3, 12, 1e-5).unwrap()),
        Box::new(MaxPool::new("pool", 3).with_stride(1).with_padding(1)),
        Box::new(Conv2d::new("conv2", [12, 10], 2, init, 1)),
        Box::new(GroupNorm::new("norm2", 5, 10, 1e-5).unwrap()),
        Box::new(GlobalAverage::new("average")),
        Box::new(Linear::new("fc", [10, CLASSES], init, 1)),
    ]);
    check("layers", stage);
}
