//! Frozen parameters, and low-rank adapters of linear layers.

use common::pass;
use pipewright_stages::layers::{Block, LayerNorm, Layout, Linear, Recomputed, Relu};
use pipewright_stages::models::Rules;
use pipewright_stages::optimizer::StateTensor;
use pipewright_stages::testing::check_gradients;
use pipewright_stages::{Kept, Lora, Recompute, Training};
use proptest::prelude::*;

use super::*;

const FROZEN: Training = Training { frozen: true, rate: 1.0, weight_decay: None };

const TRAIN: ForwardContext = ForwardContext { step: 3, micro_batch: 1, mode: Mode::Train };

fn lora(rank: usize, dropout: f32) -> Lora {
    Lora { rank, alpha: 2.5, dropout, seed: 7 }
}

/// A layer whose output has the parts `fc.q`, `fc.k` and `fc.v`.
fn fused(layout: Layout, inputs: usize, widths: [usize; 3]) -> Linear {
    let [q, k, v] = widths;
    Linear::new("fc", [inputs, q + k + v], Init::Normal(0.5), 1).with_layout(layout).with_parts([
        ("fc.q".to_owned(), q),
        ("fc.k".to_owned(), k),
        ("fc.v".to_owned(), v),
    ])
}

fn layouts() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::InOut), Just(Layout::OutIn)]
}

fn freeze(layer: &mut dyn Layer, is_frozen: impl Fn(&str) -> bool) {
    for parameter in layer.parameters() {
        if is_frozen(parameter.name()) {
            parameter.train_by(FROZEN);
        }
    }
}

fn is_no_adapter(name: &str) -> bool {
    !name.contains(".lora_")
}

/// Moves the weights away from zero.
fn shake(layer: &mut dyn Layer) {
    for parameter in layer.parameters() {
        let name = format!("shaken {}", parameter.name());
        let more = tensor(&name, &[parameter.value.len()]);
        let pairs = parameter.value.iter_mut().zip(more.f32());
        pairs.for_each(|(weight, more)| *weight += 0.1 * more);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn gradients_of_adapters_are_slopes(
        rows in 1_usize..5, inputs in 1_usize..12, q in 1_usize..9, k in 1_usize..9, v in 1_usize..9,
        rank in 1_usize..5, dropped: bool, alone: bool, layout in layouts(),
    ) {
        let mut layer = fused(layout, inputs, [q, k, v]);
        let lora = lora(rank, if dropped { 0.4 } else { 0.0 });
        layer.adapt(&mut |target| (target != "fc.k").then_some(lora)).unwrap();
        if alone {
            freeze(&mut layer, is_no_adapter);
        }
        check_gradients(layer, &tensor("x", &[rows, inputs])).unwrap();
    }

    #[test]
    fn adapters_work_inside_other_layers(rows in 1_usize..5, width in 2_usize..10, dropped: bool) {
        let norm = LayerNorm::new("ln", width);
        let inner = Recomputed::new(norm, Linear::new("fc", [width, 7], Init::Normal(0.5), 1));
        let out = Linear::new("out", [7, width], Init::Normal(0.5), 1).without_bias();
        let mut layer = Block::residual("both", vec![Box::new(inner), Box::new(out)]);
        let lora = lora(2, if dropped { 0.3 } else { 0.0 });
        let mut targets = Vec::new();
        layer.adapt(&mut |target| {
            targets.push(target.to_owned());
            Some(lora)
        }).unwrap();
        assert_eq!(targets, ["fc", "out"]);
        freeze(&mut layer, is_no_adapter);
        check_gradients(layer, &tensor("x", &[rows, width])).unwrap();
    }

    #[test]
    fn each_parameter_can_be_frozen_alone(rows in 1_usize..5, width in 2_usize..9, which in 0_usize..8) {
        let norm = LayerNorm::new("ln", width);
        let inner = Recomputed::new(norm, Linear::new("fc", [width, width], Init::Normal(0.5), 1));
        let last = Linear::new("out", [width, width], Init::Normal(0.5), 1);
        let mut layer = Block::residual("both", vec![Box::new(inner), Box::new(last)]);
        let names: Vec<String> = layer.parameters().iter().map(|one| one.name().to_owned()).collect();
        freeze(&mut layer, |name| names.iter().position(|other| other == name) == Some(which));
        check_gradients(layer, &tensor("x", &[rows, width])).unwrap();
    }

    #[test]
    fn merged_weights_compute_what_adapters_add(
        rows in 1_usize..5, inputs in 1_usize..12, rank in 1_usize..5, layout in layouts(),
    ) {
        let mut layer = fused(layout, inputs, [3, 5, 4]);
        layer.adapt(&mut |target| (target != "fc.q").then_some(lora(rank, 0.0))).unwrap();
        shake(&mut layer);
        let (x, grad) = (tensor("x", &[rows, inputs]), tensor("dy", &[rows, 12]));
        let (with_adapters, _) = pass(&mut layer, &x, &grad);
        layer.merge_adapters();
        assert_eq!(layer.parameters().len(), 2);
        let (merged, _) = pass(&mut layer, &x, &grad);
        for (one, other) in with_adapters.f32().iter().zip(merged.f32()) {
            assert!((one - other).abs() < 1e-4, "{one} and {other}");
        }
    }
}

/// The gradients of the parameters whose names end so, zeros left out.
fn gradient_bits(layer: &mut dyn Layer, end: &str) -> Vec<Vec<u32>> {
    let parameters = layer.parameters().into_iter().filter(|one| one.name().ends_with(end));
    let bits = |one: &mut Parameter| one.grad.iter().filter(|x| **x != 0.0).map(|x| x.to_bits()).collect();
    parameters.map(bits).collect()
}

/// An adapted layer after a norm, and one alone.
fn adapted_layers(dropout: f32) -> Vec<Box<dyn Layer>> {
    let alone = || fused(Layout::OutIn, 11, [3, 5, 4]);
    let mut layers: Vec<Box<dyn Layer>> =
        vec![Box::new(alone()), Box::new(Recomputed::new(LayerNorm::new("ln", 11), alone()))];
    for layer in &mut layers {
        layer.adapt(&mut |target| (target != "fc.k").then_some(lora(3, dropout))).unwrap();
        shake(layer.as_mut());
    }
    layers
}

#[test]
fn what_is_between_the_matrices_of_adapters_is_kept_and_used() {
    let (x, grad) = (tensor("x", &[5, 11]), tensor("dy", &[5, 12]));
    for (index, (how, dropout)) in
        [(Recompute::None, 0.0), (Recompute::Cheap, 0.0), (Recompute::Cheap, 0.4)].into_iter().enumerate()
    {
        for mut layer in adapted_layers(dropout) {
            layer.recompute(how);
            // Clears what is kept of this shape: nothing, then what forward has kept, then the gradients.
            for cleared in 0..3 {
                layer.visit_gradients(&mut |parameter| parameter.grad.fill(0.0));
                let clear = |kept: &mut Kept, from: usize| {
                    let mut seen = 0;
                    kept.visit_tensors(&mut |tensor| {
                        if tensor.dims() == [5, 3] {
                            if seen >= from {
                                tensor.f32_mut().fill(0.0);
                            }
                            seen += 1;
                        }
                    });
                    seen
                };
                let (_, mut kept) = layer.forward(TRAIN, x.clone()).unwrap();
                assert_eq!(clear(&mut kept, if cleared == 1 { 0 } else { 2 }), 2, "{index}: one for each");
                let (_, mut pending) = layer.backward_input(kept, grad.clone()).unwrap();
                assert_eq!(clear(&mut pending, if cleared == 2 { 2 } else { 4 }), 4, "{index}: two for each");
                layer.backward_weight(pending).unwrap();
                let [down, up] =
                    [".lora_a.weight", ".lora_b.weight"].map(|end| gradient_bits(&mut *layer, end));
                assert_eq!(down.iter().all(Vec::is_empty), cleared == 2, "{index}: from the gradients");
                assert_eq!(up.iter().all(Vec::is_empty), cleared == 1, "{index}: from what forward kept");
            }
        }
    }
}

#[test]
fn what_is_between_the_matrices_of_adapters_has_the_same_bits_if_it_is_made_again() {
    let (x, grad) = (tensor("x", &[5, 11]), tensor("dy", &[5, 12]));
    for how in [Recompute::None, Recompute::Cheap] {
        for dropout in [0.0, 0.4] {
            let run = |again: bool, index: usize| {
                let mut layer = adapted_layers(dropout).swap_remove(index);
                layer.recompute(how);
                let kept = match again {
                    true => layer.forward_again(TRAIN, x.clone()).unwrap(),
                    false => layer.forward(TRAIN, x.clone()).unwrap().1,
                };
                let (input_grad, pending) = layer.backward_input(kept, grad.clone()).unwrap();
                layer.backward_weight(pending).unwrap();
                (input_grad, gradient_bits(layer.as_mut(), ""))
            };
            for index in 0..2 {
                assert_eq!(run(true, index), run(false, index), "{how:?}, dropout {dropout}");
            }
        }
    }
}

#[test]
fn new_adapters_change_no_bit_of_the_output() {
    let (x, grad) = (tensor("x", &[5, 11]), tensor("dy", &[5, 12]));
    let mut plain = fused(Layout::OutIn, 11, [3, 5, 4]);
    let mut adapted = fused(Layout::OutIn, 11, [3, 5, 4]);
    adapted.adapt(&mut |_| Some(lora(2, 0.1))).unwrap();
    let names: Vec<String> = adapted.parameters().iter().map(|one| one.name().to_owned()).collect();
    assert_eq!(
        names,
        [
            "fc.weight",
            "fc.bias",
            "fc.q.lora_a.weight",
            "fc.q.lora_b.weight",
            "fc.k.lora_a.weight",
            "fc.k.lora_b.weight",
            "fc.v.lora_a.weight",
            "fc.v.lora_b.weight"
        ]
    );
    let a = adapted.parameters().swap_remove(2);
    assert_eq!(a.dims(), [2, 11]);
    let bound = 1.0 / 11.0_f32.sqrt();
    assert!(
        a.value.iter().all(|weight| weight.abs() <= bound) && a.value.iter().any(|weight| *weight != 0.0)
    );
    assert_eq!(pass(&mut plain, &x, &grad).0, pass(&mut adapted, &x, &grad).0);
}

#[test]
fn frozen_layers_keep_nothing_and_give_the_same_input_gradient() {
    let (x, grad) = (tensor("x", &[5, 11]), tensor("dy", &[5, 12]));
    let mut trained = fused(Layout::InOut, 11, [3, 5, 4]);
    let mut frozen = fused(Layout::InOut, 11, [3, 5, 4]);
    freeze(&mut frozen, |_| true);
    let (output, kept) = frozen.forward(TRAIN, x.clone()).unwrap();
    assert_eq!(kept.bytes(), 0);
    let (input_grad, pending) = frozen.backward_input(kept, grad.clone()).unwrap();
    assert_eq!(pending.bytes(), 0);
    frozen.backward_weight(pending).unwrap();
    let expected = pass(&mut trained, &x, &grad);
    assert_eq!((output, input_grad), expected);
    for parameter in frozen.parameters() {
        assert_eq!((parameter.grad.len(), parameter.trained(), parameter.pieces().count()), (0, 0, 0));
        assert_eq!(parameter.owned(), 0..0);
        parameter.make_state(&[StateTensor::for_each("mean", parameter.dims())]);
        assert!(parameter.state.is_empty());
    }
}

/// Three layers of the first stage. Parameters whose names start with one of `frozen` are frozen.
fn stage(frozen: &'static [&'static str]) -> Sequential {
    let mlp = Mlp { sizes: vec![6, 5, 4, 3], dropout: 0.0, seed: 1 };
    let training = |name: &str| match frozen.iter().any(|start| name.starts_with(start)) {
        true => FROZEN,
        false => Training::default(),
    };
    let rules = Rules::default().with_training(training);
    mlp.model().unwrap().with_rules(rules).whole().unwrap()
}

fn gradients(stage: &mut Sequential) -> Vec<(String, Vec<f32>)> {
    let (x, grad) = (tensor("x", &[2, 6]), tensor("dy", &[2, 3]));
    let (_, saved) = stage.forward(TRAIN, x).unwrap();
    let (_, pending) = stage.backward_input(saved, grad).unwrap();
    stage.backward_weight(pending).unwrap();
    let parameters = stage.parameters().into_iter();
    parameters.map(|parameter| (parameter.name().to_owned(), parameter.grad.to_vec())).collect()
}

#[test]
fn layers_before_the_first_that_is_trained_run_forward_only() {
    let (mut all, mut some, mut none) = (stage(&[]), stage(&["fc0", "fc1"]), stage(&["fc"]));
    let saved = |stage: &mut Sequential| {
        let (output, saved) = stage.forward(TRAIN, tensor("x", &[2, 6])).unwrap();
        (output, saved.bytes())
    };
    let (output, whole) = saved(&mut all);
    let (same, less) = saved(&mut some);
    let (same_again, nothing) = saved(&mut none);
    assert_eq!([&same, &same_again], [&output; 2]);
    assert_eq!(less, 4 * 2 * 4, "the input of the last layer");
    assert!(whole > less && nothing == 0);
    let expected = gradients(&mut all);
    for ((name, expected), (_, got)) in expected.iter().zip(gradients(&mut some)) {
        match name.starts_with("fc2") {
            true => assert_eq!(got, *expected, "{name}"),
            false => assert!(got.is_empty(), "{name}: {got:?}"),
        }
    }
    assert!(gradients(&mut none).iter().all(|(_, grad)| grad.is_empty()));
}

#[test]
fn a_model_tells_what_is_in_its_units() {
    let mlp = Mlp { sizes: vec![6, 5, 3], dropout: 0.0, seed: 1 };
    let rules = Rules::default().with_lora(|target| (target == "fc1").then_some(lora(2, 0.0))).with_training(
        |name| {
            if is_no_adapter(name) { FROZEN } else { Training::default() }
        },
    );
    let model: Model = mlp.model().unwrap().with_rules(rules);
    let contents = model.contents().unwrap();
    let targets: Vec<&str> = contents.iter().flat_map(|unit| &unit.targets).map(String::as_str).collect();
    assert_eq!(targets, ["fc0", "fc1"]);
    let parameters: Vec<(&str, &[usize], bool)> = contents
        .iter()
        .flat_map(|unit| &unit.parameters)
        .map(|one| (one.name.as_str(), &one.dims[..], one.is_frozen))
        .collect();
    assert_eq!(
        parameters,
        [
            ("fc0.weight", &[5, 6][..], true),
            ("fc0.bias", &[5], true),
            ("fc1.weight", &[3, 5], true),
            ("fc1.bias", &[3], true),
            ("fc1.lora_a.weight", &[2, 5], false),
            ("fc1.lora_b.weight", &[3, 2], false)
        ]
    );
}

#[test]
fn tied_weights_get_no_adapter() {
    let table = Parameter::new("wte.weight", &[4, 3], Init::Ones, 1).tied();
    let mut head = Linear::new("lm_head", [3, 4], Init::Zeros, 1).without_bias().with_weight(table).unwrap();
    head.adapt(&mut |target| panic!("{target} was offered")).unwrap();
}

#[test]
fn layers_without_weights_have_nothing_to_adapt() {
    let mut stage = Sequential::new(vec![Box::new(Relu::new("relu"))]);
    stage.adapt(&mut |target| panic!("{target} was offered")).unwrap();
    assert_eq!(stage.forward(TRAIN, Tensor::zeros(&[2])).unwrap().0, Tensor::zeros(&[2]));
}

#[test]
fn frozen_parameters_can_be_trained_again() {
    let mut parameter = Parameter::new("w", &[2, 3], Init::Ones, 1);
    parameter.train_by(FROZEN);
    parameter.train_by(Training::default());
    assert_eq!((parameter.grad.len(), parameter.owned()), (6, 0..6));
}
