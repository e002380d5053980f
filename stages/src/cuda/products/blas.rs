//! Matrix products by cuBLASLt.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{cublasLtHandle_t, cublasStatus_t};

use super::choices::Choices;
use super::plan::Plan;
use super::product::{ALIGNMENT, Product, WORKSPACE};
use super::trial::Trial;
use crate::cuda::driver;
use crate::cuda::failure::no_memory_for;
use crate::cuda::library::Library;
use crate::cuda::memory::device::Memory;
use crate::cuda::streams::Streams;
use crate::device::Device;
use crate::error::{Error, Result};

/// How many plans are kept. Then those without a chosen algorithm are dropped, so that ever new numbers of
/// rows do not fill the memory.
const MOST_PLANS: usize = 1024;

/// The use of a product after which its algorithms are tried.
const TRIED_AFTER: u32 = 3;

/// How many products are tried. A trial costs some 60 products, and where micro-batches differ, or prompts
/// do, most products do not come often enough for that.
const MOST_TRIALS: usize = 128;

/// cuBLASLt on a device, for one thread. The plan of each product is made once.
#[derive(Debug)]
pub(crate) struct Blas {
    pub(crate) handle: cublasLtHandle_t,
    plans: RefCell<HashMap<Product, Rc<Planned>>>,
    /// Plans of products of some rows, by product and alignment.
    of_rows: RefCell<HashMap<(Product, u64), Rc<Plan>>>,
    /// What is known of the fastest algorithms.
    choices: Choices,
    /// How many products have been tried.
    trials: Cell<usize>,
    /// One workspace serves all products of the compute stream, because they run one after the other.
    pub(crate) workspace: Memory,
    /// That of the stream for gradients of weights, if there is one.
    pub(crate) weights_workspace: Option<Memory>,
}

/// A plan, and the choice of its algorithm. As long as none is known, it is the first.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    /// The fastest algorithm, once it is known.
    best: Cell<Option<usize>>,
    /// How often the product was computed.
    uses: Cell<u32>,
    /// Queued after some uses. It is not there if there is nothing to measure.
    trial: OnceCell<Option<Trial>>,
}

impl Blas {
    pub(crate) fn open(streams: &Streams) -> Result<Self> {
        Library::CublasLt.require()?;
        let workspace = || streams.lasting_memory_of(WORKSPACE);
        let handle = result::create_handle().map_err(refused("starting cuBLASLt"))?;
        Ok(Self {
            handle,
            plans: RefCell::default(),
            of_rows: RefCell::default(),
            choices: Choices::of(streams.index())?,
            trials: Cell::new(0),
            workspace: workspace()?,
            weights_workspace: streams.weight_stream().map(|_| workspace()).transpose()?,
        })
    }

    pub(crate) fn plan(&self, what: Product, device: Device) -> Result<Rc<Planned>> {
        if let Some(planned) = self.plans.borrow().get(&what) {
            return Ok(Rc::clone(planned));
        }
        let mut plans = self.plans.borrow_mut();
        if plans.len() >= MOST_PLANS {
            plans.retain(|_, planned| planned.is_chosen());
        }
        let plan = self.new_plan(what, ALIGNMENT, device)?;
        let planned = Rc::new(Planned {
            best: Cell::new(self.choices.best(what, plan.algorithms())),
            uses: Cell::new(0),
            trial: OnceCell::new(),
            plan,
        });
        plans.insert(what, Rc::clone(&planned));
        Ok(planned)
    }

    pub(crate) fn plan_of_rows(&self, what: Product, alignment: u64, device: Device) -> Result<Rc<Plan>> {
        let mut plans = self.of_rows.borrow_mut();
        if let Some(plan) = plans.get(&(what, alignment)) {
            return Ok(Rc::clone(plan));
        }
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        let plan = Rc::new(self.new_plan(what, alignment, device)?);
        plans.insert((what, alignment), Rc::clone(&plan));
        Ok(plan)
    }

    fn new_plan(&self, what: Product, alignment: u64, device: Device) -> Result<Plan> {
        Plan::new(self.handle, what, alignment)
            .map_err(refused(format!("cuBLASLt has no way on {device} to compute {what}")))
    }
}

impl Planned {
    /// Whether the fastest algorithm is known, or will be.
    fn is_chosen(&self) -> bool {
        self.best.get().is_some() || matches!(self.trial.get(), Some(Some(_)))
    }

    /// The algorithm for the next use.
    pub(crate) fn algorithm(&self, blas: &Blas, what: Product) -> Result<usize> {
        if let (None, Some(Some(trial))) = (self.best.get(), self.trial.get())
            && let Some(best) = trial.best()?
        {
            self.best.set(Some(best));
            // The memory of the trial goes from CUDA's pool to others that use the GPU.
            driver::trim(blas.choices.gpu())?;
            blas.choices.learn(what, best, self.plan.algorithms());
        }
        Ok(self.best.get().unwrap_or(0))
    }

    /// Counts a use. Queues the trial if it is time, unless it is queued already or its result is known.
    pub(crate) fn measure(&self, blas: &Blas, what: Product, streams: &Streams) -> Result<()> {
        self.uses.set(self.uses.get().saturating_add(1));
        let is_settled = self.best.get().is_some() || self.trial.get().is_some();
        if is_settled || self.uses.get() < TRIED_AFTER || blas.trials.get() >= MOST_TRIALS {
            return Ok(());
        }
        let (plan, workspace) = (&self.plan, blas.workspace.at());
        let trial = Trial::queue(streams, what, plan.algorithms(), |algorithm, operands| {
            // SAFETY: the operands are memory of the trial's own, as large as the product says. The workspace
            // is used in the stream's order.
            unsafe { plan.run(blas.handle, algorithm, operands, workspace, streams.stream()) }.is_ok()
        })?;
        blas.trials.set(blas.trials.get() + usize::from(trial.is_some()));
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

/// The error for a failed cuBLASLt call. `call` names the operation.
pub(crate) fn refused(call: impl fmt::Display) -> impl FnOnce(CublasError) -> Error {
    move |CublasError(status)| match status {
        cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => no_memory_for(&call.to_string()),
        status => Error::new(format!("{call}: {status:?}")),
    }
}
