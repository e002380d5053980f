//! Documents that are kept apart have the bits that each has alone.

use pipewright_stages::layers::{Attention, Embedding, Heads, Rope, RopeLayout, RopeScaling, Rotary};
use pipewright_stages::models::{Gpt, Llama};
use pipewright_stages::threads;
use pipewright_stages::{Borders, DType, Device, Place, Sequential, Stage};

use super::*;

/// The tokens of a row, and the lengths of its documents.
const TIME: usize = 75;
const ROWS: [&[usize]; 3] = [&[20, 1, 37, 17], &[75], &[16, 32, 27]];

/// The starts of the documents in all rows.
fn starts() -> Tensor {
    let of_row = |lengths: &&[usize]| {
        let mut place = 0;
        let starts = lengths.iter().flat_map(|length| {
            place += length;
            vec![(place - length) as u32; *length]
        });
        starts.collect::<Vec<u32>>()
    };
    let starts: Vec<u32> = ROWS.iter().flat_map(of_row).collect();
    Tensor::from_ids(&[ROWS.len(), TIME], starts).expect("they fill the rows")
}

/// The tokens of each document, numbered through all rows.
fn documents() -> Vec<std::ops::Range<usize>> {
    let mut place = 0;
    let lengths = ROWS.iter().flat_map(|row| row.iter());
    lengths
        .map(|length| {
            place += length;
            place - length..place
        })
        .collect()
}

/// The bits of some numbers, in either format.
fn bits(tensor: &Tensor) -> Vec<u32> {
    match tensor.place().dtype {
        DType::F32 => tensor.f32().iter().map(|number| number.to_bits()).collect(),
        DType::Bf16 => tensor.bf16().iter().map(|number| number.to_bits().into()).collect(),
    }
}

/// Some tokens of a tensor `[rows, time, width]`, as a micro-batch of their own.
fn part(tensor: &Tensor, tokens: &std::ops::Range<usize>) -> Tensor {
    let width = tensor.shape().last();
    let own = tokens.start * width..tokens.end * width;
    let dims = [1, tokens.len(), width];
    match tensor.place().dtype {
        DType::F32 => Tensor::from_vec(&dims, tensor.f32()[own].to_vec()).expect("they fill it"),
        DType::Bf16 => {
            let numbers = tensor.bf16()[own].iter().map(|number| number.to_f32()).collect();
            Tensor::from_vec(&dims, numbers).expect("they fill it").to(HALF).expect("the CPU can")
        }
    }
}

const HALF: Place = Place { device: Device::Cpu, dtype: DType::Bf16 };

/// The output and the input gradient of a layer.
fn passes(layer: &mut dyn Layer, input: Tensor, grad: Tensor) -> [Tensor; 2] {
    let (output, kept) = layer.forward(train(0), input).expect("forward");
    let (input_grad, _) = layer.backward_input(kept, grad).expect("backward");
    [output, input_grad.expect("it has one")]
}

/// The layers in which tokens know of each other, or of their positions.
fn layers() -> Vec<Box<dyn Layer>> {
    let heads = Heads { query: 6, key_value: 2, width: 10 };
    let attention = |window| Box::new(Attention::grouped("attention", heads, window).expect("they fit")) as _;
    let rotary = |layout| {
        let rope = Rope { theta: 100.0, scaling: RopeScaling::None, layout };
        Box::new(Rotary::new("rotary", heads, rope).expect("they fit")) as _
    };
    let mut all: Vec<Box<dyn Layer>> = [None, Some(1), Some(19)].map(attention).into();
    all.extend([RopeLayout::Halves, RopeLayout::Pairs].map(rotary));
    all
}

/// A row of their input.
const ROW: usize = (6 + 2 * 2) * 10;

fn check_layers(dtype: DType) {
    let place = Place { device: Device::Cpu, dtype };
    let input = tensor("input", &[ROWS.len(), TIME, ROW]).to(place).expect("the CPU can");
    for (index, mut layer) in layers().into_iter().enumerate() {
        let output = layer.output_shape(input.shape()).expect("it fits");
        let grad = tensor("grad", output.dims()).to(place).expect("the CPU can");
        let borders = Borders::default();
        layer.keep_apart(&borders).expect("it can");
        borders.set(train(0), starts()).expect("they are right");
        let all = passes(layer.as_mut(), input.clone(), grad.clone());
        for tokens in documents() {
            let mut alone = layers().swap_remove(index);
            let expected = passes(alone.as_mut(), part(&input, &tokens), part(&grad, &tokens));
            for (all, expected) in all.iter().zip(expected) {
                let how = format!("layer {index}, {dtype}, tokens {tokens:?}");
                assert_eq!(bits(&part(all, &tokens)), bits(&expected), "{how}");
            }
        }
    }
}

#[test]
fn attention_and_rotary_of_documents_have_the_bits_of_each_alone() {
    for count in [1, 3] {
        // A thread can have helpers once.
        let checks = std::thread::spawn(move || {
            let _threads = threads::start(count, |_| ()).expect("threads can be started");
            [DType::F32, DType::Bf16].map(check_layers)
        });
        checks.join().expect("the bits are equal");
    }
}

/// The scores of a model for these tokens.
fn scores(stage: &mut Sequential, ids: &[u32], dims: [usize; 2]) -> Tensor {
    let input = Tensor::from_ids(&dims, ids.to_vec()).expect("they fill it");
    stage.forward(train(0), input).expect("forward").0
}

#[test]
fn models_score_documents_as_each_alone() {
    let gpt = || {
        let gpt =
            Gpt { vocab: 31, dim: 24, layers: 2, heads: 3, context: TIME, dropout: 0.0, tied: true, seed: 1 };
        gpt.model().expect("it fits")
    };
    let llama = || {
        let llama = Llama {
            vocab: 31,
            dim: 24,
            layers: 2,
            heads: Heads { query: 4, key_value: 2, width: 6 },
            ffn: 40,
            context: TIME,
            rope: Rope { theta: 10_000.0, scaling: RopeScaling::None, layout: RopeLayout::Halves },
            epsilon: 1e-5,
            tied: false,
            padding: None,
            bias: true,
            head_norms: true,
            window: Some(24),
            experts: None,
            seed: 4,
        };
        llama.model().expect("it fits")
    };
    let ids: Vec<u32> = (0..(ROWS.len() * TIME) as u32).map(|at| (at * at + 3 * at) % 31).collect();
    for (name, model) in [("gpt", &gpt as &dyn Fn() -> pipewright_stages::models::Model), ("llama", &llama)] {
        for dtype in [DType::F32, DType::Bf16] {
            let make = || {
                let mut stage = model().whole().expect("it can be made");
                stage.move_to(Place { device: Device::Cpu, dtype }).expect("the CPU can");
                stage
            };
            let (mut stage, borders) = (make(), Borders::default());
            stage.keep_apart(&borders).expect("all layers can");
            borders.set(train(0), starts()).expect("they are right");
            let all = scores(&mut stage, &ids, [ROWS.len(), TIME]);
            for tokens in documents() {
                let alone = scores(&mut make(), &ids[tokens.clone()], [1, tokens.len()]);
                assert_eq!(bits(&part(&all, &tokens)), bits(&alone), "{name}, {dtype}, tokens {tokens:?}");
            }
        }
    }
}

#[test]
fn positions_begin_anew_in_each_document() {
    let mut layer = Embedding::new("embed", 7, TIME, 5, 1);
    let borders = Borders::default();
    layer.keep_apart(&borders).expect("it can");
    borders.set(train(0), starts()).expect("they are right");
    let input = Tensor::from_ids(&[ROWS.len(), TIME], vec![3; ROWS.len() * TIME]).expect("they fill it");
    let (output, kept) = layer.forward(train(0), input).expect("forward");
    let ones = Tensor::from_vec(output.dims(), vec![1.0; output.shape().count()]).expect("they fill it");
    let (_, pending) = layer.backward_input(kept, ones).expect("backward");
    layer.backward_weight(pending).expect("backward");
    let positions = layer.parameters().remove(1).grad.chunks(5).map(|row| row[0]).collect::<Vec<f32>>();
    let have = |position: usize| documents().iter().filter(|tokens| tokens.len() > position).count();
    let expected: Vec<f32> = (0..TIME).map(|position| have(position) as f32).collect();
    assert_eq!(positions, expected);
}

#[test]
fn a_layer_that_cannot_keep_documents_apart_says_so() {
    #[derive(Debug)]
    struct Mixing;
    impl Layer for Mixing {
        fn name(&self) -> &str {
            "mixing"
        }
        fn output_shape(&self, input: &Shape) -> Result<Shape> {
            Ok(*input)
        }
        fn forward(
            &mut self,
            ctx: ForwardContext,
            input: Tensor,
        ) -> Result<(Tensor, pipewright_stages::Kept)> {
            Ok((input, pipewright_stages::Kept::new(ctx, [])))
        }
        fn backward_input(
            &mut self,
            saved: pipewright_stages::Kept,
            grad: Tensor,
        ) -> Result<(Option<Tensor>, pipewright_stages::Kept)> {
            Ok((Some(grad), saved))
        }
    }
    let error =
        Sequential::new(vec![Box::new(Mixing)]).keep_apart(&Borders::default()).expect_err("it cannot");
    let said = error.to_string();
    assert!(said.contains("mixing: this layer cannot keep documents apart"), "{said}");
}
