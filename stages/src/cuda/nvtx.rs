//! Ranges of time for NVIDIA's profilers, by NVTX 3.
//!
//! NVTX has no library: a program looks for the tool that profiles it. The variable `NVTX_INJECTION64_PATH`
//! names the tool's library, which is given the addresses of tables of functions, and fills in those that it
//! has. Source: the headers `nvtx3/nvtxDetail/nvtxInit.h` and `nvtxTypes.h` of CUDA 13. Without a tool a
//! range costs one look at a variable.

use std::env;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt::{self, Write};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libloading::Library;

/// Set by a profiler: the library that is to get the ranges.
const PATH: &str = "NVTX_INJECTION64_PATH";
/// The function of that library which is called first.
const START: &CStr = c"InitializeInjectionNvtx2";
/// Whose ranges these are.
const DOMAIN: &CStr = c"pipewright";
/// The version of NVTX.
const VERSION: u16 = 3;

/// How many functions each module has, with one of number 0 that does not exist. Modules have numbers too.
const MODULES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
/// The module of domains, and the functions of it that are called.
const DOMAINS: usize = 5;
const PUSH: usize = 4;
const POP: usize = 5;
const CREATE: usize = 12;

/// A function of the tool. Null if it has none.
type Slot = AtomicPtr<c_void>;
static SLOTS: [[Slot; 16]; 7] = [const { [const { Slot::new(null_mut()) }; 16] }; 7];

/// The addresses of a module's slots: none of number 0, and none at the end.
struct Addresses([[*const Slot; 17]; 7]);

// SAFETY: they point at atomic variables that are there as long as the program.
unsafe impl Sync for Addresses {}

static ADDRESSES: Addresses = {
    let mut all = [[null(); 17]; 7];
    let mut module = 1;
    while module < MODULES.len() {
        let mut function = 1;
        while function < MODULES[module] {
            all[module][function] = &raw const SLOTS[module][function];
            function += 1;
        }
        module += 1;
    }
    Addresses(all)
};

/// What the tool asks for by number 1: how it gets the tables.
#[repr(C)]
struct Callbacks {
    bytes: usize,
    tables: unsafe extern "C" fn(c_int, *mut *const *const Slot, *mut c_uint) -> c_int,
}

/// What the tool asks for by number 3: versions.
#[repr(C)]
struct Versions {
    bytes: usize,
    version: u32,
    reserved: u32,
    of_tool: extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { bytes: size_of::<Callbacks>(), tables };
static VERSIONS: Versions =
    Versions { bytes: size_of::<Versions>(), version: VERSION as u32, reserved: 0, of_tool };

extern "C" fn exported(number: u32) -> *const c_void {
    match number {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSIONS).cast(),
        _ => null(),
    }
}

/// Gives a module's table and its length. Returns whether there is such a module.
unsafe extern "C" fn tables(module: c_int, table: *mut *const *const Slot, length: *mut c_uint) -> c_int {
    let known = usize::try_from(module).ok().filter(|module| (1..MODULES.len()).contains(module));
    let Some(module) = known else { return 0 };
    // SAFETY: the tool passes addresses of its own variables, or null for what it does not want.
    unsafe {
        if let Some(table) = table.as_mut() {
            *table = ADDRESSES.0[module].as_ptr();
        }
        if let Some(length) = length.as_mut() {
            *length = MODULES[module] as c_uint;
        }
    }
    1
}

extern "C" fn of_tool(_version: u32) {}

/// What a range is, for the tool.
#[repr(C)]
struct Attributes {
    version: u16,
    bytes: u16,
    /// Category, colour and payload. Zero: none.
    unused: [u32; 7],
    /// 1: characters that end with a zero byte.
    message_type: i32,
    message: *const c_char,
}

type Domain = *mut c_void;
type Push = unsafe extern "C" fn(Domain, *const Attributes) -> c_int;
type Pop = unsafe extern "C" fn(Domain) -> c_int;
type Create = unsafe extern "C" fn(*const c_char) -> Domain;

/// The functions of the tool that profiles this program.
#[derive(Debug)]
struct Tool {
    push: Push,
    pop: Pop,
    domain: Slot,
}

impl Tool {
    /// The tool, if there is one. Looks for it at the first call.
    fn find() -> Option<&'static Self> {
        static TOOL: OnceLock<Option<Tool>> = OnceLock::new();
        TOOL.get_or_init(Self::load).as_ref()
    }

    fn load() -> Option<Self> {
        type Start = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
        let path = env::var_os(PATH)?;
        // SAFETY: the variable names a library that is to be loaded into this program, with a function of
        // this type.
        let started = unsafe {
            let library = Library::new(path).ok()?;
            let started = library.get::<Start>(START.to_bytes()).ok()?(exported);
            std::mem::forget(library);
            started
        };
        let slot = |function: usize| SLOTS[DOMAINS][function].load(Ordering::Acquire);
        let functions = [PUSH, POP, CREATE].map(slot);
        if started == 0 || functions.iter().any(|function| function.is_null()) {
            return None;
        }
        let [push, pop, create] = functions;
        // SAFETY: the tool has filled in functions of these types.
        unsafe {
            let create = std::mem::transmute::<*mut c_void, Create>(create);
            Some(Self {
                push: std::mem::transmute::<*mut c_void, Push>(push),
                pop: std::mem::transmute::<*mut c_void, Pop>(pop),
                domain: Slot::new(create(DOMAIN.as_ptr())),
            })
        }
    }

    fn domain(&self) -> Domain {
        self.domain.load(Ordering::Relaxed)
    }
}

/// A range of time on this thread, until it is dropped. A profiler such as Nsight Systems shows it in the
/// domain `pipewright`. Without a profiler it is nothing.
#[must_use = "it ends when it is dropped"]
#[derive(Debug)]
pub struct Range {
    tool: Option<&'static Tool>,
    /// A range ends on the thread where it began.
    _here: std::marker::PhantomData<*const ()>,
}

impl Range {
    /// Begins a range with this name. A profiler sees at most 63 bytes of the name.
    pub fn begin(name: fmt::Arguments<'_>) -> Self {
        let tool = Tool::find();
        if let Some(tool) = tool {
            let mut text = Text { bytes: [0; 64], used: 0 };
            // What has no room is left out.
            let _ = text.write_fmt(name);
            let attributes = Attributes {
                version: VERSION,
                bytes: size_of::<Attributes>() as u16,
                unused: [0; 7],
                message_type: 1,
                message: text.bytes.as_ptr().cast(),
            };
            // SAFETY: the function is the tool's. It copies what it needs of both.
            unsafe { (tool.push)(tool.domain(), &attributes) };
        }
        Self { tool, _here: std::marker::PhantomData }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(tool) = self.tool {
            // SAFETY: the function is the tool's, and this thread has begun the range.
            unsafe { (tool.pop)(tool.domain()) };
        }
    }
}

/// A short text that ends with a zero byte.
struct Text {
    bytes: [u8; 64],
    used: usize,
}

impl Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let free = self.bytes.len() - 1 - self.used;
        let part = &part.as_bytes()[..part.len().min(free)];
        self.bytes[self.used..][..part.len()].copy_from_slice(part);
        self.used += part.len();
        Ok(())
    }
}
