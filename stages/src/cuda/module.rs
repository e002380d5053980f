//! The kernels. One source is compiled for the machine's device, and the result is kept on disk.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_char};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, ptr};

use cudarc::driver::result::{DriverError, module};
use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUmodule, CUresult};
use cudarc::nvrtc::result as nvrtc;
use cudarc::nvrtc::sys as nvrtc_sys;
use parking_lot::Mutex;

use super::cache::{cache_folder, keep};
use super::failure::failed;
use super::source::{OPTIONS, SOURCE};
use crate::cuda::library::Library;
use crate::error::{Error, Result};

/// From this many bytes of dynamic shared memory on, a kernel asks for permission. It needs that from 48 KiB
/// on, together with what it declares itself.
const FREE_SHARED: u32 = 40 << 10;

/// The bytes of a checksum.
const CHECKSUM: usize = 8;

/// The code for each architecture, compiled once per process. If several threads need it, one compiles it.
static CODE: Mutex<BTreeMap<String, Code>> = Mutex::new(BTreeMap::new());

/// Compiled kernels.
#[derive(Clone)]
struct Code {
    bytes: Arc<[u8]>,
    /// Whether an earlier run compiled them.
    is_old: bool,
}

/// The kernels on a device, for one thread.
#[derive(Debug)]
pub(crate) struct Kernels {
    module: CUmodule,
    /// Each with the bytes of dynamic shared memory that it may use.
    functions: RefCell<HashMap<&'static str, (CUfunction, u32)>>,
}

impl Kernels {
    /// Loads the kernels for a device of this compute capability into the thread's current context. Compiles
    /// them first if no earlier run has, or if the device refuses what an earlier run compiled.
    ///
    /// All of them are loaded now, and not at their first launches, when there may be no memory left.
    pub(crate) fn load(capability: (i32, i32)) -> Result<Self> {
        Library::Nvrtc.require()?;
        let architecture = architecture(capability);
        let code = compiled(&architecture, |_| true)?;
        let module = match loaded(&code.bytes) {
            Err(DriverError(result)) if code.is_old && result != CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                loaded(&compiled(&architecture, |code| !code.is_old)?.bytes)
            }
            loaded => loaded,
        };
        let module = module.map_err(failed("loading the kernels"))?;
        let kernels = Self { module, functions: RefCell::default() };
        kernels.load_all().map_err(failed("loading the kernels"))?;
        Ok(kernels)
    }

    fn load_all(&self) -> Result<(), DriverError> {
        let mut count = 0;
        // SAFETY: the module is loaded, and the pointers are to locals with room for what is written.
        unsafe {
            sys::cuModuleGetFunctionCount(&mut count, self.module).result()?;
            let mut functions = vec![ptr::null_mut(); count as usize];
            sys::cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, self.module).result()?;
            functions.into_iter().try_for_each(|function| sys::cuFuncLoad(function).result())
        }
    }

    /// A kernel. It may use this many bytes of dynamic shared memory.
    pub(crate) fn function(&self, name: &'static str, shared: u32) -> Result<CUfunction> {
        let known = self.functions.borrow().get(name).copied();
        if let Some((function, _)) = known.filter(|(_, most)| shared <= *most) {
            return Ok(function);
        }
        let c_name = CString::new(name).expect("names of kernels have no zero byte");
        // SAFETY: the module stays loaded while `self` lives.
        let function = unsafe { module::get_function(self.module, c_name) }.map_err(failed(name))?;
        if shared >= FREE_SHARED {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function belongs to a loaded module.
            unsafe {
                cudarc::driver::result::function::set_function_attribute(function, attribute, shared as i32)
            }
            .map_err(failed(name))?;
        }
        self.functions.borrow_mut().insert(name, (function, shared.max(FREE_SHARED)));
        Ok(function)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        // SAFETY: no kernel of it is launched any more, and nobody else has the handle.
        let _ = unsafe { module::unload(self.module) };
    }
}

/// Loads code into the thread's current context.
fn loaded(code: &[u8]) -> Result<CUmodule, DriverError> {
    // SAFETY: the bytes are a cubin from the compiler.
    unsafe { module::load_data(code.as_ptr().cast()) }
}

/// The kernels for an architecture: from another thread, from disk or, where `serves` does not take these,
/// from the compiler.
fn compiled(architecture: &str, serves: impl Fn(&Code) -> bool) -> Result<Code> {
    let mut all = CODE.lock();
    if let Some(code) = all.get(architecture).filter(|code| serves(code)) {
        return Ok(code.clone());
    }
    let file = cache_file(architecture);
    let old = file.as_deref().and_then(kept).map(|bytes| Code { bytes: bytes.into(), is_old: true });
    let code = match old.filter(&serves) {
        Some(code) => code,
        None => {
            let bytes = compile(SOURCE, architecture)?;
            if let Some(file) = &file {
                // If the code cannot be kept, the next run compiles it again.
                let _ = keep(file, &[&bytes[..], &checksum_of(&bytes)].concat());
            }
            Code { bytes: bytes.into(), is_old: false }
        }
    };
    all.insert(architecture.to_owned(), code.clone());
    Ok(code)
}

/// The compiler's name for an architecture. From Hopper on, it includes instructions that only this
/// architecture has.
fn architecture((major, minor): (i32, i32)) -> String {
    let own = if major >= 9 { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

/// The file for compiled kernels. Its name is a hash of what they are made from.
fn cache_file(architecture: &str) -> Option<PathBuf> {
    let folder = cache_folder()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the pointers are to locals that outlive the call.
    unsafe { nvrtc_sys::nvrtcVersion(&mut major, &mut minor) }.result().ok()?;
    let mut hash = DefaultHasher::new();
    (SOURCE, OPTIONS, architecture, major, minor).hash(&mut hash);
    let name = format!("kernels-{architecture}-{:016x}.cubin", hash.finish());
    Some(folder.join(name))
}

/// The code in a file, before its checksum. `None` if it is not whole.
fn kept(file: &Path) -> Option<Vec<u8>> {
    let mut code = fs::read(file).ok()?;
    let checksum = code.split_off(code.len().checked_sub(CHECKSUM)?);
    (checksum == checksum_of(&code)).then_some(code)
}

fn checksum_of(code: &[u8]) -> [u8; CHECKSUM] {
    let mut hash = DefaultHasher::new();
    code.hash(&mut hash);
    hash.finish().to_le_bytes()
}

/// Compiles CUDA C++ to a cubin.
fn compile(source: &str, architecture: &str) -> Result<Vec<u8>> {
    let source = CString::new(source).expect("the kernels' source has no zero byte");
    let program = nvrtc::create_program(&source, Some(c"pipewright.cu"))
        .map_err(|error| refused("making a program", error))?;
    let code = code_of(program, architecture);
    // SAFETY: the program was made above and is not used any more.
    let _ = unsafe { nvrtc::destroy_program(program) };
    code
}

fn code_of(program: nvrtc_sys::nvrtcProgram, architecture: &str) -> Result<Vec<u8>> {
    let mut options = vec![format!("--gpu-architecture={architecture}")];
    options.extend(OPTIONS.map(str::to_owned));
    // SAFETY: the program is alive until the caller destroys it.
    if let Err(error) = unsafe { nvrtc::compile_program(program, &options) } {
        // SAFETY: as above.
        let log = unsafe { nvrtc::get_program_log(program) }.unwrap_or_default();
        let log: Vec<u8> = log.into_iter().map(|letter| letter as u8).collect();
        let log = String::from_utf8_lossy(&log);
        let log = log.trim_end_matches('\0').trim_end();
        let nvrtc::NvrtcError(code) = error;
        return Err(Error::new(format!("compiling the kernels for {architecture}: {code:?}, {log}")));
    }
    let mut size = 0;
    // SAFETY: as above; the pointer is to a local.
    unsafe { nvrtc_sys::nvrtcGetCUBINSize(program, &mut size) }
        .result()
        .map_err(|error| refused("reading the compiled kernels", error))?;
    let mut code = vec![0_u8; size];
    // SAFETY: as above; there is room for as many bytes as the compiler said.
    unsafe { nvrtc_sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast::<c_char>()) }
        .result()
        .map_err(|error| refused("reading the compiled kernels", error))?;
    Ok(code)
}

fn refused(call: &str, nvrtc::NvrtcError(code): nvrtc::NvrtcError) -> Error {
    Error::new(format!("{call}: {code:?}"))
}
