//! What cuBLASLt has to know of a product. Found once and used at every step.

use std::ffi::c_void;
use std::ptr::from_ref;

use cudarc::cublas::sys::cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T};
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtEpilogue_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t as Attribute, cublasLtMatrixLayout_t, cudaDataType,
};

use super::algorithms;
use super::product::{ALIGNMENT, Product, Start, WORKSPACE};
use crate::cuda::Ptr;
use crate::cuda::driver::Stream;
use crate::device::DType;

type Result<T> = std::result::Result<T, CublasError>;

/// All that cuBLASLt needs to compute a product, except the addresses.
///
/// cuBLASLt stores matrices by columns, so it sees a row-major matrix as its transpose. We therefore ask for
/// `out^T = right^T left^T`, and nothing has to be transposed.
#[derive(Debug)]
pub(crate) struct Plan {
    description: Description,
    left: Layout,
    right: Layout,
    out: Layout,
    /// Those that may be used. At least one.
    algorithms: Vec<cublasLtMatmulAlgo_t>,
    /// The factor of the sums.
    alpha: f32,
    /// The factor for what the sums start with.
    beta: f32,
}

impl Plan {
    /// The plan for a product of operands at multiples of `alignment` bytes.
    pub(crate) fn new(handle: cublasLtHandle_t, what: Product, alignment: u64) -> Result<Self> {
        let description = Description::new(what)?;
        let left = Layout::new(what.dtype, [what.rows, what.inner], what.left_turned, what.left_of)?;
        let right = Layout::new(what.dtype, [what.inner, what.columns], what.right_turned, None)?;
        let out = Layout::new(what.out, [what.rows, what.columns], false, what.out_of)?;
        // SAFETY: all objects were made above and are alive.
        let algorithms =
            unsafe { algorithms::find(handle, description.0, [right.0, left.0, out.0], alignment) }?;
        Ok(Self {
            description,
            left,
            right,
            out,
            algorithms,
            alpha: what.scale.get(),
            beta: f32::from(u8::from(what.start == Start::Old)),
        })
    }

    /// How many algorithms may be used, at least one. The first is the one that cuBLASLt's heuristics prefer.
    pub(crate) fn algorithms(&self) -> usize {
        self.algorithms.len()
    }

    /// Queues the product on a stream, by one of the algorithms.
    ///
    /// # Safety
    /// The addresses point at as much memory as the product says, the workspace has [`WORKSPACE`] bytes, and
    /// using them in the stream's order is correct.
    pub(crate) unsafe fn run(
        &self,
        handle: cublasLtHandle_t,
        algorithm: usize,
        operands: Operands,
        workspace: Ptr,
        stream: &Stream,
    ) -> Result<()> {
        if let Some(bias) = operands.bias {
            self.description.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.0)?;
        }
        // SAFETY: the caller's promise. The two factors are read before the call returns.
        unsafe {
            result::matmul(
                handle,
                self.description.0,
                from_ref(&self.alpha).cast(),
                from_ref(&self.beta).cast(),
                pointer(operands.right),
                self.right.0,
                pointer(operands.left),
                self.left.0,
                pointer(operands.old),
                self.out.0,
                pointer(operands.out),
                self.out.0,
                &self.algorithms[algorithm],
                pointer(workspace),
                WORKSPACE,
                stream.raw().cast(),
            )
        }
    }
}

/// The addresses of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    pub(crate) out: Ptr,
    /// What the sums start with, if they start with something; else like `out`.
    pub(crate) old: Ptr,
    pub(crate) left: Ptr,
    pub(crate) right: Ptr,
    pub(crate) bias: Option<Ptr>,
}

fn pointer(at: Ptr) -> *mut c_void {
    at.0 as *mut c_void
}

fn data_type(dtype: DType) -> cudaDataType {
    match dtype {
        DType::F32 => cudaDataType::CUDA_R_32F,
        DType::Bf16 => cudaDataType::CUDA_R_16BF,
    }
}

/// What is computed.
#[derive(Debug)]
struct Description(cublasLtMatmulDesc_t);

impl Description {
    fn new(what: Product) -> Result<Self> {
        // Sums are in `f32`, and `f32` operands are not rounded to TF32.
        let compute = cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let description = Self(result::create_matmul_desc(compute, cudaDataType::CUDA_R_32F)?);
        let operation = |turned| if turned { CUBLAS_OP_T } else { CUBLAS_OP_N };
        description.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, operation(what.right_turned))?;
        description.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, operation(what.left_turned))?;
        if what.bias {
            let epilogue = cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
            description.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)?;
            let bias = data_type(what.out);
            description.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias)?;
            // The heuristics use this address only to learn the alignment of the bias.
            description.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, ALIGNMENT)?;
        }
        Ok(description)
    }

    fn set<T: Copy>(&self, attribute: Attribute, value: T) -> Result<()> {
        // SAFETY: the description is alive; the value is copied before the call returns.
        unsafe {
            result::set_matmul_desc_attribute(self.0, attribute, from_ref(&value).cast(), size_of::<T>())
        }
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// How a matrix lies in memory.
#[derive(Debug)]
struct Layout(cublasLtMatrixLayout_t);

impl Layout {
    /// The layout of a row-major matrix or, if `turned`, of one that is stored transposed. It may be some
    /// columns of a matrix in memory that is `of` wide.
    fn new(dtype: DType, [rows, columns]: [usize; 2], turned: bool, of: Option<usize>) -> Result<Self> {
        let (rows, columns) = if turned { (columns, rows) } else { (rows, columns) };
        let apart = of.unwrap_or(columns) as i64;
        result::create_matrix_layout(data_type(dtype), columns as u64, rows as u64, apart).map(Self)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}
