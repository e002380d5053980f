//! Documents that are kept apart have the bits that each has alone.

use pipewright_stages::layers::{Embedding, Heads, Rope, RopeLayout, RopeScaling};
use pipewright_stages::models::{Gpt, Llama};
use pipewright_stages::threads;
use pipewright_stages::{Borders, DType, Device, Place, Sequential, Stage};

use super::common::{bits, here};
use super::documents::{ROWS, TIME, check_layers, documents, part, starts};
use super::*;

#[test]
fn attention_and_rotary_of_documents_have_the_bits_of_each_alone() {
    for count in [1, 3] {
        // A thread can have helpers once.
        let checks = std::thread::spawn(move || {
            let _threads = threads::start(count, |_| ()).expect("threads can be started");
            for dtype in [DType::F32, DType::Bf16] {
                let heads = Heads { query: 6, key_value: 2, width: 10 };
                check_layers(Place { device: Device::Cpu, dtype }, heads);
            }
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
                let how = format!("{name}, {dtype}, tokens {tokens:?}");
                assert_eq!(bits(&here(part(&all, &tokens))), bits(&here(alone)), "{how}");
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
