//! Recomputing changes what is kept, but no bit of the results.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pipewright_stages::layers::{Block, Dropout, Layout, Linear, Relu};
use pipewright_stages::{Kept, Recompute, RecomputedStage, Result, recompute};

use super::*;

const ALL: [Recompute; 4] = Recompute::ALL;

fn gpt(dropout: f32, tied: bool) -> Model {
    let gpt = Gpt { vocab: 50, dim: 24, layers: 2, heads: 3, context: 16, dropout, tied, seed: 5 };
    gpt.model().unwrap()
}

fn mlp() -> Model {
    let mlp = Mlp { sizes: vec![12, 8, 9, 3], dropout: 0.2, seed: 1 };
    mlp.model().unwrap()
}

/// A chain that is not told to recompute, inside one that is. The stage begins with a layer that writes to
/// its input, and ends with dropout.
fn nested() -> Model {
    let linear = |name: &str| {
        let layer = Linear::new(name, [12, 12], Init::Normal(0.3), 1);
        Box::new(layer.with_layout(Layout::InOut).with_bias(Init::Ones))
    };
    let relu = |name: &str| Box::new(Relu::new(name));
    let dropout = |name: &str| Box::new(Dropout::new(name, 0.3, 4).unwrap());
    Model::new(vec![
        LayerSpec::new("a", 1.0, move || Ok(vec![linear("a.fc")])),
        LayerSpec::new("b", 1.0, move || {
            let inner = Block::residual("b.in", vec![relu("b.relu"), linear("b.fc"), dropout("b.drop")]);
            let outer = Block::residual("b.out", vec![linear("b.fc0"), Box::new(inner), relu("b.relu1")]);
            Ok(vec![relu("b.relu0"), Box::new(outer), dropout("b.last")])
        }),
        LayerSpec::new("c", 1.0, move || Ok(vec![dropout("c.first"), relu("c"), dropout("c.last")])),
        LayerSpec::new("d", 1.0, move || Ok(vec![dropout("d")])),
    ])
}

fn build(model: Model, stages: u32, how: Recompute) -> Vec<RecomputedStage<Sequential>> {
    let stages = model.split(stages).unwrap().into_iter();
    stages.map(|stage| recompute(stage, how).build().unwrap()).collect()
}

fn ctx(micro_batch: u32, mode: Mode) -> ForwardContext {
    ForwardContext { step: 3, micro_batch, mode }
}

/// The outputs and gradients of a training step of two micro-batches. Backward is one call for the first
/// micro-batch, and two halves for the second.
fn train<S: Stage<Wire = Tensor>>(stages: &mut [S], input: &Tensor) -> (Vec<Tensor>, Vec<Vec<f32>>) {
    let mut outputs = Vec::new();
    let mut kept = Vec::new();
    for micro_batch in 0..2 {
        let mut wire = input.clone();
        for stage in stages.iter_mut() {
            let (output, saved) = stage.forward(ctx(micro_batch, Mode::Train), wire).unwrap();
            kept.push(saved);
            wire = output;
        }
        outputs.push(wire);
    }
    for micro_batch in [1, 0] {
        let mut grad = Some(tensor("grad", outputs[micro_batch].dims()));
        for stage in stages.iter_mut().rev() {
            let (saved, output_grad) = (kept.pop().unwrap(), grad.unwrap());
            grad = if micro_batch == 0 {
                stage.backward(saved, output_grad).unwrap()
            } else {
                let (input_grad, pending) = stage.backward_input(saved, output_grad).unwrap();
                stage.backward_weight(pending).unwrap();
                input_grad
            };
        }
        outputs.extend(grad);
    }
    let gradients = stages.iter_mut().flat_map(|stage| stage.parameters());
    (outputs, gradients.map(|parameter| parameter.grad.to_vec()).collect())
}

#[test]
fn every_model_gives_the_same_bits() {
    let tokens = ids("x", &[2, 16], 50);
    let rows = tensor("x", &[5, 12]);
    type Case = (&'static str, Box<dyn Fn() -> Model>, Tensor);
    let cases: [Case; 5] = [
        ("gpt", Box::new(|| gpt(0.0, false)), tokens.clone()),
        ("gpt with dropout", Box::new(|| gpt(0.1, false)), tokens.clone()),
        ("tied gpt with dropout", Box::new(|| gpt(0.1, true)), tokens),
        ("mlp", Box::new(mlp), rows.clone()),
        ("nested", Box::new(nested), rows),
    ];
    for (name, model, input) in cases {
        for stages in [1, 2, 4] {
            let plain = model().split(stages).unwrap().into_iter();
            let mut plain: Vec<Sequential> = plain.map(|stage| stage.build().unwrap()).collect();
            let expected = train(&mut plain, &input);
            for how in ALL {
                let mut stages = build(model(), stages, how);
                assert!(train(&mut stages, &input) == expected, "{name}, {how:?}");
            }
        }
    }
}

/// The bytes that one stage keeps of a micro-batch: after forward, and after restoring.
fn kept(model: Model, how: Recompute, input: &Tensor) -> [u64; 2] {
    let [mut stage] = build(model, 1, how).try_into().unwrap();
    let (_, saved) = stage.forward(ctx(0, Mode::Train), input.clone()).unwrap();
    let before = saved.bytes();
    [before, stage.restore(saved).unwrap().bytes()]
}

#[test]
fn a_stage_keeps_what_it_says() {
    let input = ids("x", &[2, 16], 50);
    let numbers = |width: u64| 4 * 2 * 16 * width;
    // A block keeps: the inputs of its norms with two numbers per row; queries, keys and values; attention's
    // output with a number per head; the wide activation of the MLP.
    let block = numbers((24 + 2) + 72 + (24 + 3)) + numbers((24 + 2) + 96);
    let ends = numbers(1) + numbers(24 + 2);
    for dropout in [0.0, 0.1] {
        let whole = 2 * block + ends;
        assert_eq!(kept(gpt(dropout, true), Recompute::Cheap, &input), [whole; 2]);
        // Also the outputs of two norms and of the activation, and of the last norm.
        let all = whole + 2 * numbers(2 * 24 + 96) + numbers(24);
        assert_eq!(kept(gpt(dropout, true), Recompute::None, &input), [all; 2]);
        let inputs = numbers(4 * 24) + ends;
        assert_eq!(kept(gpt(dropout, true), Recompute::Selective, &input), [inputs; 2]);
        assert_eq!(kept(gpt(dropout, true), Recompute::Full, &input), [numbers(1), whole]);
    }
    let rows = tensor("x", &[5, 12]);
    let [all, _] = kept(mlp(), Recompute::None, &rows);
    assert_eq!(kept(mlp(), Recompute::Selective, &rows), [all; 2], "nothing is composite");
    assert_eq!(kept(mlp(), Recompute::Full, &rows), [5 * 12 * 4, all]);
}

#[test]
fn evaluation_and_probe_are_as_without() {
    let input = ids("x", &[2, 16], 50);
    let run = |how, mode| {
        let [mut stage] = build(gpt(0.1, true), 1, how).try_into().unwrap();
        let (output, saved) = stage.forward(ctx(1, mode), input.clone()).unwrap();
        (output, saved.bytes())
    };
    for mode in [Mode::Evaluate, Mode::Probe] {
        for how in ALL {
            assert_eq!(run(how, mode), run(Recompute::None, mode), "{how:?}");
        }
    }
    assert_eq!(run(Recompute::Full, Mode::Evaluate).1, 0);
}

/// `y = x`, and counts its forwards.
struct Counted(u32);

impl Stage for Counted {
    type Wire = Tensor;
    type Saved = ();
    type Pending = ();

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn load(&mut self, input: Tensor) -> Result<Tensor> {
        Ok(input)
    }

    fn forward(&mut self, _: ForwardContext, input: Tensor) -> Result<(Tensor, ())> {
        self.0 += 1;
        Ok((input, ()))
    }

    fn backward_input(&mut self, (): (), grad: Tensor) -> Result<(Option<Tensor>, ())> {
        let count = self.0 as f32;
        Ok((Some(Tensor::from_vec(grad.dims(), vec![count])?), ()))
    }

    fn backward_weight(&mut self, (): ()) -> Result<()> {
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, _: &mut dyn FnMut(&'a mut Parameter)) {}
}

#[test]
fn a_stage_of_ones_own_runs_forward_once_more_and_only_where_it_is_told() {
    for (how, forwards) in ALL.into_iter().zip([1.0, 1.0, 1.0, 2.0]) {
        let mut stage = RecomputedStage::new(Counted(0), how);
        let one = || Tensor::from_vec(&[1], vec![1.0]).unwrap();
        let (_, saved) = stage.forward(ctx(0, Mode::Train), one()).unwrap();
        let restored = stage.restore(saved).unwrap();
        let (count, ()) = stage.backward_input(restored, one()).unwrap();
        assert_eq!(count.unwrap().f32(), [forwards], "{how:?}");
    }
}

/// `y = x`. Counts its forwards, and its calls of `forward_again`.
#[derive(Clone, Debug)]
struct Noted(Arc<[AtomicU32; 2]>);

impl Layer for Noted {
    fn name(&self) -> &str {
        "noted"
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.0[0].fetch_add(1, Ordering::Relaxed);
        Ok((input, Kept::new(ctx, [])))
    }

    fn forward_again(&mut self, ctx: ForwardContext, _: Tensor) -> Result<Kept> {
        self.0[1].fetch_add(1, Ordering::Relaxed);
        Ok(Kept::new(ctx, []))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        Ok((Some(grad), saved))
    }
}

#[test]
fn the_last_layer_that_needs_its_input_does_not_make_its_output_again() {
    for how in [Recompute::Selective, Recompute::Full] {
        let [first, last] = [(); 2].map(|()| Noted(Arc::default()));
        let dropout = || Box::new(Dropout::new("drop", 0.5, 1).unwrap());
        let inner = vec![Box::new(first.clone()) as Box<dyn Layer>, Box::new(last.clone()), dropout()];
        let layers: Vec<Box<dyn Layer>> = vec![Box::new(Block::residual("block", inner)), dropout()];
        let mut stage = RecomputedStage::new(Sequential::new(layers), how);
        let (output, saved) = stage.forward(ctx(0, Mode::Train), tensor("x", &[4])).unwrap();
        stage.backward(saved, output).unwrap();
        let counts = [first, last].map(|layer| [0, 1].map(|which| layer.0[which].load(Ordering::Relaxed)));
        assert_eq!(counts, [[2, 0], [1, 1]], "{how:?}");
    }
}
