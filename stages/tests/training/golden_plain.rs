//! Repeats PyTorch's runs with a plain loop, without the engine: losses, gradient norms, first gradients and
//! final weights.

use std::path::PathBuf;

use pipewright_stages::models::{Gpt, Mlp, Model};
use safetensors::Dtype;

use super::*;

/// A run's settings and PyTorch's numbers.
struct Golden {
    settings: Value,
    losses: Vec<f64>,
    norms: Vec<f64>,
    tensors: HashMap<String, (Vec<usize>, Numbers)>,
}

enum Numbers {
    Floats(Vec<f32>),
    Ids(Vec<u32>),
}

impl Golden {
    fn read(path: &Path) -> Self {
        let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let floats = |key: &str| json[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let bytes = std::fs::read(path.with_extension("safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = tensors.iter().map(|(name, view)| {
            let numbers = match view.dtype() {
                Dtype::F32 => {
                    let words = view.data().as_chunks::<4>().0;
                    Numbers::Floats(words.iter().map(|&word| f32::from_le_bytes(word)).collect())
                }
                Dtype::I64 => {
                    let words = view.data().as_chunks::<8>().0;
                    Numbers::Ids(words.iter().map(|&word| i64::from_le_bytes(word) as u32).collect())
                }
                other => panic!("{name}: {other:?}"),
            };
            (name.to_owned(), (view.shape().to_vec(), numbers))
        });
        Self {
            losses: floats("losses"),
            norms: floats("grad_norms"),
            tensors: tensors.collect(),
            settings: json["settings"].clone(),
        }
    }

    fn size(&self, key: &str) -> usize {
        self.settings[key].as_u64().unwrap() as usize
    }

    fn number(&self, key: &str) -> f64 {
        self.settings[key].as_f64().unwrap()
    }

    fn floats(&self, name: &str) -> &[f32] {
        match &self.tensors[name].1 {
            Numbers::Floats(numbers) => numbers,
            Numbers::Ids(_) => panic!("{name} holds ids"),
        }
    }

    fn model(&self) -> Model {
        if self.settings["model"] == "gpt" {
            let (vocab, dim, layers) = (self.size("vocab"), self.size("dim"), self.size("layers"));
            let (heads, context) = (self.size("heads"), self.size("seq"));
            let tied = self.settings["tied"].as_bool().unwrap();
            return Gpt { vocab, dim, layers, heads, context, dropout: 0.0, tied, seed: 0 }.model().unwrap();
        }
        let sizes =
            self.settings["sizes"].as_str().unwrap().split(',').map(|size| size.parse().unwrap()).collect();
        Mlp { sizes, dropout: 0.0, seed: 0 }.model().unwrap()
    }

    fn optimizer(&self) -> Box<dyn Optimizer> {
        let (weight_decay, decay) = (self.number("weight_decay"), Decay::All);
        if self.settings["optimizer"] == "sgd" {
            return Box::new(Sgd { momentum: self.number("momentum"), weight_decay, decay });
        }
        let betas =
            (self.settings["betas"][0].as_f64().unwrap(), self.settings["betas"][1].as_f64().unwrap());
        Box::new(AdamW { betas, eps: self.number("eps"), weight_decay, decay, ..AdamW::default() })
    }

    /// The rows of `x` or `y` for a micro-batch of a step.
    fn rows(&self, name: &str, step: usize, micro_batch: usize) -> Tensor {
        let (dims, numbers) = &self.tensors[name];
        let row: usize = dims[2..].iter().product();
        let count = self.size("micro_batch");
        let start = (step * dims[1] + micro_batch * count) * row;
        let range = start..start + count * row;
        let dims = [&[count], &dims[2..]].concat();
        match numbers {
            Numbers::Floats(numbers) => Tensor::from_vec(&dims, numbers[range].to_vec()).unwrap(),
            Numbers::Ids(ids) => Tensor::from_ids(&dims, ids[range].to_vec()).unwrap(),
        }
    }
}

/// One step's gradients, summed over its micro-batches.
fn gradients(golden: &Golden, stage: &mut Sequential, shard_groups: u32, step: usize) -> Score {
    let mut total = Score::default();
    let mut loss = CrossEntropy::default().with_shard_groups(shard_groups).unwrap();
    for micro_batch in 0..golden.size("micro_batches") {
        let at = ForwardContext { step: step as u64, micro_batch: micro_batch as u32, mode: Mode::Train };
        let (output, saved) = stage.forward(at, golden.rows("x", step, micro_batch)).unwrap();
        let target = golden.rows("y", step, micro_batch);
        let (score, grad) = loss.forward(output, target).unwrap();
        let (_, pending) = stage.backward_input(saved, grad).unwrap();
        stage.backward_weight(pending).unwrap();
        total.add(score);
    }
    stage.parameters().into_iter().for_each(|parameter| parameter.end_group().unwrap());
    sum_ties(stage);
    total
}

/// Sums the gradients of parameters with the same name, in layer order, into every copy.
fn sum_ties(stage: &mut Sequential) {
    let mut sums: HashMap<String, Vec<f32>> = HashMap::new();
    for parameter in stage.parameters() {
        match sums.get_mut(parameter.name()) {
            Some(sum) => sum.iter_mut().zip(&*parameter.grad).for_each(|(sum, grad)| *sum += grad),
            None => drop(sums.insert(parameter.name().to_owned(), parameter.grad.to_vec())),
        }
    }
    for parameter in stage.parameters() {
        let name = parameter.name().to_owned();
        parameter.grad.copy_from_slice(&sums[&name]);
    }
}

/// The parameters in layer order, each name once.
fn unique(stage: &mut Sequential) -> Vec<&mut Parameter> {
    let mut seen = std::collections::HashSet::new();
    stage.parameters().into_iter().filter(|parameter| seen.insert(parameter.name().to_owned())).collect()
}

fn assert_close(what: &str, got: &[f32], expected: &[f32], scale: f32, tolerance: f32) {
    let largest = expected.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    for (index, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let off = (got * scale - expected).abs();
        assert!(off <= tolerance * largest, "{what}[{index}]: {} and {expected}", got * scale);
    }
}

fn assert_relative(what: &str, got: f64, expected: f64) {
    assert!((got - expected).abs() <= 1e-5 * expected, "{what}: {got} and {expected}");
}

fn run(golden: &Golden, shard_groups: u32) {
    let mut stage = golden.model().with_shard_groups(shard_groups).unwrap().whole().unwrap();
    for parameter in stage.parameters() {
        let name = format!("init.{}", parameter.name());
        assert_eq!(parameter.dims(), golden.tensors[&name].0, "{name}");
        parameter.value.copy_from_slice(golden.floats(&name));
    }
    let optimizer = golden.optimizer();
    for step in 0..golden.losses.len() {
        let score = gradients(golden, &mut stage, shard_groups, step);
        let mean = 1.0 / score.weight;
        let squares: f64 = unique(&mut stage).iter().flat_map(|parameter| parameter.all_grad_squares()).sum();
        let norm = squares.sqrt() * mean;
        assert_relative(&format!("loss of step {step}"), score.sum * mean, golden.losses[step]);
        assert_relative(&format!("norm of step {step}"), norm, golden.norms[step]);
        let clip = golden.number("clip");
        let factor = if clip > 0.0 { clip_factor(norm, clip) } else { 1.0 };
        let update = Update {
            step: step as u64 + 1,
            learning_rate: golden.number("lr"),
            scale: mean * factor,
            micro_batches: 1,
        };
        for parameter in stage.parameters() {
            if step == 0 {
                let name = format!("grad.{}", parameter.name());
                assert_close(&name, &parameter.grad, golden.floats(&name), mean as f32, 1e-5);
            }
            Together::now(|together| optimizer.update(parameter, update, together)).expect("the CPU can");
            parameter.zero_grad().expect("the CPU can");
        }
    }
    for parameter in stage.parameters() {
        check_final(golden, parameter);
    }
}

/// The true gradient of the keys' third of `c_attn.bias` is zero, so AdamW's steps there are rounding noise.
fn check_final(golden: &Golden, parameter: &Parameter) {
    let name = format!("final.{}", parameter.name());
    let expected = golden.floats(&name);
    if !name.ends_with("attn.c_attn.bias") {
        return assert_close(&name, &parameter.value, expected, 1.0, 1e-4);
    }
    let dim = expected.len() / 3;
    assert_close(&name, &parameter.value, expected, 1.0, 2e-2);
    for third in [0..dim, 2 * dim..3 * dim] {
        assert_close(&name, &parameter.value[third.clone()], &expected[third], 1.0, 1e-4);
    }
}

#[test]
fn every_golden_run_gives_pytorch_numbers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let runs: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let runs: Vec<&PathBuf> =
        runs.iter().filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    assert!(runs.len() >= 3);
    for path in runs {
        for shard_groups in [1, 2, 4] {
            println!("{}, {shard_groups} shard groups", path.display());
            run(&Golden::read(path), shard_groups);
        }
    }
}
