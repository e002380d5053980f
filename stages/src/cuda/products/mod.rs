//! Matrix products by cuBLASLt.

pub(crate) mod algorithms;
pub(crate) mod blas;
pub(crate) mod choices;
pub(crate) mod plan;
pub(crate) mod product;
pub(crate) mod trial;

use crate::cuda::driver::Ptr;
use crate::cuda::gpu::Gpu;
use crate::device::Device;
use crate::error::Result;
use blas::refused;
use plan::Operands;
use product::{ALIGNMENT, Added, Product};

impl Gpu {
    /// Queues a product on the compute stream. A bias is given if and only if the product has one.
    ///
    /// The caller's addresses must point at as much memory as `what` says and be multiples of 256 bytes.
    /// `out` must overlap nothing else.
    ///
    /// # Errors
    /// When there is no cuBLASLt, or it cannot compute this product on the device.
    pub(crate) fn product(
        &self,
        what: Product,
        out: Ptr,
        left: Ptr,
        right: Ptr,
        Added { bias, onto }: Added,
    ) -> Result<()> {
        assert_eq!(bias.is_some(), what.bias, "a bias where the product has one");
        let aligned = [Some(out), Some(left), Some(right), bias, onto]
            .into_iter()
            .flatten()
            .all(|at| at.0.is_multiple_of(ALIGNMENT));
        assert!(aligned, "products are of memory aligned to {ALIGNMENT} bytes");
        let blas = self.blas()?;
        let planned = blas.plan(what, Device::Cuda(self.index()))?;
        let algorithm = planned.algorithm(blas, what)?;
        let operands = Operands { out, old: onto.unwrap_or(out), left, right, bias };
        // SAFETY: the caller's promise. The workspace has the size that plans are made for and is used in the
        // stream's order.
        unsafe { planned.plan.run(blas.handle, algorithm, operands, blas.workspace.at(), self.stream()) }
            .map_err(refused(what))?;
        planned.measure(blas, what, self)
    }

    /// As [`Gpu::product`] without a bias, where the number of rows, or the length of sums, is another one at
    /// most uses. The addresses may be in the middle of a block of memory.
    ///
    /// There is no trial of algorithms, because few of these products come again.
    ///
    /// # Errors
    /// As [`Gpu::product`].
    pub(crate) fn product_of_rows(&self, what: Product, out: Ptr, left: Ptr, right: Ptr) -> Result<()> {
        let blas = self.blas()?;
        // Not from the addresses alone, so that it does not depend on the first row.
        let bits = out.0 | left.0 | right.0 | what.row_bits() | ALIGNMENT;
        let alignment = 1 << bits.trailing_zeros();
        let plan = blas.plan_of_rows(what, alignment, Device::Cuda(self.index()))?;
        let operands = Operands { out, old: out, left, right, bias: None };
        // SAFETY: as for `product`.
        let queued = unsafe { plan.run(blas.handle, 0, operands, blas.workspace.at(), self.stream()) };
        queued.map_err(refused(what))
    }

    /// As [`Gpu::product`] without a bias, at any addresses. At multiples of 256 bytes, algorithms are tried.
    ///
    /// # Errors
    /// As [`Gpu::product`].
    pub(crate) fn product_anywhere(&self, what: Product, out: Ptr, left: Ptr, right: Ptr) -> Result<()> {
        match (out.0 | left.0 | right.0).is_multiple_of(ALIGNMENT) {
            true => self.product(what, out, left, right, Added::default()),
            false => self.product_of_rows(what, out, left, right),
        }
    }
}
