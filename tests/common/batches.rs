//! The batches of a reference run, as a data source.
#![allow(unreachable_pub, reason = "one test file uses it")]

use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::stages::{Shape, Tensor};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

/// The batches of a run: `[steps, rows, ...]`, cut into micro-batches of `rows` each.
#[derive(Clone)]
pub struct Batches {
    pub rows: usize,
    pub micro_batches: usize,
    pub input: Recorded,
    pub target: Recorded,
}

/// A tensor with the data of all steps.
#[derive(Clone)]
pub struct Recorded {
    dims: Vec<usize>,
    numbers: Numbers,
}

#[derive(Clone)]
enum Numbers {
    F32(Vec<f32>),
    Ids(Vec<u32>),
}

impl Recorded {
    pub fn read(view: &TensorView<'_>) -> Self {
        let bytes = view.data();
        let numbers = match view.dtype() {
            Dtype::I64 => Numbers::Ids(
                bytes
                    .as_chunks::<8>()
                    .0
                    .iter()
                    .map(|word| u32::try_from(i64::from_le_bytes(*word)).expect("an id"))
                    .collect(),
            ),
            Dtype::F32 => Numbers::F32(floats(bytes)),
            other => panic!("batches of {other:?}"),
        };
        Self { dims: view.shape().to_vec(), numbers }
    }

    /// The shape of `rows` rows.
    fn shape(&self, rows: usize) -> Shape {
        let dims: Vec<usize> = [&[rows], &self.dims[2..]].concat();
        match self.numbers {
            Numbers::F32(_) => Shape::f32(&dims),
            Numbers::Ids(_) => Shape::ids(&dims),
        }
    }

    fn rows(&self, first: usize, rows: usize) -> Tensor {
        let shape = self.shape(rows);
        let each = shape.count() / rows;
        let range = first * each..(first + rows) * each;
        match &self.numbers {
            Numbers::F32(numbers) => Tensor::from_vec(shape.dims(), numbers[range].to_vec()),
            Numbers::Ids(ids) => Tensor::from_ids(shape.dims(), ids[range].to_vec()),
        }
        .expect("rows fill the shape")
    }
}

impl DataSource for Batches {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        let step = step as usize;
        let first = (step * self.micro_batches + micro_batch.index()) * self.rows;
        Ok((self.input.rows(first, self.rows), self.target.rows(first, self.rows)))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (self.input.shape(self.rows), self.target.shape(self.rows))
    }
}

/// The numbers in little-endian bytes.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}
