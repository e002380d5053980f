//! Rows in memory: an input and a target each.

use pipewright_stages::{Kind, Shape, Tensor};

use super::IGNORED;
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::{DataError, Result};

/// Rows in memory: an input and a target each. [`Rows`](super::Rows) makes micro-batches of them.
#[derive(Debug)]
pub struct Table {
    pub(super) name: String,
    pub(super) inputs: Column,
    pub(super) targets: Column,
}

/// The inputs or the targets of all rows.
#[derive(Debug)]
pub(super) struct Column {
    shape: Shape,
    /// Ids, or the bits of numbers.
    values: Vec<u32>,
}

impl Table {
    /// Rows of these inputs and targets: the first dimension of both is the number of rows. Both may be
    /// numbers or ids, such as classes.
    ///
    /// # Errors
    /// [`DataError`] when they have no row, or not the same number of rows.
    pub fn new(inputs: &Tensor, targets: &Tensor) -> Result<Self> {
        Self::named("rows in memory", inputs, targets)
    }

    /// The same, with a name for messages.
    pub(super) fn named(name: &str, inputs: &Tensor, targets: &Tensor) -> Result<Self> {
        let rows = [inputs, targets].map(|tensor| tensor.dims().first().copied().unwrap_or(0));
        if rows[0] == 0 || rows[0] != rows[1] {
            let [inputs, targets] = rows;
            return Err(DataError::new(format!(
                "{inputs} rows of inputs and {targets} of targets: both need the same number, 1 or more"
            ))
            .into());
        }
        Ok(Self { name: name.to_owned(), inputs: Column::new(inputs), targets: Column::new(targets) })
    }

    /// The number of rows.
    pub fn count(&self) -> u64 {
        self.inputs.shape.dims()[0] as u64
    }

    /// The checksum of all inputs and targets, and of their dimensions.
    pub(super) fn checksum(&self) -> Checksum {
        let mut checksum = ChecksumBuilder::new();
        for column in [&self.inputs, &self.targets] {
            checksum.add(format!("{:?} {:?}", column.shape.kind(), column.shape.dims()).as_bytes());
            checksum.add(bytemuck::cast_slice(&column.values));
        }
        checksum.checksum()
    }
}

impl Column {
    fn new(tensor: &Tensor) -> Self {
        let shape = *tensor.shape();
        let values = match shape.kind() {
            Kind::F32 => tensor.f32().iter().map(|number| number.to_bits()).collect(),
            Kind::Ids => tensor.ids().to_vec(),
        };
        Self { shape, values }
    }

    /// Whether they are ids.
    pub(super) fn has_ids(&self) -> bool {
        self.shape.kind() == Kind::Ids
    }

    /// The shape of `rows` rows.
    pub(super) fn shape(&self, rows: usize) -> Shape {
        self.shape.with_first(rows)
    }

    /// These rows. Where there is none, numbers are 0 and ids are `missing`.
    pub(super) fn take(&self, rows: &[Option<u64>], missing: u32) -> Tensor {
        let each = self.values.len() / self.shape.dims()[0];
        let shape = self.shape(rows.len());
        let values = rows.iter().flat_map(|row| match row {
            Some(row) => self.values[*row as usize * each..][..each].to_vec(),
            None => vec![if self.has_ids() { missing } else { 0 }; each],
        });
        match self.shape.kind() {
            Kind::F32 => {
                let mut tensor = Tensor::scratch(shape.dims());
                let numbers = tensor.f32_mut().iter_mut();
                numbers.zip(values).for_each(|(to, bits)| *to = f32::from_bits(bits));
                tensor
            }
            Kind::Ids => {
                let mut tensor = Tensor::scratch_ids(shape.dims());
                tensor.ids_mut().iter_mut().zip(values).for_each(|(to, id)| *to = id);
                tensor
            }
        }
    }

    /// The targets of these rows. Where there is none, they are [`IGNORED`].
    pub(super) fn take_targets(&self, rows: &[Option<u64>]) -> Tensor {
        self.take(rows, IGNORED)
    }
}
