//! Rows in memory, and micro-batches of them.

use std::ops::Range;
use std::sync::Arc;

use pipewright_stages::{Kind, Shape, Tensor};

use super::order::SampleOrder;
use super::range::{check_rows, check_span};
use super::{Course, DataSource, Fingerprint, IGNORED};
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::{DataError, Result};
use crate::id::MicroBatch;

/// Micro-batches of the rows of a [`Table`].
#[derive(Debug)]
pub struct Rows {
    table: Arc<Table>,
    span: Range<u64>,
    rows: usize,
    order: SampleOrder,
}

impl Rows {
    /// For training: the rows of `span`, in a new order each epoch, every row once an epoch. `rows`: rows in
    /// a micro-batch; `micro_batches`: how many of these a step takes, in all replicas together.
    ///
    /// # Errors
    /// When the span is empty or not within the table, or when `rows` is 0.
    pub fn shuffled(
        table: Arc<Table>,
        span: Range<u64>,
        rows: usize,
        micro_batches: u32,
        seed: u64,
    ) -> Result<Self> {
        let order = SampleOrder::shuffled("rows", seed, rows, micro_batches);
        Self::of(table, span, rows, order)
    }

    /// For validation: the rows of `span` in order. If they do not fill the last micro-batch, its remaining
    /// rows have the target [`IGNORED`](super::IGNORED).
    ///
    /// # Errors
    /// When the span is empty or not within the table, or when `rows` is 0. When targets are numbers, which
    /// cannot be ignored, and the span is no multiple of `rows`.
    pub fn in_order(table: Arc<Table>, span: Range<u64>, rows: usize) -> Result<Self> {
        let all = Self::of(table, span, rows, SampleOrder::InOrder)?;
        let count = all.span.end - all.span.start;
        match all.table.targets.has_ids() || count.is_multiple_of(rows as u64) {
            true => Ok(all),
            false => Err(DataError::new(format!(
                "{}: {count} rows do not fill micro-batches of {rows}, and targets that are numbers cannot \
                 be left out: take a part, or micro-batches, of other sizes",
                all.table.name
            ))
            .into()),
        }
    }

    /// The same, with another course, as when a training goes on with another batch.
    #[must_use]
    pub fn on_course(mut self, of: Course) -> Self {
        self.order = self.order.on_course(of);
        self
    }

    /// How many micro-batches all rows fill.
    pub fn micro_batches(&self) -> u32 {
        (self.span.end - self.span.start).div_ceil(self.rows as u64) as u32
    }

    fn of(table: Arc<Table>, span: Range<u64>, rows: usize, order: SampleOrder) -> Result<Self> {
        check_span(&table.name, &span, table.count())?;
        check_rows(&table.name, rows)?;
        if span.is_empty() {
            return Err(DataError::new(format!("{}: no row is in this part of it", table.name)).into());
        }
        Ok(Self { table, span, rows, order })
    }

    /// The row of the table at a position, or `None` after the last one.
    fn row(&self, step: u64, micro_batch: MicroBatch, row: usize) -> Option<u64> {
        let count = self.span.end - self.span.start;
        let (index, _) = self.order.sample(count, step, micro_batch, (row, self.rows))?;
        Some(self.span.start + index)
    }
}

impl DataSource for Rows {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let rows: Vec<_> = (0..self.rows).map(|row| self.row(step, micro_batch, row)).collect();
        let Table { inputs, targets, .. } = &*self.table;
        Ok((inputs.take(&rows, 0), targets.take_targets(&rows)))
    }

    fn describe(&self) -> String {
        self.table.name.clone()
    }

    fn shapes(&self) -> (Shape, Shape) {
        let Table { inputs, targets, .. } = &*self.table;
        (inputs.shape(self.rows), targets.shape(self.rows))
    }

    /// The fingerprint covers all rows.
    fn fingerprint(&self) -> Result<Fingerprint> {
        let (Range { start, end }, rows) = (&self.span, self.rows);
        let (order, samples) = self.order.fingerprint(&format!("rows from {start}..{end}"));
        Ok(Fingerprint {
            name: self.table.name.clone(),
            contents: self.table.checksum(),
            batches: format!("{rows} {order}"),
            is_sample: false,
            part: Some(self.span.clone()),
            samples,
            sources: Vec::new(),
        })
    }

    fn is_endless(&self) -> bool {
        true
    }
}

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
