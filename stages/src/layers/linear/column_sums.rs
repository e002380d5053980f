//! Sums for the bias of a linear layer, made by the activation after it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::cuda::{Gpu, Ptr};
use crate::error::Result;
use crate::tensor::Tensor;

/// What a linear layer and the activation after it share. On a GPU, the activation's backward adds up the
/// columns of the gradient that it writes, and the linear layer adds these sums to the gradient of its bias.
/// So it does not read the gradient for that. The sums have the bits that it would find itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnSums(Rc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    are_used: Cell<bool>,
    /// A gradient, and the sums of slices of its rows. The gradient shares memory with the one that the
    /// linear layer gets, so nobody can change that one in place.
    made: RefCell<Option<[Tensor; 2]>>,
}

impl ColumnSums {
    /// The linear layer says in forward whether it will use the sums.
    pub(super) fn set_used(&self, are_used: bool) {
        self.0.are_used.set(are_used);
    }

    /// Whether the linear layer will use the sums.
    pub(crate) fn are_used(&self) -> bool {
        self.0.are_used.get()
    }

    /// Launches an activation's backward that makes the sums: the kernel gets their memory, the gradient,
    /// which it changes, and `other`.
    pub(crate) fn make(&self, gpu: &Gpu, kernel: &'static str, grad: &mut Tensor, other: Ptr) -> Result<()> {
        let sizes @ [rows, columns] = [grad.shape().rows(), grad.shape().last()];
        let sums = grad.f32_beside(&[gpu.slices(rows, columns), columns])?;
        gpu.sum_slices(kernel, sums.at(), [grad.at_mut(gpu)?, other], sizes)?;
        *self.0.made.borrow_mut() = Some([grad.clone(), sums]);
        Ok(())
    }

    /// The sums, if they are of this gradient.
    pub(super) fn take_of(&self, grad: &Tensor) -> Option<Tensor> {
        let [of, sums] = self.0.made.take()?;
        (of.memory() == grad.memory()).then_some(sums)
    }
}
