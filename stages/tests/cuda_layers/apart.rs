//! Documents that are kept apart have the bits on a GPU that each has alone there.

use pipewright_stages::Borders;
use pipewright_stages::layers::{Embedding, Heads};

use super::documents::{ROWS, TIME, check_layers, documents, starts};
use super::*;

#[test]
fn attention_and_rotary_of_documents_have_the_bits_of_each_alone_on_a_gpu() {
    if emulator::start().is_none() {
        return;
    }
    for [query, key_value, width] in [[6, 2, 10], [2, 1, 64], [2, 1, 128], [1, 1, 96], [1, 1, 256]] {
        for dtype in [DType::F32, DType::Bf16] {
            check_layers(gpu(dtype), Heads { query, key_value, width });
        }
    }
}

#[test]
fn positions_begin_anew_in_each_document_on_a_gpu() {
    if emulator::start().is_none() {
        return;
    }
    let ids = Tensor::from_ids(&[ROWS.len(), TIME], vec![3; ROWS.len() * TIME]).expect("they fill it");
    let run = |place: Place| {
        let mut stage = Sequential::new(vec![Box::new(Embedding::new("embed", 7, TIME, 5, 1))]);
        stage.move_to(place).expect("it takes them");
        let borders = Borders::default();
        stage.keep_apart(&borders).expect("it can");
        borders.set(train(0), starts()).expect("they are right");
        let (output, kept) = stage.forward(train(0), ids.clone()).expect("forward");
        let ones = Tensor::from_vec(output.dims(), vec![1.0; output.shape().count()]).expect("they fill it");
        let (_, pending) =
            stage.backward_input(kept, ones.to(place).expect("it takes them")).expect("backward");
        stage.backward_weight(pending).expect("backward");
        let mut parameters = stage.parameters();
        parameters.iter_mut().for_each(|parameter| parameter.fetch(Part::Gradient).expect("it is there"));
        let grads: Vec<Vec<f32>> = parameters.iter().map(|parameter| parameter.grad.to_vec()).collect();
        (here(output), grads)
    };
    let [on_cpu, on_gpu] = [Place::default(), gpu(DType::F32)].map(run);
    assert_eq!(on_gpu, on_cpu);
    assert_eq!(on_gpu.1[1][0], documents().len() as f32, "each has a first token");
}
