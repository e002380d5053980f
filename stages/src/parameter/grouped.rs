//! How a parameter's gradient is added up in gradient groups.
//!
//! A pipeline adds up the gradients of a group of micro-batches, puts the sum aside, and goes on with the
//! next group. When a group ends, the newest sums that wait may be added to it.
//!
//! This costs time, since a large sum is in no cache any more. Where the next gradient is a whole group, and
//! the sum before is added to it anyway, a layer may add the gradient to that sum in place.

use std::mem;
use std::ops::Range;

use smallvec::SmallVec;

use crate::cpu::elementwise::{self, add_in_turn};
use crate::cuda::Together;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::parameter::gradient_buffer::{Found, GradientBuffer, SIZE};
use crate::tensor::Tensor;
use crate::tensor::numbers::Numbers;

const ON_ITS_DEVICE: &str = "a sum is on its parameter's device";

impl Parameter {
    /// Says that the layer adds up the gradient in this many groups of rows. A tree adds the groups at the
    /// [end](Parameter::end_group) of a gradient group.
    ///
    /// With several shards there is one group at least, whose sum is not that of all rows.
    pub(crate) fn add_up_in(&mut self, groups: usize) {
        self.of_rows = (0..groups).map(|_| Numbers::zeros(self.grad.len())).collect();
    }

    /// Adds numbers of a tensor, from place `start` on, to the sum of a group of rows. It is the gradient, if
    /// all rows are in one group.
    pub(crate) fn add_grad_of_rows(&mut self, group: usize, more: &Tensor, start: usize) -> Result<()> {
        if let (Some(weights), Some(gpu)) = (self.on_gpu(), more.gpu()?) {
            return weights.add_grad_of_rows(&gpu, group, more.at().offset(start * SIZE));
        }
        let sum = match self.of_rows.get_mut(group) {
            Some(sum) => sum,
            None => &mut self.grad,
        };
        let more = &more.f32()[start..start + sum.len()];
        elementwise::add(sum, more);
        Ok(())
    }

    /// How many numbers a sum over groups of rows has, if there are several groups.
    pub(crate) fn rows_to_sum(&self) -> usize {
        match self.of_rows.is_empty() {
            true => 0,
            false => self.grad.len(),
        }
    }

    /// Adds up this shard's groups of rows, and gives the sum: from place `start` of a tensor of `f32` on.
    pub(crate) fn give_rows(&mut self, to: &mut Tensor, start: usize) -> Result<()> {
        if self.rows_to_sum() == 0 {
            return Ok(());
        }
        self.join_rows()?;
        match (self.on_gpu(), to.gpu()?) {
            (Some(weights), Some(gpu)) => weights.copy_grad_to(to.at_mut(&gpu)?.offset(start * SIZE)),
            _ => {
                to.f32_mut()[start..start + self.grad.len()].copy_from_slice(&self.grad);
                Ok(())
            }
        }
    }

    /// Takes the sum over all shards, from place `start` of a tensor of `f32` on.
    pub(crate) fn take_rows(&mut self, from: &Tensor, start: usize) -> Result<()> {
        if self.rows_to_sum() == 0 {
            return Ok(());
        }
        self.sums.has_all_rows = true;
        match self.on_gpu() {
            Some(weights) => weights.copy_grad_from(from.at().offset(start * SIZE)),
            None => {
                let count = self.grad.len();
                self.grad.copy_from_slice(&from.f32()[start..start + count]);
                Ok(())
            }
        }
    }

    /// Adds up the groups of rows by the tree.
    fn join_rows(&mut self) -> Result<()> {
        if let Some(weights) = self.on_gpu() {
            return weights.join_rows();
        }
        let mut apart = 1;
        while apart < self.of_rows.len() {
            for pair in self.of_rows.chunks_exact_mut(2 * apart) {
                let (earlier, later) = pair.split_at_mut(apart);
                add_in_turn(&mut earlier[0], &[&later[0]]);
            }
            apart *= 2;
        }
        if let Some(total) = self.of_rows.first() {
            self.grad.copy_from_slice(total);
        }
        Ok(())
    }

    /// Says that the layer asks [`Parameter::starts_sum`] each time before it adds a gradient.
    pub(crate) fn asked_by_layer(mut self) -> Self {
        self.sums.by_layer = true;
        self
    }

    /// Says that the layer adds several gradients in a micro-batch. They must be added to each other first,
    /// so none may be added to the sum of another group in place.
    pub(crate) fn expect_several(&mut self) {
        self.sums.by_layer = false;
    }

    /// From now on the gradient counts as zero. Where the layer overwrites the old numbers, they are
    /// unspecified until it does: this saves setting them to zero. On a GPU that may wait in `together`.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn start_sum(&mut self, together: &mut Together) -> Result<()> {
        match (self.sums.by_layer, self.on_gpu()) {
            (true, _) => {
                self.sums.found = Found::Nothing;
                Ok(())
            }
            (false, None) => self.zero_grad(),
            (false, Some(weights)) => {
                weights.clear_grad(together)?;
                self.sums.found = Found::Sum;
                Ok(())
            }
        }
    }

    /// Whether the gradient that is added now must overwrite the old numbers. `is_added_up_first`: the layer
    /// adds up its numbers before it adds them to the old ones, so these may be another group's sum.
    pub(crate) fn starts_sum(&mut self, is_added_up_first: bool) -> bool {
        match mem::take(&mut self.sums.found) {
            Found::Sum => false,
            Found::Nothing => true,
            Found::Newest if is_added_up_first && self.sums.due > 0 => {
                self.sums.due -= 1;
                false
            }
            Found::Newest => {
                let memory = self.sums.spare.pop();
                let memory = memory.unwrap_or_else(|| GradientBuffer::Host(Numbers::zeros(self.grad.len())));
                self.trade(memory).expect("only on the host the newest sum is left in the gradient");
                true
            }
        }
    }

    /// Says that the next gradient is the last one of its group, and that the `newest` sums that wait are
    /// added to the group's sum.
    pub fn expect_end(&mut self, newest: usize) {
        self.sums.due = newest;
    }

    /// All gradients of a group have been added. Adds the sums that were [announced](Parameter::expect_end),
    /// newest first.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn end_group(&mut self) -> Result<()> {
        if self.is_frozen() {
            return Ok(());
        }
        if self.starts_sum(false) {
            self.zero_grad()?;
        }
        if !mem::take(&mut self.sums.has_all_rows) {
            self.join_rows()?;
        }
        let left = self.sums.waiting.len() - mem::take(&mut self.sums.due);
        let added: SmallVec<[GradientBuffer; 4]> = self.sums.waiting.drain(left..).collect();
        let mut on_host: SmallVec<[&[f32]; 4]> = SmallVec::new();
        for sum in added.iter().rev() {
            match (sum, self.on_gpu()) {
                (GradientBuffer::Host(more), None) => on_host.push(more),
                (GradientBuffer::Gpu(more, _), Some(weights)) => {
                    weights.add_grad(&*weights.gpu()?, more.at())?
                }
                _ => unreachable!("{ON_ITS_DEVICE}"),
            }
        }
        add_in_turn(&mut self.grad, &on_host);
        drop(on_host);
        self.sums.spare.extend(added);
        Ok(())
    }

    /// Puts the gradient aside, after the sums that wait already. The next gradient starts a new sum: see
    /// [`Parameter::start_sum`].
    ///
    /// # Errors
    /// When the GPU has too little memory, or reports an error, of this call or of earlier work.
    pub fn put_aside(&mut self, together: &mut Together) -> Result<()> {
        if self.is_frozen() {
            return Ok(());
        }
        if self.sums.by_layer && self.on_gpu().is_none() {
            self.sums.found = Found::Newest;
            return Ok(());
        }
        let memory = match (self.sums.spare.pop(), self.on_gpu()) {
            (Some(memory), _) => memory,
            (None, Some(weights)) => GradientBuffer::Gpu(weights.more_grad_memory()?, weights.trained()),
            (None, None) => GradientBuffer::Host(Numbers::zeros(self.grad.len())),
        };
        self.trade(memory)?;
        self.start_sum(together)
    }

    /// Lets the gradient wait, and takes other memory for the next one.
    fn trade(&mut self, mut memory: GradientBuffer) -> Result<()> {
        match (&mut memory, self.on_gpu_mut()) {
            (GradientBuffer::Host(numbers), None) => mem::swap(numbers, &mut self.grad),
            (GradientBuffer::Gpu(memory, _), Some(weights)) => weights.trade_grad(memory)?,
            _ => unreachable!("{ON_ITS_DEVICE}"),
        }
        self.sums.waiting.push(memory);
        Ok(())
    }

    /// Appends numbers of a sum to `block` as bytes: of a sum that waits, by its place among them, oldest
    /// first, or of the gradient, which comes after them. On a GPU it first waits for all work queued before.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn append_sum(&self, place: usize, range: Range<usize>, block: &mut Vec<u8>) -> Result<()> {
        match self.sums.waiting.get(place) {
            Some(sum) => sum.append_to(range, block),
            None => self.append_grad(range, block),
        }
    }

    /// Adds numbers of such a sum, from `start` on, to those in `bytes`. The gradient is set to the result
    /// too, if it is the sum that is meant: the return value says so. On a GPU it first waits for all work
    /// queued before.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn add_sum(&mut self, place: usize, start: usize, bytes: &mut [u8]) -> Result<bool> {
        match self.sums.waiting.get(place) {
            Some(sum) => sum.add_to_bytes(start, bytes).map(|()| false),
            None => self.add_grad(start, bytes).map(|()| true),
        }
    }

    /// Forgets the sums that wait: they have been added up elsewhere, or are of no use.
    pub fn forget_sums(&mut self) {
        self.sums.spare.append(&mut self.sums.waiting);
    }
}
