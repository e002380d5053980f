//! The stages of a rank may use the same memory for their gradients, one after the other.
//!
//! With a sharded optimizer, a replica needs the whole gradient of a stage from the stage's first backward to
//! the end of the sum over the replicas. After that it needs only the numbers that it owns, and another stage
//! gets the memory. This is the second stage of ZeRO (Rajbhandari et al., 2020), for stages that do their
//! backwards one after the other.

use std::mem;
use std::ops::Range;

use crate::parameter::Parameter;
use crate::parameter::gradient_buffer::{Found, GradientBuffer};
use crate::tensor::numbers::Numbers;

/// Memory of whole gradients on the host that no parameter has at the moment.
#[derive(Debug, Default)]
pub struct UnusedGradients {
    unused: Vec<Numbers>,
    /// The numbers of each gradient that needs memory next.
    wanted: Vec<usize>,
}

impl UnusedGradients {
    /// Memory for this many numbers, which are unspecified.
    fn take(&mut self, count: usize) -> Numbers {
        match self.unused.iter().rposition(|numbers| numbers.len() == count) {
            Some(place) => self.unused.swap_remove(place),
            None => Numbers::zeros(count),
        }
    }

    /// Gives the memory that no parameter [wants](Parameter::want_whole_gradient) back to the system.
    pub fn free_unwanted(&mut self) {
        let wanted = &mut self.wanted;
        self.unused.retain(|numbers| {
            let place = wanted.iter().position(|count| *count == numbers.len());
            place.map(|place| wanted.swap_remove(place)).is_some()
        });
        wanted.clear();
    }
}

impl Parameter {
    /// Lets the gradient's memory go to other parameters while only the [owned](Parameter::owned) numbers are
    /// needed. The gradient is zero, and has only these from now on. Does nothing where
    /// [`Parameter::may_lend_gradient`] is false.
    pub fn lend_gradient(&mut self) {
        self.lends_gradient = self.may_lend_gradient();
        if self.lends_gradient {
            self.grad = Numbers::zeros(self.owned().len());
        }
    }

    /// Whether the gradient can do with less memory while only the [owned](Parameter::owned) numbers are
    /// needed: not on a GPU, where the layer adds up groups of rows, and where all numbers are owned.
    pub fn may_lend_gradient(&self) -> bool {
        self.on_gpu().is_none() && self.of_rows.is_empty() && self.owned().len() < self.trained()
    }

    /// From now on the gradient has only the numbers that the optimizer updates here. No layer may add to it
    /// before [`Parameter::take_whole_gradient`]. Does nothing without [`Parameter::lend_gradient`].
    pub fn keep_own_gradient(&mut self, unused: &mut UnusedGradients) {
        if !self.lends_gradient || self.grad.len() < self.trained() {
            return;
        }
        let mut own = mem::take(&mut self.own_grad);
        own.copy_from_slice(&self.grad[self.owned()]);
        unused.unused.push(mem::replace(&mut self.grad, own));
        self.sums.lent = self.sums.spare.len();
        for sum in self.sums.spare.drain(..) {
            if let GradientBuffer::Host(numbers) = sum {
                unused.unused.push(numbers);
            }
        }
    }

    /// Says that [`Parameter::take_whole_gradient`] comes next.
    pub fn want_whole_gradient(&self, unused: &mut UnusedGradients) {
        if self.grad.len() < self.trained() {
            unused.wanted.extend((0..1 + self.sums.lent).map(|_| self.trained()));
        }
    }

    /// From now on the gradient has all its numbers, which count as zero.
    pub fn take_whole_gradient(&mut self, unused: &mut UnusedGradients) {
        let count = self.trained();
        if self.grad.len() == count {
            return;
        }
        self.own_grad = mem::replace(&mut self.grad, unused.take(count));
        let lent = (0..self.sums.lent).map(|_| GradientBuffer::Host(unused.take(count)));
        self.sums.spare.extend(lent);
        match self.sums.by_layer {
            true => self.sums.found = Found::Nothing,
            false => self.grad.fill(0.0),
        }
    }

    /// Where these numbers are in [`Parameter::grad`].
    pub(crate) fn in_gradient(&self, numbers: Range<usize>) -> Range<usize> {
        let first = match self.grad.len() == self.trained() {
            true => 0,
            false => self.owned.start,
        };
        numbers.start - first..numbers.end - first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::init::Init;
    use crate::rng;

    fn lending(count: usize) -> Parameter {
        let mut parameter = Parameter::new("w", &[count], Init::Zeros, 0);
        parameter.own(65_536..count);
        parameter.lend_gradient();
        parameter
    }

    fn begin(parameter: &mut Parameter, unused: &mut UnusedGradients) {
        parameter.want_whole_gradient(unused);
        unused.free_unwanted();
        parameter.take_whole_gradient(unused);
    }

    #[test]
    fn the_numbers_that_are_owned_stay_and_another_parameter_gets_the_memory() {
        let [mut one, mut other] = [lending(100_000), lending(100_000)];
        let mut unused = UnusedGradients::default();
        assert_eq!(one.grad[..], vec![0.0; 100_000 - 65_536]);
        begin(&mut one, &mut unused);
        assert_eq!(one.grad[..], vec![0.0; 100_000]);
        rng::fill_normal(rng::key(1, "grad"), 1.0, &mut one.grad);
        let (whole, memory) = (one.grad.to_vec(), one.grad.as_ptr());
        let squares = |parameter: &Parameter| {
            let mut square = 0.0;
            parameter.grad_squares(1, |_, sum| square = sum);
            square
        };
        let square = squares(&one);
        one.keep_own_gradient(&mut unused);
        assert_eq!(one.grad[..], whole[65_536..]);
        assert_eq!(one.owned_parts().1, &whole[65_536..]);
        assert_eq!(squares(&one), square);
        let mut block = Vec::new();
        one.append_grad(70_000..70_002, &mut block).expect("it is on the host");
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&block), whole[70_000..70_002]);
        begin(&mut other, &mut unused);
        assert_eq!(other.grad.as_ptr(), memory);
        assert!(other.grad.iter().all(|number| *number == 0.0));
        begin(&mut one, &mut unused);
        assert!(one.grad.as_ptr() != memory && one.grad.len() == 100_000);
    }

    #[test]
    fn memory_of_another_size_is_freed_first() {
        let [mut small, large] = [lending(70_000), lending(90_000)];
        let mut unused = UnusedGradients::default();
        begin(&mut small, &mut unused);
        small.keep_own_gradient(&mut unused);
        assert_eq!(unused.unused.len(), 1);
        large.want_whole_gradient(&mut unused);
        unused.free_unwanted();
        assert!(unused.unused.is_empty());
    }

    #[test]
    fn what_is_owned_as_a_whole_is_not_lent() {
        let mut whole = Parameter::new("w", &[100], Init::Zeros, 0);
        whole.lend_gradient();
        whole.grad.fill(2.0);
        let mut unused = UnusedGradients::default();
        whole.keep_own_gradient(&mut unused);
        assert!(unused.unused.is_empty());
        begin(&mut whole, &mut unused);
        assert_eq!(whole.grad[..], [2.0; 100]);
    }
}
