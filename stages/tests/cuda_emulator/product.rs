//! One product: computed by cuBLASLt and by a plain loop.

use std::ffi::c_void;
use std::ptr::from_ref;

use cudarc::cublaslt::result::{self as lt, CublasError};
use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtEpilogue_t as Epilogue, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t as Attribute, cublasLtMatmulPreferenceAttributes_t as Preferred,
    cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t as Laid, cudaDataType,
};
use cudarc::driver::result;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use half::bf16;

use crate::driver;

pub(crate) const F32: cudaDataType = cudaDataType::CUDA_R_32F;
pub(crate) const BF16: cudaDataType = cudaDataType::CUDA_R_16BF;

/// A stream of the emulator's first device.
pub(crate) fn stream() -> Option<CUstream> {
    driver::enter(0).then(driver::stream)
}

/// Numbers between -1 and 1 that bf16 can represent.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 25) as f32 / 64.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Copies these numbers to new device memory, in this number format.
fn upload(values: &[f32], kind: cudaDataType, stream: CUstream) -> CUdeviceptr {
    let halves: Vec<bf16> = values.iter().copied().map(bf16::from_f32).collect();
    // SAFETY: as much is allocated as is copied, and the stream is alive.
    unsafe {
        let at = result::malloc_async(stream, values.len() * 4).expect("memory");
        match kind {
            BF16 => result::memcpy_htod_async(at, &halves, stream),
            _ => result::memcpy_htod_async(at, values, stream),
        }
        .expect("a copy");
        at
    }
}

/// Waits for the stream, then reads.
pub(crate) fn download(at: CUdeviceptr, count: usize, kind: cudaDataType, stream: CUstream) -> Vec<f32> {
    let (mut halves, mut values) = (vec![bf16::ZERO; count], vec![0.0; count]);
    // SAFETY: the tests read only what is there.
    unsafe {
        match kind {
            BF16 => result::memcpy_dtoh_async(&mut halves, at, stream),
            _ => result::memcpy_dtoh_async(&mut values, at, stream),
        }
        .expect("a copy");
    }
    match kind {
        BF16 => halves.iter().map(|half| half.to_f32()).collect(),
        _ => values,
    }
}

/// One product of the tests: op(A) is m x k, op(B) is k x n.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) turned: [bool; 2],
    pub(crate) kind: cudaDataType,
    pub(crate) out: cudaDataType,
    pub(crate) epilogue: Epilogue,
    pub(crate) beta: f32,
    pub(crate) batches: usize,
}

/// A small product without special features.
pub(crate) const PLAIN: Case = Case {
    m: 7,
    n: 5,
    k: 9,
    turned: [false; 2],
    kind: F32,
    out: F32,
    epilogue: Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
    beta: 0.0,
    batches: 1,
};

impl Case {
    /// The leading dimensions of A, B and D. Each has two rows of padding.
    pub(crate) fn leading(&self) -> [usize; 3] {
        let [a, b] = self.turned;
        [if a { self.k } else { self.m } + 2, if b { self.n } else { self.k } + 2, self.m + 2]
    }

    /// How many numbers are in one batch of A, B and D.
    pub(crate) fn sizes(&self) -> [usize; 3] {
        let ([a, b], [lda, ldb, ldd]) = (self.turned, self.leading());
        [lda * if a { self.m } else { self.k }, ldb * if b { self.k } else { self.n }, ldd * self.n]
    }

    /// `alpha op(A) op(B) + beta C` at one row and column of one batch.
    pub(crate) fn element(
        &self,
        a: &[f32],
        b: &[f32],
        c: &[f32],
        (batch, row, col): (usize, usize, usize),
    ) -> f32 {
        let ([lda, ldb, ldd], [a_size, b_size, d_size]) = (self.leading(), self.sizes());
        let at = |turned: bool, ld: usize, row: usize, col: usize| {
            if turned { row * ld + col } else { col * ld + row }
        };
        let sum: f64 = (0..self.k)
            .map(|k| {
                let left = a[batch * a_size + at(self.turned[0], lda, row, k)];
                let right = b[batch * b_size + at(self.turned[1], ldb, k, col)];
                f64::from(left) * f64::from(right)
            })
            .sum();
        (sum * 0.5 + f64::from(self.beta) * f64::from(c[batch * d_size + col * ldd + row])) as f32
    }
}

/// The addresses of its matrices on the device.
pub(crate) struct Buffers {
    pub(crate) a: CUdeviceptr,
    pub(crate) b: CUdeviceptr,
    pub(crate) d: CUdeviceptr,
    pub(crate) bias: CUdeviceptr,
    pub(crate) aux: CUdeviceptr,
}

fn set<T>(operation: cublasLtMatmulDesc_t, attribute: Attribute, value: T) {
    // SAFETY: the operation is alive; the value is copied.
    unsafe { lt::set_matmul_desc_attribute(operation, attribute, from_ref(&value).cast(), size_of::<T>()) }
        .expect("an attribute");
}

fn layout(
    kind: cudaDataType,
    rows: usize,
    cols: usize,
    ld: usize,
    case: &Case,
    size: usize,
) -> cublasLtMatrixLayout_t {
    let layout = lt::create_matrix_layout(kind, rows as u64, cols as u64, ld as i64).expect("a layout");
    let (batches, stride) = (case.batches as i32, size as i64);
    // SAFETY: the layout is alive; the values are copied.
    unsafe {
        lt::set_matrix_layout_attribute(
            layout,
            Laid::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
            from_ref(&batches).cast(),
            4,
        )
        .expect("an attribute");
        lt::set_matrix_layout_attribute(
            layout,
            Laid::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
            from_ref(&stride).cast(),
            8,
        )
        .expect("an attribute");
    }
    layout
}

/// Asks the heuristic for an algorithm, and queues the product. Its workspace is `missing` bytes smaller than
/// it should be.
pub(crate) fn multiply(
    case: &Case,
    buffers: &Buffers,
    stream: CUstream,
    missing: usize,
) -> Result<(), CublasError> {
    let ([lda, ldb, ldd], [a_size, b_size, d_size]) = (case.leading(), case.sizes());
    let operation =
        lt::create_matmul_desc(cublasComputeType_t::CUBLAS_COMPUTE_32F, F32).expect("an operation");
    set(operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(case.turned[0]));
    set(operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(case.turned[1]));
    set(operation, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, case.epilogue);
    set(operation, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, buffers.bias);
    set(operation, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, buffers.aux);
    set(operation, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, case.m.next_multiple_of(8) as i64);
    let turned = |turned: bool, rows, cols| if turned { (cols, rows) } else { (rows, cols) };
    let ((a_rows, a_cols), (b_rows, b_cols)) =
        (turned(case.turned[0], case.m, case.k), turned(case.turned[1], case.k, case.n));
    let a = layout(case.kind, a_rows, a_cols, lda, case, a_size);
    let b = layout(case.kind, b_rows, b_cols, ldb, case, b_size);
    let d = layout(case.out, case.m, case.n, ldd, case, d_size);
    let preference = lt::create_matmul_pref().expect("a preference");
    let (handle, most) = (lt::create_handle().expect("a handle"), 1_u64 << 20);
    // SAFETY: all objects are alive, and buffers are as large as the layouts say.
    unsafe {
        lt::set_matmul_pref_attribute(
            preference,
            Preferred::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
            from_ref(&most).cast(),
            8,
        )
        .expect("an attribute");
        let found = lt::get_matmul_algo_heuristic(handle, operation, a, b, d, d, preference)?;
        let workspace = result::malloc_async(stream, 1 << 20).expect("memory");
        let pointer = |at: CUdeviceptr| at as *mut c_void;
        lt::matmul(
            handle,
            operation,
            from_ref(&0.5_f32).cast(),
            from_ref(&case.beta).cast(),
            pointer(buffers.a),
            a,
            pointer(buffers.b),
            b,
            pointer(buffers.d),
            d,
            pointer(buffers.d),
            d,
            &found.algo,
            pointer(workspace),
            found.workspaceSize - missing,
            stream.cast(),
        )
    }
}

/// The inputs on the host (A, B, C, bias, aux), and the same on the device.
pub(crate) fn prepare(case: &Case, stream: CUstream) -> ([Vec<f32>; 5], Buffers) {
    let [a, b, d] = case.sizes();
    let aux = case.m.next_multiple_of(8) * case.n;
    let host = [(a, 1), (b, 2), (d, 3)].map(|(size, seed)| numbers(size * case.batches, seed));
    let [a, b, c] = host;
    let (bias, aux) = (numbers(case.m.max(case.n), 4), numbers(aux, 5));
    let buffers = Buffers {
        a: upload(&a, case.kind, stream),
        b: upload(&b, case.kind, stream),
        d: upload(&c, case.out, stream),
        bias: upload(&bias, case.out, stream),
        aux: upload(&aux, case.out, stream),
    };
    ([a, b, c, bias, aux], buffers)
}
