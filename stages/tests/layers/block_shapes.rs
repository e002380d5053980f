//! Blocks: which shapes they refuse, how they write text, and what they keep.

use pipewright_stages::chain;
use pipewright_stages::layers::{Attention, Block, LayerNorm, Linear, Recomputed, Reshape};
use proptest::prelude::*;

use super::*;

type Layers = Vec<Box<dyn Layer>>;

fn linear(name: &str, inputs: usize, outputs: usize) -> Linear {
    Linear::new(name, [inputs, outputs], Init::Normal(0.5), 1)
}

fn refusal(block: &Block, dims: &[usize]) -> String {
    let error = block.output_shape(&Shape::f32(dims)).unwrap_err();
    error.at(block.name()).to_string()
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let f = |outputs| chain![linear("fc", 4, outputs)];
    let cases = [
        (
            Block::residual("h.0", f(5)),
            "h.0: what is added must have one shape, but branch 0 gives f32[2, 4] and branch 1 gives \
             f32[2, 5] (branches count from 0)",
        ),
        (
            Block::product("gate", [f(3), f(3), f(1)]),
            "gate: what is multiplied must have one shape, but branch 0 gives f32[2, 3] and branch 2 gives \
             f32[2, 1] (branches count from 0)",
        ),
        (
            Block::concat("both", [chain![], chain![Reshape::new("r", &[2, 2])]]),
            "both: what is put side by side must have the same rows, but branch 0 gives f32[2, 4] and \
             branch 1 gives f32[2, 2, 2] (branches count from 0)",
        ),
        (Block::sum("none", []), "none: a block needs a branch; one without layers gives its input"),
        (
            Block::sum("parts", [f(4), f(4)]).of_columns(&[3, 2]),
            "parts: the branches get columns [3, 2] of f32[2, 4]: the widths add up to 5",
        ),
        (
            Block::sum("parts", [f(4), f(4)]).of_columns(&[4]),
            "parts: the branches get columns [4] of f32[2, 4]: there are 2 branches and 1 widths",
        ),
        (
            Block::sum("parts", [f(4), f(4)]).of_columns(&[4, 0]),
            "parts: the branches get columns [4, 0] of f32[2, 4]: a width is 0",
        ),
        (Block::chain("outer", f(5)).repeated(2), "fc: expected an input of f32[.., 4], got f32[2, 5]"),
    ];
    for (block, expected) in cases {
        assert_eq!(refusal(&block, &[2, 4]), expected);
    }
}

proptest! {
    /// Whatever fits or not: `output_shape` says what forward does, and nothing panics.
    #[test]
    fn output_shape_tells_what_forward_does(
        dims in prop::collection::vec(0_usize..4, 0..4),
        outputs in prop::collection::vec(0_usize..4, 0..4),
        widths in prop::option::of(prop::collection::vec(0_usize..4, 0..4)),
        join in 0_usize..3,
        times in 0_usize..3,
    ) {
        // A branch from 2 numbers to `outputs` numbers, or without layers.
        let branch = |&outputs: &usize| match outputs {
            0 => chain![],
            outputs => chain![linear("fc", 2, outputs)],
        };
        let branches = outputs.iter().map(branch);
        let block = match join {
            0 => Block::sum("block", branches),
            1 => Block::product("block", branches),
            _ => Block::concat("block", branches),
        };
        let block = match &widths {
            Some(widths) => block.of_columns(widths),
            None => block,
        };
        let mut block = block.repeated(times);
        let expected = block.output_shape(&Shape::f32(&dims));
        let forward = block.forward(train(0), tensor("x", &dims));
        match (expected, forward) {
            (Ok(shape), Ok((output, kept))) => {
                prop_assert_eq!(*output.shape(), shape);
                let input_grad = block.backward_input(kept, output).unwrap().0.unwrap();
                prop_assert_eq!(input_grad.dims(), &dims[..]);
            }
            // Where two things do not fit, either may be told.
            (Err(_), Err(_)) => {}
            (expected, got) => prop_assert!(false, "{expected:?}, but forward: {got:?}"),
        }
    }
}

#[test]
fn forward_refuses_what_output_shape_refuses() {
    let mut block = Block::sum("sum", [chain![linear("a", 4, 3)], chain![linear("b", 4, 2)]]);
    let forward = block.forward(train(0), tensor("x", &[2, 4]));
    assert!(forward.unwrap_err().to_string().starts_with("what is added must have one shape"));
    let mut block = Block::sum("sum", [chain![], chain![]]).of_columns(&[2, 3]);
    assert!(block.forward(train(0), tensor("x", &[2, 4])).is_err());
}

#[test]
fn a_repeated_block_writes_no_text() {
    let mut block = Block::chain("twice", chain![linear("fc", 4, 4)]).repeated(2);
    let error = block.forward_next(0, tensor("x", &[1, 1, 4])).unwrap_err();
    assert!(error.to_string().contains("a repeated block writes no text"), "{error}");
}

#[test]
fn a_reshape_turns_rows_back_into_other_dimensions() {
    check_gradients(Reshape::new("reshape", &[3, 2]), &tensor("x", &[4, 6])).unwrap();
    let error = Reshape::new("reshape", &[3, 2]).output_shape(&Shape::f32(&[4, 5])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected an input of f32[batch, ..] for [3, 2]: 6 numbers, 3 dimensions at most, got f32[4, 5]"
    );
}

#[test]
fn text_is_written_through_branches_and_columns() {
    let attend = |name: &str| {
        chain![
            Recomputed::new(
                LayerNorm::new(&format!("{name}.norm"), 6),
                linear(&format!("{name}.qkv"), 6, 18)
            ),
            Attention::new(name, 6, 2).unwrap(),
        ]
    };
    let blocks: [fn(Layers, Layers) -> Block; 4] = [
        |f, g| Block::sum("sum", [f, g]),
        |f, g| Block::product("product", [f, g]),
        |f, g| Block::concat("concat", [f, g, Vec::new()]),
        |f, g| Block::concat("beside", [f, g]).of_columns(&[6, 6]),
    ];
    for (index, make) in blocks.into_iter().enumerate() {
        let mut block = make(attend("f"), attend("g"));
        let width = if index == 3 { 12 } else { 6 };
        let input = tensor("x", &[1, 5, width]);
        let whole = common::forward(&mut block, &input);
        let outputs = whole.shape().last();
        let next = (0..5).flat_map(|at| {
            let token = input.f32()[at * width..][..width].to_vec();
            let token = Tensor::from_vec(&[1, 1, width], token).unwrap();
            block.forward_next(at, token).unwrap().f32().to_vec()
        });
        let next: Vec<f32> = next.collect();
        assert_eq!(next.len(), 5 * outputs);
        for (next, whole) in next.iter().zip(whole.f32()) {
            assert!((next - whole).abs() < 1e-5, "block {index}: {next} and {whole}");
        }
    }
}

#[test]
fn only_a_product_keeps_more_than_its_layers_and_recomputing_keeps_the_input() {
    let input = tensor("x", &[5, 8]);
    let f = |name: &str| chain![linear(name, 8, 8)];
    let kept = |mut block: Block| block.forward(train(0), input.clone()).unwrap().1.bytes();
    let one = 5 * 8 * 4;
    assert_eq!(kept(Block::sum("sum", [f("a"), f("b")])), one, "both layers keep the input");
    assert_eq!(kept(Block::concat("concat", [f("a"), f("b"), chain![]])), one);
    assert_eq!(kept(Block::product("product", [f("a"), f("b")])), 3 * one, "the input and two outputs");
    assert_eq!(kept(Block::chain("three", f("a")).repeated(3)), 3 * one, "the input of each use");
    for block in [Block::product("product", [f("a"), f("b")]), Block::chain("three", f("a")).repeated(3)] {
        let mut block = block;
        block.recompute(Recompute::Selective);
        assert_eq!(kept(block), one, "the input");
    }
    let mut block = Block::product("product", [f("a"), f("b")]);
    let evaluated = ForwardContext { mode: Mode::Evaluate, ..train(0) };
    block.forward(evaluated, input).unwrap();
}
