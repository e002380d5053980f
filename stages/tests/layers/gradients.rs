//! Compares every layer's gradients with central differences of forward, over many shapes. How exact the
//! gradients are is tested in `accuracy/`.

use common::ids;
use pipewright_stages::layers::{
    Attention, Block, Cheap, Conv1d, Dropout, Embedding, Experts, Flatten, GateForm, Gated, Gelu, GeluForm,
    HeadNorm, Heads, LayerNorm, Layout, Linear, OwnRows, Recomputed, Relu, RmsNorm, Rope, RopeLayout,
    RopeScaling, Rotary, Routing, Sigmoid, Softmax, Tanh,
};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn linear(layout: Layout, inputs: usize, outputs: usize, bias: bool) -> Linear {
    let layer = Linear::new("fc", [inputs, outputs], Init::Normal(0.5), 1).with_layout(layout);
    if bias { layer.with_bias(Init::Uniform(0.5)) } else { layer.without_bias() }
}

const FORMS: [GateForm; 3] = [GateForm::Silu, GateForm::GeluTanh, GateForm::Gelu];

/// Panics if something is wrong with the layer.
fn check(layer: impl Layer, input: &Tensor) {
    check_gradients(layer, input).unwrap_or_else(|error| panic!("{error}"));
}

fn forms() -> impl Strategy<Value = GateForm> {
    select(FORMS.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn linear_in_both_layouts(
        rows in 1_usize..6, inputs in 1_usize..20, outputs in 1_usize..20, bias: bool, turned: bool,
    ) {
        let layout = if turned { Layout::OutIn } else { Layout::InOut };
        check(linear(layout, inputs, outputs, bias), &tensor("x", &[rows, inputs]));
    }

    #[test]
    fn relu_away_from_its_corner(count in 1_usize..70) {
        let mut input = tensor("x", &[count]);
        input.f32_mut().iter_mut().for_each(|x| *x += 0.1 * x.signum());
        check(Relu::new("relu"), &input);
    }

    #[test]
    fn gelu_in_both_forms(count in 1_usize..70, exact: bool, scale in 0.5_f32..6.0) {
        let mut input = tensor("x", &[count]);
        input.f32_mut().iter_mut().for_each(|x| *x *= scale);
        let form = if exact { GeluForm::Exact } else { GeluForm::Tanh };
        check(Gelu::new("gelu", form), &input);
    }

    #[test]
    fn sigmoid(count in 1_usize..70, scale in 0.5_f32..6.0) {
        let mut input = tensor("x", &[count]);
        input.f32_mut().iter_mut().for_each(|x| *x *= scale);
        check(Sigmoid::new("sigmoid"), &input);
    }

    #[test]
    fn tanh_and_softmax(rows in 1_usize..5, width in 1_usize..40, scale in 0.5_f32..3.0) {
        let mut input = tensor("x", &[rows, width]);
        input.f32_mut().iter_mut().for_each(|x| *x *= scale);
        check(Tanh::new("tanh"), &input);
        check(Softmax::new("softmax"), &input);
    }

    #[test]
    fn conv1d(
        batch in 1_usize..3, time in 1_usize..9, channels in (1_usize..4, 1_usize..4),
        window in (1_usize..4, 1_usize..4, 0_usize..4),
    ) {
        let ((inputs, outputs), (kernel, stride, padding)) = (channels, window);
        prop_assume!(time + 2 * padding >= kernel);
        let layer = Conv1d::new("conv", [inputs, outputs], kernel, Init::Uniform(0.5), 1);
        check(layer.with_stride(stride).with_padding(padding), &tensor("x", &[batch, time, inputs]));
    }

    #[test]
    fn gated_in_all_forms(rows in 1_usize..5, width in 1_usize..40, form in forms(), scale in 0.5_f32..6.0) {
        let mut input = tensor("x", &[rows, 2 * width]);
        input.f32_mut().iter_mut().for_each(|x| *x *= scale);
        check(Gated::new("gated", form), &input);
    }

    #[test]
    fn rms_norm(rows in 1_usize..5, width in 1_usize..40) {
        let mut input = tensor("x", &[rows, width]);
        // Small numbers alone would curve the function too much for central differences.
        input.f32_mut().chunks_exact_mut(width).for_each(|row| row[0] = 2.0);
        check(RmsNorm::new("norm", width, 1e-5), &input);
    }

    #[test]
    fn head_norm(rows in 1_usize..4, key_value in 1_usize..3, shared in 1_usize..3, width in 1_usize..9) {
        let heads = Heads { query: key_value * shared, key_value, width };
        let mut input = tensor("x", &[rows, (heads.query + 2 * key_value) * width]);
        input.f32_mut().chunks_exact_mut(width).for_each(|head| head[0] = 2.0);
        check(HeadNorm::new("norm", heads, 1e-6), &input);
    }

    #[test]
    fn layer_norm(rows in 1_usize..5, width in 2_usize..40) {
        let mut input = tensor("x", &[rows, width]);
        input.f32_mut().iter_mut().for_each(|x| *x *= 3.0);
        // Two nearly equal numbers would curve the function too much for central differences.
        input.f32_mut().chunks_exact_mut(width).for_each(|row| { row[0] = 2.0; row[1] = -2.0; });
        check(LayerNorm::new("norm", width), &input);
    }

    #[test]
    fn attention(batch in 1_usize..3, time in 1_usize..9, heads in 1_usize..4, width in 1_usize..9) {
        let layer = Attention::new("attention", heads * width, heads).unwrap();
        check(layer, &tensor("x", &[batch, time, 3 * heads * width]));
    }

    #[test]
    fn attention_with_groups_and_a_window(
        batch in 1_usize..3,
        time in 1_usize..9,
        key_value in 1_usize..3,
        group in 1_usize..4,
        width in 1_usize..9,
        window in prop_oneof![Just(None), (1_usize..9).prop_map(Some)],
    ) {
        let heads = Heads { query: group * key_value, key_value, width };
        let layer = Attention::grouped("attention", heads, window).unwrap();
        check(layer, &tensor("x", &[batch, time, heads.row()]));
    }

    #[test]
    fn rotary(
        batch in 1_usize..3,
        time in 1_usize..9,
        (query, key_value) in (1_usize..4, Just(1)),
        half in 1_usize..9,
        in_pairs: bool,
    ) {
        let heads = Heads { query, key_value, width: 2 * half };
        let layout = if in_pairs { RopeLayout::Pairs } else { RopeLayout::Halves };
        let rope = Rope { theta: 1e4, scaling: RopeScaling::None, layout };
        check(Rotary::new("rope", heads, rope).unwrap(), &tensor("x", &[batch, time, heads.row()]));
    }

    #[test]
    fn embedding(batch in 1_usize..4, time in 1_usize..6, dim in 1_usize..6) {
        let layer = Embedding::new("embed", 7, 6, dim, 1);
        check(layer, &ids("x", &[batch, time], 7));
        let layer = Embedding::of_tokens("embed", "table", 7, dim, Init::Normal(1.0), 1);
        check(layer, &ids("x", &[batch, time], 7));
    }

    #[test]
    fn dropout(count in 1_usize..70) {
        check(Dropout::new("dropout", 0.4, 1).unwrap(), &tensor("x", &[count]));
    }

    #[test]
    fn residual_around_the_usual_chains(
        batch in 1_usize..3, time in 1_usize..5, heads in 1_usize..3, width in 1_usize..5,
    ) {
        let dim = heads * width + 1;
        let dim = dim.next_multiple_of(heads);
        let attend: Vec<Box<dyn Layer>> = vec![
            Box::new(linear(Layout::InOut, dim, 3 * dim, true)),
            Box::new(Attention::new("attention", dim, heads).unwrap()),
            Box::new(linear(Layout::InOut, dim, dim, true)),
            Box::new(Dropout::new("dropout", 0.3, 1).unwrap()),
        ];
        check(Block::residual("block", attend), &tensor("x", &[batch, time, dim]));
        let think: Vec<Box<dyn Layer>> = vec![
            Box::new(linear(Layout::InOut, dim, 4 * dim, true)),
            Box::new(Gelu::new("gelu", GeluForm::Tanh)),
            Box::new(linear(Layout::OutIn, 4 * dim, dim, false)),
        ];
        check(Block::residual("block", think), &tensor("x", &[batch, time, dim]));
    }

    #[test]
    fn flatten(batch in 1_usize..4, a in 1_usize..4, b in 1_usize..4, c in 1_usize..4) {
        check(Flatten::new("flatten"), &tensor("x", &[batch, a, b, c]));
        check(OwnRows::of_data("rows", c), &tensor("x", &[batch, c]));
    }
}

fn experts(experts: usize, chosen: usize, [dim, ffn]: [usize; 2]) -> Experts {
    let routing = Routing { experts, chosen, auxiliary: 0.0 };
    Experts::new("experts", [dim, ffn], routing, Init::Normal(0.5), 1).unwrap()
}

/// The sizes are fixed: where two scores are nearly equal, forward has a step, and no slope.
#[test]
fn experts_in_several_sizes() {
    for (rows, dim, ffn, [all, chosen]) in
        [(1, 4, 3, [1, 1]), (5, 7, 6, [2, 1]), (6, 9, 8, [4, 2]), (3, 8, 5, [8, 2]), (4, 6, 7, [3, 3])]
    {
        let input = tensor("x", &[rows, dim]);
        check(experts(all, chosen, [dim, ffn]), &input);
        let norm = RmsNorm::new("norm", dim, 1e-5);
        let chain: Vec<Box<dyn Layer>> = vec![Box::new(norm), Box::new(experts(all, chosen, [dim, ffn]))];
        check(Block::residual("block", chain), &input);
    }
}

#[test]
fn a_first_layer_gives_no_input_gradient_and_the_same_weight_gradients() {
    let (input, grad) = (tensor("x", &[4, 5]), tensor("grad", &[4, 3]));
    let mut usual = linear(Layout::OutIn, 5, 3, true);
    let mut first = linear(Layout::OutIn, 5, 3, true);
    first.drop_input_gradient();
    assert!(common::pass(&mut usual, &input, &grad).1.is_some());
    assert!(common::pass(&mut first, &input, &grad).1.is_none());
    assert_eq!(usual.parameters(), first.parameters());
}

/// Two layers one after the other. [`Recomputed`] must give the same bits.
fn in_a_row(first: &mut dyn Layer, second: &mut dyn Layer, input: &Tensor, grad: &Tensor) -> [Tensor; 2] {
    let (inner, saved) = first.forward(common::train(0), input.clone()).unwrap();
    let (output, kept) = second.forward(common::train(0), inner).unwrap();
    let (inner_grad, pending) = second.backward_input(kept, grad.clone()).unwrap();
    second.backward_weight(pending).unwrap();
    let (input_grad, pending) = first.backward_input(saved, inner_grad.unwrap()).unwrap();
    first.backward_weight(pending).unwrap();
    [output, input_grad.unwrap()]
}

fn assert_recomputed_equals<C: Cheap>(width: usize, make: impl Fn() -> C) {
    let linear = || linear(Layout::InOut, 12, 7, true);
    let (input, grad) = (tensor("x", &[5, width]), tensor("grad", &[5, 7]));
    let (mut first, mut second) = (make(), linear());
    let mut both = Recomputed::new(make(), linear());
    shuffle(&mut first);
    shuffle(&mut second);
    shuffle(&mut both);
    let expected = in_a_row(&mut first, &mut second, &input, &grad);
    let (output, input_grad) = common::pass(&mut both, &input, &grad);
    assert_eq!([output, input_grad.unwrap()], expected);
    let separate: Vec<&mut Parameter> = first.parameters().into_iter().chain(second.parameters()).collect();
    assert_eq!(both.parameters(), separate);
    let kept = |layer: &mut dyn Layer| layer.forward(common::train(0), input.clone()).unwrap().1.bytes();
    assert_eq!(kept(&mut both), kept(&mut first), "only what the cheap layer keeps");
}

#[test]
fn recomputed_layers_equal_the_two_in_a_row() {
    assert_recomputed_equals(12, || LayerNorm::new("norm", 12));
    assert_recomputed_equals(12, || RmsNorm::new("norm", 12, 1e-5));
    assert_recomputed_equals(12, || Gelu::new("gelu", GeluForm::Tanh));
    assert_recomputed_equals(12, || Gelu::new("gelu", GeluForm::Exact));
    for form in FORMS {
        assert_recomputed_equals(24, || Gated::new("gated", form));
    }
}
