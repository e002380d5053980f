//! Matrix products by cuBLASLt.

pub(crate) mod algorithms;
pub(crate) mod blas;
pub(crate) mod choices;
pub(crate) mod plan;
pub(crate) mod product;
pub(crate) mod trial;

use crate::cuda::driver::{Ptr, Stream};
use crate::cuda::gpu::Gpu;
use crate::cuda::memory::device::Memory;
use crate::cuda::weight_stream::WeightStream;
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
        let operands = Operands { out, old: onto.unwrap_or(out), left, right, bias };
        self.product_on(self.stream(), &self.blas()?.workspace, what, operands)
    }

    /// As [`Gpu::product`] without a bias, of the whole of this memory, on the stream for gradients of
    /// weights. Returns its number there.
    ///
    /// # Errors
    /// As [`Gpu::product`].
    pub(crate) fn product_beside(
        &self,
        beside: &WeightStream,
        what: Product,
        [out, left, right]: [&Memory; 3],
    ) -> Result<u64> {
        let workspace = self.blas()?.weights_workspace.as_ref();
        let workspace = workspace.expect("it is made where there is such a stream");
        let operands =
            Operands { out: out.at(), old: out.at(), left: left.at(), right: right.at(), bias: None };
        beside.queue([out, left, right], |stream| self.product_on(stream, workspace, what, operands))
    }

    /// Queues a product on a stream, which has this workspace. If it is time, it queues the trial of its
    /// algorithms too, on the compute stream.
    fn product_on(
        &self,
        stream: &Stream,
        workspace: &Memory,
        what: Product,
        operands: Operands,
    ) -> Result<()> {
        let Operands { out, old, left, right, bias } = operands;
        assert_eq!(bias.is_some(), what.bias, "a bias where the product has one");
        let aligned = [Some(out), Some(old), Some(left), Some(right), bias]
            .into_iter()
            .flatten()
            .all(|at| at.0.is_multiple_of(ALIGNMENT));
        assert!(aligned, "products are of memory aligned to {ALIGNMENT} bytes");
        let blas = self.blas()?;
        let planned = blas.plan(what, Device::Cuda(self.index()))?;
        let algorithm = planned.algorithm(blas, what)?;
        // SAFETY: the caller's promise. The workspace has the size that plans are made for and is used in the
        // stream's order.
        unsafe { planned.plan.run(blas.handle, algorithm, operands, workspace.at(), stream) }
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
