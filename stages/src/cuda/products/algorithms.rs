//! The algorithms by which cuBLASLt can compute a product.

use std::ffi::c_int;
use std::ptr::{from_mut, from_ref};

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{
    cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulAlgoConfigAttributes_t as Config,
    cublasLtMatmulAlgoConfigGetAttribute, cublasLtMatmulAlgoGetHeuristic, cublasLtMatmulDesc_t,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t as Preferred, cublasLtMatrixLayout_t, cublasLtReductionScheme_t,
    cublasStatus_t,
};

use super::product::WORKSPACE;

type Result<T> = std::result::Result<T, CublasError>;

/// How many algorithms the heuristics are asked for.
const MOST: usize = 16;

/// The algorithms that may compute a product, the one first that cuBLASLt's heuristics prefer. Their order is
/// the same in every run. The matrices are in cuBLASLt's order, at multiples of `alignment` bytes.
///
/// If the first splits sums among blocks, it is the only one: another split gives other bits. The others do
/// not split sums either.
///
/// # Safety
/// The handle, the description and the layouts are alive.
pub(crate) unsafe fn find(
    handle: cublasLtHandle_t,
    description: cublasLtMatmulDesc_t,
    [a, b, out]: [cublasLtMatrixLayout_t; 3],
    alignment: u64,
) -> Result<Vec<cublasLtMatmulAlgo_t>> {
    let preference = Preference::new(alignment)?;
    // SAFETY: the structure is plain numbers, for which zero is valid.
    let mut found: [cublasLtMatmulHeuristicResult_t; MOST] = unsafe { std::mem::zeroed() };
    let mut count: c_int = 0;
    // SAFETY: the caller's promise. There is room for as many results as are asked for.
    unsafe {
        cublasLtMatmulAlgoGetHeuristic(
            handle,
            description,
            a,
            b,
            out,
            out,
            preference.0,
            MOST as c_int,
            found.as_mut_ptr(),
            from_mut(&mut count),
        )
    }
    .result()?;
    let (first, others) = found[..count as usize]
        .split_first()
        .ok_or(CublasError(cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED))?;
    first.state.result()?;
    let mut algorithms = vec![first.algo];
    if split(&first.algo)? == 1 {
        for other in others.iter().filter(|other| other.state.result().is_ok()) {
            if split(&other.algo)? == 1 {
                algorithms.push(other.algo);
            }
        }
    }
    Ok(algorithms)
}

/// Among how many blocks an algorithm splits each sum.
fn split(algorithm: &cublasLtMatmulAlgo_t) -> Result<i32> {
    let (mut split, mut written) = (0_i32, 0);
    // SAFETY: the pointers are to locals that outlive the call, and the attribute is of this type.
    unsafe {
        cublasLtMatmulAlgoConfigGetAttribute(
            from_ref(algorithm),
            Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
            from_mut(&mut split).cast(),
            size_of::<i32>(),
            from_mut(&mut written),
        )
    }
    .result()?;
    Ok(split)
}

/// Restrictions on the choice of algorithm.
#[derive(Debug)]
struct Preference(cublasLtMatmulPreference_t);

impl Preference {
    fn new(alignment: u64) -> Result<Self> {
        let preference = Self(result::create_matmul_pref()?);
        preference.set(Preferred::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, WORKSPACE)?;
        // If several blocks share a sum, their parts go to the workspace in `f32`, and a separate step adds
        // them in a fixed order. The other scheme, in which blocks add to the output one after the other, is
        // excluded: the output may be bf16, and the order is not documented.
        let reduction = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        preference.set(Preferred::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction)?;
        for side in [
            Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            preference.set(side, alignment as u32)?;
        }
        Ok(preference)
    }

    fn set<T: Copy>(&self, attribute: Preferred, value: T) -> Result<()> {
        // SAFETY: the preference is alive; the value is copied before the call returns.
        unsafe {
            result::set_matmul_pref_attribute(self.0, attribute, from_ref(&value).cast(), size_of::<T>())
        }
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}
