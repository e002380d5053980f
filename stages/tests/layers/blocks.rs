//! Blocks: what is composed has right gradients, and the bits of the same thing written by hand.

use pipewright_stages::chain;
use pipewright_stages::layers::{Block, Dropout, Embedding, Gelu, GeluForm, Linear, Relu};
use pipewright_stages::testing::GradientCheck;
use proptest::prelude::*;

use super::*;

type Layers = Vec<Box<dyn Layer>>;

fn linear(name: &str, inputs: usize, outputs: usize) -> Linear {
    Linear::new(name, [inputs, outputs], Init::Normal(0.5), 1).with_bias(Init::Uniform(0.5))
}

fn gelu() -> Gelu {
    Gelu::new("gelu", GeluForm::Tanh)
}

/// Panics if something is wrong with the layer.
fn check(layer: impl Layer, input: &Tensor) {
    // Layers in a row curve more, and some gradients are tiny: rounding is seen in the slopes.
    let check = GradientCheck { step: 1e-2, tolerance: 2e-2 };
    check.layer(layer, input).unwrap_or_else(|error| panic!("{error}"));
}

/// A branch from `inputs` numbers to `outputs`, of one of several kinds.
fn branch(kind: usize, name: &str, inputs: usize, outputs: usize) -> Layers {
    let own = |part: &str| format!("{name}.{part}");
    match kind {
        0 if inputs == outputs => chain![],
        1 => chain![linear(&own("fc"), inputs, 5), gelu(), linear(&own("out"), 5, outputs)],
        2 => chain![linear(&own("fc"), inputs, outputs), Dropout::new(&own("dropout"), 0.3, 1).unwrap()],
        3 => chain![
            Block::residual(&own("r"), chain![linear(&own("fc"), inputs, inputs)]),
            linear(&own("out"), inputs, outputs)
        ],
        _ => chain![linear(&own("fc"), inputs, outputs)],
    }
}

fn kinds() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0_usize..5, 1..5)
}

fn branches(kinds: &[usize], inputs: usize, outputs: usize) -> Vec<Layers> {
    let all = kinds.iter().enumerate();
    all.map(|(index, &kind)| branch(kind, &format!("b{index}"), inputs, outputs)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn sums_and_concatenations(kinds in kinds(), rows in 1_usize..4, width in 1_usize..9, out in 1_usize..9) {
        let input = tensor("x", &[rows, width]);
        check(Block::sum("sum", branches(&kinds, width, out)), &input);
        check(Block::concat("concat", branches(&kinds, width, out)), &input);
    }

    #[test]
    fn products(kinds in prop::collection::vec(0_usize..5, 1..4), rows in 1_usize..4, width in 1_usize..6) {
        // A product of several branches curves more.
        let exact = GradientCheck { step: 3e-3, tolerance: 1e-2 };
        let block = Block::product("product", branches(&kinds, width, width));
        exact.layer(block, &tensor("x", &[rows, width])).unwrap();
    }

    #[test]
    fn branches_with_columns_of_their_own(
        widths in prop::collection::vec(1_usize..7, 1..5),
        rows in 1_usize..4,
        out in 1_usize..6,
        kind in 0_usize..5,
    ) {
        let all: usize = widths.iter().sum();
        let input = tensor("x", &[2, rows, all]);
        let part = |(index, &width)| branch(kind, &format!("b{index}"), width, out);
        let parts = || widths.iter().enumerate().map(part);
        check(Block::concat("concat", parts()).of_columns(&widths), &input);
        if kind != 0 {
            check(Block::sum("sum", parts()).of_columns(&widths), &input);
        }
    }

    #[test]
    fn repeated_chains_and_residuals(
        times in 0_usize..4, rows in 1_usize..4, width in 1_usize..6, kind in 1_usize..5,
    ) {
        let input = tensor("x", &[rows, width]);
        check(Block::chain("block", branch(kind, "f", width, width)).repeated(times), &input);
        check(Block::residual("block", branch(kind, "f", width, width)).repeated(times), &input);
    }
}

#[test]
fn a_block_of_ids_may_begin_with_an_embedding() {
    let embed = |name: &str| chain![Embedding::of_tokens("embed", name, 7, 4, Init::Normal(1.0), 1)];
    let input = common::ids("x", &[2, 3], 7);
    check(Block::chain("one", embed("a")), &input);
    check(Block::sum("two", [embed("a"), embed("b")]), &input);
    check(Block::concat("two", [embed("a"), embed("b")]), &input);
}

/// The output and the input gradient of layers one after the other, run by hand.
fn run(layers: &mut [Box<dyn Layer>], input: &Tensor, grad: &Tensor) -> [Tensor; 2] {
    let mut kept = Vec::new();
    let mut output = input.clone();
    for layer in layers.iter_mut() {
        let (next, saved) = layer.forward(train(0), output).unwrap();
        kept.push(saved);
        output = next;
    }
    let mut back = grad.clone();
    for (layer, saved) in layers.iter_mut().zip(kept).rev() {
        let (next, pending) = layer.backward_input(saved, back).unwrap();
        layer.backward_weight(pending).unwrap();
        back = next.unwrap();
    }
    [output, back]
}

fn map(a: &Tensor, b: &Tensor, f: impl Fn(f32, f32) -> f32) -> Tensor {
    let numbers = a.f32().iter().zip(b.f32()).map(|(a, b)| f(*a, *b));
    Tensor::from_vec(a.dims(), numbers.collect()).unwrap()
}

/// Some columns of all rows.
fn columns(of: &Tensor, range: std::ops::Range<usize>) -> Tensor {
    let rows = of.f32().chunks_exact(of.shape().last());
    let numbers = rows.flat_map(|row| row[range.clone()].to_vec());
    Tensor::from_vec(of.shape().with_last(range.len()).dims(), numbers.collect()).unwrap()
}

fn beside(a: &Tensor, b: &Tensor) -> Tensor {
    let (wide, narrow) = (a.shape().last(), b.shape().last());
    let rows = a.f32().chunks_exact(wide).zip(b.f32().chunks_exact(narrow));
    let numbers = rows.flat_map(|(a, b)| [a, b].concat());
    Tensor::from_vec(a.shape().with_last(wide + narrow).dims(), numbers.collect()).unwrap()
}

fn gradients(layers: &mut [Box<dyn Layer>]) -> Vec<Vec<f32>> {
    let parameters = layers.iter_mut().flat_map(|layer| layer.parameters());
    parameters.map(|parameter| parameter.grad.to_vec()).collect()
}

const WIDTH: usize = 19;

/// Two branches that keep the shape.
fn two() -> [Layers; 2] {
    [branch(1, "f", WIDTH, WIDTH), branch(2, "g", WIDTH, WIDTH)]
}

/// Asserts that a block's output, input gradient and weight gradients are these bits.
fn assert_same(
    block: Block,
    input: &Tensor,
    grad: &Tensor,
    [output, input_grad]: [Tensor; 2],
    by_hand: [Layers; 2],
) {
    let mut block = block;
    let (got, got_grad) = pass(&mut block, input, grad);
    assert_eq!(got, output);
    assert_eq!(got_grad, Some(input_grad));
    let expected: Vec<Vec<f32>> = by_hand.into_iter().flat_map(|mut layers| gradients(&mut layers)).collect();
    assert_eq!(gradients(&mut chain![block]), expected);
}

#[test]
fn a_sum_has_the_bits_of_its_branches_added_by_hand() {
    let (x, dy) = (tensor("x", &[5, WIDTH]), tensor("dy", &[5, WIDTH]));
    let [mut f, mut g] = two();
    let ([a, da], [b, db]) = (run(&mut f, &x, &dy), run(&mut g, &x, &dy));
    let by_hand = [map(&a, &b, |a, b| a + b), map(&da, &db, |a, b| a + b)];
    assert_same(Block::sum("sum", two()), &x, &dy, by_hand, [f, g]);
}

#[test]
fn a_residual_has_the_bits_of_its_chain_and_its_input_added() {
    let (x, dy) = (tensor("x", &[5, WIDTH]), tensor("dy", &[5, WIDTH]));
    let [mut f, _] = two();
    let [a, da] = run(&mut f, &x, &dy);
    let by_hand = [map(&a, &x, |a, x| a + x), map(&da, &dy, |a, dy| a + dy)];
    let [chain, _] = two();
    assert_same(Block::residual("residual", chain), &x, &dy, by_hand, [f, chain![]]);
}

#[test]
fn a_product_has_the_bits_of_its_branches_multiplied_by_hand() {
    let (x, dy) = (tensor("x", &[5, WIDTH]), tensor("dy", &[5, WIDTH]));
    let times = |a: &Tensor, b: &Tensor| map(a, b, |a, b| a * b);
    let [mut f, mut g] = two();
    let ([a, _], [b, _]) = (run(&mut two()[0], &x, &dy), run(&mut two()[1], &x, &dy));
    let ([_, da], [_, db]) = (run(&mut f, &x, &times(&dy, &b)), run(&mut g, &x, &times(&dy, &a)));
    let by_hand = [times(&a, &b), map(&da, &db, |a, b| a + b)];
    assert_same(Block::product("product", two()), &x, &dy, by_hand, [f, g]);
}

#[test]
fn a_concatenation_has_the_bits_of_its_branches() {
    let (x, dy) = (tensor("x", &[5, WIDTH]), tensor("dy", &[5, 2 * WIDTH]));
    let [mut f, mut g] = two();
    let [a, da] = run(&mut f, &x, &columns(&dy, 0..WIDTH));
    let [b, db] = run(&mut g, &x, &columns(&dy, WIDTH..2 * WIDTH));
    let by_hand = [beside(&a, &b), map(&da, &db, |a, b| a + b)];
    assert_same(Block::concat("concat", two()), &x, &dy, by_hand, [f, g]);
}

#[test]
fn columns_have_the_bits_of_their_branches() {
    let (x, dy) = (tensor("x", &[5, 2 * WIDTH]), tensor("dy", &[5, 2 * WIDTH]));
    let [mut f, mut g] = two();
    let halves = |of: &Tensor| [columns(of, 0..WIDTH), columns(of, WIDTH..2 * WIDTH)];
    let ([x0, x1], [dy0, dy1]) = (halves(&x), halves(&dy));
    let ([a, da], [b, db]) = (run(&mut f, &x0, &dy0), run(&mut g, &x1, &dy1));
    let by_hand = [beside(&a, &b), beside(&da, &db)];
    let block = Block::concat("beside", two()).of_columns(&[WIDTH, WIDTH]);
    assert_same(block, &x, &dy, by_hand, [f, g]);
}

#[test]
fn a_repeated_block_adds_the_gradients_of_its_last_use_first() {
    let (x, dy) = (tensor("x", &[5, WIDTH]), tensor("dy", &[5, WIDTH]));
    let one = || linear("fc", WIDTH, WIDTH);
    // The same layer three times, by hand: forward of all uses, then backward of the last one first.
    let mut layer = one();
    let (a, first) = layer.forward(train(0), x.clone()).unwrap();
    let (b, second) = layer.forward(train(0), a).unwrap();
    let (c, third) = layer.forward(train(0), b).unwrap();
    let mut grad = Some(dy.clone());
    for saved in [third, second, first] {
        let (input_grad, pending) = layer.backward_input(saved, grad.unwrap()).unwrap();
        layer.backward_weight(pending).unwrap();
        grad = input_grad;
    }
    let block = Block::chain("block", chain![one()]).repeated(3);
    assert_same(block, &x, &dy, [c, grad.unwrap()], [chain![layer], chain![]]);
}

#[test]
fn a_gate_has_the_bits_of_its_two_products_by_hand() {
    let gate = || linear("gate", 8, 12);
    let up = || linear("up", 8, 12);
    let (x, dy) = (tensor("x", &[3, 8]), tensor("dy", &[3, 12]));
    let [a, _] = run(&mut chain![gate(), gelu()], &x, &dy);
    let [b, _] = run(&mut chain![up()], &x, &dy);
    let mut block = Block::product("gated", [chain![gate(), gelu()], chain![up()]]);
    assert_eq!(pass(&mut block, &x, &dy).0, map(&a, &b, |a, b| a * b));
}

#[test]
fn a_first_block_drops_its_input_gradient_and_keeps_its_weight_gradients() {
    let (x, dy) = (tensor("x", &[5, WIDTH]), tensor("dy", &[5, WIDTH]));
    let blocks: [fn() -> Block; 5] = [
        || Block::sum("sum", two()),
        || Block::residual("residual", two().into_iter().next().unwrap()),
        || Block::product("product", two()),
        || Block::chain("chain", chain![Relu::new("relu"), linear("fc", WIDTH, WIDTH)]),
        || Block::concat("beside", [chain![], chain![linear("fc", 12, WIDTH - 7)]]).of_columns(&[7, 12]),
    ];
    for make in blocks {
        let (mut usual, mut first) = (make(), make());
        first.drop_input_gradient();
        assert!(pass(&mut usual, &x, &dy).1.is_some());
        assert!(pass(&mut first, &x, &dy).1.is_none());
        assert_eq!(usual.parameters(), first.parameters());
    }
}
