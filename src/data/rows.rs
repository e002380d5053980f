//! Micro-batches of rows in memory.

use std::ops::Range;
use std::sync::Arc;

use pipewright_stages::{Shape, Tensor};

use super::order::SampleOrder;
use super::range::{check_rows, check_span};
use super::{Course, DataSource, Fingerprint, Table};
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
        })
    }

    fn is_endless(&self) -> bool {
        true
    }
}
