//! A layer of candle's has candle's own gradients, and says what is wrong with it.

use std::error::Error as _;

use candle_core::{DType, Device, Tensor as Candle, Var};
use candle_nn::{Module, VarBuilder, VarMap, embedding, layer_norm, linear};
use pipewright_candle::{CandleError, CandleLayer};
use pipewright_stages::testing::check_gradients;
use pipewright_stages::{Bytes, ForwardContext, Kept, Layer, Mode, Shape, Tensor, Training};

const AT: ForwardContext = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };

fn input() -> Tensor {
    Tensor::from_vec(&[2, 3], vec![0.3, -0.7, 0.2, 1.1, -0.4, 0.9]).expect("it fills the shape")
}

/// `down(tanh(up x))`.
fn perceptron(weights: VarBuilder<'_>) -> candle_core::Result<impl Module + use<>> {
    let up = linear(3, 4, weights.pp("up"))?;
    let down = linear(4, 2, weights.pp("down"))?;
    Ok(move |x: &Candle| down.forward(&up.forward(x)?.tanh()?))
}

fn names(layer: &mut CandleLayer) -> Vec<String> {
    let parameters = layer.parameters();
    parameters.iter().map(|one| one.name().to_owned()).collect()
}

/// The error of a whole training pass.
fn refused(layer: CandleLayer) -> String {
    pass(layer, input()).expect_err("it is refused").to_string()
}

fn pass(mut layer: CandleLayer, input: Tensor) -> pipewright_stages::Result<()> {
    let (output, saved) = layer.forward(AT, input)?;
    let (_, pending) = layer.backward_input(saved, output)?;
    layer.backward_weight(pending)
}

#[test]
fn the_gradients_are_the_slopes_of_forward() {
    let layer = CandleLayer::new("mlp", 1, perceptron).expect("it can be built");
    check_gradients(layer, &input()).expect("the gradients are right");
}

#[test]
fn the_gradients_of_an_embedding_are_the_slopes_of_forward() {
    let layer = CandleLayer::new("wte", 1, |weights| embedding(5, 3, weights)).expect("it can be built");
    let ids = Tensor::from_ids(&[2, 2], vec![1, 4, 1, 0]).expect("it fills the shape");
    check_gradients(layer, &ids).expect("the gradients are right");
}

#[test]
fn the_gradients_have_the_bits_of_candle_s_own_training() {
    let map = VarMap::new();
    let module = perceptron(VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu)).expect("it builds");
    let x = Var::from_slice(input().f32(), (2, 3), &Device::Cpu).expect("a variable");
    let output = module.forward(&x).expect("forward");
    let grads = output.sum_all().and_then(|sum| sum.backward()).expect("backward");

    let mut layer = CandleLayer::of("mlp", &map, module).expect("f32 on the CPU");
    let (given, saved) = layer.forward(AT, input()).expect("forward");
    let ones = Tensor::from_vec(&[2, 2], vec![1.0; 4]).expect("it fills the shape");
    let (input_grad, pending) = layer.backward_input(saved, ones).expect("backward-input");
    layer.backward_weight(pending).expect("backward-weight");

    let numbers = |tensor: &Candle| tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("f32");
    assert_eq!(given.f32(), numbers(&output));
    assert_eq!(input_grad.expect("numbers have one").f32(), numbers(grads.get(&x).expect("a gradient")));
    let vars = map.data().lock().expect("one thread");
    for parameter in layer.parameters() {
        let var = &vars[parameter.name().strip_prefix("mlp.").expect("the layer's name")];
        assert_eq!(parameter.grad[..], numbers(grads.get(var).expect("a gradient")), "{}", parameter.name());
    }
}

#[test]
fn the_parameters_are_the_variables_by_name() {
    let mut layer = CandleLayer::new("mlp", 1, perceptron).expect("it can be built");
    let sorted = ["mlp.down.bias", "mlp.down.weight", "mlp.up.bias", "mlp.up.weight"];
    assert_eq!(names(&mut layer), sorted);
    assert_eq!(layer.parameters()[3].dims(), [4, 3]);
}

#[test]
fn a_layer_that_is_built_again_starts_with_the_same_weights() {
    let weights = |seed, name| {
        let mut layer = CandleLayer::new(name, seed, perceptron).expect("it can be built");
        let parameters = layer.parameters();
        parameters.iter().map(|one| one.value.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(weights(1, "mlp"), weights(1, "mlp"));
    assert_ne!(weights(1, "mlp"), weights(2, "mlp"));
    assert_ne!(weights(1, "mlp"), weights(1, "other"));
}

#[test]
fn changed_weights_reach_candle() {
    let mut layer = CandleLayer::new("mlp", 1, perceptron).expect("it can be built");
    layer.forward(AT, input()).expect("forward");
    layer.visit_parameters(&mut |parameter| parameter.value.fill(0.0));
    let (output, _) = layer.forward(AT, input()).expect("forward");
    assert_eq!(output.f32(), [0.0; 4]);
}

#[test]
fn evaluation_keeps_nothing_and_training_says_what_the_tape_holds() {
    let mut layer = CandleLayer::new("mlp", 1, perceptron).expect("it can be built");
    let bytes = |kept: &Kept| kept.bytes();
    let (_, kept) = layer.forward(AT, input()).expect("forward");
    // The input, products with and without bias of both linear layers, and what tanh gives.
    assert!((4 * (6 + 3 * 8 + 2 * 4)..=1_000).contains(&bytes(&kept)), "{}", bytes(&kept));
    let evaluate = ForwardContext { mode: Mode::Evaluate, ..AT };
    let (_, kept) = layer.forward(evaluate, input()).expect("forward");
    assert_eq!(bytes(&kept), 0);
}

#[test]
fn a_closure_may_ask_for_the_context() {
    let layer = CandleLayer::with_context("scale", 1, |_| {
        Ok(|x: &Candle, ctx: ForwardContext| x * f64::from(ctx.micro_batch))
    });
    let at = ForwardContext { micro_batch: 3, ..AT };
    let (output, _) = layer.expect("it can be built").forward(at, input()).expect("forward");
    assert_eq!(output.f32()[3], 3.0 * 1.1_f32);
}

#[test]
fn the_shape_of_the_output_is_asked_of_the_model() {
    let layer = CandleLayer::new("mlp", 1, perceptron).expect("it can be built");
    let shape = layer.output_shape(&Shape::f32(&[7, 3])).expect("three columns");
    assert_eq!(shape, Shape::f32(&[7, 2]));
    let error = layer.output_shape(&Shape::f32(&[7, 5])).expect_err("five columns");
    assert!(error.to_string().starts_with("mlp: candle: shape mismatch in matmul"), "{error}");
}

#[test]
fn an_error_of_candle_s_names_the_layer() {
    let layer = CandleLayer::new("mlp", 1, perceptron).expect("it can be built");
    let wide = Tensor::zeros(&[2, 5]);
    let error = pass(layer, wide).expect_err("five columns");
    assert_eq!(error.place, "mlp");
    assert!(error.source().is_some_and(|source| source.is::<CandleError>()));
    let unbuilt = CandleLayer::new("mlp", 1, |weights| {
        linear(3, 4, weights.clone())?;
        linear(3, 5, weights)
    });
    let text = unbuilt.expect_err("two shapes").to_string();
    assert!(
        text.starts_with("mlp: candle: `mlp.weight` was asked for twice, as [4, 3] and as [5, 3]"),
        "{text}"
    );
}

#[test]
fn operations_that_cut_the_tape_are_refused() {
    let norm = CandleLayer::new("norm", 1, |weights| layer_norm(3, 1e-5, weights)).expect("it can be built");
    let text = refused(norm);
    assert!(text.starts_with("norm: candle's tape gives no gradient for the weight `norm.bias`"), "{text}");
    assert!(
        text.ends_with("`layer_norm_slow` and the like of `candle_nn::ops`); freeze it if that is meant"),
        "{text}"
    );
    let softmax = CandleLayer::new("probabilities", 1, |_| Ok(candle_nn::ops::softmax_last_dim));
    let text = refused(softmax.expect("it can be built"));
    assert!(text.starts_with("probabilities: candle's tape gives no gradient for the input"), "{text}");
}

#[test]
fn a_frozen_weight_needs_no_gradient() {
    let mut layer = CandleLayer::new("mlp", 1, |weights| {
        weights.get(3, "unused")?;
        perceptron(weights)
    })
    .expect("it can be built");
    let frozen = Training { frozen: true, ..Training::default() };
    layer.parameters()[4].train_by(frozen);
    assert_eq!(names(&mut layer)[4], "mlp.up.weight");
    layer.visit_parameters(&mut |parameter| {
        if parameter.name() == "mlp.unused" {
            parameter.train_by(frozen);
        }
    });
    pass(layer, input()).expect("what is left has gradients");
}

#[test]
fn other_numbers_than_f32_are_refused() {
    let double = CandleLayer::new("double", 1, |_| Ok(|x: &Candle| x.to_dtype(DType::F64)));
    assert_eq!(
        refused(double.expect("it can be built")),
        "double: the output is in F64: only F32 is trained; convert it with `to_dtype(DType::F32)`"
    );
    let map = VarMap::new();
    linear(3, 2, VarBuilder::from_varmap(&map, DType::F64, &Device::Cpu)).expect("it builds");
    let error = CandleLayer::of("fc", &map, |x: &Candle| Ok(x.clone())).expect_err("doubles");
    let text = error.to_string();
    assert!(text.starts_with("fc: the weight `fc.") && text.contains("is in F64"), "{text}");
    let error = CandleLayer::new("fc", 1, |weights| linear(3, 2, weights.set_dtype(DType::BF16)));
    let text = error.expect_err("16 bits").to_string();
    assert!(text.contains("`fc.weight` was asked for in BF16"), "{text}");
}

#[test]
fn an_output_of_five_dimensions_is_refused() {
    let layer = CandleLayer::new("five", 1, |_| Ok(|x: &Candle| x.reshape((1, 1, 1, 2, 3))));
    let text = refused(layer.expect("it can be built"));
    assert!(text.starts_with("five: the output has the dimensions [1, 1, 1, 2, 3]: at most 4"), "{text}");
}

#[test]
fn candle_s_kernels_stay_on_the_thread_of_their_rank() {
    let seen = std::thread::spawn(|| {
        let mut layer = CandleLayer::new("seen", 1, |_| {
            Ok(|x: &Candle| {
                let here = std::thread::current().id();
                let others = rayon::broadcast(|_| std::thread::current().id() != here);
                assert_eq!(others, [false]);
                Ok(x.clone())
            })
        });
        layer.as_mut().expect("it can be built").forward(AT, input()).map(drop)
    });
    seen.join().expect("no other thread").expect("forward");
}
