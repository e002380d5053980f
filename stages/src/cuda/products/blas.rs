//! Matrix products by cuBLASLt.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{cublasLtHandle_t, cublasStatus_t};

use super::choices::Choices;
use super::plan::{Operands, Plan};
use super::trial::Trial;
use crate::cuda::driver;
use crate::cuda::library::Library;
use crate::cuda::{Gpu, Memory, Ptr};
use crate::device::{DType, Device};
use crate::error::{CudaError, Error, Result};

/// The scratch memory that algorithms may use, in bytes. NVIDIA recommends this much for Hopper (cuBLAS
/// documentation, `cublasSetWorkspace`).
pub(crate) const WORKSPACE: usize = 32 << 20;

/// The alignment of the start of a block of memory, in bytes.
pub(crate) const ALIGNMENT: u64 = 256;

/// How many plans of [products of some rows](Gpu::product_of_rows) are kept. Then all are dropped, so that
/// ever new numbers of rows do not fill the memory.
const MOST_OF_ROWS: usize = 1024;

/// `out = start + left right` for row-major matrices: `left` is `[rows, inner]`, `right` is `[inner,
/// columns]`, and `out` is `[rows, columns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Product {
    /// The rows of `left` and `out`.
    pub(crate) rows: usize,
    /// The length of the sums.
    pub(crate) inner: usize,
    /// The columns of `right` and `out`.
    pub(crate) columns: usize,
    /// Whether `left` lies in memory as `[inner, rows]`.
    pub(crate) left_turned: bool,
    /// Whether `right` lies in memory as `[columns, inner]`.
    pub(crate) right_turned: bool,
    /// The number format of `left` and `right`. Sums are always `f32`.
    pub(crate) dtype: DType,
    /// The number format of `out` and of a bias.
    pub(crate) out: DType,
    /// What the sums start with.
    pub(crate) start: Start,
    /// Whether a bias is added to each row.
    pub(crate) bias: bool,
}

/// What the product is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Start {
    /// Nothing.
    Zero,
    /// The old contents of the output, or another matrix.
    Old,
}

/// The addresses of what a product adds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Added {
    /// A bias: `columns` numbers in the output's format.
    pub(crate) bias: Option<Ptr>,
    /// What the sums start with, if it is not the output's old contents: a matrix like the output.
    pub(crate) onto: Option<Ptr>,
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |turned, rows, columns| match turned {
            true => format!("[{columns}, {rows}] turned"),
            false => format!("[{rows}, {columns}]"),
        };
        let left = side(self.left_turned, self.rows, self.inner);
        let right = side(self.right_turned, self.inner, self.columns);
        let start = match self.start {
            Start::Zero => "",
            Start::Old => " on top of what is there",
        };
        let bias = if self.bias { " with a bias" } else { "" };
        write!(
            f,
            "the product of {} {left} and {right} in {}{start}{bias}",
            self.dtype, self.out
        )
    }
}

/// cuBLASLt on a device, for one thread. The plan of each product is made once.
#[derive(Debug)]
pub(crate) struct Blas {
    handle: cublasLtHandle_t,
    plans: RefCell<HashMap<Product, Rc<Planned>>>,
    /// Plans of products of some rows, by product and alignment.
    of_rows: RefCell<HashMap<(Product, u64), Rc<Plan>>>,
    /// What is known of the fastest algorithms.
    choices: Choices,
    /// One workspace serves all products, because they run one after the other on one stream.
    workspace: Memory,
}

/// A plan, and the choice of its algorithm. As long as none is known, it is the first.
#[derive(Debug)]
struct Planned {
    plan: Plan,
    /// The fastest algorithm, once it is known.
    best: Cell<Option<usize>>,
    /// Queued after the first use. It is not there if there is nothing to measure.
    trial: OnceCell<Option<Trial>>,
}

impl Blas {
    pub(crate) fn open(gpu: &Gpu) -> Result<Self> {
        Library::CublasLt.require()?;
        let workspace = gpu.lasting_memory_of(WORKSPACE)?;
        let handle = result::create_handle().map_err(refused("starting cuBLASLt"))?;
        Ok(Self {
            handle,
            plans: RefCell::default(),
            of_rows: RefCell::default(),
            choices: Choices::of(gpu.index())?,
            workspace,
        })
    }

    fn plan(&self, what: Product, device: Device) -> Result<Rc<Planned>> {
        if let Some(planned) = self.plans.borrow().get(&what) {
            return Ok(Rc::clone(planned));
        }
        let plan = self.new_plan(what, ALIGNMENT, device)?;
        let planned = Rc::new(Planned {
            best: Cell::new(self.choices.best(what, plan.algorithms())),
            trial: OnceCell::new(),
            plan,
        });
        self.plans.borrow_mut().insert(what, Rc::clone(&planned));
        Ok(planned)
    }

    fn plan_of_rows(&self, what: Product, alignment: u64, device: Device) -> Result<Rc<Plan>> {
        let mut plans = self.of_rows.borrow_mut();
        if let Some(plan) = plans.get(&(what, alignment)) {
            return Ok(Rc::clone(plan));
        }
        if plans.len() >= MOST_OF_ROWS {
            plans.clear();
        }
        let plan = Rc::new(self.new_plan(what, alignment, device)?);
        plans.insert((what, alignment), Rc::clone(&plan));
        Ok(plan)
    }

    fn new_plan(&self, what: Product, alignment: u64, device: Device) -> Result<Plan> {
        Plan::new(self.handle, what, alignment).map_err(refused(format!(
            "cuBLASLt has no way on {device} to compute {what}"
        )))
    }
}

impl Planned {
    /// The algorithm for the next use.
    fn algorithm(&self, blas: &Blas, what: Product) -> Result<usize> {
        if let (None, Some(Some(trial))) = (self.best.get(), self.trial.get())
            && let Some(best) = trial.best()?
        {
            self.best.set(Some(best));
            blas.choices.learn(what, best, self.plan.algorithms());
        }
        Ok(self.best.get().unwrap_or(0))
    }

    /// Queues the trial, unless it is queued already or its result is known.
    fn measure(&self, blas: &Blas, what: Product, gpu: &Gpu) -> Result<()> {
        if self.best.get().is_some() || self.trial.get().is_some() {
            return Ok(());
        }
        let (plan, workspace) = (&self.plan, blas.workspace.at());
        let trial = Trial::queue(gpu, what, plan.algorithms(), |algorithm, operands| {
            // SAFETY: the operands are memory of the trial's own, as large as the product says. The workspace
            // is used in the stream's order.
            unsafe { plan.run(blas.handle, algorithm, operands, workspace, gpu.stream()) }.is_ok()
        })?;
        self.trial.get_or_init(|| trial);
        Ok(())
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle, and plans do not use it. The call itself waits for the device.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

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
        let operands = Operands {
            out,
            old: onto.unwrap_or(out),
            left,
            right,
            bias,
        };
        // SAFETY: the caller's promise. The workspace has the size that plans are made for and is used in the
        // stream's order.
        unsafe {
            planned.plan.run(
                blas.handle,
                algorithm,
                operands,
                blas.workspace.at(),
                self.stream(),
            )
        }
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
        let bits = out.0 | left.0 | right.0 | ALIGNMENT;
        let alignment = 1 << bits.trailing_zeros();
        let plan = blas.plan_of_rows(what, alignment, Device::Cuda(self.index()))?;
        let operands = Operands {
            out,
            old: out,
            left,
            right,
            bias: None,
        };
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

/// The error for a failed cuBLASLt call. `call` names the operation.
fn refused(call: impl fmt::Display) -> impl FnOnce(CublasError) -> Error {
    move |CublasError(status)| match status {
        cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => driver::no_memory_for(&call.to_string()),
        status => CudaError {
            library: Library::CublasLt,
            call: call.to_string(),
            code: status as u32,
            name: format!("{status:?}"),
            meaning: None,
            remedy: None,
        }
        .into(),
    }
}
