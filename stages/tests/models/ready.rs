//! Models: their parameters and stages. Splitting a model changes no bit.

use pipewright_stages::layers::{Linear, Relu};
use pipewright_stages::loss::{CrossEntropy, Loss};

use super::*;

const GPT: Gpt =
    Gpt { vocab: 50, dim: 24, layers: 2, heads: 3, context: 16, dropout: 0.1, tied: true, seed: 5 };

fn names(stage: &mut Sequential) -> Vec<String> {
    stage.parameters().iter().map(|parameter| parameter.name().to_owned()).collect()
}

fn build(model: Model, stages: u32) -> Vec<Sequential> {
    model.split(stages).unwrap().into_iter().map(|stage| stage.build().unwrap()).collect()
}

/// Runs one training pass of a micro-batch over stages. Returns the loss and every gradient.
fn train(stages: &mut [Sequential], micro_batch: u32) -> (f64, Vec<Vec<f32>>) {
    let at = ForwardContext { step: 0, micro_batch, mode: Mode::Train };
    let mut kept = Vec::new();
    let mut wire = ids("x", &[2, 16], 50);
    for stage in stages.iter_mut() {
        let (output, saved) = stage.forward(at, wire).unwrap();
        kept.push(saved);
        wire = output;
    }
    let (score, grad) = CrossEntropy::default().forward(wire, ids("y", &[2, 16], 50)).unwrap();
    let mut grad = Some(grad);
    for (stage, saved) in stages.iter_mut().zip(kept).rev() {
        let (input_grad, pending) = stage.backward_input(saved, grad.unwrap()).unwrap();
        stage.backward_weight(pending).unwrap();
        grad = input_grad;
    }
    assert!(grad.is_none(), "tokens have no gradient");
    let gradients = stages.iter_mut().flat_map(|stage| stage.parameters());
    (score.sum, gradients.map(|parameter| parameter.grad.to_vec()).collect())
}

#[test]
fn gpt_has_hugging_face_names_in_layer_order() {
    let mut stage = GPT.model().unwrap().whole().unwrap();
    let names = names(&mut stage);
    let block = |i: usize| {
        let parts = ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"];
        parts.into_iter().flat_map(move |part| ["weight", "bias"].map(|end| format!("h.{i}.{part}.{end}")))
    };
    let mut expected = vec!["wte.weight".to_owned(), "wpe.weight".to_owned()];
    expected.extend(block(0).chain(block(1)));
    expected.extend(["ln_f.weight", "ln_f.bias", "wte.weight"].map(str::to_owned));
    assert_eq!(names, expected);
    assert_eq!(stage.parameters()[4].dims(), [24, 72], "c_attn.weight is [in, out]");
}

#[test]
fn an_untied_head_has_a_weight_of_its_own() {
    let mut stage = Gpt { tied: false, ..GPT }.model().unwrap().whole().unwrap();
    assert_eq!(names(&mut stage).last().unwrap(), "lm_head.weight");
}

#[test]
fn tied_copies_start_equal() {
    let mut stage = GPT.model().unwrap().whole().unwrap();
    let parameters = stage.parameters();
    assert_eq!(parameters.first().unwrap().value, parameters.last().unwrap().value);
}

#[test]
fn gpt_starts_with_its_deviations() {
    let gpt = Gpt { vocab: 512, dim: 64, layers: 8, context: 64, heads: 4, ..GPT };
    for parameter in gpt.model().unwrap().whole().unwrap().parameters() {
        let expected = match parameter.name().rsplit_once('.').unwrap() {
            ("wpe", _) => 0.01,
            (layer, "weight") if layer.ends_with("c_proj") => 0.02 / 4.0,
            (layer, "weight") if !layer.contains("ln_") => 0.02,
            _ => continue,
        };
        let squares: f64 = parameter.value.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let deviation = (squares / parameter.value.len() as f64).sqrt();
        assert!((deviation / expected - 1.0).abs() < 0.05, "{}: {deviation}", parameter.name());
    }
}

#[test]
fn cutting_a_model_changes_no_bit() {
    let whole = train(&mut build(GPT.model().unwrap(), 1), 3);
    for stages in [2, 3, 6] {
        assert_eq!(train(&mut build(GPT.model().unwrap(), stages), 3), whole, "{stages} stages");
    }
}

#[test]
fn another_thread_gives_the_same_bits() {
    let here = train(&mut build(GPT.model().unwrap(), 1), 0);
    let there = std::thread::spawn(|| train(&mut build(GPT.model().unwrap(), 1), 0)).join().unwrap();
    assert_eq!(here, there);
}

#[test]
fn buffers_from_the_pool_leak_nothing_into_a_result() {
    let clean = train(&mut build(GPT.model().unwrap(), 2), 0);
    for count in 1..10_000 {
        Tensor::scratch(&[count]).f32_mut().fill(f32::NAN);
    }
    assert_eq!(train(&mut build(GPT.model().unwrap(), 2), 0), clean);
}

#[test]
fn evaluation_keeps_nothing() {
    let mut stage = GPT.model().unwrap().whole().unwrap();
    let at = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Evaluate };
    let (output, kept) = stage.forward(at, ids("x", &[2, 16], 50)).unwrap();
    assert_eq!(output.dims(), [2, 16, 50]);
    assert_eq!(kept.bytes(), 0);
}

#[test]
fn a_shorter_sequence_than_the_context_is_taken() {
    let stage = GPT.model().unwrap().whole().unwrap();
    assert_eq!(stage.output_shape(&Shape::ids(&[3, 5])).unwrap(), Shape::f32(&[3, 5, 50]));
}

#[test]
fn mlp_has_pytorch_names_and_layouts() {
    let model = Mlp { sizes: vec![12, 8, 3], dropout: 0.1, seed: 1 }.model().unwrap();
    assert_eq!(model.names(), ["flatten", "fc0", "relu0", "fc1"]);
    let mut stage = model.whole().unwrap();
    assert_eq!(stage.output_shape(&Shape::f32(&[5, 3, 4])).unwrap(), Shape::f32(&[5, 3]));
    let parameters = stage.parameters();
    let dims: Vec<(&str, &[usize])> = parameters.iter().map(|p| (p.name(), p.dims())).collect();
    let expected: [(&str, &[usize]); 4] =
        [("fc0.weight", &[8, 12]), ("fc0.bias", &[8]), ("fc1.weight", &[3, 8]), ("fc1.bias", &[3])];
    assert_eq!(dims, expected);
    let bound = 1.0 / 12.0_f32.sqrt();
    assert!(parameters[0].value.iter().chain(&*parameters[1].value).all(|x| x.abs() <= bound));
}

/// A later stage gives the gradient of its input, even if the first stage (here only `flatten`) has no
/// parameters.
#[test]
fn only_the_first_parameters_of_the_model_skip_their_input_gradient() {
    let mlp = Mlp { sizes: vec![4, 3, 2], dropout: 0.0, seed: 1 };
    let lists = [vec!["flatten".to_owned()], vec!["fc0..fc1".to_owned()]];
    let stages = mlp.model().unwrap().split_by(&lists).unwrap();
    let mut last = stages.into_iter().next_back().unwrap().build().unwrap();
    let at = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
    let (_, saved) = last.forward(at, common::tensor("x", &[2, 4])).unwrap();
    assert!(last.backward_input(saved, common::tensor("grad", &[2, 2])).unwrap().0.is_some());
}

#[test]
fn layers_of_ones_own_make_a_model() {
    let linear = || Linear::new("mine", [3, 2], Init::Normal(1.0), 1);
    let units = vec![
        LayerSpec::of("mine", 12.0, linear),
        LayerSpec::new("rest", 1.0, || Ok(vec![Box::new(Relu::new("rest"))])),
    ];
    let mut stages = build(Model::new(units), 2);
    assert_eq!(names(&mut stages[0]), ["mine.weight", "mine.bias"]);
    assert_eq!(stages[1].output_shape(&Shape::f32(&[7, 2])).unwrap(), Shape::f32(&[7, 2]));
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let message = |gpt: Gpt| gpt.model().unwrap_err().to_string();
    let divisible = "dim 24 is not divisible by heads 5: choose heads that divide dim";
    assert_eq!(message(Gpt { heads: 5, ..GPT }), divisible);
    assert_eq!(message(Gpt { layers: 0, ..GPT }), "layers is 0: it must be at least 1");
    assert!(message(Gpt { dropout: f32::NAN, ..GPT }).starts_with("dropout NaN is not a probability"));
    let mlp = |sizes| Mlp { sizes, dropout: 0.0, seed: 0 }.model().unwrap_err().to_string();
    assert_eq!(mlp(vec![3]), "sizes [3] are too few: give the input's and the output's width at least");
    assert_eq!(mlp(vec![3, 0]), "a layer's size is 0: it must be at least 1");
}

#[test]
fn bad_input_is_named_with_the_layer() {
    let mut stage = GPT.model().unwrap().whole().unwrap();
    let message = |shape: Shape| stage.output_shape(&shape).unwrap_err().to_string();
    let expected =
        "embed: expected an input of ids[batch, time] with time at most 16, the context, got ids[2, 17]";
    assert_eq!(message(Shape::ids(&[2, 17])), expected);
    assert!(message(Shape::f32(&[2, 16])).ends_with("got f32[2, 16]"));
    let tokens = Tensor::from_ids(&[1, 2], vec![3, 50]).unwrap();
    let at = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
    assert_eq!(stage.forward(at, tokens).unwrap_err().to_string(), "embed: token 50 is outside 0..50");
    let mlp = Mlp { sizes: vec![4, 2], dropout: 0.0, seed: 0 }.model().unwrap().whole().unwrap();
    let error = mlp.output_shape(&Shape::f32(&[5, 3])).unwrap_err().to_string();
    assert_eq!(error, "fc0: expected an input of f32[.., 4], got f32[5, 3]");
}

#[test]
fn a_builder_makes_the_same_stage_again() {
    let units = vec![
        LayerSpec::of("mine", 12.0, || Linear::new("mine", [3, 2], Init::Normal(1.0), 1)),
        LayerSpec::of("rest", 1.0, || Relu::new("rest")),
    ];
    let builders = Model::new(units).split(1).unwrap();
    let [mut first, mut second] = [(); 2].map(|()| builders[0].build().unwrap());
    first.parameters()[0].value.fill(7.0);
    let mut third = builders[0].build().unwrap();
    assert_eq!(second.parameters(), third.parameters());
    assert_ne!(first.parameters(), third.parameters());
}
